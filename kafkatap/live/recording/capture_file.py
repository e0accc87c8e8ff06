"""A capture file while it is written: readable by its user only, with whole records at any time."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from kafkatap.reports.batch import Array

from ...output_file import is_device, refuse_link


class CaptureFile:
    """`fresh`: FileExistsError if the file exists; else it is overwritten. No symbolic link is followed, except to
    devices and pipes. OSError if it cannot be created."""

    def __init__(self, path: Path, fresh: bool) -> None:
        self.path = path
        self.size = 0
        how = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | (os.O_EXCL if fresh else os.O_TRUNC)
        is_file = not is_device(str(path))
        if is_file:
            refuse_link(str(path))
        self._file = os.open(path, how | (os.O_NOFOLLOW if is_file else 0), 0o600)

    def write(self, data: bytes | Array) -> None:
        """Append whole records: all of them, or none and OSError."""
        left = memoryview(data).cast("B")  # type: ignore[arg-type]
        try:
            while left:
                left = left[os.write(self._file, left) :]
        except OSError:
            with suppress(OSError):  # a pipe
                os.ftruncate(self._file, self.size)
                os.lseek(self._file, self.size, os.SEEK_SET)
            raise
        self.size += len(data)

    @property
    def gone(self) -> bool:
        """Whether the file was removed: further records would be lost."""
        try:
            return os.fstat(self._file).st_nlink == 0
        except OSError:  # a network file system that is away
            return True

    def rename(self, path: Path) -> None:
        """Give it another name. OSError if that is not possible."""
        os.rename(self.path, path)
        self.path = path

    def remove(self) -> None:
        """Remove the file, if possible."""
        with suppress(OSError):
            self.path.unlink()

    def close(self) -> None:
        os.close(self._file)
