"""Simulate `kafkatap spark` on many cores, with constants that were measured on this machine.

    python benchmarks/simulate_cluster.py USUAL.pcap MANY.pcap [--cores 1000]

First it measures, in this process and without Spark: the survey and the decoding of both captures in splits, the plan
between them, and what the driver receives and sends. USUAL, in splits of 64 MiB, gives the time for each GB. MANY has
many connections in each split (`make_traffic.py steady`) and gives the time for each *flow-split*: one connection in
one split. Then it simulates jobs of other sizes:

    tasks start in order on the free cores, one every --dispatch ms, because the driver starts them one by one
    a task takes a fixed time, and a time for its bytes and flow-splits, times a lognormal factor (sigma --spread)
    the driver sends the inputs of tasks at --network MB/s
    between the two stages, the driver reads the surveys, plans, and writes the inputs, in one thread
    after them, it adds up the counts of all splits

The result is the time of each stage, and the share of the cores' time that goes into captures.
"""

from __future__ import annotations

import argparse
import heapq
import pickle
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from kafkatap.captures.packs import pack_splits
from kafkatap.captures.splits import plan_splits
from kafkatap.captures.storage import find
from kafkatap.commands.values import parse_size
from kafkatap.spark.executor import ResultsOf
from kafkatap.spark.output.writing import TableWriter
from kafkatap.splits.capture_ledgers import CaptureIndex
from kafkatap.splits.located_split import LocatedSplit
from kafkatap.splits.plan import Corrections, make_plan
from kafkatap.splits.run_options import RunOptions
from kafkatap.splits.surveys import Surveys
from kafkatap.splits.task_rows import DecodeGroup, SurveyInput, decode_inputs, dump, input_rows, results_of
from kafkatap.splits.tasks import DecodeTask, SurveyTask
from kafkatap.splits.two_passes import Proved

GB, EXECUTOR = 1e9, 16
#: The jobs that are simulated: (bytes, bytes of a split, connections in each split).
JOBS = (
    (1e12, 64 << 20, 100), (1e12, 256 << 20, 1_000), (1e12, 1 << 30, 1_000), (10e12, 256 << 20, 100),
    (10e12, 1 << 30, 1_000), (10e12, 1 << 30, 5_000),
)  # fmt: skip


@dataclass(slots=True)
class Constants:
    """Seconds of a core for each GB, flow-split and task, and of the driver for each flow-split; bytes for each."""

    splits: int = 0
    flows: int = 0
    survey_gb: float = 0.0
    decode_gb: float = 0.0
    survey_flow: float = 0.0
    decode_flow: float = 0.0
    survey_task: float = 0.01
    decode_task: float = 0.05
    receive: float = 0.0
    plan: float = 0.0
    send: float = 0.0
    survey_bytes: float = 0.0
    input_bytes: float = 0.0
    result_bytes: float = 0.0
    result_task: float = 0.0
    count: float = 0.0
    memory: float = 0.0
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        begin = time.process_time()
        yield
        self.seconds[name] = self.seconds.get(name, 0.0) + time.process_time() - begin


# ---------------------------------------------------------------- measured


def measure(capture: Path, split_size: int) -> Constants:
    """Run both stages here, and note what each part costs."""
    found = Constants()
    packs = pack_splits(plan_splits(find(str(capture)), split_size), split_size)
    surveys = Surveys([LocatedSplit(pack) for pack in packs], split_size)
    options = RunOptions()

    def survey(splits: list[int]) -> dict[int, Any]:
        function = ResultsOf.of(SurveyTask(options), "survey")
        rows = _a_task_each([SurveyInput(n, surveys.places[n]) for n in splits])
        with found.timed("survey"):
            batches = list(function(iter(rows.to_batches())))
        found.survey_bytes += sum(batch.nbytes for batch in batches)
        with found.timed("receive"):
            results = results_of(pa.Table.from_batches(batches))
            return {split: results[number] for number, split in enumerate(splits)}

    survey([0])  # fills caches
    found.seconds.clear()
    found.survey_bytes = 0.0
    surveys.run(survey)
    with found.timed("plan"):
        plan = make_plan(surveys.surveys, surveys.file_numbers, Corrections())
    with tempfile.TemporaryDirectory(prefix="kafkatap-bench-") as out:
        with found.timed("send"):
            index = CaptureIndex.of((file.first_packet, file.packets, file.capture) for file in surveys.files())
            task = DecodeTask(options, plan.topic_names, index, counting=True, sink=TableWriter(out, "run", index))
            function = ResultsOf.of(task, task.name)
            inputs = decode_inputs(plan, range(len(packs)), surveys.places)
            rows = _a_task_each([DecodeGroup((mine,)) for mine in inputs])
        with found.timed("decode"):
            batches = list(function(iter(rows.to_batches())))
    results = [result for [result] in results_of(pa.Table.from_batches(batches)).values()]
    with found.timed("add up"):
        Proved(plan, results, [result.counts for result in results]).total(options)
    found.splits, found.flows = len(packs), sum(len(s.flows) for s in surveys.surveys)
    gigabytes = sum(place.length for place in surveys.places) / GB
    found.survey_gb, found.decode_gb = found.seconds["survey"] / gigabytes, found.seconds["decode"] / gigabytes
    for name in ("receive", "plan", "send"):
        setattr(found, name, found.seconds[name] / found.flows)
    found.survey_bytes /= found.flows
    found.input_bytes = rows["input"].nbytes / found.flows
    found.result_bytes = sum(batch.nbytes for batch in batches) / found.flows
    found.count = found.seconds["add up"] / found.splits
    found.result_task = sum(batch.nbytes for batch in batches) / found.splits
    found.memory = _memory(surveys) / found.flows
    return found


def _a_task_each(inputs: Sequence[Any]) -> pa.Table:
    return input_rows(inputs, [range(n, n + 1) for n in range(len(inputs))])


def _memory(surveys: Surveys) -> int:
    """The most bytes that the driver has for the surveys, the plan and the inputs."""
    data, file_numbers = pickle.dumps(surveys.surveys), surveys.file_numbers
    tracemalloc.start()
    received = pickle.loads(data)
    plan = make_plan(received, file_numbers, Corrections())
    inputs = [dump(mine) for mine in decode_inputs(plan, range(len(received)), surveys.places)]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak + sum(map(len, inputs))


# ---------------------------------------------------------------- simulated


@dataclass(frozen=True, slots=True)
class Cluster:
    """`dispatch`: s between two starts of tasks. `network`: bytes/s from the driver. `spread`: sigma of task times."""

    cores: int
    dispatch: float
    network: float
    spread: float


def stage(
    tasks: int, seconds: float, fixed: float, sent: float, cluster: Cluster, random: np.random.Generator
) -> float:
    """The seconds of a stage of so many tasks, each with `seconds` of work and an input of `sent` bytes."""
    free = [0.0] * cluster.cores
    dispatch = max(cluster.dispatch, sent / cluster.network)
    factors = random.lognormal(-(cluster.spread**2) / 2, cluster.spread, tasks)
    last = 0.0
    for number, factor in enumerate(factors):
        start = max(heapq.heappop(free), number * dispatch)
        end = start + fixed + seconds * float(factor)
        heapq.heappush(free, end)
        last = max(last, end)
    return last


def simulated(c: Constants, total: float, split: int, flows: int, cluster: Cluster) -> str:
    """A row of the table: one job."""
    random = np.random.default_rng(1)
    tasks, gigabytes = max(round(total / split), 1), split / GB
    everything = tasks * flows
    of_survey = c.survey_gb * gigabytes + c.survey_flow * flows
    of_decode = c.decode_gb * gigabytes + c.decode_flow * flows
    survey = stage(tasks, of_survey, c.survey_task, 500, cluster, random)
    plan = everything * (c.receive + c.plan + c.send)
    inputs = everything * c.input_bytes
    decode = stage(tasks, of_decode, c.decode_task, inputs / tasks, cluster, random)
    work = tasks * (of_survey + of_decode + c.survey_task + c.decode_task)
    counts = tasks * c.count
    wall = survey + plan + decode + counts
    to_driver = everything * (c.survey_bytes + c.result_bytes) + tasks * c.result_task
    return (
        f"| {total / 1e12:g} TB, {split >> 20} MiB, {flows:,} connections | {tasks:,} | {work / 3600:.1f} | "
        f"{survey:.0f} | {plan:.0f} | {decode:.0f} | {counts:.0f} | {wall / 60:.1f} | "
        f"{work / wall / cluster.cores:.0%} | "
        f"{to_driver / GB:.1f} GB | {inputs / GB:.2f} GB | {everything * c.memory / GB:.1f} GB |"
    )


def measured_table(c: Constants, capture: Path, size: int) -> str:
    return "\n".join([
        f"Measured on {capture.name}: {size / 1e6:,.0f} MB, {c.splits:,} splits, {c.flows:,} flow-splits",
        "",
        "| | |",
        "|---|---|",
        f"| survey | {c.survey_gb:.1f} s per GB |",
        f"| decode and write | {c.decode_gb:.1f} s per GB |",
        f"| the driver, for a million flow-splits: receive surveys | {c.receive * 1e6:.1f} s |",
        f"| plan | {c.plan * 1e6:.1f} s |",
        f"| make inputs | {c.send * 1e6:.1f} s |",
        f"| the driver, for 1,000 splits: add up counts | {c.count * 1e3:.1f} s |",
        f"| survey, bytes to the driver per flow-split | {c.survey_bytes:,.0f} |",
        f"| input of a task, bytes per flow-split | {c.input_bytes:,.0f} |",
        f"| result of a task, bytes per flow-split | {c.result_bytes:,.0f} |",
        f"| result of a task, bytes per split | {c.result_task:,.0f} |",
        f"| memory of the driver per million flow-splits | {c.memory / 1e3:.2f} GB |",
    ])  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description="Simulate kafkatap spark on many cores.")
    parser.add_argument("usual", type=Path, help="a capture of usual traffic, some 100 MB")
    parser.add_argument("many", type=Path, help="a capture with many connections, as of make_traffic.py steady")
    parser.add_argument("--split-size", type=parse_size, default=8 << 20, help="of MANY (default 8m)")
    parser.add_argument("--cores", type=int, default=1_000)
    parser.add_argument("--dispatch", type=float, default=2.0, help="ms between two starts of tasks (default 2)")
    parser.add_argument("--network", type=float, default=200.0, help="MB/s from the driver (default 200)")
    parser.add_argument("--spread", type=float, default=0.3, help="sigma of the lognormal task times (default 0.3)")
    options = parser.parse_args()
    usual, found = measure(options.usual, 64 << 20), measure(options.many, options.split_size)
    for constants, path in ((usual, options.usual), (found, options.many)):
        print(measured_table(constants, path, path.stat().st_size) + "\n", flush=True)
    found.result_task, found.count = usual.result_task, usual.count
    gigabytes = options.many.stat().st_size / GB
    for name in ("survey", "decode"):
        of_gb = getattr(usual, f"{name}_gb")
        setattr(found, f"{name}_gb", of_gb)
        setattr(found, f"{name}_flow", max(found.seconds[name] - of_gb * gigabytes, 0.0) / found.flows)
    print(
        f"So a flow-split takes {found.survey_flow * 1e6:.0f} µs of a survey, and {found.decode_flow * 1e6:.0f} µs of"
    )
    print(f"decoding. Simulated, {options.cores:,} cores:\n")
    cluster = Cluster(options.cores, options.dispatch / 1e3, options.network * 1e6, options.spread)
    print(
        "| captures, split size, connections in a split | tasks | core hours | survey s | plan s | decode s | "
        "counts s | minutes | cores busy | to the driver | inputs | memory of the driver |"
    )
    print("|---|" + "---|" * 11)
    for total, split, flows in JOBS:
        print(simulated(found, total, split, flows, cluster), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
