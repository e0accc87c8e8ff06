"""A capture file that is being written: open to its user alone, and whole records at any time."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from kafkatap.reports.batch import Array


class CaptureFile:
    """`fresh`: FileExistsError where there is one already, else that is overwritten. OSError where it cannot be."""

    def __init__(self, path: Path, fresh: bool) -> None:
        self.path = path
        self.size = 0
        how = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | (os.O_EXCL if fresh else os.O_TRUNC)
        self._file = os.open(path, how, 0o600)

    def write(self, data: bytes | Array) -> None:
        """Append whole records. Where not all can be written (OSError), none are there afterwards."""
        left = memoryview(data).cast("B")  # type: ignore[arg-type]
        try:
            while left:
                left = left[os.write(self._file, left) :]
        except OSError:
            os.ftruncate(self._file, self.size)
            os.lseek(self._file, self.size, os.SEEK_SET)
            raise
        self.size += len(data)

    @property
    def gone(self) -> bool:
        """Whether it has no name any more: what is written would be lost, but take its space."""
        try:
            return os.fstat(self._file).st_nlink == 0
        except OSError:  # of a network that is away
            return True

    def remove(self) -> None:
        """Take its name away, if that can be done."""
        with suppress(OSError):
            self.path.unlink()

    def close(self) -> None:
        os.close(self._file)
