"""The progress of a job on standard error, as bars (drawn by rich) or as lines. Each is a `Watch`."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from kafkatap.reports.units import size

from ..complaints import complain
from .job_result import STAGES, Watch, ignore

#: Seconds between two lines of a stage, and between two lines that are the same.
LINE_EVERY, SAME_EVERY = 5.0, 60.0


@contextmanager
def watching(lines: bool, bars: bool) -> Iterator[Watch]:
    """Show the progress of a job as lines, as bars, or not at all."""
    if lines:
        yield Lines()
    elif bars:
        shown = Bars()
        try:
            yield shown
        finally:
            shown.close()
    else:
        yield ignore


def progress_text(stage: str, done: int, total: int, bytes_read: int) -> str:
    """`survey: 12 of 40 tasks, 805 MB`."""
    what = "tables" if stage == STAGES[-1] else "tasks"
    return f"{stage}: {done:,} of {total:,} {what}" + (f", {size(bytes_read)}" if bytes_read else "")


class Lines:
    """A line at most every LINE_EVERY seconds if there is progress, and one when a stage begins and when it is done."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last: tuple[str, int] = ("", 0)
        self._at = 0.0

    def __call__(self, stage: str, done: int, total: int, bytes_read: int = 0) -> None:
        with self._lock:
            now = time.monotonic()
            new = stage != self._last[0]
            finished = done >= total and (stage, done) != self._last
            every = SAME_EVERY if (stage, done) == self._last else LINE_EVERY
            if new or finished or now - self._at > every:
                self._last, self._at = (stage, done), now
                complain(progress_text(stage, done, total, bytes_read))


class Bars:
    """A bar for the current stage. Earlier stages stay as lines."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

        self._lock = threading.Lock()
        self._tasks: dict[str, Any] = {}
        self._progress = Progress(
            TextColumn("{task.description:8}"),
            BarColumn(),
            TextColumn("{task.fields[text]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._progress.start()

    def __call__(self, stage: str, done: int, total: int, bytes_read: int = 0) -> None:
        text = progress_text(stage, done, total, bytes_read).partition(": ")[2]
        with self._lock:
            if stage not in self._tasks:
                self._tasks[stage] = self._progress.add_task(stage, total=total, text=text)
            self._progress.update(self._tasks[stage], completed=done, total=total, text=text)

    def close(self) -> None:
        self._progress.stop()
