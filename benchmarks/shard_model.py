"""What a report would cost if connections were shared out to N engines, and what the interpreter's lock leaves of it.

    python benchmarks/shard_model.py CAPTURE [--engines 1 2 4 8] [--sections all] [--runs 5]

The capture is split by connection into N captures beforehand, which is not timed. Then N engines read one each: one
after the other in forked processes (what they cost in all), and in N threads of one process (how long these take, and
how much of the cost they share). In front of them a reader would have to look at each packet: `reader` is what reading
the file and finding its packets takes now, per byte. The source is a classic little-endian pcap with Ethernet and IPv4.

    wall(N) = start + max(reader, engines(N) * imbalance / cores)
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import struct
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from benchmarks.join_copies import HEADER, record_starts
from kafkatap.engine.engine import engine_for
from kafkatap.engine.read_options import ReadOptions
from kafkatap.engine.selection import Selection
from kafkatap.reports.counting.counts import ReportCounts
from kafkatap.reports.section_parts.registry import OVER_FACTS, counted_sections, needs_of
from kafkatap.run import Run


def split(source: Path, engines: int, folder: Path) -> tuple[list[Path], float]:
    """The capture as one for each engine, by the ends of connections, and the largest share of their bytes times N."""
    data = source.read_bytes()
    starts = record_starts(data)
    ends = np.append(starts[1:], len(data))
    raw = np.frombuffer(data, np.uint8)
    words = np.stack([raw[starts + 16 + 26 + i].astype(np.int64) for i in range(12)], axis=1)  # addresses and ports
    a = (words[:, :4] @ [1 << 24, 1 << 16, 1 << 8, 1]) * 65_536 + words[:, 8] * 256 + words[:, 9]
    b = (words[:, 4:8] @ [1 << 24, 1 << 16, 1 << 8, 1]) * 65_536 + words[:, 10] * 256 + words[:, 11]
    low, high = np.minimum(a, b), np.maximum(a, b)
    mixed = low.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= high.astype(np.uint64) * np.uint64(0xC2B2AE3D27D4EB4F)
    owner = ((mixed >> np.uint64(40)) % np.uint64(engines)).astype(np.int64)
    paths, sizes = [], []
    for engine in range(engines):
        mine = np.flatnonzero(owner == engine)
        path = folder / f"{engines}-{engine}.pcap"
        with path.open("wb") as file:
            file.write(data[:HEADER])
            for start, end in zip(starts[mine].tolist(), ends[mine].tolist(), strict=True):
                file.write(data[start:end])
        paths.append(path)
        sizes.append(path.stat().st_size)
    return paths, max(sizes) * engines / sum(sizes)


def count(path: Path, sections: Sequence[str] | None) -> None:
    """Count one capture, as `kafkatap report` does."""
    counted = tuple(OVER_FACTS) if sections == ["all"] else counted_sections(sections, 1 << 40)
    engine = engine_for(Selection(), ReadOptions(), **needs_of(counted)._asdict())
    run = Run([str(path)], engine, threaded=False)
    counts, made = ReportCounts(), engine.section_counts(counted)
    engine.on_connections(made.add_connections)
    for batch in run.batches():
        counts.add(batch)
        made.add(batch)
    made.finish()
    run.context()


def in_child(work: Callable[[], None]) -> tuple[float, float]:
    """(wall, processor) seconds of work in a forked process."""
    read, write = os.pipe()
    if not os.fork():
        begin, used = time.perf_counter(), time.process_time()
        work()
        os.write(write, struct.pack("dd", time.perf_counter() - begin, time.process_time() - used))
        os._exit(0)
    wall, cpu = struct.unpack("dd", os.read(read, 16))
    os.close(read)
    os.close(write)
    os.wait()
    return wall, cpu


def in_threads(paths: Sequence[Path], sections: Sequence[str] | None) -> None:
    threads = [threading.Thread(target=count, args=(path, sections)) for path in paths]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("capture", type=Path)
    parser.add_argument("--engines", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--sections", type=lambda text: text.split(","), default=None)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    count(options.capture, options.sections)  # imports, and pages in the cache
    rows: dict[int, list[tuple[float, float, float]]] = {n: [] for n in options.engines}
    with tempfile.TemporaryDirectory() as folder:
        parts = {n: split(options.capture, n, Path(folder)) for n in options.engines}
        for _ in range(options.runs):
            for n, (paths, _) in parts.items():
                alone = [in_child(lambda path=path: count(path, options.sections))[1] for path in paths]
                wall, cpu = in_child(lambda paths=paths: in_threads(paths, options.sections))
                rows[n].append((sum(alone), cpu, wall))
    one = statistics.median(row[0] for row in rows[options.engines[0]])
    print("| engines | in processes, CPU s | times one | in threads, CPU s | wall s | imbalance |")
    print("|---:|---:|---:|---:|---:|---:|")
    for n, found in rows.items():
        alone, cpu, wall = (statistics.median(row[i] for row in found) for i in range(3))
        print(f"| {n} | {alone:.2f} | {alone / one:.2f} | {cpu:.2f} | {wall:.2f} | {parts[n][1]:.2f} |")
    print(f"peak memory {resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss >> 10} MiB")


if __name__ == "__main__":
    main()
