"""Merge several captures into one sequence of packets in time order.

The order follows the packets' times, not the files' names. Packets of one capture keep their order, and packets of the
same time follow the order of the captures. So the sequence does not depend on the size of blocks. Only captures whose
turn has come are open.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from kafkatap.kernels.arrays import as_bytes, copied, taken, untouched
from kafkatap.reassembly.dtypes import PACKET

from .capture_bytes import UnreadableBytes
from .capture_points import SLACK_NS, CapturePoints
from .capture_reader import BLOCK_SIZE, CaptureReader, FileReport, measure_packets
from .pipes import is_pipe
from .readahead import AHEAD

__all__ = ["PIPE_PACKETS", "SLACK_NS", "MergedPackets", "merge_captures"]

Array = np.ndarray[Any, Any]
#: The numbers reserved for a pipe that overlaps other captures: its packets cannot be counted in advance.
PIPE_PACKETS = 1_000_000_000
#: How much later the packets of captures with a short snap length are sorted, ns.
CUT_DELAY_NS = 1_000_000


class MergedPackets(NamedTuple):
    """packets[first:end] come next in time; their bytes lie in `buffer`. There may be none.

    `captures`: the captures that have some of them: their capture points, and reports on them. `points`: how many
    points there are so far. `progress`: bytes of files read so far. `secrets`: TLS key logs that the captures had
    before these packets. `buffer` stays as it is until AHEAD more of them are made.
    """

    buffer: Array
    packets: Array
    first: int
    end: int
    captures: Sequence[tuple[int, FileReport]]
    points: int
    progress: int
    secrets: bytes = b""

    def __repr__(self) -> str:
        return f"<MergedPackets: {self.end - self.first:,} packets>"  # without secrets


def merge_captures(paths: Sequence[str], block_size: int = BLOCK_SIZE) -> Iterator[MergedPackets]:
    """Yield the packets of captures in time order. Each capture is in `captures` at least once.

    Of several captures, one that cannot be opened is damaged. OSError where the only one cannot be opened, or one is
    not there.
    """
    waiting: list[_Waiting] = []
    merge = _Merge(block_size)
    for order, path in enumerate(paths):
        keep = is_pipe(path) or len(paths) == 1
        reader = _opened(path, block_size if keep else 65_536, alone=len(paths) == 1)
        if not reader.fill():
            yield merge.without_packets(reader)
            reader.close()
            continue
        waiting.append((reader.next_time(), order, reader if keep else None, path))
        if not keep:
            reader.close()
    waiting.sort(key=lambda w: w[:2])
    try:
        yield from merge.runs(deque(waiting))
    finally:  # also where the caller stops early
        merge.close()


def _opened(path: str, block_size: int, alone: bool) -> CaptureReader:
    try:
        return CaptureReader(path, block_size)
    except FileNotFoundError:
        raise
    except OSError as error:
        if alone:
            raise
        return CaptureReader(path, block_size, UnreadableBytes(error))


#: A capture that has packets: (time of the first one, place in `paths`, reader or None, path).
_Waiting = tuple[int, int, CaptureReader | None, str]


class _Active:
    """An open capture that has packets. `order`: its place in `paths`. `keys`: of packets[position:count], the times by
    which they are sorted: those of the packets, but never less than that of a packet before. Captures with cut packets
    come CUT_DELAY_NS later, so that whole copies of these come first."""

    def __init__(self, reader: CaptureReader, order: int, point: int) -> None:
        self.reader = reader
        self.order = order
        self.point = point
        self._latest = -(1 << 63)
        self._delay = CUT_DELAY_NS if reader.is_cut else 0
        self.keys: Array = np.zeros(0, np.int64)

    def fill(self) -> bool:
        """As `CaptureReader.fill`."""
        reader = self.reader
        if len(self.keys):
            return True
        if reader.position == reader.count and not reader.fill():
            return False
        times = reader.packets["ts"][reader.position : reader.count] + self._delay
        self.keys = np.maximum.accumulate(np.maximum(times, self._latest))
        self._latest = int(self.keys[-1])
        reader.packets["point"][reader.position : reader.count] = self.point
        return True

    @property
    def first(self) -> tuple[int, int]:
        """Where the next packet comes in the order of all packets."""
        return int(self.keys[0]), self.order

    @property
    def last(self) -> tuple[int, int]:
        """Where the last packet comes that was read so far."""
        return int(self.keys[-1]), self.order

    def take(self, limit: tuple[int, int]) -> tuple[slice, Array]:
        """Take the packets up to a place in the order of all packets; return their rows and keys."""
        side: Literal["left", "right"] = "right" if self.order <= limit[1] else "left"
        count = int(np.searchsorted(self.keys, limit[0], side))
        position, keys = self.reader.position, self.keys[:count]
        self.reader.position += count
        self.keys = self.keys[count:]
        return slice(position, position + count), keys


class _Merge:
    """Merges captures that have packets."""

    def __init__(self, block_size: int) -> None:
        self._waiting: deque[_Waiting] = deque()  # not yet open, sorted by time
        self._block_size = block_size
        self._active: list[_Active] = []
        self._points = CapturePoints()
        self._next_number = 1  # of the first packet of the next capture that opens
        self._unmeasured: list[_Active] = []  # open captures whose packets `_next_number` does not count yet
        self._buffers = [untouched(1, np.uint8) for _ in range(AHEAD)]  # of packets of several captures
        self._read = 0  # bytes of the captures that are closed

    def without_packets(self, reader: CaptureReader) -> MergedPackets:
        """Nothing but the report on a capture that has no packets, or no more of them."""
        self._read += reader.progress
        captures = [(0, reader.report)]
        secrets = reader.take_secrets()
        return MergedPackets(reader.buffer, reader.packets, 0, 0, captures, len(self._points), self._progress, secrets)

    @property
    def _progress(self) -> int:
        return self._read + sum(active.reader.progress for active in self._active)

    def runs(self, waiting: deque[_Waiting]) -> Iterator[MergedPackets]:
        self._waiting = waiting
        while self._waiting or self._active:
            first = min((active.first for active in self._active), default=None)
            if first is None or (self._waiting and self._waiting[0][:2] < first):
                self._open_next()
                continue
            limit = min(active.last for active in self._active)
            if self._waiting:
                limit = min(limit, self._waiting[0][:2])
            yield self._taken(limit)
            for active in [a for a in self._active if not a.fill()]:
                yield self._closed(active)

    def _taken(self, limit: tuple[int, int]) -> MergedPackets:
        """Take the packets up to a place in their order."""
        taking = [active for active in self._active if active.first <= limit]
        captures = [(active.point, active.reader.report) for active in taking]
        if len(taking) == 1:
            reader = taking[0].reader
            rows, _ = taking[0].take(limit)
            run = reader.buffer, reader.packets, rows.start, rows.stop
        else:
            run = self._joined(taking, limit)
        secrets = b"".join(active.reader.take_secrets() for active in self._active)
        return MergedPackets(*run, captures, len(self._points), self._progress, secrets)

    def _joined(self, taking: list[_Active], limit: tuple[int, int]) -> tuple[Array, Array, int, int]:
        """The packets of several captures up to a place in their order, as those of one block."""
        pieces, packets, keys, used = [], [], [], 0
        for active in sorted(taking, key=lambda a: a.order):
            where, times = active.take(limit)
            rows = copied(active.reader.packets[where])
            begin = int(rows["at"][0])
            pieces.append(active.reader.buffer[begin : int(rows["at"][-1] + rows["captured"][-1])])
            rows["at"] += used - begin
            used += len(pieces[-1])
            packets.append(as_bytes(rows))
            keys.append(times)
        self._buffers.append(self._buffers.pop(0))
        if len(self._buffers[-1]) < used:
            self._buffers[-1] = untouched(used, np.uint8)
        np.concatenate(pieces, out=self._buffers[-1][:used])
        order = np.argsort(np.concatenate(keys), kind="stable")
        return self._buffers[-1], taken(np.concatenate(packets).view(PACKET), order), 0, len(order)

    def _open_next(self) -> None:
        first, order, kept, path = self._waiting.popleft()
        # These overlap the next capture. Their packets are counted first, so that its numbers follow.
        for other in self._unmeasured:
            report = other.reader.report
            count, last = (PIPE_PACKETS, None) if is_pipe(report.path) else measure_packets(report.path)
            self._next_number = max(self._next_number, report.first_packet + count)
            self._points.end(other.point, last)
        reader = kept if kept is not None else CaptureReader(path, self._block_size)
        reader.number_from(self._next_number)
        opened = _Active(reader, order, self._points.begin(path, first))
        self._unmeasured = [opened]
        if opened.fill():
            self._active.append(opened)

    def _closed(self, active: _Active) -> MergedPackets:
        """Close a capture that has no more packets."""
        self._active.remove(active)
        reader = active.reader
        if active in self._unmeasured:
            self._unmeasured.remove(active)
            self._points.end(active.point, reader.report.last)
        self._next_number = max(self._next_number, reader.report.first_packet + reader.report.packets)
        reader.close()
        return self.without_packets(reader)

    def close(self) -> None:
        for reader in (*(a.reader for a in self._active), *(w[2] for w in self._waiting)):
            if reader is not None:
                reader.close()
