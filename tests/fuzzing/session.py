"""Runs of targets in worker processes, which may crash or hang without harm to this one."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import select
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .worker import CURRENT

ROOT = Path(__file__).resolve().parents[2]
#: How kernels run: the environment of the workers.
MODES = {
    "compiled": {},
    "checked": {"KAFKATAP_KERNELS": "numba", "KAFKATAP_BOUNDSCHECK": "1"},
    "python": {"NUMBA_DISABLE_JIT": "1"},
}
#: A worker that says nothing for so long hangs, seconds. The kernels of a target that numba compiles take minutes at
#: first.
SILENT, SILENT_AT_FIRST = 90.0, 900.0


@dataclass(frozen=True, slots=True)
class Found:
    """A finding, and a short input that reveals it."""

    kind: str
    text: str
    input: bytes
    seed: str


@dataclass(slots=True)
class Outcome:
    """What a run of a target came to. `cpu`: seconds of processor time in checks; `made`: in making the inputs."""

    inputs: int = 0
    cpu: float = 0.0
    made: float = 0.0
    peak: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    found: list[Found] = field(default_factory=list)

    def add(self, other: Outcome) -> None:
        self.inputs += other.inputs
        self.cpu += other.cpu
        self.made += other.made
        self.peak = max(self.peak, other.peak)
        for kind, count in other.counts.items():
            self.counts[kind] = self.counts.get(kind, 0) + count
        known = {f.kind for f in self.found}
        self.found += [f for f in other.found if f.kind not in known]


class Worker:
    """A worker process, started anew after a crash. Use it as a context."""

    def __init__(self, mode: str = "compiled", module: str = "tests.fuzzing.targets", silent: float = SILENT) -> None:
        self._command = [sys.executable, "-m", "tests.fuzzing.worker"]
        self._module = module
        self._environment = os.environ | MODES[mode]
        self._silent = silent
        self._folder = tempfile.TemporaryDirectory(prefix="kafkatap-fuzz-")
        self._process: subprocess.Popen[bytes] | None = None
        self._compiles = mode == "checked"
        self._answered: set[str] = set()  # targets of which the process has checked inputs; "" where none compiles
        self._lines: list[bytes] = []  # of its answers, the last one incomplete

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()
        self._folder.cleanup()

    def run(self, target: str, seed: str, *, seconds: float = 0.0, inputs: int = 0) -> Outcome:
        """Check inputs of a target for some seconds, or a number of them."""
        outcome = Outcome()
        end = time.monotonic() + seconds
        part = 0
        while inputs > outcome.inputs or (not inputs and (not part or time.monotonic() < end)):
            wanted: dict[str, Any] = {"target": target, "seed": f"{seed}.{part}" if part else seed}
            wanted |= {"inputs": inputs - outcome.inputs} if inputs else {"seconds": end - time.monotonic()}
            outcome.add(self._ask(wanted))
            part += 1
        return outcome

    def _ask(self, wanted: dict[str, Any]) -> Outcome:
        """What a worker answers to one line. If it ends or hangs, that is a finding of its input."""
        process = self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(wanted).encode() + b"\n")
        process.stdin.flush()
        outcome, group = Outcome(), wanted["target"] if self._compiles else ""
        while True:
            silent = self._silent if group in self._answered else max(self._silent, SILENT_AT_FIRST)
            line = self._next_line(process.stdout.fileno(), silent)
            if line is None:
                return self._lost(outcome, f"the worker hangs: nothing for {silent:.0f} s", wanted)
            if not line:
                code = process.wait()
                return self._lost(outcome, f"the worker ended with code {code}", wanted)
            self._answered.add(group)
            answer = json.loads(line)
            if "broken" in answer:
                raise RuntimeError(answer["broken"])
            if "done" in answer:
                outcome.inputs, outcome.cpu, outcome.made = answer["done"], answer["cpu"], answer["made"]
                outcome.peak, outcome.counts = answer["peak"], answer["findings"]
                return outcome
            if "kind" in answer:
                data = base64.b64decode(answer["input"])
                outcome.found.append(Found(answer["kind"], answer["text"], data, answer["seed"]))

    def _next_line(self, pipe: int, silent: float) -> bytes | None:
        """The worker's next line; b"" if it has ended, None if it says nothing for `silent` seconds."""
        while len(self._lines) < 2:
            if not select.select([pipe], [], [], silent)[0]:
                return None
            data = os.read(pipe, 1 << 20)
            if not data:
                return b""
            self._lines = (b"".join(self._lines) + data).split(b"\n")
        return self._lines.pop(0)

    def _lost(self, outcome: Outcome, what: str, wanted: dict[str, Any]) -> Outcome:
        self._stop()
        raw = (Path(self._folder.name) / "current").read_bytes()
        number, length = CURRENT.unpack_from(raw)
        data = raw[CURRENT.size :][:length]
        outcome.inputs = number + 1
        outcome.counts[what] = 1
        outcome.found.append(Found(what, what, data, f"{wanted['seed']} {number}"))
        return outcome

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            self._process = subprocess.Popen(
                [*self._command, self._folder.name, self._module], cwd=ROOT, env=self._environment,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            )  # fmt: skip
            self._answered.clear()
            self._lines = []
        return self._process

    def _stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe is not None:
                    pipe.close()
            self._process = None


def keep(folder: Path, target: str, found: Found) -> Path:
    """Write a finding's input and text to a folder; return the path of the input."""
    folder.mkdir(parents=True, exist_ok=True)
    word = re.sub(r"[^A-Za-z]+", "-", found.kind)[:40].strip("-")
    path = folder / f"{target}-{word}-{hashlib.sha256(found.kind.encode()).hexdigest()[:8]}.bin"
    path.write_bytes(found.input)
    path.with_suffix(".txt").write_text(f"seed {found.seed}\n{found.text}", encoding="utf-8")
    return path
