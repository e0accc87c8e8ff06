"""`GrowingCapture`: a capture that grows, as `CaptureMerger` takes it: one file until it is replaced, or a pipe."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

from .capture_bytes import CaptureBytes
from .capture_reader import measure_packets
from .growing_file import GrowingFile, GrowingPipe, GrowingReader, GrowingSource
from .merge import EARLIEST
from .merged_captures import PIPE_PACKETS, MergeableCapture

COMPRESSED = r"(?i)\.(gz|zst|bz2|xz|lz4)$"
#: A file without growth for so many seconds is not waited for.
_ALIVE = 1.0


class GrowingCapture(MergeableCapture):
    """`renumber`: that of its `CaptureMerger`. `notify` gets a message for the user if it cannot be opened.

    `size`, `modified`: of the file at the last look. `grown`: when it grew last. `is_idle`: what was there at the last
    look was read. `is_gone`: it was deleted, or another file has its name. `filled`: when its packets were read.
    """

    reader: GrowingReader | None

    def __init__(
        self, path: str, order: int, is_pipe: bool, block_size: int,
        renumber: Callable[[GrowingCapture, int], None], notify: Callable[[str], None],
    ) -> None:  # fmt: skip
        super().__init__(path, order)
        self.is_pipe = is_pipe
        self._block_size, self._renumber, self._notify = block_size, renumber, notify
        self.pipe: GrowingPipe | None = None
        self.file: GrowingFile | None = None  # closed, while it waits or is suspended
        self.size, self.modified = 0, 0
        self.grown = self.filled = 0.0
        self.is_idle = self.is_gone = self.was_suspended = False
        self._measured: tuple[int, int, int | None] | None = None  # size, packets, and the latest time

    @property
    def opened_reader(self) -> GrowingReader:
        assert self.reader is not None, self.path
        return self.reader

    def note_size(self, size: int, modified: int) -> None:
        """The file was found with this size."""
        self.size, self.modified = size, modified
        self.grown = time.monotonic() - max(0.0, time.time() - modified / 1e9)

    def note_growth(self, size: int, modified: int) -> None:
        """The file has another size than before."""
        self.size, self.modified = size, modified
        self.grown = time.monotonic()
        self.is_idle = False

    def is_alive(self, now: float) -> bool:
        """Whether it grew a moment ago."""
        return now - self.grown < _ALIVE

    def first_reader(self, block_size: int) -> GrowingReader | None:
        """A reader that has read the first packets, if there are any; None without a header so far."""
        reader = self.reader or self._new_reader(block_size)
        if reader is not None:
            reader.fill()
        return reader

    def _new_reader(self, block_size: int) -> GrowingReader | None:
        """None without a header so far, or if it cannot be opened."""
        source: GrowingSource
        try:
            if self.is_pipe:
                source = self.pipe = self.pipe or GrowingPipe(self.path)
            elif re.search(COMPRESSED, self.path):
                source = _Complete(self.path)
            else:
                source = self.file = GrowingFile(self.path)
            if source.has_header():
                return GrowingReader(self.path, source, block_size)
        except OSError as error:
            self._notify(f"{self.path}: {(error.strerror or str(error)).lower()}")
            return None
        if self.pipe is None:
            source.close()
        return None

    def open(self) -> bool:
        self.reader = self.reader or self._new_reader(self._block_size)
        return self.reader is not None

    def measure(self) -> tuple[int, int | None]:
        report = self.opened_reader.report
        if self.is_idle or self.is_gone:
            return report.packets, report.last
        if self.pipe is not None:
            return PIPE_PACKETS, None
        size = self.size if self.file is None else self.file.size
        if self._measured is None or self._measured[0] != size:
            self._measured = size, *measure_packets(self.path)
        return self._measured[1:]

    def read(self) -> bool:
        if self.is_idle:
            return False
        reader = self.opened_reader
        if not reader.fill():
            self.is_idle = True
            return False
        self.filled = time.monotonic()
        if self.pipe is not None:
            self.grown = self.filled
        self._renumber(self, reader.next_time() if self.was_suspended else EARLIEST)
        return True


class _Complete(CaptureBytes):
    """The bytes of a compressed file, which does not grow."""

    is_growing = False

    def has_header(self) -> bool:
        return True
