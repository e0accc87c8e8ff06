"""A real terminal for tests: a tmux server of its own, with one pane in which one command runs."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.cli.running import ROOT, environment

PATIENCE = 60.0
_POLL = 0.05


class Pane:
    """`text()` is what a person sees. All waiting is bounded: AssertionError with what is on the screen."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket
        self.pid = 0

    def tmux(self, *arguments: str) -> str:
        command = ["tmux", "-S", str(self._socket), "-f", "/dev/null", *arguments]
        done = subprocess.run(command, capture_output=True, timeout=PATIENCE, env=environment(LC_ALL="C.UTF-8"))
        assert done.returncode == 0, done.stderr
        return done.stdout.decode()

    def start(self, command: str, width: int, height: int) -> None:
        """Run a command; the pane stays when it has ended."""
        command += '; echo "ended with status" $?; exec sleep 1000'
        self.tmux("new-session", "-d", "-x", str(width), "-y", str(height), "-c", str(ROOT), command)
        shell = self.told("pane_pid")
        children = Path(f"/proc/{shell}/task/{shell}/children")
        end = time.monotonic() + PATIENCE
        while not (found := children.read_text().split()):
            assert time.monotonic() < end, self.text()
        self.pid = int(found[0])

    def text(self, attributes: bool = False) -> str:
        return self.tmux("capture-pane", "-p", *(["-e"] if attributes else []))

    def lines(self) -> list[str]:
        return [line.rstrip() for line in self.text().split("\n")]

    def told(self, what: str) -> str:
        """One of tmux's formats: `pane_title`, `alternate_on` ..."""
        return self.tmux("display-message", "-p", f"#{{{what}}}").strip()

    def press(self, *keys: str) -> None:
        """Keys by tmux's names: `a`, `Enter`, `Escape`, `C-c`."""
        self.tmux("send-keys", *keys)

    def resize(self, width: int, height: int) -> None:
        self.tmux("resize-window", "-x", str(width), "-y", str(height))

    def until(self, holds: Callable[[list[str]], bool]) -> list[str]:
        """Wait until something holds for the lines on the screen; they."""
        end = time.monotonic() + PATIENCE
        while True:
            lines = self.lines()
            if holds(lines):
                return lines
            assert time.monotonic() < end, "\n".join(lines)
            time.sleep(_POLL)

    def until_shown(self, *texts: str) -> list[str]:
        return self.until(lambda lines: all(text in "\n".join(lines) for text in texts))

    def until_still(self, times: int = 10) -> list[str]:
        """Wait until nothing changes any more."""
        before: list[list[str]] = []

        def still(lines: list[str]) -> bool:
            before.append(lines)
            return any(lines) and len(before) > times and all(b == lines for b in before[-times:])

        return self.until(still)

    def until_ended(self) -> int:
        """Wait until the command has ended; its exit code."""
        lines = self.until_shown("ended with status")
        return int(next(line for line in lines if "ended with status" in line).split()[-1])


@contextmanager
def pane(folder: Path) -> Iterator[Pane]:
    """A pane, closed at the end."""
    made = Pane(folder / "tmux")
    try:
        yield made
    finally:
        if (folder / "tmux").exists():
            subprocess.run(["tmux", "-S", str(folder / "tmux"), "kill-server"], capture_output=True, timeout=PATIENCE)


def until_gone(pid: int) -> None:
    """Wait until there is no such process."""
    end = time.monotonic() + PATIENCE
    while os.path.exists(f"/proc/{pid}"):
        assert time.monotonic() < end, "the process is still there"
        time.sleep(_POLL)
