"""`Limits`: how much a run keeps in memory at most. Options of the group "limits" set them."""

from __future__ import annotations

from typing import NamedTuple

from kafkatap.reassembly.dtypes import Bounds

#: The part of `held` for segments behind gaps, and the bytes of a segment on average, at least.
_GAP_PART, _SEGMENT = 32, 128


class Limits(NamedTuple):
    """What counts here is what all connections of a run have together. What is given up is in the ledger.

    `connections`: a connection ends when so many others began after its last packet. `waiting`: requests that wait for
    their response; the oldest are given up first. `held`: bytes of messages that are not complete, and a 32nd of it for
    segments behind gaps. `names`: client ids, topics and other texts, addresses, and rows of a report's tables; later
    names count as `(other)`.
    """

    connections: int = 262_144
    waiting: int = 1_000_000
    held: int = 1 << 30
    names: int = 250_000

    def of_one(self, engines: int) -> Limits:
        """The limits of one of so many engines: together they keep no more than one does."""
        shared = {name: max(getattr(self, name) // engines, 1) for name in ("connections", "waiting", "held")}
        return self._replace(**shared)

    def bounds(self) -> Bounds:
        """The limits of reassembly."""
        quarter, held = max(self.connections // 4, 1), max(self.held // _GAP_PART, 1)
        return Bounds()._replace(
            closed=quarter, syns=quarter, idle=self.connections, held_bytes=held,
            held_segments=max(held // _SEGMENT, 1),
        )  # fmt: skip
