"""Threads that have to be waited for at the end."""

from __future__ import annotations

import time
from threading import Event

import pytest

from kafkatap.live import background
from kafkatap.live.background import Background, farewell


def test_all_threads_have_one_time_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "FAREWELL", 1.0)
    monkeypatch.setattr(background, "LEAST_FAREWELL", 0.05)
    waits, done = Event(), []
    stuck = [Background(f"stuck-{number}", 1) for number in range(4)]
    for each in stuck:
        each.add(lambda: waits.wait(30))  # type: ignore[arg-type, return-value]
    works = Background("works", 1)
    begun = time.monotonic()
    with farewell():
        closed = [each.close() for each in stuck]
        works.add(lambda: done.append(1))
        assert works.close()
    assert closed == [False] * 4
    assert done == [1]
    assert 1.0 <= time.monotonic() - begun < 3.0
    waits.set()
    assert all(each.settle(30) for each in stuck)
