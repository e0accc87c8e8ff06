"""Several captures as one sequence of packets in time order, with their numbers and capture points.

`CaptureMerger` plugs captures into `merge.Merger`: it numbers the packets of each from where it opens, and finds its
capture point. `merge_captures` is it for captures that are complete, `followed_captures` for those that grow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from .capture_bytes import UnreadableBytes
from .capture_points import CapturePoints
from .capture_reader import BLOCK_SIZE, CaptureReader, FileReport, measure_packets
from .merge import Blocks, Merger, Part, Pending, Place, nobody, places
from .pipes import is_pipe
from .readahead import AHEAD

Array = np.ndarray[Any, Any]
#: The numbers reserved for a capture whose packets cannot be counted in advance, and which overlaps others.
PIPE_PACKETS = 1_000_000_000
#: The order of captures that are not open yet lies beyond that of all open ones.
NOT_OPEN = 1 << 32
#: Bytes of a small block, to read the first packet.
FIRST_BLOCK = 65_536


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


class MergeableCapture:
    """A capture that plugs into a `CaptureMerger`. `first`: the time of its first packet. `order`: among captures with
    the same one. `pending`, `point` and `reader`: once it is open."""

    def __init__(self, path: str, order: int, reader: CaptureReader | None = None) -> None:
        self.path, self.order, self.reader = path, order, reader
        self.first = 0
        self.point = 0
        self.pending = Pending(order)
        #: Set by `CaptureMerger`: numbers from here on are another capture's.
        self.numbers_end: int | None = None

    @property
    def first_place(self) -> Place:
        return self.first, NOT_OPEN + self.order

    @property
    def opened_reader(self) -> CaptureReader:
        assert self.reader is not None, self.path
        return self.reader

    def open(self) -> bool:
        """Open the reader if it is not yet."""
        raise NotImplementedError

    def measure(self) -> tuple[int, int | None]:
        """How many packets it has, as far as that can be known, and the time of the latest one."""
        raise NotImplementedError

    def fill(self) -> bool:
        """Read packets if none are pending. False if there are none, at least for now."""
        if len(self.pending):
            return True
        if not self.read():
            return False
        reader = self.opened_reader
        rows = reader.packets[reader.position : reader.count]
        rows["point"] = self.point
        self.pending.add(rows["ts"])
        return True

    def read(self) -> bool:
        """Read more packets."""
        return self.opened_reader.fill()

    def take(self, count: int) -> tuple[Array, Array, int, int]:
        """Remove packets; return (buffer, PACKET rows, the first one's row, the end of these rows)."""
        reader = self.opened_reader
        first, reader.position = reader.position, reader.position + count
        return reader.buffer, reader.packets, first, reader.position


C = TypeVar("C", bound=MergeableCapture)


class CaptureMerger(Merger[C], Generic[C]):
    """Merges captures. Among packets of the same time, those of the capture that opened first come first: the names of
    rotated files need not be in time order."""

    def __init__(self) -> None:
        super().__init__()
        self._count = 0  # of the captures that were opened
        self.points = CapturePoints()
        self.next_number = 1  # of the first packet of the next capture that opens
        self._holders: dict[int, C] = {}  # by point: its latest capture
        self._blocks = Blocks(AHEAD)
        self._read = 0  # bytes of the captures that are closed

    @property
    def progress(self) -> int:
        """Bytes of files read so far."""
        return self._read + sum(capture.opened_reader.progress for capture in self.opened)

    def next_packets(self, awaited: Callable[[list[C]], Iterable[C]] = nobody) -> MergedPackets | None:
        """Take the packets that come next, as `next_part`; None if there are none now."""
        part = self.next_part(awaited)
        return self._merged(part) if part else None

    def _merged(self, part: Part[C]) -> MergedPackets:
        blocks = [capture.take(len(times)) for capture, times in part]
        if len(blocks) == 1:
            run = blocks[0]
        else:
            buffer, packets = self._blocks.join([(b, p[first:end]) for b, p, first, end in blocks], places(part))
            run = buffer, packets, 0, len(packets)
        captures = [(capture.point, capture.opened_reader.report) for capture, _ in part]
        secrets = b"".join(capture.opened_reader.take_secrets() for capture in self.opened)
        return MergedPackets(*run, captures, len(self.points), self.progress, secrets)

    def without_packets(self, reader: CaptureReader, point: int = 0) -> MergedPackets:
        """Nothing but the report on a capture that has no packets, or no more of them."""
        self._read += reader.progress
        captures, secrets = [(point, reader.report)], reader.take_secrets()
        return MergedPackets(reader.buffer, reader.packets, 0, 0, captures, len(self.points), self.progress, secrets)

    def _open(self, source: C) -> None:
        if not source.open():
            return
        for other in self.opened:  # their packets come first, so that numbers follow
            reader = other.opened_reader
            count, last = other.measure()
            self.next_number = max(self.next_number, reader.report.first_packet + count, reader.next_number)
            self._end(other, last)
        for other in self.opened:
            other.numbers_end = self.next_number if other.numbers_end is None else other.numbers_end
        reader = source.opened_reader
        reader.number_from(self.next_number)
        source.pending = Pending(self._count, reader.is_cut)
        self._count += 1
        self._begin(source, source.first)
        self.opened.append(source)

    def renumber(self, capture: C, first: int) -> None:
        """Number the next packets of a capture anew, if their numbers are another capture's, and find its point again.
        `first`: the time from which on it may overlap others."""
        reader = capture.opened_reader
        if capture.numbers_end is None or reader.number < capture.numbers_end:
            return
        self.next_number += PIPE_PACKETS
        reader.number_on_from(self.next_number)
        capture.numbers_end = None
        for other in self.opened:
            if other is not capture:
                self._end(other, other.opened_reader.report.last)
        self._begin(capture, first)

    def _begin(self, capture: C, first: int) -> None:
        capture.point = self.points.begin(capture.path, first)
        self._holders[capture.point] = capture

    def _end(self, capture: C, last: int | None) -> None:
        """Note the last time of a capture, unless its point has a later one."""
        if self._holders.get(capture.point) is capture:
            self.points.end(capture.point, last)

    def reopen(self, capture: C) -> None:
        """A capture that was closed continues."""
        self._read -= capture.opened_reader.progress
        self.opened.append(capture)

    def close(self, capture: C) -> MergedPackets:
        """Close a capture that has no more packets, at least for now."""
        self.opened.remove(capture)
        reader = capture.opened_reader
        if reader.report.last is not None:  # a capture without packets has no point
            self._end(capture, reader.report.last)
        self.next_number = max(self.next_number, reader.next_number)
        found = self.without_packets(reader, capture.point)
        reader.close()
        return found


def merge_captures(paths: Sequence[str], block_size: int = BLOCK_SIZE) -> Iterator[MergedPackets]:
    """Yield the packets of captures in time order. Each capture is in `captures` at least once.

    Of several captures, one that cannot be opened is damaged. OSError where the only one cannot be opened, or one is
    not there.
    """
    merger = CaptureMerger[_File]()
    try:
        for order, path in enumerate(paths):
            keep = is_pipe(path) or len(paths) == 1
            reader = _first_reader(path, block_size if keep else FIRST_BLOCK, alone=len(paths) == 1)
            if not reader.fill():
                yield merger.without_packets(reader)
                reader.close()
                continue
            capture = _File(path, order, reader if keep else None, block_size)
            capture.first = reader.next_time()
            merger.add(capture)
            if not keep:
                reader.close()
        while (found := merger.next_packets()) is not None:
            yield found
            for capture in [capture for capture in merger.opened if not capture.fill()]:
                yield merger.close(capture)
    finally:  # also where the caller stops early
        for capture in (*merger.opened, *merger.take_waiting()):
            if capture.reader is not None:
                capture.reader.close()


def _first_reader(path: str, block_size: int, alone: bool) -> CaptureReader:
    try:
        return CaptureReader(path, block_size)
    except FileNotFoundError:
        raise
    except OSError as error:
        if alone:
            raise
        return CaptureReader(path, block_size, UnreadableBytes(error))


class _File(MergeableCapture):
    """A capture that is complete. `reader`: of a pipe, which is opened once."""

    def __init__(self, path: str, order: int, reader: CaptureReader | None, block_size: int) -> None:
        super().__init__(path, order, reader)
        self._block_size = block_size
        self._measured: tuple[int, int | None] | None = None

    def open(self) -> bool:
        if self.reader is None:
            self.reader = CaptureReader(self.path, self._block_size)
        return True

    def measure(self) -> tuple[int, int | None]:
        if self._measured is None:
            self._measured = (PIPE_PACKETS, None) if is_pipe(self.path) else measure_packets(self.path)
        return self._measured
