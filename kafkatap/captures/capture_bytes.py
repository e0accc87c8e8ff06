"""The bytes of one capture: a file or a pipe, decompressed on the way.

The first bytes of a file say whether it is plain, gzip or zstd.
"""

from __future__ import annotations

import io
import os
from typing import Any, BinaryIO, Protocol, cast

from kafkatap.reassembly.errors import CaptureError, NotACapture

from .decompression import Decompressor, open_decompressor
from .pipes import Pipe, is_pipe
from .storage import InputFile, open_input


class ByteSource(Protocol):
    """Where a `CaptureReader` reads from: the decompressed bytes of a capture, from some place on."""

    bytes_read: int

    @property
    def compression(self) -> str: ...
    @property
    def progress(self) -> int: ...
    def readinto(self, view: memoryview) -> int: ...
    def close(self) -> None: ...


class UnreadableBytes:
    """In place of the bytes of a capture that cannot be opened."""

    bytes_read = progress = 0
    compression = ""

    def __init__(self, error: OSError) -> None:
        self._reason = (error.strerror or str(error)).lower()

    def readinto(self, view: memoryview) -> int:
        raise NotACapture(f"cannot be opened: {self._reason}", 0)

    def close(self) -> None:
        pass


class CaptureBytes:
    """The decompressed bytes of one file or pipe. `file`: it is open already. `bytes_read` counts those read so far."""

    def __init__(self, path: str, file: InputFile | None = None) -> None:
        self.compression = ""
        self.bytes_read = 0
        if file is None:
            file = cast(Any, Pipe(path)) if is_pipe(path) else open_input(path)
        raw = cast(io.RawIOBase, file)
        self._file: io.BufferedReader = io.BufferedReader(raw, 65_536)
        self._size: int | None = None
        if self._file.seekable():
            self._size = self._file.seek(0, os.SEEK_END)
            self._file.seek(0)
        self._compressed: BinaryIO | None = None
        self._progress = 0
        self._source: Any = self._file
        self._refused: CaptureError | None = None
        decompressor: Decompressor | None = None
        try:
            self.compression, decompressor = open_decompressor(self._file)
        except CaptureError as error:
            self._refused = error
        if decompressor is not None:
            self._source = decompressor
            self._compressed = self._file
        elif self._file.seekable():
            self._source = self._file.raw
            self._source.seek(0)

    def readinto(self, view: memoryview) -> int:
        """Read up to len(view) bytes; 0 at the end. CaptureError where decompression fails or is not supported."""
        if self._refused is not None:
            raise self._refused
        count: int = self._source.readinto(view) or 0
        self.bytes_read += count
        return count

    @property
    def progress(self) -> int:
        """Bytes of the file as it is stored that were read, for a progress bar."""
        if self._compressed is not None and self._size and not self._compressed.closed:
            self._progress = self._compressed.tell()
        return self._progress if self._compressed is not None else self.bytes_read

    def fileno(self) -> int:
        """The file descriptor of the file or pipe. OSError if it has none."""
        return self._file.fileno()

    def close(self) -> None:
        self._file.close()
