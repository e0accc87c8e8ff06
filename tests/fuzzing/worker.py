"""A process that checks inputs of one target after the other: `python -m tests.fuzzing.worker FOLDER [MODULE]`.

It reads lines of JSON from standard input: {"target", "seed", "seconds"} or {"target", "seed", "inputs"}. It answers
each with lines of JSON: {"alive": inputs so far} every second, {"kind", "text", "input", "seed"} for each kind of
finding, and at the end {"done": inputs, "cpu", "made", "peak", "findings": {kind: count}}. `cpu` is processor time of
the checks, `made` that of making the inputs, in seconds; `peak` is memory in bytes.

Before it checks an input, it writes it to FOLDER/current, so that the input is known if the process ends or hangs.
MODULE has the targets (`TARGETS`).
"""

from __future__ import annotations

import base64
import gc
import importlib
import json
import mmap
import os
import random
import resource
import struct
import sys
import time
import traceback
from collections import Counter
from pathlib import Path
from typing import Any

from .smaller import smaller
from .target import Target, examine, peak_memory

#: Where `current` names an input: number of the input, and its length. The input follows.
CURRENT = struct.Struct("<QQ")
#: No input needs more address space than this: one that does gets a MemoryError instead of the machine's memory.
_ADDRESS_SPACE = 64 << 30
#: Garbage is collected beyond this: an engine that is garbage has few objects, and much memory.
_COLLECTED = 16 << 30
#: Inputs that are checked before time and memory count, as the first ones load kernels and libraries.
_WARM_UP = 8


class _Current:
    """The file with the input that is being checked."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)

    def write(self, number: int, data: bytes) -> None:
        os.pwrite(self._file, CURRENT.pack(number, len(data)) + data, 0)


def run(target: Target, seed: str, seconds: float, inputs: int, current: _Current) -> dict[str, Any]:
    """Check inputs for some seconds of wall time, or a number of them."""
    for number in range(_WARM_UP):
        data = target.input(f"warm-up {number}")
        current.write(number, data)
        examine(target, data)
    _freeze()  # what numba keeps of compiled kernels is no garbage
    started = said = time.monotonic()
    cpu = made = 0.0
    peak = 0
    found: Counter[str] = Counter()
    number = 0
    while number < inputs or (not inputs and time.monotonic() - started < seconds):
        before = time.process_time()
        data = target.input(f"{seed} {number}")
        current.write(number, data)
        middle = time.process_time()
        finding = examine(target, data)
        cpu += time.process_time() - middle
        peak = max(peak, peak_memory())
        made += middle - before
        number += 1
        if _address_space() > _COLLECTED:
            gc.collect()
        if finding is not None:
            found[finding.kind] += 1
            if found[finding.kind] == 1:
                kind = finding.kind
                short = smaller(data, lambda part, kind=kind: _reveals(target, part, kind))  # type: ignore[misc]
                _say(kind=kind, text=finding.text, input=base64.b64encode(short).decode(), seed=f"{seed} {number - 1}")
        if time.monotonic() - said > 1:
            said = time.monotonic()
            _say(alive=number)
    return {"done": number, "cpu": cpu, "made": made, "peak": peak, "findings": dict(found)}


def _address_space() -> int:
    """Bytes of this process's address space."""
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[0]) * mmap.PAGESIZE


def _reveals(target: Target, data: bytes, kind: str) -> bool:
    finding = examine(target, data)
    _say(alive=0)
    return finding is not None and finding.kind == kind


def _say(**what: Any) -> None:
    _answers.write(json.dumps(what) + "\n")
    _answers.flush()


def main(folder: str, module: str = "tests.fuzzing.targets") -> None:
    resource.setrlimit(resource.RLIMIT_AS, (_ADDRESS_SPACE, _ADDRESS_SPACE))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    targets = importlib.import_module(module).TARGETS
    current = _Current(Path(folder) / "current")
    for line in sys.stdin:
        wanted = json.loads(line)
        random.seed(wanted["seed"])
        try:
            _say(**run(
                targets[wanted["target"]], wanted["seed"], wanted.get("seconds", 0), wanted.get("inputs", 0), current
            ))  # fmt: skip
        except BaseException:  # an error of the harness itself, such as one of `make`
            _say(broken=traceback.format_exc())


#: Commands exempt all objects from the collection of garbage, as a process runs one. Here it runs many.
_freeze, gc.freeze = gc.freeze, lambda: None
#: The real standard output. What the product prints goes elsewhere.
_answers = sys.stdout
if __name__ == "__main__":
    _answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    main(*sys.argv[1:])
