"""`kafkatap records`: list the records that producers sent and consumers fetched, as lines, JSON, CSV or Parquet."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator
from io import TextIOWrapper
from pathlib import Path
from typing import TextIO

from kafkatap.kernels import store
from kafkatap.reports.record_rows import RecordRows
from kafkatap.reports.rendering.record_lines import Rendering, csv_header, csv_lines, json_lines, text_lines

from ...complaints import complain, name_of
from ...engine.selection import selection_of
from ...installation import has_arrow, without_arrow
from ...output_file import STANDARD_OUTPUT, OutputFile, check_file, check_not_read, naming
from ...replaceable import PARQUET as PARQUET_FILE
from ...replaceable import TEXT
from ...run import Follow, Watch
from ...selected_messages.selected_records import RecordReader, RecordSelection, can_read_twice, is_for_one_pass
from ..console import (
    SIGNALS_OF_FOLLOW,
    advice_on,
    following,
    interrupts,
    no_kafka,
    note_key_log,
    notes,
    nothing_matches,
    progress,
    readable_captures,
    refuse,
    unread_batches,
)
from ..exit_codes import DAMAGED, DONE, INTERRUPTED, WRONG
from ..values import chosen_key_log, other_inputs, read_options

#: Bytes of a key or value on a line for people, unless --max-bytes says otherwise.
LINE_BYTES = 256
#: What the name of a file ends with, and what is then written; otherwise text or, with --json, JSON.
PARQUET, CSV, JSON = "parquet", "csv", "json"
_FORMATS = {".parquet": PARQUET, ".csv": CSV, ".json": JSON, ".jsonl": JSON, ".ndjson": JSON}
#: Names that promise what is not written.
_REFUSED = (".tsv", ".gz", ".zst", ".xz", ".bz2", ".zip", ".xlsx", ".html", ".arrow", ".feather", ".avro", ".orc")
#: Characters of lines that are written at once.
_WRITTEN = 1 << 16


def run(options: argparse.Namespace) -> int:
    """Run the command; return its exit code."""
    store.verbose = options.verbose > 0
    try:
        follow = following(options)
        if follow is None:
            options.captures = readable_captures(options.captures, "records", notes(options))
        target = _checked_output(options)
        with interrupts(SIGNALS_OF_FOLLOW if follow else ()) as stop, progress(options) as drawn:
            reader = _reader(options, lambda done: drawn(done) or bool(stop), follow)
            form = options.values or ("none" if reader.has_record_filter else "auto")
            parts = _first_rows(reader.rows(), options.number or None)
            if target is None:
                written = _write_lines(parts, options, form, sys.stdout, JSON if options.json else "")
            elif _format_of(target) == PARQUET:
                written = _write_parquet(parts, target, reader, options.overwrite)
            else:
                written = _write_file(parts, target, reader, options, form)
        return _finish(reader, options, written, target)
    except BrokenPipeError:
        raise
    except (ValueError, OSError) as error:
        return refuse(error)


def _reader(options: argparse.Namespace, watch: Watch, follow: Follow | None) -> RecordReader:
    reading = read_options(options)
    # --topic selects single records: an exchange may hold those of other topics too.
    selection = selection_of(argparse.Namespace(**{**vars(options), "topic": None}), reading.definitions)
    if not is_for_one_pass(selection) and (follow is not None or not can_read_twice(options.captures)):
        what = "what is piped in" if follow is None else "what is followed"
        raise ValueError(
            f"{what} can be filtered by --topic, --from, --to and record.* alone (save it to a file first)"
        )
    wanted = RecordSelection(selection, _topic_test(options.topic))
    reading = reading._replace(key_log=chosen_key_log(options, is_growing=follow is not None))
    return RecordReader(options.captures, reading, wanted, watch=watch, follow=follow)


def _topic_test(globs: list[str] | None) -> Callable[[str], bool] | None:
    if not globs:
        return None
    from kafkatap.reports.expressions.values import glob_pattern

    pattern = glob_pattern("--topic", globs)
    return lambda topic: pattern.match(topic) is not None


def _first_rows(parts: Iterable[RecordRows], number: int | None) -> Iterator[RecordRows]:
    """Yield at most `number` rows of all parts."""
    left = number
    for rows in parts:
        if left is not None:
            rows.leave(left)
            left -= len(rows)
        yield rows
        if left == 0:
            return


def _write_lines(
    parts: Iterable[RecordRows], options: argparse.Namespace, values: str, output: TextIO, form: str = ""
) -> int:
    """Write each record as a line; return how many. `values`: the form of keys and values. `form`: "json", "csv" or, by
    default, text."""
    most = options.max_bytes
    written = 0
    if form == CSV:
        output.write(csv_header() + "\n")
    for rows in parts:
        if form == JSON:
            lines = json_lines(rows, Rendering(values, most))
        elif form == CSV:
            lines = csv_lines(rows, Rendering(values, most))
        else:
            lines = text_lines(rows, Rendering(values, LINE_BYTES if most is None else most), options.utc)
        waiting: list[str] = []
        size = 0
        for line in lines:
            waiting.append(line)
            size += len(line)
            written += 1
            if size > _WRITTEN:
                _write(waiting, output)
                size = 0
        _write(waiting, output)
        output.flush()
    return written


def _write(lines: list[str], output: TextIO) -> None:
    """Write lines and empty the list."""
    encoding = output.encoding or "utf-8"
    text = lines[0] if len(lines) == 1 else "\n".join(lines)  # a long line is not copied
    if lines:
        lines.clear()
        output.write(text if text.isascii() else text.encode(encoding, "backslashreplace").decode(encoding))
        output.write("\n")


def _checked_output(options: argparse.Namespace) -> Path | None:
    """The file of --output; None for standard output. ValueError or OSError where it cannot be written."""
    if options.output in (None, STANDARD_OUTPUT):
        return None
    target = Path(options.output)
    form = _format_of(target)
    if form == PARQUET and not has_arrow():
        raise ValueError(without_arrow("Parquet needs"))
    line = csv_header().encode() if form == CSV else None
    kind = PARQUET_FILE if form == PARQUET else TEXT
    check_not_read("--output", options.output, other_inputs(options))
    check_file("--output", options.output, kind, options.captures, options.overwrite, line)
    suffix = target.suffix.lower()
    if suffix in _REFUSED:
        raise ValueError(f"--output: records are not written as {suffix}; name it .csv, .jsonl, .parquet or .txt")
    if options.json and form in (PARQUET, CSV):
        raise ValueError("--json writes lines, and a file of this name is a table: leave out --json, or name it .json")
    return target


def _format_of(target: Path) -> str:
    return _FORMATS.get(target.suffix.lower(), "")


def _write_file(
    parts: Iterable[RecordRows], target: Path, reader: RecordReader, options: argparse.Namespace, values: str
) -> int:
    """Write lines to a file, which is whole or not there. Return their number."""
    with naming(str(target)), OutputFile(str(target), is_private=False, overwrite=options.overwrite) as made:
        lines = TextIOWrapper(made.file, "utf-8", write_through=True)
        written = _write_lines(parts, options, values, lines, JSON if options.json else _format_of(target))
        lines.detach()
        if _is_wanted(reader, written):
            made.publish()
    return written


def _write_parquet(parts: Iterable[RecordRows], target: Path, reader: RecordReader, overwrite: bool) -> int:
    """Write the table piece by piece; the file is whole or not there. Return its rows."""
    from kafkatap.reports.record_table import empty_table, records_table

    from ...parquet.parquet_files import ParquetFiles

    written = 0
    with ParquetFiles(target.parent, [target.stem], overwrite) as files:
        files.write(target.stem, empty_table())
        for rows in parts:
            files.write(target.stem, records_table(rows).slice(0, len(rows)))
            written += len(rows)
        if _is_wanted(reader, written):
            files.publish()
    return written


def _is_wanted(reader: RecordReader, written: int) -> bool:
    """Whether a file appears: all was read, and where there is a selection, something matches it."""
    is_cut_short = reader.run is not None and reader.run.is_cut_short
    return not is_cut_short and bool(written or not reader.has_selection)


def _finish(reader: RecordReader, options: argparse.Namespace, written: int, target: Path | None) -> int:
    """Report damage and counts; return the exit code."""
    run, tally = reader.run, reader.tally
    assert run is not None
    damaged = run.damaged
    for file in damaged:
        complain(f"{name_of(file.path)}: {file.damage}{advice_on(file, 'shown')}")
    if run.files and all(file.fatal for file in run.files):
        return WRONG
    if target is not None and _is_wanted(reader, written):
        complain(f"wrote {_count(written, 'record', 'records')} to {target}")
    has_filter = reader.has_record_filter
    unread = unread_batches(tally.batches, with_cut=has_filter)
    if tally.wrong_crc:
        complain(f"{_count(tally.wrong_crc, 'batch', 'batches')} with a wrong CRC (marked)")
    if tally.wrong_messages:
        complain(f"{_count(tally.wrong_messages, 'record', 'records')} of compressed sets with a wrong CRC (marked)")
    if unread:
        complain(f"not all could be read{' and compared' if has_filter else ''}: {unread}")
    is_table = target is not None and _format_of(target) == PARQUET
    if has_filter and written and options.values is None and not is_table:
        complain("keys and values are not printed with such a filter, unless --values auto says so")
    if run.interrupted:
        if target is not None and run.is_cut_short:
            complain("interrupted: no file was written")
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
        if not leaving:
            complain("no records in this input")
        elif nothing_matches("record", leaving, target is not None, options) != DONE:
            return WRONG
    lost = bool(damaged or unread_batches(tally.batches) or tally.wrong_crc or tally.wrong_messages)
    return DONE if (found or written) and not lost else DAMAGED


def _count(number: int, one: str, many: str) -> str:
    return f"{number:,} {one if number == 1 else many}"
