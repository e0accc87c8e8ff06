"""Captures that are still being written: the bytes that are there, and the packets in them.

The source of a `GrowingReader` returns no bytes where none are there yet, and the reader then has no packet for now.
After `end`, the capture has only what was written before.
"""

from __future__ import annotations

import os
import select
import stat
import sys
from typing import Protocol

import numpy as np

from kafkatap.kernels.arrays import untouched
from kafkatap.reassembly.dtypes import PACKET
from kafkatap.reassembly.errors import TruncatedCapture
from kafkatap.reassembly.scanner import HEADER_SIZE

from .capture_bytes import ByteSource
from .capture_reader import BLOCK_SIZE, CaptureReader
from .pipes import STANDARD_INPUT
from .readahead import AHEAD

#: The first bytes of a file. A file that is written anew begins with another packet, so they differ.
_HEAD = 4096
#: Packets of a block.
_PACKETS = 65_536
_NO_PACKETS, _NO_BYTES = np.zeros(0, PACKET), np.zeros(0, np.uint8)


class GrowingSource(ByteSource, Protocol):
    """A source whose `readinto` returns 0 also where no bytes are there yet: while `is_growing`."""

    is_growing: bool

    def has_header(self) -> bool:
        """Whether the bytes are there that show the format; True if no more come."""


class GrowingFile:
    """The bytes of a file that another program appends to.

    `is_overwritten`: the file was truncated and is written anew. The bytes that were not read are lost.
    """

    compression = ""

    def __init__(self, path: str) -> None:
        self.bytes_read = 0
        self.is_growing = True
        self.is_overwritten = False
        self._file = open(path, "rb", buffering=0)  # noqa: SIM115 (closed by `close`)
        status = os.fstat(self._file.fileno())
        self.identity = (status.st_dev, status.st_ino)
        self._head = b""

    @property
    def progress(self) -> int:
        return self.bytes_read

    @property
    def size(self) -> int:
        """The bytes of the file that was opened, even if another file has its name now."""
        return os.fstat(self._file.fileno()).st_size

    def has_header(self) -> bool:
        return not self.is_growing or self.size >= HEADER_SIZE

    def readinto(self, view: memoryview) -> int:
        if self.is_overwritten:
            return 0
        count = self._file.readinto(view) or 0
        if count and self.check():  # afterwards: bytes of a new file may be among them
            return 0
        if len(self._head) < _HEAD:
            self._head += bytes(view[: min(count, _HEAD - len(self._head))])
        self.bytes_read += count
        return count

    def check(self) -> bool:
        """Find out whether the file was overwritten: `is_overwritten`."""
        if not self.is_overwritten:
            head = os.pread(self._file.fileno(), len(self._head), 0)
            self.is_overwritten = head != self._head or self.size < self.bytes_read
        return self.is_overwritten

    def is_same(self, path: str) -> bool:
        """Whether a path names this file, and it was not overwritten."""
        try:
            with open(path, "rb", buffering=0) as file:
                status = os.fstat(file.fileno())
                if (status.st_dev, status.st_ino) != self.identity:
                    return False
                same = file.read(len(self._head)) == self._head and status.st_size >= self.bytes_read
        except OSError:
            return False
        self.is_overwritten |= not same
        return same

    def reopen(self, path: str) -> None:
        """Open the file again after `close`, to continue."""
        self._file = open(path, "rb", buffering=0)  # noqa: SIM115 (closed by `close`)
        self._file.seek(self.bytes_read)

    def close(self) -> None:
        self._file.close()


class GrowingPipe:
    """The bytes that the writer of a pipe has written so far. A named pipe may have no writer yet."""

    compression = ""

    def __init__(self, path: str) -> None:
        self.bytes_read = 0
        self.is_growing = True
        self._is_standard_input = path == STANDARD_INPUT
        self._waits_for_writer = False
        if self._is_standard_input:
            self._number = sys.stdin.fileno()
        else:
            self._number = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
            self._waits_for_writer = stat.S_ISFIFO(os.fstat(self._number).st_mode)
        self._head = b""  # read before a reader was there

    @property
    def progress(self) -> int:
        return self.bytes_read

    def has_header(self) -> bool:
        while self.is_growing and len(self._head) < HEADER_SIZE:
            more = self._read(HEADER_SIZE - len(self._head))
            if not more:
                break
            self._head += more
        return not self.is_growing or len(self._head) >= HEADER_SIZE

    def readinto(self, view: memoryview) -> int:
        found, self._head = self._head[: len(view)], self._head[len(view) :]
        if not found:
            found = self._read(len(view))
        view[: len(found)] = found
        self.bytes_read += len(found)
        return len(found)

    def _read(self, size: int) -> bytes:
        if not self.is_growing or not select.select([self._number], [], [], 0)[0]:
            return b""
        try:
            found = os.read(self._number, size)
        except BlockingIOError:
            return b""
        if found:
            self._waits_for_writer = False
        else:
            self.is_growing = self._waits_for_writer
        return found

    def close(self) -> None:
        if not self._is_standard_input:
            os.close(self._number)


class GrowingReader(CaptureReader):
    """Reads a capture that grows. `fill` returns False where no packet is there now."""

    def __init__(self, path: str, source: GrowingSource, block_size: int = BLOCK_SIZE) -> None:
        self.source = source
        self._rest = _NO_BYTES
        super().__init__(path, block_size, source)

    def fill(self) -> bool:
        while self.position == self.count and not self._over:
            before = self.source.bytes_read
            self._scan_more()
            if not self.count and self.source.bytes_read == before:
                break
        return self.position < self.count

    def _read_more(self) -> bool:
        try:
            found = super()._read_more()
        except TruncatedCapture:
            if not self.source.is_growing:
                raise
            found = False
        self._over &= not self.source.is_growing
        return found

    def end(self) -> bool:
        """No more bytes come. Return whether packets are left; an incomplete record at the end is damage."""
        self.source.is_growing = False
        return self.fill()

    def suspend(self) -> None:
        """Free the memory, once all packets were read. An incomplete record at the end counts as damage for now."""
        self._rest = self.buffer[self._at : self._end].copy()
        self._base += self._at
        self._at = self._end = 0
        self._buffers, self.buffer = [], self._rest
        self._scanner.packets = _NO_PACKETS
        if len(self._rest):
            self._fail(TruncatedCapture("cut short: the last packet is not whole", self._base))

    def resume(self) -> None:
        """Continue after `suspend`."""
        size = max(self._block_size + 65_536, 2 * len(self._rest))
        self._buffers = [untouched(size, np.uint8) for _ in range(AHEAD)]
        self.buffer = self._buffers[-1]
        self.buffer[: len(self._rest)] = self._rest
        self._end = len(self._rest)
        self._scanner.packets = untouched(_PACKETS, PACKET)
        self._is_used = self._over = False
        self.report.damage = None
