"""`WatchedPackets`: notes where in their streams the packets lie that a filter names (`packet == 1234`).

A run without such a filter does nothing here. A run with one passes the chunks of these packets to the dissector one by
one, and looks at the stream before each.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import Any, NamedTuple

import numpy as np

from kafkatap.dissector.dissector import Dissector, Finished
from kafkatap.kernels.arrays import is_among
from kafkatap.reassembly.dtypes import CHUNK_DATA
from kafkatap.reports.packet_places import PacketPlaces, Place

from .assembly import Assembled

Array = np.ndarray[Any, Any]
#: Bytes of a TLS record before its plain bytes, and behind them, at least.
_RECORD_HEAD, _RECORD_TAIL = 5, 16
_WRAP = 1 << 32


class _Span(NamedTuple):
    """The bytes that a packet was the first to carry: 32-bit sequence numbers."""

    packet: int
    connection: int  # its number
    direction: int
    start: int
    end: int


class WatchedPackets:
    """`places` says which packets are wanted, and gets their places."""

    def __init__(self, places: PacketPlaces) -> None:
        self.places = places
        self._spans: list[_Span] = []  # of the connections that have not ended

    @property
    def is_needed(self) -> bool:
        return bool(self.places.wanted)

    def note(self, part: Assembled) -> None:
        """Note which bytes the wanted packets carry, before TLS is decrypted."""
        chunks = part.chunks
        wanted = is_among(chunks["packet"], list(self.places.wanted)) & (chunks["kind"] == CHUNK_DATA)
        for row in chunks[wanted]:
            start = int(row["seq"])
            self._spans.append(
                _Span(
                    int(row["packet"]), int(row["connection"]), int(row["direction"]), start, start + int(row["length"])
                )
            )

    def feed(self, part: Assembled, dissector: Dissector, encrypted: Container[int]) -> Iterator[Finished]:
        """Read the chunks of a part, as `Dissector.feed`. Note the places of wanted packets. `encrypted`: the numbers
        of connections with TLS."""
        done = 0
        for at, packets in sorted(self._chunks_of(part.chunks, encrypted).items()):
            yield from dissector.feed(part.block, part.held, part.table[done:at], at - done, part.connections)
            dissector.reserve(part.connections)
            self._add_place(part.chunks[at], packets, dissector)
            done = at
        count = part.chunk_count - done
        yield from dissector.feed(part.block, part.held, part.table[done:], count, part.connections)

    def forget(self, ended: Array) -> None:
        """These connections are over: others may get their numbers."""
        if self._spans and len(ended):
            over = set(ended.tolist())
            self._spans = [span for span in self._spans if span.connection not in over]

    def _chunks_of(self, chunks: Array, encrypted: Container[int]) -> dict[int, set[int]]:
        """By place of a chunk, the wanted packets that have bytes in it."""
        found: dict[int, set[int]] = {}
        for span in self._spans:
            mine = (chunks["connection"] == span.connection) & (chunks["direction"] == span.direction)
            mine &= chunks["kind"] == CHUNK_DATA
            if span.connection in encrypted:
                start = chunks["seq"].astype(np.int64) - _RECORD_HEAD
                end = chunks["seq"] + chunks["length"] + _RECORD_TAIL
                overlaps = (_distance(start, span.end) < 0) & (_distance(end, span.start) > 0)
                mine &= overlaps | (chunks["packet"] == span.packet)
            else:
                mine &= chunks["packet"] == span.packet
            for at in np.flatnonzero(mine).tolist():
                found.setdefault(at, set()).add(span.packet)
        return found

    def _add_place(self, chunk: Array, packets: set[int], dissector: Dissector) -> None:
        stream = dissector.streams[2 * int(chunk["connection"]) + int(chunk["direction"])]
        begun = [int(stream["packet_first"])] if stream["passed"] else []
        number = int(stream["segments_first"])
        while number >= 0:
            segment = dissector.segments[number]
            begun.append(int(segment["packet"]))
            number = int(segment["next"])
        place = Place(int(chunk["packet"]), frozenset(begun))
        for packet in packets:
            self.places.wanted[packet].append(place)


def _distance(numbers: Array, other: int) -> Array:
    """Sequence numbers less another one, -2^31 to 2^31 - 1."""
    found: Array = (numbers - other + _WRAP // 2) % _WRAP - _WRAP // 2
    return found
