"""Limits that keep memory flat while a monitor runs for months.

Silent connections end. Names that nothing refers to are forgotten. If a table of counts has too many rows, the small
rows are added up as `(other)`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from kafkatap.reports.batch import ADDRESS_COLUMNS, STRING_COLUMNS
from kafkatap.reports.connection_columns import CONNECTION_ROW
from kafkatap.reports.counting.counts import ReportCounts

from ..engine.engine import Engine

Array = np.ndarray[Any, Any]

SECOND = 1_000_000_000
#: Columns of CONNECTION_ROW with numbers of strings, and of addresses.
CONNECTION_NAMES = tuple(
    tuple(name for name in CONNECTION_ROW.names or () if name in columns)
    for columns in (STRING_COLUMNS, ADDRESS_COLUMNS)
)


class NamedCounts(Protocol):
    """Counts with numbers of strings and addresses in them."""

    def names_used(self) -> tuple[Array, Array]: ...

    def renumber(self, strings: Array, addresses: Array) -> None: ...


@dataclass(frozen=True, slots=True)
class MemoryLimits:
    """`idle`: ns after which a silent connection ends (brokers close theirs after 10 minutes), sooner if more than
    `connections` are open. `patience`: ns that a request may wait for its response, sooner if more than `waiting` do.
    `strings`, `text` (bytes), `addresses`, `topic_names`: how many names may be known before unused ones are forgotten.
    `rows`: of a table of counts; `buckets`: of its histograms. `ended`: ended connections with a row in the report."""

    idle: int = 1_800 * SECOND
    patience: int = 600 * SECOND
    waiting: int = 100_000
    connections: int = 100_000
    strings: int = 200_000
    text: int = 32 << 20
    addresses: int = 100_000
    topic_names: int = 100_000
    rows: int = 10_000
    buckets: int = 1_000_000
    ended: int = 100_000

    def idle_now(self, engine: Engine) -> int:
        """ns after which a silent connection ends, for the number of connections now."""
        opened = sum(int((one.assembler.connections["used"] == 1).sum()) for one in engine.engines)
        return self.idle if opened <= self.connections else max(self.idle * self.connections // (opened * 60), SECOND)

    def patience_now(self, engine: Engine) -> int:
        """ns that a request may wait for its response. Many wait if only one direction is captured."""
        waiting = engine.requests_waiting
        if waiting <= self.waiting:
            return self.patience
        return self.patience // 20 if waiting <= 4 * self.waiting else self.patience // 300

    def names_full(self, engine: Engine) -> bool:
        strings, text, addresses = engine.names_held
        return strings > self.strings or text > self.text or addresses > self.addresses


def memory_limits(connections: int | None, waiting: int | None, names: int | None) -> MemoryLimits:
    """The limits with some of them set (None: the usual). `names`: also the bytes and rows in proportion."""
    limits = MemoryLimits()
    if connections is not None:
        limits = replace(limits, connections=connections, ended=connections)
    if waiting is not None:
        limits = replace(limits, waiting=waiting)
    if names is not None:
        text, rows = max(160 * names, 1 << 16), max(names // 20, 100)
        limits = replace(limits, strings=names, text=text, addresses=names, topic_names=names, rows=rows)
    return limits


def fold_small_rows(counts: ReportCounts, limits: MemoryLimits, engine: Engine) -> None:
    """Add up the small rows of counts as `(other)`, if there are more rows or buckets than the limits."""
    counts.limit(limits.rows, lambda: engine.other, limits.buckets)


def forget_names(
    engine: Engine, every: Sequence[NamedCounts], connections: Sequence[Array], topic_names: int
) -> tuple[Array, Array]:
    """Forget the strings and addresses that no counts, no row of `connections` and no open connection refers to.

    `connections` (CONNECTION_ROW) get the new numbers. Return two int64 arrays, of strings and of addresses: the new
    number by the old one, -1 if it is forgotten, and at the end -1 for the number -1.
    """
    engine.limit_topic_names(topic_names)  # the latest are the likeliest to be in use
    used = [counts.names_used() for counts in every]
    kept = []
    for which, names_of in enumerate(CONNECTION_NAMES):
        found = [each[which] for each in used] + [np.unique(rows[name]) for rows in connections for name in names_of]
        numbers = np.concatenate(found)
        kept.append(numbers[numbers >= 0].astype(np.int64))
    made = engine.forget_strings(kept[0]), engine.forget_addresses(kept[1])
    for numbers, names_of in zip(made, CONNECTION_NAMES, strict=True):
        for rows in connections:
            for name in names_of:
                rows[name] = numbers[rows[name]]
    return made
