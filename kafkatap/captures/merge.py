"""Packets of several sources as one sequence in time order. All rules about that order are here.

A source has packets in an order of its own: a capture, one that still grows, an interface, the wanted packets of a
capture. It plugs into a `Merger` (see `Source`). The rules:

- Packets of one source keep their order. One that is earlier than a packet before it is sorted by that packet's time.
- Packets of the same time follow the order of the sources. Captures are in the order in which they begin.
- Packets of a source that cuts them (a short snap length) are sorted CUT_DELAY_NS later, so that a whole copy of a
  packet comes before a cut one.
- A source is opened when the time of its first packet comes.

So the sequence depends neither on the size of blocks nor on when a packet is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from heapq import heapify, heappop, heappush
from typing import Any, Generic, Literal, Protocol, TypeVar

import numpy as np

from kafkatap.kernels.arrays import as_bytes, copied, taken, untouched
from kafkatap.reassembly.dtypes import PACKET

Array = np.ndarray[Any, Any]
#: How much later cut packets are sorted, ns.
CUT_DELAY_NS = 1_000_000
#: Before any time.
EARLIEST = -(1 << 63)
#: Unread bytes between two packets that are copied with them, at most.
_BYTES_BETWEEN = 4_096
#: A place in the sequence: the time by which a packet is sorted, and the order of its source.
Place = tuple[int, int]


def sort_times(times: Array, is_cut: bool, latest: int = EARLIEST) -> Array:
    """The times by which packets of one source are sorted. `latest`: that of the packet before them."""
    found: Array = np.maximum.accumulate(np.maximum(times + (CUT_DELAY_NS if is_cut else 0), latest))
    return found


def sorted_by(latest: int, is_cut: bool) -> int:
    """The time by which a source's packet with the latest time so far is sorted. EARLIEST: there is none."""
    return latest if latest == EARLIEST else int(sort_times(np.array([latest]), is_cut)[0])


class Pending:
    """The packets of a source that were read and not taken yet, as the times by which they are sorted.

    `order`: packets of sources with a lower one come first among those of the same time. `is_cut`: they may be cut.
    """

    def __init__(self, order: int, is_cut: bool = False) -> None:
        self.order, self.is_cut = order, is_cut
        self._latest = EARLIEST
        self._times: Array = np.zeros(0, np.int64)

    def __len__(self) -> int:
        return len(self._times)

    def add(self, times: Array, rows: Array | slice = slice(None)) -> None:
        """Add packets, once there are none. `times`: of all packets that were read; `rows`: those to add."""
        found = sort_times(times, self.is_cut, self._latest)
        self._latest = int(found[-1])
        self._times = found[rows]

    @property
    def first(self) -> Place:
        """The place of the next packet."""
        return int(self._times[0]), self.order

    @property
    def last(self) -> Place:
        """The place of the last packet that was read. Those that are still to be read come behind it."""
        return self._latest, self.order

    def take(self, limit: Place) -> Array:
        """Remove the packets up to a place, and return their times."""
        side: Literal["left", "right"] = "right" if self.order <= limit[1] else "left"
        count = int(np.searchsorted(self._times, limit[0], side))
        found, self._times = self._times[:count], self._times[count:]
        return found


class Source(Protocol):
    """What plugs into a `Merger`."""

    @property
    def first_place(self) -> Place:
        """The time of the first packet, and the order of the source."""

    @property
    def pending(self) -> Pending:
        """The packets that were read, once it is open."""

    def open(self) -> bool:
        """Prepare to read packets. False if that fails."""

    def fill(self) -> bool:
        """Read packets if none are pending. False if there are none, at least for now."""


S = TypeVar("S", bound=Source)
#: Sources, in their order, with the times by which their next packets are sorted. All packets of one part come before
#: those of the next.
Part = list[tuple[S, Array]]


def nobody(_: Sequence[object]) -> tuple[()]:
    """No source is waited for."""
    return ()


class Merger(Generic[S]):
    """Merges sources. `opened`: those that are open; whoever knows that one is over removes it."""

    def __init__(self) -> None:
        self._waiting: list[tuple[Place, S]] = []  # a heap
        self.opened: list[S] = []

    @property
    def is_waiting(self) -> bool:
        """Whether there are sources that are not open yet."""
        return bool(self._waiting)

    def add(self, source: S) -> None:
        """Add a source that has packets. Its order is its own."""
        heappush(self._waiting, (source.first_place, source))

    def withdraw(self, source: S) -> bool:
        """Remove a source unless it was opened. Return whether it was removed."""
        kept = [entry for entry in self._waiting if entry[1] is not source]
        is_found = len(kept) < len(self._waiting)
        self._waiting = kept
        heapify(self._waiting)
        return is_found

    def take_waiting(self) -> list[S]:
        """Remove and return the sources that are not open yet."""
        found, self._waiting = [source for _, source in self._waiting], []
        return found

    def next_part(self, awaited: Callable[[list[S]], Iterable[S]] = nobody) -> Part[S]:
        """Take the packets that come next; none if there are none now.

        `awaited` gets the sources that have packets, and returns those without packets now that may bring earlier ones.
        """
        while True:
            ready = [source for source in self.opened if source.fill()]
            first = min((source.pending.first for source in ready), default=None)
            if not self._waiting or (first is not None and first <= self._waiting[0][0]):
                break
            self._open(heappop(self._waiting)[1])
        if not ready:
            return []
        limits = [source.pending.last for source in (*ready, *awaited(ready))]
        limit = min((*limits, self._waiting[0][0]) if self._waiting else limits)
        parts = [(source, source.pending.take(limit)) for source in ready if source.pending.first <= limit]
        return sorted(parts, key=lambda part: part[0].pending.order)

    def _open(self, source: S) -> None:
        if source.open():
            self.opened.append(source)


def places(part: Part[S]) -> Array:
    """The order of the packets of a part: places among the packets of its sources, one source after the other."""
    order: Array = np.argsort(np.concatenate([times for _, times in part]), kind="stable")
    return order


class Blocks:
    """Makes blocks of the packets of several sources. The bytes of a block stay until `kept` more were made."""

    def __init__(self, kept: int) -> None:
        self._buffers = [untouched(1, np.uint8) for _ in range(kept)]

    def join(self, parts: Sequence[tuple[Array, Array]], order: Array) -> tuple[Array, Array]:
        """One block: (buffer, PACKET rows in `order`). `parts`: the same for each source, in the order of sources."""
        pieces, packets, used = [], [], 0
        for buffer, rows in parts:
            rows = copied(rows)
            at = rows["at"].astype(np.int64)
            ends = at + rows["captured"]
            gaps = at[1:] - ends[:-1]
            starts = np.append(0, np.flatnonzero((gaps < 0) | (gaps > _BYTES_BETWEEN)) + 1)
            for start, stop in zip(starts.tolist(), [*starts[1:].tolist(), len(rows)], strict=True):
                begin = int(at[start])
                pieces.append(buffer[begin : int(ends[stop - 1])])
                rows["at"][start:stop] += used - begin
                used += len(pieces[-1])
            packets.append(as_bytes(rows))
        self._buffers.append(self._buffers.pop(0))
        if len(self._buffers[-1]) < used:
            self._buffers[-1] = untouched(used, np.uint8)
        np.concatenate(pieces, out=self._buffers[-1][:used])
        return self._buffers[-1], taken(np.concatenate(packets).view(PACKET), order)
