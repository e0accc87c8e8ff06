"""Merge the rows of connections that several splits share. Each row counts the packets of one split.

How a column is merged is declared with it (`reports/connection_columns.py`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kafkatap.kernels.arrays import taken
from kafkatap.kernels.column_spec import ColumnSpec
from kafkatap.reports.connection_columns import COLUMNS

Array = np.ndarray[Any, Any]
_MOST = np.iinfo(np.int64).max


def merged_connections(rows: Array) -> Array:
    """One CONNECTION_ROW for each connection. The rows are in order of splits."""
    if not len(rows):
        return rows
    groups = _Groups(rows)
    rows = taken(rows, groups.order)
    merged: Array = np.zeros(len(groups.starts), rows.dtype)
    for column in COLUMNS:
        merged[column.field] = _merged(column, rows, groups)
    return merged


def _merged(column: ColumnSpec, rows: Array, groups: _Groups) -> Array:
    """A column of the merged rows. `rows`: in the order of `groups`."""
    values, rule, order = rows[column.field], column.merge.rule, column.merge.order
    if rule == "sum":
        return np.add.reduceat(values, groups.starts)
    if rule == "greatest":
        ranks = np.argsort(np.array(order))[values] if order else values
        found = np.maximum.reduceat(ranks, groups.starts)
        return np.array(order)[found] if order else found
    known = _known(column, rows) if column.merge.among is None else column.merge.among(rows)
    if rule == "first":
        return values[groups.first(known)]
    if rule == "latest":
        return values[groups.latest(known)]
    if rule == "least":
        found = np.minimum.reduceat(np.where(known, values, _MOST), groups.starts)
        return np.where(np.logical_or.reduceat(known, groups.starts), found, column.missing)
    raise ValueError(f"rows with the column {column.name} are not merged")


def _known(column: ColumnSpec, rows: Array) -> Array:
    nulls = column.nulls(rows)
    return np.ones(len(rows), bool) if nulls is None else ~nulls


class _Groups:
    """Rows in groups of one connection: `order` makes them adjacent, in order of time. `starts`: the first row of each
    group in that order."""

    def __init__(self, rows: Array) -> None:
        self.order = np.lexsort((rows["last"], rows["connection"]))
        connection = rows["connection"][self.order]
        self.starts = np.flatnonzero(np.concatenate(([True], connection[1:] != connection[:-1])))
        self._lasts = np.concatenate((self.starts[1:], [len(rows)])) - 1
        self._rows = np.arange(len(rows))

    def latest(self, holds: Array) -> Array:
        """The last row of each group for which a condition holds (bool), or else the last row."""
        found = np.maximum.reduceat(np.where(holds, self._rows, -1), self.starts)
        return np.where(found >= 0, found, self._lasts)

    def first(self, holds: Array) -> Array:
        """The first row of each group for which a condition holds (bool), or else the last row."""
        found = np.minimum.reduceat(np.where(holds, self._rows, len(self._rows)), self.starts)
        return np.where(found < len(self._rows), found, self._lasts)
