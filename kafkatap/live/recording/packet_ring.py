"""The last packets as records of a capture file, in memory that never grows.

The ring consists of segments that are filled in turn. When all are full, the oldest one is overwritten. A position
counts all bytes that were ever packed. No record is in two segments, so each segment begins with a whole record.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from threading import Lock

import numpy as np

from kafkatap.kernels.arrays import grown, untouched
from kafkatap.reassembly import pcap_writer as writer
from kafkatap.reassembly import pcapng_blocks as blocks
from kafkatap.reassembly.link_types import ETHERNET
from kafkatap.reports.batch import Array

SEGMENT = 1 << 20
#: So many bytes are touched at the start, because new pages cost several times what packing costs.
_TAKEN_AT_ONCE = 128 << 20


class PacketRing:
    """`form`: writer.CLASSIC or NEXT_GENERATION. `size`: bytes, in whole segments; ValueError below two segments.
    `links`: the expected link types, with the names of their interfaces. `counters` returns the packets received and
    dropped so far. A classic pcap has one link type, the first: packets of others are left out, and `refused` is called
    once with each such type.

    One thread packs and turns. Another one may `read`, and ask what is kept, while it holds `lock`.
    """

    def __init__(
        self,
        form: int,
        size: int,
        links: Mapping[int, str],
        counters: Callable[[], tuple[int, int]],
        refused: Callable[[int], None],
    ) -> None:
        self._count = size // SEGMENT
        if self._count < 2:
            raise ValueError(f"{size:,} bytes are no room for packets: at least {2 * SEGMENT >> 20} MiB are needed")
        self.form = form
        self.lock = Lock()  # nothing is overwritten while it is held
        self.links: list[int] = []  # link types by the numbers of their interfaces
        self._names = dict(links)
        self._counters = counters
        self._refused = refused
        self._bytes = untouched(self._count * SEGMENT, np.uint8)
        self._bytes[:_TAKEN_AT_ONCE] = 0
        #: Of the segments with packets: where each begins, the latest time of packets then, and `counters`.
        self._begins = deque([0])
        self._times = deque([0])
        self._counted = deque([(0, 0)])
        self._first = 0  # the time of the first packet
        self._turns = 0  # the number of the segment that is being filled
        self._interfaces = np.zeros(16, writer.LINK)
        self._state = np.zeros(1, writer.PACK_STATE)
        self._state["form"] = form
        self._state["end"] = SEGMENT
        for link_type in links:
            self._meet(link_type)

    def pack(self, buffer: Array, packets: Array, first: int, count: int) -> int:
        """Pack packets[first:count] (PACKET rows) of `buffer`. Return the first one without room; `turn` makes room."""
        if not self._first and first < count:
            self._first = int(packets["ts"][first])
        while True:
            first = writer.pack_packets(buffer, packets, first, count, self._interfaces, self._state, self._bytes)
            if self._state["stopped"][0] != writer.PACK_NEW_LINK:
                return first
            self._meet(int(packets["link_type"][first]))

    def _meet(self, link_type: int) -> None:
        number = len(self.links)
        if self.form == writer.CLASSIC and number:
            number = -1
            self._refused(link_type)
        else:
            self.links.append(link_type)
        row = int(self._state["links"][0])
        if row == len(self._interfaces):
            self._interfaces = grown(self._interfaces)
        self._interfaces[row] = link_type, number
        self._state["links"] += 1

    def turn(self) -> None:
        """Begin the next segment. When all are used, it replaces the oldest."""
        counted = self._counters()
        with self.lock:
            self._begins.append(self.head)
            self._times.append(self.latest)
            self._counted.append(counted)
            self._turns += 1
            if len(self._begins) > self._count:
                self._begins.popleft()
                self._times.popleft()
                self._counted.popleft()
            place = self._turns % self._count * SEGMENT
            self._state["position"], self._state["end"] = place, place + SEGMENT

    @property
    def head(self) -> int:
        """Where the next record will begin."""
        return self._begins[-1] + int(self._state["position"][0]) - self._turns % self._count * SEGMENT

    @property
    def oldest(self) -> int:
        """Where the oldest kept segment begins."""
        return self._begins[0]

    def missing_since(self, time: int) -> int:
        """How long after a time (ns since the epoch) the packets that are kept begin, ns; 0: they reach so far back."""
        return max(self._times[0] - time, 0)

    @property
    def span(self) -> int:
        """Which time the packets that are kept span, ns."""
        return max(self.latest - (self._times[0] or self._first), 0) if self._first else 0

    def set_latest(self, now: int) -> None:
        """The clock of packets was set, to `now` (ns since the epoch): later packets are no earlier than that."""
        self._state["latest"][0] = now

    @property
    def latest(self) -> int:
        """The latest time of all packets so far, ns since the epoch."""
        return int(self._state["latest"][0])

    @property
    def left_out(self) -> int:
        """Packets with a refused link type."""
        return int(self._state["left_out"][0])

    def read(self, position: int, end: int) -> Array:
        """The bytes from a kept position up to `end`, or to the end of its segment. They are valid until the segment is
        overwritten."""
        row = self._row(position)
        stop = min(end, self._begins[row + 1] if row + 1 < len(self._begins) else self.head)
        place = (self._turns - len(self._begins) + 1 + row) % self._count * SEGMENT
        at = place + position - self._begins[row]
        return self._bytes[at : at + stop - position]

    def _row(self, position: int) -> int:
        """The index of the kept segment with a position."""
        return max(sum(begin <= position for begin in self._begins) - 1, 0)

    def whole(self, data: Array, room: int) -> Array:
        """The leading whole records that fit into `room` bytes."""
        return data[: writer.whole_records(data, 0, min(room, len(data)), self.form)]

    def descriptions(self, known: int) -> bytes:
        """The interface descriptions from number `known` on; the file header of a classic pcap."""
        if self.form == writer.CLASSIC:
            return writer.file_header(self.links[0] if self.links else ETHERNET)
        return b"".join(blocks.captured_interface(link, self._names.get(link, "")) for link in self.links[known:])

    def statistics(self, position: int) -> bytes:
        """The statistics at the end of a file that begins at a position: packets received and dropped since then."""
        if self.form == writer.CLASSIC or not self.links:
            return b""
        before, now = self._counted[self._row(position)], self._counters()
        return blocks.interface_statistics(0, self.latest, now[0] - before[0], now[1] - before[1])
