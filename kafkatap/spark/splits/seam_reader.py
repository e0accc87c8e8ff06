"""`SeamReader`: reads the packets of flows that one split decodes from itself and from later splits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .located_split import LocatedSplit
from .seams import Seam


@dataclass(slots=True)
class SeamReader:
    """`places`: the splits that are read, `bases`: packets before each of them, by split. `left`: the packets of open
    flows of a checkpoint, numbered over the whole input."""

    places: Mapping[int, LocatedSplit]
    bases: Mapping[int, int]
    left: Mapping[bytes, Seam]

    def cut(self, split: int, heads: Mapping[bytes, int]) -> dict[bytes, Seam]:
        """The packets of flows of a split, each up to a packet numbered in that split.

        They are numbered over the whole input. A split that is not in `places` has the packets of the checkpoint.
        """
        if not heads:
            return {}
        if split in self.places:
            found = self.places[split].cut(dict(heads))
            return {key: seam.numbered_from(self.bases[split]) for key, seam in found.items()}
        return {key: self.left[key] for key in heads if key in self.left}
