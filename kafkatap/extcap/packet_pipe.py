"""The pipe to Wireshark: opened when its reader is there, and looked at for a reader that left."""

from __future__ import annotations

import errno
import os
import select
import stat
import time
from collections.abc import Callable

#: Errors of a pipe whose reader left.
_LEFT = (errno.EPIPE, errno.ECONNRESET)


class PacketPipe:
    """A named pipe, or a file, which is created with mode 0600 if there is none. Opening waits until the pipe has a
    reader or `stop` returns True: then the reader left. OSError if the path cannot be opened."""

    def __init__(self, path: str, stop: Callable[[], bool]) -> None:
        self._file = -1
        self.is_left = False
        self._is_pipe = os.path.exists(path) and stat.S_ISFIFO(os.stat(path).st_mode)
        while self._file < 0 and not self.is_left:
            try:
                kind = os.O_NONBLOCK if self._is_pipe else os.O_CREAT | os.O_TRUNC
                self._file = os.open(path, os.O_WRONLY | os.O_CLOEXEC | kind, 0o600)
            except OSError as error:
                if error.errno != errno.ENXIO:
                    raise
                self.is_left = stop()
                time.sleep(0.02)
        if self._file >= 0:
            os.set_blocking(self._file, True)

    def write(self, data: bytes) -> None:
        """Write all bytes, however long the reader takes. Once the reader left, nothing is written."""
        left = memoryview(data)
        try:
            while left and not self.is_left:
                left = left[os.write(self._file, left) :]
        except OSError as error:
            if error.errno not in _LEFT:
                raise
            self.is_left = True

    def has_reader(self) -> bool:
        """Whether somebody still reads: false as soon as Wireshark closes its end, also if nothing is written."""
        if not self.is_left and self._is_pipe:
            poll = select.poll()
            poll.register(self._file, 0)
            self.is_left = any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))
        return not self.is_left

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
