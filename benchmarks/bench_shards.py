"""What a report costs with several engines that share connections, and what limits it.

    python benchmarks/bench_shards.py CAPTURE [--jobs 1 2 4 8] [--runs 5] [--sections all]

Runs take turns, each in a process of its own. It prints medians: the processor time in all and its ratio to that of one
engine; that of the process that reads, finds records and reports; that of the engines; the largest engine's share of
theirs, times N (1: all have the same); wall time. On N cores, a report takes at least

    start + max(reader, engines / N * imbalance) + report

where `reader` is the part of the first process in which it feeds the engines.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def measure(capture: str, jobs: int, sections: str | None) -> None:
    """Run one report in this process, and print what it took as JSON."""
    import kafkatap.shards.blocks as blocks
    import kafkatap.shards.shard as shard
    from kafkatap.__main__ import main as command

    read, feed, times = shard.ShardTask.__call__, blocks.SharedBlocks._feed, Path(os.environ["TIMES"])

    def timed_read(self: Any, mine: int, *rest: Any) -> Any:
        begun = time.process_time()
        found = read(self, mine, *rest)
        with times.open("a") as file:
            file.write(f"engine {time.process_time() - begun}\n")
        return found

    def timed_feed(self: Any) -> None:
        begun = time.thread_time()
        feed(self)
        with times.open("a") as file:
            file.write(f"reader {time.thread_time() - begun}\n")

    shard.ShardTask.__call__, blocks.SharedBlocks._feed = timed_read, timed_feed  # type: ignore[assignment,method-assign]
    sys.argv = ["kafkatap", "report", "--jobs", str(jobs), *(["--sections", sections] if sections else []), capture]
    command()


def one_run(capture: str, jobs: int, sections: str | None, folder: Path) -> dict[str, float]:
    """The times of one report, s."""
    times = folder / "times"
    times.write_text("")
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    command = [sys.executable, __file__, capture, "--jobs", str(jobs), "--measure"]
    subprocess.run(
        [*command, *(["--sections", sections] if sections else [])], check=True, stdout=subprocess.DEVNULL,
        env={**os.environ, "TIMES": str(times)},
    )  # fmt: skip
    wall, after = time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
    found: dict[str, list[float]] = {"engine": [], "reader": []}
    for line in times.read_text().splitlines():
        name, seconds = line.split()
        found[name].append(float(seconds))
    engines = found["engine"]
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {
        "cpu": cpu, "wall": wall, "engines": sum(engines), "reader": sum(found["reader"]),
        "imbalance": max(engines) * len(engines) / sum(engines) if engines else 1.0,
    }  # fmt: skip


def table(found: dict[int, list[dict[str, float]]], jobs: Sequence[int]) -> None:
    medians = {n: {name: statistics.median(run[name] for run in runs) for name in runs[0]} for n, runs in found.items()}
    print("| engines | processor time, s | times one | engines, s | reader, s | imbalance | wall, s |")
    print("|---:|---:|---:|---:|---:|---:|---:|")
    for n in jobs:
        m, one = medians[n], medians[jobs[0]]
        print(
            f"| {n} | {m['cpu']:.2f} | {m['cpu'] / one['cpu']:.2f} | {m['engines']:.2f} | {m['reader']:.2f} | "
            f"{m['imbalance']:.2f} | {m['wall']:.2f} |"
        )


def main() -> None:
    import tempfile

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("capture")
    parser.add_argument("--jobs", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--sections")
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        measure(options.capture, options.jobs[0], options.sections)
        return
    found: dict[int, list[dict[str, float]]] = {n: [] for n in options.jobs}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(options.runs):
            for n in options.jobs:
                found[n].append(one_run(options.capture, n, options.sections, Path(folder)))
    table(found, options.jobs)


if __name__ == "__main__":
    main()
