"""Roll up groups to the rows of a report: add up the values of all groups with the same label."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from kafkatap.dissector.dtypes import ORPHAN_RESPONSE, OUTCOMES

from ..batch import Array
from .count_table import MAX, MIN, SUM, CountTable, distinct_rows
from .histogram import P50, P90, P99, P999, Histograms, percentiles

PARTS = (P50, P90, P99, P999)
#: What the groups of a row have in common.
Label = tuple[int | str | None, ...]


class Rolled:
    """The rows of a rollup. `keys`: the label of each row. `values`: int64 (rows,) by name of the value column.

    `row_of`: int64 (groups,), the row of each group, or -1 for a group that was left out.
    """

    def __init__(
        self,
        keys: list[Label],
        values: Mapping[str, Array],
        row_of: Array,
        histograms: Histograms,
    ) -> None:
        self.keys = keys
        self.values = values
        self.row_of = row_of
        self.histograms = histograms
        self._made: dict[int, Array] = {}

    def __len__(self) -> int:
        return len(self.keys)

    def percentiles(self, metric: int, top: Array, parts: tuple[int, ...] = PARTS) -> Array:
        """Percentiles of a metric: int64 (rows, len(parts)), -1 for a row without values. `top`: the exact maxima."""
        owner, bucket, count = self.histograms.of(metric)
        rows = self.row_of[owner]
        kept = rows >= 0
        return percentiles(rows[kept], bucket[kept], count[kept], len(self), parts, top)

    def all_percentiles(self, metric: int, top: str) -> Array:
        """PARTS of a metric, made once. `top`: the name of its exact maximum."""
        if metric not in self._made:
            self._made[metric] = self.percentiles(metric, self.values[top])
        return self._made[metric]

    def counted(self, metric: int) -> Array:
        """The number of values of a metric in each row: int64 (rows,)."""
        owner, _, count = self.histograms.of(metric)
        rows = self.row_of[owner]
        totals = np.zeros(len(self), np.int64)
        np.add.at(totals, rows[rows >= 0], count[rows >= 0])
        return totals

    def rows(self) -> list[RolledRow]:
        """Each row by itself."""
        return [RolledRow(self, row) for row in range(len(self))]

    def exchanges(self) -> Array:
        """The number of requests of each row, with or without a response."""
        v = self.values
        total: Array = sum((v[name] for name in OUTCOMES[:ORPHAN_RESPONSE]), np.zeros(len(self), np.int64))
        return total


class RolledRow:
    """A row: its values are attributes."""

    __slots__ = ("_rolled", "_row")

    def __init__(self, rolled: Rolled, row: int) -> None:
        self._rolled, self._row = rolled, row

    @property
    def key(self) -> Label:
        """Its label."""
        return self._rolled.keys[self._row]

    def __getattr__(self, name: str) -> int:
        return int(self._rolled.values[name][self._row])

    def percentile(self, metric: int, top: str, part: int) -> int | None:
        """A percentile of a metric. `top`: the name of its exact maximum."""
        return maybe(self._rolled.all_percentiles(metric, top)[self._row, PARTS.index(part)])


def group_columns(table: CountTable, names: Sequence[str]) -> dict[str, Array]:
    """The key columns by name: int64 (groups,) each."""
    rows = table.key_rows()
    return {name: rows[:, i] for i, name in enumerate(names)}


def value_columns(table: CountTable, names: Iterable[str]) -> dict[str, Array]:
    """The value columns by name: int64 (groups,) each."""
    return dict(zip(names, table.value_rows().T, strict=True))


def roll_up(
    table: CountTable,
    value_ops: Mapping[str, int],
    histograms: Histograms,
    labels: Sequence[Label | None],
) -> Rolled:
    """Add up all groups with the same label. `labels`: one for each group; None leaves the group out."""
    return add_up(table, value_ops, histograms, *numbered(labels))


def numbered(labels: Iterable[Label | None]) -> tuple[list[Label], Array]:
    """The distinct labels, in order of their first groups, and the number of each group's label: int64, -1 for None."""
    rows: dict[Label, int] = {}
    numbers = [-1 if label is None else rows.setdefault(label, len(rows)) for label in labels]
    return list(rows), np.array(numbers, np.int64)


def numbered_rows(rows: Array) -> tuple[list[Label], Array]:
    """`numbered` with the rows of int64 (groups, n) as labels."""
    distinct, numbers = distinct_rows(rows)
    return list(map(tuple, distinct.tolist())), numbers


def add_up(
    table: CountTable, value_ops: Mapping[str, int], histograms: Histograms, keys: list[Label], row_of: Array
) -> Rolled:
    """Add up all groups of the same row. `keys`: the label of each row, each of which has a group. `row_of`: int64
    (groups,), -1 leaves the group out."""
    kept = np.flatnonzero(row_of >= 0)
    order = kept[np.argsort(row_of[kept], kind="stable")]
    starts = np.searchsorted(row_of[order], np.arange(len(keys)))
    source = table.value_rows()[order]
    values: dict[str, Array] = {}
    for op, operation in ((SUM, np.add), (MIN, np.minimum), (MAX, np.maximum)):
        names = [name for name, its_op in value_ops.items() if its_op == op]
        columns = [column for column, its_op in enumerate(value_ops.values()) if its_op == op]
        found = operation.reduceat(source[:, columns], starts) if keys else source[:0, columns]
        values.update(zip(names, np.maximum(found, 0).T if op == MAX else found.T, strict=True))
    return Rolled(keys, {name: values[name] for name in value_ops}, row_of, histograms)


def api_label(api_key: int, long_poll: int = 0) -> str:
    """The label of an API: `Fetch`, `Fetch (long poll)`, `API 999`."""
    from kafkatap.dissector.layouts.catalog import api_name

    name = api_name(api_key) if api_key >= 0 else "(no request)"
    return f"{name} (long poll)" if long_poll else name


def maybe(value: int | np.integer[Any]) -> int | None:
    """A percentile or maximum, or None for -1."""
    return None if value < 0 else int(value)
