"""Time the Spark job beside the local engine, both writing the same tables as Parquet; print a table for docs/scale.md.

    python benchmarks/bench_spark.py CAPTURE [--large 16] [--runs 3] [--split-size 64m]

Each contender is a process that stays: a Spark session, or the local engine with its kernels loaded. Each runs the job
once untimed, then they take turns; the table shows medians. --large N repeats this for N joined copies of the capture
(join_copies.py: other addresses, later times) in a temporary folder. Contenders:

* the local engine as `kafkatap report --parquet DIR` runs it, with a second thread that reads ahead; and in one thread
* `run_job` on local[1], local[2] and local-cluster[2,1,2048], or on --masters

Columns: *tasks*: the run time (as Spark reports it) of the tasks that survey and decode, and of all others (cut and
send seams, merge counts). Both are per byte, relative to the local engine in one thread. *shuffled*: seams, as the job
counts them, and the bytes that Spark wrote for shuffles (with TASK rows, proofs and counts, compressed), with their
shares of the capture.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench_report import cpu_name

MASTERS = ("local[1]", "local[2]", "local-cluster[2,1,2048]")
LOCAL, ONE_THREAD = "local engine", "local engine, one thread"


@dataclass(slots=True)
class Round:
    """The cost of one job. `survey`, `decode`, `others`: seconds of tasks. `seams`, `spark_bytes`: bytes shuffled."""

    seconds: float
    exchanges: int
    survey: float = 0.0
    decode: float = 0.0
    others: float = 0.0
    seams: int = 0
    spark_bytes: int = 0


@dataclass(slots=True)
class Contender:
    name: str
    ask: Callable[[str], Round]
    rounds: list[Round] = field(default_factory=list)

    def median(self, name: str) -> float:
        return float(statistics.median(getattr(r, name) for r in self.rounds))


# ---------------------------------------------------------------- the contenders' processes


def serve(name: str, split_size: int, connection: Any) -> None:
    """Run a job for each path received, and send its cost. None ends the process."""
    job = local_job(name) if name in (LOCAL, ONE_THREAD) else spark_job(name, split_size)
    while (path := connection.recv()) is not None:
        with tempfile.TemporaryDirectory(prefix="kafkatap-bench-") as out:
            connection.send(job(path, out))


def local_job(name: str) -> Callable[[str, str], Round]:
    from kafkatap.engine import Engine
    from kafkatap.parquet import write_tables
    from kafkatap.reports.build import build_report
    from kafkatap.reports.counting.counts import ReportCounts
    from kafkatap.run import Run

    def job(path: str, out: str) -> Round:
        started = time.perf_counter()
        run = Run([path], Engine(all_results=True), threaded=name == LOCAL)
        counts = ReportCounts()
        batches = []
        for batch in run.batches():
            counts.add(batch)
            batches.append(batch)
        context = run.context()
        build_report(counts, context)
        write_tables(Path(out), batches, run, context)
        seconds = time.perf_counter() - started
        return Round(seconds, sum(len(b.exchanges) for b in batches))

    return job


def spark_job(master: str, split_size: int) -> Callable[[str, str], Round]:
    from kafkatap.spark import run_job
    from kafkatap.spark.cluster.session import open_session

    spark = open_session(master)

    def watched(stage: str, done: int, total: int, bytes_read: int = 0) -> None:
        """Not `ignore`, so that the job names its stages for Spark."""

    def job(path: str, out: str) -> Round:
        before = _stages(spark)
        started = time.perf_counter()
        result = run_job(spark, [path], out, split_size=split_size, watch=watched)
        seconds = time.perf_counter() - started
        stages = [stage for number, stage in _stages(spark).items() if number not in before]
        main = {  # the longest stage of each group is the one that reads captures
            group: max((taken for named, taken, _ in stages if named == f"kafkatap {group}"), default=0.0)
            for group in ("survey", "decode")
        }
        others = sum(taken for _, taken, _ in stages) - sum(main.values())
        written = sum(stage[2] for stage in stages)
        return Round(
            seconds, result.tables["exchanges"], main["survey"], main["decode"], others, result.bytes_shuffled, written
        )

    return job


def _stages(spark: Any) -> dict[int, tuple[str, float, int]]:
    """For each stage by number: its job group, the run time of its tasks (s), the bytes that it wrote for shuffles."""
    from py4j.protocol import Py4JJavaError

    context = spark.sparkContext._jsc.sc()
    context.listenerBus().waitUntilEmpty()
    store = context.statusStore()
    jobs = store.jobsList(None)
    found: dict[int, tuple[str, float, int]] = {}
    for job in (jobs.apply(i) for i in range(jobs.size())):
        group = job.jobGroup().get() if job.jobGroup().isDefined() else ""
        numbers = job.stageIds()
        for number in (int(numbers.apply(i)) for i in range(numbers.size())):
            try:
                stage = store.lastStageAttempt(number)
            except Py4JJavaError:  # a stage that was not needed
                continue
            if number not in found and stage.numCompleteTasks():
                found[number] = group, stage.executorRunTime() / 1e3, stage.shuffleWriteBytes()
    return found


# ---------------------------------------------------------------- this process


def start(name: str, split_size: int) -> tuple[Contender, Callable[[], None]]:
    """Start a contender's process; return it with the function that ends it."""
    spawned = multiprocessing.get_context("spawn")
    ours, theirs = spawned.Pipe()
    process = spawned.Process(target=serve, args=(name, split_size, theirs))
    process.start()
    theirs.close()

    def ask(path: str) -> Round:
        ours.send(path)
        try:
            found: Round = ours.recv()
        except EOFError:
            raise SystemExit(f"bench_spark: {name} ended") from None
        return found

    def stop() -> None:
        with contextlib.suppress(OSError):
            ours.send(None)
        process.join()

    return Contender(name, ask), stop


def measure(path: Path, contenders: list[Contender], runs: int) -> str:
    """Run all contenders on one capture; return a table in Markdown."""
    for contender in contenders:
        contender.rounds.clear()
        print(f"bench_spark: {contender.name}, not counted: {contender.ask(str(path)).seconds:.1f} s", file=sys.stderr)
    for number in range(runs):
        for contender in contenders:
            contender.rounds.append(contender.ask(str(path)))
        load = os.getloadavg()[0]
        print(f"bench_spark: round {number + 1} of {runs} done, load {load:.1f}", file=sys.stderr)
    if len({r.exchanges for c in contenders for r in c.rounds}) != 1:
        raise SystemExit("bench_spark: the contenders do not agree on how many exchanges there are")
    return table(contenders, path.name, path.stat().st_size, runs)


def table(contenders: list[Contender], name: str, size: int, runs: int) -> str:
    """The result in Markdown. Ratios are of medians."""
    median = {c.name: c.median("seconds") for c in contenders}
    one = median.get(MASTERS[0])
    lines = [
        f"{name}: {size / 1e6:,.0f} MB, {contenders[0].rounds[0].exchanges:,} exchanges; median of {runs} interleaved "
        f"runs (fastest to slowest), warm; load at the end {os.getloadavg()[0]:.1f}; {os.cpu_count()} cores, "
        f"{cpu_name()}; Python {platform.python_version()}",
        "",
        "| | seconds | MB/s | local[1] takes | tasks: survey + decode, others | seams shuffled | Spark's shuffle |",
        "|---|---|---|---|---|---|---|",
    ]
    for c in contenders:
        seconds = median[c.name]
        whole = [r.seconds for r in c.rounds]
        beside = f"{one / seconds:.2f} times as long" if one is not None and c.name != MASTERS[0] else "-"
        tasks = seams = written = "-"
        if c.rounds[0].decode:
            each = [c.median(stage) / median[ONE_THREAD] for stage in ("survey", "decode", "others")]
            tasks = f"{each[0] + each[1]:.2f} ({each[0]:.2f} + {each[1]:.2f}), {each[2]:.2f}"
            seams, written = _share(c.median("seams"), size), _share(c.median("spark_bytes"), size)
        lines.append(
            f"| {c.name} | {seconds:.2f} ({min(whole):.2f} to {max(whole):.2f}) | {size / 1e6 / seconds:,.0f} | "
            f"{beside} | {tasks} | {seams} | {written} |"
        )
    return "\n".join(lines)


def _share(count: float, size: int) -> str:
    return f"{count / 1e6:,.1f} MB, {count / size:.2%}"


def main() -> int:
    parser = argparse.ArgumentParser(description="Time the Spark job beside the local engine.")
    parser.add_argument("capture", type=Path, help="a classic pcap")
    parser.add_argument("--large", type=int, default=0, metavar="N", help="also measure N copies of it in one file")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--split-size", default="64m", help="as of kafkatap spark (default 64m)")
    parser.add_argument("--masters", nargs="*", default=MASTERS, help=f"Spark masters (default {' '.join(MASTERS)})")
    options = parser.parse_args()
    from kafkatap.commands.values import parse_size

    split_size = parse_size(options.split_size)
    started = [start(name, split_size) for name in (LOCAL, ONE_THREAD, *options.masters)]
    contenders = [contender for contender, _ in started]
    try:
        print(measure(options.capture, contenders, options.runs), flush=True)
        if options.large > 1:
            with tempfile.TemporaryDirectory(prefix="kafkatap-bench-") as folder:
                path = Path(folder) / f"{options.capture.stem}-x{options.large}.pcap"
                script = Path(__file__).with_name("join_copies.py")
                join = [sys.executable, str(script), str(options.capture), str(options.large), str(path)]
                subprocess.run(join, check=True, stdout=subprocess.DEVNULL)
                print(f"\n{measure(path, contenders, options.runs)}", flush=True)
    finally:
        for _, stop in started:
            stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
