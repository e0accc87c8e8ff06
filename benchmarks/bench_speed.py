"""Time kafkatap beside a plain read, tshark, zstd and `import numpy`; print each ratio beside what it should be.

    python benchmarks/bench_speed.py CAPTURE [--ports 9092,9093] [--copies 7] [--runs 5] [--only jobs]
    TSHARK="chroot /srv/newer tshark" python benchmarks/bench_speed.py CAPTURE

Each run is a whole process with its output to /dev/null and a warm page cache (`bench_report`). All take turns, and the
ratios are those of medians, of wall time or of processor time. CAPTURE is the small capture. `join_copies.py` joins
--copies copies of it to the large one. tshark prints one line for each packet. Without tshark or zstd, their rows are
missing. --only measures the rows whose text contains a word.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import platform
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from bench_report import (
    Contender,
    Usage,
    cpu_name,
    path_for,
    ports_of,
    read_plainly,
    run_child,
    run_rounds,
    tshark_version,
)

SAMPLE = Path(__file__).resolve().parent.parent / "samples" / "apache-4.3.pcap.zst"
COUNTING = "latency,throttle,errors"
MODULES = """
import os, sys
before = set(sys.modules)
from kafkatap.__main__ import main
sys.stdout = open(os.devnull, "w")
main(["report", sys.argv[1]])
print(len(sys.modules) - len(before), file=sys.stderr)
"""


class Ratio(NamedTuple):
    """A row of the table: one contender to another. `by`: "wall" or "processor". `target`: at most, or with `is_least`
    at least, so much."""

    what: str
    one: str
    other: str
    by: str
    target: float
    is_least: bool = False

    def of(self, found: dict[str, Contender]) -> float:
        one, other = (_middle(found[name], self.by) for name in (self.one, self.other))
        return one / other


RATIOS = (
    Ratio("report, large, to a plain read", "report, large", "read, large", "wall", 2.5),
    Ratio(f"report --sections {COUNTING}, large, to a plain read", "counting, large", "read, large", "wall", 2),
    Ratio("tshark to report, small", "tshark", "report, small", "wall", 35, is_least=True),
    Ratio("--sections all, large, to a plain read", "all, large", "read, large", "wall", 6),
    Ratio("--sections all to report, large", "all, large", "report, large", "processor", 3),
    Ratio("--sections all to report, small", "all, small", "report, small", "processor", 3),
    Ratio("--parquet to report, small", "parquet, small", "report, small", "processor", 2),
    Ratio("report of .zst to zstd -dc, large", "report, .zst", "zstd -dc", "wall", 1.3),
    Ratio("report of a sample to import numpy", "report, sample", "import numpy", "processor", 1.4),
    Ratio("show to tshark, a line each, small", "show, small", "tshark", "processor", 0.4),
    Ratio("--jobs 2 to one process, large", "--jobs 2", "report, large", "wall", 0.7),
    Ratio("--jobs 2 to one process, large", "--jobs 2", "report, large", "processor", 1.15),
    Ratio("--jobs 4 to one process, large", "--jobs 4", "report, large", "processor", 1.2),
    Ratio("--jobs 8 to one process, large", "--jobs 8", "report, large", "processor", 1.25),
)


def _middle(contender: Contender, by: str) -> float:
    return statistics.median(contender.seconds) if by == "wall" else contender.processor


def contenders_of(small: Path, large: Path, folder: Path, options: argparse.Namespace) -> dict[str, Contender]:
    """All that can run here, by name."""
    ours = shlex.split(options.kafkatap)
    commands: dict[str, list[str]] = {
        "report, large": ["report", str(large)],
        "counting, large": ["report", "--sections", COUNTING, str(large)],
        "all, large": ["report", "--sections", "all", str(large)],
        "report, small": ["report", str(small)],
        "all, small": ["report", "--sections", "all", str(small)],
        "parquet, small": ["report", "--parquet", str(folder / "tables"), "--overwrite", str(small)],
        "report, sample": ["report", str(SAMPLE)],
        "show, small": ["show", str(small)],
        **{f"--jobs {jobs}": ["report", "--jobs", str(jobs), str(large)] for jobs in (2, 4, 8)},
    }
    found = {name: _child(name, [*ours, *command]) for name, command in commands.items()}
    found["read, large"] = Contender("read, large", lambda: read_plainly(large))
    found["import numpy"] = _child("import numpy", [sys.executable, "-c", "import numpy"])
    if zstd := shutil.which("zstd"):
        packed = folder / "large.pcap.zst"
        subprocess.run([zstd, "-q", "-f", str(large), "-o", str(packed)], check=True)
        found["report, .zst"] = _child("report, .zst", [*ours, "report", str(packed)])
        found["zstd -dc"] = _child("zstd -dc", [zstd, "-dcq", str(packed)])
    tshark = shlex.split(os.environ.get("TSHARK", "tshark"))
    if shutil.which(tshark[0]):
        path, _ = path_for(tshark, small)
        ports = ports_of(options.capture, options.ports)
        decode_as = [word for port in ports for word in ("-d", f"tcp.port=={port},kafka")]
        found["tshark"] = _child("tshark", [*tshark, "-n", "-r", path, *decode_as])
    return found


def _child(name: str, command: list[str]) -> Contender:
    run: Callable[[], Usage] = lambda: run_child(command)  # noqa: E731
    return Contender(name, run)


def table(ratios: Sequence[Ratio], found: dict[str, Contender]) -> list[str]:
    """The ratios in Markdown, then the times that they are of."""
    lines = ["| what | by | ratio | target |", "|---|---|---:|---:|"]
    for ratio in ratios:
        sign = "≥" if ratio.is_least else "≤"
        lines.append(f"| {ratio.what} | {ratio.by} | {ratio.of(found):.2f} | {sign} {ratio.target:g} |")
    lines += ["", "| whole process | wall time, s | processor time, s | peak memory, MiB |", "|---|---:|---:|---:|"]
    for one in found.values():
        if one.rounds:
            wall, peak = statistics.median(one.seconds), one.peak_bytes / (1 << 20)
            lines.append(f"| {one.name} | {wall:.3f} ({min(one.seconds):.3f} to {max(one.seconds):.3f}) | "
                         f"{one.processor:.3f} | {f'{peak:,.0f}' if peak else '-'} |")  # fmt: skip
    return lines


def anonymized(small: Path, folder: Path, options: argparse.Namespace) -> str:
    """How fast an extract is anonymized: the first 40 MB, all connections."""
    head = folder / "head.pcap"
    with open(small, "rb") as whole, open(head, "wb") as file:
        file.write(whole.read(40_000_000))
    command = [*shlex.split(options.kafkatap), "extract", str(head), "-o", str(folder / "out.pcapng"), "--overwrite"]
    used = run_child([*command, "--anonymize", "--connections", "--no-comments"])
    return f"`extract --anonymize`: {40 / used.processor:.1f} MB/s of processor time (target: 20)"


def sizes() -> list[str]:
    """The modules of a report, and the bytes of what is installed."""
    done = subprocess.run([sys.executable, "-c", MODULES, str(SAMPLE)], capture_output=True, text=True, check=True)
    lines = [f"Modules of a report: {done.stderr.split()[-1]}"]
    spec = importlib.util.find_spec("numpy")
    if spec is not None and spec.origin is not None:
        packages = Path(spec.origin).parents[1]
        size = sum(path.stat().st_size for path in packages.rglob("*") if path.is_file())
        lines.append(f"Installed beside this interpreter: {size / 1e6:,.0f} MB (without extras the target is 160)")
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("capture", type=Path, help="a classic pcap")
    parser.add_argument("--ports", help="the brokers' ports, for tshark (else CAPTURE.ports, else 9092)")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--copies", type=int, default=7, help="of the large capture (default: 7)")
    parser.add_argument("--only", default="", help="only rows whose text contains this")
    parser.add_argument("--kafkatap", default=f"{shlex.quote(sys.executable)} -m kafkatap", help="the command to time")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kafkatap-bench-") as text:
        folder = Path(text)
        small, large = options.capture.resolve(), folder / "large.pcap"
        join = [sys.executable, str(Path(__file__).with_name("join_copies.py")), str(small), str(options.copies)]
        subprocess.run([*join, str(large)], check=True, stdout=subprocess.DEVNULL)
        found = contenders_of(small, large, folder, options)
        ratios = [each for each in RATIOS if options.only in each.what and {each.one, each.other} <= found.keys()]
        wanted = {name for each in ratios for name in (each.one, each.other)}
        chosen = [one for name, one in found.items() if name in wanted]
        for one in chosen:
            one.run()  # fills caches; not counted
        run_rounds(chosen, options.runs)
        tshark = shlex.split(os.environ.get("TSHARK", "tshark"))
        version = f"; tshark {tshark_version(tshark)}" if "tshark" in wanted else ""
        print(
            f"{small.name}: {small.stat().st_size / 1e6:,.0f} MB, large {large.stat().st_size / 1e6:,.0f} MB; medians "
            f"of {options.runs} runs in turns, warm cache; {os.cpu_count()} cores, {cpu_name()}; Python "
            f"{platform.python_version()}{version}\n"
        )
        print("\n".join(table(ratios, found)))
        if not options.only:
            print("\n" + "\n".join([anonymized(small, folder, options), *sizes()]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
