"""Running `kafkatap` as a user does: as a process of its own, on a pipe or on a terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from . import forked

KAFKATAP = (sys.executable, "-m", "kafkatap")
ROOT = Path(__file__).resolve().parents[2]
_SECONDS = 120


@dataclass(frozen=True, slots=True)
class Done:
    """How a run ended. `err` is without the line that the first run after a change of the kernels says."""

    code: int
    out: str
    err: str


def environment(**extra: str) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "TZ")}
    return {
        **kept, "TERM": "xterm-256color", "PYTHONIOENCODING": "utf-8", "COLUMNS": "0", "KAFKATAP_PAGER": "", **extra,
    }  # fmt: skip


def kafkatap(*arguments: str | Path, stdin: bytes | None = None, cwd: Path = ROOT, **extra: str) -> Done:
    """Run it with pipes for output; `extra` are environment variables."""
    words, variables = [str(argument) for argument in arguments], environment(**extra)
    if stdin is None and forked.can_run(variables):
        return _done(*forked.run(words, str(cwd), variables, _SECONDS))
    done = subprocess.run(
        [*KAFKATAP, *words], input=stdin, stdin=subprocess.DEVNULL if stdin is None else None,
        capture_output=True, cwd=cwd, env=variables, timeout=_SECONDS, check=False,
    )  # fmt: skip
    return _done(done.returncode, done.stdout, done.stderr)


def _done(code: int, out: bytes, errors: bytes) -> Done:
    return Done(code, out.decode(), without_compiling(errors.decode()))


def without_compiling(text: str) -> str:
    return "".join(line for line in text.splitlines(keepends=True) if "compiling" not in line)


def on_terminal(
    *arguments: str | Path, columns: int = 80, stdin: IO[bytes] | None = None, **extra: str
) -> tuple[int, str]:
    """Run it with both outputs on a terminal of so many columns; the exit code and what was shown."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    variables = environment(**extra)
    del variables["COLUMNS"]
    process = subprocess.Popen(
        [*KAFKATAP, *map(str, arguments)], stdin=stdin or theirs, stdout=theirs, stderr=theirs, cwd=ROOT, env=variables,
    )  # fmt: skip
    os.close(theirs)
    shown, end = b"", time.monotonic() + 120
    while time.monotonic() < end:
        if select.select([ours], [], [], 0.1)[0]:
            try:
                shown += os.read(ours, 65_536)
            except OSError:  # the other side is closed: all is read
                break
        elif process.poll() is not None:
            break
    os.close(ours)
    return process.wait(timeout=10), shown.decode().replace("\r\n", "\n")
