"""Measure the driver's part of a job: surveys of many splits read, planned, and made inputs of tasks.

    python benchmarks/plan_cost.py [--flow-splits 10000 100000 1000000] [--flows 500]

The surveys are synthetic: each split has `--flows` connections that continue from the split before it, and a tenth as
many that begin in it. A flow-split is one connection in one split. The table is in Markdown, for
docs/contributors/scale.md.

* *read*: decompress and unpickle the surveys
* *plan*: `make_plan`
* *inputs*: pickle and compress the inputs of all tasks
* *proof*: compare the claims and arrivals of all splits
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import time
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from kafkatap.captures.capture_reader import FileReport
from kafkatap.captures.pack_reader import FileRead
from kafkatap.captures.splits import Split
from kafkatap.dissector.framing.connections import PROTOCOL_KAFKA
from kafkatap.splits.decode import Outcome
from kafkatap.splits.flow_rows import FLOW_KEY, FLOW_ROW, STATE_ROW, FlowStates
from kafkatap.splits.located_split import LocatedSplit
from kafkatap.splits.plan import Corrections, Plan, make_plan
from kafkatap.splits.proof import compare
from kafkatap.splits.survey import SplitSurvey
from kafkatap.splits.task_rows import decode_inputs, dump, load

#: Packets of a synthetic split, and its bytes.
_PACKETS, _BYTES = 50_000, 64 << 20
_STRINGS = [b"a-client-%03d" % n for n in range(100)]


def survey_of(split: int, flows: int) -> SplitSurvey:
    """The survey of one split: connections of all splits, and some that begin here."""
    long, new = flows, flows // 10
    random = np.random.default_rng(split)
    rows = np.zeros(long + new, FLOW_ROW)
    rows["flow"] = _keys([*range(long), *(10**9 + split * new + n for n in range(new))])
    rows["first"] = split * 10**9 + random.integers(0, 10**8, len(rows))
    rows["last"] = rows["first"] + 9 * 10**8
    rows["head"] = random.integers(1, _PACKETS // 20, len(rows))
    rows["serial"] = random.integers(1, _PACKETS, len(rows))
    rows["key"] = random.integers(1, 2**62, len(rows))
    rows["base_seq_a"], rows["base_seq_b"] = random.integers(0, 2**32, (2, len(rows)))
    rows["client_id"] = random.integers(0, len(_STRINGS), len(rows))
    for name in ("software", "software_version", "mechanism"):
        rows[name] = -1
    rows["protocol"] = PROTOCOL_KAFKA
    rows["opened"][long:] = True
    report = FileReport("capture.pcap", packets=_PACKETS)
    return SplitSurvey(split, [FileRead(report, 1)], rows=rows, strings=list(_STRINGS), listeners=[[]])


def _keys(numbers: list[int]) -> np.ndarray:
    words = np.zeros((len(numbers), 5), np.uint64)
    words[:, 1] = numbers
    words[:, 3], words[:, 4] = 0xFFFF0A000001, 9092 << 32
    return words.reshape(-1).view(FLOW_KEY)


def outcomes_of(plan: Plan) -> list[Outcome]:
    """Outcomes whose claims all equal the arrivals."""
    found = []
    for task in plan.tasks:
        primed = task.shared.flows[task.shared.flows["is_primed"]]
        claims, arrivals = np.zeros(len(primed), STATE_ROW), np.zeros(len(task.shared.next), STATE_ROW)
        claims["flow"], claims["split"] = primed["flow"], task.split
        arrivals["flow"], arrivals["split"] = task.shared.next["flow"], task.shared.next["split"]
        found.append(Outcome(task.split, FlowStates(claims), FlowStates(arrivals)))
    return found


def measure(flow_splits: int, flows: int) -> list[str]:
    """One row of the table."""
    splits = max(1, round(flow_splits / (flows + flows // 10)))
    dumped = [dump(survey_of(split, flows)) for split in range(splits)]
    places = [
        LocatedSplit((Split("capture.pcap", n * _BYTES, (n + 1) * _BYTES, number=n, size=splits * _BYTES),))
        for n in range(splits)
    ]
    at_first, times = _memory(), [time.process_time()]
    surveys = [load(each) for each in dumped]
    times.append(time.process_time())
    plan = make_plan(surveys, [(0,)] * splits)
    times.append(time.process_time())
    inputs = [dump(each) for each in decode_inputs(plan, range(splits), places)]
    times.append(time.process_time())
    most = _memory()
    outcomes = outcomes_of(plan)
    started = time.process_time()
    assert compare(outcomes, plan.topic_names, Corrections()) is None
    proof = time.process_time() - started
    spent = [*(b - a for a, b in pairwise(times)), proof]
    total = sum(len(survey.rows) for survey in surveys)
    return [
        f"{total:,}", f"{splits:,}", *(f"{each:.2f} s" for each in spent), f"{sum(spent):.2f} s",
        f"{sum(map(len, dumped)) / total:.0f} B", f"{sum(map(len, inputs)) / total:.0f} B",
        f"{(most - at_first) / 1e6:,.0f} MB",
    ]  # fmt: skip


def _memory() -> int:
    """The most memory that this process has used, bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--flow-splits", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--flows", type=int, default=500, help="connections in each split")
    options = parser.parse_args()
    names = ("flow-splits", "splits", "read", "plan", "inputs", "proof", "all", "survey", "input", "memory")
    print("|".join(("", *(f" {name} " for name in names), "")))
    print("|---" * len(names) + "|")
    for flow_splits in options.flow_splits:
        with get_context("spawn").Pool(1) as pool:  # memory is that of one measurement
            row = pool.apply(measure, (flow_splits, options.flows))
        print("|".join(("", *(f" {each} " for each in row), "")), flush=True)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
