"""A thread for work that may have to wait: for a disk, or for the reader of a pipe. The capture waits for neither."""

from __future__ import annotations

import os
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Condition, Thread

#: Seconds for the work that is left at the end, of all threads together; and at least, of each.
FAREWELL, LEAST_FAREWELL = 5.0, 0.5
_farewell_ends: float | None = None


@contextmanager
def farewell() -> Iterator[None]:
    """Threads that are closed in this block have FAREWELL together."""
    global _farewell_ends
    _farewell_ends = time.monotonic() + FAREWELL
    try:
        yield
    finally:
        _farewell_ends = None


class Background:
    """Runs calls in their order, in a thread of its own. `room`: bytes that all waiting calls may hold.

    If a call raises an error, later calls are left out, and the next `add`, `settle` or `close` raises it. The process
    can end before the thread.
    """

    def __init__(self, name: str, room: int) -> None:
        self._room = room
        self._held = 0  # bytes of the calls that wait or run
        self._calls: deque[tuple[Callable[[], None], int]] = deque()
        self._running = self._closed = False
        self._error: BaseException | None = None
        self._changed = Condition()
        self._thread = Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def add(self, call: Callable[[], None], size: int = 0) -> bool:
        """Let the thread run a call that holds `size` bytes. False if there is no room for it: it is left out. A call
        that holds nothing always has room, and so has any call while no other holds bytes."""
        with self._changed:
            self._raise()
            if size and self._held and self._held + size > self._room:
                return False
            self._held += size
            self._calls.append((call, size))
            self._changed.notify_all()
        return True

    def settle(self, seconds: float | None = None) -> bool:
        """Wait until all calls have run, for at most so long; return whether they have."""
        with self._changed:
            settled = self._changed.wait_for(lambda: not self._calls and not self._running, seconds)
            self._raise()
        return settled

    def close(self) -> bool:
        """Let the thread end after all calls. Wait for them, for FAREWELL at most; return whether they have run."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        left = FAREWELL if _farewell_ends is None else _farewell_ends - time.monotonic()
        return self.settle(max(left, LEAST_FAREWELL))

    def _raise(self) -> None:
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _run(self) -> None:
        failed = False
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._calls or self._closed)
                if not self._calls:
                    return
                call, size = self._calls.popleft()
                self._running = True
            error: BaseException | None = None
            try:
                if not failed:
                    call()
            except BaseException as raised:  # the thread that hands over work raises it
                error, failed = raised, True
            with self._changed:
                self._error = error or self._error
                self._held -= size
                self._running = False
                self._changed.notify_all()


def abandon(name: str) -> None:
    """Discard all further text to `stdout` or `stderr`: a thread waits in a write to it, and holds its lock."""
    setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
