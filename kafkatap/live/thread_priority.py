"""The niceness of a thread, and a better one when packets wait.

Without root a process may raise its niceness but not lower it again, and so may root in a container. `allow_return`
permits the return to the present niceness. Call it before dropping capabilities; afterwards `can_return` tries it.
"""

from __future__ import annotations

import os
import sys
import threading
from contextlib import suppress


def allow_return() -> None:
    """Permit this process to return to its present niceness later, if the system lets it decide that."""
    if sys.platform != "linux":
        return
    import resource

    wanted = 20 - os.getpriority(os.PRIO_PROCESS, 0)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NICE, (wanted, max(wanted, resource.getrlimit(resource.RLIMIT_NICE)[1])))


def can_return(nice: int) -> bool:
    """Whether a thread that adds `nice` to its niceness can return to the present one. A thread of its own tries it."""
    found: list[bool] = []

    def attempt() -> None:
        thread = threading.get_native_id()
        before = os.getpriority(os.PRIO_PROCESS, thread)
        try:
            os.setpriority(os.PRIO_PROCESS, thread, before + nice)
            os.setpriority(os.PRIO_PROCESS, thread, before)
        except OSError:
            found.append(False)
        else:
            found.append(True)

    if sys.platform == "linux":
        one = threading.Thread(target=attempt, name="kafkatap-nice")
        one.start()
        one.join()
    return found == [True]


class Priority:
    """The niceness of the calling thread: the usual one, or `best` (a lower number) while it is raised."""

    def __init__(self, best: int = 0) -> None:
        self._best = best
        self._usual: int | None = None  # the niceness to restore, while it is raised

    @property
    def is_raised(self) -> bool:
        return self._usual is not None

    def raise_(self) -> bool:
        """Set the best niceness. Return whether that is allowed and better than before."""
        if self.is_raised or sys.platform != "linux":
            return False
        usual = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
        if usual <= self._best:
            return False
        try:
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), self._best)
        except OSError:  # not allowed
            return False
        self._usual = usual
        return True

    def restore(self) -> None:
        """Set the usual niceness again."""
        if self._usual is not None:
            with suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), self._usual)
        self._usual = None
