"""Reports of one engine, of engines that share connections, and over splits, and how they are compared.

assert_same(in_shards([path], 3), one_engine([path]))
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from kafkatap.captures.storage import stored_bytes
from kafkatap.library import Analysis
from kafkatap.reports.build import build_report
from kafkatap.reports.model import Report
from kafkatap.reports.rendering.json_report import report_object
from kafkatap.shards.local_tables import LocalTables
from kafkatap.shards.shard_run import count_with_shards
from kafkatap.spark.captures import Captures
from kafkatap.splits.run_options import RunOptions

#: A report as its JSON has it.
Whole = dict[str, Any]
Paths = Sequence[Path | str]
USUAL = RunOptions()


def made(report: Report) -> Whole:
    """A report as its JSON has it."""
    whole: Whole = json.loads(json.dumps(report_object(report, "")))
    return whole


def one_engine(paths: Paths, options: RunOptions = USUAL, by: str = "api", block_size: int | None = None) -> Whole:
    """What all other ways are compared with."""
    found = Analysis(paths, options.read, options.selection, block_size)
    return made(found.report(by, sections=options.wanted, options=options.section_options, curves=False))


def in_shards(
    paths: Paths, shards: int, options: RunOptions = USUAL, by: str = "api", tables: LocalTables | None = None
) -> Whole:
    """As `--jobs`. `tables` gets the rows."""
    names = [str(path) for path in paths]
    options = replace(
        options, by_topic=by == "topic", by_connection=by == "connection", input_bytes=stored_bytes(names)
    )  # fmt: skip
    found = count_with_shards(names, shards, options, tables=tables)
    if tables is not None:
        tables.publish(found.context)
    return made(
        build_report(
            found.counts, found.context, by=by, selected=options.selection.shown(found.context.first),
            sections=options.wanted, over_facts=found.sections, options=options.section_options,
        )
    )  # fmt: skip


def splits_of(paths: Paths, count: int, options: RunOptions = USUAL) -> Captures:
    """Captures in so many splits, which are read in this process."""
    names = [str(path) for path in paths]
    return Captures(None, names, max(-(-sum(map(os.path.getsize, names)) // count), 1), options)


def over_splits(paths: Paths, count: int, options: RunOptions = USUAL, by: str = "api") -> Whole:
    """As on Spark, in this process."""
    return made(splits_of(paths, count, options).report(by))


def compared(whole: Whole) -> dict[str, Any]:
    """What does not depend on the way: by name the rows of each table, warnings and notes. Captures may have other
    names, which stand in `files`, in commands, and before warnings on them."""
    tables = {
        name: [{key: value for key, value in row.items() if key != "command"} for row in rows]
        for name, rows in whole["reports"].items()
        if name != "files"
    }
    warnings = [line for line in whole["warnings"] if not line.startswith("/")]
    return {**tables, "warnings": warnings, "notes": whole["notes"]}


def differences(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[str]:
    """The first lines that differ of each table, as `compared` gives them."""
    lines = []
    for name in sorted(found.keys() | wanted.keys()):
        one, other = (_lines(each.get(name)) for each in (found, wanted))
        if one != other:
            lines.append(f"{name}: {len(one)} rows instead of {len(other)}")
            lines += [f"    {a}\n    instead of {b}" for a, b in zip(one, other, strict=False) if a != b][:2]
    return lines


def _lines(value: Any) -> list[str]:
    return [json.dumps(row) for row in value] if isinstance(value, list) else [json.dumps(value)]


def assert_same(found: Whole, wanted: Whole) -> None:
    """Both are the same, also in what they say of captures."""
    assert found.keys() == wanted.keys()
    lines = differences(compared(found), compared(wanted))
    assert not lines, "\n".join(lines)
    for name in ("capture", "warnings"):
        assert found[name] == wanted[name]
    assert found["reports"].get("files") == wanted["reports"].get("files")
