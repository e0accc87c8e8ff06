"""Record members that are expelled again and again: `expelled-poll.pcap.zst`, `expelled-session.pcap.zst`, and each
with the setting right: `expelled-poll-right.pcap.zst`, `expelled-session-right.pcap.zst`.

    python samples/advice/make_expelled.py [FOLDER]        (as root: tcpdump records loopback)

`billing-1` processes each record for 2.2 s, with max.poll.interval.ms=1500, and so does `shipping-1`, whose group is of
the new protocol (KIP-848). The process of `payments-1` stops (SIGSTOP) for 2.2 s four times, with
session.timeout.ms=1500. `billing-2`, `shipping-2` and `payments-2` are members without trouble. Where it is right,
max.poll.interval.ms is 60000, and session.timeout.ms 10000. `*.coordinator.tsv` has the lines of the broker's group
coordinator about members (time in ms, text), the truth the settings and the stops.
"""

from __future__ import annotations

import signal
import sys
import time
from functools import partial
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parents[1]))

from tests.support.questions import Scene, now_ms, question_main, record_groups  # noqa: E402

PROPERTIES = {
    "group.min.session.timeout.ms": "1000",
    "group.consumer.heartbeat.interval.ms": "1000",
    "group.consumer.min.heartbeat.interval.ms": "500",
}
LOGGERS = {"org.apache.kafka.coordinator.group": "debug"}
EVENTS = r"has failed|has left group|left the consumer group|fenced|joins|Stabilized"
CLASSIC = {
    "group.protocol": "classic", "heartbeat.interval.ms": 500, "fetch.max.wait.ms": 5000, "max.poll.records": 1,
    "enable.auto.commit": "false", "topics": "orders",
}  # fmt: skip
NEXT = {
    "group.protocol": "consumer", "fetch.max.wait.ms": 5000, "max.poll.records": 1, "enable.auto.commit": "false",
    "topics": "orders",
}  # fmt: skip


def polls(made: Scene, name: str, poll_ms: int) -> None:
    """Two groups, each with a member that polls too seldom."""
    shell = made.java_clients(name)
    usual = {"session.timeout.ms": 10_000, "max.poll.interval.ms": 60_000, "group.id": "billing"}
    slow = {"max.poll.interval.ms": poll_ms, "processing_ms": 2200}
    shell.do("billing-2", "consumer", CLASSIC | usual)
    shell.do("shipping-2", "consumer", NEXT | {"group.id": "shipping"})
    shell.do("billing-1", "consumer", CLASSIC | usual | slow)
    shell.do("shipping-1", "consumer", NEXT | {"group.id": "shipping"} | slow)
    made.truth["max_poll_interval_ms"] = poll_ms
    time.sleep(13)
    shell.kill()


def sessions(made: Scene, name: str, session_ms: int) -> None:
    """A group with a member whose process stops."""
    shell, frozen = made.java_clients(name), made.java_clients(f"{name}-frozen")
    usual = {"session.timeout.ms": 10_000, "max.poll.interval.ms": 60_000, "group.id": "payments"}
    shell.do("payments-2", "consumer", CLASSIC | usual)
    frozen.do("payments-1", "consumer", CLASSIC | usual | {"session.timeout.ms": session_ms})
    stops = []
    time.sleep(2)
    for _ in range(4):
        start = now_ms()
        frozen.process.send_signal(signal.SIGSTOP)
        time.sleep(2.2)
        frozen.process.send_signal(signal.SIGCONT)
        stops.append([start, now_ms()])
        time.sleep(2.5)
    made.truth.update(session_timeout_ms=session_ms, stops=stops)
    shell.kill()
    frozen.kill()


def record(folder: Path) -> None:
    recordings = {
        "expelled-poll": partial(polls, name="expelled-poll", poll_ms=1500),
        "expelled-poll-right": partial(polls, name="expelled-poll-right", poll_ms=60_000),
        "expelled-session": partial(sessions, name="expelled-session", session_ms=1500),
        "expelled-session-right": partial(sessions, name="expelled-session-right", session_ms=10_000),
    }
    record_groups(
        folder, recordings, topics={"orders": 2}, filler=30, events=EVENTS, rest=12, loggers=LOGGERS,
        properties=PROPERTIES,
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(question_main(record, sys.argv[1:], FOLDER))
