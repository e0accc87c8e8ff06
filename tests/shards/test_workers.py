"""`Workers`: results in order, processes that end or fail, and none that is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from kafkatap.shards.workers import Interrupted, WorkerEnded, Workers
from kafkatap.splits.executor import HERE, InProcess, Place
from tests.cli.running import environment
from tests.shards.processes import children_of, is_running, until


class Twice:
    name = "twice"

    def __call__(self, mine: Any, place: Place = HERE) -> Any:
        place.progress(1)
        if mine == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if mine == "fail":
            raise OSError("no such disk")
        return 2 * mine


def test_executors_give_results_in_the_order_of_inputs() -> None:
    done: list[int] = []
    with Workers(3, lambda units: bool(done.append(units))) as workers:
        for executor in (workers, InProcess()):
            assert executor.run(Twice(), range(20)) == [2 * n for n in range(20)]
            assert executor.run(Twice(), []) == []
            assert executor.run(Twice(), ["a"]) == ["aa"]
    assert done[-1] == 21


def test_workers_that_end_or_fail() -> None:
    with Workers(2) as workers, pytest.raises(WorkerEnded, match="memory ran out"):
        workers.run(Twice(), [1, "die", 2, 3])
    with Workers(2) as workers, pytest.raises(OSError, match="no such disk"):
        workers.run(Twice(), [1, "fail", 2, 3])
    with Workers(2, lambda units: True) as workers, pytest.raises(Interrupted):
        workers.run(Twice(), [1, 2, 3])


SLEEPER = """
import time
from kafkatap.shards.workers import Workers
def sleep(mine, place):
    time.sleep(60)
with Workers(2) as workers:
    workers.run(sleep, [1, 2])
"""


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", SLEEPER], env=environment(), stderr=subprocess.PIPE) as process:
        yield process
        process.kill()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_no_worker_outlives_its_parent(sleeper: subprocess.Popen[bytes], number: int) -> None:
    workers = until(lambda: len(found := children_of(sleeper.pid)) == 2 and found)
    sleeper.send_signal(number)
    sleeper.wait(20)
    until(lambda: not any(map(is_running, workers)))
