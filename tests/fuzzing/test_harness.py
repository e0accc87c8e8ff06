"""The fuzzing harness itself: what it finds of planted faults, and what it makes of the findings."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

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


def test_the_same_seed_makes_the_same_inputs() -> None:
    from .targets import TARGETS

    for target in TARGETS.values():
        assert [target.input(f"1 {n}") for n in range(3)] == [target.input(f"1 {n}") for n in range(3)], target.name


def test_the_command_prints_a_table(tmp_path: Path) -> None:
    command = [sys.executable, "benchmarks/fuzz.py", "--seconds", "1", "--target", "filters"]
    done = subprocess.run(
        [*command, "--findings", str(tmp_path)], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    rows = [line.split(" | ") for line in done.stdout.splitlines() if line.startswith(("| filters", "| all"))]
    assert [row[-1] for row in rows] == ["0 |", "0 |"]
    assert int(rows[0][1].replace(",", "")) > 10
