"""A driver on local-cluster that kills one of its own executors as soon as the job has decoded something:
`python worker_killed.py CAPTURE OUT`. The last line that it prints is JSON: the process that was killed."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

from kafkatap.spark.cluster.session import open_session
from kafkatap.spark.job import run_job
from tests.support.spark_clusters import SHORT_LIVED

MASTER = "local-cluster[2,1,1024]"


def executors(driver: int) -> list[int]:
    """The executors' Java processes below this one."""
    parents: dict[int, int] = {}
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            if b"CoarseGrainedExecutorBackend" in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue  # it has just ended
    return [pid for pid in found if _is_below(pid, driver, parents)]


def _is_below(pid: int, above: int, parents: dict[int, int]) -> bool:
    while pid > 1:
        pid = parents.get(pid, 0)
        if pid == above:
            return True
    return False


def main(capture: str, out: str) -> None:
    config = {
        "spark.executor.memory": "512m",
        "spark.driver.extraJavaOptions": SHORT_LIVED,
        "spark.executor.extraJavaOptions": SHORT_LIVED,
    }
    session = open_session(MASTER, name="killed", config=config)
    killed: list[int] = []

    def kill() -> None:
        """Once the first rows are written."""
        while not any(Path(out).glob("_temporary-*/exchanges/**/*.parquet*")):
            time.sleep(0.02)
        pids = executors(os.getpid())
        if pids:
            os.kill(pids[0], signal.SIGKILL)
            killed.append(pids[0])

    threading.Thread(target=kill, daemon=True).start()
    try:
        run_job(session, capture, out, split_size=40_000)
    finally:
        session.stop()
    print(json.dumps({"killed": killed}))


if __name__ == "__main__":
    main(*sys.argv[1:])
