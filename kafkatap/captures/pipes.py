"""Captures that can be read only once: standard input, named pipes, and the shell's `<(command)`."""

from __future__ import annotations

import io
import os
import stat
import sys
import threading
from typing import Any, cast

STANDARD_INPUT = "-"


class Interrupted(Exception):  # not an error: Ctrl-C ends a pipe
    """A signal handler raises it while `Pipe.waiting`, to end the input."""


def is_pipe(path: str) -> bool:
    """Whether a path names something that can be read only once, without seeking."""
    if path == STANDARD_INPUT:
        return True
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISBLK(mode))


class Pipe(io.RawIOBase):
    """An open pipe. Ctrl-C while it waits ends the input there; nothing read before is lost.

    `waiting`: whether a pipe of this process waits now.
    """

    waiting = False

    def __init__(self, path: str) -> None:
        self._least = 24  # bytes that the first read waits for: enough to detect the format
        self._is_over = False
        self._raw: io.RawIOBase | None = None
        if path == STANDARD_INPUT:
            self._raw = cast(Any, sys.stdin.buffer).raw
            return
        try:
            Pipe.waiting = True  # for a writer
            self._raw = open(path, "rb", buffering=0)  # noqa: SIM115 (closed by `close`)
        except Interrupted:
            self._is_over = True
        finally:
            Pipe.waiting = False

    def readable(self) -> bool:
        return True

    def fileno(self) -> int:
        if self._raw is None:
            raise OSError("the pipe was not opened")
        return self._raw.fileno()

    def readinto(self, view: Any) -> int:
        done = 0
        least, self._least = max(self._least, 1), 0
        while done < min(least, len(view)) and not self._is_over:
            try:
                # Signal handlers run in the main thread: they cannot end the wait of another one.
                Pipe.waiting = threading.current_thread() is threading.main_thread()
                count = cast(io.RawIOBase, self._raw).readinto(view[done:]) or 0
                Pipe.waiting = False
            except Interrupted:
                count = 0
            finally:
                Pipe.waiting = False
            self._is_over = count == 0
            done += count
        return done

    def close(self) -> None:
        """Close the pipe. Standard input stays open: it is not ours."""
        if self._raw is not None and self._raw is not getattr(getattr(sys.stdin, "buffer", None), "raw", None):
            self._raw.close()
        super().close()
