"""Where captures come from: files (plain, gzip, zstd: told by their first bytes), and pipes.

`CaptureReader` gives one capture's packets block by block. `ordered` puts several captures into one sequence in order
of time, by their packets and not their names, merging those that overlap; only captures whose turn has come are open.
"""

from __future__ import annotations

import io
import os
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush, heapreplace
from typing import Any, BinaryIO, Protocol, cast

import numpy as np

from kafkatap.kernels.arrays import untouched
from kafkatap.reassembly.errors import CaptureError, DamagedCapture, EmptyCapture, NotACapture, TruncatedCapture
from kafkatap.reassembly.headers import LINK_NAMES
from kafkatap.reassembly.scanner import HEADER_SIZE, NOWHERE, Scanner

from .decompression import open_stream
from .pipes import Pipe, is_pipe
from .readahead import AHEAD
from .storage import open_input

Array = np.ndarray[Any, Any]
BLOCK_SIZE = 4 * 1024 * 1024
#: Captures overlap only if they do so by more than this: time stamps step back a little within one file as well.
SLACK_NS = 1_000_000
#: How many packets a pipe may hold that other captures overlap, for theirs to have other numbers.
PIPE_PACKETS = 1_000_000_000


class Source(Protocol):
    """What a `CaptureReader` reads: bytes from some place of a capture on."""

    bytes_read: int

    @property
    def compression(self) -> str: ...
    @property
    def progress(self) -> int: ...
    def readinto(self, view: memoryview) -> int: ...
    def close(self) -> None: ...


class Reading:
    """Bytes of one capture, decompressed: `readinto`, how many were read, and how many there are if that is known."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.compression = ""
        self.bytes_read = 0
        raw = Pipe(path) if is_pipe(path) else cast(io.RawIOBase, open_input(path))
        self._file: io.BufferedReader = io.BufferedReader(raw, 65_536)
        self.size: int | None = None
        if self._file.seekable():
            self.size = self._file.seek(0, os.SEEK_END)
            self._file.seek(0)
        self._compressed: BinaryIO | None = None
        self._progress = 0
        self._stream: Any = self._file
        self._refused: CaptureError | None = None
        stream = None
        try:
            self.compression, stream = open_stream(self._file)
        except CaptureError as error:
            self._refused = error
        if stream is not None:
            self._stream = stream
            self._compressed = self._file
        elif self._file.seekable():
            self._stream = self._file.raw
            self._stream.seek(0)

    def readinto(self, view: memoryview) -> int:
        """Read up to len(view) bytes; 0 at the end. Raises CaptureError where decompression fails or is not known."""
        if self._refused is not None:
            raise self._refused
        count: int = self._stream.readinto(view) or 0
        self.bytes_read += count
        return count

    @property
    def progress(self) -> int:
        """Bytes of the file itself that were read, for a progress bar."""
        if self._compressed is not None and self.size and not self._compressed.closed:
            self._progress = self._compressed.tell()
        return self._progress if self._compressed is not None else self.bytes_read

    def close(self) -> None:
        self._file.close()


@dataclass(slots=True)
class FileReport:
    """What one capture was: filled in as it is read. Times are ns since the epoch; `damage` is one clear sentence."""

    path: str
    kind: str = ""
    first_packet: int = 1
    packets: int = 0
    bytes: int = 0
    link_types: tuple[str, ...] = ()
    first: int | None = None
    last: int | None = None
    drops: int | None = None
    damage: str | None = None
    snap_length: int = 0
    fatal: bool = field(default=False)


class CaptureReader:
    """One capture, block by block. After `fill()` has said True, packets[position:count] lie in `buffer`, whose bytes
    stay until AHEAD more blocks are read."""

    def __init__(self, path: str, block_size: int = BLOCK_SIZE, reading: Source | None = None) -> None:
        self.report = FileReport(path)
        self._block_size = block_size
        self._reading: Source = reading if reading is not None else Reading(path)
        self._scanner = Scanner()
        self._buffers = [untouched(block_size + 65_536, np.uint8) for _ in range(AHEAD)]
        self.buffer: Array = self._buffers[-1]
        self._given = False  # whether packets of this buffer were given
        self.position = 0
        self.count = 0
        self._at = 0  # first byte not yet scanned
        self._end = 0  # end of the bytes in the buffer
        self._base = 0  # offset of the buffer's first byte in the capture
        self._stop = NOWHERE  # in the capture: records that begin there or later are not taken
        self._over = False
        try:
            self._begin()
        except CaptureError as error:
            self._fail(error, fatal=True)
        self.report.kind = self._scanner.format
        self.report.snap_length = self._scanner.snap_length
        if self._reading.compression:
            self.report.kind += f", {self._reading.compression}"

    @property
    def packets(self) -> Array:
        return self._scanner.packets

    @property
    def base(self) -> int:
        """Where the buffer's first byte lies in the (decompressed) capture."""
        return self._base

    @property
    def progress(self) -> int:
        return self._reading.progress

    def number_from(self, first: int) -> None:
        """Count this capture's packets from `first` on."""
        self._scanner.number_from(first)
        self.packets["number"][: self.count] += first - self.report.first_packet
        self.report.first_packet = first

    def _begin(self) -> None:
        """Read what comes before the first record."""
        self._at = self._scanner.start(self._read_head())

    def _read_head(self) -> bytes:
        view = memoryview(cast(Any, self.buffer))
        while self._end < HEADER_SIZE:
            count = self._reading.readinto(view[self._end : HEADER_SIZE])
            if count == 0:
                break
            self._end += count
        return self.buffer[: self._end].tobytes()

    def _fail(self, error: CaptureError, fatal: bool = False) -> None:
        where = ""
        if not isinstance(error, EmptyCapture | NotACapture):
            where = f" at byte {error.offset}" + (" after decompression" if self._reading.compression else "")
        self.report.damage = f"{error.message}{where}"
        self.report.fatal = fatal
        self._over = True

    def fill(self) -> bool:
        """Have packets[position:count] not be empty; False at the end of the capture."""
        while self.position == self.count:
            if self._over:
                return False
            self._scan_more()
        return True

    def _scan_more(self) -> None:
        self.position = self.count = 0
        try:
            if self._end > self._at and self._scanner.more:
                self._take_scan()
                if self.count:
                    return
            rest = self._end - self._at
            self._next_buffer(rest)
            self._base += self._at
            self._at, self._end = 0, rest
            room = min(len(self.buffer), max(self._block_size, rest + 1))
            if rest >= self._block_size:
                room = len(self.buffer)
            count = self._reading.readinto(memoryview(cast(Any, self.buffer))[rest:room])
            if count == 0:
                self._over = True
                if rest:
                    raise TruncatedCapture("cut short: the last packet is not whole", self._base)
                return
            self._end += count
            self._take_scan()
        except DamagedCapture as error:
            self._fail(error)
        except OSError as error:
            self._fail(DamagedCapture(f"reading failed: {error.strerror or error}", self._base + self._end))
        finally:
            self.report.bytes = self._bytes_of_report()
            self.report.drops = self._scanner.dropped
            self.report.link_types = tuple(LINK_NAMES.get(t, f"link type {t}") for t in self._scanner.link_types)

    def _bytes_of_report(self) -> int:
        return self._reading.bytes_read

    def _next_buffer(self, rest: int) -> None:
        """Go on, with the `rest` bytes that are not yet scanned, in the buffer that was used the longest ago; in the
        same one where no packet of it was given, as nobody reads that."""
        following = self._buffers.pop(0) if self._given else self._buffers.pop()
        if rest >= len(following):
            following = np.zeros(2 * len(self.buffer), np.uint8)
        following[:rest] = self.buffer[self._at : self._end]
        self._buffers.append(following)
        self.buffer = following
        self._given = False

    def _take_scan(self) -> None:
        try:
            stop = self._stop - self._base
            self.count, self._at = self._scanner.scan(self.buffer, self._at, self._end, stop)
            self._over = self._at >= stop
        except DamagedCapture as error:
            raise DamagedCapture(error.message, self._base + error.offset) from None
        if self.count:
            self._given = True
            times = self.packets["ts"][: self.count]
            first, last = int(times.min()), int(times.max())
            self.report.packets += self.count
            self.report.first = first if self.report.first is None else min(first, self.report.first)
            self.report.last = last if self.report.last is None else max(last, self.report.last)

    def take_until(self, limit: int | None) -> int:
        """Where the run of packets from `position` on ends that are not later than `limit` (None: all)."""
        if limit is None:
            return self.count
        later = np.flatnonzero(self.packets["ts"][self.position : self.count] > limit)
        return self.position + int(later[0]) if len(later) else self.count

    def head_time(self) -> int:
        return int(self.packets["ts"][self.position])

    def close(self) -> None:
        self._reading.close()


def count_packets(path: str) -> int:
    """How many packets a capture file holds (up to its damage, if any)."""
    reader = CaptureReader(path)
    try:
        while reader.fill():
            reader.position = reader.count
        return reader.report.packets
    finally:
        reader.close()


def ordered(paths: Sequence[str], block_size: int = BLOCK_SIZE) -> Iterator[tuple[CaptureReader, int]]:
    """Yield (reader, end): reader.packets[reader.position:end] come next in time. The caller sets `position` to `end`.

    Every capture is yielded once more with end == position when it is over, so that its report is complete. OSError of
    a file that cannot be opened is the caller's.
    """
    waiting: list[_Waiting] = []
    finished: list[CaptureReader] = []
    for order, path in enumerate(paths):
        keep = is_pipe(path) or len(paths) == 1
        reader = CaptureReader(path, block_size if keep else 65_536)
        if not reader.fill():
            finished.append(reader)
            reader.close()
            continue
        waiting.append((reader.head_time(), order, reader if keep else None, path))
        if not keep:
            reader.close()
    for reader in finished:
        yield reader, reader.position
    waiting.sort(key=lambda w: w[:2])
    merge = _Merge(deque(waiting), block_size)
    try:
        yield from merge.runs()
    finally:  # also where the reading is given up
        merge.close()


#: A capture that has packets: (its first time, order, reader or None, path).
_Waiting = tuple[int, int, CaptureReader | None, str]


class _Merge:
    """`ordered` for captures that have packets, which are `waiting` in order of time. Those that are being read are in
    a heap: (time of the next packet, order, reader)."""

    def __init__(self, waiting: deque[_Waiting], block_size: int) -> None:
        self._waiting = waiting
        self._block_size = block_size
        self._active: list[tuple[int, int, CaptureReader]] = []
        self._uncounted: list[CaptureReader] = []  # of these: `_following` is not yet behind their last packet
        self._following = 1  # the number of the next capture's first packet

    def runs(self) -> Iterator[tuple[CaptureReader, int]]:
        active = self._active
        while self._waiting or active:
            if not active or (self._waiting and self._waiting[0][0] < active[0][0]):
                self._open_next()
                continue
            _, order, reader = active[0]
            others = [other[0] for other in active[1:3]]
            others += [self._waiting[0][0]] if self._waiting else []
            end = reader.take_until(min(others) + SLACK_NS if others else None)
            if end == reader.position:
                end += 1
            yield reader, end
            if reader.fill():
                heapreplace(active, (reader.head_time(), order, reader))
                continue
            self._following = max(self._following, reader.report.first_packet + reader.report.packets)
            self._uncounted = [other for other in self._uncounted if other is not reader]
            yield reader, reader.position
            heappop(active)
            reader.close()

    def _open_next(self) -> None:
        _, order, kept, path = self._waiting.popleft()
        for other in self._uncounted:  # they overlap: how far the numbers of the others go has to be known
            first, path_of_other = other.report.first_packet, other.report.path
            count = PIPE_PACKETS if is_pipe(path_of_other) else count_packets(path_of_other)
            self._following = max(self._following, first + count)
        opened = kept if kept is not None else CaptureReader(path, self._block_size)
        opened.number_from(self._following)
        self._uncounted = [opened]
        if opened.fill():
            heappush(self._active, (opened.head_time(), order, opened))

    def close(self) -> None:
        for reader in (*(a[2] for a in self._active), *(w[2] for w in self._waiting)):
            if reader is not None:
                reader.close()
