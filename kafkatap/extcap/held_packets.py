"""Packets that wait until it is known whether Wireshark gets them, as pcapng blocks in bounded memory.

Packets come in groups, one for each round of the capture. Each packet is held, wanted, or gone (written or left out).
If the groups need more memory than allowed, the oldest group is forgotten. Packets are written in the order in which
they came, and each once.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from kafkatap.dissector.framing.connections import PROTOCOL_KAFKA, PROTOCOL_UNKNOWN
from kafkatap.kernels.arrays import grown, taken
from kafkatap.reassembly import pcap_writer as writer
from kafkatap.reassembly.dtypes import ROW_FREE, SYN
from kafkatap.reassembly.pcap import LONGEST_PACKET
from kafkatap.reports.batch import Array

from ..engine.engine import Engine

HELD, WANTED, GONE = range(3)
_COMMENT = 1  # the option opt_comment of a pcapng block
_LONGEST_COMMENT = 60_000
_BLOCK = 32  # bytes of an enhanced packet block without the packet
#: The serial of a packet without a connection.
NO_CONNECTION = -1


class Group:
    """The packets of one round. `arrived`: by the loop's clock. `starts`: where the packets' blocks begin in `data`."""

    __slots__ = ("arrived", "data", "is_settled", "is_syn", "numbers", "serials", "starts", "states")

    def __init__(self, arrived: float, data: Array, starts: Array, numbers: Array, seen: Seen) -> None:
        self.arrived = arrived
        self.data = data
        self.starts = starts
        self.numbers = numbers
        self.serials = seen.serials
        self.is_syn = seen.is_syn
        self.states = np.full(len(numbers), HELD, np.uint8)
        self.is_settled = False  # nothing in it is ready, unless there is news of its connections

    def keep(self, kept: Array) -> None:
        """Forget all packets but those in `kept` (bool)."""
        places = np.flatnonzero(kept)
        self.data = np.concatenate([np.zeros(0, np.uint8), *(self.data[a:b] for a, b in self._runs(places))])
        lengths = (self.starts[1:] - self.starts[:-1])[places]
        self.starts = np.concatenate(([0], np.cumsum(lengths)))
        self.numbers, self.serials, self.states = self.numbers[places], self.serials[places], self.states[places]
        self.is_syn = self.is_syn[places]

    def want(self, chosen: Array) -> None:
        """Want those of the chosen packets (bool) that are held."""
        chosen = chosen & (self.states == HELD)
        if chosen.any():
            self.states[chosen] = WANTED
            self.is_settled = False

    def blocks(self, chosen: Array, comments: Mapping[int, Sequence[str]]) -> Iterator[bytes]:
        """The pcapng blocks of the chosen packets (bool), with comments by packet number."""
        places = np.flatnonzero(chosen)
        commented = [place for place in places.tolist() if int(self.numbers[place]) in comments] if comments else []
        for part in np.split(places, np.searchsorted(places, commented)):
            if commented and len(part) and part[0] == commented[0]:
                place = commented.pop(0)
                block = self.data[self.starts[place] : self.starts[place + 1]].tobytes()
                yield with_comments(block, comments[int(self.numbers[place])])
                part = part[1:]
            for begin, end in self._runs(part):
                yield self.data[begin:end].tobytes()

    def _runs(self, places: Array) -> Iterator[tuple[int, int]]:
        """The ranges of `data` with the packets at these places, ascending."""
        if not len(places):
            return
        breaks = np.flatnonzero(np.diff(places) != 1) + 1
        for run in np.split(places, breaks):
            yield int(self.starts[run[0]]), int(self.starts[run[-1] + 1])


class HeldPackets:
    """`links`: the link types, in the order of the interfaces that the capture describes. `size`: bytes that packets
    may need; `snap_length`: bytes that are kept of each packet."""

    def __init__(self, links: Sequence[int], size: int, snap_length: int = LONGEST_PACKET) -> None:
        self._links = np.zeros(max(1, len(links)), writer.LINK)
        self._links["link_type"][: len(links)] = links
        self._links["interface"][: len(links)] = range(len(links))
        self._count = len(links)
        self._size = size
        self._snap_length = snap_length
        self._groups: deque[Group] = deque()
        self._bytes = 0
        self.latest = 0  # the latest time of all packets, ns
        self._opened: set[int] = set()  # connections whose first packets are wanted
        self.forgotten = 0  # packets that were still held when memory ran out

    def add(self, buffer: Array, packets: Array, seen: Seen, chosen: Array, arrived: float) -> None:
        """Hold the chosen packets (bool) of some PACKET rows, whose bytes are in `buffer`."""
        places = np.flatnonzero(chosen)
        if not len(places):
            return
        rows = taken(packets, places)
        rows["captured"] = np.minimum(rows["captured"], self._snap_length)
        sizes = np.minimum(np.maximum(rows["captured"], 0), len(buffer) - rows["at"])
        starts = np.concatenate(([0], np.cumsum(((sizes.astype(np.int64) + 3) & ~3) + _BLOCK)))
        data = np.empty(int(starts[-1]), np.uint8)
        state = np.zeros(1, writer.PACK_STATE)
        state["form"], state["end"], state["links"] = writer.NEXT_GENERATION, len(data), self._count
        packed = writer.pack_packets(buffer, rows, 0, len(rows), self._links, state, data)
        if packed != len(rows) or int(state["position"][0]) != len(data):
            raise RuntimeError("packets of a link type that was not expected")
        self.latest = max(self.latest, int(state["latest"][0]))
        self._groups.append(Group(arrived, data, starts, rows["number"].copy(), Seen(*(a[places] for a in seen))))
        self._bytes += len(data)
        while self._bytes > self._size and len(self._groups) > 1:
            oldest = self._groups.popleft()
            self._bytes -= len(oldest.data)
            self.forgotten += int((oldest.states != GONE).sum())

    def want(self, first: int, last: int) -> None:
        """Want the packets first to last (numbers) of the connection that packet `first`, or else `last`, is of; and
        those that opened the connection, if they are still held."""
        serial = self._serial(first)
        serial = self._serial(last) if serial is None else serial
        if serial is None:
            return
        for group in reversed(self._groups):
            if not len(group.numbers) or group.numbers[0] > last:
                continue
            if group.numbers[-1] < first:
                break
            group.want((group.numbers >= first) & (group.numbers <= last) & (group.serials == serial))
        if serial not in self._opened:
            self._opened.add(serial)
            for group in self._groups:
                group.want(group.is_syn & (group.serials == serial))

    def _serial(self, number: int) -> int | None:
        for group in reversed(self._groups):
            if len(group.numbers) and group.numbers[0] <= number <= group.numbers[-1]:
                place = int(np.searchsorted(group.numbers, number))
                return int(group.serials[place]) if group.numbers[place] == number else None
        return None

    def ready(
        self,
        until: float,
        is_ready: Callable[[Group], Array],
        may_wait: Callable[[Group], Array],
        has_news: bool,
        comments: Mapping[int, Sequence[str]],
    ) -> Iterator[bytes]:
        """The blocks of packets that arrived before `until` and are ready. They are gone then.

        `is_ready`, `may_wait`: of a group, which packets are written, and which may be later (bool). Groups that were
        looked at before are looked at again only if some of their packets are wanted now, or if there is news of
        connections.
        """
        left: deque[Group] = deque()
        while self._groups:
            group = self._groups.popleft()
            if group.arrived >= until:
                self._groups.appendleft(group)
                break
            if group.is_settled and not has_news:
                left.append(group)
                continue
            chosen = is_ready(group) & (group.states != GONE)
            if chosen.any():
                yield from group.blocks(chosen, comments)
                group.states[chosen] = GONE
            kept = (group.states != GONE) & may_wait(group)
            size = len(group.data)
            if 2 * int(kept.sum()) < len(kept):
                group.keep(kept)
            self._bytes -= size - len(group.data)
            group.is_settled = True
            if len(group.numbers):
                left.append(group)
        self._groups.extendleft(reversed(left))


def with_comments(block: bytes, comments: Sequence[str]) -> bytes:
    """An enhanced packet block without options, with comments."""
    body = block[8:-4]
    for comment in comments:
        text = comment.encode()[:_LONGEST_COMMENT]
        body += struct.pack("<HH", _COMMENT, len(text)) + text + bytes(-len(text) % 4)
    body += bytes(4)
    length = struct.pack("<I", len(body) + 12)
    return block[:4] + length + body + length


class Seen(NamedTuple):
    """Of each packet: the serial of its connection (int64), and whether it is a SYN or SYN-ACK (bool)."""

    serials: Array
    is_syn: Array


class ConnectionWatch:
    """Which connection each packet belongs to, and what the connection carries.

    Reassembly reads the TCP segments of packets anyway. `segment_filter` shows them on their way, and the serial number
    of each segment's connection is noted. Serials are never used again, so a verdict on a connection also holds after
    its row was freed. Packets without a TCP segment have none: other protocols, and all but the last of an IP
    datagram's fragments. The `watcher` and `segment_filter` of an engine that reads no packets yet are in use then.
    """

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
