"""The topics of requests, kept until their exchanges are finished."""

from __future__ import annotations

from typing import Any

import numpy as np

from kafkatap.dissector.results import EXCHANGE_TOPIC
from kafkatap.kernels.arrays import as_bytes, taken

Array = np.ndarray[Any, Any]
_SMALLEST = 4_096


class OpenTopics:
    """EXCHANGE_TOPIC rows in ascending order of `exchange`.

    Rows that were removed stay in place until they are half of all. So a removal costs no more where a million requests
    are never answered.
    """

    def __init__(self) -> None:
        self._rows = np.zeros(_SMALLEST, EXCHANGE_TOPIC)
        self._numbers = np.zeros(_SMALLEST, np.int64)  # of their exchanges
        self._waits = np.zeros(_SMALLEST, bool)
        self._count = 0
        self._taken = 0

    def add(self, rows: Array) -> None:
        """Add rows whose exchanges are no earlier than those of the rows before."""
        end = self._count + len(rows)
        if end > len(self._rows):
            self._resize(end - self._taken)
            end = self._count + len(rows)
        as_bytes(self._rows[self._count : end])[:] = as_bytes(rows)
        self._numbers[self._count : end] = rows["exchange"]
        self._waits[self._count : end] = True
        self._count = end

    def look(self, exchanges: Array) -> Array:
        """Copies of the rows of these exchanges (int64, each once), in ascending order."""
        return taken(self._rows, self._places(exchanges))

    def take(self, exchanges: Array) -> Array:
        """Remove and return the rows of these exchanges (int64, each once), in ascending order."""
        at = self._places(exchanges)
        found = taken(self._rows, at)
        self._waits[at] = False
        self._taken += len(at)
        if self._taken == self._count:
            self._count = self._taken = 0
        elif 2 * self._taken > self._count > _SMALLEST:
            self._resize(self._count - self._taken)
        return found

    def _places(self, exchanges: Array) -> Array:
        """The places of the rows of these exchanges, without those that were removed."""
        numbers = self._numbers[: self._count]
        wanted = np.sort(exchanges)
        first = np.searchsorted(numbers, wanted)
        lengths = np.searchsorted(numbers, wanted, side="right") - first
        total = int(lengths.sum())
        within = np.arange(total) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        at = np.repeat(first, lengths) + within
        places: Array = at[self._waits[at]]
        return places

    @property
    def rows(self) -> Array:
        """Copies of all rows that are not removed."""
        return taken(self._rows, np.flatnonzero(self._waits[: self._count]))

    def replace(self, rows: Array) -> None:
        """Replace all rows by these, of the same exchanges."""
        self.clear()
        self.add(rows)

    def clear(self) -> None:
        self._count = self._taken = 0

    def _resize(self, needed: int) -> None:
        """Drop the removed rows and make room for twice `needed` rows."""
        kept = self.rows
        size = max(_SMALLEST, 2 * needed)
        self._rows = np.zeros(size, EXCHANGE_TOPIC)
        self._numbers = np.zeros(size, np.int64)
        self._waits = np.zeros(size, bool)
        self.clear()
        self.add(kept)
