"""`SharedBlocks`: the bytes of a capture, block by block, in memory that processes share.

    blocks = SharedBlocks(source, readers=4, block_size=8 << 20)    # before the processes are forked
    blocks.feed()                                                   # in the one that reads, in a thread of its own

    mine = blocks.opened(number)                                    # in each of the others: a `ByteSource`
    array, begin, end = mine.take(rest)                             # the next block, behind bytes that are left

A block has room in front, for the bytes of a record that began in the block before. Each process copies them there: all
write the same bytes. A block is written again when all readers have taken the next one. The process that reads also
finds the records of each block, and which reader needs them (`Scanner.share`).
"""

from __future__ import annotations

import pickle
import select
import threading
from contextlib import suppress
from itertools import chain
from socket import socket, socketpair
from typing import Any, cast

import numpy as np

from kafkatap.kernels.arrays import shared_zeros
from kafkatap.kernels.decorator import record_dtype
from kafkatap.reassembly.errors import CaptureError
from kafkatap.reassembly.scanner import HEADER_SIZE, Scanner
from kafkatap.reassembly.shards import SHARED_RECORD, SHARED_STATE

from ..captures.capture_bytes import ByteSource
from ..captures.capture_reader import BLOCK_SIZE

Array = np.ndarray[Any, Any]
#: Blocks in memory. Bytes in front of each: more than a usual packet has.
_BLOCKS, _ROOM = 4, 1 << 20
#: What is known of a block. `length`: its bytes; 0: the capture has ended; _STOPPED: the run has; _FAILED: it cannot be
#: read, and the block has the exception. `bytes_read`, `progress`: as of `ByteSource`, behind it. `records`: that were
#: found in it, and `shared`, as of `Scanner.share`.
_STATE = record_dtype(
    ("length", "i8"), ("bytes_read", "i8"), ("progress", "i8"), ("records", "i8"), ("shared", SHARED_STATE)
)
_FAILED, _STOPPED = -1, -2
#: Seconds between two looks whether the run is stopped.
_LOOK = 0.1
#: The least bytes of a record on average, for which there is room.
_RECORD = 32


class SharedBlocks:
    """`source`: of the capture. `readers`: how many processes will read it. `block_size`: bytes of a block. `pipe`: a
    file descriptor that the source reads, and that may have no bytes for long."""

    def __init__(self, source: ByteSource, readers: int, block_size: int, pipe: int | None = None) -> None:
        self._source, self._size, self._pipe = source, block_size, pipe
        self.compression = source.compression
        self._bytes: Array = _shared(np.uint8, _ROOM + block_size)
        self._records: Array = _shared(SHARED_RECORD, block_size // _RECORD)
        self._states: Array = _shared(_STATE, 1)[:, 0]
        self._finder = _Finder(readers)
        #: Sockets by reader, ours and theirs. Theirs gets a byte for each block that can be read, and ours one for each
        #: that can be written again.
        self._pairs: list[tuple[socket, socket]] = []
        self._thread: threading.Thread | None = None
        self._error: Exception | None = None  # of the capture: the readers raise it
        self._failure: Exception | None = None  # of the thread
        self._is_stopped = False
        try:
            for _ in range(readers):
                self._pairs.append(socketpair())
        except OSError:
            self.close()
            raise

    def feed(self) -> None:
        """Read the capture in a thread, as fast as the readers take its blocks."""
        for _, theirs in self._pairs:
            theirs.close()
        self._thread = threading.Thread(target=self._feed, name="kafkatap-blocks", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the capture behind what was read so far."""
        self._is_stopped = True

    def close(self) -> None:
        """End the thread, after the readers. Raises what it failed with."""
        if self._thread is None:
            for end in chain(*self._pairs):
                end.close()
            return
        self._thread.join(1)  # one that waits for a pipe ends with this process
        if self._failure is not None:
            raise self._failure

    def opened(self, number: int) -> SharedBytes:
        """The blocks for a reader, in its process."""
        mine = self._pairs[number][1]
        for end in chain(*self._pairs):
            if end is not mine:
                end.close()
        return SharedBytes(self._bytes, self._records, self._states, mine, self.compression)

    def _feed(self) -> None:
        try:
            number, size = 0, 1
            while size > 0:
                if number >= _BLOCKS and not all(ours.recv(1) for ours, _ in self._pairs):
                    break  # a reader has ended
                size = self._fill(number % _BLOCKS)
                for ours, _ in self._pairs:
                    ours.sendall(b"+")
                number += 1
        except OSError:  # a reader has ended
            pass
        except Exception as error:
            self._failure = error
        finally:
            for ours, _ in self._pairs:
                ours.close()

    def _fill(self, at: int) -> int:
        """Read a block; return its size, as of `_STATE`."""
        source, view, size = self._source, memoryview(cast(Any, self._bytes[at]))[_ROOM:], 0
        found = _Records(self._finder, self._bytes[at], self._records[at], self._states[at : at + 1]["shared"])
        while size < self._size and self._error is None and self._has_more():
            try:
                count = source.readinto(view[size : size + BLOCK_SIZE])
            except (CaptureError, OSError) as error:
                self._error = error
                break
            if not count:
                break
            size += count
            found.find(_ROOM + size)  # while the bytes are in the cache
        if not size and self._error is not None:
            data = pickle.dumps(self._error)
            view[: len(data)] = data
            size = _FAILED
        elif not size and self._is_stopped:
            size = _STOPPED
        state = self._states[at]
        state["length"], state["bytes_read"], state["progress"] = size, source.bytes_read, source.progress
        state["records"] = found.count
        return size

    def _has_more(self) -> bool:
        """Wait until there are bytes, or the end; False once the run is stopped."""
        while not self._is_stopped:
            if self._pipe is None or select.select([self._pipe], [], [], _LOOK)[0]:
                return True
        return False


class _Finder:
    """Finds the records of blocks, one after the other, until one is damaged: then the readers find them."""

    def __init__(self, readers: int) -> None:
        self.readers = readers
        self.scanner: Scanner | None = None
        self.left: Array = np.zeros(0, np.uint8)  # bytes of the last record so far
        self.is_over = False


class _Records:
    """The records of one block. `count`: how many were found."""

    def __init__(self, finder: _Finder, block: Array, records: Array, shared: Array) -> None:
        self._finder, self._block, self._records, self._shared = finder, block, records, shared
        self._begin = _ROOM - len(finder.left)
        self.count = 0
        self._is_begun = False

    def find(self, end: int) -> None:
        """Find the next ones, up to the byte `end` of the block."""
        finder = self._finder
        if finder.is_over:
            return
        if finder.scanner is None:
            if end - _ROOM < HEADER_SIZE:
                return
            finder.scanner = Scanner()
            with suppress(CaptureError):
                self._begin += finder.scanner.start(self._block[_ROOM : _ROOM + HEADER_SIZE].tobytes())
        scanner = finder.scanner
        if not scanner.format or self._begin < 0:
            finder.is_over = True
            return
        if not self._is_begun:
            self._is_begun = True
            self._block[_ROOM - len(finder.left) : _ROOM] = finder.left
            scanner.begin_sharing(self._begin, self._shared)
        self.count = scanner.share(self._block, end, finder.readers, self._records, self._shared)
        finder.left = self._block[scanner.position : end]
        finder.is_over = scanner.more


def _shared(dtype: Any, length: int) -> Array:
    """Memory that forked processes share: (_BLOCKS, length) items."""
    return shared_zeros(_BLOCKS * length, dtype).reshape(_BLOCKS, length)


class SharedBytes:
    """The bytes of a capture for one reader: a `ByteSource`, whose blocks can be taken without copying them.
    `is_stopped`: they end because the run has ended."""

    def __init__(
        self, blocks: Array, records: Array, states: Array, feeder: socket, compression: str
    ) -> None:  # fmt: skip
        self._blocks, self._records, self._states = blocks, records, states
        self._feeder = feeder
        self.compression = compression
        self.bytes_read = self.progress = 0
        self.is_stopped = self._is_over = False
        self._number = -1  # of the block that is read
        self._used = self._end = 0  # which of its bytes `readinto` has returned, and how many it has

    def readinto(self, view: memoryview) -> int:
        """As of `ByteSource`."""
        if self._used == self._end and not self._next():
            return 0
        some = self._block[_ROOM + self._used : _ROOM + self._end][: len(view)]
        view[: len(some)] = memoryview(cast(Any, some))
        self._used += len(some)
        return len(some)

    def take(self, rest: Array) -> tuple[Array, int, int] | None:
        """The bytes behind `rest`: an array, and where in it `rest` begins and they end. None at the capture's end.

        Raises as `readinto`. The array stays as it is until the next call.
        """
        before = self._number
        if self._used == self._end and not self._next(keep=True):
            return None
        begin, end = _ROOM + self._used - len(rest), _ROOM + self._end
        found = self._block
        if begin < 0:
            found = np.concatenate((rest, found[_ROOM + self._used : end]))
            begin, end = 0, len(found)
        else:
            found[begin : begin + len(rest)] = rest
        if 0 <= before < self._number:
            self._release()
        self._used = self._end
        return found, begin, end

    def shared_from(self, begin: int) -> tuple[Array, Array] | None:
        """What `Scanner.share` found in the block that was taken, if that begins at `begin` of its array."""
        at = self._number % _BLOCKS
        state = self._states[at : at + 1]
        count, shared = int(state["records"][0]), state["shared"]
        return (self._records[at, :count], shared) if count and int(shared["begin"][0]) == begin else None

    @property
    def _block(self) -> Array:
        block: Array = self._blocks[self._number % _BLOCKS]
        return block

    def _next(self, keep: bool = False) -> bool:
        """Wait for the next block; False at the end. `keep`: the block before is still needed."""
        if self._is_over:
            return False
        ready = b""
        with suppress(ConnectionResetError):  # it ended without what `_release` wrote
            ready = self._feeder.recv(1)
        if not ready:
            raise OSError("the process that reads the capture has failed")
        if self._number >= 0 and not keep:
            self._release()
        self._number += 1
        state = self._states[self._number % _BLOCKS]
        size, self.bytes_read, self.progress = (int(state[name]) for name in ("length", "bytes_read", "progress"))
        if size == _FAILED:
            raise pickle.loads(self._block[_ROOM:].tobytes())
        self.is_stopped, self._is_over = size == _STOPPED, size <= 0
        self._used, self._end = 0, max(size, 0)
        return size > 0

    def _release(self) -> None:
        with suppress(OSError):  # all was read
            self._feeder.sendall(b"-")

    def close(self) -> None:
        """As of `ByteSource`."""
        self._feeder.close()
