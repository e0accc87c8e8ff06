"""Time and memory of `kafkatap report` under busy or hostile traffic; print tables.

    python benchmarks/bench_busy.py [--runs 3] [--scale 1.0] [--only hosts,frames,connections,gaps]

make_traffic.py writes the captures into a temporary folder. Each run is a whole process with its output to /dev/null;
the first is not counted. The tables show medians of wall time and processor time, and the largest resident size.

hosts        240,000 requests on 4,000 connections of 1 to 8 hosts with sequential ports. The hosts' addresses are lower
             or higher than the broker's. The cost is flat where flows spread over their hash table
frames       one Produce request of 10 to 600 MB, and six of 50 MB at the same time
connections  a million that end, a million that do not, a million SYNs
gaps         10,000 connections that wait for a missing segment, with 60 kB behind it each
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

MAKE = Path(__file__).with_name("make_traffic.py")
Case = tuple[str, list[str]]  #: its name, and the arguments of make_traffic.py


def hosts(scale: float) -> Iterator[Case]:
    count = str(int(4_000 * scale))
    for number in (1, 2, 4, 8):
        for side in ("low", "high"):
            talk = ["--count", count, "--requests", "60", "--hosts", str(number), "--clients", side]
            yield f"{number} host{'s' if number > 1 else ''}, {side}er than the broker", ["connections", *talk]


def frames(scale: float) -> Iterator[Case]:
    for size in (10, 50, 100, 600):
        yield f"{size} MB", ["produce", "--megabytes", str(max(1, int(size * scale)))]
    yield "6 x 50 MB at once", ["produce", "--megabytes", str(max(1, int(50 * scale))), "--interleaved", "6"]


def connections(scale: float) -> Iterator[Case]:
    for count in (100_000, 300_000, 1_000_000):
        number = str(int(count * scale))
        yield f"{count:,} that end", ["connections", "--count", number, "--hosts", "64", "--fin"]
        yield f"{count:,} that do not", ["connections", "--count", number, "--hosts", "64"]
    yield "1,000,000 SYNs", ["syns", "--count", str(int(1_000_000 * scale)), "--hosts", "64"]


def gaps(scale: float) -> Iterator[Case]:
    yield "10,000 x 60 kB", ["gaps", "--count", str(int(10_000 * scale))]


SECTIONS = {"hosts": hosts, "frames": frames, "connections": connections, "gaps": gaps}


def run_report(path: Path) -> tuple[float, float, int]:
    """Wall seconds, processor seconds and peak resident bytes of one report."""
    command = [sys.executable, "-m", "kafkatap", "report", str(path)]
    with open(os.devnull, "r+b") as null:
        actions = [(os.POSIX_SPAWN_DUP2, null.fileno(), number) for number in range(3)]
        started = time.perf_counter()
        child = os.posix_spawn(command[0], command, os.environ, file_actions=actions)
        _, status, usage = os.wait4(child, 0)
        seconds = time.perf_counter() - started
    if os.waitstatus_to_exitcode(status) not in (0, 1):
        raise SystemExit(f"{' '.join(command)} failed")
    return seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0, help="size of the captures, relative to those above")
    parser.add_argument("--only", default=",".join(SECTIONS))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.pcap"
        for section in options.only.split(","):
            print(f"\n| {section} | capture | wall | CPU | peak memory |\n|---|---|---|---|---|")
            for name, made in SECTIONS[section](options.scale):
                subprocess.run([sys.executable, str(MAKE), made[0], str(path), *made[1:]], check=True)
                run_report(path)
                runs = [run_report(path) for _ in range(options.runs)]
                wall, cpu = (statistics.median(run[n] for run in runs) for n in (0, 1))
                size = path.stat().st_size / 1e6
                memory = max(run[2] for run in runs) / (1 << 20)
                print(f"| {name} | {size:,.0f} MB | {wall:.2f} s | {cpu:.2f} s | {memory:,.0f} MiB |", flush=True)


if __name__ == "__main__":
    main()
