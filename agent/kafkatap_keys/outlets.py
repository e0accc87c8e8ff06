"""Where lines of a key log go: to a file, or to the readers of a socket. Only the caller's user can read them."""

from __future__ import annotations

import errno
import os
import selectors
import socket
import stat
from contextlib import suppress

#: Bytes of the latest lines that are kept for readers of a socket.
_KEPT = 64 << 20
#: Seconds in which a listener has to accept a connection.
_PATIENCE = 1.0


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
            raise ValueError(f"--output {path}: this is no file")
        if status.st_mode & 0o077 or status.st_uid != os.geteuid():
            raise ValueError(f"--output {path}: others than you can read this file; name another one, or chmod 600 it")

    def write(self, lines: bytes) -> None:
        while lines:
            lines = lines[os.write(self._number, lines) :]

    def close(self) -> None:
        os.close(self._number)


class KeySocket(Outlet):
    """A socket whose readers get all lines, the latest _KEPT bytes of them: nothing is on disk. OSError if it cannot be
    made."""

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
        self._dropped = 0  # bytes before `_lines`
        #: Readers, and how many bytes each has, or has missed.
        self._readers: dict[socket.socket, int] = {}

    def begin(self, selector: selectors.BaseSelector) -> None:
        selector.register(self._listener, selectors.EVENT_READ, self._accept)

    def _accept(self) -> None:
        with suppress(BlockingIOError):
            while True:
                reader, _ = self._listener.accept()
                reader.setblocking(False)
                self._readers[reader] = self._dropped
        self.flush()

    def write(self, lines: bytes) -> None:
        self._lines += lines
        if len(self._lines) > 2 * _KEPT:
            self._drop_oldest()
        self.flush()

    def _drop_oldest(self) -> None:
        end = self._lines.index(b"\n", len(self._lines) - _KEPT) + 1
        del self._lines[:end]
        self._dropped += end

    def flush(self) -> None:
        """Send what readers take now."""
        for reader, sent in list(self._readers.items()):
            try:
                while sent < self._dropped + len(self._lines):
                    start = sent - self._dropped
                    if start < 0:  # what it has not read is gone: it goes on with a whole line
                        sent -= start + reader.send(b"\n") - 1
                        continue
                    sent += reader.send(bytes(self._lines[start : start + 65_536]))
            except BlockingIOError:
                pass
            except OSError:
                self._close(reader)
                continue
            self._readers[reader] = sent

    def _close(self, reader: socket.socket) -> None:
        del self._readers[reader]
        reader.close()

    def close(self) -> None:
        self.flush()
        for reader in list(self._readers):
            self._close(reader)
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
        probe.settimeout(_PATIENCE)
        try:
            probe.connect(path)
        except TimeoutError:
            pass
        except ConnectionRefusedError:
            os.unlink(path)
            return
    raise FileExistsError(errno.EEXIST, "another kafkatap writes to this socket", path)
