"""The terminal as the live screen needs it: what it can do, and what happens when it goes away.

A terminal that is gone (a dropped ssh session) gives errors or an endless end of file to whoever still writes and
reads: none of that may raise, or keep the process busy.
"""

from __future__ import annotations

import os
import select
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from textual.app import App
from textual.drivers.linux_driver import LinuxDriver

#: Seconds that are waited for a terminal that takes nothing, once the screen is to end.
_PATIENCE = 0.3


class Output:
    """The terminal for writing: never fails, and never waits for one that does not take anything (a session whose
    network is away) once `ending` is set: what is left is then thrown away."""

    def __init__(self) -> None:
        self.ending = threading.Event()
        self._gone = False
        try:  # opened anew, as not to wait is a property of the open file, which the shell has as well
            self._file = os.open(os.ttyname(1), os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        except OSError:
            self._file = os.dup(1)

    def write(self, text: str) -> int:
        left = memoryview(text.encode("utf-8", "replace"))
        while left and not self._gone:
            try:
                left = left[os.write(self._file, left) :]
            except BlockingIOError:
                _, ready, _ = select.select([], [self._file], [], _PATIENCE)
                self._gone = not ready and self.ending.is_set()
            except OSError:
                self._gone = True
        return len(text)

    def flush(self) -> None: ...

    def fileno(self) -> int:
        return self._file

    def close(self) -> None:
        os.close(self._file)


class Driver(LinuxDriver):
    """textual's driver, on standard output, without complaints when the terminal is gone."""

    def __init__(
        self, app: App[None], *, debug: bool = False, mouse: bool = True, size: tuple[int, int] | None = None
    ) -> None:
        super().__init__(app, debug=debug, mouse=mouse, size=size)
        self.output = Output()
        self._file = self.output  # type: ignore[assignment]
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


def moves_cursor() -> bool:
    """Whether the terminal says that it can show a screen, and not only one line after the other."""
    return os.environ.get("TERM", "") not in ("", "dumb", "unknown")


@contextmanager
def real_size() -> Iterator[None]:
    """The size is the terminal's own. Shells may export the one that it had at the start, and textual would believe
    them after it was resized."""
    told = {name: os.environ.pop(name) for name in ("COLUMNS", "LINES") if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(told)


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
def signal_handlers_restored() -> Iterator[None]:
    """Put back the handlers that textual's driver replaces."""
    numbers = (signal.SIGTSTP, signal.SIGCONT, signal.SIGWINCH)
    before = [signal.getsignal(number) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
