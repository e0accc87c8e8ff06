"""How much processor time the scheduler gives a thread against others: its niceness, and a better one in need.

Who is not root may make itself nicer, and never less so. `allow_return` lets a process come back to what it is now: to
be called while it still may, before it becomes nicer or gives up its capabilities.
"""

from __future__ import annotations

import os
import sys
import threading
from contextlib import suppress


def allow_return() -> None:
    """Let this process have its present niceness again later, where it may decide that."""
    if sys.platform != "linux":
        return
    import resource

    wanted = 20 - os.getpriority(os.PRIO_PROCESS, 0)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NICE, (wanted, max(wanted, resource.getrlimit(resource.RLIMIT_NICE)[1])))


class Priority:
    """The niceness of the thread that calls: `usual`, or `best` (a lower number) in need."""

    def __init__(self, best: int = 0) -> None:
        self._best = best
        self._usual: int | None = None  # what to return to, while it is raised

    @property
    def is_raised(self) -> bool:
        return self._usual is not None

    def raise_(self) -> bool:
        """Have the best that is allowed; whether that is better than before."""
        if self.is_raised or sys.platform != "linux":
            return False
        usual = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
        if usual <= self._best:
            return False
        try:
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), self._best)
        except OSError:  # it is not allowed
            return False
        self._usual = usual
        return True

    def restore(self) -> None:
        """The usual one again."""
        if self._usual is not None:
            with suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), self._usual)
        self._usual = None
