"""The conversation with one host: what its clock says, which files it has, and their bytes.

The far side needs a POSIX shell and `date`, `ls` and `cat`. It gets one word a line, and answers each:

    clock          the time, as seconds since the epoch
    list           the names in the folder, and a line with a dot
    fetch NAME...  the bytes of these files, and the end

Files of `live --keep` are pcapng, so several of them one after the other are a pcapng. One that is still written ends
with a whole packet, or close to it.
"""

from __future__ import annotations

import os
import re
import select
import subprocess
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import IO, NamedTuple, Self

from kafkatap.reports import units

from .places import Place

_GREETING = b"kafkatap collects"
_SCRIPT = (
    'cd -- "$1" || exit 3; echo "kafkatap collects"; '
    "while read -r word rest; do "
    'case "$word" in '
    "clock) date +%s.%N ;; "
    "list) ls -1; echo . ;; "
    'fetch) set -f; set -- $rest; exec cat -- "$@" ;; '
    "*) exit 0 ;; "
    "esac; done"
)
#: Round trips by which the clock is measured: the shortest one counts.
ROUNDS = 9
#: Lines that a login shell may print before the greeting, and names in a folder, at most.
_MOST_NOISE, _MOST_NAMES = 1_000, 1_000_000
_LONGEST_LINE = 4_096
#: Seconds within which each answer begins, and goes on.
PATIENCE = 30.0
_CLOCK = re.compile(rb"(\d{9,12})(?:\.(\d{1,9}))?", re.ASCII)
_SECOND = 1_000_000_000


#: How kubectl says which container of a pod it chose by itself.
_CHOSEN = "Defaulted container "
#: Lines of ssh and kubectl that do not say why a command failed.
_NO_REASONS = ("Warning: Permanently added", "command terminated with exit code", _CHOSEN)


class HostError(Exception):
    """Why a host cannot be read, in words."""


class Clock(NamedTuple):
    """How far the clock of a host is ahead of ours, and how wrong that may be, ns."""

    ahead: int
    error: int

    @property
    def correction(self) -> int:
        """What is taken off its times: nothing, if the clocks may be equal."""
        return self.ahead if abs(self.ahead) > self.error else 0


class FarSide:
    """A host. `folder`: where it keeps packets. `sudo`: its root reads them. HostError wherever it does not answer."""

    def __init__(self, place: Place, folder: str, sudo: bool = False) -> None:
        words = [*(["sudo", "-n"] if sudo else []), "sh", "-c", _SCRIPT, "kafkatap", folder]
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `close`
        try:
            self._process = subprocess.Popen(
                place.command(words), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, bufsize=0
            )
        except OSError as error:
            self._errors.close()
            raise HostError(f"{place.reach[0]}: {error.strerror or error}") from None
        self._program = place.reach[0]
        self._waiting = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the conversation."""
        process = self._process
        for pipe in (process.stdin, process.stdout):
            with suppress(OSError):
                if pipe is not None:
                    pipe.close()
        with suppress(subprocess.TimeoutExpired):
            process.wait(2)
        if process.poll() is None:
            process.kill()
            process.wait()
        self._errors.close()

    def greet(self) -> None:
        """Wait until the host answers."""
        for _ in range(_MOST_NOISE):
            if self._line() == _GREETING:
                return
        raise HostError("its shell prints too much before it runs a command")

    def clock(self) -> Clock:
        """Measure its clock."""
        best: Clock | None = None
        for _ in range(ROUNDS):
            sent = time.time_ns()
            self._send(b"clock\n")
            answer = self._line()
            came = time.time_ns()
            found = _CLOCK.match(answer)
            if found is None or came < sent:
                continue
            theirs, error = int(found[1]) * _SECOND, (came - sent) // 2
            if found[2]:
                theirs += int(found[2].ljust(9, b"0"))
            else:  # a `date` without fractions
                theirs, error = theirs + _SECOND // 2, error + _SECOND // 2
            if best is None or error < best.error:
                best = Clock(theirs - (sent + came) // 2, error)
        if best is None:
            raise HostError("its clock cannot be read: date +%s.%N prints no time")
        return best

    def names(self) -> list[str]:
        """The names in its folder that are plain words."""
        self._send(b"list\n")
        found: list[str] = []
        for _ in range(_MOST_NAMES):
            line = self._line()
            if line == b".":
                return found
            with suppress(UnicodeDecodeError):
                found.append(line.decode("ascii"))
        raise HostError("its folder has too many files")

    def fetch(self, names: list[str], write: Callable[[bytes], object], most: int) -> str:
        """Write the bytes of files, at most `most`. Return what is wrong with them, "" if nothing is. No more can be
        asked afterwards."""
        self._send(f"fetch {' '.join(names)}\n".encode())
        left = most
        while data := self._read():
            write(data[:left])
            left -= len(data)
            if left < 0:
                self._process.kill()
                return f"there are more than {units.size(most)}: the rest is missing"
        try:
            code = self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return "it sent everything, but did not end"
        return "" if code == 0 else self._said() or f"the command ended with {code}"

    def _send(self, line: bytes) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line)
        except OSError:
            raise self._failed() from None

    def _line(self) -> bytes:
        """Its next line."""
        while b"\n" not in self._waiting:
            if len(self._waiting) > _LONGEST_LINE:
                raise HostError("it sends no lines")
            data = self._receive()
            if not data:
                raise self._failed()
            self._waiting += data
        line, _, self._waiting = self._waiting.partition(b"\n")
        return line

    def _read(self) -> bytes:
        """Its next bytes; none at the end."""
        waiting, self._waiting = self._waiting, b""
        return waiting or self._receive()

    def _receive(self) -> bytes:
        assert self._process.stdout is not None
        pipe = self._process.stdout.fileno()
        if not select.select([pipe], [], [], PATIENCE)[0]:
            self._process.kill()
            raise HostError(f"it did not answer for {PATIENCE:.0f} s")
        return os.read(pipe, 1 << 18)

    def _failed(self) -> HostError:
        """Why the conversation ended."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(5)
        return HostError(self._said() or f"{self._program} ended with {self._process.returncode}")

    def _said(self) -> str:
        """The last words of the command, on one line, and the container that kubectl chose by itself."""
        self._errors.seek(0)
        lines = [line.strip() for line in self._errors.read(1 << 16).decode("utf-8", "replace").splitlines()]
        told = [line[:300] for line in lines if line.strip("@ ") and not line.startswith(_NO_REASONS)]
        chosen = [f"({line[:300]})" for line in lines if line.startswith(_CHOSEN)]
        return units.safe(" ".join([*told[-1:], *chosen[:1]])) if told else ""
