"""`LocatedSplit`: what a task reads: a part of a capture, or a pack of captures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kafkatap.reassembly.fragments import SavedDatagram

from ..captures.pack_reader import PackReader
from ..captures.packs import Pack
from ..captures.splits import Split
from .packet_ranges import RangesReader
from .seams import Seam
from .survey import cut_flows

Array = np.ndarray[Any, Any]


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
        return RangesReader(self.only, self.blocks, ranges - base, base)

    def block_starts(self, bases: Sequence[int]) -> Array | None:
        """`blocks` with packets numbered over the whole input."""
        if self.blocks is None:
            return None
        starts = self.blocks.copy()
        starts["packet"] += bases[0]
        return starts

    def cut(
        self, heads: Mapping[bytes, int], bases: Sequence[int], datagrams: Sequence[SavedDatagram] = ()
    ) -> dict[bytes, Seam]:
        """The packets of some flows up to their heads. Both are numbered over the whole input. `datagrams`: those that
        wait for fragments before."""
        reader = self.open(bases)
        try:
            return cut_flows(reader, heads, datagrams)
        finally:
            reader.close()
