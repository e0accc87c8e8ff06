"""The error codes of a window as rows: what fails, in which requests, for whom, and where."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from kafkatap.reports import units
from kafkatap.reports.batch import Array, Context
from kafkatap.reports.counting import tally
from kafkatap.reports.counting.counts import ReportCounts
from kafkatap.reports.counting.rollup import group_columns, value_columns
from kafkatap.reports.sections.error_codes import error_label

from .breakdown import SECOND, Label, Scope, names_of_groups
from .columns import BAD, DIM, NONE, Column, Span, shown_name, shown_rate

#: What error codes are broken down by.
BY = ("api", "client", "broker", "topic")


@dataclass(slots=True)
class ErrorRow:
    """An error code in a window, or a part of it. `most`: by one of BY, how many codes each has."""

    name: str | None
    codes: int = 0
    rate: float = 0.0
    last: int = 0  # ns since the epoch
    most: dict[str, Counter[str | None]] = field(default_factory=lambda: {by: Counter() for by in BY})

    def top(self, by: str) -> str | None:
        """The most frequent one."""
        return self.most[by].most_common(1)[0][0]


def error_rows(counts: ReportCounts, context: Context, by: str, length: int, within: Scope = ()) -> list[ErrorRow]:
    """Rows by error or one of BY, the most codes first. `length`: of the window, ns. `within`: only this part."""
    columns = group_columns(counts.errors, tally.ERROR_KEY)
    values = value_columns(counts.errors, tally.ERROR_VALUES)
    names: dict[str, Sequence[Label]] = {each: _names(columns, context, each) for each in ("error", *BY)}
    rows: dict[Label, ErrorRow] = {}
    for n, (codes, last) in enumerate(zip(values["count"].tolist(), values["last"].tolist(), strict=True)):
        if not codes or any(names[kind][n] != wanted for kind, wanted in within):
            continue
        name = names[by][n]
        row = rows.setdefault(name, ErrorRow(None if name is None else str(name)))
        row.codes += codes
        row.last = max(row.last, last)
        for each in BY:
            found = names[each][n]
            row.most[each][None if found is None else str(found)] += codes
    for row in rows.values():
        row.rate = row.codes * SECOND / max(length, 1)
    return sorted(rows.values(), key=lambda row: (-row.codes, row.name or ""))


def _names(columns: Mapping[str, Array], context: Context, by: str) -> Sequence[Label]:
    if by == "error":
        return [error_label(code) for code in columns["error_code"].tolist()]
    if by == "api":
        return names_of_groups({**columns, "long_poll": np.zeros(len(columns["api_key"]), np.int64)}, context, by)
    return names_of_groups(columns, context, by)


def _most(row: ErrorRow, by: str) -> Span:
    """The most frequent one, and how many others there are."""
    found = row.most[by]
    name = row.top(by)
    if name is None and by == "topic":
        return NONE, DIM
    return shown_name(name) + (f" +{len(found) - 1}" if len(found) > 1 else ""), ""


def error_columns(by: str, utc: bool) -> tuple[Column[ErrorRow], ...]:
    """Columns of rows by error or one of BY."""
    style = BAD if by == "error" else ""
    columns: tuple[Column[ErrorRow], ...] = (
        Column("name", "error code" if by == "error" else by, 0, 22 if by == "error" else 14,
               lambda r: (shown_name(r.name), style), lambda r: (r.name or "").lower(), 60, False),
        Column("codes", "codes", 1, 7, lambda r: (f"{r.codes:,}", ""), lambda r: r.codes),
        Column("rate", "codes/s", 3, 7, lambda r: shown_rate(r.rate), lambda r: r.rate),
        Column("api", "requests", 2, 14, lambda r: _most(r, "api"), None, 28, False),
        Column("client", "clients", 4, 16, lambda r: _most(r, "client"), None, 44, False),
        Column("broker", "brokers", 5, 18, lambda r: _most(r, "broker"), None, 47, False),
        Column("topic", "topics", 6, 14, lambda r: _most(r, "topic"), None, 44, False),
        Column("last", "last", 7, 8, lambda r: (units.clock(r.last, utc, 0), ""), lambda r: r.last),
    )  # fmt: skip
    return tuple(column for column in columns if column.name != by)
