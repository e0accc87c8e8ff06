"""Let monitors watch a real cluster under load and faults; print what each of them showed beside the truth.

    sudo python benchmarks/watch_cluster.py [--minutes 20] [--replay CAPTURE --replayed 8]

Three brokers of Kafka and two hosts with clients run in network namespaces, as for the samples of events
(samples/events/make_events.py). `kafkatap live` runs at each broker and at the bridge between all hosts. Scenes follow
each other: a broker stops, is killed, or hangs; a firewall drops packets; a quota, topics, a storm of connections.
The truth is the script's clock. With --replay, more monitors run on veth pairs into which tcpreplay sends a capture.

The first table has a row for each scene: when the event appeared in the log of each monitor, in seconds after the step
that caused it, and which other events appeared. A monitor at a broker sees that broker's connections only. The second
table has what each monitor took and lost.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from samples.events import make_events as events  # noqa: E402
from tests.support.broker import missing_compiler  # noqa: E402
from tests.support.cluster import Cluster  # noqa: E402
from tests.support.namespaces import Host, Network, cannot_build, stop  # noqa: E402

#: By scene: the step that causes the event, and the event.
EXPECTED = {
    "stop": ("stopped", "broker_stopped"),
    "kill": ("killed", "broker_stopped"),
    "hang": ("hung", "broker_hung"),
    "firewall": ("dropped", "hosts_cut_off"),
    "topics": ("created", "topic_created"),
    "quota": ("quota_set", "quota_began"),
    "storm": ("before_storm", "connection_storm"),
}
#: Seconds without a fault after each scene.
CALM = 20


@dataclass(slots=True)
class Monitor:
    """A process of `kafkatap live`. `peak`: resident bytes."""

    name: str
    log: Path
    process: subprocess.Popen[bytes]
    peak: int = 0

    def lines(self, kind: str) -> list[dict[str, Any]]:
        found = (json.loads(line) for line in self.log.read_text().splitlines() if line.startswith("{"))
        return [line for line in found if line["kind"] == kind]

    def look(self) -> None:
        """Note how much memory it takes."""
        pages = Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]
        self.peak = max(self.peak, int(pages) * 4_096)


@dataclass(slots=True)
class Scene:
    name: str
    begin: float
    steps: dict[str, float]
    end: float = 0.0
    others: set[str] = field(default_factory=set)


def start(host: Host, interface: str, folder: Path, *arguments: str) -> Monitor:
    """A monitor at a host. A third of a core is its limit, as it is for users."""
    log = folder / f"monitor-{host.name}.log"
    command = [sys.executable, "-m", "kafkatap", "live", "-i", interface, "--log-format", "json", "--interval", "10s"]
    return Monitor(host.name, log, host.start([*command, *arguments], log))


@contextmanager
def replayed(network: Network, folder: Path, capture: Path, count: int) -> Iterator[list[Monitor]]:
    """Monitors on veth pairs. tcpreplay sends the capture into each again and again, with other addresses each time."""
    made, senders = [], []
    for number in range(count):
        host = Host(f"replay{number}", f"{network.bridge().namespace}-{number}", "")
        subprocess.run(["ip", "netns", "add", host.namespace], check=True)
        host.run(["ip", "link", "add", "send", "mtu", "65535", "type", "veth", "peer", "name", "take"])
        for name in ("send", "take"):
            host.run(["ip", "link", "set", name, "mtu", "65535", "up"])
        made.append((host, start(host, "take", folder, "--buffer-size", "64m")))
    time.sleep(10)
    for host, _ in made:
        words = ["tcpreplay", "-q", "--loop=0", "--unique-ip", "--pps=1000", "-i", "send", str(capture)]
        senders.append(host.start(words, folder / f"{host.name}.sent"))
    try:
        yield [monitor for _, monitor in made]
    finally:
        for host, _ in made:
            host.stop()
            subprocess.run(["ip", "netns", "del", host.namespace], check=False)


def play(stage: events.Stage, minutes: float, monitors: list[Monitor]) -> list[Scene]:
    """The scenes in turn, for so long."""
    scenes: list[Scene] = []
    until = time.time() + 60 * minutes
    with stage.usual_clients(reads=True):
        while time.time() < until:
            name = list(EXPECTED)[len(scenes) % len(EXPECTED)]
            stage.steps = {}
            scenes.append(Scene(name, time.time(), stage.steps))
            print(f"{name}: {(until - time.time()) / 60:.1f} minutes are left", file=sys.stderr)
            events.SCENES[name](stage)
            if name == "quota":
                change = ["--alter", "--delete-config", "producer_byte_rate", "--entity-type", "clients"]
                stage.cluster.tool("kafka.admin.ConfigCommand", *change, "--entity-name", "greedy")
            time.sleep(CALM)
            scenes[-1].end = time.time()
            for monitor in monitors:
                monitor.look()
    return scenes


def shown(scenes: list[Scene], monitors: list[Monitor]) -> Iterator[str]:
    """The table of scenes."""
    yield f"| scene | event | {' | '.join(monitor.name for monitor in monitors)} | other events |"
    yield f"|---|---|{'---:|' * len(monitors)}---|"
    found = {
        monitor.name: [(datetime.fromisoformat(line["time"]).timestamp(), line) for line in monitor.lines("event")]
        for monitor in monitors
    }
    for scene in scenes:
        step, event = EXPECTED[scene.name]
        cells, others = [], set()
        for monitor in monitors:
            during = [(at, line) for at, line in found[monitor.name] if scene.begin <= at < scene.end]
            first = next((at for at, line in during if line["event"] == event), None)
            cells.append("-" if first is None else f"{first - scene.steps[step]:.1f}")
            others |= {line["event"] for _, line in during if line["event"] != event}
        yield f"| {scene.name} | {event} | {' | '.join(cells)} | {', '.join(sorted(others)) or '-'} |"


def taken(monitors: list[Monitor]) -> Iterator[str]:
    """The table of monitors."""
    yield "| monitor | packets a second | requests a second | of one core | peak | drops | detail |"
    yield "|---|---:|---:|---:|---:|---:|---|"
    for monitor in monitors:
        lines = monitor.lines("status")
        packets, requests, cpu = (
            sum(line[key] for line in lines) / max(len(lines), 1) for key in ("packets_s", "requests_s", "cpu")
        )
        drops, levels = sum(line["drops"] for line in lines), sorted({line["level"] for line in lines})
        yield (
            f"| {monitor.name} | {packets:,.0f} | {requests:,.0f} | {cpu:.0%} | {monitor.peak >> 20} MiB | {drops:,} "
            f"| {', '.join(levels)} |"
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--replay", type=Path, metavar="CAPTURE")
    parser.add_argument("--replayed", type=int, default=8, metavar="N", help="with --replay: so many more monitors")
    options = parser.parse_args()
    if why := cannot_build() or missing_compiler():
        print(f"watch_cluster: {why}", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as name, Network() as network, ExitStack() as stack:
        work = Path(name)
        hosts = [network.host(f"broker{number}", f"10.77.0.{number}") for number in (1, 2, 3)]
        cluster = stack.enter_context(Cluster.start(work / "cluster", hosts, properties=events.PROPERTIES))
        for broker in cluster.brokers:
            words = Path(f"/proc/{broker.process.pid}/cmdline").read_bytes().rstrip(b"\0")
            (broker.folder / "command").write_bytes(words)
        stage = events.Stage(work, network, cluster)
        events.create_topics(stage.shop, cluster)
        monitors = [*(start(host, "eth0", work) for host in hosts), start(stage.bridge, "lan", work, "--promiscuous")]
        more = []
        if options.replay:
            more = stack.enter_context(replayed(network, work, options.replay, options.replayed))
        time.sleep(10)
        scenes = play(stage, options.minutes, monitors + more)
        for monitor in monitors + more:
            stop(monitor.process)
        for line in (*shown(scenes, monitors), "", *taken(monitors + more)):
            print(line)
        logs = Path(tempfile.mkdtemp(prefix="kafkatap-logs-"))
        for monitor in monitors + more:
            (logs / monitor.log.name).write_bytes(monitor.log.read_bytes())
        print(f"\nThe monitors' logs are in {logs}.", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
