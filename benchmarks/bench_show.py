"""Time `kafkatap show` and `kafkatap records` beside `kafkatap report` on the same file; print a table for the README.

    python benchmarks/bench_show.py CAPTURE [--runs 5]

Each run is a whole process with its output to /dev/null and a warm page cache. The contenders take turns; the table
shows medians. The time of the first line is from the process's start until the line can be read.
"""

from __future__ import annotations

import argparse
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bench_report import MIB, Contender, Usage, run_child, run_rounds


def first_line(command: list[str]) -> Usage:
    """Seconds until a command prints its first line. The command is then terminated."""
    started = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as child:
        assert child.stdout is not None
        line = child.stdout.readline()
        seconds = time.perf_counter() - started
        child.terminate()
    if not line:
        raise SystemExit(f"{shlex.join(command)} printed nothing")
    return Usage(seconds, 0.0, 0)


def contenders(command: list[str], path: str, folder: str) -> list[Contender]:
    """The commands to time. The others are compared with the first."""

    def whole(*words: str) -> Callable[[], Usage]:
        return lambda: run_child([*command, *words, path])

    return [
        Contender("report", whole("report")),
        Contender("report, a filter on latency", whole("report", "-f", "latency > 50ms")),
        Contender("show, until the first line", lambda: first_line([*command, "show", path])),
        Contender("show, a filter that nothing matches", whole("show", "-f", 'client == "nobody"')),
        Contender("show, the same on topics", whole("show", "-f", 'topic ~ "no such topic"')),
        Contender("show, all lines", whole("show")),
        Contender("show --tree, 10,000 messages", whole("show", "--tree", "-n", "10000")),
        Contender("show --json, 10,000 messages", whole("show", "--json", "-n", "10000")),
        Contender("records to Parquet", whole("records", "-o", f"{folder}/records.parquet")),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description="Time kafkatap show and records beside kafkatap report.")
    parser.add_argument("capture", type=Path)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--kafkatap", default=f"{sys.executable} -m kafkatap", help="the command, if it is another")
    options = parser.parse_args()
    command = shlex.split(options.kafkatap)
    with tempfile.TemporaryDirectory() as folder:
        rows = contenders(command, str(options.capture), folder)
        rows[0].run()
        run_rounds(rows, options.runs)
    ours = statistics.median(rows[0].seconds)
    print(f"{options.capture.name}: {options.capture.stat().st_size / 1e6:,.0f} MB, median of {options.runs} runs\n")
    print("| whole process | wall time | beside report | peak memory |\n|---|---|---|---|")
    for row in rows:
        middle = statistics.median(row.seconds)
        peak_text = f"{row.peak_bytes / MIB:,.0f} MiB" if row.peak_bytes else "-"
        print(f"| {row.name} | {middle:.2f} s | {middle / ours:.1f} | {peak_text} |")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
