"""Where key logs are read from: files that may grow, sockets, and bytes in memory.

Of a file, only its index is kept; its lines are read again when they are needed. Compressed files, those of other
stores and decryption secrets blocks are kept in memory, up to a bound.
"""

from __future__ import annotations

import os
import socket
import stat
import time
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice
from operator import itemgetter
from typing import Protocol
from weakref import finalize

from kafkatap.captures.capture_bytes import CaptureBytes
from kafkatap.captures.storage import is_uri
from kafkatap.reassembly.errors import CaptureError

#: How a file begins that is read anew if it begins otherwise.
_HEAD = 256
#: Longer lines are skipped.
_LONGEST_LINE = 64 << 10
#: Bytes that are taken from a socket at once, and how often. Seconds until the next attempt to connect.
_BLOCK, _AT_ONCE, _AGAIN = 1 << 20, 4, 1.0
_COMPRESSED = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd")


class LineSource(Protocol):
    """Lines are read at their offset."""

    def read(self, offset: int, count: int) -> bytes: ...


class HeldLines:
    """Bytes in memory. The oldest ones are dropped beyond `most`."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._blocks: deque[tuple[int, bytearray]] = deque()
        self._held = 0
        self.size = 0

    def append(self, block: bytes) -> None:
        """Add whole lines."""
        if self._blocks and len(self._blocks[-1][1]) + len(block) <= min(_BLOCK, self._most >> 4):
            self._blocks[-1][1].extend(block)  # few blocks, however small the additions are
        else:
            self._blocks.append((self.size, bytearray(block)))
        self.size += len(block)
        self._held += len(block)
        while self._held > self._most and len(self._blocks) > 1:
            self._held -= len(self._blocks.popleft()[1])

    def __iter__(self) -> Iterator[tuple[int, bytearray]]:
        """The blocks that are left, and their offsets."""
        return iter(self._blocks)

    def read(self, offset: int, count: int) -> bytes:
        """Bytes from an offset on; nothing if they were dropped."""
        first = bisect_right(self._blocks, offset, key=itemgetter(0)) - 1
        if first < 0:
            return b""
        found = []
        for start, block in islice(self._blocks, first, None):
            if start >= offset + count:
                break
            found.append(block[max(0, offset - start) : offset - start + count])
        return b"".join(found)


class LineBlocks:
    """Cuts what a file has into blocks of whole lines. Lines that are too long are skipped and counted."""

    __slots__ = ("_is_skipping", "left", "long_lines")

    def __init__(self) -> None:
        self._is_skipping = False
        self.long_lines = 0
        #: Bytes at the start of the buffer that are no whole line, after the last block.
        self.left = 0

    def read(self, readinto: Callable[[memoryview], int], buffer: bytearray) -> Iterator[tuple[int, int, int]]:
        """Read all. Yields where whole lines are in the buffer, and how many bytes this block is about."""
        self.left = 0
        with memoryview(buffer) as view:
            while count := readinto(view[self.left :]):
                filled = self.left + count
                end = buffer.rfind(b"\n", 0, filled) + 1
                start = 0
                if self._is_skipping:
                    start = buffer.find(b"\n", 0, filled) + 1
                    self._is_skipping = not start
                self.left = filled - end
                if self._is_skipping or self.left > _LONGEST_LINE:
                    self.long_lines += not self._is_skipping
                    self._is_skipping = True
                    self.left = 0
                yield start, end, filled - self.left
                view[: self.left] = bytes(view[filled - self.left : filled])


class GrowingLines:
    """A plain file of this machine. It stays open, so that its lines can be read even if its name is another file's."""

    def __init__(self, path: str) -> None:
        self._number = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._closed = finalize(self, os.close, self._number)
        status = os.fstat(self._number)
        self.identity = status.st_dev, status.st_ino
        self.blocks = LineBlocks()
        #: Whole lines were read up to here, and anything up to `read_end`.
        self.lines_end = self.read_end = 0
        self._head = b""

    def read(self, offset: int, count: int) -> bytes:
        with suppress(OSError):
            if self._closed.alive:
                return os.pread(self._number, count, offset)
        return b""

    def read_blocks(self, buffer: bytearray) -> Iterator[tuple[int, int, int]]:
        """Blocks of the whole lines that are new (`LineBlocks.read`)."""
        self.read_end = self.lines_end
        yield from self.blocks.read(self._readinto, buffer)

    def _readinto(self, view: memoryview) -> int:
        try:
            count = os.preadv(self._number, [view], self.read_end)
        except OSError:
            return 0
        if self.read_end < _HEAD:
            self._head = self._head[: self.read_end] + bytes(view[: min(count, _HEAD - self.read_end)])
        self.read_end += count
        return count

    def is_rewritten(self) -> bool:
        """Whether what was read is no longer there: the file was truncated, and perhaps written anew."""
        try:
            size, head = os.fstat(self._number).st_size, os.pread(self._number, len(self._head), 0)
            return size < self.read_end or head != self._head
        except OSError:
            return True

    def close(self) -> None:
        self._closed()


def is_plain(path: str) -> bool:
    """Whether lines of a file can be read where they are: it is on this machine, and not compressed."""
    if is_uri(path):
        return False
    with open(path, "rb") as file:
        return not file.read(4).startswith(_COMPRESSED)


def is_socket(path: str) -> bool:
    """Whether this is the name of a socket."""
    try:
        return stat.S_ISSOCK(os.stat(path).st_mode)
    except OSError:
        return False


class LineSocket:
    """The lines that a socket sends, from its first one on (`kafkatap keys --socket`). When its sender has ended, a
    later socket of this name is read. PermissionError if it may not be read."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._channel: socket.socket | None = None
        self._rest = b""
        self._next = 0.0  # when to connect again
        self._connect()

    @property
    def is_connected(self) -> bool:
        """Whether somebody sends."""
        return self._channel is not None

    def _connect(self) -> None:
        self._next = time.monotonic() + _AGAIN
        channel = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        channel.setblocking(False)
        try:
            channel.connect(self._path)
        except PermissionError:
            channel.close()
            raise
        except OSError:
            channel.close()
        else:
            self._channel, self._rest = channel, b""

    def read(self) -> bytes:
        """The whole lines that are new: some MiB at most, so that no sender keeps this busy."""
        if self._channel is None:
            if time.monotonic() >= self._next:
                with suppress(PermissionError):
                    self._connect()
            if self._channel is None:
                return b""
        found = bytearray(self._rest)
        try:
            for _ in range(_AT_ONCE):
                part = self._channel.recv(_BLOCK)
                if not part:
                    self.close()
                    break
                found += part
        except BlockingIOError:
            pass
        except OSError:
            self.close()
        end = found.rfind(b"\n") + 1
        self._rest = bytes(found[end:][-_LONGEST_LINE:])  # of a line that is too long, its end is one that is none
        return bytes(found[:end])

    def close(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None


class WholeFile:
    """The bytes of a file that is read once, decompressed."""

    def __init__(self, path: str) -> None:
        self._source = CaptureBytes(path)
        self.is_damaged = False

    def readinto(self, view: memoryview) -> int:
        try:
            return self._source.readinto(view)
        except (CaptureError, OSError):
            self.is_damaged = True
            return 0

    def close(self) -> None:
        self._source.close()
