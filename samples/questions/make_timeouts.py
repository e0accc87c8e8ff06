"""Record requests that time out: `timeouts.pcap.zst`, with the lines of the clients' logs about them beside it.

    python samples/questions/make_timeouts.py [FOLDER]        (as root: tcpdump records loopback)

The clients wait 1.5 s for a response. First the broker stops (SIGSTOP) for 0.7 s: responses are late. Then it stops for
5 s: TCP acknowledges the requests, the clients close their connections and retry on others, and the broker answers what
it finds when it continues. Last, a firewall rule drops the packets of one connection of `far-away` before they reach
the broker: nothing is acknowledged, and its retry on another connection is answered. `idempotent` and `plain` are Java
producers, `reader` a Java consumer, `librd` a producer of librdkafka. All runs in a network namespace of its own.
`timeouts.client.log.tsv` has the clients' lines (time in ms, text), `timeouts.log.tsv` the batches of the broker's log,
`timeouts.truth.json` the times of the steps.
"""

from __future__ import annotations

import logging
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

from confluent_kafka import Producer  # noqa: E402

from tests.support.dumped_logs import dumped  # noqa: E402
from tests.support.questions import Scene, log_lines, now_ms, question_main, scene  # noqa: E402

TIMEOUTS = {"request.timeout.ms": 1500, "delivery.timeout.ms": 30_000, "linger.ms": 0, "retry.backoff.ms": 200}
PLAIN = {"enable.idempotence": "false", "acks": "1", "max.in.flight.requests.per.connection": 1}
TOPICS = ("orders", "audit", "refunds", "payments")
LINES = r"due to request timeout|Cancelled in-flight|Got error produce response"


class Lines(logging.Handler):
    """librdkafka's log lines: time in ms, text."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[tuple[int, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.kept.append((now_ms(), "LIBRDKAFKA " + record.getMessage().replace("\n", " ")))


def librdkafka(made: Scene, stop: threading.Event) -> list[tuple[int, str]]:
    """A producer of librdkafka that writes two records a second to `payments`; returns its log."""
    lines = Lines()
    logger = logging.Logger("librdkafka")
    logger.addHandler(lines)
    producer = Producer(
        {
            "bootstrap.servers": made.broker.bootstrap, "client.id": "librd", "socket.timeout.ms": 1500,
            "request.timeout.ms": 1500, "acks": 1,
        },
        logger=logger,
    )  # fmt: skip
    while not stop.wait(0.5):
        producer.produce("payments", b"x" * 60)
        producer.poll(0)
    producer.flush(20)
    return lines.kept


def stopped(made: Scene, name: str, seconds: float) -> None:
    """Stop the broker's process for a while."""
    process = made.broker.process
    start = now_ms()
    process.send_signal(signal.SIGSTOP)
    time.sleep(seconds)
    process.send_signal(signal.SIGCONT)
    made.truth.setdefault("steps", []).append({"step": name, "from_ms": start, "to_ms": now_ms()})


def ports_of(made: Scene) -> set[int]:
    """The ports of the clients with an open connection."""
    text = subprocess.run(
        ["ss", "-Htn", "state", "established", f"( dport = :{made.broker.port} )"],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    return {int(found) for found in re.findall(rf":(\d+)\s+\S+:{made.broker.port}\b", text)}


def drop(action: str, made: Scene, ports: set[int]) -> None:
    """Add (-A) or remove (-D) a firewall rule for each port of a client."""
    for port in ports:
        rule = ["-i", "lo", "-p", "tcp", "--sport", str(port), "--dport", str(made.broker.port), "-j", "DROP"]
        subprocess.run(["iptables", action, "INPUT", *rule], check=True)


def play(made: Scene) -> None:
    made.create_topics(dict.fromkeys(TOPICS, 1))
    shell = made.java_clients()
    stop = threading.Event()
    lines: list[tuple[int, str]] = []
    other = threading.Thread(target=lambda: lines.extend(librdkafka(made, stop)), daemon=True)
    shell.do("idempotent", "producer", TIMEOUTS)
    shell.do("plain", "producer", TIMEOUTS | PLAIN)
    for client, topic in (("idempotent", "orders"), ("plain", "audit")):
        shell.do(client, "send", topic=topic, bytes=60)
    before = ports_of(made)
    shell.do("far-away", "producer", TIMEOUTS)
    shell.do("far-away", "send", topic="refunds", count=2, bytes=60)
    far = ports_of(made) - before
    options: dict[str, Any] = {"topics": "orders,audit", "request.timeout.ms": 1500, "default.api.timeout.ms": 1500}
    shell.do("reader", "consumer", options | {"fetch.max.wait.ms": 800})
    other.start()
    writing = [
        shell.start("idempotent", "send", topic="orders", count=30, bytes=60, interval_ms=400),
        shell.start("plain", "send", topic="audit", count=30, bytes=60, interval_ms=400),
    ]
    time.sleep(1)
    stopped(made, "late", 0.7)
    time.sleep(1.5)
    stopped(made, "stopped", 5)
    time.sleep(3)
    start = now_ms()
    drop("-A", made, far)
    writing.append(shell.start("far-away", "send", topic="refunds", count=1, bytes=60))
    for answer in writing:
        answer.result()
    drop("-D", made, far)
    made.truth["steps"].append({"step": "dropped", "from_ms": start, "to_ms": now_ms(), "ports": sorted(far)})
    time.sleep(1)
    stop.set()
    other.join(30)
    for client in ("idempotent", "plain", "far-away", "reader"):
        shell.do(client, "close")
    kept = sorted(log_lines(shell.log, LINES) + lines)
    made.files["client.log.tsv"] = "".join(f"{at}\t{text}\n" for at, text in kept)
    made.files["log.tsv"] = dumped(made.broker.jars, made.broker.folder / "logs", TOPICS)


def record(folder: Path) -> None:
    with scene("timeouts", folder, client_loggers={"org.apache.kafka.clients": "info"}) as made:
        play(made)


def main(arguments: list[str], play: Callable[[Path], None] = record) -> int:
    """Run this script again in a network namespace of its own, where the firewall's rules bother nobody."""
    if os.environ.get("KAFKATAP_OWN_NETWORK") or os.geteuid() != 0:
        return question_main(play, arguments)
    from tests.support.broker import fetch_jars, fetch_logger

    fetch_jars(), fetch_logger()  # a network of its own has no Maven
    script = 'ip link set lo up && exec "$@"'
    command = ["unshare", "--net", "bash", "-c", script, "bash", sys.executable, *sys.argv[:1], *arguments]
    return subprocess.run(command, env=os.environ | {"KAFKATAP_OWN_NETWORK": "1"}, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
