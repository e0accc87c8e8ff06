"""What is told while packets are captured: that an interface is down, where an incident is recorded."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from ..complaints import complain

#: Seconds for which the screen shows one, and how many wait for its end at most.
SHOWN, KEPT = 20.0, 1_000


class Notices:
    """Lines on standard error; while a screen has the terminal they are shown there, and come when it has ended."""

    def __init__(self) -> None:
        self._kept: deque[str] | None = None
        self._newest = ""
        self._notified = 0.0

    def notify(self, text: str) -> None:
        kept = self._kept
        if kept is None:
            complain(text)
            return
        kept.append(text)
        self._newest, self._notified = text, time.monotonic()

    @contextmanager
    def on_screen(self) -> Iterator[None]:
        """As long as this lasts nothing else writes to the terminal."""
        kept = self._kept = deque(maxlen=KEPT)
        try:
            yield
        finally:
            self._kept = None
            for text in kept:
                complain(text)

    @property
    def newest(self) -> str:
        """What was told just now; "" when that is over."""
        return self._newest if time.monotonic() - self._notified < SHOWN else ""
