"""Files and folders in which a capturing program still writes, read as one capture that grows.

`FollowedCaptures.runs` yields packets in time order, as `merge_captures` does, and waits for more. It looks at the
files every POLL seconds. A new file of a folder joins when it has a packet, so the files of a ring come in the order of
their first packets, whatever their names. A file that no longer grows is suspended once a later one has packets.

A file that was truncated, or replaced by another of its name, is a new capture. A file that was deleted is read to its
end if it was open.
"""

from __future__ import annotations

import os
import re
import time
from bisect import insort
from collections.abc import Callable, Iterator, Mapping, Sequence

from .capture_bytes import CaptureBytes
from .capture_points import CapturePoints
from .capture_reader import BLOCK_SIZE, CaptureReader, measure_packets
from .growing_file import GrowingFile, GrowingPipe, GrowingReader, GrowingSource
from .merge import PIPE_PACKETS
from .paths import has_capture_name, is_capture
from .pipes import is_pipe
from .storage import File, find, is_uri

#: Seconds between two looks at the files. With thousands of files, looks take at most a fifth of the time.
POLL = 0.25
_LOOK_SHARE = 5
#: Packets wait so many seconds for earlier ones of other files. A file without growth for _ALIVE is not waited for.
_HOLD, _ALIVE = 0.4, 1.0
#: Seconds without growth after which a file is suspended, if a later one has packets.
_QUIET = 5.0
#: Seconds without growth after which a compressed file is complete.
_COMPLETE = 1.0
#: At the end, what was written is read for so many seconds at most.
LAST_PACKETS = 2.0
_NEVER = 1e9
#: Bytes of a small block, to read the first packet.
_FIRST_BLOCK = 65_536
_COMPRESSED = r"(?i)\.(gz|zst|bz2|xz|lz4)$"

#: Before any time.
_EARLIEST = -(1 << 62)
#: Packets that come next: of a reader, from its `position` to the index; and their capture point.
PacketRun = tuple[CaptureReader, int, int]


class _Capture:
    """A capture: one file until it is replaced or overwritten, or a pipe."""

    def __init__(self, path: str, size: int, modified: int) -> None:
        self.path = path
        self.size, self.modified = size, modified  # at the last look
        self.grown = time.monotonic() - max(0.0, time.time() - modified / 1e9)
        self.first = 0  # time of its first packet
        self.reader: GrowingReader | None = None  # while it is new or waits: only of a pipe
        self.pipe: GrowingPipe | None = None
        self.file: GrowingFile | None = None  # closed, while it waits or is suspended
        self.is_idle = False  # what was there at the last look was read
        self.is_gone = False  # deleted, or another file has its name
        self.was_suspended = False
        self.point = 0
        self.filled = 0.0  # when the packets of its reader were read
        self.numbers_end: int | None = None  # numbers from here on are another capture's

    def is_alive(self, now: float) -> bool:
        """Whether it grew a moment ago."""
        return now - self.grown < _ALIVE

    def note_growth(self, size: int, modified: int) -> None:
        self.size, self.modified = size, modified
        self.grown = time.monotonic()
        self.is_idle = False


class FollowedCaptures:
    """`named`: files, folders and globs that may not exist yet, and pipes. ValueError for what cannot be followed.

    `notify` gets messages for the user, `note` those that only -v prints. `is_caught_up`: everything that was there at
    the last look was read.
    """

    def __init__(
        self,
        named: Sequence[str],
        notify: Callable[[str], None] = lambda text: None,
        note: Callable[[str], None] = lambda text: None,
        block_size: int = BLOCK_SIZE,
    ) -> None:
        check_followed(named)
        self._named = list(named)
        self._notify, self._note = notify, note
        self._block_size = block_size
        self._files: dict[str, _Capture] = {}  # by path: the capture that has the name now
        self._new: list[_Capture] = []  # without a packet so far
        self._waiting: list[_Capture] = []  # with a packet, but none of them was read; sorted by its time
        self._open: list[_Capture] = []
        self._passed_over: dict[str, tuple[int, int]] = {}  # files that are no captures: size and time of change
        self._announced: set[str] = set()  # names that a message was printed for
        self._next_number = 1
        self._points = CapturePoints()
        self._looked, self._period = -_NEVER, POLL
        self.is_caught_up = False
        self._pipes = [name for name in named if is_pipe(name)]
        for name in self._pipes:
            self._add(name, 0, 0)

    def runs(self, is_over: Callable[[], bool]) -> Iterator[PacketRun | None]:
        """Yield (reader, end, point): reader.packets[reader.position:end] come next. The caller sets `position` to
        `end`.

        Yield None after POLL seconds without packets. Once `is_over` returns True, yield the packets that are there,
        for LAST_PACKETS seconds at most.
        """
        try:
            while not is_over():
                yield from self._step(hold=True)
                if self._has_ended():
                    break
                if self.is_caught_up:
                    time.sleep(max(0.0, min(POLL, self._looked + self._period - time.monotonic())))
            yield from self._last_runs()
        finally:
            for capture in (*self._open, *self._waiting, *self._new):
                if capture.reader is not None:
                    capture.reader.close()

    def _last_runs(self) -> Iterator[PacketRun | None]:
        """Yield the packets that are there now. A program that was ended at the same time may write its last ones."""
        if not self._has_ended():
            time.sleep(POLL)
        self._look()
        end = time.monotonic() + LAST_PACKETS
        self._looked = end + _NEVER
        self.is_caught_up = False
        while not self.is_caught_up:
            if time.monotonic() > end:
                return
            yield from self._step(hold=False)
        for capture in self._new:  # without packets
            reader = capture.reader or self._probe(capture, self._block_size)
            if reader is not None:
                reader.report.first_packet = self._next_number
                yield reader, reader.position, 0
                reader.close()

    @property
    def points(self) -> int:
        """How many capture points there are so far."""
        return len(self._points)

    def _has_ended(self) -> bool:
        """Whether nothing more can come: there were only pipes, and all have ended."""
        return self.is_caught_up and not self._open and not self._new and len(self._pipes) == len(self._named)

    def _step(self, hold: bool) -> Iterator[PacketRun | None]:
        """Yield the packets that come next, or None if there are none now."""
        now = time.monotonic()
        if now >= self._looked + self._period:
            self._look()
            self._looked = time.monotonic()
            self._period = max(POLL, _LOOK_SHARE * (self._looked - now))
        self._start_new()
        self._fill()
        yield from self._close()
        found = self._next(hold)
        if found is not None:
            self.is_caught_up = False
            yield found
            return
        self.is_caught_up = not self._waiting and all(capture.is_idle for capture in self._open)
        yield None

    # The state of what is followed.

    def _look(self) -> None:
        """Find new files, and what happened to the others."""
        found: dict[str, File] = {}
        for name in self._named:
            if is_pipe(name):
                continue
            files = _listed(name)
            if not files and name not in self._announced:
                self._announced.add(name)
                self._notify(f"waiting for {name}")
            found.update((file.path, file) for file in files)
        known = {capture.file.identity: capture for capture in self._files.values() if capture.file is not None}
        for path, file in found.items():
            capture = self._files.get(path)
            if capture is None:
                if not self._is_known(file, known, found):
                    self._consider(file)
            elif (file.size, file.modified) != (capture.size, capture.modified):
                self._update(capture, file)
        for path, capture in list(self._files.items()):
            if path not in found and path not in self._pipes:
                del self._files[path]
                self._let_go(capture)
        for name in self._pipes:
            self._files[name].is_idle = False

    def _is_known(
        self, file: File, known: Mapping[tuple[int, int], _Capture], found: Mapping[str, File]
    ) -> bool:  # fmt: skip
        """Whether a new name is that of a known file: it was renamed, or has several names."""
        try:
            status = os.stat(file.path)
        except FileNotFoundError:
            return True
        capture = known.get((status.st_dev, status.st_ino))
        if capture is None or capture.file is None or not capture.file.is_same(file.path):
            return False
        if capture.path not in found:
            self._files[file.path] = self._files.pop(capture.path)
            capture.path = file.path
        return True

    def _consider(self, file: File) -> None:
        """Add a file that was not there before, if it is a capture."""
        state = (file.size, file.modified)
        if self._passed_over.get(file.path) == state or file.size == 0:
            return
        is_named = file.path in self._named
        if re.search(_COMPRESSED, file.path):
            plain = re.sub(_COMPRESSED, "", file.path)
            if is_named or plain in self._announced or not is_capture(file.path):
                self._pass_over(file, state, "it is compressed" if is_named else None)
            elif time.time() - file.modified / 1e9 > _COMPLETE:
                self._add(*file)
            return
        if is_named or has_capture_name(file.path) or is_capture(file.path):
            self._passed_over.pop(file.path, None)
            self._add(*file)
        elif file.size >= 4:
            self._pass_over(file, state, None)

    def _pass_over(self, file: File, state: tuple[int, int], why: str | None) -> None:
        if file.path not in self._passed_over:
            (self._note if why is None else self._notify)(f"{file.path} is passed over: {why or 'it is no capture'}")
        self._passed_over[file.path] = state

    def _add(self, path: str, size: int, modified: int) -> None:
        capture = self._files[path] = _Capture(path, size, modified)
        self._announced.add(path)
        self._new.append(capture)

    def _update(self, capture: _Capture, file: File) -> None:
        """A file changed: it grew, or it is a new capture."""
        if capture.file is None or capture.file.is_same(capture.path):
            reader = capture.reader
            if capture.file is not None and reader is not None and capture not in self._open:  # it was suspended
                capture.file.reopen(capture.path)
                reader.resume()
                capture.was_suspended = True
                self._open.append(capture)
            capture.note_growth(file.size, file.modified)
        else:
            self._let_go(capture)
            self._add(*file)

    def _let_go(self, capture: _Capture) -> None:
        """A file was deleted, replaced or overwritten."""
        capture.is_gone, capture.is_idle = True, False
        for captures in (self._new, self._waiting):
            if capture in captures:
                captures.remove(capture)
                if captures is self._waiting:
                    self._notify(f"{capture.path} was deleted or overwritten before it was read")

    # New captures, until their turn comes.

    def _start_new(self) -> None:
        """Have the new captures wait that have a packet now."""
        for capture in list(self._new):
            if capture.is_idle:
                continue
            capture.is_idle = True
            reader = self._probe(capture, _FIRST_BLOCK)
            if reader is None:
                continue
            if capture.pipe is not None or reader.report.fatal:
                capture.reader = reader
            has_packets = reader.position < reader.count
            if has_packets:
                capture.first, capture.is_idle = reader.next_time(), False
                insort(self._waiting, capture, key=lambda waiting: waiting.first)
            is_over = bool(reader.report.fatal) or not reader.source.is_growing
            if is_over and not has_packets:
                self._open.append(capture)
            if has_packets or is_over:
                self._new.remove(capture)
            if capture.reader is None:
                reader.close()

    def _probe(self, capture: _Capture, block_size: int) -> GrowingReader | None:
        """A reader of a capture that has read its first packets, if there are any; None without a header so far."""
        reader = capture.reader or self._opened(capture, block_size)
        if reader is not None:
            reader.fill()
        return reader

    def _opened(self, capture: _Capture, block_size: int) -> GrowingReader | None:
        """A new reader of a capture; None without a header so far, or if it cannot be opened."""
        source: GrowingSource
        try:
            if capture.path in self._pipes:
                source = capture.pipe = capture.pipe or GrowingPipe(capture.path)
            elif re.search(_COMPRESSED, capture.path):
                source = _Complete(capture.path)
            else:
                source = capture.file = GrowingFile(capture.path)
            if source.has_header():
                return GrowingReader(capture.path, source, block_size)
        except OSError as error:
            self._notify(f"{capture.path}: {(error.strerror or str(error)).lower()}")
            return None
        if capture.pipe is None:
            source.close()
        return None

    # Packets in time order.

    def _fill(self) -> None:
        """Read packets of the open captures that have none."""
        for capture in self._open:
            reader = capture.reader
            assert reader is not None
            if reader.position < reader.count or capture.is_idle:
                continue
            if reader.fill():
                capture.filled = time.monotonic()
                if capture.numbers_end is not None and reader.number >= capture.numbers_end:
                    self._next_number += PIPE_PACKETS
                    reader.number_on_from(self._next_number)
                    capture.numbers_end = None
                    self._move(capture, reader.next_time() if capture.was_suspended else _EARLIEST)
                reader.packets["point"][reader.position : reader.count] = capture.point
                if capture.pipe is not None:
                    capture.grown = capture.filled
            else:
                capture.is_idle = True

    def _move(self, capture: _Capture, first: int) -> None:
        """Find the point of a capture that goes on after a later one was opened. `first`: the time from which on it may
        overlap others."""
        for other in self._open:
            if other is not capture and other.reader is not None:
                self._points.end(other.point, other.reader.report.last)
        capture.point = self._points.begin(capture.path, first)

    def _close(self) -> Iterator[PacketRun]:
        """End the captures that are over, and suspend those that are quiet."""
        now = time.monotonic()
        latest = max((capture.first for capture in self._open), default=0)
        for capture in list(self._open):
            reader = capture.reader
            assert reader is not None
            if not capture.is_idle:
                continue
            if capture.is_gone and reader.source.is_growing and reader.end():
                capture.is_idle = False
                continue
            if reader.source.is_growing:
                if capture.first >= latest or now - capture.grown <= _QUIET:
                    continue
                reader.suspend()
            if capture.file is not None and capture.file.is_overwritten and capture.size > capture.file.bytes_read:
                reader.report.damage = "overwritten before all of it was read"
            self._open.remove(capture)
            if reader.report.last is not None:  # a capture without packets has no point
                self._points.end(capture.point, reader.report.last)
            self._next_number = max(self._next_number, reader.next_number)
            yield reader, reader.position, capture.point
            reader.close()

    def _next(self, hold: bool) -> PacketRun | None:
        """The packets that come next, of one capture."""
        while True:
            ready = [c for c in self._open if c.reader is not None and c.reader.position < c.reader.count]
            ready.sort(key=lambda c: c.reader.next_time())  # type: ignore[union-attr]
            if not self._waiting or (ready and self._waiting[0].first >= ready[0].reader.next_time()):  # type: ignore[union-attr]
                break
            self._open_next()
        if not ready:
            return None
        reader = ready[0].reader
        assert reader is not None
        limits = [c.reader.next_time() for c in ready[1:2] if c.reader is not None]
        limits += [c.first for c in self._waiting[:1]]
        now = time.monotonic()
        if hold and now - ready[0].filled < _HOLD:
            limits += [self._last(c) for c in self._open if c.is_idle and c is not ready[0] and c.is_alive(now)]
        limit = min(limits, default=None)
        end = reader.end_of_run(limit)
        if end == reader.position:
            if limit is not None and limit < reader.next_time():
                return None  # a capture that is alive may bring earlier packets
            end += 1
        return reader, end, ready[0].point

    @staticmethod
    def _last(capture: _Capture) -> int:
        """The time of the last packet of an open capture."""
        assert capture.reader is not None
        last = capture.reader.report.last
        return capture.first if last is None else last

    def _open_next(self) -> None:
        """Open the capture whose turn has come."""
        capture = self._waiting.pop(0)
        reader = capture.reader = capture.reader or self._opened(capture, self._block_size)
        if reader is None:
            return
        for other in self._open:  # their packets come first, so that numbers follow
            if other.reader is None:
                continue
            report = other.reader.report
            count, last = report.packets, report.last
            if not (other.is_idle or other.is_gone):
                count, last = (PIPE_PACKETS, None) if other.pipe is not None else measure_packets(other.path)
            self._points.end(other.point, last)
            self._next_number = max(self._next_number, report.first_packet + count, other.reader.next_number)
        for other in self._open:
            other.numbers_end = self._next_number if other.numbers_end is None else other.numbers_end
        reader.number_from(self._next_number)
        capture.point = self._points.begin(capture.path, capture.first)
        capture.is_idle = not reader.fill()
        reader.packets["point"][reader.position : reader.count] = capture.point
        capture.filled = time.monotonic()
        self._open.append(capture)


def check_followed(named: Sequence[str]) -> None:
    """ValueError for captures that cannot be followed; OSError for files and folders that cannot be read."""
    for name in named:
        if is_uri(name):
            raise ValueError(f"{name} is in a store: --follow reads local files and folders")
        if is_pipe(name) or not os.path.exists(name):
            continue
        if os.path.isdir(name):
            os.scandir(name).close()
        elif re.search(_COMPRESSED, name):
            raise ValueError(f"{name} is compressed and cannot be followed while it grows; leave out --follow")
        else:
            os.close(os.open(name, os.O_RDONLY))


def _listed(name: str) -> list[File]:
    """The files that a path, folder or glob names now."""
    try:
        return find(name)
    except FileNotFoundError:
        return []


class _Complete(CaptureBytes):
    """The bytes of a compressed file, which does not grow."""

    is_growing = False

    def has_header(self) -> bool:
        return True
