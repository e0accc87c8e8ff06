"""Terminal functions of all commands: readable captures, refusals, Ctrl-C, the progress bar."""

from __future__ import annotations

import argparse
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from kafkatap.reassembly.scanner import SECRETS_ROOM
from kafkatap.reports.batch import Context
from kafkatap.reports.connection_words import P_KAFKA
from kafkatap.reports.counting.connection_counts import connection_totals

from ..captures.capture_reader import FileReport
from ..captures.paths import find_captures
from ..captures.pipes import STANDARD_INPUT, Interrupted, Pipe, is_pipe
from ..captures.storage import is_uri
from ..complaints import complain, reason_of
from ..run import Follow
from .exit_codes import DONE, WRONG
from .lakes import refuse_lake

if TYPE_CHECKING:
    from ..engine.tls.key_log import KeyLog

#: What ends --follow besides Ctrl-C, as it ends live capture.
SIGNALS_OF_FOLLOW = ("SIGTERM", "SIGHUP")
#: Seconds of work before the progress bar is drawn.
PATIENCE = 0.5


def discard_output() -> None:
    """Discard the rest of standard output, so that the interpreter's last flush cannot fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def refuse(error: ValueError | OSError) -> int:
    """Print what is wrong with a call, with the place in the text; return the exit code."""
    reason, *place = reason_of(error).split("\n") if isinstance(error, ValueError) else [reason_of(error)]
    complain(reason)
    for line in place:
        complain(line)
    return WRONG


def advice_on(file: FileReport, where: str = "in the report") -> str:
    """Advice for a damaged file, as the end of a sentence."""
    damage = file.damage or ""
    if file.fatal:
        if "first" in damage:
            return ""
        if "cannot be opened" in damage:
            return _SUDO if "permission" in damage else ""
        if "empty" in damage or "cut short" in damage:
            return "; is it still being written, or was it copied in part?"
        return "; use a pcap or pcapng file (also .gz or .zst)"
    packets = f"the {file.packets:,} packets before that are" if file.packets else "no packet before that is"
    advice = "" if "cut short" in damage else " (a repair tool such as pcapfix can recover some of the rest)"
    return f"; {packets} {where}{advice}"


_SUDO = " (captures by root are often readable only by root; use sudo)"


def readable_captures(
    named: list[str], command: str = "report", note: Callable[[str], None] = lambda text: None
) -> list[str]:  # fmt: skip
    """The named captures, with expanded folders and globs. `note`: as for `find_captures`.

    ValueError or OSError if none can be opened, or if one does not exist. Nothing is read before.
    """
    _check_standard_input(named, command)
    refuse_lake(named, command)
    captures = find_captures(named, note)
    for path in captures:
        if not is_uri(path) and not is_pipe(path):  # opening a pipe would disturb its writer
            try:
                os.close(os.open(path, os.O_RDONLY))
            except PermissionError:
                if len(captures) == 1:
                    raise ValueError(f"{path}: permission denied{_SUDO}") from None
            except FileNotFoundError:
                raise
            except OSError:
                if len(captures) == 1:
                    raise
    return captures


def following(options: argparse.Namespace) -> Follow | None:
    """How --follow reads the captures; None without it. ValueError for options that do not fit."""
    if not options.follow:
        if options.duration:
            raise ValueError("--duration needs --follow: without it, reading ends with the captures")
        return None
    from ..captures.followed_captures import check_followed

    _check_standard_input(options.captures, options.command)
    check_followed(options.captures)
    options.progress = False
    return Follow(options.duration, complain, notes(options))


def notes(options: argparse.Namespace) -> Callable[[str], None]:
    """What gets lines that only -v prints."""
    return complain if options.verbose else lambda text: None


def _check_standard_input(named: Sequence[str], command: str) -> None:
    """ValueError if standard input is among the captures and cannot be read."""
    if named.count(STANDARD_INPUT) > 1:
        raise ValueError("standard input (-) can be read only once")
    if STANDARD_INPUT in named and (sys.stdin is None or sys.stdin.isatty()):
        raise ValueError(f"standard input is a terminal; pipe a capture into it (tcpdump -w - | kafkatap {command} -)")


@contextmanager
def interrupts(also: Sequence[str] = ()) -> Iterator[list[int]]:
    """A list that is not empty after Ctrl-C, or one of the signals named in `also`. A second one ends the run at
    once."""
    pressed: list[int] = []

    def note(number: int, _: Any) -> None:
        if pressed:
            raise KeyboardInterrupt
        pressed.append(number)
        if Pipe.waiting:
            raise Interrupted

    others = (getattr(signal, name) for name in also)
    numbers = [signal.SIGINT, *(n for n in others if signal.getsignal(n) != signal.SIG_IGN)]  # as nohup ignores SIGHUP
    before = {number: signal.signal(number, note) for number in numbers}
    try:
        yield pressed
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def progress(options: argparse.Namespace) -> Iterator[Any]:
    """A function to call with the number of bytes read. After a while, it draws a bar on a terminal."""
    if not (options.progress and sys.stderr.isatty()):
        yield lambda done: False
        return

    sizes = [0 if is_pipe(c) or is_uri(c) else os.stat(c).st_size for c in options.captures]
    bar = _Bar(sum(sizes) if all(sizes) else None)
    try:
        yield bar.update
    finally:
        bar.close()


def note_key_log(
    options: argparse.Namespace, files: Iterable[FileReport], key_log: KeyLog | None, context: Context
) -> None:
    """Say if captures have secrets that were not read; with -v also how many were read and used."""
    left_out = sum(file.secrets_left_out for file in files)
    if left_out:
        many = "1 block with TLS secrets was" if left_out == 1 else f"{left_out:,} blocks with TLS secrets were"
        complain(f"{many} not read: damaged, or beyond {SECRETS_ROOM >> 20} MiB of secrets in a capture")
    if key_log is None or not options.verbose:
        return
    from kafkatap.reports.encryption import encryption_of

    used = encryption_of(context).decrypted_connections
    complain(f"key log: {key_log.line_count:,} secrets, {used:,} connections decrypted")


#: Names of filters that files of --hosts have values for.
_HOST_NAMES = re.compile(r"\b(?:client|broker)_host\b")


def nothing_matches(what: str, selected: str | None, has_output: bool, options: argparse.Namespace) -> int:
    """Say that no `what` matches a selection; return the exit code. `has_output`: a file was asked for. It is not
    written."""
    complain(f"no {what} matches {selected}" + (": nothing is written" if has_output else ""))
    if not options.hosts and (named := _HOST_NAMES.search(selected or "")):
        complain(f"filters know names of --hosts alone: without it, {named[0]} is null")
    return WRONG if has_output else DONE


def unread_batches(counts: Any, with_cut: bool = False) -> str:
    """The record batches that could not be read completely, by reason; "" if there are none. `counts`: by status.
    `with_cut`: also those that a connection or the capture ended in."""
    from kafkatap.dissector.records import batches

    usual = (batches.OK, batches.PARTIAL, *(() if with_cut else (batches.CUT_OFF,)))
    return ", ".join(
        f"{number:,} {'batch' if number == 1 else 'batches'} {name.replace('_', ' ')}"
        for status, (name, number) in enumerate(zip(batches.RECORD_STATUSES, counts.tolist(), strict=True))
        if number and status not in usual
    )


def no_kafka(context: Context) -> str:
    if not context.packets:
        return "this input has no packets (did the capture filter exclude all?)"
    kafka = connection_totals(context).of_protocol(P_KAFKA)
    if kafka:
        many = "1 connection uses" if kafka == 1 else f"{kafka:,} connections use"
        return f"{many} Kafka, but this input has no whole request"
    if context.encrypted_share > 0:
        from kafkatap.reports.encryption import encryption_of

        why = encryption_of(context).why()
        return f"no readable Kafka in this input: its connections are encrypted (TLS){f': {why}' if why else ''}"
    return "no Kafka found in this input (if its connections started before the capture, try --port)"


class _Bar:
    """A progress bar on standard error, by rich. `update(bytes read so far)`. `total`: None where the input's length is
    not known."""

    def __init__(self, total: int | None) -> None:
        self._total = total
        self._begun = time.monotonic()
        self._progress: Any = None
        self._task: Any = None

    def update(self, done: int) -> bool:
        """Show where we are. Returns False: it never ends the reading."""
        if self._progress is None and time.monotonic() - self._begun > PATIENCE:
            self._show()
        if self._progress is not None:
            self._progress.update(self._task, completed=done)
        return False

    def _show(self) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
            TransferSpeedColumn,
        )

        self._progress = Progress(
            TextColumn("reading"),
            BarColumn(),
            DownloadColumn(),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._task = self._progress.add_task("reading", total=self._total)
        self._progress.start()

    def close(self) -> None:
        if self._progress is not None:
            self._progress.stop()
