"""What Fetch requests and responses say about records that a consumer drops: those before the offset that it fetches
from, and those of aborted transactions.

A partition without an entry in its request (KIP-227) has no fetch offset, and a response without a list of aborted
transactions, or to a request with READ_UNCOMMITTED, says nothing about them (KIP-98).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..programs.roles import R_ABORTED, R_ABORTED_FIRST, R_ABORTED_PRODUCER, R_FETCH_OFFSET, R_ISOLATION_LEVEL
from . import batches as b

Array = np.ndarray[Any, Any]

#: Requests whose responses may still come, and their partitions: the oldest beyond this are forgotten.
REQUESTS, PARTITIONS = 1 << 16, 1 << 20
_READ_UNCOMMITTED = 0


class FetchRequests:
    """The Fetch requests whose responses may still come."""

    def __init__(self) -> None:
        self._waiting: dict[int, tuple[bool, Array, Array]] = {}
        self._partitions = 0

    def add(self, tape: Array, roles: Array, places: Array, exchanges: Array) -> None:
        """Keep what the requests among some messages say. `places` (int64): topic and partition by the row of a
        partition; `exchanges` (int64): by frame of the tape."""
        offsets = np.flatnonzero(roles == R_FETCH_OFFSET)
        levels = np.flatnonzero((roles == R_ISOLATION_LEVEL) & (tape["value"] == _READ_UNCOMMITTED))
        frames = tape["frame"][offsets]
        uncommitted = set(tape["frame"][levels].tolist())
        for frame in {*frames.tolist(), *uncommitted}:
            first, end = np.searchsorted(frames, (frame, frame + 1))
            mine = offsets[first:end]
            asked = places[tape["parent"][mine]]
            order = np.argsort(asked, kind="stable")
            self._waiting[int(exchanges[frame])] = frame in uncommitted, asked[order], tape["value"][mine[order]]
            self._partitions += len(mine)
        while len(self._waiting) > REQUESTS or self._partitions > PARTITIONS:
            self._partitions -= len(self._waiting.pop(next(iter(self._waiting)))[1])

    def fill(self, parts: Array, places: Array, exchanges: Array) -> None:
        """Set `fetch_offset` of parts (PART) with these places, and forget the requests of all these exchanges."""
        parts["fetch_offset"] = b.UNKNOWN_NUMBER
        for exchange in exchanges.tolist():
            found = self._waiting.pop(exchange, None)
            if found is None:
                continue
            is_uncommitted, asked, offsets = found
            self._partitions -= len(asked)
            mine = np.flatnonzero(parts["exchange"] == exchange)
            at = np.searchsorted(asked, places[mine])
            known = np.flatnonzero(np.append(asked, -1)[at] == places[mine])
            parts["fetch_offset"][mine[known]] = offsets[at[known]]
            if is_uncommitted:
                parts["aborted_end"][mine] = -1

    def clear(self) -> None:
        self._waiting.clear()
        self._partitions = 0


def aborted_transactions(tape: Array, roles: Array, partitions: Array) -> tuple[Array, Array, Array]:
    """The ABORTED rows of some messages, and the first and last of them of each partition (int64): -1 as the last if
    there is no list. `partitions`: rows of the tape."""
    counts = np.full(len(tape) + 1, -1)
    lists = np.flatnonzero(roles == R_ABORTED)
    counts[tape["parent"][lists]] = tape["length"][lists]
    producers, firsts = (np.flatnonzero(roles == role) for role in (R_ABORTED_PRODUCER, R_ABORTED_FIRST))
    owners = tape["parent"][tape["parent"][producers]]
    order = np.lexsort((tape["value"][firsts], tape["value"][producers], owners))
    rows = np.zeros(len(order), b.ABORTED)
    rows["producer"], rows["first"] = tape["value"][producers[order]], tape["value"][firsts[order]]
    first, end = (np.searchsorted(owners[order], partitions, side) for side in ("left", "right"))
    return rows, first, np.where(counts[partitions] < 0, -1, end)
