"""Where lines of a key log go: a file, or whoever reads a socket. Only their owner can read them."""

from __future__ import annotations

import errno
import os
import selectors
import socket
import stat
from contextlib import suppress

#: Lines that one reader of a socket may be behind, in bytes. Then it is cut off.
_BEHIND = 64 << 20


class Outlet:
    """Takes the lines."""

    def begin(self, selector: selectors.BaseSelector) -> None:
        """Wait for others by this selector. Its keys' data are functions to call."""

    def write(self, lines: bytes) -> None:
        """Take whole lines."""
        raise NotImplementedError

    def flush(self) -> None:
        """Go on with what could not be written at once. Called a few times a second."""

    def close(self) -> None:
        """All lines are there."""


class KeyFile(Outlet):
    """A key log, to which lines are added. OSError if it cannot be opened; ValueError if others could read it."""

    def __init__(self, path: str) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        self._number = os.open(path, flags, 0o600)
        status = os.fstat(self._number)
        if not stat.S_ISREG(status.st_mode):
            raise ValueError(f"--out {path}: this is no file")
        if status.st_mode & 0o077 or status.st_uid != os.geteuid():
            raise ValueError(f"--out {path}: others than you can read this file; name another one, or chmod 600 it")

    def write(self, lines: bytes) -> None:
        while lines:
            lines = lines[os.write(self._number, lines) :]

    def close(self) -> None:
        os.close(self._number)


class KeySocket(Outlet):
    """A socket whose readers get all lines from the first one on: nothing is on disk. OSError if it cannot be made."""

    def __init__(self, path: str) -> None:
        self._path = path
        _remove_dead(path)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        before = os.umask(0o177)
        try:
            self._listener.bind(path)
        finally:
            os.umask(before)
        self._listener.listen()
        self._lines = bytearray()
        #: Readers, and how many bytes each has.
        self._readers: dict[socket.socket, int] = {}

    def begin(self, selector: selectors.BaseSelector) -> None:
        selector.register(self._listener, selectors.EVENT_READ, self._accept)

    def _accept(self) -> None:
        with suppress(BlockingIOError):
            while True:
                reader, _ = self._listener.accept()
                reader.setblocking(False)
                self._readers[reader] = 0
        self.flush()

    def write(self, lines: bytes) -> None:
        self._lines += lines
        self.flush()

    def flush(self) -> None:
        """Send what readers take now."""
        for reader, sent in list(self._readers.items()):
            try:
                while sent < len(self._lines):
                    sent += reader.send(memoryview(self._lines)[sent : sent + 65_536].tobytes())
                self._readers[reader] = sent
            except BlockingIOError:
                self._readers[reader] = sent
                if len(self._lines) - sent > _BEHIND:
                    self._drop(reader)
            except OSError:
                self._drop(reader)

    def _drop(self, reader: socket.socket) -> None:
        del self._readers[reader]
        reader.close()

    def close(self) -> None:
        self.flush()
        for reader in list(self._readers):
            self._drop(reader)
        self._listener.close()
        with suppress(OSError):  # of a folder that is no longer this user's
            os.unlink(self._path)


def _remove_dead(path: str) -> None:
    """Remove a socket to which nobody listens any more. OSError if somebody does, or if it is something else."""
    try:
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            raise FileExistsError(errno.EEXIST, "this exists, and is no socket", path)
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)
            return
    raise FileExistsError(errno.EEXIST, "another kafkatap writes to this socket", path)
