"""`OpenConnections`: rows of the open connections, of which only those that had packets are made anew each second."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kafkatap.kernels.arrays import grown, taken
from kafkatap.kernels.decorator import record_dtype
from kafkatap.reassembly.dtypes import ROW_OPEN
from kafkatap.reports.batch import Array
from kafkatap.reports.connection_columns import CONNECTION_ROW

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..engine.engine import Engine

#: Of a connection by number: which one it was, and how many packets it had, when its row was made.
_MADE = record_dtype(("serial", "i8"), ("packets", "i8"))


class OpenConnections:
    """`columns`: those of CONNECTION_ROW that the rows have. A row takes memory for these only."""

    def __init__(self, columns: Sequence[str]) -> None:
        self._columns = columns
        self._rows: Array = np.zeros(256, [(name, CONNECTION_ROW[name]) for name in columns])
        self._made: Array = np.zeros(256, _MADE)

    def rows(self, engine: Engine) -> Array:
        """A copy of the rows of all connections that are open now."""
        table = engine.assembler.connections
        if len(self._rows) < len(table):
            self._rows, self._made = (grown(rows, len(table)) for rows in (self._rows, self._made))
        numbers = np.flatnonzero(table["used"] == ROW_OPEN)
        made = self._made[numbers]
        is_changed = np.zeros(len(numbers), bool)
        for name in ("serial", "packets"):
            is_changed |= made[name] != table[name][numbers]
        changed = numbers[is_changed]
        if len(changed):
            rows = engine.open_rows(changed)
            for name in self._columns:
                self._rows[name][changed] = rows[name]
            for name in ("serial", "packets"):
                self._made[name][changed] = table[name][changed]
        return taken(self._rows, numbers)
