"""Record members that groups expel: `expulsions.pcap.zst`, with the lines of the broker's group coordinator beside it.

    python samples/questions/make_expulsions.py [FOLDER]        (as root: tcpdump records loopback)

Twice, the processes of `billing-1` (classic) and `shipping-1` (KIP-848) stop for longer than the session timeout of 3 s
(SIGSTOP), while `payments-1` (classic), `returns-1` (KIP-848) and `stock-1` (librdkafka) process for longer than
their max.poll.interval.ms of 1.5 s (librdkafka: 2 s). All come back. `payments` and `shipping` have a second member,
which stays. `expulsions.coordinator.tsv` has the coordinator's lines (time in ms, text); `expulsions.truth.json` the
steps and the assignments of the consumers.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

from confluent_kafka import Consumer  # noqa: E402

from samples.questions.make_rebalances import CLASSIC, LOGGERS, NEXT, SHORT_SESSIONS, Steps  # noqa: E402
from tests.support.questions import Scene, now_ms, question_main, scene  # noqa: E402

QUIET = {"fetch.max.wait.ms": 5000, "auto.commit.interval.ms": 5000, "metadata.max.age.ms": 300_000}
POLL = QUIET | {"max.poll.interval.ms": 1500}
STEADY = QUIET | {"heartbeat.interval.ms": 900}
#: How long the processes stop, and how long clients process.
STOPPED_S, PROCESSING_S, ROUNDS = 4.5, 3.0, 2
LINES = r"\[GroupId |member .* (in group|has failed|expired)|[Rr]ebalance|stabilized"


class Librdkafka:
    """The consumer `stock-1`: `sleep` makes its thread process for a while."""

    def __init__(self, made: Scene) -> None:
        settings = {
            "bootstrap.servers": made.broker.bootstrap, "client.id": "stock-1", "group.id": "stock",
            "session.timeout.ms": 2000, "heartbeat.interval.ms": 500, "max.poll.interval.ms": 2000,
            "fetch.wait.max.ms": 5000, "log_level": 0,
        }  # fmt: skip
        self.consumer = Consumer(settings)
        self.consumer.subscribe(["orders"])
        self.sleep, self.ends = threading.Event(), threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        while not self.ends.is_set():
            self.consumer.poll(0.2)
            if self.sleep.is_set():
                self.sleep.clear()
                time.sleep(PROCESSING_S + 1)
        self.consumer.close()


def play(made: Scene) -> None:
    made.create_topics({"orders": 2})
    steps, victims = Steps(made), made.java_clients("victims")
    steps.join("billing-1", "billing", CLASSIC | QUIET, victims)
    steps.join("shipping-1", "shipping", NEXT | QUIET, victims)
    steps.join("shipping-2", "shipping", NEXT | QUIET)
    steps.join("payments-1", "payments", CLASSIC | STEADY | POLL)
    steps.join("payments-2", "payments", CLASSIC | STEADY)
    steps.join("returns-1", "returns", NEXT | POLL)
    stock = Librdkafka(made)
    time.sleep(3)
    for _ in range(ROUNDS):
        stopped = now_ms()
        victims.process.send_signal(signal.SIGSTOP)
        stock.sleep.set()
        waits = [steps.shell.start(name, "sleep", ms=int(PROCESSING_S * 1000)) for name in ("payments-1", "returns-1")]
        steps.noted += [
            (now_ms(), "sleep", name.partition("-")[0], name) for name in ("payments-1", "returns-1", "stock-1")
        ]
        time.sleep(STOPPED_S)
        victims.process.send_signal(signal.SIGCONT)
        steps.noted += [(stopped, "stop", name.partition("-")[0], name) for name in ("billing-1", "shipping-1")]
        for wait in waits:
            wait.result()
        time.sleep(2.5)
    stock.ends.set()
    stock.thread.join(20)
    made.note_coordinator(LINES)
    made.truth["steps"] = sorted(steps.noted)
    made.truth["assignments"] = sorted(steps.shell.events + victims.events)


def record(folder: Path) -> None:
    with scene("expulsions", folder, loggers=LOGGERS, properties=SHORT_SESSIONS) as made:
        play(made)


if __name__ == "__main__":
    sys.exit(question_main(record, sys.argv[1:]))
