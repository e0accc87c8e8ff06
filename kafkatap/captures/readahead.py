"""Run a generator in a thread, a few items ahead of its consumer. Kernels and reads release the GIL."""

from __future__ import annotations

import atexit
import sys
from collections import deque
from collections.abc import Callable, Generator, Iterator
from threading import Condition, Thread
from typing import Generic, TypeVar

T = TypeVar("T")

#: How many items exist at once, at most: one is in use, one waits, one is being made.
AHEAD = 3


def read_ahead(items: Generator[T, None, None]) -> Iterator[T]:
    """Yield the same items in the same order, made by a thread. An exception there is raised here, in its place.

    The thread starts now, before the first item is asked for. It waits until at most AHEAD - 1 earlier items are in use
    before it makes the next. When the consumer stops iterating, or the interpreter exits, the thread ends after the
    current item.
    """
    return _items_of(_Worker(items))


def _items_of(worker: _Worker[T]) -> Iterator[T]:
    try:
        while (made := worker.next_item()) is not None:
            yield made[0]
    finally:
        worker.stop()
    if worker.error is not None:
        raise worker.error


class _Worker(Generic[T]):
    """The thread and the items that it has made. `error`: the exception that ended it early."""

    def __init__(self, items: Generator[T, None, None]) -> None:
        self.error: BaseException | None = None
        self._items = items
        self._made: deque[T] = deque()
        self._is_over = self._is_cancelled = False
        self._changed = Condition()
        self._thread = Thread(target=self._make, name="kafkatap-ahead", daemon=True)
        _running.add(self.stop)
        self._thread.start()

    def next_item(self) -> tuple[T] | None:
        """Wait for the next item and return it in a tuple; None at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._made or self._is_over)
            if not self._made:
                return None
            item = self._made.popleft()
            self._changed.notify_all()
        return (item,)

    def stop(self) -> None:
        """End the thread and wait for it."""
        if sys.is_finalizing():  # `_stop_all` has run; no thread is left
            return
        with self._changed:
            self._is_cancelled = True
            self._changed.notify_all()
        self._thread.join()
        _running.discard(self.stop)

    def _make(self) -> None:
        try:
            for item in self._items:
                if not self._put(item):
                    break
            self._items.close()
        except BaseException as error:  # `read_ahead` raises it, whatever it is
            self.error = error
        with self._changed:
            self._is_over = True
            self._changed.notify_all()

    def _put(self, item: T) -> bool:
        """Wait until there is room for an item, and add it. False where the consumer has stopped."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._made) < AHEAD - 2 or self._is_cancelled)
            self._made.append(item)
            self._changed.notify_all()
            return not self._is_cancelled


#: The functions that stop the threads that run now.
_running: set[Callable[[], None]] = set()


@atexit.register
def _stop_all() -> None:
    """End the threads of iterators that are alive when the interpreter exits.

    The interpreter then freezes daemon threads: an iterator dropped after that would wait for its thread for ever.
    """
    for stop in list(_running):
        stop()
