"""What the watch of events costs in live capture: its processor time for each second of capture; print a table.

    python -m benchmarks.watch_hosts [--hosts 20000] [--seconds 60] [SCENE...]

A monitor without network reads made packets second by second, as `kafkatap live` does. In every scene one client talks
to broker 1 all the time. The scenes:

idle      each host has an open connection, and is silent
minute    each host has an open connection, and sends a request a minute
second    the same, a request a second
waits     each host has an open connection, and a request that broker 1 does not answer
flood     each host sends a SYN within 4 s, and broker 1 refuses it (two packets each)
reset     the same, but the host's RST follows its SYN
syn       the same, but broker 1 accepts and the host says nothing more: SYN, and SYN-ACK four times
scan      the same as flood, but to as many ends of brokers
dies      each host has an open connection to broker 2, which does not answer the next request, closes all with RST
          after 5 s, and refuses new ones
gone      the same, but packets to broker 2 and from it do not arrive any more: requests are sent again

A row has the share of a core that the watch takes (in seconds after the hosts came: mean and the longest look), that of
everything else, and the resident memory.
"""

from __future__ import annotations

import argparse
import struct
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from kafkatap.engine.engine import Engine
from kafkatap.live.event_watch import EventWatch
from kafkatap.live.governor import Governor
from kafkatap.live.monitor import Monitor
from kafkatap.live.process_memory import resident
from kafkatap.live.sink import Sink
from kafkatap.reports.findings import Finding
from kafkatap.reports.section_parts.registry import counted_sections, needs_of
from tests.live.support import FileSource
from tests.support.captures import ETHERNET
from tests.support.tcp import ACK, PSH, RST, START_NS, SYN
from tests.wire.kafkatalk import API_VERSIONS, request, response

SECOND = 1_000_000_000
SCENES = ("idle", "minute", "second", "waits", "flood", "reset", "syn", "scan", "dies", "gone")
#: Seconds until all hosts have come.
COMING = 4
CLOCK = (10, 9, 0, 1)
_HEAD = struct.Struct("!12sHBBHHHBBH4s4sHHIIBBHHH")


def packet(
    source: tuple[bytes, int], to: tuple[bytes, int], seq: int, ack: int, flags: int, data: bytes = b""
) -> bytes:
    """A frame with IPv4 and TCP, without checksums."""
    return _HEAD.pack(
        bytes(12), 0x0800, 0x45, 0, 40 + len(data), 0, 0x4000, 64, 6, 0, source[0], to[0], source[1], to[1], seq, ack,
        0x50, flags, 64_000, 0, 0,
    ) + data  # fmt: skip


class Host:
    """A client with one connection."""

    def __init__(self, address: tuple[int, ...], port: int, broker: int) -> None:
        self.ends = (bytes(address), port), (bytes((10, 8, 0, broker)), 9092)
        self.next = [1001, 5001]
        self.number = 0

    def open(self) -> list[bytes]:
        client, broker = self.ends
        return [
            packet(client, broker, 1000, 0, SYN), packet(broker, client, 5000, 1001, SYN | ACK),
            packet(client, broker, 1001, 5001, ACK),
        ]  # fmt: skip

    def exchange(self) -> list[bytes]:
        client, broker = self.ends
        asked = request(API_VERSIONS, 0, self.number, "app")
        answer = response(API_VERSIONS, 0, self.number)
        self.number += 1
        one = packet(client, broker, self.next[0], self.next[1], PSH | ACK, asked)
        self.next[0] += len(asked)
        two = packet(broker, client, self.next[1], self.next[0], PSH | ACK, answer)
        self.next[1] += len(answer)
        return [one, two, packet(client, broker, self.next[0], self.next[1], ACK)]

    def reset(self) -> list[bytes]:
        client, broker = self.ends
        return [packet(broker, client, self.next[1], self.next[0], RST | ACK)]

    def refused(self, by_client: bool) -> list[bytes]:
        client, broker = self.ends
        rst = packet(client, broker, 1001, 0, RST) if by_client else packet(broker, client, 0, 1001, RST | ACK)
        return [packet(client, broker, 1000, 0, SYN), rst]


def frames(scene: str, hosts: int, seconds: int) -> list[tuple[int, bytes]]:
    """The packets of a scene with their times, in order."""
    clock = Host(CLOCK, 50_000, 1)
    found: list[tuple[int, bytes]] = []

    def add(at: float, packets: list[bytes]) -> None:
        for number, each in enumerate(packets):
            found.append((START_NS + int(at * SECOND) + number * 100_000, each))

    add(0, clock.open())
    for tick in range(1, seconds * 10):
        add(tick / 10, clock.exchange())
    broker = 2 if scene in ("dies", "gone") else 1
    for n in range(hosts):
        host = Host((10, 100 + (n >> 16), n >> 8 & 255, n & 255), 40_000 + n % 20_000, broker)
        at = 0.2 + COMING * n / hosts
        if scene == "scan":
            host.ends = (bytes((10, 9, 0, 2)), 40_000), (host.ends[0][0], 9092)
        if scene in ("flood", "reset", "scan"):
            add(at, host.refused(scene == "reset"))
            continue
        if scene == "syn":
            syn, answer, _ = host.open()
            add(at, [syn, answer])
            for later in (1, 3, 7):
                add(at + later, [answer])
            continue
        add(at, host.open() + host.exchange())
        if scene in ("minute", "second"):
            pause = 60 if scene == "minute" else 1
            for turn in range(1 + seconds // pause):
                asked_at = COMING + 0.5 + pause * (turn + n / hosts)
                if asked_at < seconds:
                    add(asked_at, host.exchange())
        if scene == "waits":
            add(at + 1, host.exchange()[:1])
        if scene == "gone":
            asked = host.exchange()[:1]
            for again_after in (0, 0.2, 0.6, 1.4, 3, 6.2, 12.6, 25.4):
                add(COMING + 4 + again_after + n / hosts, asked)
        if scene == "dies":
            add(COMING + 4 + n / hosts, host.exchange()[:1])
            add(COMING + 5 + n / hosts, host.reset())
            again = Host((10, 100 + (n >> 16), n >> 8 & 255, n & 255), 20_000 + n % 20_000, broker)
            add(COMING + 6 + n / hosts, again.refused(False))
    return sorted(found, key=lambda each: each[0])


class Watched:
    """An EventWatch whose processor time is measured."""

    def __init__(self, watch: EventWatch) -> None:
        self._watch = watch
        self.ns = self.longest = self.looks = 0

    def __getattr__(self, name: str):  # type: ignore[no-untyped-def]
        found = getattr(self._watch, name)
        if not callable(found):
            return found

        def timed(*values):  # type: ignore[no-untyped-def]
            begin = time.thread_time_ns()
            made = found(*values)
            gone = time.thread_time_ns() - begin
            self.ns += gone
            self.longest = max(self.longest, gone)
            return made

        return timed


class Seen(Sink):
    """The events."""

    def __init__(self) -> None:
        self.found: list[str] = []

    def add_event(self, finding: Finding) -> None:
        self.found.append(finding.id)


def run(scene: str, hosts: int, seconds: int, folder: Path) -> str:
    """Measure a scene: a row of the table."""
    path = folder / "x.pcap"
    with path.open("wb") as file:
        file.write(struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 262144, ETHERNET))
        for at, data in frames(scene, hosts, seconds):
            file.write(struct.pack("<IIII", *divmod(at, SECOND), len(data), len(data)) + data)
    source, seen = FileSource(str(path)), Seen()
    monitor = Monitor(
        source, Engine(**needs_of(None)._asdict()), sinks=[seen], clock=source.clock, sections=counted_sections(None),
        governor=Governor(None),
    )  # fmt: skip
    assert monitor.events is not None
    watched = monitor.events = Watched(monitor.events)  # type: ignore[assignment]
    began, at = 0, time.thread_time_ns()
    for second in seconds_of(monitor, source):
        if second == COMING + 2:
            watched.ns, watched.longest, began, at = 0, 0, second, time.thread_time_ns()
    gone, used = max(second - began, 1), time.thread_time_ns() - at
    events = ", ".join(sorted({f"{name} {seen.found.count(name)}" for name in seen.found})) or "none"
    return (
        f"| {scene} | {hosts:,} | {watched.ns / gone / SECOND:.1%} | {watched.longest / 1e6:,.0f} ms | "
        f"{(used - watched.ns) / gone / SECOND:.1%} | {resident() >> 20:,} MiB | {events} |"
    )


def warm_run(scene: str, hosts: int, seconds: int, folder: Path) -> str:
    """`run`, after all modules and kernels are loaded."""
    run("idle", 10, 12, folder)
    return run(scene, hosts, seconds, folder)


def seconds_of(monitor: Monitor, source: FileSource) -> Iterator[int]:
    """Let the monitor read; the seconds as they end."""
    begin = last = source.now // SECOND
    while not source.over:
        source.wait(0.1)
        monitor.step()
        if source.now // SECOND != last:
            last = source.now // SECOND
            yield last - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenes", nargs="*", metavar="SCENE", help=", ".join(SCENES))
    parser.add_argument("--hosts", type=int, default=20_000)
    parser.add_argument("--seconds", type=int, default=60)
    options = parser.parse_args()
    print("| scene | hosts | watch of events | longest look | all else | memory | events |")
    print("|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder, ProcessPoolExecutor(1, max_tasks_per_child=1) as alone:
        for scene in options.scenes or SCENES:
            row = alone.submit(warm_run, scene, options.hosts, options.seconds, Path(folder))
            print(row.result(), flush=True)


if __name__ == "__main__":
    main()
