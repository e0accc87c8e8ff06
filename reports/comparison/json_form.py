"""A comparison as JSON. docs/compare.schema.json is its JSON Schema, made from the columns."""

from __future__ import annotations

import json
from typing import Any, TextIO

from ..model import Column, ReportTable
from ..rendering.json_report import column_schema, json_value
from .comparison import TABLES, Compared

SCHEMA_VERSION = 1
_COUNTS = {
    "worse": "findings that got worse", "better": "findings that got better",
    "different": "findings that are neither", "comparisons": "comparisons that were judged",
    "too_few": "comparisons without enough values or blocks of time",
}  # fmt: skip


def comparison_object(compared: Compared, version: str) -> dict[str, Any]:
    """The comparison as dicts and lists. `version`: the version of kafkatap."""
    return {
        "schema_version": SCHEMA_VERSION,
        "kafkatap": version,
        **{name: getattr(compared, name) for name in _COUNTS},
        "warnings": list(compared.all_warnings),
        **{table.name: _rows(table) for table in compared.tables},
    }


def write_comparison(compared: Compared, file: TextIO, version: str) -> None:
    """Write the comparison in ASCII."""
    json.dump(comparison_object(compared, version), file, indent=1, allow_nan=False)
    file.write("\n")


def _rows(table: ReportTable) -> list[dict[str, Any]]:
    return [{c.name: json_value(c, v) for c, v in zip(table.columns, row, strict=True)} for row in table.rows]


def schema() -> dict[str, Any]:
    """The JSON Schema of the output of `write_comparison`."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "kafkatap compare",
        "type": "object",
        "required": ["schema_version", "kafkatap", *_COUNTS, "warnings", *TABLES],
        "properties": {
            "schema_version": {"const": SCHEMA_VERSION},
            "kafkatap": {"type": "string", "description": "version of kafkatap that wrote this"},
            **{name: {"type": "integer", "description": text} for name, text in _COUNTS.items()},
            "warnings": {
                "type": "array", "items": {"type": "string"}, "description": "what makes the comparison weak",
            },
            **{name: {"type": "array", "items": _object(columns)} for name, columns in TABLES.items()},
        },
    }  # fmt: skip


def _object(columns: tuple[Column, ...]) -> dict[str, Any]:
    return {
        "type": "object",
        "required": [c.name for c in columns],
        "properties": {c.name: column_schema(c) for c in columns},
    }
