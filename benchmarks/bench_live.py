"""Replay a capture through a veth pair to kafkatap live, tcpdump and tshark; print a table of drops and processor time.

    sudo python benchmarks/bench_live.py CAPTURE [--rates 100000,250000,450000] [--copies 6] [--runs 3] [--busy]
    sudo python benchmarks/bench_live.py --sizes [--runs 3]

The program creates the pair in a network namespace of its own and removes both at the end. tcpreplay sends `--copies`
copies of the capture from memory at each of `--rates`, in packets a second (0: as fast as it can). Each copy has its
own addresses (join_copies.py); otherwise its packets would be retransmissions. The contenders take turns. Each run
measures:

* packets sent, and packets dropped by the kernel, as the contender reports them
* with --sizes, a few such packets come first, so that all memory is there
* processor time (user and system, of the contender and its children): as a share of one core over the time of sending,
  in microseconds for each packet that it read, and as a multiple of the same of `tcpdump -B 262144` in the same turn.
  It counts from just before the first packet until the contender is idle; start-up does not count

Contenders: `tcpdump -w /dev/null`, which decodes nothing, with its own buffer of 2 MiB and with one as large as
kafkatap's; `kafkatap live` with its default limit of a third of a core, where it decodes less; `kafkatap live` without
limit: with all detail, without topics, and headers only, and with `--jobs 2`; `tshark -i`, which dissects every Kafka
message and prints two columns (see bench_report.py; only with --tshark). With `--busy` another process keeps each core
busy meanwhile.

With `--sizes`, Produce requests come in packets of 64 KB, as GRO makes them, 9,000, 1,500 and 200 bytes, instead of a
capture (make_traffic.py), at 3 Gbit or 150,000 packets a second. Then what kafkatap counts has to be what was sent.

The table also has the levels of detail that kafkatap reported: without a limit it still decodes less if packets wait.
On a busy machine compare microseconds per packet: rates and drops depend on what else runs.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import make_traffic
from join_copies import join

SPACE = f"kafkatap-bench-{os.getpid()}"
SENDER, RECEIVER = "kt-send", "kt-take"
YARDSTICK = "tcpdump -B 262144"
#: Seconds of a calm contender before the first packet.
CALM = 1.5


#: With --sizes: bytes of a packet, of the records of a request, segments' payload, connections, requests of each.
SIZES = (
    (65_000, 1_000_000, 64_948, 10, 150),
    (9_000, 65_000, 8_948, 40, 400),
    (1_500, 16_000, 1_448, 100, 400),
    (200, 20, 1_448, 200, 2_000),
)
#: With --sizes: at most so many bits and packets a second.
BITS, PACKETS = 3e9, 150_000


@dataclass(frozen=True, slots=True)
class Traffic:
    """What is sent. `exchanges`, `payload`: what has to be counted, where that is known."""

    name: str
    path: Path
    rate: int  # packets a second
    warm: Path | None = None  # sent before
    exchanges: int | None = None
    payload: int = 0


@dataclass(slots=True)
class Contender:
    """`counted` reads the numbers of packets captured and dropped from the contender's output and errors, and of
    exchanges and payload bytes if it counts them."""

    name: str
    command: list[str]
    counted: Callable[[str, str], Counted]
    rows: list[Run] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Counted:
    came: int
    dropped: int
    exchanges: int | None = None
    payload: int = 0


@dataclass(frozen=True, slots=True)
class Run:
    traffic: str
    sent: int
    megabytes: float
    seconds: float
    came: int
    dropped: int
    cpu: float
    peak: int
    levels: str  # of detail, as kafkatap reports them at the end of each interval

    @property
    def each(self) -> float:
        """Microseconds of processor time for each packet that was read."""
        return 1e6 * self.cpu / max(1, self.sent - self.dropped)


def inside(command: list[str]) -> list[str]:
    return ["ip", "netns", "exec", SPACE, *command]


def make_space() -> None:
    for command in (
        ["ip", "netns", "add", SPACE],
        inside(["ip", "link", "add", SENDER, "type", "veth", "peer", "name", RECEIVER]),
        inside(["ip", "link", "set", SENDER, "mtu", "65535", "up"]),
        inside(["ip", "link", "set", RECEIVER, "mtu", "65535", "up"]),
    ):
        subprocess.run(command, check=True)
    # No ICMPv6: only the replayed packets may pass.
    subprocess.run(inside(["sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=1"]), check=False)


def family(pid: int) -> list[int]:
    """A process and its descendants."""
    found = [pid]
    for each in found:
        try:
            for task in Path(f"/proc/{each}/task").iterdir():
                found += [int(child) for child in (task / "children").read_text().split()]
        except OSError:
            continue
    return found


def cpu_seconds(pid: int) -> float:
    """What the scheduler counts, to the ns. (The counts of ticks miss who sleeps at each tick.)"""
    total = 0
    for each in family(pid):
        for task in Path(f"/proc/{each}/task").glob("*/schedstat"):
            with suppress(OSError):
                total += int(task.read_text().split()[0])
    return total / 1e9


def peak_bytes(pid: int) -> int:
    total = 0
    for each in family(pid):
        try:
            found = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{each}/status").read_text())
        except OSError:
            continue
        total += int(found[1]) * 1024 if found else 0
    return total


def listening() -> bool:
    """Whether a process captures in the namespace."""
    sockets = subprocess.run(inside(["cat", "/proc/net/packet"]), capture_output=True, text=True, check=True).stdout
    return len(sockets.splitlines()) > 1


def wait_until(what: Callable[[], bool], seconds: float = 60) -> None:
    until = time.monotonic() + seconds
    while not what():
        if time.monotonic() > until:
            raise SystemExit("nothing happens")
        time.sleep(0.1)


def send(capture: Path, rate: int) -> tuple[int, float, float]:
    """Send a capture: the number of packets sent, their MB, and the seconds it took."""
    speed = ["--topspeed"] if rate == 0 else [f"--pps={rate}"]
    command = ["tcpreplay", "-K", "-q", *speed, "-i", SENDER, str(capture)]
    output = subprocess.run(inside(command), capture_output=True, text=True, check=True).stdout
    match = re.search(r"Actual: (\d+) packets \((\d+) bytes\) sent in ([\d.]+) seconds", output)
    assert match is not None, output
    return int(match[1]), int(match[2]) / 1e6, float(match[3])


def run(contender: Contender, traffic: Traffic) -> Run:
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        child = subprocess.Popen(inside(contender.command), stdout=out, stderr=err, stdin=subprocess.DEVNULL)
        try:
            wait_until(listening)
            time.sleep(CALM)
            if traffic.warm is not None:
                send(traffic.warm, traffic.rate)
                time.sleep(CALM)
            before = cpu_seconds(child.pid)
            sent, megabytes, seconds = send(traffic.path, traffic.rate)
            last = -1.0
            while cpu_seconds(child.pid) - last > 0.03:
                last = cpu_seconds(child.pid)
                time.sleep(0.5)
            cpu, peak = cpu_seconds(child.pid) - before, peak_bytes(child.pid)
        finally:
            child.send_signal(signal.SIGINT)
            try:
                child.wait(60)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
        wait_until(lambda: not listening())
        counted = contender.counted(_text(out), _text(err))
        levels = " ".join(dict.fromkeys(re.findall(r"\blevel=(\w+)", _text(err))))
    if traffic.exchanges is not None and counted.exchanges is not None and not counted.dropped:
        wanted = traffic.exchanges, traffic.payload
        if (counted.exchanges, counted.payload) != wanted:
            raise SystemExit(f"{contender.name}: {counted}, but {wanted} exchanges and bytes were sent")
    return Run(traffic.name, sent, megabytes, seconds, counted.came, counted.dropped, cpu, peak, levels)


def _text(file: IO[str]) -> str:
    file.seek(0)
    return file.read()


def by_kafkatap(out: str, err: str) -> Counted:
    report = json.loads(out)
    capture = report["capture"]
    counts = {(row["section"], row["part"]): int(row["count"]) for row in report["reports"]["ledger"]}
    return Counted(
        int(capture["packets"]), int(capture["drops"] or 0), counts["requests", "answered"],
        counts["payload bytes", "kafka_frames"],
    )  # fmt: skip


def by_tcpdump(out: str, err: str) -> Counted:
    captured, dropped = (re.search(rf"(\d+) packets? {what}", err) for what in ("captured", "dropped by kernel"))
    assert captured is not None, err
    assert dropped is not None, err
    return Counted(int(captured[1]), int(dropped[1]))


def by_tshark(out: str, err: str) -> Counted:
    captured, dropped = (re.search(rf"(\d+) packets? {what}", err) for what in ("captured", "dropped"))
    return Counted(int(captured[1]) if captured else 0, int(dropped[1]) if dropped else 0)


def contenders(ports: list[str], names: list[str], tshark: bool) -> list[Contender]:
    decode = [part for port in ports for part in ("-d", f"tcp.port=={port},kafka")]
    fields = ["-T", "fields", "-e", "kafka.api_key", "-e", "kafka.correlation_id"]
    live = [sys.executable, "-m", "kafkatap", "live", "-i", RECEIVER, "--json", "--plain", "--interval", "5s"]
    unlimited = [*live, "--max-cpu", "0"]
    every = [
        Contender("tcpdump -w /dev/null", ["tcpdump", "-i", RECEIVER, "-w", "/dev/null", "tcp"], by_tcpdump),
        Contender(YARDSTICK, ["tcpdump", "-B", "262144", "-i", RECEIVER, "-w", "/dev/null", "tcp"], by_tcpdump),
        Contender("kafkatap live", live, by_kafkatap),
        Contender("... all detail", unlimited, by_kafkatap),
        Contender("... two engines", [*unlimited, "--jobs", "2"], by_kafkatap),
        Contender("... no topics", [*unlimited, "--no-topics"], by_kafkatap),
        Contender("... headers only", [*unlimited, "--headers-only"], by_kafkatap),
        Contender("... headers only, two engines", [*unlimited, "--headers-only", "--jobs", "2"], by_kafkatap),
    ]
    if tshark:
        command = f"exec tshark -n -i {RECEIVER} {' '.join(decode + fields)} tcp >/dev/null"
        every.append(Contender("tshark -i", ["sh", "-c", command], by_tshark))
    return [c for c in every if not names or any(name in c.name for name in names)]


@contextmanager
def busy_cores(wanted: bool) -> Iterator[None]:
    """Keep every core busy, if wanted."""
    command = [sys.executable, "-c", "while True: pass"]
    others = [subprocess.Popen(command) for _ in os.sched_getaffinity(0)] if wanted else []
    try:
        yield
    finally:
        for each in others:
            each.kill()
            each.wait()


def of_sizes(folder: Path) -> Iterator[Traffic]:
    """Produce requests in packets of each size."""
    for size, records, segment, count, requests in SIZES:
        path, warm = folder / f"{size}.pcap", folder / f"{size}-warm.pcap"
        for file, number, first in ((path, requests, 0), (warm, max(requests // 8, 2), count)):
            numbers = {"count": count, "requests": number, "records": records, "segment": segment, "first": first}
            options = [f"--{name}={number}" for name, number in numbers.items()]
            script = Path(__file__).with_name("make_traffic.py")
            subprocess.run([sys.executable, script, "steady", file, *options], check=True)
        requests += max(requests // 8, 2)
        payload = len(make_traffic.produce_request(records)) + len(make_traffic.produce_response())
        rate = min(PACKETS, int(BITS / 8 / size))
        yield Traffic(f"{size:,} bytes", path, rate, warm, count * requests, count * requests * payload)


def of_rates(options: argparse.Namespace, folder: Path) -> Iterator[Traffic]:
    """Copies of a capture at each rate."""
    join(options.capture, options.copies, folder / "sent.pcap")
    for rate in options.rates.split(","):
        yield Traffic(f"{int(rate):,} a second" if int(rate) else "all at once", folder / "sent.pcap", int(rate))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("capture", type=Path, nargs="?")
    parser.add_argument("--sizes", action="store_true", help="packets of 64 KB, 9,000, 1,500 and 200 bytes")
    parser.add_argument("--rates", default="100000,250000,450000", help="packets a second; 0: as fast as possible")
    parser.add_argument("--copies", type=int, default=6, help="how often the capture is sent in a run")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--ports", default="9092,9093,9094,19092", help="tshark decodes these ports as Kafka")
    parser.add_argument("--only", default="", help="contenders with one of these words in their names")
    parser.add_argument("--busy", action="store_true", help="another process keeps each core busy")
    parser.add_argument("--tshark", action="store_true", help="also run tshark, which takes minutes")
    options = parser.parse_args()
    for tool in ("ip", "tcpreplay", "tcpdump"):
        if shutil.which(tool) is None:
            raise SystemExit(f"this needs {tool}")
    chosen = contenders(options.ports.split(","), [n for n in options.only.split(",") if n], options.tshark)
    if options.sizes == (options.capture is not None):
        parser.error("name a capture, or --sizes")
    folder = tempfile.TemporaryDirectory(prefix="kafkatap-bench-")
    sent = list(of_sizes(Path(folder.name)) if options.sizes else of_rates(options, Path(folder.name)))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the namespace and the busy processes end with it
    make_space()
    try:
        for _ in range(options.runs):
            for traffic in sent:
                for contender in chosen:
                    with busy_cores(options.busy):
                        made = run(contender, traffic)
                    contender.rows.append(made)
                    print(f"{contender.name}: {made}", file=sys.stderr, flush=True)
    finally:
        subprocess.run(["ip", "netns", "del", SPACE], check=False)
        folder.cleanup()
    print(table(chosen, [traffic.name for traffic in sent]))


def table(chosen: list[Contender], sent: list[str]) -> str:
    lines = [
        "| sent | packets a second | | detail | dropped in each run | of one core | µs per packet | s per GB "
        "| times tcpdump -B | peak |",
        "|---|---:|---|---|---:|---:|---:|---:|---:|---:|",
    ]
    yardstick = next((c for c in chosen if c.name == YARDSTICK), None)
    for name in sent:
        for contender in chosen:
            rows = [r for r in contender.rows if r.traffic == name]
            reached = statistics.median(r.sent / r.seconds for r in rows)
            dropped = ", ".join(f"{r.dropped:,}" for r in rows)
            share = statistics.median(r.cpu / r.seconds for r in rows)
            each = statistics.median(r.each for r in rows)
            each_gb = statistics.median(r.cpu / r.megabytes * 1e3 for r in rows)
            peak = max(r.peak for r in rows)
            levels = " ".join(dict.fromkeys(level for r in rows for level in r.levels.split())) or "-"
            times = "-"
            if yardstick is not None:
                beside = [r for r in yardstick.rows if r.traffic == name]
                times = f"{statistics.median(r.each / b.each for r, b in zip(rows, beside, strict=True)):.1f}"
            lines.append(
                f"| {name} | {reached:,.0f} | {contender.name} | {levels} | {dropped} | {share:.0%} | {each:.2f} "
                f"| {each_gb:.2f} | {times} | {peak >> 20} MiB |"
            )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
