"""Measure `kafkatap spark`: processor time by kind of process, beside the local engine and beside an empty Spark job.

    python benchmarks/bench_spark.py CAPTURE.pcap [--inputs sample one four eight files] [--runs 3] [--folder DIR]

Each run is a whole process from its start to the end of its last child, because start-up is part of the cost. The
contenders take turns, and the tables show medians. They are, for each input:

* `local`: `kafkatap report --parquet DIR`
* `sections`: the same with `--sections all`, which a job counts, too, for each capture and hour
* `empty`: `spark.range(10).mapInArrow(identity)` in a session with the settings of the command, on each master
* `spark`: `kafkatap spark -o DIR`, on each master

Inputs: `sample` (60 KB, compressed), `one` (CAPTURE), `four` and `eight` (joined copies of it, join_copies.py),
`files` (the bytes of `eight` in 2,000 files), `steady` (1,000 connections that all go through all splits) and `skewed`
(one connection with 90 % of the bytes; make_traffic.py). They are made in DIR once (11 GB with a CAPTURE of 321 MB).

Processor time is user and system time of each process, read from /proc ten times a second until it ends. Processes are
of three kinds: Java, Python workers, and the driver with everything else. One more run, not timed, has Spark's event
log. It gives the seconds of tasks by stage, the bytes shuffled, and the bytes of results to the driver.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from bench_report import cpu_name
from join_copies import HEADER, join, record_starts

HERE = Path(__file__).resolve().parent
SAMPLE = HERE.parent / "samples" / "apache-0.8.2.pcap.zst"
INPUTS = ("sample", "one", "four", "eight", "files")
KINDS = ("java", "workers", "driver")
FILES = 2_000
#: The contenders that are local engines.
LOCAL = 2
TICK = os.sysconf("SC_CLK_TCK")
EMPTY = """\
import sys
from kafkatap.spark.cluster.session import open_session

def identity(batches):
    yield from batches

spark = open_session(sys.argv[1], for_jobs=True)
spark.range(10).mapInArrow(identity, "id long").toArrow()
spark.stop()
"""


@dataclass(frozen=True, slots=True)
class Usage:
    """Seconds of one run: wall time, and processor time by kind of process."""

    wall: float
    java: float = 0.0
    workers: float = 0.0
    driver: float = 0.0

    @property
    def all(self) -> float:
        return self.java + self.workers + self.driver


@dataclass(slots=True)
class Contender:
    name: str
    command: list[str]
    runs: list[Usage] = field(default_factory=list)

    def median(self, what: str) -> float:
        return float(statistics.median(getattr(usage, what) for usage in self.runs))


# ---------------------------------------------------------------- processor time


class Processes:
    """The processor time of all processes of a session (of the kernel), also of those that have ended."""

    def __init__(self, leader: int) -> None:
        self._leader = leader
        self._seen: dict[int, tuple[str, float]] = {}

    def look(self) -> int:
        """Read the times of the processes that run; return how many run."""
        running = 0
        for entry in os.scandir("/proc"):
            if not entry.name.isdigit():
                continue
            try:
                with open(f"/proc/{entry.name}/stat") as file:
                    name, _, rest = file.read().rpartition(")")
                fields = rest.split()
                if int(fields[3]) != self._leader or fields[0] == "Z":
                    continue
                pid = int(entry.name)
                kind = self._kind(pid, name.partition("(")[2])
                self._seen[pid] = kind, (int(fields[11]) + int(fields[12])) / TICK
                running += 1
            except (OSError, IndexError):  # it has just ended
                continue
        return running

    def _kind(self, pid: int, name: str) -> str:
        if name == "java":
            return "java"
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            command = file.read()
        if not command:  # it is ending
            return self._seen.get(pid, ("driver", 0.0))[0]
        return "workers" if b"pyspark.daemon" in command else "driver"

    def times(self) -> dict[str, float]:
        """Seconds by kind."""
        found: dict[str, float] = defaultdict(float)
        for kind, seconds in self._seen.values():
            found[kind] += seconds
        return found


def run(command: Sequence[str], every: float = 0.1) -> Usage:
    """Run a command until the last process of its session has ended."""
    with tempfile.TemporaryFile() as errors:
        started = time.perf_counter()
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors, start_new_session=True
        )
        processes, ended = Processes(process.pid), threading.Event()

        def watch() -> None:
            while processes.look() or not ended.is_set():
                time.sleep(every)

        watcher = threading.Thread(target=watch)
        watcher.start()
        code = process.wait()
        wall = time.perf_counter() - started
        ended.set()
        watcher.join()
        if code not in (0, 1):  # 1: the capture is damaged
            errors.seek(0)
            raise SystemExit(f"bench_spark: {' '.join(command)} ended with {code}:\n{errors.read().decode()[-2000:]}")
    return Usage(wall, **processes.times())


# ---------------------------------------------------------------- Spark's own figures


@dataclass(slots=True)
class Logged:
    """The figures of an event log: `seconds` of tasks by stage, bytes and tasks."""

    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    jobs: int = 0
    tasks: int = 0
    shuffled: int = 0
    to_driver: int = 0


def read_event_log(folder: Path) -> Logged:
    """Add up the tasks of an event log. Jobs are named by their description, `kafkatap decode: 39 tasks`."""
    found = Logged()
    names: dict[Any, str] = {}
    for path in (p for p in folder.rglob("*") if p.is_file()):
        for line in path.read_text().splitlines():
            event: dict[str, Any] = json.loads(line)
            if event["Event"] == "SparkListenerJobStart":
                found.jobs += 1
                described = event.get("Properties", {}).get("spark.job.description") or "other"
                names |= dict.fromkeys(event["Stage IDs"], described.partition(":")[0].removeprefix("kafkatap "))
            elif event["Event"] == "SparkListenerTaskEnd" and event.get("Task Metrics"):
                metrics = event["Task Metrics"]
                found.tasks += 1
                found.seconds[names.get(event["Stage ID"], "other")] += metrics["Executor Run Time"] / 1e3
                found.shuffled += metrics["Shuffle Write Metrics"]["Shuffle Bytes Written"]
                found.to_driver += metrics["Result Size"]
    return found


def logged(command: Sequence[str]) -> Logged:
    with tempfile.TemporaryDirectory(prefix="kafkatap-bench-") as folder:
        log = {"enabled": "true", "dir": f"file://{folder}", "compress": "false", "rolling.enabled": "false"}
        run([*command, *(part for key, value in log.items() for part in ("--conf", f"spark.eventLog.{key}={value}"))])
        return read_event_log(Path(folder))


# ---------------------------------------------------------------- inputs


def make_input(name: str, capture: Path, folder: Path) -> tuple[Path, int]:
    """The capture, or the folder of captures, that an input is; and its bytes."""
    if name == "sample":
        return SAMPLE, SAMPLE.stat().st_size
    if name == "one":
        return capture, capture.stat().st_size
    path = folder / (name if name == "files" else f"{name}.pcap")
    if not path.exists():
        print(f"bench_spark: making {path}", file=sys.stderr)
        new = folder / f"new-{path.name}"
        if name in ("four", "eight"):
            join(capture, {"four": 4, "eight": 8}[name], new)
        elif name == "files":
            cut(make_input("eight", capture, folder)[0], FILES, new)
        else:
            heavy = ["--heavy", "1000000"] if name == "skewed" else []
            count = ["--count", "75", "--requests", "500"] if heavy else ["--count", "1000", "--requests", "300"]
            subprocess.run(
                [sys.executable, str(HERE / "make_traffic.py"), "steady", str(new), *count, *heavy], check=True
            )
        new.rename(path)
    files = list(path.iterdir()) if path.is_dir() else [path]
    return path, sum(file.stat().st_size for file in files)


def cut(source: Path, count: int, folder: Path) -> None:
    """Cut a capture into `count` files of about the same size."""
    data = source.read_bytes()
    starts = record_starts(data)
    folder.mkdir()
    bounds = [int(starts[len(starts) * number // count]) for number in range(count)] + [len(data)]
    for number, (begin, end) in enumerate(pairwise(bounds)):
        (folder / f"traffic-{number:05d}.pcap").write_bytes(data[:HEADER] + data[begin:end])


# ---------------------------------------------------------------- measuring


def contenders_of(path: Path, masters: Sequence[str], out: Path) -> list[Contender]:
    python = [sys.executable, "-m", "kafkatap"]
    captures = str(path)
    report = [*python, "report", captures, "--no-progress", "--parquet"]
    found = [
        Contender("local", [*report, str(out / "local")]),
        Contender("sections", [*report, str(out / "sections"), "--sections", "all"]),
    ]
    for number, master in enumerate(masters):
        found.append(Contender(f"empty, {master}", [sys.executable, "-c", EMPTY, master]))
        job = [*python, "spark", captures, "-o", str(out / f"tables-{number}"), "--master", master, "--no-progress"]
        found.append(Contender(f"spark, {master}", job))
    return found


def measure(path: Path, size: int, masters: Sequence[str], runs: int, name: str) -> str:
    """Run all contenders on one input; return tables in Markdown."""
    with tempfile.TemporaryDirectory(prefix="kafkatap-bench-") as folder:
        found = contenders_of(path, masters, Path(folder))
        log = logged(found[LOCAL + 1].command)  # not timed: it also fills caches
        for number in range(runs):
            for contender in found:
                contender.runs.append(run(contender.command))
            load = os.getloadavg()[0]
            print(f"bench_spark: {name}: round {number + 1} of {runs} done, load {load:.1f}", file=sys.stderr)
    return "\n\n".join([heading(name, size, runs), usage_table(found), ratios(found, masters), figures(log, size)])


def heading(name: str, size: int, runs: int) -> str:
    return (
        f"**{name}**: {size / 1e6:,.1f} MB; medians of {runs} runs in turns; load at the end {os.getloadavg()[0]:.1f}; "
        f"{os.cpu_count()} cores, {cpu_name()}; Python {platform.python_version()}"
    )


def usage_table(found: Sequence[Contender]) -> str:
    lines = ["| processor seconds | Java | workers | driver | all | wall |", "|---|---|---|---|---|---|"]
    for contender in found:
        times = " | ".join(f"{contender.median(what):.1f}" for what in (*KINDS, "all", "wall"))
        lines.append(f"| {contender.name} | {times} |")
    return "\n".join(lines)


def ratios(found: Sequence[Contender], masters: Sequence[str]) -> str:
    """The ratios that docs/contributors/scale.md promises: of processor time beyond the empty job, and of wall time."""
    local, sections = (contender.median("all") for contender in found[:LOCAL])
    lines, walls = [], []
    for number, master in enumerate(masters):
        empty, job = found[LOCAL + 2 * number : LOCAL + 2 + 2 * number]
        beyond = job.median("all") - empty.median("all")
        walls.append(job.median("wall") - empty.median("wall"))
        lines.append(
            f"* {master}: processor time less the empty job, to the local engine: {beyond / local:.2f} (target 1.6 at "
            f"1.3 GB), with all sections: {beyond / sections:.2f}; to the empty job: "
            f"{job.median('all') / empty.median('all'):.2f} (target 1.3 for the sample)"
        )
    for master, wall in list(zip(masters, walls, strict=True))[1:]:
        ratio = walls[0] / wall if wall > 0 else float("nan")
        lines.append(
            f"* {masters[0]} takes {ratio:.2f} times as long as {master}, each less its empty job (target 1.6)"
        )
    return "\n".join(lines)


def figures(log: Logged, size: int) -> str:
    stages = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in log.seconds.items())
    return (
        f"* Spark's event log: {log.jobs} jobs, {log.tasks:,} tasks ({stages}), {_share(log.shuffled, size)} shuffled, "
        f"{_share(log.to_driver, size)} of results to the driver"
    )


def _share(count: int, size: int) -> str:
    return f"{count / 1e6:,.2f} MB ({count / size:.2%})"


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure kafkatap spark beside the local engine and an empty job.")
    parser.add_argument("capture", type=Path, help="a classic pcap with Ethernet")
    parser.add_argument("--inputs", nargs="+", default=INPUTS, choices=(*INPUTS, "steady", "skewed"))
    parser.add_argument("--masters", nargs="+", default=["local[1]", "local[2]"])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="where inputs are made and kept (default: a temporary folder)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kafkatap-bench-") as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(exist_ok=True)
        for name in options.inputs:
            path, size = make_input(name, options.capture, folder)
            print(measure(path, size, options.masters, options.runs, name), end="\n\n", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
