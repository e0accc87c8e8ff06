"""Work in a thread of its own, a little ahead of what its results are used for. Kernels and reads let go of the GIL."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from queue import Queue
from threading import Thread
from typing import TypeVar

T = TypeVar("T")

#: How many items may exist at once: one is in use, one waits, one is being made.
AHEAD = 3


def ahead(items: Generator[T, None, None]) -> Iterator[T]:
    """The same items in the same order, made by a thread. What is raised there is raised here, in its place.

    The thread starts to make an item only after all but the last AHEAD - 1 items before it are no longer in use. When
    the iteration is given up, the thread ends after the item that it is making.
    """
    made: Queue[tuple[T] | BaseException | None] = Queue(AHEAD - 2)
    given_up = False

    def make() -> None:
        outcome: BaseException | None = None
        try:
            for item in items:
                made.put((item,))
                if given_up:
                    break
            items.close()
        except BaseException as error:  # handed over, whatever it is
            outcome = error
        made.put(outcome)

    thread = Thread(target=make, name="kafkatap-ahead", daemon=True)
    thread.start()
    outcome: BaseException | None = None
    over = False
    try:
        while not over:
            got = made.get()
            if isinstance(got, tuple):
                yield got[0]
            else:
                over, outcome = True, got
    finally:
        given_up = True
        while not over:
            over = not isinstance(made.get(), tuple)
        thread.join()
    if outcome is not None:
        raise outcome
