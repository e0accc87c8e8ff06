"""`PacketPlaces`: which exchanges have bytes in a packet, for filters such as `packet == 1234`.

An exchange has the numbers of the packets with its first and last bytes. Between two such packets lie packets of other
connections, and ACKs. So a run notes the place of a wanted packet in its stream when it reads that packet: under which
packet its bytes are delivered, and where the message began that is in progress there.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from kafkatap.kernels.arrays import is_among

Array = np.ndarray[Any, np.dtype[Any]]

_ENDS = ("request", "response")


class Place(NamedTuple):
    """Bytes of a wanted packet in a stream.

    `packet`: the packet under which the stream has them: the packet itself, or the last one of its TLS record. `begun`:
    packets before it, one of which has the first byte of the message that is in progress. If that message was found,
    it is one packet; if the stream is still searched for messages, those of all bytes in the search.
    """

    packet: int
    begun: frozenset[int]


class PacketPlaces:
    """The places of the `wanted` packets, as far as they were read."""

    def __init__(self) -> None:
        self.wanted: dict[int, list[Place]] = {}

    def want(self, packets: tuple[int, ...]) -> None:
        """Note the places of these packets from now on."""
        for packet in packets:
            self.wanted.setdefault(packet, [])

    def holds(self, rows: Array, packet: int) -> Array:
        """Which exchanges have bytes in a packet: bool (n,). Of a packet that nobody wanted before it was read: those
        that began before it and ended after it."""
        found = np.zeros(len(rows), bool)
        places = self.wanted.get(packet)
        for end in _ENDS:
            first, last = rows[f"{end}_packet_first"], rows[f"{end}_packet_last"]
            if places is None:
                found |= (first != 0) & (first <= packet) & (last >= packet)
                continue
            for place in places:
                begun = list(place.begun)
                found |= (first == place.packet) | (last == place.packet)
                found |= is_among(first, begun) & ~is_among(last, begun)  # the others that began there ended there
        return found
