"""The fuzzing harness itself: what it finds of planted faults, and what it makes of the findings."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from .decoder_targets import _ODD_VALUES, _change
from .session import ROOT, Outcome, Worker, keep


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    with Worker(module="tests.fuzzing.planted", silent=4.0) as started:
        assert started.run("sound", "0", inputs=1).inputs == 1  # from now on it may be silent for four seconds
        yield started


def found_in(worker: Worker, target: str, inputs: int = 200) -> Outcome:
    outcome = worker.run(target, "1", inputs=inputs)
    assert outcome.inputs == inputs
    return outcome


def test_nothing_is_found_where_nothing_is_wrong(worker: Worker) -> None:
    outcome = found_in(worker, "sound")
    assert outcome.counts == {}
    assert outcome.found == []
    assert outcome.peak > 1 << 20


def test_an_error_is_found_once_with_a_short_input(worker: Worker) -> None:
    outcome = found_in(worker, "raises")
    ((kind, count),) = outcome.counts.items()
    assert kind.startswith("ZeroDivisionError planted.py:_raises")
    assert count > 20
    (found,) = outcome.found
    assert found.input == b"\x07"
    assert "one of" in found.text


@pytest.mark.parametrize(("target", "kind"), [("dawdles", "TooSlow"), ("grows", "TooLarge")])
def test_limits_of_time_and_memory(worker: Worker, target: str, kind: str) -> None:
    outcome = worker.run(target, "1", inputs=12)
    assert [found.kind.split()[0] for found in outcome.found] == [kind]
    assert b"\x07" in outcome.found[0].input


@pytest.mark.parametrize(("target", "said"), [("crashes", "ended with code -11"), ("hangs", "hangs")])
def test_the_input_of_a_crash_and_of_a_hang_is_known(worker: Worker, target: str, said: str, tmp_path: Path) -> None:
    outcome = worker.run(target, "1", inputs=1)
    while not outcome.found:
        outcome.add(worker.run(target, f"more {outcome.inputs}", inputs=1))
    (found,) = outcome.found
    assert said in found.kind
    assert b"\x07" in found.input
    path = keep(tmp_path / "findings", target, found)
    assert path.read_bytes() == found.input
    assert said in path.with_suffix(".txt").read_text()
    assert worker.run("sound", "1", inputs=3).counts == {}


#: Prints a digest of each input of all targets, made in this order or the reverse one.
_DIGESTS = """
import hashlib, json, sys
from tests.fuzzing.targets import TARGETS
counts, step = json.loads(sys.argv[1]), int(sys.argv[2])
seeds = [(name, n) for name, count in counts.items() for n in range(count)]
made = {f"{name} {n}": hashlib.sha256(TARGETS[name].input(f"1 {n}")).hexdigest() for name, n in seeds[::step]}
print(json.dumps(made, sort_keys=True))
"""


def test_an_input_depends_on_its_seed_alone() -> None:
    """Not on the inputs before it, on the process, its hashes or its clock."""
    from .targets import TARGETS

    counts = json.dumps(dict.fromkeys(TARGETS, 3) | {"definitions": 150, "filters": 50})
    runs = [
        subprocess.Popen(
            [sys.executable, "-c", _DIGESTS, counts, step], cwd=ROOT, stdout=subprocess.PIPE, text=True,
            env=os.environ | {"PYTHONHASHSEED": seed},
        )
        for step, seed in (("1", "1"), ("-1", "2"))
    ]  # fmt: skip
    first, second = (json.loads(run.communicate(timeout=120)[0]) for run in runs)
    assert len(first) == sum(json.loads(counts).values())
    assert [seed for seed in first if first[seed] != second[seed]] == []


def test_a_changed_definition_holds_nothing_of_an_earlier_one() -> None:
    before = deepcopy(_ODD_VALUES)
    for number in range(2_000):
        found: dict[str, Any] = {"fields": [[[1]], {"fields": [{}]}]}
        chance = random.Random(number)
        for _ in range(8):
            _change(found, chance)
        json.dumps(found)  # ValueError if it holds itself
        assert before == _ODD_VALUES


def test_the_command_prints_a_table(tmp_path: Path) -> None:
    command = [sys.executable, "benchmarks/fuzz.py", "--seconds", "1", "--target", "filters"]
    done = subprocess.run(
        [*command, "--findings", str(tmp_path)], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    rows = [line.split(" | ") for line in done.stdout.splitlines() if line.startswith(("| filters", "| all"))]
    assert [row[-1] for row in rows] == ["0 |", "0 |"]
    assert int(rows[0][1].replace(",", "")) > 10
