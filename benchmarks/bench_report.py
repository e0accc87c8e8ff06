"""Time `kafkatap report` beside tshark and beside a plain read of the same file; print a table for the README.

    python benchmarks/bench_report.py CAPTURE [--ports 9092,9093] [--copies 7] [--runs 5]
    TSHARK="tshark;chroot /srv/newer tshark" python benchmarks/bench_report.py CAPTURE

Each run is a whole process, from start to exit, with its output to /dev/null and a warm page cache. The contenders take
turns, one round after another. The table shows the median, the fastest and the slowest round. Peak memory is the
child's maximum resident size as the kernel counts it (wait4). Contenders:

* `kafkatap report FILE`, after one run that is not counted and fills the kernel store
* the same for the file's first packets: start-up, imports and printing. The difference is the analysis
* with --first, the same again with an empty home directory in each round, as after an installation. Pass the command of
  an installed wheel with --kafkatap; a checkout may have to compile its kernels
* with --parquet, `kafkatap report --parquet DIR FILE`
* with --jobs N, `kafkatap report --jobs N FILE`. Peak memory is that of the largest of its processes
* tshark with `-T fields -e kafka.api_key -e kafka.correlation_id`, which dissects every Kafka message and prints two
  columns. tshark needs the ports (`-d tcp.port==N,kafka`); kafkatap does not. TSHARK names other binaries, separated by
  `;`. For one in a chroot, the capture is linked or copied into its /tmp
* with --count, tshark that only counts Kafka packets (`-q -z io,stat,0,kafka`), which some releases do faster
* a plain sequential read: `readinto` one buffer of 4 MiB

With --copies N, join_copies.py first joins N copies of the file in a temporary folder.
This program stays small (no numpy), because a child's peak memory starts at its parent's.
"""

from __future__ import annotations

import argparse
import os
import platform
import shlex
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

BUFFER = 4 << 20
MIB = 1 << 20


class Usage(NamedTuple):
    """What a run took: wall seconds, processor seconds, peak resident bytes."""

    seconds: float
    processor: float
    peak_bytes: int


@dataclass(slots=True)
class Contender:
    """One row of the table: a command, and the result of each round."""

    name: str
    run: Callable[[], Usage]
    rounds: list[Usage] = field(default_factory=list)

    @property
    def seconds(self) -> list[float]:
        return [each.seconds for each in self.rounds]

    @property
    def processor(self) -> float:
        """The median of the processor seconds."""
        return statistics.median(each.processor for each in self.rounds)

    @property
    def peak_bytes(self) -> int:
        return max(each.peak_bytes for each in self.rounds)


def run_child(command: list[str], environment: Mapping[str, str] = os.environ) -> Usage:
    """Run a command. Its output is discarded; a failure ends the benchmark."""
    with open(os.devnull, "r+b") as null, tempfile.TemporaryFile() as errors:
        actions = [(os.POSIX_SPAWN_DUP2, f, n) for n, f in enumerate((null.fileno(), null.fileno(), errors.fileno()))]
        started = time.perf_counter()
        child = os.posix_spawnp(command[0], command, environment, file_actions=actions)
        _, status, usage = os.wait4(child, 0)
        seconds = time.perf_counter() - started
        code = os.waitstatus_to_exitcode(status)
        if code not in (0, 1):  # 1: the capture is damaged
            errors.seek(0)
            text = errors.read().decode(errors="replace")[-2000:]
            raise SystemExit(f"{shlex.join(command)} ended with {code}:\n{text}")
    return Usage(seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024)


def run_in_empty_home(command: list[str], folder: Path) -> Usage:
    """`run_child` with a home directory in which nothing is."""
    home = Path(tempfile.mkdtemp(prefix="home-", dir=folder))
    kept = {name: value for name, value in os.environ.items() if not name.startswith("XDG_")}
    try:
        return run_child(command, {**kept, "HOME": str(home)})
    finally:
        shutil.rmtree(home)


def run_rounds(contenders: Sequence[Contender], rounds: int) -> None:
    """Run each contender once per round, and add its results."""
    for number in range(rounds):
        for contender in contenders:
            contender.rounds.append(contender.run())
        print(f"{Path(sys.argv[0]).stem}: round {number + 1} of {rounds} done", file=sys.stderr)


def read_plainly(path: Path) -> Usage:
    """Read a file into one buffer of 4 MiB: 0 for its memory."""
    buffer = bytearray(BUFFER)
    started, processor = time.perf_counter(), time.process_time()
    with open(path, "rb", buffering=0) as file:
        while file.readinto(buffer):
            pass
    return Usage(time.perf_counter() - started, time.process_time() - processor, 0)


def head_of(path: Path, folder: Path, packets: int = 50) -> Path:
    """Write a capture of the first packets of a classic pcap; return its path."""
    with open(path, "rb") as file:
        data = file.read(24 + packets * 70_000)
    order = "<" if data[:4] in (b"\xd4\xc3\xb2\xa1", b"\x4d\x3c\xb2\xa1") else ">"
    at = 24
    for _ in range(packets):
        if at + 16 > len(data):
            break
        at += 16 + struct.unpack_from(order + "I", data, at + 8)[0]
    head = folder / "head.pcap"
    head.write_bytes(data[:at])
    return head


def tshark_version(tshark: Sequence[str]) -> str:
    """The version of a tshark, such as "4.0.17"."""
    said = subprocess.run([*tshark, "--version"], capture_output=True, text=True, timeout=60, check=True).stdout
    return said.split("(Wireshark) ")[1].split()[0].rstrip(".")


def path_for(tshark: Sequence[str], path: Path) -> tuple[str, Path | None]:
    """The path of the capture for a tshark, and a copy to delete afterwards (or None)."""
    if tshark[0] != "chroot":
        return str(path), None
    inside = Path(tshark[1]) / "tmp" / f"kafkatap-bench-{os.getpid()}-{path.name}"
    inside.unlink(missing_ok=True)
    try:
        os.link(path, inside)
    except OSError:
        shutil.copyfile(path, inside)
    return f"/tmp/{inside.name}", inside


def ports_of(path: Path, option: str | None) -> list[int]:
    """The brokers' ports: of the option, of a file CAPTURE.ports beside the capture, or 9092."""
    beside = path.with_suffix(".ports")
    text = option or (beside.read_text() if beside.exists() else "9092")
    return [int(port) for port in text.replace(",", " ").split()]


def table(contenders: Sequence[Contender], path: Path, runs: int) -> str:
    """The result in Markdown."""
    size = path.stat().st_size
    ours = statistics.median(contenders[0].seconds)
    lines = [
        f"{path.name}: {size / 1e6:,.0f} MB; median of {runs} interleaved runs (fastest to slowest), warm cache; "
        f"{os.cpu_count()} cores, {cpu_name()}; Python {platform.python_version()}",
        "",
        "| whole process | wall time | MB/s | peak memory | beside kafkatap |",
        "|---|---|---|---|---|",
    ]
    for c in contenders:
        middle = statistics.median(c.seconds)
        peak = f"{c.peak_bytes / MIB:,.0f} MiB" if c.peak_bytes else "-"
        rate = "-" if "packets" in c.name else f"{size / 1e6 / middle:,.0f}"
        lines.append(
            f"| {c.name} | {middle:.3f} s ({min(c.seconds):.3f} to {max(c.seconds):.3f}) | {rate} | {peak} | "
            f"{middle / ours:.2f} |"
        )
    analysis = ours - statistics.median(contenders[1].seconds)
    plain = statistics.median(contenders[-1].seconds)
    lines += ["", f"Analysis without start-up: {analysis:.3f} s, {analysis / plain:.1f} times a plain read."]
    return "\n".join(lines)


def cpu_name() -> str:
    """The name of the processor."""
    try:
        names = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
        return names[0].partition(":")[2].strip()
    except (OSError, IndexError):
        return platform.machine()


def measure(path: Path, folder: Path, options: argparse.Namespace) -> str:
    """Run all contenders on one file; return the table."""
    ours = [*shlex.split(options.kafkatap), "report"]
    head = head_of(path, folder)
    decode_as = [
        word for port in ports_of(options.capture, options.ports) for word in ("-d", f"tcp.port=={port},kafka")
    ]
    contenders = [
        Contender("kafkatap report", lambda: run_child([*ours, str(path)])),
        Contender("kafkatap report, first 50 packets", lambda: run_child([*ours, str(head)])),
    ]
    if options.first:
        name = "kafkatap report, first 50 packets, empty home"
        contenders.append(Contender(name, lambda: run_in_empty_home([*ours, str(head)], folder)))
    if options.parquet:
        tables = str(folder / "tables")
        contenders.append(
            Contender("kafkatap report --parquet", lambda: run_child([*ours, "--parquet", tables, str(path)]))
        )
    if options.jobs:
        jobs = ["--jobs", options.jobs]
        contenders.append(Contender(f"kafkatap report {' '.join(jobs)}", lambda: run_child([*ours, *jobs, str(path)])))
    left_over: list[Path] = []
    try:
        for text in os.environ.get("TSHARK", "tshark").split(";"):
            tshark = shlex.split(text)
            if shutil.which(tshark[0]) is None:
                print(f"bench_report: no {tshark[0]} here; its row is missing from the table", file=sys.stderr)
                continue
            name, copy = path_for(tshark, path)
            left_over += [copy] if copy else []
            outputs = {"": ["-T", "fields", "-e", "kafka.api_key", "-e", "kafka.correlation_id"]}
            if options.count:
                outputs[", counting only"] = ["-q", "-z", "io,stat,0,kafka"]
            for what, output in outputs.items():
                command = [*tshark, "-n", "-r", name, *decode_as, *output]
                run = (lambda c: lambda: run_child(c))(command)
                contenders.append(Contender(f"tshark {tshark_version(tshark)}{what}", run))
        contenders.append(Contender("plain sequential read", lambda: read_plainly(path)))
        read_plainly(path)
        run_child([*ours, str(path)])
        run_rounds(contenders, options.runs)
    finally:
        for path_ in left_over:
            path_.unlink(missing_ok=True)
    return table(contenders, path, options.runs)


def main() -> int:
    parser = argparse.ArgumentParser(description="Time kafkatap report beside tshark and a plain read.")
    parser.add_argument("capture", type=Path, help="a classic pcap")
    parser.add_argument("--ports", help="the brokers' ports, for tshark (else CAPTURE.ports, else 9092)")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--copies", type=int, default=1, help="join this many copies first")
    parser.add_argument("--count", action="store_true", help="also time a tshark that only counts")
    parser.add_argument("--first", action="store_true", help="also time a first run")
    parser.add_argument("--parquet", action="store_true", help="also time --parquet")
    parser.add_argument("--jobs", metavar="N", help="also time --jobs N")
    parser.add_argument("--kafkatap", default=f"{shlex.quote(sys.executable)} -m kafkatap", help="the command to time")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kafkatap-bench-") as folder:
        path = options.capture
        if options.copies > 1:
            path = Path(folder) / f"{path.stem}-x{options.copies}.pcap"
            script = Path(__file__).with_name("join_copies.py")
            join = [sys.executable, str(script), str(options.capture), str(options.copies), str(path)]
            subprocess.run(join, check=True, stdout=subprocess.DEVNULL)
        print(measure(path, Path(folder), options))
    return 0


if __name__ == "__main__":
    sys.exit(main())
