"""Plays a capture to the live screen: `python -m tests.live.on_screen CAPTURE SPEED [UTC]`, in a real terminal.

The capture's seconds pass SPEED times as fast; after its end the clock stands still. With IGNORE_SIGHUP set, it does
not hear that signal.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import suppress
from threading import Event, Thread

from kafkatap.engine.engine import Engine
from kafkatap.kernels import store
from kafkatap.live.governor import Governor
from kafkatap.live.monitor import Monitor
from kafkatap.live.screen.app import run_screen
from kafkatap.live.screen.look import Kept
from kafkatap.reports.section_parts.registry import counted_sections, needs_of

from .support import SECOND, FileSource

STEP = 0.05


class Played(FileSource):
    """A capture that takes its time."""

    def wait(self, seconds: float) -> None:
        if self.over:
            time.sleep(0.1)
            return
        time.sleep(STEP)
        self.now += self._step


def step_of(speed: float) -> int:
    """ns of a capture that pass at once."""
    return int(STEP * speed * SECOND)


def main(path: str, speed: float, utc: bool) -> None:
    stop = Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: stop.set())
    if os.environ.get("IGNORE_SIGHUP"):
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    store.prepare()
    kept, source = Kept(), Played(path, step_of(speed))
    engine = Engine(all_results=True, **needs_of(None)._asdict())
    monitor = Monitor(
        source, engine, sinks=kept.sinks, governor=Governor(None), clock=source.clock,
        sections=counted_sections(None),
    )  # fmt: skip

    def work() -> None:
        try:
            monitor.run(stop.is_set)
        finally:
            stop.set()

    thread = Thread(target=work)
    thread.start()
    try:
        run_screen(monitor, kept, utc=utc, stop=stop)
    finally:
        stop.set()
        thread.join()
        source.close()
    with suppress(OSError):
        print("the screen has ended", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), len(sys.argv) > 3)
