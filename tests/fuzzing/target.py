"""`Target`: makes inputs from a seed, and checks one input. `examine` adds the limits of time and memory."""

from __future__ import annotations

import os
import random
import resource
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from kafkatap.kernels.decorator import kernel_mode

MIB = 1 << 20
#: An input of up to this many bytes is checked within `Target.seconds`. Larger ones get time in proportion.
USUAL_SIZE = 64 << 10
#: How much the process may grow by one input.
MEMORY = 200 * MIB
#: How many times slower plain Python is, and kernels that check bounds.
_SLOWER = {"python": 400, "numba": 6, "store": 1}


class TooSlow(AssertionError):
    """An input took more time than its size allows."""


class TooLarge(AssertionError):
    """An input took more memory than any input may."""


@dataclass(frozen=True, slots=True)
class Target:
    """`make(chance)` makes an input; `check(data)` raises if an invariant does not hold. An input is bytes, so that it
    can be kept in a file. `seconds`: processor time that the check of a usual input may take."""

    name: str
    make: Callable[[random.Random], bytes]
    check: Callable[[bytes], None]
    seconds: float = 1.0

    def input(self, seed: str) -> bytes:
        """The input of a seed, the same in every run."""
        return self.make(random.Random(f"{self.name} {seed}"))


@dataclass(frozen=True, slots=True)
class Finding:
    """What an input revealed. `kind` is equal for findings with the same cause: the error and where it was raised."""

    kind: str
    text: str


def examine(target: Target, data: bytes) -> Finding | None:
    """Check one input, within limits of processor time and memory."""
    _forget_peak()
    started, before = time.process_time(), peak_memory()
    try:
        target.check(data)
        _within_limits(target, data, time.process_time() - started, peak_memory() - before)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        return Finding(_kind_of(error), "".join(traceback.format_exception(error)))
    return None


def _within_limits(target: Target, data: bytes, seconds: float, memory: int) -> None:
    allowed = target.seconds * max(1.0, len(data) / USUAL_SIZE) * _SLOWER[kernel_mode()]
    if seconds > allowed:
        raise TooSlow(f"{seconds:.1f} s of processor time for {len(data)} bytes; {allowed:.1f} are allowed")
    if memory > MEMORY:
        raise TooLarge(f"{memory // MIB} MiB of memory for {len(data)} bytes; {MEMORY // MIB} are allowed")


def peak_memory() -> int:
    """The most memory that this process had at once since it began, or since the last `examine` did."""
    with suppress(OSError), open("/proc/self/status") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith("VmHWM"))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10  # at least what the parent process had


def _forget_peak() -> None:
    """Set the peak to what the process has now, where the system allows that."""
    with suppress(OSError), open("/proc/self/clear_refs", "w") as file:
        file.write("5")


def _kind_of(error: BaseException) -> str:
    """The error's type and the last places of the traceback: in the tests, and in the product."""
    frames = traceback.extract_tb(error.__traceback__)
    places = {}
    for frame in frames:
        folder = "tests" if f"{os.sep}tests{os.sep}" in frame.filename else "product"
        places[folder] = f"{os.path.basename(frame.filename)}:{frame.name}:{frame.lineno}"
    return " ".join((type(error).__name__, *places.values()))
