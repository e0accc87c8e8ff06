"""Commands of tests are forks, and do what a start of the interpreter does."""

from __future__ import annotations

import subprocess

import pytest

from kafkatap.__main__ import main

from . import forked
from .running import KAFKATAP, ROOT, environment, kafkatap

SAMPLE = ROOT / "samples" / "apache-0.8.2.pcap.zst"


def test_a_command_in_this_process_does_not_end_forks(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["apis"]) == 0
    assert forked.differences(environment()) == set()


@pytest.mark.parametrize("name", ["PYTHONPATH", "KAFKATAP_CACHE", "OPENBLAS_NUM_THREADS"])
def test_what_is_read_at_the_start_needs_one(name: str) -> None:
    assert not forked.can_run(environment(**{name: "/else"}))


@pytest.mark.parametrize("command", [["report", "--utc"], ["records", "--json", "-n", "9"], ["show", "--utc"]])
def test_a_fork_is_as_a_start(command: list[str]) -> None:
    words = [command[0], str(SAMPLE), *command[1:]]
    started = subprocess.run([*KAFKATAP, *words], capture_output=True, cwd=ROOT, env=environment(), check=False)
    done = kafkatap(*words)
    assert (done.code, done.out) == (started.returncode, started.stdout.decode())
    assert done.out
