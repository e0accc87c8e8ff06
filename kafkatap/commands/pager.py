"""A pager for long output on a terminal, chosen as git chooses it.

KAFKATAP_PAGER or PAGER is the command; without them it is `less`, if there is one. An empty one, `cat`, or --no-pager
means none. It starts with the first output, so that what comes before, on standard error, is not lost behind it. What
comes later waits for its end.
"""

from __future__ import annotations

import argparse
import io
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TextIO

from ..complaints import hold_complaints, release_complaints
from .exit_codes import DONE

#: What `less` does unless LESS says otherwise: end at once if the output fits the screen; colours; no other screen.
_LESS = "FRX"
_NONE = ("", "cat")


class PagedOutput(io.TextIOBase):
    """Standard output in place of a terminal: all that is written goes to a pager. `is_started`: something was."""

    def __init__(self, terminal: TextIO, command: str) -> None:
        self._terminal, self._command = terminal, command
        self._process: subprocess.Popen[str] | None = None
        self._is_closed = False

    @property
    def is_started(self) -> bool:
        return self._process is not None

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._terminal.encoding

    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._terminal.fileno()

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        if self._process is None:
            self._terminal.flush()
            if sys.stderr.isatty():
                hold_complaints()
            self._process = subprocess.Popen(
                self._command, shell=True, stdin=subprocess.PIPE, encoding=self.encoding, errors="backslashreplace",
                env={"LESS": _LESS, **os.environ},
            )  # fmt: skip
        self._try(lambda: self._input.write(text))
        return len(text)

    def flush(self) -> None:
        if self._process is not None:
            self._try(self._input.flush)

    def _try(self, step: Callable[[], object]) -> None:
        """BrokenPipeError, once: a pager that is closed reads nothing more."""
        if self._is_closed:
            return
        try:
            step()
        except BrokenPipeError:
            self._is_closed = True
            raise

    @property
    def _input(self) -> Any:
        assert self._process is not None
        return self._process.stdin

    def wait(self) -> None:
        """Wait until the user closes the pager. Ctrl-C is for the pager alone."""
        if self._process is None:
            return
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            with suppress(OSError):  # it was closed before it had read all
                self._input.close()
            self._process.wait()
        finally:
            signal.signal(signal.SIGINT, before)
            release_complaints()


def paged(run: Callable[[argparse.Namespace], int], options: argparse.Namespace) -> int:
    """The exit code of a command, whose output goes to a pager if it is to be read. It is no error to close that before
    its end."""
    command = _pager() if _is_to_be_read(options) else None
    if command is None:
        return run(options)
    terminal = sys.stdout
    output = PagedOutput(terminal, command)
    sys.stdout = output
    try:
        return run(options)
    except (BrokenPipeError, KeyboardInterrupt):
        if not output.is_started:
            raise
        return DONE
    finally:
        output.wait()
        sys.stdout = terminal


def _is_to_be_read(options: argparse.Namespace) -> bool:
    """Whether the output is text that does not come bit by bit."""
    if any(getattr(options, name, None) for name in ("json", "follow", "stream", "output")):
        return False
    return options.command == "report" or "-" not in getattr(options, "captures", ())


def _pager() -> str | None:
    chosen = next((os.environ[name] for name in ("KAFKATAP_PAGER", "PAGER") if name in os.environ), None)
    if chosen is None:
        return "less" if shutil.which("less") else None
    return None if chosen.strip() in _NONE else chosen
