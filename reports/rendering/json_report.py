"""Reports as JSON. docs/json.md describes the form, and docs/report.schema.json is its JSON Schema.

The end of a column's name is its unit. Times are ISO 8601 in UTC with nanoseconds. Values are not rounded, and complete
unless a number of rows is set.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, TextIO

from .. import units
from ..model import Column, Report, ReportTable, Value
from ..section_parts.registry import OVER_FACTS, load_sections
from ..sections import clients, heading, latency, ledger, not_decoded, summary, throttle, timeline, timeline_by
from ..sections import error_codes as errors
from .text_tables import LONGEST_CELL, LONGEST_SENTENCE

SCHEMA_VERSION = 4

#: The columns of tables whose columns depend on `--by`, for each of its values.
_FORMS: dict[str, list[tuple[Column, ...]]] = {
    "latency": [latency.latency_columns(by) for by in latency.BY],
    "timeline_by": [timeline_by.columns(by) for by in timeline_by.BY],
}
#: The columns of each table, of every `--by`.
REPORTS: dict[str, tuple[Column, ...]] = {
    "summary": summary.COLUMNS,
    "latency": tuple(dict.fromkeys(column for form in _FORMS["latency"] for column in form)),
    "throttle": throttle.COLUMNS,
    "error_totals": errors.TOTAL_COLUMNS,
    "errors": errors.COLUMNS,
    "error_meanings": errors.MEANING_COLUMNS,
    "clients": clients.COLUMNS,
    "timeline": timeline.COLUMNS,
    "timeline_by": timeline_by.COLUMNS,
    "not_decoded": not_decoded.COLUMNS,
    "files": heading.FILE_COLUMNS,
    "ledger": ledger.COLUMNS,
}


def report_object(report: Report, version: str, top: int = 0) -> dict[str, Any]:
    """The report as dicts and lists. `version`: the version of kafkatap. `top`: the most rows of a table but the
    ledger, and the most items of a list in them, 0 for all."""
    tables = (*report.tables, report.ledger)
    notes = {t.name: [*t.notes, *_left_out(t, 0 if t is report.ledger else top)] for t in tables}
    return {
        "schema_version": SCHEMA_VERSION,
        "kafkatap": version,
        "capture": _rows(report.heading, items=top)[0],
        "warnings": list(report.warnings),
        "notes": {name: found for name, found in notes.items() if found},
        "reports": {t.name: _rows(t, 0 if t is report.ledger else top, top) for t in tables},
    }


def _rows(table: ReportTable, top: int = 0, items: int = 0) -> list[dict[str, Any]]:
    """The rows, or the first `top`. `items`: not 0 if values are to be short: as many items of a list, texts as long as
    tables for people have them."""
    rows = [
        {c.name: json_value(c, v) for c, v in zip(table.columns, row, strict=True)} for row in _first_rows(table, top)
    ]
    return [{name: _short(value, items) for name, value in row.items()} for row in rows] if items else rows


def _left_out(table: ReportTable, top: int) -> list[str]:
    return [f"{len(table.rows) - top:,} of {len(table.rows):,} rows are left out."] if 0 < top < len(table.rows) else []


def _short(value: Any, items: int, longest: int = LONGEST_SENTENCE) -> Any:
    if isinstance(value, str):
        return units.cut(value, longest) if len(value) > longest else value
    if isinstance(value, list):
        return [_short(each, items, LONGEST_CELL) for each in value[:items]]
    if isinstance(value, dict):
        return {name: _short(each, items, LONGEST_CELL) for name, each in value.items()}
    return value


def _first_rows(table: ReportTable, top: int) -> Sequence[tuple[Value, ...]]:
    """The first `top` rows, in the order of the table. Findings come before those that follow from others."""
    if not top or len(table.rows) <= top:
        return table.rows
    at = next((i for i, c in enumerate(table.columns) if c.name == "cause"), None)
    if at is None:
        return table.rows[:top]
    first = sorted(range(len(table.rows)), key=lambda n: table.rows[n][at] is not None)[:top]
    return [table.rows[n] for n in sorted(first)]


def json_value(column: Column, value: Value) -> Any:
    """A value of a column as JSON has it."""
    if column.kind == "time" and isinstance(value, int):
        return units.iso(value)
    if value is None and column.kind in _ITEMS:
        return []
    return column.plain(value)


def write_json(report: Report, file: TextIO, version: str, top: int = 0) -> None:
    """Write the report in ASCII, with one line for each row of a table. `top`: as in `report_object`."""
    whole = report_object(report, version, top)
    reports = whole.pop("reports")
    head = json.dumps(whole, indent=1)
    file.write(head[:-2] + ',\n "reports": {')
    for n, (name, rows) in enumerate(reports.items()):
        lines = ",\n   ".join(json.dumps(row) for row in rows)
        file.write(f'{"," if n else ""}\n  "{name}": [' + (f"\n   {lines}\n  ]" if rows else "]"))
    file.write("\n }\n}\n")


def write_json_line(report: Report, file: TextIO, version: str, top: int = 0) -> None:
    """Write the report in ASCII on one line. `top`: as in `report_object`."""
    file.write(json.dumps(report_object(report, version, top)) + "\n")


def all_columns() -> dict[str, tuple[Column, ...]]:
    """The columns of each table, also of those of sections over facts."""
    sections = load_sections(OVER_FACTS)
    return REPORTS | {name: tuple(columns) for section in sections for name, columns in section.columns.items()}


_TYPES = {"text": "string", "share": "number", "number": "number", "flag": "boolean", "time": "string"}


def schema() -> dict[str, Any]:
    """The JSON Schema of the output of `write_json`, made from the columns."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "kafkatap report",
        "type": "object",
        "required": ["schema_version", "kafkatap", "capture", "warnings", "notes", "reports"],
        "properties": {
            "schema_version": {"const": SCHEMA_VERSION},
            "kafkatap": {"type": "string", "description": "version of kafkatap that wrote this"},
            "capture": _object(heading.COLUMNS),
            "warnings": {
                "type": "array",
                "items": {"type": "string"},
                "description": "what was lost, damaged or not decoded, one sentence each",
            },
            "notes": {
                "type": "object",
                "additionalProperties": {"type": "array", "items": {"type": "string"}},
                "description": "by table, sentences on how to read it, also if it has more than the selected exchanges",
            },
            "reports": {
                "type": "object",
                "required": ["ledger"],
                "properties": {
                    name: {"type": "array", "items": _object(columns, _FORMS.get(name, ()))}
                    for name, columns in all_columns().items()
                },
            },
        },
    }


def _object(columns: tuple[Column, ...], forms: Sequence[tuple[Column, ...]] = ()) -> dict[str, Any]:
    always = set(columns).intersection(*forms)
    return {
        "type": "object",
        "required": [c.name for c in columns if c in always],
        "properties": {c.name: column_schema(c) for c in columns},
    }


_VERSIONS = {
    "type": "object",
    "required": ["api", "versions"],
    "properties": {
        "api": {"type": "string", "description": "name of the API"},
        "versions": {"type": "array", "items": {"type": "integer"}, "description": "versions of it, ascending"},
    },
}
_PARTY = {
    "type": "object",
    "required": ["kind", "name"],
    "properties": {
        "kind": {"type": "string", "description": "client, broker, connection, group, topic, partition, ..."},
        "name": {"type": ["string", "null"], "description": "its name; of a broker its address and port"},
    },
}
_ITEMS: dict[str, dict[str, Any]] = {
    "texts": {"type": "string"}, "versions": _VERSIONS, "parties": _PARTY, "packets": {"type": "integer"},
}  # fmt: skip


def column_schema(column: Column) -> dict[str, Any]:
    """The JSON Schema of the values of a column."""
    if column.kind in _ITEMS:
        return {"type": "array", "items": _ITEMS[column.kind], "description": column.note}
    if column.kind == "numbers":
        values = {"type": ["number", "string", "boolean", "null"]}
        return {"type": "object", "additionalProperties": values, "description": column.note}
    found: dict[str, Any] = {"type": [_TYPES.get(column.kind, "integer"), "null"], "description": column.note}
    if column.kind == "time":
        found["format"] = "date-time"
    return found
