"""Record one broker of two while coordinators move: `elsewhere-groups.pcap.zst` and `elsewhere-transactions.pcap.zst`.

    python samples/questions/make_elsewhere.py [FOLDER]        (as root: network namespaces)

The captures are of broker 2, which leads the topic `orders`. In the first one the group coordinator is broker 2; then
it moves to broker 1, back, and away again (kafka-reassign-partitions and a preferred election of __consumer_offsets).
`shipping` (KIP-848) has four members that send a heartbeat each 400 ms. Two of them leave while broker 1, a follower
then, stops for 0.6 s, so that answers wait and come together. `billing` (classic) commits each second. Both read on
when commits go to broker 1. In the second one, broker 1 coordinates the transactions of `settlement` (one commit, one
abort) and `forgetful` (the coordinator aborts it after 2 s). `mover` starts with broker 2 as its coordinator, and
aborts when that is broker 1. Acknowledgements without data are left out of the first one.

`elsewhere.truth.json` has the steps, what the consumers' listeners saw, both brokers' lines about the groups and
transactions, and the committed offsets at the end by kafka-consumer-groups.
"""

from __future__ import annotations

import json
import re
import signal
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parents[1]))

from samples.questions.make_rebalances import CLASSIC, NEXT, SHORT_SESSIONS  # noqa: E402
from tests.support.cluster import PORT, Broker, Cluster  # noqa: E402
from tests.support.namespaces import Host, Network, recorded_at  # noqa: E402
from tests.support.question_scripts import client, main, publish  # noqa: E402
from tests.support.questions import JavaClients, as_json, class_folder, now_ms  # noqa: E402

PROPERTIES = SHORT_SESSIONS | {
    "group.consumer.heartbeat.interval.ms": "400",
    "group.consumer.session.timeout.ms": "6000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
}
QUIET = {"fetch.max.wait.ms": 2000, "auto.commit.interval.ms": 1000}
TOPICS = {"groups": "__consumer_offsets", "transactions": "__transaction_state"}
#: The lines of a broker's log about groups, transactions and their coordinators.
LINES = re.compile(r"^\[(?P<time>[^]]+)\] \w+ (?P<text>.*(?:GroupId|transactionalId|[Uu]?n?loading .*metadata).*) \(")
#: What is recorded: without replication between the brokers where it shows nothing.
HAS_DATA = "ip[2:2] - ((ip[0] & 0xf) << 2) - ((tcp[12] & 0xf0) >> 2) != 0 or tcp[tcpflags] & 7 != 0"
CONDITIONS = {
    "transactions": f"tcp port {PORT}",
    "groups": f"tcp port {PORT} and host 10.77.0.21 and ({HAS_DATA})",
}
MEMBERS = tuple(f"shipping-{number}" for number in range(1, 5))


class Play:
    """The cluster, its clients, and the steps so far: time in ms, step, what."""

    def __init__(self, cluster: Cluster, shell: JavaClients, admin: Host, work: Path) -> None:
        self.cluster, self.shell, self.admin, self.work = cluster, shell, admin, work
        self.steps: list[tuple[int, str, str]] = []

    def note(self, step: str, what: str) -> None:
        self.steps.append((now_ms(), step, what))

    def move(self, what: str, broker: int) -> None:
        """Make a broker the coordinator of groups or transactions."""
        topic, order = TOPICS[what], [broker, 3 - broker]
        plan = {"version": 1, "partitions": [{"topic": topic, "partition": 0, "replicas": order}]}
        elected = {"partitions": [{"topic": topic, "partition": 0}]}
        for name, content in (("plan", plan), ("elected", elected)):
            (self.work / f"{name}.json").write_text(json.dumps(content))
        reassign = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
        elect = "org.apache.kafka.tools.LeaderElectionCommand"
        self.cluster.tool(reassign, "--reassignment-json-file", str(self.work / "plan.json"), "--execute")
        time.sleep(0.5)
        self.note("move", f"{what} to {broker}")
        options = ["--election-type", "PREFERRED", "--path-to-json-file", str(self.work / "elected.json")]
        self.cluster.tool(elect, *options)
        self.note("moved", f"{what} to {broker}")

    def do(self, client_id: str, verb: str, options: Mapping[str, Any] | None = None, **more: Any) -> str:
        self.note(verb, client_id)
        return self.shell.do(client_id, verb, options, **more)

    def transaction(self, client_id: str, end: str) -> None:
        self.do(client_id, "begin")
        self.do(client_id, "send", topic="orders", count=2, bytes=60, partition=0)
        if end:
            self.do(client_id, end)


def play_transactions(play: Play) -> None:
    for name in ("settlement", "forgetful", "mover"):
        play.do(
            name,
            "producer",
            {"transactional.id": name, "transaction.timeout.ms": 2000 if name == "forgetful" else 30_000},
        )
    play.do("mover", "init")
    play.transaction("mover", "commit")
    play.move("transactions", 1)
    for name in ("settlement", "forgetful"):
        play.do(name, "init")
    play.transaction("settlement", "commit")
    play.transaction("forgetful", "")
    play.transaction("mover", "abort")
    play.transaction("settlement", "abort")
    time.sleep(3)


def play_groups(play: Play) -> None:
    sending = play.shell.start("checkout", "send", topic="orders", count=24, bytes=40, interval_ms=900)
    for member in MEMBERS:
        play.do(member, "consumer", NEXT | QUIET | {"group.id": "shipping", "topics": "orders"})
    play.do("billing-1", "consumer", CLASSIC | QUIET | {"group.id": "billing", "topics": "orders"})
    time.sleep(3)
    play.move("groups", 1)
    time.sleep(2)
    play.move("groups", 2)
    time.sleep(2)
    for member in MEMBERS[:1:-1]:
        other = play.cluster.brokers[0].process
        other.send_signal(signal.SIGSTOP)
        leaving = play.shell.start(member, "close")
        play.note("close", member)
        time.sleep(0.6)
        other.send_signal(signal.SIGCONT)
        leaving.result()
        time.sleep(1)
    play.move("groups", 1)
    sending.result()
    time.sleep(1)


def lines_of(broker: Broker) -> list[str]:
    """The lines of a broker about groups and transactions: its number, time, text."""
    found = filter(None, map(LINES.match, broker.log().splitlines()))
    return [f"{broker.number} {line['time']} {line['text'][:160]}" for line in found]


def record(folder: Path) -> None:
    """Start the cluster, record the clients, write the samples."""
    with tempfile.TemporaryDirectory() as name, Network() as network:
        work = Path(name)
        hosts = [network.host(f"broker{number}", f"10.77.0.{number}") for number in (1, 2)]
        shop = network.host("shop", "10.77.0.21")
        classes = class_folder(work / "classes", {})
        with Cluster.start(work / "cluster", hosts, properties=PROPERTIES, request_log=True) as cluster:
            client(shop, "create", cluster.bootstrap, "ops-admin", {"topic": "orders", "replicas": [[2], [2]]})
            shell = JavaClients(cluster.jars, classes, cluster.bootstrap, work / "clients.log", shop.command([]))
            play = Play(cluster, shell, shop, work)
            shell.do("checkout", "producer", {"linger.ms": 0})
            # Both internal topics are made when they are first needed.
            shell.do("first", "consumer", {"group.id": "first", "topics": "orders"})
            shell.do("first-tx", "producer", {"transactional.id": "first"})
            shell.do("first-tx", "init")
            shell.do("first", "close")
            play.move("groups", 2)
            play.move("transactions", 2)
            time.sleep(1)
            recordings = {}
            for part, run in (("transactions", play_transactions), ("groups", play_groups)):
                with recorded_at(hosts[1], work, CONDITIONS[part]) as raw:
                    run(play)
                recordings[part] = raw.rename(work / f"{part}.pcap")
            offsets = cluster.tool(
                "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand", "--describe", "--all-groups"
            )
            shell.stop()
            for part, raw in recordings.items():
                publish(folder, f"elsewhere-{part}", raw)
            logs = [line for broker in cluster.brokers for line in lines_of(broker)]
            truth = {
                "steps": play.steps,
                "assignments": sorted(shell.events),
                "offsets": offsets.splitlines(),
                "logs": logs,
            }
            (folder / "elsewhere.truth.json").write_text(as_json(truth))


if __name__ == "__main__":
    sys.exit(main(record, sys.argv[1:], FOLDER))
