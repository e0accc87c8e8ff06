"""`LocatedSplit`: a split of a capture and the byte at which its first record begins."""

from __future__ import annotations

from dataclasses import dataclass

from ...captures.splits import Split, SplitReader
from .seams import Seam
from .survey import cut_flows


@dataclass(frozen=True, slots=True)
class LocatedSplit:
    """`exact`: the byte at which the first record begins; None if the reader has to search for it."""

    split: Split
    exact: int | None = None

    @property
    def length(self) -> int:
        """Bytes that are read."""
        return self.split.length

    def open(self) -> SplitReader:
        return SplitReader(self.split, exact=self.exact)

    def cut(self, heads: dict[bytes, int]) -> dict[bytes, Seam]:
        """The packets of some flows up to their heads."""
        reader = self.open()
        try:
            return cut_flows(reader, heads)
        finally:
            reader.close()
