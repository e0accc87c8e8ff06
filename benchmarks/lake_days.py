"""Keep a lake for days as operators do, with what goes wrong, and compare it with one job over everything.

    python benchmarks/lake_days.py month --days 30
    python benchmarks/lake_days.py hours --days 3

Both feed `kafkatap spark` with recordings of real brokers (samples/) under other addresses and dates. Each run is a
process of its own. On each day one run is killed at a random moment, and started again.

month   a job each day, over the captures of that day: two brokers, a capture each hour. One capture a day comes a day
        late. Others are read again on the next day: under another name, compressed, whole after half of them was read,
        or repaired after they had a hole of zeros. In the middle somebody adds a column of their own.
hours   a run with --checkpoint each hour. Connections last for days, so each capture goes on where the one before it
        ended. Captures of one broker, with connections of their own, come an hour late. Others are there again, renamed
        and compressed.

At the end every row is compared with that of one job over the captures as they are then, and `kafkatap lake verify` has
to be silent. The exit code is 1 if anything differs.
"""

from __future__ import annotations

import argparse
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import zstandard
from deltalake import Field
from deltalake.schema import PrimitiveType

from kafkatap.spark.output.delta import open_table
from tests.splits.join_support import compared, differences, published, unnumbered
from tests.support.captures import Packet, pcap_bytes, read_capture
from tests.support.copies import places
from tests.support.tcp import FIN, RST, SYN

ROOT = Path(__file__).resolve().parents[1]
SAMPLES = ROOT / "samples"
HOUR = 3_600 * 10**9
START = 1_767_225_600 * 10**9  # 2026-01-01
TABLES = ("exchanges", "results", "connections", "files", "ledger")


def main() -> int:
    """Run one of the two; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=("month", "hours"))
    parser.add_argument("--days", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", metavar="DIR", help="work in DIR, and leave it")
    options = parser.parse_args()
    folder = Path(options.keep or tempfile.mkdtemp(prefix="kafkatap-days-"))
    folder.mkdir(parents=True, exist_ok=True)
    try:
        days = Days(folder, random.Random(options.seed))
        (days.month if options.kind == "month" else days.hours)(options.days)
        return days.conclude(options.kind)
    finally:
        if not options.keep:
            shutil.rmtree(folder)


# ---------------------------------------------------------------- traffic


def moved(packets: Sequence[Packet], client: str, broker: str, begin: int, stretch: float = 1.0) -> list[Packet]:
    """The packets between other addresses, from a time on (ns since the epoch). `stretch`: how much longer they take.
    The end with the lower port is the broker."""
    first = min(packet.time_ns for packet in packets)
    ends = [bytes(map(int, address.split("."))) for address in (client, broker)]
    found = []
    for packet in packets:
        at = places(packet.data)
        if at is None:
            continue
        data = bytearray(packet.data)
        source, target = (int.from_bytes(data[at.tcp + n : at.tcp + n + 2], "big") for n in (0, 2))
        data[at.ip + 12 : at.ip + 20] = b"".join(ends if source > target else reversed(ends))
        when = begin + round((packet.time_ns - first) * stretch)
        found.append(replace(packet, data=bytes(data), time_ns=when))
    return sorted(found, key=lambda packet: packet.time_ns)


def whole_flows(name: str, most: int = 10**9) -> list[list[Packet]]:
    """The connections of a sample that begin and end in it, with at most so many packets."""
    flows: dict[frozenset[int], list[Packet]] = {}
    flags: Counter[tuple[frozenset[int], int]] = Counter()
    for packet in read_capture(SAMPLES / name).packets:
        at = places(packet.data)
        if at is None:
            continue
        ports = frozenset(int.from_bytes(packet.data[at.tcp + n : at.tcp + n + 2], "big") for n in (0, 2))
        flows.setdefault(ports, []).append(packet)
        for flag in (SYN, FIN, RST):
            flags[ports, flag] += bool(packet.data[at.tcp + 13] & flag)
    return [
        flow
        for ports, flow in flows.items()
        if flags[ports, SYN] and (flags[ports, FIN] > 1 or flags[ports, RST]) and len(flow) <= most
    ]


# ---------------------------------------------------------------- the lake


@dataclass
class Days:
    """A lake in a folder, and what happened to it. `captures`: as they are at the end, for one job over all."""

    folder: Path
    chance: random.Random
    captures: dict[str, Path] = field(default_factory=dict)
    again: list[Path] = field(default_factory=list)
    happened: Counter[str] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)

    @property
    def lake(self) -> Path:
        return self.folder / "lake"

    def month(self, days: int) -> None:
        """A job each day."""
        small = whole_flows("apache-0.8.2.pcap.zst", 60) + whole_flows("apache-0.10.2.pcap.zst", 60)
        large = [packet for flow in whole_flows("live-4.3.pcap.zst") for packet in flow]
        for day in range(days):
            today = []
            for number in range(48):
                hour, broker = divmod(number, 2)
                packets = large if number == 2 * (day % 24) else self.chance.choice(small)
                begin = START + (24 * day + hour) * HOUR + self.chance.randrange(HOUR // 2)
                address = f"10.{1 + day}.{hour}.{1 + broker}"
                path = self.folder / "captures" / f"day-{day:02}" / f"broker{broker}-{hour:02}.pcap"
                today.append(self._written(path, moved(packets, address, f"10.0.0.{broker}", begin)))
            late = self._disturbed(today)
            self._job([*today, *self.again], is_killed=True)
            self.again = late
            if day == days // 2:
                open_table(str(self.lake), "exchanges").alter.add_columns(_column())
                self.happened["a column was added"] += 1
        if self.again:
            self._job(self.again)

    def _disturbed(self, today: list[Path]) -> list[Path]:
        """Change some captures of a day, which are read tomorrow as they are then: these. The late one is removed."""
        late, renamed, compressed, half, holed = self.chance.sample(range(len(today)), 5)
        tomorrow = [today[late]]
        copy = today[renamed].with_name(f"copy-of-{today[renamed].name}")
        shutil.copy(today[renamed], copy)
        packed = today[compressed].with_suffix(".pcap.zst")
        packed.write_bytes(zstandard.compress(today[compressed].read_bytes()))
        tomorrow += [copy, packed]
        for number, damage in ((half, lambda data: data[: len(data) // 2]), (holed, _with_hole)):
            whole = today[number].with_name(f"whole-{today[number].name}")
            shutil.move(today[number], whole)
            today[number].write_bytes(damage(whole.read_bytes()))
            tomorrow.append(whole)
            self.captures[str(today[number])] = whole
        self.happened.update(("late", "renamed", "compressed", "grown", "repaired"))
        del today[late]
        return tomorrow

    def hours(self, days: int) -> None:
        """A run with --checkpoint each hour."""
        count = 24 * days
        arrived = self.folder / "captures"
        span = count * HOUR
        series: dict[str, list[Packet]] = {}
        for broker, name in enumerate(("live-4.3", "apache-2.8")):
            packets = read_capture(SAMPLES / f"{name}.pcap.zst").packets
            taken = max(p.time_ns for p in packets) - min(p.time_ns for p in packets)
            series[f"broker{broker}"] = moved(packets, "10.9.0.1", f"10.0.0.{broker}", START, 0.999 * span / taken)
        small = whole_flows("apache-0.8.2.pcap.zst", 60)
        waiting: list[tuple[Path, list[Packet]]] = []
        for hour in range(count):
            begin = START + hour * HOUR
            for path, packets in waiting:
                self._written(path, packets)
            waiting = []
            for name, packets in series.items():
                short = moved(self.chance.choice(small), f"10.8.{hour}.2", f"10.0.0.{name[-1]}", begin + HOUR // 3)
                mine = [p for p in packets if begin <= p.time_ns < begin + HOUR] + short
                self._written(arrived / f"{name}-{hour:03}.pcap", sorted(mine, key=lambda packet: packet.time_ns))
            flow = moved(self.chance.choice(small), f"10.8.{hour}.1", "10.0.0.7", begin + HOUR // 4)
            if hour % 6 == 3:
                waiting = [(arrived / f"other-{hour:03}.pcap", flow)]
                self.happened["late"] += 1
            else:
                self._written(arrived / f"other-{hour:03}.pcap", flow)
            if hour % 8 == 5:
                earlier = self.chance.choice(sorted(arrived.glob("broker*.pcap")))
                packed = arrived / f"old-{hour:03}-{earlier.name}.zst"
                packed.write_bytes(zstandard.compress(earlier.read_bytes()))
                self.happened["renamed and compressed"] += 1
            self._stream(is_killed=hour % 24 == 12)
        self._stream("--finish")

    def _written(self, path: Path, packets: Sequence[Packet]) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(pcap_bytes(packets, nanoseconds=True))
        self.captures[str(path)] = path
        return path

    def _job(self, captures: Sequence[Path], is_killed: bool = False) -> None:
        self._run([*map(str, captures), "-o", str(self.lake)], is_killed)

    def _stream(self, *more: str, is_killed: bool = False) -> None:
        where = ("-o", str(self.lake), "--checkpoint", str(self.folder / "checkpoint"), "--quiet", "1ms")
        self._run([str(self.folder / "captures"), *where, *more], is_killed)

    def _run(self, words: Sequence[str], is_killed: bool) -> None:
        command = [sys.executable, "-m", "kafkatap", "spark", *words]
        if is_killed:
            killed = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            # Most of a run's changes are made in its last second.
            least = 0.5 * min(self.seconds, default=8)
            most = max(self.seconds, default=8)
            try:
                killed.wait(self.chance.uniform(least, most))
                self.happened["killed too late"] += 1
            except subprocess.TimeoutExpired:
                killed.kill()
                killed.wait()
                self.happened["killed"] += 1
        began = time.monotonic()
        done = subprocess.run(command, capture_output=True, text=True)
        self.seconds.append(time.monotonic() - began)
        if done.returncode not in (0, 1) or "Traceback" in done.stderr:
            raise RuntimeError(f"{' '.join(command)}: {done.returncode}\n{done.stderr}")

    def conclude(self, kind: str) -> int:
        """Compare, and print a table; return the exit code."""
        whole = self.folder / "whole"
        captures = sorted({str(path) for path in self.captures.values()})
        done = subprocess.run(
            [sys.executable, "-m", "kafkatap", "spark", *captures, "-o", str(whole)], capture_output=True, text=True
        )
        if done.returncode:
            raise RuntimeError(done.stderr)
        found, wanted = (unnumbered(published(out, TABLES)) for out in (self.lake, whole))
        lines = differences(compared(found), compared(wanted))
        verified = subprocess.run(
            [sys.executable, "-m", "kafkatap", "lake", "verify", str(self.lake)], capture_output=True, text=True
        )
        rows = {name: table.num_rows for name, table in wanted.items()}
        print(f"{kind}: {len(captures):,} captures, {len(self.seconds):,} runs of {sum(self.seconds):.0f} s in all")
        print("  ".join(f"{what} {count}" for what, count in self.happened.items()))
        print("  ".join(f"{name} {count:,}" for name, count in rows.items()))
        print("\n".join(lines) or "every row is there once, as of one job over all")
        print(verified.stdout or "lake verify is silent")
        return 1 if lines or verified.stdout else 0


def _with_hole(data: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + bytes(4_096) + data[middle + 4_096 :]


def _column() -> Field:
    return Field("team", PrimitiveType("string"), nullable=True)


if __name__ == "__main__":
    sys.exit(main())
