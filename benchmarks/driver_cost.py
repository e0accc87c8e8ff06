"""What the driver of a job needs to add up the counts of its splits, and to report them.

    python benchmarks/driver_cost.py CAPTURE [--splits 100,300,1000] [--same-names]

The capture is decoded once, as a split. Its counts are then copied as those of many splits, each with clients, groups,
topics, addresses and connections of its own, which is the worst case; with --same-names all have those of the capture.
The driver's part is timed: it reads each result as tasks send it, adds up their counts or, in the second row, the sums
that tasks made of so many of them, and makes the report. Each row is a process of its own, for its memory.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time
from dataclasses import replace
from typing import Any

from kafkatap.captures.packs import pack_splits
from kafkatap.captures.splits import plan_splits
from kafkatap.captures.storage import find
from kafkatap.splits.capture_ledgers import CaptureIndex
from kafkatap.splits.located_split import LocatedSplit
from kafkatap.splits.plan import Corrections, make_plan
from kafkatap.splits.run_options import RunOptions
from kafkatap.splits.split_counts import SplitCounts, TotalCounts
from kafkatap.splits.surveys import Surveys
from kafkatap.splits.task_rows import DecodeGroup, SurveyInput, decode_inputs, dump, load
from kafkatap.splits.tasks import DecodeTask, SurveyTask
from kafkatap.splits.two_passes import MOST_COUNTS, Proved, report_of

GB = 1e9


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("capture")
    parser.add_argument("--splits", default="100,300,1000")
    parser.add_argument("--same-names", action="store_true")
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--sums", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one is not None:
        print(*_measured(options.capture, options.one, options.same_names, MOST_COUNTS if options.sums else 1))
        return
    print("| splits | added up by | to the driver, kB a split | read | add up | report | all, s | peak, GB |")
    print("|---:|---|---:|---:|---:|---:|---:|---:|")
    for count in map(int, options.splits.split(",")):
        for way, words in (([], "the driver"), (["--sums"], "tasks")):
            command = [sys.executable, __file__, options.capture, "--one", str(count), *way]
            command += ["--same-names"] if options.same_names else []
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            size, read, added, reported, peak = map(float, done.stdout.split())
            times = f"{read:.1f} | {added:.1f} | {reported:.1f} | {read + added + reported:.1f}"
            print(f"| {count:,} | {words} | {size:.1f} | {times} | {peak:.2f} |")


def _measured(capture: str, count: int, same: bool, together: int) -> tuple[float, ...]:
    """kB that the driver gets of each split; seconds for reading all, for adding up, and for the report; the process's
    peak, GB. `together`: splits whose counts a task adds up."""
    options, result, proved, files = _decoded(capture)
    total, read, added, size = TotalCounts(options), 0.0, 0.0, 0
    of_task = TotalCounts(options)
    for number in range(count):
        counts = result.counts if same else _renamed(result.counts, number)
        sent = [replace(result, counts=counts if together == 1 else "its name")]
        if together > 1:
            of_task.add(counts)
            if (number + 1) % together == 0 or number + 1 == count:
                sent.append(of_task.as_split())
                of_task = TotalCounts(options)
        for data in map(dump, sent):
            size += len(data)
            begin = time.process_time()
            found = load(data)
            there = time.process_time()
            found = found if isinstance(found, SplitCounts) else found.counts
            if isinstance(found, SplitCounts):
                total.add(found)
            read, added = read + there - begin, added + time.process_time() - there
    begin = time.process_time()
    total.end_connections()
    report_of(total, proved.context(files), options)
    reported = time.process_time() - begin
    return size / 1e3 / count, read, added, reported, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / GB


def _decoded(capture: str) -> tuple[RunOptions, Any, Proved, Any]:
    options = RunOptions()
    packs = pack_splits(plan_splits(find(capture), 0), 0)
    surveys = Surveys([LocatedSplit(pack) for pack in packs], 0)
    task = SurveyTask(options)
    surveys.run(lambda splits: {n: task(SurveyInput(n, surveys.places[n])) for n in splits})
    plan = make_plan(surveys.surveys, surveys.file_numbers, Corrections())
    files = surveys.files()
    index = CaptureIndex.of((file.first_packet, file.packets, file.capture) for file in files)
    decode = DecodeTask(options, plan.topic_names, index, counting=True)
    [result] = decode(DecodeGroup(tuple(decode_inputs(plan, range(len(packs)), surveys.places))))
    return options, result, Proved(plan, [result]), files


def _renamed(counts: SplitCounts, number: int) -> SplitCounts:
    """The counts with names of a split of their own."""
    strings = {n: None if text is None else b"%s-%d" % (text, number) for n, text in counts.strings.items()}
    high, low = divmod(number, 250)
    addresses = {n: f"10.{high % 250}.{low}.{n % 250}" for n in counts.addresses}
    return replace(counts, strings=strings, addresses=addresses)


if __name__ == "__main__":
    main()
