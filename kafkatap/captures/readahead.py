"""Work in a thread of its own, a little ahead of what its results are used for. Kernels and reads let go of the GIL."""

from __future__ import annotations

import atexit
import sys
from collections import deque
from collections.abc import Callable, Generator, Iterator
from threading import Condition, Thread
from typing import Generic, TypeVar

T = TypeVar("T")

#: How many items may exist at once: one is in use, one waits, one is being made.
AHEAD = 3


def ahead(items: Generator[T, None, None]) -> Iterator[T]:
    """The same items in the same order, made by a thread. What is raised there is raised here, in its place.

    The thread starts to make an item only after all but the last AHEAD - 1 items before it are no longer in use. When
    the iteration is given up, or the interpreter exits, the thread ends after the item that it is making.
    """
    worker = _Worker(items)
    try:
        while (got := worker.wait()) is not None:
            yield got[0]
    finally:
        worker.stop()
    if worker.error is not None:
        raise worker.error


class _Worker(Generic[T]):
    """The thread, and the items that it has made. `error` is what ended it early."""

    def __init__(self, items: Generator[T, None, None]) -> None:
        self.error: BaseException | None = None
        self._items = items
        self._made: deque[T] = deque()
        self._is_over = self._is_given_up = False
        self._changed = Condition()
        self._thread = Thread(target=self._make, name="kafkatap-ahead", daemon=True)
        _running.add(self.stop)
        self._thread.start()

    def wait(self) -> tuple[T] | None:
        """The next item; None when there is no more."""
        with self._changed:
            self._changed.wait_for(lambda: self._made or self._is_over)
            if not self._made:
                return None
            item = self._made.popleft()
            self._changed.notify_all()
        return (item,)

    def stop(self) -> None:
        """End the thread, and wait for its end."""
        if sys.is_finalizing():  # `_stop_all` was here before; no thread runs any more
            return
        with self._changed:
            self._is_given_up = True
            self._changed.notify_all()
        self._thread.join()
        _running.discard(self.stop)

    def _make(self) -> None:
        try:
            for item in self._items:
                if not self._hand_over(item):
                    break
            self._items.close()
        except BaseException as error:  # handed over, whatever it is
            self.error = error
        with self._changed:
            self._is_over = True
            self._changed.notify_all()

    def _hand_over(self, item: T) -> bool:
        """Wait until there is room for an item; whether it is still wanted."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._made) < AHEAD - 2 or self._is_given_up)
            self._made.append(item)
            self._changed.notify_all()
            return not self._is_given_up


#: How to stop the threads that there are.
_running: set[Callable[[], None]] = set()


@atexit.register
def _stop_all() -> None:
    """End the threads of iterators that are still referred to when the interpreter exits. It stops daemon threads where
    they are: an iterator that is dropped after that would wait for its thread for ever."""
    for stop in list(_running):
        stop()
