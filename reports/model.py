"""A report before rendering: tables of plain values, and columns that describe the values.

A value is an int, float, str, bool, None (no value), or a tuple of texts or versions. Texts are unescaped: each
renderer escapes them for its output. Rows are complete and sorted by importance. Only renderers leave out rows or
columns.
"""

from __future__ import annotations

from typing import NamedTuple

#: An API's name, and versions of it, ascending.
Versions = tuple[str, tuple[int, ...]]
Value = int | float | str | bool | None | tuple[str, ...] | tuple[Versions, ...]

#: A distribution: label, count, ascending broker times in ns, and the share of exchanges at or below each time.
Curve = tuple[str, int, list[int], list[float]]

#: Kinds of column values: text; texts (several); versions (of APIs); count; ns and ms (durations); bytes; share (0 to
#: 1); time (ns since the epoch); packet (its number); flag (true or false).
KINDS = ("text", "texts", "versions", "count", "ns", "ms", "bytes", "share", "time", "packet", "flag")


def as_number(value: Value) -> int | float:
    """The value if it is a number, or else 0."""
    return value if isinstance(value, int | float) else 0


class Column(NamedTuple):
    """`name` is for programs. `title` is for people and may contain a line break. `note` explains the column.

    `rank`: columns of rank 0 are always shown. On a narrow terminal, high ranks go first. Rank 9 is for programs only.
    """

    name: str
    title: str
    kind: str
    note: str
    rank: int = 0


class ReportTable(NamedTuple):
    """One table of a report.

    `notes`: sentences below the table. `column_notes`: (column name, sentence), shown only with that column.
    `whole`: show all rows, whatever `--top` says. Otherwise show the first rows, or the rows with the largest values in
    the column `chosen_by`. `shown_from`: a table with fewer rows than this is not shown to people, because the report
    has the same facts elsewhere. `empty`: the text for a table without rows.
    """

    name: str
    title: str
    columns: tuple[Column, ...]
    rows: list[tuple[Value, ...]]
    notes: tuple[str, ...] = ()
    whole: bool = False
    empty: str = "nothing to report"
    shown_from: int = 0
    column_notes: tuple[tuple[str, str], ...] = ()
    chosen_by: str | None = None

    def __repr__(self) -> str:
        rows = f"{len(self.rows):,} row{'' if len(self.rows) == 1 else 's'}"
        return f"<ReportTable {self.name}: {rows} of {len(self.columns)} columns>"


class Report(NamedTuple):
    """A whole report. `warnings`: sentences on what was lost, damaged or not decoded."""

    heading: ReportTable
    tables: tuple[ReportTable, ...]
    ledger: ReportTable
    warnings: tuple[str, ...]
    curves: Curves

    def table(self, name: str) -> ReportTable:
        """One of the tables, the heading or the ledger, by name. KeyError for an unknown name."""
        tables = {t.name: t for t in (self.heading, *self.tables, self.ledger)}
        if name not in tables:
            raise KeyError(f"a report has no table {name!r}; it has {', '.join(tables)}")
        return tables[name]

    def __repr__(self) -> str:
        return f"<Report of {', '.join(f'{t.name} ({len(t.rows):,})' for t in (*self.tables, self.ledger))}>"


class Curves(NamedTuple):
    """Data for plots: a curve for each row of the latency table, the most frequent first."""

    latency: tuple[Curve, ...] = ()

    def __repr__(self) -> str:
        return f"<Curves of {', '.join(label for label, *_ in self.latency) or 'nothing'}>"
