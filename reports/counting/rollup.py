"""Groups rolled up to the rows of a report: the same values, added over the columns that a report does not ask for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..batch import Array
from .count_table import MAX, MIN, SUM, CountTable
from .histogram import P50, P90, P99, P999, Histograms, percentiles

PARTS = (P50, P90, P99, P999)


@dataclass(frozen=True, slots=True)
class Rolled:
    """Rows of a rollup. `keys`: the values of its key columns; `values`: int64 (rows,) by name of value column.

    `row_of`: int64 (groups,), the row that each group went to, -1 where it was left out.
    """

    keys: list[tuple[int | str | None, ...]]
    values: Mapping[str, Array]
    row_of: Array
    histograms: Histograms

    def __len__(self) -> int:
        return len(self.keys)

    def percentiles(self, metric: int, top: Array, parts: tuple[int, ...] = PARTS) -> Array:
        """int64 (rows, len(parts)); -1 where a row has no such value. `top`: the exact maxima."""
        owner, bucket, count = self.histograms.of(metric)
        rows = self.row_of[owner]
        kept = rows >= 0
        return percentiles(rows[kept], bucket[kept], count[kept], len(self), parts, top)

    def counted(self, metric: int) -> Array:
        """How many values of a metric each row has: int64 (rows,)."""
        owner, _, count = self.histograms.of(metric)
        rows = self.row_of[owner]
        totals = np.zeros(len(self), np.int64)
        np.add.at(totals, rows[rows >= 0], count[rows >= 0])
        return totals

    def exchanges(self) -> Array:
        """Requests, with or without a response, of each row."""
        v = self.values
        total: Array = v["answered"] + v["no_reply_expected"] + v["unanswered"] + v["response_lost"]
        return total


def group_columns(table: CountTable, names: Sequence[str]) -> dict[str, Array]:
    """Key columns by name: int64 (groups,)."""
    rows = table.key_rows()
    return {name: rows[:, i] for i, name in enumerate(names)}


def roll_up(
    table: CountTable,
    value_ops: Mapping[str, int],
    histograms: Histograms,
    labels: Sequence[tuple[int | str | None, ...] | None],
) -> Rolled:
    """Add up all groups with the same label; a group whose label is None is left out. `labels`: one a group."""
    rows: dict[tuple[int | str | None, ...], int] = {}
    row_of = np.full(len(labels), -1, np.int64)
    for group, label in enumerate(labels):
        if label is not None:
            row_of[group] = rows.setdefault(label, len(rows))
    kept = row_of >= 0
    target, source = row_of[kept], table.value_rows()[kept]
    values: dict[str, Array] = {}
    for column, (name, op) in enumerate(value_ops.items()):
        start = {SUM: 0, MIN: 2**63 - 1, MAX: 0}[op]
        total = np.full(len(rows), start, np.int64)
        {SUM: np.add, MIN: np.minimum, MAX: np.maximum}[op].at(total, target, source[:, column])
        values[name] = total
    return Rolled(list(rows), values, row_of, histograms)


def api_label(api_key: int, long_poll: int = 0) -> str:
    """`Fetch`; a Fetch that waited out its max_wait_ms is told apart."""
    from kafkatap.dissector.layouts.catalog import api_name

    name = api_name(api_key) if api_key >= 0 else "(no request)"
    if name.lstrip("-").isdigit():
        name = f"API {name}"
    return f"{name} (long poll)" if long_poll else name


def maybe(value: int | np.integer[Any]) -> int | None:
    """A percentile or maximum, None where there is none."""
    return None if value < 0 else int(value)
