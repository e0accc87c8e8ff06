"""Record consumers, producers, groups and their lag: `groups.pcap.zst`, with what Kafka's own tool says beside it.

    python samples/questions/make_groups.py [FOLDER]        (as root: tcpdump records loopback)

Producers write `orders` and `audit`. Group `billing` has two members of the classic protocol, which commit; `shipping`
has one of KIP-848; `slow-reader` lags on purpose; `idle-watcher` reads the topic `idle`, which nobody writes; `librd-*`
are librdkafka; `mirror` reads without a group; `archive` commits once and goes. `groups.describe.txt` is the output of
kafka-consumer-groups --describe, twice: while all clients run, and when the producers have
stopped and no reader moves. Then the Java clients are killed, so the capture ends in the state of the last output.
`groups.truth.json` has the clients and their topics, and each assignment.
"""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

from confluent_kafka import Consumer, Producer  # noqa: E402

from tests.support.questions import Scene, now_ms, question_main, scene  # noqa: E402

COMMAND = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
CLIENTS = {
    "checkout": {"writes": ["orders"]},
    "auditor": {"writes": ["audit"]},
    "librd-producer": {"writes": ["orders"]},
    "billing-1": {"group": "billing", "type": "classic", "reads": ["orders"], "commits": True},
    "billing-2": {"group": "billing", "type": "classic", "reads": ["orders"], "commits": True},
    "shipping-1": {"group": "shipping", "type": "consumer", "reads": ["orders", "audit"], "commits": True},
    "slow-reader": {"group": "slow", "type": "classic", "reads": ["orders"], "commits": True},
    "idle-watcher": {"group": "watchers", "type": "classic", "reads": ["idle"], "commits": False},
    "librd-consumer": {"group": "librd", "type": "classic", "reads": ["audit"], "commits": True},
    "mirror": {"group": None, "reads": ["audit"], "commits": False},
    "archive": {"group": "archive", "type": "classic", "reads": ["audit"], "commits": True},
}


def describe(made: Scene, title: str) -> None:
    """Add the output of kafka-consumer-groups for all groups, and the times around it."""
    start = now_ms()
    texts = []
    for options in (["--offsets"], ["--members", "--verbose"], ["--state"]):
        before = now_ms()
        output = made.tool(COMMAND, "--describe", "--all-groups", *options)
        texts.append(f"# {title}: {' '.join(options)} from {before} to {now_ms()} ms\n{output.strip()}\n\n")
    made.files["describe.txt"] = made.files.get("describe.txt", "") + "".join(texts)
    made.truth.setdefault("snapshots", []).append({"title": title, "from_ms": start, "to_ms": now_ms()})


def librdkafka(made: Scene, stop: threading.Event) -> None:
    """A producer and a consumer of librdkafka, until `stop`."""
    producer = Producer({"bootstrap.servers": made.broker.bootstrap, "client.id": "librd-producer", "linger.ms": 20})
    consumer = Consumer(
        {
            "bootstrap.servers": made.broker.bootstrap, "client.id": "librd-consumer", "group.id": "librd",
            "auto.offset.reset": "earliest", "auto.commit.interval.ms": 500,
        }
    )  # fmt: skip
    consumer.subscribe(["audit"])
    number = 0
    while not stop.is_set():
        if not made.truth.get("quiet"):
            producer.produce("orders", b"y" * 60, f"librd-{number}".encode())
            number += 1
        producer.poll(0)
        consumer.poll(0.1)
    consumer.close()
    producer.flush(10)


def play(made: Scene) -> None:
    made.create_topics({"orders": 4, "audit": 1, "idle": 2})
    shell = made.java_clients()
    stop = threading.Event()
    other = threading.Thread(target=librdkafka, args=(made, stop), daemon=True)
    for name in ("checkout", "auditor"):
        shell.do(name, "producer", {"linger.ms": 5})
    shell.do("checkout", "send", topic="orders", count=40, bytes=80)
    shell.do("auditor", "send", topic="audit", count=10, bytes=40)
    classic = {"group.protocol": "classic", "auto.commit.interval.ms": 500, "heartbeat.interval.ms": 1000}
    for name in ("billing-1", "billing-2"):
        shell.do(name, "consumer", classic, **{"group.id": "billing", "topics": "orders"})
    shell.do(
        "shipping-1", "consumer",
        {"group.protocol": "consumer", "group.id": "shipping", "auto.commit.interval.ms": 500}, topics="orders,audit",
    )  # fmt: skip
    slow = {**classic, "max.poll.records": 5, "max.partition.fetch.bytes": 1000, "fetch.max.bytes": 1000}
    shell.do("slow-reader", "consumer", slow, **{"group.id": "slow", "topics": "orders", "processing_ms": 40})
    shell.do("idle-watcher", "consumer", classic, **{"group.id": "watchers", "topics": "idle"})
    shell.do("mirror", "consumer", {"topics": "audit"})
    archive = {**classic, "enable.auto.commit": False, "group.id": "archive", "topics": "audit"}
    shell.do("archive", "consumer", archive)
    other.start()
    writing = [
        shell.start("checkout", "send", topic="orders", count=200, bytes=80, interval_ms=40),
        shell.start("auditor", "send", topic="audit", count=80, bytes=40, interval_ms=100),
    ]
    time.sleep(3)
    shell.do("archive", "commit")
    shell.do("archive", "close")
    describe(made, "running")
    for answer in writing:
        answer.result()
    made.truth["quiet"] = True
    made.truth["last_produce_ms"] = now_ms()
    time.sleep(1.5)  # the others read and commit to the end
    shell.start("slow-reader", "sleep", ms=60_000)
    time.sleep(1)
    describe(made, "quiet")
    made.truth["positions"] = {
        name: shell.do(name, "positions") for name in ("billing-1", "billing-2", "shipping-1", "idle-watcher", "mirror")
    }
    stop.set()
    other.join(20)
    shell.kill()
    del made.truth["quiet"]
    made.truth["clients"] = CLIENTS
    made.truth["assignments"] = shell.events


def record(folder: Path) -> None:
    with scene("groups", folder) as made:
        play(made)


if __name__ == "__main__":
    sys.exit(question_main(record, sys.argv[1:]))
