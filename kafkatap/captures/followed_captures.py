"""Files and folders in which a capturing program still writes, read as one capture that grows.

`FollowedCaptures.packets` yields packets in time order, as `merge_captures` does, and waits for more. It looks at the
files every POLL seconds. A new file of a folder joins when it has a packet, so the files of a ring come in the order of
their first packets, whatever their names. A file that no longer grows is suspended once a later one has packets.

A file that was truncated, or replaced by another of its name, is a new capture. A file that was deleted is read to its
end if it was open.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count

from .capture_reader import BLOCK_SIZE
from .growing_capture import COMPRESSED, GrowingCapture
from .merge import nobody
from .merged_captures import FIRST_BLOCK, CaptureMerger, MergedPackets
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
        self._files: dict[str, GrowingCapture] = {}  # by path: the capture that has the name now
        self._orders = count()
        self._new: list[GrowingCapture] = []  # without a packet so far
        self._merger = CaptureMerger[GrowingCapture]()  # of those with packets
        self._passed_over: dict[str, tuple[int, int]] = {}  # files that are no captures: size and time of change
        self._announced: set[str] = set()  # names that a message was printed for
        self._looked, self._period = -_NEVER, POLL
        self.is_caught_up = False
        self._pipes = [name for name in named if is_pipe(name)]
        for name in self._pipes:
            self._add(name, 0, 0)

    def packets(self, is_over: Callable[[], bool]) -> Iterator[MergedPackets | None]:
        """Yield the packets that come next, and None after POLL seconds without packets.

        Once `is_over` returns True, yield the packets that are there, for LAST_PACKETS seconds at most.
        """
        merger = self._merger
        try:
            while not is_over():
                yield from self._step(hold=True)
                if self._has_ended():
                    break
                if self.is_caught_up:
                    time.sleep(max(0.0, min(POLL, self._looked + self._period - time.monotonic())))
            yield from self._last_packets()
        finally:
            for capture in (*merger.opened, *merger.take_waiting(), *self._new):
                if capture.reader is not None:
                    capture.reader.close()

    def _last_packets(self) -> Iterator[MergedPackets | None]:
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
            reader = capture.first_reader(self._block_size)
            if reader is not None:
                yield self._merger.without_packets(reader)
                reader.close()

    def _has_ended(self) -> bool:
        """Whether nothing more can come: there were only pipes, and all have ended."""
        is_empty = not self._merger.opened and not self._new
        return self.is_caught_up and is_empty and len(self._pipes) == len(self._named)

    def _step(self, hold: bool) -> Iterator[MergedPackets | None]:
        """Yield the packets that come next, or None if there are none now."""
        now = time.monotonic()
        if now >= self._looked + self._period:
            self._look()
            self._looked = time.monotonic()
            self._period = max(POLL, _LOOK_SHARE * (self._looked - now))
        yield from self._start_new()
        yield from self._close()
        merger = self._merger
        found = merger.next_packets(self._awaited if hold else nobody)
        has_all = not merger.is_waiting and all(capture.is_idle for capture in merger.opened)
        self.is_caught_up = found is None and has_all
        if found is None and not has_all:  # packets wait for earlier ones
            time.sleep(_HOLD / 10)
        yield found

    def _awaited(self, ready: list[GrowingCapture]) -> list[GrowingCapture]:
        """The captures without packets now that may bring earlier ones than those of `ready`."""
        now = time.monotonic()
        first = min(ready, key=lambda capture: capture.pending.first)
        if now - first.filled >= _HOLD:
            return []
        return [capture for capture in self._merger.opened if capture.is_idle and capture.is_alive(now)]

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
        self, file: File, known: Mapping[tuple[int, int], GrowingCapture], found: Mapping[str, File]
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
        if re.search(COMPRESSED, file.path):
            plain = re.sub(COMPRESSED, "", file.path)
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
        renumber, is_pipe_name = self._merger.renumber, path in self._pipes
        capture = GrowingCapture(path, next(self._orders), is_pipe_name, self._block_size, renumber, self._notify)
        capture.note_size(size, modified)
        self._files[path] = capture
        self._announced.add(path)
        self._new.append(capture)

    def _update(self, capture: GrowingCapture, file: File) -> None:
        """A file changed: it grew, or it is a new capture."""
        if capture.file is None or capture.file.is_same(capture.path):
            reader = capture.reader
            if capture.file is not None and reader is not None and capture not in self._merger.opened:
                capture.file.reopen(capture.path)  # it was suspended
                reader.resume()
                capture.was_suspended = True
                self._merger.reopen(capture)
            capture.note_growth(file.size, file.modified)
        else:
            self._let_go(capture)
            self._add(*file)

    def _let_go(self, capture: GrowingCapture) -> None:
        """A file was deleted, replaced or overwritten."""
        capture.is_gone, capture.is_idle = True, False
        if capture in self._new:
            self._new.remove(capture)
        if self._merger.withdraw(capture):
            self._notify(f"{capture.path} was deleted or overwritten before it was read")

    # New captures, until their turn comes, and those that are over.

    def _start_new(self) -> Iterator[MergedPackets]:
        """Have the new captures wait that have a packet now. End those that are over without one."""
        for capture in list(self._new):
            if capture.is_idle:
                continue
            capture.is_idle = True
            reader = capture.first_reader(FIRST_BLOCK)
            if reader is None:
                continue
            if capture.is_pipe or reader.report.fatal:
                capture.reader = reader
            has_packets = reader.position < reader.count
            if has_packets:
                capture.first, capture.is_idle = reader.next_time(), False
                self._merger.add(capture)
            is_over = bool(reader.report.fatal) or not reader.source.is_growing
            if is_over and not has_packets:
                yield self._merger.without_packets(reader)
            if has_packets or is_over:
                self._new.remove(capture)
            if capture.reader is None or (is_over and not has_packets):
                reader.close()

    def _close(self) -> Iterator[MergedPackets]:
        """End the captures that are over, and suspend those that are quiet."""
        now = time.monotonic()
        opened = self._merger.opened
        latest = max((capture.first for capture in opened), default=0)
        for capture in [capture for capture in opened if not capture.fill()]:
            reader = capture.opened_reader
            if capture.is_gone and reader.source.is_growing and reader.end():
                capture.is_idle = False
                continue
            if reader.source.is_growing:
                if capture.first >= latest or now - capture.grown <= _QUIET:
                    continue
                reader.suspend()
            if capture.file is not None and capture.file.is_overwritten and capture.size > capture.file.bytes_read:
                reader.report.damage = "overwritten before all of it was read"
            yield self._merger.close(capture)


def check_followed(named: Sequence[str]) -> None:
    """ValueError for captures that cannot be followed; OSError for files and folders that cannot be read."""
    for name in named:
        if is_uri(name):
            raise ValueError(f"{name} is in a store: --follow reads local files and folders")
        if is_pipe(name) or not os.path.exists(name):
            continue
        if os.path.isdir(name):
            os.scandir(name).close()
        elif re.search(COMPRESSED, name):
            raise ValueError(f"{name} is compressed and cannot be followed while it grows; leave out --follow")
        else:
            os.close(os.open(name, os.O_RDONLY))


def _listed(name: str) -> list[File]:
    """The files that a path, folder or glob names now."""
    try:
        return find(name)
    except FileNotFoundError:
        return []
