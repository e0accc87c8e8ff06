"""The targets under atheris: it changes inputs that reach new code, in kernels as in the rest.

Kernels run as plain Python, so that atheris sees their branches. It needs `pip install atheris`.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from .session import MODES, ROOT, Found, Outcome

#: Good and damaged inputs to begin with.
_SEEDS = 40
_DONE = re.compile(r"^stat::number_of_executed_units:\s+(\d+)", re.MULTILINE)
_PEAK = re.compile(r"^stat::peak_rss_mb:\s+(\d+)", re.MULTILINE)
_CODE = re.compile(r"cov: (\d+)")
_REVEALED = re.compile(r"Revealed: (.*)")


def run_guided(target: str, seconds: float, seed: str, corpus: Path | None = None) -> Outcome:
    """Run a target for some seconds. After a finding it goes on with another seed."""
    outcome = Outcome()
    end = time.monotonic() + seconds
    with tempfile.TemporaryDirectory(prefix="kafkatap-fuzz-") as scratch:
        inputs = (corpus or Path(scratch) / "corpus") / target
        inputs.mkdir(parents=True, exist_ok=True)
        number = 0
        while time.monotonic() < end:
            outcome.add(
                _one_run(target, max(1, int(end - time.monotonic())), f"{seed}.{number}", inputs, Path(scratch))
            )
            number += 1
    return outcome


def _one_run(target: str, seconds: int, seed: str, corpus: Path, scratch: Path) -> Outcome:
    number = int.from_bytes(hashlib.sha256(seed.encode()).digest()[:4], "big") & 0x7FFFFFFF
    started = os.times()
    done = subprocess.run(
        [
            sys.executable, "-m", "tests.fuzzing.guided", target, str(corpus), f"-max_total_time={seconds}",
            f"-seed={number}", f"-artifact_prefix={scratch}/", "-print_final_stats=1", "-max_len=20000", "-timeout=600",
            "-rss_limit_mb=4000", "-verbosity=1",
        ],
        cwd=ROOT, env=os.environ | MODES["python"], stdin=subprocess.DEVNULL, capture_output=True, text=True,
        errors="replace", timeout=seconds + 1_800, check=False,
    )  # fmt: skip
    ended = os.times()
    outcome = Outcome()
    outcome.cpu = ended.children_user - started.children_user + ended.children_system - started.children_system
    outcome.inputs = sum(map(int, _DONE.findall(done.stderr)))
    outcome.peak = max(map(int, _PEAK.findall(done.stderr)), default=0) * 1_000_000
    if reached := _CODE.findall(done.stderr):
        print(f"{target}: {reached[0]} branches reached by the first inputs, {reached[-1]} at the end", file=sys.stderr)
    if done.returncode:
        lines = [
            line for line in done.stderr.splitlines() if re.match(r"\s*[A-Za-z.]*(Error|Exception|Too[A-Z])", line)
        ]
        kind = lines[-1].strip()[:150] if lines else f"atheris ended with code {done.returncode}"
        outcome.counts[kind] = 1
        made = [path for path in scratch.iterdir() if path.is_file()]
        data = made[0].read_bytes() if made else b""
        outcome.found.append(Found(kind, done.stderr[-6_000:], data, seed))
        for path in made:
            path.unlink()
    return outcome


def main(arguments: list[str]) -> None:
    """Run one target in this process, which atheris ends. The other arguments are those of libFuzzer."""
    import atheris

    name, corpus, *options = arguments
    with atheris.instrument_imports(include=["kafkatap"]):
        from .target import examine
        from .targets import TARGETS
    target = TARGETS[name]
    for number in range(_SEEDS):
        data = target.input(f"guided {number}")
        if len(data) < 20_000:
            (Path(corpus) / hashlib.sha256(data).hexdigest()[:16]).write_bytes(data)
    examine(target, target.input("guided 0"))  # imports and tables: their time does not count

    def check(data: bytes) -> None:
        finding = examine(target, data)
        if finding is not None:
            print(finding.text, file=sys.stderr)
            raise Revealed(finding.kind)

    setup: Any = atheris.Setup
    setup([sys.argv[0], *options, corpus], check)
    atheris.Fuzz()


class Revealed(Exception):
    """An input that atheris made revealed something."""


if __name__ == "__main__":
    main(sys.argv[1:])
