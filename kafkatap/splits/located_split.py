"""`LocatedSplit`: what a task reads: a part of a capture, or a pack of captures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kafkatap.reassembly.fragments import SavedDatagram

from ..captures.pack_reader import PackReader
from ..captures.packs import Pack
from ..captures.splits import Split
from .packet_ranges import RangesReader
from .seams import Seam, joined
from .split_engine import NOTHING
from .survey import cut_flows

Array = np.ndarray[Any, Any]
#: Shares of a split, from its end on, that are read until they have the last packets of all flows.
_SHARES = (16, 4, 1)


def _from_the_end(sizes: Array) -> Iterator[tuple[int, int]]:
    """Parts [first:end] of a split, the last ones first, of which each has more bytes than those before. `sizes`: of
    all parts."""
    behind, end = np.cumsum(sizes[::-1]), len(sizes)
    for share in _SHARES:
        first = max(len(sizes) - 1 - int(np.searchsorted(behind, behind[-1] // share)), 0) if share > 1 else 0
        if first < end:
            yield first, end
            end = first


@dataclass(frozen=True, slots=True)
class LocatedSplit:
    """`pack`: one part of a file, or whole files that are read one after the other. `exact`: the byte at which the
    first record of a part begins; None if the reader has to search for it. `seen`: of each file, the time of the first
    packet and how many it has, once they are known. `latest`: the latest time in the parts of the file before this one,
    once it is known; None if there are none. `blocks`: where the blocks of a part begin (BLOCK_START), if that
    is known."""

    pack: Pack
    exact: int | None = None
    seen: tuple[tuple[int | None, int], ...] = ()
    blocks: Array | None = field(default=None, compare=False)
    latest: int | None = None

    @property
    def only(self) -> Split | None:
        """The only split of the pack; None if there are several."""
        return self.pack[0] if len(self.pack) == 1 else None

    @property
    def file_numbers(self) -> tuple[int, ...]:
        """The number of each file."""
        return tuple(split.file for split in self.pack)

    @property
    def length(self) -> int:
        """Bytes of the files that are read."""
        return sum(split.length for split in self.pack)

    def open(self, bases: Sequence[int] | None = None) -> PackReader:
        """A reader of the packets. `bases`: packets of the whole input before each file, once they are known; it raises
        OSError if a file is not what was seen."""
        return PackReader(self.pack, self.exact, bases, self.seen, latest=self.latest)

    def open_ranges(self, bases: Sequence[int], ranges: Array) -> PackReader | RangesReader:
        """A reader of the packets that may leave out those outside of `ranges`. Numbers are over the whole input."""
        if self.only is None or self.blocks is None:
            return self.open(bases)
        (base,) = bases
        return RangesReader(self.only, self.blocks, ranges - base, base, self.latest)

    def block_starts(self, bases: Sequence[int]) -> Array | None:
        """`blocks` with packets numbered over the whole input."""
        if self.blocks is None:
            return None
        starts = self.blocks.copy()
        starts["packet"] += bases[0]
        return starts

    def cut(
        self, heads: Mapping[bytes, int], bases: Sequence[int], datagrams: Sequence[SavedDatagram] = (),
        most: int | None = None,
    ) -> dict[bytes, Seam]:  # fmt: skip
        """The packets of some flows up to their heads. Both are numbered over the whole input. `datagrams`: those that
        wait for fragments before. `most`: the last ones, at least so many of each flow."""
        if not heads:
            return {}
        if most is not None and min(heads.values()) == NOTHING:
            return self._cut_last(heads, bases, datagrams, most)
        with closing(self.open(bases)) as reader:
            return cut_flows(reader, heads, datagrams, most).seams

    def _cut_last(
        self, heads: Mapping[bytes, int], bases: Sequence[int], datagrams: Sequence[SavedDatagram], most: int
    ) -> dict[bytes, Seam]:
        """Read from the end on, until there are enough packets of each flow."""
        found: dict[bytes, Seam] = {}
        left = dict(heads)
        for first, end in _from_the_end(self._sizes):
            with closing(self._open_parts(bases, first, end)) as reader:
                cut = cut_flows(reader, left, datagrams if first == 0 else (), most)
            if cut.has_fragments and first > 0:  # of datagrams that may have begun before
                with closing(self.open(bases)) as reader:
                    return cut_flows(reader, heads, datagrams, most).seams
            for key, seam in cut.seams.items():
                found[key] = joined([seam, found[key]]) if key in found else seam
            left = {key: head for key, head in left.items() if key not in found or len(found[key].packets) < most}
            if not left:
                break
        return found

    @property
    def _sizes(self) -> Array:
        """Bytes of the parts that can be read alone: blocks of a file, or files."""
        if self.blocks is not None and len(self.blocks):
            return np.diff(self.blocks["byte"], append=self.blocks["byte"][0] + self.length)
        return np.array([split.length for split in self.pack], np.int64)

    def _open_parts(self, bases: Sequence[int], first: int, end: int) -> PackReader | RangesReader:
        """A reader of some of the parts in `_sizes`."""
        if self.blocks is not None and len(self.blocks):
            packets = np.append(self.blocks["packet"], NOTHING)
            ranges = np.array([[packets[first], packets[end] - 1]])
            return RangesReader(self.pack[0], self.blocks, ranges, bases[0], self.latest)
        if len(self.pack) == 1:
            return self.open(bases)
        return PackReader(self.pack[first:end], None, bases[first:end], self.seen[first:end])
