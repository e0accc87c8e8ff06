"""`SeamReader`: reads the packets of flows that one split decodes from itself and from later splits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kafkatap.reassembly.fragments import SavedDatagram

from ..captures.pack_reader import PackReader
from .located_split import LocatedSplit
from .packet_ranges import RangesReader
from .seams import Seam, SeamPackets, joined

Array = np.ndarray[Any, Any]


@dataclass(slots=True)
class SeamReader:
    """`places`: the splits that are read, `bases`: packets before each of their files, by split. `left`: the packets of
    open flows of a checkpoint; `progress`, `waiting`: as of `OpenFlow`; `authenticating`: those with
    `is_authenticating`, and flows that ended amid SASL. `datagrams`: those that wait for fragments at the start of
    splits."""

    places: Mapping[int, LocatedSplit]
    bases: Mapping[int, Sequence[int]]
    left: Mapping[bytes, Seam]
    progress: Mapping[bytes, Array] = field(default_factory=dict)
    waiting: Mapping[bytes, Seam] = field(default_factory=dict)
    datagrams: Mapping[int, Sequence[SavedDatagram]] = field(default_factory=dict)
    authenticating: frozenset[bytes] = frozenset()

    def open(self, split: int, flows: Iterable[bytes], ranges: Array) -> PackReader | RangesReader | SeamPackets:
        """A reader of the packets of a split; it may leave out those outside of `ranges`. That of a split that is not
        in `places` has those of the checkpoint for these flows."""
        if split in self.places:
            return self.places[split].open_ranges(self.bases[split], ranges)
        return SeamPackets(joined((self.left[key] for key in flows if key in self.left), by_time=True))

    def block_starts(self, split: int) -> Array | None:
        """BLOCK_START of a split, its packets numbered over the whole input. None if they are not known."""
        if split not in self.places:
            return None
        return self.places[split].block_starts(self.bases[split])

    def cut(self, split: int, heads: Mapping[bytes, int], most: int | None = None) -> dict[bytes, Seam]:
        """The packets of flows of a split, each up to a packet, as of `open`. `most`: as of `LocatedSplit.cut`."""
        if not heads:
            return {}
        if split in self.places:
            return self.places[split].cut(heads, self.bases[split], self.datagrams.get(split, ()), most)
        return {key: self.left[key] for key in heads if key in self.left}
