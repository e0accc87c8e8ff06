"""The topics of requests, kept until their exchanges are finished."""

from __future__ import annotations

from typing import Any

import numpy as np

from kafkatap.dissector.results import EXCHANGE_TOPIC
from kafkatap.kernels.arrays import as_bytes, taken
from kafkatap.kernels.table import Table

Array = np.ndarray[Any, Any]
_SMALLEST = 4_096


class OpenTopics:
    """EXCHANGE_TOPIC rows in ascending order of `exchange`.

    Rows that were removed stay in place until they are half of all. So a removal costs no more where a million requests
    are never answered.
    """

    def __init__(self) -> None:
        self._table = Table(_SMALLEST, rows=EXCHANGE_TOPIC, exchanges=np.int64, waits=np.bool_)
        self._count = 0
        self._removed = 0

    def add(self, rows: Array) -> None:
        """Add rows whose exchanges are no earlier than those of the rows before."""
        end = self._count + len(rows)
        if end > len(self._table):
            self._drop_removed(end - self._removed)
            end = self._count + len(rows)
        as_bytes(self._table["rows"][self._count : end])[:] = as_bytes(rows)
        self._table["exchanges"][self._count : end] = rows["exchange"]
        self._table["waits"][self._count : end] = True
        self._count = end

    def look(self, exchanges: Array) -> Array:
        """Return copies of the rows of these exchanges (int64, each once), in ascending order."""
        return taken(self._table["rows"], self._places(exchanges))

    def take(self, exchanges: Array) -> Array:
        """Remove and return the rows of these exchanges (int64, each once), in ascending order."""
        at = self._places(exchanges)
        found = taken(self._table["rows"], at)
        self._table["waits"][at] = False
        self._removed += len(at)
        if self._removed == self._count:
            self.clear()
        elif 2 * self._removed > self._count > _SMALLEST:
            self._drop_removed(self._count - self._removed)
        return found

    def _places(self, exchanges: Array) -> Array:
        """The places of the rows of these exchanges, without those that were removed."""
        numbers = self._table["exchanges"][: self._count]
        wanted = np.sort(exchanges)
        first = np.searchsorted(numbers, wanted)
        lengths = np.searchsorted(numbers, wanted, side="right") - first
        total = int(lengths.sum())
        within = np.arange(total) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        at = np.repeat(first, lengths) + within
        places: Array = at[self._table["waits"][at]]
        return places

    @property
    def rows(self) -> Array:
        """Copies of all rows that are not removed."""
        return taken(self._table["rows"], self._waiting())

    def replace(self, rows: Array) -> None:
        """Replace all rows by these, of the same exchanges."""
        self.clear()
        self.add(rows)

    def clear(self) -> None:
        self._count = self._removed = 0

    def _waiting(self) -> Array:
        """Return the places of all rows that are not removed."""
        return np.flatnonzero(self._table["waits"][: self._count])

    def _drop_removed(self, needed: int) -> None:
        """Drop the removed rows and make room for twice `needed` rows."""
        kept = self._waiting()
        self._table.keep(kept, max(_SMALLEST, 2 * needed))
        self._count, self._removed = len(kept), 0
