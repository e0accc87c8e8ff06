"""What a report is before it is shown: tables of plain values, with columns that say what their values are.

A value is an int, float, str, bool, None (nothing to say), or a tuple of texts or versions. Texts are as they came, not
escaped: each renderer escapes for its place. Rows are complete and in order of importance; it is a renderer that leaves
rows or columns out.
"""

from __future__ import annotations

from dataclasses import dataclass

#: An API's name, and versions of it, ascending.
Versions = tuple[str, tuple[int, ...]]
Value = int | float | str | bool | None | tuple[str, ...] | tuple[Versions, ...]

#: A distribution: label, count, broker times in ns ascending, share of the exchanges at or below each.
Curve = tuple[str, int, list[int], list[float]]

#: What a column's values are: text; texts (any number of them); versions (of APIs); a count; ns (a duration); ms;
#: bytes; share (0 to 1); time (ns since the epoch); packet (its number); flag (true or false).
KINDS = ("text", "texts", "versions", "count", "ns", "ms", "bytes", "share", "time", "packet", "flag")


def as_number(value: Value) -> int | float:
    """A value that is a number, 0 for any other."""
    return value if isinstance(value, int | float) else 0


@dataclass(frozen=True, slots=True)
class Column:
    """`name` for machines, `title` for people (it may hold a line break), `note` what it means in a few words.

    `rank`: 0 is always shown, 3 goes first where the terminal is narrow, 9 is for machines only.
    """

    name: str
    title: str
    kind: str
    note: str
    rank: int = 0


@dataclass(frozen=True, slots=True)
class Table:
    """One report. `notes` are sentences to be read with it, `column_notes` those to be read with a column, by its name.

    `whole` says that it is shown in full, whatever `--top`; else the rows shown are the first ones, or those with the
    most in the column `chosen_by`. With fewer rows than `shown_from` it is not shown to people: something else says the
    same."""

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
        return f"<Table {self.name}: {rows} of {len(self.columns)} columns>"


@dataclass(frozen=True, slots=True)
class Report:
    """All that one run says. `heading`: (what, value) lines; `sentences`: what was lost or damaged, in plain words."""

    heading: Table
    tables: tuple[Table, ...]
    ledger: Table
    sentences: tuple[str, ...]
    curves: Curves

    def table(self, name: str) -> Table:
        """One of the tables, the heading, or the ledger. KeyError where there is none of that name."""
        tables = {t.name: t for t in (self.heading, *self.tables, self.ledger)}
        if name not in tables:
            raise KeyError(f"a report has no table {name!r}; it has {', '.join(tables)}")
        return tables[name]

    def __repr__(self) -> str:
        return f"<Report of {', '.join(f'{t.name} ({len(t.rows):,})' for t in (*self.tables, self.ledger))}>"


@dataclass(frozen=True, slots=True)
class Curves:
    """What plots need beyond the tables: a curve for each row of the latency table, the most frequent one first."""

    latency: tuple[Curve, ...] = ()

    def __repr__(self) -> str:
        return f"<Curves of {', '.join(label for label, *_ in self.latency) or 'nothing'}>"
