"""Ranges of packets, and a reader of only those blocks of a split that have packets of some ranges.

The survey notes where the blocks of a split begin. So packets of a few flows are found without reading those between.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from ..captures.current_reader import CurrentReader
from ..captures.merge import EARLIEST, sorted_by
from ..captures.splits import Split, SplitReader

Array = np.ndarray[Any, Any]
#: The first packet of a block, the byte of the file at which its record begins, the earliest time in the block, and the
#: latest in the blocks before it (EARLIEST: there are none), ns.
BLOCK_START = np.dtype([("packet", "i8"), ("byte", "i8"), ("time", "i8"), ("latest", "i8")])


def union(first: Array, last: Array) -> Array:
    """Ranges of packets (int64, both ends belong to them) as int64 (n, 2), ascending and apart from each other."""
    if not len(first):
        return np.zeros((0, 2), np.int64)
    order = np.argsort(first, kind="stable")
    first, latest = first[order], np.maximum.accumulate(last[order])
    starts = np.flatnonzero(np.concatenate(([True], first[1:] > latest[:-1])))
    ends = np.append(starts[1:], len(first)) - 1
    return np.stack([first[starts], latest[ends]], axis=1).astype(np.int64)


def meets(ranges: Array, first: int, last: int) -> bool:
    """Whether packets first to last have one of `ranges` (as of `union`)."""
    place = int(np.searchsorted(ranges[:, 1], first))
    return place < len(ranges) and int(ranges[place, 0]) <= last


class RangesReader(CurrentReader[SplitReader]):
    """Reads the blocks of a part of a file that have packets of some ranges: like a `PackReader` of it.

    `blocks`: BLOCK_START of the whole part, in order; `ranges`: packets, numbered as in `blocks`. Packets are numbered
    from `base` + 1 on. `latest`: as of `PackReader`.
    """

    def __init__(self, split: Split, blocks: Array, ranges: Array, base: int, latest: int | None = None) -> None:
        self._runs = _runs(split, blocks, ranges)
        self._base, self._latest = base, EARLIEST if latest is None else latest
        self.bytes_read = 0

    def fill(self) -> bool:
        """Read until packets[position:count] holds a packet; False after the last range."""
        while True:
            if self._reader is not None:
                if self._reader.fill():
                    return True
                self.bytes_read += self._reader.report.bytes
            run = next(self._runs, None)
            if run is None:
                return False
            split, byte, packet, latest = run
            before = self._reader
            if before is not None:
                before.close()
            self._reader = SplitReader(split, exact=byte, reuse=before)
            self._reader.number_from(self._base + packet)
            self.sorted_by = sorted_by(max(latest, self._latest), self._reader.is_cut)

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()


def _blocks_of(ranges: Array, blocks: Array) -> tuple[Array, Array]:
    """For each range its first block, and the first block behind it (numbers of rows of `blocks`)."""
    firsts = np.maximum(np.searchsorted(blocks["packet"], ranges[:, 0], "right") - 1, 0)
    return firsts, np.searchsorted(blocks["packet"], ranges[:, 1], "right")


def _runs(split: Split, blocks: Array, ranges: Array) -> Iterator[tuple[Split, int, int, int]]:
    """Adjacent blocks that have packets of the ranges, as parts of the file: each with its first byte and packet, and
    the latest time before."""
    firsts, bytes_ = blocks["packet"], blocks["byte"]
    for low, high in union(*_blocks_of(ranges, blocks)).tolist():
        end = int(bytes_[high]) if high < len(blocks) else split.end
        part = replace(split, start=int(bytes_[low]), end=end)
        yield part, int(bytes_[low]), int(firsts[low]), int(blocks["latest"][low])


class ClearBytes:
    """Checks whether bytes of a part of a file have packets of some ranges.

    `ranges`: as of `union`, `blocks`: BLOCK_START of the part, both with the same numbers.
    """

    def __init__(self, ranges: Array, blocks: Array) -> None:
        places, ends = _blocks_of(ranges, blocks)
        behind = np.append(blocks["byte"], np.iinfo(np.int64).max)
        self._ranges = np.stack([behind[places], behind[ends] - 1], axis=1)

    def are_clear(self, first: int, end: int) -> bool:
        """Whether the records that begin in bytes first:end have no packets of the ranges."""
        return not meets(self._ranges, first, end - 1)
