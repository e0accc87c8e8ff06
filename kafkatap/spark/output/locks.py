"""Locks of output folders: one run at a time writes to a folder.

The kernel locks a local folder and releases it when the process ends. Elsewhere the file `_lock` names the run. It is
written again every minute and expires after ten minutes, so a run that was killed blocks its folder for that long. If
two runs start at the same moment, `check` refuses one of them before it publishes.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from .folders import Folder

LOCK = "_lock"
RENEWED_S = 60
STALE_S = 600


class InUse(OSError):
    """Another run is writing to the folder."""


@contextmanager
def locked(folder: Folder, run: str) -> Iterator[Callable[[], None]]:
    """Lock the folder for a run; yield a function that raises InUse if the lock is lost.

    InUse if another run has it.
    """
    if folder.local is not None:
        with _local(os.path.join(folder.local, LOCK), folder.path, run):
            yield lambda: None
        return
    lease = _Lease(folder, run)
    try:
        yield lease.check
    finally:
        lease.end()


def _who(run: str) -> bytes:
    return json.dumps({"run": run, "host": socket.gethostname(), "process": os.getpid()}).encode()


def _refused(path: str, holder: bytes, advice: str = "") -> InUse:
    try:
        run = json.loads(holder)
        who = f"run {run['run']}, process {run['process']} on {run['host']}"
    except (ValueError, KeyError, TypeError):
        who = "another run"
    return InUse(f"{path} is being written by {who}{advice}")


@contextmanager
def _local(file: str, path: str, run: str) -> Iterator[None]:
    held = os.open(file, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise _refused(path, os.pread(held, 4096, 0)) from None
        os.ftruncate(held, 0)
        os.pwrite(held, _who(run), 0)
        yield
    finally:
        os.close(held)


class _Lease:
    def __init__(self, folder: Folder, run: str) -> None:
        self._folder, self._who, self._over = folder, _who(run), threading.Event()
        self._at_it = threading.Lock()  # the file may be missing while it is written again
        holder = folder.read(LOCK)
        if holder is not None and holder != self._who:
            written = folder.system.get_file_info([folder.at(LOCK)])[0].mtime_ns or 0
            age = time.time() - written / 1e9
            if age < STALE_S:
                ends = f"; if that run was killed, wait {max(1, int(STALE_S - age))} s, or delete {LOCK} there"
                raise _refused(folder.path, holder, ends)
        folder.write(LOCK, self._who)
        self.check()
        self._thread = threading.Thread(target=self._renew, name="kafkatap-lease", daemon=True)
        self._thread.start()

    def check(self) -> None:
        with self._at_it:
            holder = self._folder.read(LOCK)
        if holder != self._who:
            raise _refused(self._folder.path, holder or b"")

    def _renew(self) -> None:
        while not self._over.wait(RENEWED_S):
            try:
                self.check()
                with self._at_it:
                    self._folder.write(LOCK, self._who)
            except InUse:
                return
            except OSError:
                continue  # the next attempt may succeed

    def end(self) -> None:
        self._over.set()
        self._thread.join()
        with suppress(OSError):  # a lock that stays expires
            self.check()
            self._folder.delete(LOCK)
