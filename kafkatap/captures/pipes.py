"""Captures that can be read only once: standard input, named pipes, and what a shell puts for `<(command)`."""

from __future__ import annotations

import io
import os
import stat
import sys
from typing import Any, cast

STANDARD_INPUT = "-"


class Interrupted(Exception):  # no error: the end of a pipe, by Ctrl-C
    """Raised by a signal handler while `Pipe.waiting`: the input ends here."""


def is_pipe(path: str) -> bool:
    """Whether what a path names can be read only once, and not be sought in."""
    if path == STANDARD_INPUT:
        return True
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISBLK(mode))


class Pipe(io.RawIOBase):
    """A pipe, opened. Ctrl-C while it waits for more ends it like the end of the input: nothing read is lost."""

    waiting = False

    def __init__(self, path: str) -> None:
        self._head = 24  # the first read gives no less, as long as there is more: formats are told by it
        self._over = False
        self._raw: io.RawIOBase | None = None
        if path == STANDARD_INPUT:
            self._raw = cast(Any, sys.stdin.buffer).raw
            return
        try:
            Pipe.waiting = True  # for somebody who writes into it
            self._raw = open(path, "rb", buffering=0)  # noqa: SIM115 (closed by `close`)
        except Interrupted:
            self._over = True
        finally:
            Pipe.waiting = False

    def readable(self) -> bool:
        return True

    def readinto(self, view: Any) -> int:
        done = 0
        wanted, self._head = max(self._head, 1), 0
        while done < min(wanted, len(view)) and not self._over:
            try:
                Pipe.waiting = True
                count = cast(io.RawIOBase, self._raw).readinto(view[done:]) or 0
                Pipe.waiting = False
            except Interrupted:
                count = 0
            finally:
                Pipe.waiting = False
            self._over = count == 0
            done += count
        return done

    def close(self) -> None:
        """Close it, but for standard input, which is not ours."""
        if self._raw is not None and self._raw is not getattr(getattr(sys.stdin, "buffer", None), "raw", None):
            self._raw.close()
        super().close()
