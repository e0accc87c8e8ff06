"""`read_ahead` gives the same items in the same order, never more than AHEAD at once, and leaves no thread behind."""

from __future__ import annotations

import threading
from collections.abc import Generator

import pytest

from kafkatap.captures.readahead import AHEAD, read_ahead


def threads() -> list[str]:
    return [t.name for t in threading.enumerate() if t.name.startswith("kafkatap")]


def test_order_and_end() -> None:
    assert list(read_ahead(i for i in range(100))) == list(range(100))
    assert list(read_ahead(i for i in range(0))) == []
    assert threads() == []


def test_at_most_so_many_items_exist() -> None:
    begun: list[int] = []

    def items() -> Generator[int, None, None]:
        for i in range(50):
            begun.append(i)
            yield i

    for item in read_ahead(items()):
        assert max(begun) < item + AHEAD


def test_what_is_raised_there_is_raised_here_in_its_place() -> None:
    def items() -> Generator[int, None, None]:
        yield 1
        yield 2
        raise OSError("gone")

    made = read_ahead(items())
    assert [next(made), next(made)] == [1, 2]
    with pytest.raises(OSError, match="gone"):
        next(made)
    assert threads() == []


def test_given_up_it_ends_and_closes_the_source() -> None:
    closed = threading.Event()

    def items() -> Generator[int, None, None]:
        try:
            while True:
                yield 1
        finally:
            closed.set()

    source = read_ahead(items())
    assert next(source) == 1
    source.close()  # type: ignore[attr-defined]
    assert closed.is_set()
    assert threads() == []


def test_an_exception_of_the_user_ends_it_too() -> None:
    def use() -> None:
        for item in read_ahead(i for i in range(1000)):
            if item == 3:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        use()
    assert threads() == []
