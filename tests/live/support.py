"""Captures as if they came now: for tests of the live parts without sockets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from kafkatap.captures.capture_reader import CaptureReader
from kafkatap.engine.assembly import Assembled, Assembly

SECOND = 1_000_000_000


class FileSource:
    """A capture file as a monitor's source. Its clock is that of the packets; `step` ns of them come at once."""

    def __init__(self, path: str, step: int = SECOND // 10) -> None:
        self.names: tuple[str, ...] = ("file",)
        self._reader = CaptureReader(path)
        self._step = step
        self._more = self._reader.fill()
        self.now = self._reader.next_time() if self._more else 0
        self.taken = 0
        self.closed = False

    @property
    def over(self) -> bool:
        return not self._more

    def clock(self) -> int:
        return self.now

    backlog, has_more = 0.0, True

    def wait(self, seconds: float) -> None:
        self.now += self._step

    def parts(self, assembly: Assembly) -> Iterator[Assembled]:
        for buffer, packets, count in self.blocks():
            yield from assembly.feed(buffer, packets, 0, count)

    def blocks(self) -> Iterator[tuple[Any, Any, int]]:
        reader = self._reader
        while self._more:
            end = reader.end_of_run(self.now)
            if end == reader.position:
                return
            run = reader.packets[reader.position : end]
            self.taken += len(run)
            yield reader.buffer, np.ascontiguousarray(run), len(run)
            reader.position = end
            self._more = reader.fill()
        reader.close()

    def counters(self) -> tuple[int, int]:
        return self.taken, 0

    def stop(self) -> None:
        self._step = 0

    def unread(self) -> int:
        return 0

    def close(self) -> None:
        self.closed = True
        self._reader.close()
