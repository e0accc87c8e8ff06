"""The peak memory of a command, as the kernel counts it."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

#: A child's peak begins at that of the process that starts it, so a small one starts the command.
_SCRIPT = """
import json, os, sys, time
null = os.open(os.devnull, os.O_RDWR)
doing = [(os.POSIX_SPAWN_DUP2, null, 0), (os.POSIX_SPAWN_DUP2, null, 1)]
begun = time.perf_counter()
child = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ, file_actions=doing)
_, status, usage = os.wait4(child, 0)
seconds = time.perf_counter() - begun
print(json.dumps([os.waitstatus_to_exitcode(status), usage.ru_maxrss // 1024, seconds]))
"""


@dataclass(frozen=True, slots=True)
class Cost:
    """`code`: how the command ended. `mib`: its largest resident size. `errors`: what it wrote to standard error."""

    code: int
    mib: int
    seconds: float
    errors: str


def cost(*arguments: str | Path) -> Cost:
    """Run `kafkatap` with these arguments, its output discarded."""
    command = [sys.executable, "-c", _SCRIPT, sys.executable, "-m", "kafkatap", *map(str, arguments)]
    ended = subprocess.run(command, check=True, capture_output=True, text=True)
    code, mib, seconds = json.loads(ended.stdout)
    return Cost(code, mib, seconds, ended.stderr)


def peak(*arguments: str | Path) -> int:
    """The largest resident size of a command that succeeds, MiB."""
    done = cost(*arguments)
    assert done.code in (0, 1), done.errors
    return done.mib
