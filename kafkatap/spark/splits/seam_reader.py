"""`SeamReader`: reads the packets of flows that one split decodes from itself and from later splits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .located_split import LocatedSplit
from .seams import Seam


@dataclass(slots=True)
class SeamReader:
    """`places`: the splits that are read, `bases`: packets before each of their files, by split. `left`: the packets of
    open flows of a checkpoint."""

    places: Mapping[int, LocatedSplit]
    bases: Mapping[int, Sequence[int]]
    left: Mapping[bytes, Seam]

    def cut(self, split: int, heads: Mapping[bytes, int]) -> dict[bytes, Seam]:
        """The packets of flows of a split, each up to a packet. A split that is not in `places` has those of the
        checkpoint."""
        if not heads:
            return {}
        if split in self.places:
            return self.places[split].cut(heads, self.bases[split])
        return {key: self.left[key] for key in heads if key in self.left}
