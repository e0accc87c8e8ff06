"""`kafkatap report`: from options to output."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kafkatap.kernels import store
from kafkatap.reports import heading
from kafkatap.reports.batch import Batch, Context
from kafkatap.reports.build import build_report
from kafkatap.reports.counts import ReportCounts
from kafkatap.reports.filters import ALWAYS, NEVER, Filters
from kafkatap.reports.model import Report

from .__main__ import drop_output
from .engine import Engine
from .options import When, api_keys, own_version
from .running import Run
from .sources import STANDARD_INPUT, FileReport, Interrupted, Pipe

DONE, DAMAGED, WRONG, INTERRUPTED = 0, 1, 2, 130
HEADING_REQUESTS = next(i for i, c in enumerate(heading.COLUMNS) if c.name == "requests")


def complain(text: str) -> None:
    """One line on standard error; control characters of file names and captures are escaped."""
    shown = "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text)
    print(f"kafkatap: {shown}", file=sys.stderr)


def report(options: argparse.Namespace) -> int:
    """Carry out `kafkatap report`; return its exit code."""
    store.verbose = options.verbose > 0
    try:
        filters = _filters(options)
        _check_captures(options.captures)
        _check_outputs(options)
    except (ValueError, OSError) as error:
        complain(_reason(error))
        return WRONG
    topics = options.by == "topic" or bool(options.topic)
    engine = Engine(all_results=topics or bool(options.parquet), ports=options.port or ())
    counts = ReportCounts(filters, engine, by_topic=topics, interval=options.interval)
    kept: list[Batch] = []
    with _interrupts() as stop, _progress(options) as show:
        run = Run(options.captures, engine, watch=lambda done: show(done) or bool(stop))
        try:
            for batch in _windowed(run, counts, options):
                counts.add(batch)
                if options.parquet:
                    kept.append(batch)
        except OSError as error:
            complain(_reason(error))
            return WRONG
    for file in run.damaged:
        if not (run.interrupted and file.path == STANDARD_INPUT):
            complain(f"{_name(file.path)}: {file.damage}{_advice(file)}")
    if run.files and all(f.fatal for f in run.files):
        return WRONG
    context = run.context()
    result = build_report(counts, context, by=options.by, curves=bool(options.plots), asked=_asked(options))
    found = any(context.ledger["requests"].values())
    if not found:
        complain(_no_kafka(context))
    elif not result.heading.rows[0][HEADING_REQUESTS]:
        complain(f"no request is left with {_asked(options)}")
    try:
        _write(options, result)
        _write_files(options, result)
        if options.parquet:
            _write_parquet(options.parquet, kept, run, context)
    except OSError as error:
        complain(_reason(error))
        return WRONG
    if run.interrupted:
        complain("interrupted: the report is of what was read until then")
        return INTERRUPTED
    return DONE if found and not run.damaged else DAMAGED


def _name(path: str) -> str:
    return "standard input" if path == STANDARD_INPUT else path


def _advice(file: FileReport) -> str:
    """What to do about a damaged file, as the end of a sentence."""
    damage = file.damage or ""
    if file.fatal:
        if "first" in damage:
            return ""
        if "empty" in damage or "cut short" in damage:
            return "; is it still being written, or was it copied in part?"
        return "; give it a pcap or pcapng file (also .gz or .zst)"
    packets = f"the {file.packets:,} packets before that are" if file.packets else "no packet before that could be"
    advice = "" if "cut short" in damage else " (a repair tool such as pcapfix may save some of the rest)"
    return f"; {packets} in the report{advice}"


def _reason(error: Exception) -> str:
    if not isinstance(error, OSError) or error.strerror is None:
        return str(error)
    what = error.strerror[:1].lower() + error.strerror[1:]
    return f"{_name(str(error.filename))}: {what}" if error.filename is not None else what


def _no_kafka(context: Context) -> str:
    if not context.packets:
        return "there are no packets in this input (did the capture's filter let none pass?)"
    if context.encrypted_share > 0:
        return "no readable Kafka in this input: its connections are encrypted (TLS)"
    return "no Kafka found in this input (if its connections began before the capture, --port may help)"


def _filters(options: argparse.Namespace) -> Filters:
    names = [name for group in options.api or () for name in group]
    start, end = options.start, options.end
    return Filters(
        start=ALWAYS if start is None or start.relative else start.ns,
        end=NEVER if end is None or end.relative else end.ns,
        clients=tuple(options.client or ()),
        brokers=tuple(options.broker or ()),
        apis=api_keys(names) if names else frozenset(),
        topics=tuple(options.topic or ()),
    )


def _asked(options: argparse.Namespace) -> str | None:
    """The options that leave something out, as they were given; None where nothing is left out."""
    parts = []
    for name in ("from", "to", "client", "topic", "broker", "api"):
        value = getattr(options, {"from": "start", "to": "end"}.get(name, name))
        if isinstance(value, When):
            parts.append(f"--{name} {value.text}")
        for each in value if isinstance(value, list) else ():
            parts.append(f"--{name} {','.join(each) if isinstance(each, list) else each}")
    return " ".join(parts) or None


def _check_captures(captures: list[str]) -> None:
    if captures.count(STANDARD_INPUT) > 1:
        raise ValueError("standard input (-) can be read only once")
    for path in captures:
        if path == STANDARD_INPUT:
            if sys.stdin is None or sys.stdin.isatty():
                raise ValueError(
                    "standard input is a terminal; pipe a capture into it (tcpdump -w - | kafkatap report -)"
                )
        elif os.path.isdir(path):
            raise ValueError(f"{path} is a directory; name the captures in it ({path.rstrip('/')}/*.pcap)")
        else:
            try:
                os.close(os.open(path, os.O_RDONLY))
            except PermissionError:
                raise ValueError(
                    f"{path}: permission denied (what root captured is often for root alone: sudo)"
                ) from None


def _check_outputs(options: argparse.Namespace) -> None:
    """What would fail after a long run is to fail before it."""
    if options.plots:
        from importlib.util import find_spec

        if find_spec("matplotlib") is None:
            raise ValueError("--plots needs matplotlib (pip install 'kafkatap[plots]')")
    for folder in (options.csv, options.plots, options.parquet):
        if folder:
            if os.path.exists(folder) and not os.path.isdir(folder):
                raise ValueError(f"{folder} is no directory")
            os.makedirs(folder, exist_ok=True)


def _windowed(run: Run, counts: ReportCounts, options: argparse.Namespace) -> Iterator[Batch]:
    """The run's batches; a window relative to the first packet is set once that is known."""
    relative = any(w is not None and w.relative for w in (options.start, options.end))
    for batch in run.batches():
        if relative and run.engine.first is not None:
            counts.set_window(
                _moment(options.start, run.engine.first, ALWAYS), _moment(options.end, run.engine.first, NEVER)
            )
            relative = False
        yield batch


def _moment(when: When | None, first: int, otherwise: int) -> int:
    if when is None:
        return otherwise
    return when.ns + first if when.relative else when.ns


@contextmanager
def _interrupts() -> Iterator[list[int]]:
    """A list that is no longer empty once Ctrl-C was pressed; pressed again, it ends at once."""
    pressed: list[int] = []

    def note(number: int, _: Any) -> None:
        if pressed:
            raise KeyboardInterrupt
        pressed.append(number)
        if Pipe.waiting:
            raise Interrupted

    before = signal.signal(signal.SIGINT, note)
    try:
        yield pressed
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _progress(options: argparse.Namespace) -> Iterator[Any]:
    """What to call with the bytes read so far: draws a bar on a terminal once the work has taken a while."""
    if not (options.progress and sys.stderr.isatty()):
        yield lambda done: False
        return
    from .progress import Bar

    sizes = [0 if c == STANDARD_INPUT else os.stat(c).st_size for c in options.captures]
    bar = Bar(sum(sizes) if all(sizes) else None)
    try:
        yield bar.update
    finally:
        bar.close()


def _write(options: argparse.Namespace, result: Report) -> None:
    """The report on standard output. That its reader went away (`| head`) is no reason not to write the files."""
    try:
        if options.json:
            from kafkatap.reports.json_report import write_json

            write_json(result, sys.stdout, own_version())
        else:
            from kafkatap.reports.text import write_text

            color = None if options.color == "auto" else options.color == "always"
            write_text(result, sys.stdout, top=options.top, utc=options.utc, color=color)
        sys.stdout.flush()
    except BrokenPipeError:
        drop_output()


def _write_files(options: argparse.Namespace, result: Report) -> None:
    if options.csv:
        from kafkatap.reports.csv_report import write_csv

        _told(write_csv(result, Path(options.csv)), options.csv)
    if options.plots:
        from kafkatap.reports.plots import write_plots

        _told(write_plots(result, Path(options.plots), options.utc), options.plots)


def _told(written: list[Path], folder: str) -> None:
    complain(f"wrote {', '.join(p.name for p in written)} to {folder}")


def _write_parquet(folder: str, kept: list[Batch], run: Run, context: Context) -> None:
    from .parquet import write_tables

    _told(write_tables(Path(folder), kept, run, context), folder)
