"""Record rebalances: `rebalances.pcap.zst`, with the lines of the broker's group coordinator beside it.

    python samples/questions/make_rebalances.py [FOLDER]        (as root: tcpdump records loopback)

Group `billing` (classic): two members join, a third joins, one leaves, one enforces a rebalance with a reason, one
processes for longer than max.poll.interval.ms, and one is killed (session timeout 3 s). `payments` has a static member,
which is closed and comes back. `reports` (cooperative assignor) has a change of its topics. `shipping` (KIP-848): two
members join, a third joins, one leaves, one is killed. `pickers` is a share group. `rebalances.coordinator.tsv` has the
coordinator's lines (time in ms, text); `rebalances.truth.json` has the steps and the assignments of the consumers.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

from tests.support.questions import JavaClients, Scene, now_ms, question_main, scene  # noqa: E402

SHORT_SESSIONS = {
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "3000",
    "group.consumer.min.heartbeat.interval.ms": "300",
    "group.consumer.heartbeat.interval.ms": "500",
    "group.share.min.heartbeat.interval.ms": "300",
    "group.share.heartbeat.interval.ms": "1000",
}
LOGGERS = {"org.apache.kafka.coordinator.group": "debug"}

CLASSIC = {
    "group.protocol": "classic", "session.timeout.ms": 3000, "heartbeat.interval.ms": 500,
    "max.poll.interval.ms": 60_000, "fetch.max.wait.ms": 1000, "auto.commit.interval.ms": 2000,
}  # fmt: skip
NEXT = {"group.protocol": "consumer", "fetch.max.wait.ms": 1000, "auto.commit.interval.ms": 2000}
COOPERATIVE = "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"


class Steps:
    """The steps of the recording, each noted with its time."""

    def __init__(self, made: Scene) -> None:
        self.made = made
        self.shell = made.java_clients()
        self.noted: list[tuple[int, str, str, str]] = []

    def join(self, client: str, group: str, options: dict[str, Any], shell: JavaClients | None = None) -> None:
        self.noted.append((now_ms(), "join", group, client))
        named = {"group.id": group, "topics": "orders", **options}
        (shell or self.shell).do(client, "consumer", named)

    def do(self, client: str, group: str, verb: str, **options: Any) -> None:
        self.noted.append((now_ms(), verb, group, client))
        self.shell.do(client, verb, **options)

    def kill(self, shell: JavaClients, members: dict[str, str]) -> None:
        self.noted += [(now_ms(), "kill", group, client) for group, client in members.items()]
        shell.kill()


def play(made: Scene) -> None:
    made.create_topics({"orders": 4, "refunds": 2})
    steps = Steps(made)
    victims = made.java_clients("victims")
    steps.shell.do("checkout", "producer")
    steps.shell.do("checkout", "send", topic="orders", count=20, bytes=60)
    steps.join("billing-1", "billing", CLASSIC)
    steps.join("shipping-1", "shipping", NEXT)
    steps.join("payments-1", "payments", CLASSIC | {"group.instance.id": "till-1"})
    steps.join("reports-1", "reports", CLASSIC | {"partition.assignment.strategy": COOPERATIVE})
    steps.shell.do("picker-1", "share", {"group.id": "pickers", "topics": "orders"})
    time.sleep(3)
    steps.join("billing-2", "billing", CLASSIC, victims)
    steps.join("shipping-2", "shipping", NEXT, victims)
    steps.join("payments-2", "payments", CLASSIC)
    steps.join("reports-2", "reports", CLASSIC | {"partition.assignment.strategy": COOPERATIVE})
    steps.shell.do("picker-2", "share", {"group.id": "pickers", "topics": "orders"})
    time.sleep(3)
    steps.join("billing-3", "billing", CLASSIC | {"max.poll.interval.ms": 3000})
    steps.join("shipping-3", "shipping", NEXT)
    time.sleep(3)
    steps.do("billing-1", "billing", "rebalance", reason="operator asks for a new assignment")
    steps.do("shipping-3", "shipping", "close")
    steps.do("payments-1", "payments", "close")
    time.sleep(1)
    steps.join("payments-1b", "payments", CLASSIC | {"group.instance.id": "till-1"})
    steps.do("reports-1", "reports", "subscribe", topics="orders,refunds")
    time.sleep(2)
    steps.shell.start("billing-3", "sleep", ms=5000)  # longer than its max.poll.interval.ms
    steps.noted.append((now_ms(), "sleep", "billing", "billing-3"))
    time.sleep(7)
    steps.kill(victims, {"billing": "billing-2", "shipping": "shipping-2"})
    time.sleep(6)
    steps.do("picker-2", "pickers", "close")
    for client in ("billing-3", "billing-1", "shipping-1", "payments-2", "reports-2", "reports-1"):
        steps.do(client, client.rpartition("-")[0], "close")
    made.note_coordinator()
    made.truth["steps"] = steps.noted
    made.truth["assignments"] = sorted(steps.shell.events + victims.events)


def record(folder: Path) -> None:
    with scene("rebalances", folder, loggers=LOGGERS, properties=SHORT_SESSIONS) as made:
        play(made)


if __name__ == "__main__":
    sys.exit(question_main(record, sys.argv[1:]))
