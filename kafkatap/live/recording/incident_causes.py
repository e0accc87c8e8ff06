"""The causes of incidents: an API and the result of its requests. A cool-down keeps one cause from filling the disk."""

from __future__ import annotations

import numpy as np

from kafkatap.kernels.arrays import taken
from kafkatap.reports.batch import Array, Batch, rows_of

#: An API, an outcome, and the lowest error code of the response (0: none).
Cause = tuple[int, int, int]
#: Causes that are kept, at most.
_MOST = 10_000


def causes_of(batch: Batch, matching: Array) -> list[tuple[Cause, int]]:
    """The causes of the exchanges in some rows of a batch (int64), each with its first row."""
    rows = taken(batch.exchanges, matching)
    failed = np.flatnonzero(batch.results["error_code"] != 0)
    owner = rows_of(rows["exchange"], batch.results["exchange"][failed])
    ours = owner >= 0
    lowest = np.full(len(rows), 1 << 16, np.int64)
    np.minimum.at(lowest, owner[ours], batch.results["error_code"][failed][ours])
    codes = np.where(lowest < 1 << 16, lowest, 0)
    keys = np.stack((rows["api_key"], rows["outcome"], codes), axis=1).astype(np.int64)
    found, first = np.unique(keys, axis=0, return_index=True)
    places = matching[first].tolist()
    return [((api, outcome, code), row) for (api, outcome, code), row in zip(found.tolist(), places, strict=True)]


class CoolDown:
    """Ignores a cause for `length` ns once it was recorded: it begins no incident and extends none."""

    def __init__(self, length: int) -> None:
        self._length = length
        self._until: dict[Cause, int] = {}

    def fresh(self, causes: list[tuple[Cause, int]], now: int) -> list[tuple[Cause, int]]:
        """The causes that are not ignored now."""
        return [each for each in causes if now >= self._until.get(each[0], now)]

    def forget(self) -> None:
        """Ignore nothing any more."""
        self._until.clear()

    def begin(self, causes: list[tuple[Cause, int]], now: int) -> None:
        """Ignore these causes from now on."""
        if not self._length:
            return
        self._until.update((cause, now + self._length) for cause, _ in causes)
        if len(self._until) > _MOST:
            self._until = {cause: until for cause, until in self._until.items() if until > now}
