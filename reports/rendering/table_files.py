"""Reports as files, one for each table: CSV (RFC 4180, UTF-8) with a header line, or Parquet.

A spreadsheet treats a cell that begins with =, +, -, @, tab or carriage return as a formula. Texts can come from the
wire, so such a text is prefixed with '. Control characters in texts are escaped as on a terminal.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from io import TextIOWrapper
from pathlib import Path

from kafkatap.output_file import OutputFiles
from kafkatap.replaceable import PARQUET_KEY

from .. import units
from ..model import Column, Report, ReportTable, Value, as_number

_WARNING = (Column("warning", "warning", "text", "what was lost, damaged or not decoded"),)
_FORMULA = frozenset("=+-@\t\r\n＝＋－＠")  # noqa: RUF001  # the full-width ones act as well


def write_csv(report: Report, folder: Path, overwrite: bool = False) -> list[Path]:
    """Write capture.csv, warnings.csv, latency.csv and so on. Create `folder` if it is missing. Return their paths.
    OSError if a file cannot be written; then all files stay as they were. `overwrite`: as of
    `OutputFile`."""
    warnings = ReportTable("warnings", "Warnings", _WARNING, [(warning,) for warning in report.warnings])
    with OutputFiles(folder, overwrite=overwrite) as files:
        for table in (report.heading, warnings, *report.tables, report.ledger):
            made = files.add(f"{'capture' if table.name == 'heading' else table.name}.csv")
            text = TextIOWrapper(made, encoding="utf-8", newline="", write_through=True)
            writer = csv.writer(text)
            writer.writerow([c.name for c in table.columns])
            writer.writerows(_cells(table))
            text.detach()
        return files.publish()


def _cells(table: ReportTable) -> list[list[str]]:
    return [[cell(c, v) for c, v in zip(table.columns, row, strict=True)] for row in table.rows]


def cell(column: Column, value: Value) -> str:
    """A value as the text of a CSV cell. None is an empty text."""
    if value is None or value == ():
        return ""
    if column.kind == "time":
        return units.iso(int(as_number(value)))
    if column.kind == "flag":
        return "true" if value else "false"
    if isinstance(value, str | tuple):
        return text_cell(value if isinstance(value, str) else units.joined(value))
    return f"{value:.6f}" if isinstance(value, float) else str(value)


def text_cell(text: str) -> str:
    """A text as that of a CSV cell, which acts neither in a spreadsheet nor on a terminal."""
    harmless = units.safe(text)
    return "'" + harmless if text.lstrip(" ")[:1] in _FORMULA and text.strip(" ") not in ("", "-") else harmless


def write_parquet(tables: Sequence[ReportTable], folder: Path, overwrite: bool = False) -> list[Path]:
    """Write each table to FOLDER/NAME.parquet, with the columns of JSON (`Column.arrow_type`). Return the paths.
    OSError if a file cannot be written. `overwrite`: as of `OutputFile`."""
    import pyarrow.parquet as pq

    with OutputFiles(folder, overwrite=overwrite) as files:
        for table in tables:
            made = table.to_arrow()
            marked = made.replace_schema_metadata({**(made.schema.metadata or {}), PARQUET_KEY: ""})
            pq.write_table(marked, files.add(f"{table.name}.parquet"), compression="zstd")
        return files.publish()
