"""Record what happens to brokers, hosts and clients: a capture for each scene, and its truth.

    python samples/events/make_events.py [FOLDER [SCENE ...]]        (as root: it makes network namespaces)

Three brokers of Kafka 4.3 (broker 1 is the controller), two hosts with clients. The capture is of the bridge between
them, without the replication.

stop      broker 3, which has the group's coordinator, is stopped (SIGTERM), and started again
kill      broker 2 is killed (SIGKILL), and started again
hang      broker 3 hangs for 10 s (SIGSTOP), so long that the controller fences it
firewall  a rule drops what host `office` sends to broker 2, for 4 s
topics    a topic is created and deleted
quota     a quota is set that one producer exceeds
leak      admin clients are made and never closed
storm     a client opens 40 connections within a second

SCENE.truth.json has the script's clock (seconds since the epoch) and the lines of the brokers' logs.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parents[1]))


from tests.support.broker import missing_compiler  # noqa: E402
from tests.support.cluster import CONTROLLER_PORT, PORT, Broker, Cluster  # noqa: E402
from tests.support.namespaces import Host, Network, cannot_build, recorded_at, stop  # noqa: E402
from tests.support.question_scripts import publish  # noqa: E402

#: Lines of brokers' logs that say what happened.
LINES = re.compile(
    r"Fencing broker|granted a controlled shutdown|has been granted|Transition from|The broker has been unfenced"
    r"|Stopping socket server request processors|Kafka Server started|CreateTopics result|Deleted topic|Removed topic"
    r"|Created topic|Elected as the group coordinator|Resigned as the group|The request from broker"
)
#: Followers and raft nodes wait longer for data, and leaders move back soon after their broker returns: fewer packets.
PROPERTIES = {
    "num.network.threads": "2", "replica.fetch.wait.max.ms": "2000", "leader.imbalance.check.interval.seconds": "2",
}  # fmt: skip


class Stage:
    """The running cluster, and the hosts of clients."""

    def __init__(self, work: Path, network: Network, cluster: Cluster) -> None:
        self.work, self.cluster = work, cluster
        self.bridge = network.bridge()
        self.shop, self.office = network.host("shop", "10.77.0.21"), network.host("office", "10.77.0.22")
        self.steps: dict[str, float] = {}
        self.later = ExitStack()  # what ends after the recording of a scene

    def step(self, name: str) -> None:
        """Note the time of a step."""
        self.steps[name] = round(time.time(), 6)
        print(f"  {name}", flush=True)

    def broker(self, number: int) -> Broker:
        return self.cluster.brokers[number - 1]

    def start(self, number: int) -> None:
        """Start a broker that ended again."""
        broker = self.broker(number)
        words = (broker.folder / "command").read_text().split("\0")
        broker.process = broker.host.start(words, broker.folder / "again.log")
        end = time.monotonic() + 60
        while not broker.host.run(["ss", "-Htln", f"sport = :{PORT}"]) and time.monotonic() < end:
            time.sleep(0.05)

    def lines(self, since: float) -> list[list[Any]]:
        """[broker, time, text] of the brokers' logs since a time."""
        found = []
        for broker in self.cluster.brokers:
            for name in ("broker.log", "again.log"):
                path = broker.folder / name
                for line in path.read_text(errors="replace").splitlines() if path.exists() else ():
                    at = re.match(r"\[([\d-]+ [\d:]+),(\d+)\] \w+ (.*)", line)
                    if at and LINES.search(at[3]):
                        seconds = datetime.fromisoformat(f"{at[1]}.{at[2]}").timestamp()
                        if seconds >= since:
                            found.append([broker.number, round(seconds, 3), at[3][:160]])
        return sorted(found, key=lambda row: row[1])

    def admin(self, host: Host, verb: str) -> None:
        """Create or delete the topic `refunds`, as client `ops`."""
        code = (
            "import sys; from confluent_kafka.admin import AdminClient, NewTopic\n"
            "admin = AdminClient({'bootstrap.servers': sys.argv[2], 'client.id': 'ops', 'log_level': 0})\n"
            "made = admin.create_topics([NewTopic('refunds', 2, 2)]) if sys.argv[1] == 'create' else "
            "admin.delete_topics(['refunds'])\n"
            "[future.result(20) for future in made.values()]"
        )
        host.run([sys.executable, "-c", code, verb, self.cluster.bootstrap])

    @contextmanager
    def clients(self, host: Host, **settings: Any) -> Iterator[subprocess.Popen[str]]:
        """Clients of a host, until the end of the block."""
        given = {"bootstrap": self.cluster.bootstrap} | settings
        process = subprocess.Popen(
            host.command([sys.executable, "-m", "tests.support.event_clients", json.dumps(given)]),
            stdin=subprocess.PIPE, text=True, cwd=FOLDER.parents[1],
        )  # fmt: skip
        try:
            yield process
        finally:
            assert process.stdin is not None
            process.stdin.close()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                stop(process)  # type: ignore[arg-type]

    @contextmanager
    def usual_clients(self, reads: bool) -> Iterator[None]:
        """Two producers at two hosts, and a group with one reader."""
        orders = ("orders", "packers")
        with (
            self.clients(self.shop, produce={"checkout": "orders"}, pause=0.4),
            self.clients(
                self.office, produce={"billing": "orders"}, read={"packer": orders} if reads else {}, pause=0.4
            ),
        ):
            time.sleep(6)
            yield


def stop_and_return(stage: Stage, number: int, kill: bool) -> None:
    process = stage.broker(number).process
    time.sleep(1.5)
    stage.step("killed" if kill else "stopped")
    process.send_signal(signal.SIGKILL if kill else signal.SIGTERM)
    process.wait(60)
    stage.step("ended")
    time.sleep(10 if kill else 2)
    stage.step("started")
    stage.start(number)
    stage.step("listens")
    time.sleep(3)


def hang(stage: Stage) -> None:
    """`clicks` writes often to broker 3, so that its last answer is close to the stop."""
    process = stage.broker(3).process
    with stage.clients(stage.shop, produce={"clicks": "clicks"}, pause=0.08, acks="1"):
        time.sleep(1)
        stage.step("hung")
        process.send_signal(signal.SIGSTOP)
        time.sleep(10)
        process.send_signal(signal.SIGCONT)
        stage.step("continued")
        time.sleep(1)


def firewall(stage: Stage) -> None:
    """`viewer` writes often to broker 2, so that its first packet without an answer is close to the rule."""
    broker = stage.broker(2).host
    rule = ["-s", stage.office.address, "-j", "DROP"]
    with stage.clients(stage.office, produce={"viewer": "views"}, pause=0.04, acks="1"):
        time.sleep(2)
        stage.step("dropped")
        broker.run(["iptables", "-A", "INPUT", *rule])
        time.sleep(4)
        broker.run(["iptables", "-D", "INPUT", *rule])
        stage.step("passed")
        time.sleep(2)


def topics(stage: Stage) -> None:
    time.sleep(1)
    for verb, done in (("create", "created"), ("delete", "deleted")):
        stage.step(f"before_{done}")
        stage.admin(stage.office, verb)
        stage.step(done)
        time.sleep(1)


def quota(stage: Stage) -> None:
    with stage.clients(stage.shop, produce={"greedy": "clicks"}, pause=0.1, size=300):
        time.sleep(2)
        stage.step("before_quota")
        change = ["--alter", "--add-config", "producer_byte_rate=1000", "--entity-type", "clients", "--entity-name",
                  "greedy"]  # fmt: skip
        stage.cluster.tool("kafka.admin.ConfigCommand", *change)
        stage.step("quota_set")
        time.sleep(4)


def leak(stage: Stage) -> None:
    """The clients end after the recording."""
    time.sleep(1)
    stage.step("leak_began")
    stage.later.enter_context(stage.clients(stage.office, leak={"inventory": 24}, pause=0.25))
    time.sleep(8)
    stage.step("recording_ends")


def storm(stage: Stage) -> None:
    time.sleep(3)
    stage.step("before_storm")
    broker = stage.broker(2).host.address
    print(stage.shop.python("tests.support.storm_client", "reconnect", broker, str(PORT), "40"))
    stage.step("storm_ended")
    time.sleep(2)


SCENES: dict[str, Callable[[Stage], None]] = {
    "stop": lambda stage: stop_and_return(stage, 3, kill=False),
    "kill": lambda stage: stop_and_return(stage, 2, kill=True),
    "hang": hang,
    "firewall": firewall,
    "topics": topics,
    "quota": quota,
    "leak": leak,
    "storm": storm,
}


def create_topics(bootstrap_host: Host, cluster: Cluster) -> None:
    """Topics whose leaders are known: the coordinator of all groups is broker 3."""
    code = (
        "import sys; from confluent_kafka.admin import AdminClient, NewTopic\n"
        "admin = AdminClient({'bootstrap.servers': sys.argv[1]})\n"
        "made = admin.create_topics([NewTopic('orders', 3, replica_assignment=[[1, 2, 3], [2, 3, 1], [3, 1, 2]]),\n"
        "  NewTopic('clicks', 1, replica_assignment=[[3]]), NewTopic('views', 1, replica_assignment=[[2]]),\n"
        "  NewTopic('__consumer_offsets', 1, replica_assignment=[[3, 2, 1]], config={'cleanup.policy': 'compact'})])\n"
        "[future.result(20) for future in made.values()]"
    )
    bootstrap_host.run([sys.executable, "-c", code, cluster.bootstrap])


def record(folder: Path, scenes: list[str]) -> None:
    with tempfile.TemporaryDirectory() as name, Network() as network:
        work = Path(name)
        hosts = [network.host(f"broker{number}", f"10.77.0.{number}") for number in (1, 2, 3)]
        with Cluster.start(work / "cluster", hosts, properties=PROPERTIES, request_log=True) as cluster:
            for broker in cluster.brokers:
                words = Path(f"/proc/{broker.process.pid}/cmdline").read_bytes().rstrip(b"\0")
                (broker.folder / "command").write_bytes(words)
            stage = Stage(work, network, cluster)
            create_topics(stage.shop, cluster)
            for scene in scenes:
                print(scene, flush=True)
                stage.steps = {}
                began = time.time()
                with stage.usual_clients(reads=scene != "kill"):
                    hosts_of_clients = f"host {stage.shop.address} or host {stage.office.address}"
                    condition = f"tcp port {CONTROLLER_PORT} or (tcp port {PORT} and ({hosts_of_clients}))"
                    with recorded_at(stage.bridge, work, condition, "lan") as raw:
                        SCENES[scene](stage)
                stage.later.close()
                publish(folder, scene, raw)
                truth = {"steps": stage.steps, "log": stage.lines(began)}
                text = json.dumps(truth, indent=1)
                (folder / f"{scene}.truth.json").write_text(re.sub(r"\n {3,}|\n  (?=\])", " ", text) + "\n")
                time.sleep(2)


def main(arguments: list[str]) -> int:
    if why := cannot_build() or missing_compiler():
        print(f"make_events: {why}", file=sys.stderr)
        return 2
    record(Path(arguments[0]) if arguments else FOLDER, arguments[1:] or list(SCENES))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
