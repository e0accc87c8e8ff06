"""The terminal of the live screen: its abilities, and its end.

After a dropped ssh session, writing to the terminal fails, and reading returns end of file forever. Neither may raise,
or keep the process busy.
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

#: Seconds to wait at the end for a terminal that accepts no output.
_PATIENCE = 0.3


class Output:
    """The terminal for writing. It never fails. Once `ending` is set, it does not wait for a terminal that accepts no
    output, as in a session without network: the rest is dropped."""

    def __init__(self) -> None:
        self.ending = threading.Event()
        self._gone = False
        try:  # open it again: O_NONBLOCK would otherwise apply to the shell too
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
    """textual's driver, on standard output. It does not raise when the terminal is gone."""

    def __init__(
        self, app: App[None], *, debug: bool = False, mouse: bool = True, size: tuple[int, int] | None = None
    ) -> None:
        super().__init__(app, debug=debug, mouse=mouse, size=size)
        self.output = Output()
        self._file = self.output  # type: ignore[assignment]
        threading.Thread(target=self._await_end, name="live-screen-terminal", daemon=True).start()

    def _await_end(self) -> None:
        """Wait until the terminal is gone, then stop reading: it would return end of file forever."""
        poll = getattr(select, "poll", None)
        if poll is not None:
            poller = poll()
            poller.register(self.fileno, 0)  # no events but hang-ups and errors, which are always reported
            poller.poll()
            self.exit_event.set()

    def _run_input_thread(self) -> None:
        with suppress(OSError):  # the terminal is gone: `LiveApp` sees it
            self.run_input_thread()


def gone() -> bool:
    """Whether the terminal is gone."""
    return not (os.isatty(0) and os.isatty(1))


def moves_cursor() -> bool:
    """Whether the terminal can move the cursor, by TERM."""
    return os.environ.get("TERM", "") not in ("", "dumb", "unknown")


@contextmanager
def real_size() -> Iterator[None]:
    """Hide COLUMNS and LINES. Some shells export them, and textual would use them even after a resize."""
    hidden = {name: os.environ.pop(name) for name in ("COLUMNS", "LINES") if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(hidden)


def has_colors() -> bool:
    """Whether the terminal has colours, and NO_COLOR is not set."""
    if os.environ.get("NO_COLOR"):
        return False
    try:
        import curses

        curses.setupterm(fd=1)
        return curses.tigetnum("colors") >= 8
    except Exception:  # no module curses, or an unknown terminal
        return not os.environ.get("TERM", "").startswith(("vt1", "vt2"))


@contextmanager
def signal_handlers_restored() -> Iterator[None]:
    """Restore the signal handlers that textual's driver replaces."""
    numbers = (signal.SIGTSTP, signal.SIGCONT, signal.SIGWINCH)
    before = [signal.getsignal(number) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
