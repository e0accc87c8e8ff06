"""`kafkatap records`: list the records that producers sent and consumers fetched, as lines, JSON or Parquet."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from kafkatap.dissector.records import batches
from kafkatap.kernels import store
from kafkatap.reports.rendering.record_lines import Rendering, json_lines, text_lines

from ...complaints import complain, name_of
from ...engine.selection import selection_of
from ...run import Follow, Watch
from ...selected_messages.selected_records import RecordReader, RecordSelection, can_read_twice
from ..console import (
    SIGNALS_OF_FOLLOW,
    advice_on,
    following,
    interrupts,
    no_kafka,
    note_key_log,
    notes,
    progress,
    readable_captures,
    refuse,
)
from ..exit_codes import DAMAGED, DONE, INTERRUPTED, WRONG
from ..values import chosen_key_log, read_options

#: Bytes of a key or value on a line for people, unless --max-bytes says otherwise.
LINE_BYTES = 256
#: Characters of lines that are written at once.
_WRITTEN = 1 << 16


def run(options: argparse.Namespace) -> int:
    """Run the command; return its exit code."""
    store.verbose = options.verbose > 0
    try:
        follow = following(options)
        if follow is None:
            options.captures = readable_captures(options.captures, "records", notes(options))
        target = None if options.parquet is None else parquet_path(options.parquet)
        with interrupts(SIGNALS_OF_FOLLOW if follow else ()) as stop, progress(options) as drawn:
            reader = _reader(options, lambda done: drawn(done) or bool(stop), follow)
            tables = _first_rows(reader.tables(), options.number)
            written = _write_lines(tables, options) if target is None else _write_parquet(tables, target, reader)
        return _finish(reader, options, written, target)
    except BrokenPipeError:
        raise
    except (ValueError, OSError) as error:
        return refuse(error)


def _reader(options: argparse.Namespace, watch: Watch, follow: Follow | None) -> RecordReader:
    reading = read_options(options)
    # --topic selects single records: an exchange may hold those of other topics too.
    selection = selection_of(argparse.Namespace(**{**vars(options), "topic": None}), reading.definitions)
    if selection.expression is not None and (follow is not None or not can_read_twice(options.captures)):
        what = "what is piped in" if follow is None else "what is followed"
        raise ValueError(f"{what} can be filtered by --topic, --from and --to alone (save it to a file first)")
    wanted = RecordSelection(selection, _topic_test(options.topic))
    reading = reading._replace(key_log=chosen_key_log(options, is_growing=follow is not None))
    return RecordReader(options.captures, reading, wanted, watch=watch, follow=follow)


def _topic_test(globs: list[str] | None) -> Callable[[str], bool] | None:
    if not globs:
        return None
    from kafkatap.reports.expressions.values import glob_pattern

    pattern = glob_pattern("--topic", globs)
    return lambda topic: pattern.match(topic) is not None


def _first_rows(tables: Iterable[Any], number: int | None) -> Iterator[Any]:
    """Yield at most `number` rows of the tables."""
    left = number
    if left == 0:
        return
    for table in tables:
        yield table if left is None else table.slice(0, left)
        if left is not None:
            left -= min(left, table.num_rows)
            if left == 0:
                return


def _write_lines(tables: Iterable[Any], options: argparse.Namespace) -> int:
    """Write each record as a line; return how many."""
    most = options.max_bytes
    written = 0
    for table in tables:
        if options.json:
            lines = json_lines(table, Rendering(options.values, most))
        else:
            lines = text_lines(table, Rendering(options.values, LINE_BYTES if most is None else most), options.utc)
        waiting: list[str] = []
        size = 0
        for line in lines:
            waiting.append(line)
            size += len(line)
            written += 1
            if size > _WRITTEN:
                _write(waiting)
                size = 0
        _write(waiting)
        sys.stdout.flush()
    return written


def _write(lines: list[str]) -> None:
    """Write lines and empty the list."""
    encoding = sys.stdout.encoding or "utf-8"
    text = lines[0] if len(lines) == 1 else "\n".join(lines)  # a long line is not copied
    if lines:
        lines.clear()
        sys.stdout.write(text if text.isascii() else text.encode(encoding, "backslashreplace").decode(encoding))
        sys.stdout.write("\n")


def parquet_path(text: str) -> Path:
    """The file that --parquet names: itself where it ends in .parquet, else records.parquet in that folder, which is
    made. ValueError where that cannot be."""
    path = Path(text)
    if path.suffix == ".parquet" and not path.is_dir():
        if not path.parent.is_dir():
            raise ValueError(f"{path.parent} is no directory")
        return path
    if path.exists() and not path.is_dir():
        raise ValueError(f"{text} is no directory, and no .parquet")
    os.makedirs(path, exist_ok=True)
    return path / "records.parquet"


def _write_parquet(tables: Iterable[Any], target: Path, reader: RecordReader) -> int:
    """Write the table piece by piece; the file is whole or not there. Return its rows."""
    from kafkatap.reports.record_table import empty_table

    from ...parquet.parquet_files import ParquetFiles

    written = 0
    with ParquetFiles(target.parent, [target.stem]) as files:
        files.write(target.stem, empty_table())
        for table in tables:
            files.write(target.stem, table)
            written += table.num_rows
        if not _is_cut_short(reader):
            files.publish()
    return written


def _is_cut_short(reader: RecordReader) -> bool:
    return reader.run is not None and reader.run.is_cut_short


def _finish(reader: RecordReader, options: argparse.Namespace, written: int, target: Path | None) -> int:
    """Report damage and counts; return the exit code."""
    run, tally = reader.run, reader.tally
    if run is None:  # nothing was asked for
        return DONE
    damaged = run.damaged
    for file in damaged:
        complain(f"{name_of(file.path)}: {file.damage}{advice_on(file, 'shown')}")
    if run.files and all(file.fatal for file in run.files):
        return WRONG
    if target is not None and not run.is_cut_short:
        complain(f"wrote {written:,} rows to {target}")
    unread = _unread(tally.batches)
    if tally.wrong_crc:
        complain(f"{_count(tally.wrong_crc, 'batch', 'batches')} with a wrong CRC (marked)")
    if unread:
        complain(f"not all could be read: {unread}")
    if run.interrupted:
        if target is not None and run.is_cut_short:
            complain("interrupted: no table was written")
        elif not run.is_caught_up:
            complain("interrupted: these are the records of what was read until then")
        return INTERRUPTED
    context = run.context()
    note_key_log(options, run.files, run.engine.key_log, context)
    found = any(context.ledger["requests"].values())
    if not found and not written:
        complain(no_kafka(context))
    elif not written:
        leaving = selection_of(options).text
        complain(f"no record matches {leaving}" if leaving else "no records in this input")
    lost = bool(damaged or unread or tally.wrong_crc)
    return DONE if (found or written) and not lost else DAMAGED


def _unread(counts: Any) -> str:
    """The batches that could not be read completely, by reason; "" if there are none."""
    usual = (batches.OK, batches.PARTIAL)
    losses = [
        f"{_count(number, 'batch', 'batches')} {name.replace('_', ' ')}"
        for status, (name, number) in enumerate(zip(batches.RECORD_STATUSES, counts.tolist(), strict=True))
        if number and status not in usual
    ]
    return ", ".join(losses)


def _count(number: int, one: str, many: str) -> str:
    return f"{number:,} {one if number == 1 else many}"
