"""Which connection each packet belongs to, and what the connection carries.

Reassembly reads the TCP segments of packets anyway. `ConnectionWatch` sees them on their way (`segment_filter`) and
notes the serial number of each segment's connection. Serials are never used again, so a verdict on a connection also
holds after its row was freed. Packets without a TCP segment have none: other protocols, and all but the last of an IP
datagram's fragments.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from kafkatap.dissector.framing.connections import PROTOCOL_KAFKA, PROTOCOL_UNKNOWN
from kafkatap.engine.engine import Engine
from kafkatap.kernels.arrays import grown
from kafkatap.reassembly.dtypes import ROW_FREE, SYN
from kafkatap.reports.batch import Array

#: The serial of a packet without a connection.
NO_CONNECTION = -1


class Seen(NamedTuple):
    """Of each packet: the serial of its connection (int64), and whether it is a SYN or SYN-ACK (bool)."""

    serials: Array
    is_syn: Array


class ConnectionWatch:
    """The connections of an engine that reads no packets yet. Its `watcher` and `segment_filter` are in use then."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._noted: list[tuple[Array, Array, Array]] = []  # packet numbers, serials, flags
        self._protocols = np.zeros(1024, np.uint8)  # by serial
        engine.assembler.segment_filter = self._note
        engine.watcher = lambda engine, numbers, rows, directions: self._learn(numbers)

    def _note(self, segments: Array) -> Iterator[Array]:
        packets, flows, flags = (segments[name].copy() for name in ("packet", "flow", "tcp_flags"))
        yield segments
        assembler = self._engine.assembler
        rows = assembler.flows["connection"][flows]
        serials = np.where(rows >= 0, assembler.connections["serial"][rows], NO_CONNECTION)
        self._noted.append((packets, serials, flags))

    def seen(self, first: int, count: int) -> Seen:
        """What is known of the packets that were read since the last call, numbered from `first` on."""
        found = Seen(np.full(count, NO_CONNECTION, np.int64), np.zeros(count, bool))
        for packets, serials, flags in self._noted:
            found.serials[packets - first] = serials
            found.is_syn[packets - first] = (flags & SYN) != 0
        self._noted.clear()
        return found

    def update(self) -> bool:
        """Learn what open connections carry. Return whether one turned out to be Kafka since the last call."""
        before = int((self._protocols == PROTOCOL_KAFKA).sum())
        self._learn(np.flatnonzero(self._engine.assembler.connections["used"] != ROW_FREE))
        return int((self._protocols == PROTOCOL_KAFKA).sum()) != before

    def _learn(self, numbers: Array) -> None:
        known = self._engine.dissector.connections
        numbers = numbers[numbers < len(known)]
        serials, protocols = known["serial"][numbers], known["protocol"][numbers]
        if len(serials):
            self._make_room(int(serials.max()))
            self._protocols[serials] = protocols

    def is_kafka(self, serials: Array) -> Array:
        """Which of these connections carry Kafka: bool."""
        found: Array = (self._protocol(serials) == PROTOCOL_KAFKA) & (serials != NO_CONNECTION)
        return found

    def may_be_kafka(self, serials: Array) -> Array:
        """Which of these connections carry Kafka, or nothing that is known so far: bool."""
        protocol = self._protocol(serials)
        found: Array = ((protocol == PROTOCOL_KAFKA) | (protocol == PROTOCOL_UNKNOWN)) & (serials != NO_CONNECTION)
        return found

    def _protocol(self, serials: Array) -> Array:
        if len(serials):
            self._make_room(int(serials.max()))
        return self._protocols[serials]

    def _make_room(self, serial: int) -> None:
        if serial >= len(self._protocols):
            self._protocols = grown(self._protocols, 2 * serial + 1)
