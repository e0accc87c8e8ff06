"""Record clients that connect too often: `reconnects.pcap.zst`, and `reconnects-right.pcap.zst`.

    python samples/advice/make_reconnects.py [FOLDER]        (as root: tcpdump records loopback)

`function` makes a producer for each of 15 records, and closes it. `idler` writes a record each 1.2 s, with
connections.max.idle.ms=400: each goes over a new connection. `stubborn` is a producer whose broker is not there (port
of the broker at 127.0.0.2, where nothing listens), with reconnect.backoff.ms=20 and its maximum, too. In the second
recording `function` uses one producer for all records, and the others have Kafka's defaults. `billing` writes in both,
once a second. The truth has the clients' records.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parents[1]))

from confluent_kafka import Producer  # noqa: E402

from tests.support.questions import Scene, question_main, stage  # noqa: E402

TO_ORDERS = {"topic": "orders", "bytes": 60}


def function(made: Scene, reuses: bool) -> int:
    """Write 15 records, with a producer for each, or with one; how many producers."""
    settings = {"bootstrap.servers": made.broker.bootstrap, "client.id": "function", "linger.ms": 0}
    producer, count = None, 0
    for _ in range(15):
        if producer is None or not reuses:
            producer, count = Producer(settings), count + 1
        producer.produce("orders", b"x" * 60)
        producer.flush(10)
        if not reuses:
            del producer
            producer = None
        time.sleep(0.5)
    return count


def play(made: Scene, name: str, port: int, wrong: bool) -> None:
    shell = made.java_clients(name)
    backoff = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 20} if wrong else {}
    lonely = made.java_clients(f"{name}-stubborn", bootstrap=f"127.0.0.2:{port}")
    lonely.do("stubborn", "producer", backoff)
    lonely.start("stubborn", "send", TO_ORDERS)  # it waits for metadata
    shell.do("billing", "producer")
    shell.do("idler", "producer", {"connections.max.idle.ms": 400} if wrong else {})
    writing = [
        shell.start("billing", "send", TO_ORDERS, count=14, interval_ms=1000),
        shell.start("idler", "send", TO_ORDERS, count=12, interval_ms=1200),
    ]
    made.truth["function_producers"] = function(made, not wrong)
    for client, answer in zip(("billing", "idler"), writing, strict=True):
        made.truth[client] = len(answer.result().split())
    lonely.kill()
    for client in ("billing", "idler"):
        shell.do(client, "close")


def record(folder: Path) -> None:
    with stage() as made:
        made.create_topics({"orders": 1})
        for name, wrong in (("reconnects", True), ("reconnects-right", False)):
            with made.recording(name, folder):
                play(made, name, made.broker.port, wrong)


if __name__ == "__main__":
    sys.exit(question_main(record, sys.argv[1:], FOLDER))
