"""A driver of its own: `python driver.py JSON`. It prints its results as JSON.

It opens a session and counts the exchanges of a capture. With `out` it also
runs a job that writes there, and kills an executor meanwhile.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from kafkatap.spark import exchanges
from kafkatap.spark.cluster.session import SetupError, open_session
from kafkatap.spark.job import run_job


def where() -> Callable[[Iterator[Any]], Iterator[Any]]:
    """Describes an executor's Python: which it is, where its kernels come from, and whether it has numba loaded."""

    def describe(batches: Iterator[Any]) -> Iterator[Any]:
        import os
        import sys

        import pyarrow

        from kafkatap.kernels import library, store
        from kafkatap.library import Analysis

        for batch in batches:
            rows = Analysis(batch["path"].to_pylist()).exchanges.num_rows
            folder = store.made_ahead()
            values = (rows, os.path.realpath(sys.executable), sys.prefix, str(folder), library.FOLDER)
            names = ("rows", "python", "prefix", "kernels", "shipped")
            row = {name: [value] for name, value in zip(names, values, strict=True)}
            yield pyarrow.RecordBatch.from_pydict({**row, "numba": ["numba" in sys.modules]})

    return describe


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


def run_and_kill(spark: Any, capture: str, out: str) -> dict[str, Any]:
    """Run a job, and kill an executor as soon as the first rows are written; the process that was killed, and what the
    job told meanwhile."""
    killed: list[int] = []
    told: list[tuple[Any, ...]] = []

    def kill() -> None:
        while not any(Path(out).glob("exchanges/date=*/*.parquet")):
            time.sleep(0.02)
        pids = executors(os.getpid())
        if pids:
            os.kill(pids[0], signal.SIGKILL)
            killed.append(pids[0])

    threading.Thread(target=kill, daemon=True).start()
    result = run_job(spark, capture, out, split_size=40_000, watch=lambda *progress: told.append(progress))
    return {"killed": killed, "progress": told, "to_driver": result.bytes_to_driver}


def main(capture: str, out: str | None = None, **session: Any) -> dict[str, Any]:
    try:
        spark = open_session(**session)
    except SetupError as error:
        return {"refused": str(error)}
    try:
        count = exchanges(spark, capture, split_size=100_000).count()
        schema = "rows long, python string, prefix string, kernels string, shipped string, numba boolean"
        one = spark.createDataFrame([(os.path.abspath(capture),)], "path string").mapInArrow(where(), schema)
        (row,) = one.collect()
        result = {"count": count, **row.asDict()}
        return result if out is None else result | run_and_kill(spark, capture, out)
    except SetupError as error:
        return {"refused": str(error)}
    finally:
        spark.stop()


if __name__ == "__main__":
    print(json.dumps(main(**json.loads(sys.argv[1]))))
