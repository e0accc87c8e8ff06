"""Simulate `kafkatap spark` on many cores, with constants that were measured on this machine.

    python benchmarks/simulate_cluster.py CAPTURE.pcap [--cores 1000] [--split-size 4m]

First it measures, in this process and without Spark: the survey and the decoding of CAPTURE in splits, the plan between
them, and what the driver receives and sends. A *flow-split* is one connection in one split. A capture with many
connections in each split is best (`make_traffic.py steady`). Then it simulates jobs of other sizes:

    tasks start in order on the free cores, one every --dispatch ms, because the driver starts them one by one
    a task takes a fixed time, and a time for its bytes, times a lognormal factor (sigma --spread): slow disks, neighbours
    every executor (16 cores) receives the inputs of all tasks once, at --network MB/s, before its first task
    between the two stages, the driver reads the surveys, plans, and writes the inputs, in one thread

The result is the time of each stage, and the share of the cores' time that goes into captures.
"""

from __future__ import annotations

import argparse
import heapq
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from kafkatap.captures.packs import pack_splits
from kafkatap.captures.splits import plan_splits
from kafkatap.captures.storage import find
from kafkatap.commands.values import parse_size
from kafkatap.spark.splits.located_split import LocatedSplit
from kafkatap.spark.splits.plan import Corrections, make_plan
from kafkatap.spark.splits.surveys import Surveys
from kafkatap.spark.splits.task_rows import ReadOptions, SurveyInput, decode_inputs, dump, result_batch, results_of
from kafkatap.spark.tasks import DecodeTask, SurveyTask

GB, EXECUTOR = 1e9, 16
#: The jobs that are simulated: (bytes, bytes of a split, connections in each split).
JOBS = (
    (1e12, 64 << 20, 100), (1e12, 256 << 20, 1_000), (1e12, 1 << 30, 1_000), (10e12, 256 << 20, 100),
    (10e12, 1 << 30, 1_000), (10e12, 1 << 30, 5_000),
)  # fmt: skip


@dataclass(slots=True)
class Constants:
    """Seconds of a core for each GB and each task, and of the driver for each flow-split; bytes for each flow-split."""

    splits: int = 0
    flows: int = 0
    survey_gb: float = 0.0
    decode_gb: float = 0.0
    survey_task: float = 0.01
    decode_task: float = 0.05
    receive: float = 0.0
    plan: float = 0.0
    send: float = 0.0
    survey_bytes: float = 0.0
    input_bytes: float = 0.0
    result_bytes: float = 0.0
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
    found, before = Constants(), _memory()
    packs = pack_splits(plan_splits(find(str(capture)), split_size), split_size)
    surveys = Surveys([LocatedSplit(pack) for pack in packs], split_size)
    options = ReadOptions()

    def survey(splits: list[int]) -> dict[int, Any]:
        inputs = tuple(dump(SurveyInput(number, surveys.places[number])) for number in splits)
        with found.timed("survey"):
            batches = list(SurveyTask(options, inputs)(iter([_numbers(len(inputs))])))
        found.survey_bytes += sum(batch.nbytes for batch in batches)
        with found.timed("receive"):
            return results_of(_table(batches))

    survey([0])  # fills caches
    found.seconds.clear()
    found.survey_bytes = 0
    surveys.run(survey)
    with found.timed("plan"):
        plan = make_plan(surveys.surveys, surveys.file_numbers, Corrections())
    with found.timed("send"):
        inputs = tuple(dump(mine) for mine in decode_inputs(plan, range(len(packs)), surveys.places))
    found.memory = _memory() - before
    with tempfile.TemporaryDirectory(prefix="kafkatap-bench-") as out, found.timed("decode"):
        batches = _decoded(options, inputs, dump(plan.topic_names), out)
    found.splits, found.flows = len(packs), sum(len(s.flows) for s in surveys.surveys)
    gigabytes = sum(place.length for place in surveys.places) / GB
    found.survey_gb, found.decode_gb = found.seconds["survey"] / gigabytes, found.seconds["decode"] / gigabytes
    for name in ("receive", "plan", "send"):
        setattr(found, name, found.seconds[name] / found.flows)
    found.survey_bytes /= found.flows
    found.input_bytes = sum(map(len, inputs)) / found.flows
    found.result_bytes = sum(batch.nbytes for batch in batches) / found.flows
    found.memory /= found.flows
    return found
