"""Lines for the user during a capture: an interface is down, an incident is recorded."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

from ..complaints import complain
from .background import Background, abandon

#: Seconds for which the screen shows a line; how many lines are kept for its end at most.
SHOWN, KEPT = 20.0, 1_000
#: Characters that may wait for the reader of standard error. Further lines are left out.
ROOM = 1 << 20


class Notices:
    """Writes lines to standard error. While a screen has the terminal, it shows them; they are written when it ends."""

    def __init__(self) -> None:
        self._kept: deque[tuple[str, str, Mapping[str, Any]]] | None = None
        self._writer: Background | None = None
        self._newest = ""
        self._notified = 0.0

    def notify(self, text: str, kind: str = "notice", **fields: Any) -> None:
        """Write a line. `kind`, `fields`: what it has besides where lines are JSON."""
        kept = self._kept
        if kept is None:
            self._write(text, kind, fields)
            return
        kept.append((text, kind, fields))
        self._newest, self._notified = text, time.monotonic()

    def _write(self, text: str, kind: str, fields: Mapping[str, Any]) -> None:
        if self._writer is None:
            complain(text, kind, **fields)
        else:
            self._writer.add(partial(complain, text, kind, **fields), len(text))

    @contextmanager
    def in_background(self) -> Iterator[None]:
        """Let a thread write the lines until the end of the block: nobody waits for the reader of standard error. If
        that does not read at the end, nothing more is written to it."""
        self._writer = writer = Background("kafkatap-notices", ROOM)
        try:
            yield
        finally:
            self._writer = None
            if not writer.close():
                abandon("stderr")

    @contextmanager
    def on_screen(self) -> Iterator[None]:
        """Keep lines for the end of the block: a screen has the terminal."""
        kept: deque[tuple[str, str, Mapping[str, Any]]] = deque(maxlen=KEPT)
        self._kept = kept
        try:
            yield
        finally:
            self._kept = None
            for line in kept:
                self._write(*line)

    @property
    def newest(self) -> str:
        """The last line, "" if it is older than SHOWN seconds."""
        return self._newest if time.monotonic() - self._notified < SHOWN else ""
