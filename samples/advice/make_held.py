"""Record rebalances that one member holds up: `held-rebalance.pcap.zst`, and `held-rebalance-right.pcap.zst`.

    python samples/advice/make_held.py [FOLDER]        (as root: tcpdump records loopback)

`routing-3` works for 12 s on what it polled. Meanwhile `routing-4` joins, and so the others wait in JoinGroup until
routing-3 joins. `invoicing-2` works for 13 s, with max.poll.interval.ms=9000: it leaves before it has joined. The
process of `auditing-2` is killed, and it starts again at once: its group waits until the session of the old one is
over. In the second recording routing-3 and invoicing-2 work for 1.5 s, and auditing-2 closes before it starts again.
`*.coordinator.tsv` has the lines of the broker's group coordinator about rebalances and members (time in ms, text).
The truth has when each step began, and for each member when it was assigned or revoked partitions, all in ms.
"""

from __future__ import annotations

import sys
import time
from functools import partial
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parents[1]))

from tests.support.questions import JavaClients, Scene, now_ms, question_main, record_groups  # noqa: E402

PROPERTIES = {"group.min.session.timeout.ms": "1000"}
LOGGERS = {"org.apache.kafka.coordinator.group": "info"}
EVENTS = r"Preparing to rebalance|Stabilized|has failed|has left group|expired"
USUAL = {
    "group.protocol": "classic", "heartbeat.interval.ms": 1000, "session.timeout.ms": 10_000, "fetch.max.wait.ms": 5000,
    "max.poll.interval.ms": 60_000, "enable.auto.commit": "false", "topics": "parcels",
    "partition.assignment.strategy": "org.apache.kafka.clients.consumer.RangeAssignor",
}  # fmt: skip
GROUPS = {"routing": {}, "invoicing": {"max.poll.interval.ms": 9000}, "auditing": {"session.timeout.ms": 14_000}}


def play(made: Scene, name: str, is_right: bool) -> None:
    clients, first, again = (made.java_clients(f"{name}{suffix}") for suffix in ("", "-first", "-again"))

    def join(group: str, number: int, shell: JavaClients = clients) -> None:
        shell.do(f"{group}-{number}", "consumer", USUAL | {"group.id": group} | GROUPS[group])

    for group, number in (("routing", 1), ("routing", 2), ("routing", 3), ("invoicing", 1), ("invoicing", 2),
                          ("auditing", 1)):  # fmt: skip
        join(group, number)
    join("auditing", 2, first)
    time.sleep(6)
    steps = {"busy": now_ms()}
    clients.start("routing-3", "sleep", ms=1500 if is_right else 12_000)
    clients.start("invoicing-2", "sleep", ms=1500 if is_right else 13_000)
    if is_right:
        first.do("auditing-2", "close")
    first.kill()
    steps["ended"] = now_ms()
    join("auditing", 2, again)
    join("routing", 4)
    join("invoicing", 3)
    time.sleep(5 if is_right else 15)
    made.truth["steps"] = steps
    events = clients.events + first.events + again.events
    made.truth["members"] = {
        member: [[at, what] for at, who, what, _ in sorted(events) if who == member]
        for member in sorted({who for _, who, _, _ in events})
    }
    clients.kill()
    again.kill()


def record(folder: Path) -> None:
    recordings = {
        name: partial(play, name=name, is_right=is_right)
        for name, is_right in (("held-rebalance", False), ("held-rebalance-right", True))
    }
    record_groups(
        folder, recordings, topics={"parcels": 4}, filler=8, events=EVENTS, rest=16, loggers=LOGGERS,
        properties=PROPERTIES,
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(question_main(record, sys.argv[1:], FOLDER))
