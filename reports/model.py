"""What a report is before it is shown: tables of plain values, with columns that say what their values are.

A value is an int, float, str, bool or None (nothing to say). Texts are as they came, not escaped: each renderer escapes
for its place. Rows are complete and in order of importance; it is a renderer that leaves rows or columns out.
"""

from __future__ import annotations

from dataclasses import dataclass

Value = int | float | str | bool | None

#: What a column's values are: text; a count; ns (a duration); ms; bytes; share (0 to 1); time (ns since the epoch);
#: packet (its number); flag (true or false).
KINDS = ("text", "count", "ns", "ms", "bytes", "share", "time", "packet", "flag")


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
    """One report. `notes` are sentences to be read with it; `whole` says that it is shown in full, whatever `--top`.
    With fewer rows than `shown_from` it is not shown to people: something else says the same."""

    name: str
    title: str
    columns: tuple[Column, ...]
    rows: list[tuple[Value, ...]]
    notes: tuple[str, ...] = ()
    whole: bool = False
    empty: str = "nothing to report"
    shown_from: int = 0


@dataclass(frozen=True, slots=True)
class Report:
    """All that one run says. `heading`: (what, value) lines; `sentences`: what was lost or damaged, in plain words."""

    heading: Table
    tables: tuple[Table, ...]
    ledger: Table
    sentences: tuple[str, ...]
    curves: Curves

    def table(self, name: str) -> Table:
        return next(t for t in (self.heading, *self.tables, self.ledger) if t.name == name)


@dataclass(frozen=True, slots=True)
class Curves:
    """What plots need beyond the tables: for each API (label, count, broker times in ns ascending, share of the
    exchanges at or below each)."""

    latency: tuple[tuple[str, int, list[int], list[float]], ...] = ()
