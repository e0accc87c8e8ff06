"""Lines for the user during a capture: an interface is down, an incident is recorded."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from ..complaints import complain

#: Seconds for which the screen shows a line; how many lines are kept for its end at most.
SHOWN, KEPT = 20.0, 1_000


class Notices:
    """Writes lines to standard error. While a screen has the terminal, it shows them; they are written when it ends."""

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
        """Keep lines for the end of the block: a screen has the terminal."""
        kept = self._kept = deque(maxlen=KEPT)
        try:
            yield
        finally:
            self._kept = None
            for text in kept:
                complain(text)

    @property
    def newest(self) -> str:
        """The last line, "" if it is older than SHOWN seconds."""
        return self._newest if time.monotonic() - self._notified < SHOWN else ""
