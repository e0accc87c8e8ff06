"""The state of a stream and the time of its batches, over many batches.

    python benchmarks/stream_state.py CAPTURE.pcap[.zst] [--files 100] [--every 10]

Cuts a classic pcap into files of the same number of packets. Then it reads one file in each batch, in this process and
without Spark, and at the end `finish_stream`. It prints the processor time of a batch (median of the last ones), the
bytes of the saved
state (compressed), and what it has: open flows, bytes of their packets, rows of open connections, and of sums.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path

import numpy as np

from kafkatap.captures.identity import capture_head
from kafkatap.spark.arrival_log import Arrival, ArrivalLog
from kafkatap.spark.stream import StreamOptions, advance, finish_stream
from kafkatap.spark.stream_state import StateFolder
from kafkatap.splits.run_options import RunOptions

sys.path.insert(0, str(Path(__file__).parent.parent))
from tests.support.captures import PcapRecords


def cut(source: str, folder: Path, count: int) -> list[Arrival]:
    """The captures, in order."""
    records = PcapRecords(source)
    bounds = np.linspace(0, len(records), count + 1).astype(int).tolist()
    made = []
    for n, (first, last) in enumerate(pairwise(bounds)):
        path = folder / f"{n:05d}.pcap"
        path.write_bytes(records.slice(first, last))
        made.append(Arrival(str(path), path.stat().st_size, n, capture_head(str(path)).identity, n, 0))
    return made


def measure(source: str, files: int, every: int) -> None:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        captures = cut(source, folder, files)
        print(f"{source}: {sum(c.size for c in captures):,} bytes in {files} files")
        options = StreamOptions(str(folder / "out"), str(folder / "checkpoint"), reading=RunOptions())
        states, log = StateFolder(options.checkpoint), ArrivalLog(options.checkpoint)
        print("| batch | CPU s | state | open flows | their packets | open connections | groups | connections |")
        print("|---|---|---|---|---|---|---|---|")
        times = []
        for batch, capture in enumerate(captures):
            log.write_plan(batch, [capture])
            start = time.process_time()
            advance(None, [capture], batch, options)
            times.append(time.process_time() - start)
            if batch % every == every - 1 or batch == 0:
                _print(batch, times[-every:], states)
            log.fold(batch)
        start = time.process_time()
        finish_stream(None, options)
        print(f"finish: {time.process_time() - start:.2f} s")


def _print(batch: int, times: list[float], states: StateFolder) -> None:
    state = states.last()
    assert state is not None
    after, sums = state.checkpoint, state.checkpoint.sums
    assert sums.counts is not None
    counted = sums.counts.connections.table.value_rows()[:, 0].sum()
    rows = [len(sums.counts.shared), len(sums.counts.report.groups), int(counted)]
    size = list(states.sizes().values())[-1]
    columns = (batch + 1, f"{np.median(times):.2f}", f"{size:,}", len(after.flows), f"{after.size:,}", *rows)
    print("| " + " | ".join(map(str, columns)) + " |", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("capture")
    parser.add_argument("--files", type=int, default=100)
    parser.add_argument("--every", type=int, default=10)
    given = parser.parse_args()
    measure(given.capture, given.files, given.every)
