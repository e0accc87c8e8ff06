"""The terminal as the live screen needs it: what it can do, and what happens when it goes away.

A terminal that is gone (a dropped ssh session) gives errors or an endless end of file to whoever still writes and
reads: none of that may raise, or keep the process busy.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from textual.app import App
from textual.drivers.linux_driver import LinuxDriver


class Output:
    """The terminal's standard output, to which writing never fails."""

    def __init__(self) -> None:
        self._file = sys.__stdout__

    def write(self, text: str) -> int:
        if self._file is not None:
            try:
                return self._file.write(text)
            except (OSError, ValueError):
                self._file = None
        return len(text)

    def flush(self) -> None:
        if self._file is not None:
            try:
                self._file.flush()
            except (OSError, ValueError):
                self._file = None

    def fileno(self) -> int:
        return 1


class Driver(LinuxDriver):
    """textual's driver, on standard output, without complaints when the terminal is gone."""

    def __init__(
        self, app: App[None], *, debug: bool = False, mouse: bool = True, size: tuple[int, int] | None = None
    ) -> None:
        super().__init__(app, debug=debug, mouse=mouse, size=size)
        self._file = Output()  # type: ignore[assignment]

    def start_application_mode(self) -> None:
        super().start_application_mode()  # type: ignore[no-untyped-call]
        threading.Thread(target=self._await_end, name="live-screen-terminal", daemon=True).start()

    def _await_end(self) -> None:
        """Until the terminal is gone: then nobody reads any more, as an end of file is read for ever."""
        poll = getattr(select, "poll", None)
        if poll is not None:
            poller = poll()
            poller.register(self.fileno, 0)  # only for what is always told: hang-ups and errors
            poller.poll()
            self.exit_event.set()

    def _run_input_thread(self) -> None:
        with suppress(OSError):  # the terminal is gone: `LiveApp` sees it
            self.run_input_thread()


def gone() -> bool:
    """Whether there is no terminal any more."""
    return not (os.isatty(0) and os.isatty(1))


def why_not() -> str | None:
    """Why there can be no screen; None where there can be one."""
    if not (os.isatty(0) and os.isatty(1)):
        return "standard input or output is not a terminal"
    if os.environ.get("TERM", "") in ("", "dumb", "unknown"):
        return "the terminal cannot move its cursor (TERM is dumb or not set)"
    return None


def has_colors() -> bool:
    """Whether the terminal shows colours, and its user wants them."""
    if os.environ.get("NO_COLOR"):
        return False
    try:
        import curses

        curses.setupterm(fd=1)
        return curses.tigetnum("colors") >= 8
    except Exception:  # no such module, or no such terminal: curses.error cannot be named then
        return not os.environ.get("TERM", "").startswith(("vt1", "vt2"))


@contextmanager
def signals_kept() -> Iterator[None]:
    """Put back the handlers that textual's driver replaces."""
    numbers = (signal.SIGTSTP, signal.SIGCONT, signal.SIGWINCH)
    before = [signal.getsignal(number) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
