"""Processes that capture, for tests: `kafkatap live` and tcpdump, known to be ready, ended by their own id.

with Live("-i", "lo", "--plain", "tcp port 9092") as live:
    live.wait_ready()
    ...
    done = live.end()           # SIGINT, then its report
"""

from __future__ import annotations

import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO

from tests.cli.running import KAFKATAP, ROOT, Done, environment, without_compiling

#: Kernels are compiled at the first run after they changed.
READY_S = 120.0


def wait_for(what: Callable[[], object], seconds: float, why: Callable[[], str]) -> None:
    """Until `what` holds; AssertionError with what `why` says after so long."""
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, why()
        time.sleep(0.02)


class Capturing:
    """A process with its output in files."""

    def __init__(self, command: Sequence[str], stdout: int | None = None, **extra: str) -> None:
        self._out, self._err = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115
        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=stdout or self._out, stderr=self._err, cwd=ROOT,
            env=environment(**extra),
        )  # fmt: skip

    def __enter__(self) -> Capturing:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(30)
        self._out.close()
        self._err.close()

    def out(self) -> str:
        return _text(self._out)

    def err(self) -> str:
        return without_compiling(_text(self._err))

    def send(self, number: int) -> None:
        self.process.send_signal(number)

    def finish(self, seconds: float = 30.0) -> Done:
        """Wait for its end."""
        code = self.process.wait(seconds)
        return Done(code, self.out(), self.err())

    def end(self, number: int = signal.SIGINT, seconds: float = 30.0) -> Done:
        """End it by a signal."""
        self.send(number)
        return self.finish(seconds)


class Live(Capturing):
    """`kafkatap live` with these arguments. `before`: words before the command, such as those that change the user.
    `stdout`: another standard output, as a number."""

    def __init__(
        self, *arguments: str | Path, before: Sequence[str] = (), stdout: int | None = None, **extra: str
    ) -> None:
        super().__init__([*before, *KAFKATAP, "live", *map(str, arguments)], stdout, **extra)

    def __enter__(self) -> Live:
        return self

    def wait_ready(self) -> None:
        """Until it captures and heeds signals: it catches SIGUSR1 once its sockets are open."""
        wait_for(self._ready, READY_S, lambda: f"not ready: {self.out()}{self.err()}")

    def _ready(self) -> bool:
        assert self.process.poll() is None, f"ended: {self.out()}{self.err()}"
        return catches(self.process.pid, signal.SIGUSR1)


class Tcpdump(Capturing):
    """tcpdump on an interface, with times in nanoseconds, into a file. (Unless it takes packets at once, it leaves
    those of the last second where they are.)"""

    def __init__(self, interface: str, file: Path, expression: str) -> None:
        super().__init__(
            ["tcpdump", "-i", interface, "-w", str(file), "-B", "65536", "-s", "0", "--time-stamp-precision=nano",
             "--immediate-mode", "-Z", "root", expression],
        )  # fmt: skip
        self.file = file

    def __enter__(self) -> Tcpdump:
        return self

    def wait_ready(self) -> None:
        wait_for(lambda: "listening on" in self.err(), 20, lambda: f"tcpdump: {self.err()}")

    def counts(self) -> tuple[int, int]:
        """Packets captured, and dropped by the kernel, once it has ended."""
        words = {
            line.split(" packets ")[1]: int(line.split()[0]) for line in self.err().splitlines() if " packets " in line
        }
        return words["captured"], words["dropped by kernel"]


def catches(pid: int, number: int) -> bool:
    """Whether a process handles a signal."""
    try:
        told = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    caught = next((int(line.split()[1], 16) for line in told.splitlines() if line.startswith("SigCgt")), 0)
    return bool(caught >> (number - 1) & 1)


def _text(file: IO[bytes]) -> str:
    """All so far; its writer goes on at the end, which is at a place of its own."""
    return Path(f"/proc/self/fd/{file.fileno()}").read_bytes().decode()
