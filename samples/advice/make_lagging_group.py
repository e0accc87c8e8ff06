"""Record a group that falls behind: `lagging-group.pcap.zst`, and `lagging-group-right.pcap.zst`.

    python samples/advice/make_lagging_group.py [FOLDER]        (as root: tcpdump records loopback)

`checkout` and `web` write 20 records a second to a partition of `orders` each. Group `fulfilment` reads them with two
members. `fulfilment-1` works for 100 ms on each record, so it reads half of what comes; in the second recording for
1 ms. Group `nightly` begins with 1,000 records that were there before, and catches up. `archive` keeps up, and commits
nothing before it ends. The truth has what kafka-consumer-groups --describe says at the end, when the producers have
stopped and no reader moves (group, topic, partition, committed offset, end, lag); the positions of the consumers; when
the producers stopped, and when the clients were killed; and the time of each record of `checkout`, all in ms since the
epoch.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parents[1]))

from confluent_kafka import Consumer, Producer, TopicPartition  # noqa: E402

from tests.support.questions import Scene, now_ms, question_main, stage  # noqa: E402

COMMAND = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
BACKLOG, RECORDS, INTERVAL_MS = 1000, 520, 50
READER = {
    "group.protocol": "classic", "auto.commit.interval.ms": 5000, "auto.offset.reset": "latest",
    "fetch.max.wait.ms": 3000, "max.poll.records": 10, "topics": "orders",
}  # fmt: skip


def fill(made: Scene) -> None:
    """Write records before the recording, in batches of 20."""
    producer = Producer({"bootstrap.servers": made.ops, "batch.num.messages": 20, "linger.ms": 100, "log_level": 0})
    for _ in range(BACKLOG):
        producer.produce("orders", b"x" * 20, partition=0)
    producer.flush(20)


def times(made: Scene) -> list[int]:
    """The times of the records that `checkout` wrote."""
    consumer = Consumer({"bootstrap.servers": made.ops, "group.id": "truth", "log_level": 0})
    consumer.assign([TopicPartition("orders", 0, BACKLOG)])
    found: list[int] = []
    while len(found) < RECORDS:
        message = consumer.poll(10)
        assert message is not None
        assert not message.error()
        assert message.offset() == BACKLOG + len(found)
        found.append(message.timestamp()[1])
    consumer.close()
    return found


def described(made: Scene) -> list[list[str | int]]:
    """The partitions that a group has committed."""
    rows = [line.split() for line in made.tool(COMMAND, "--describe", "--all-groups", "--offsets").splitlines()]
    return [[*row[:2], *map(int, row[2:6])] for row in rows if len(row) > 5 and row[3].isdigit()]


def play(made: Scene, name: str, work_ms: int) -> None:
    shell = made.java_clients(name)
    small = {"max.partition.fetch.bytes": 1}  # a batch at a time
    for client, linger_ms in (("checkout", 2000), ("web", 4000)):
        shell.do(client, "producer", {"linger.ms": linger_ms})
    for client, processing in (("fulfilment-1", work_ms), ("fulfilment-2", 0)):
        shell.do(client, "consumer", READER | small, **{"group.id": "fulfilment", "processing_ms": processing})
    archive = READER | {"auto.commit.interval.ms": 600_000}
    shell.do("archive", "consumer", archive, **{"group.id": "archive"})
    time.sleep(3.5)
    shell.do("archive", "commit")
    nightly = READER | {"auto.offset.reset": "earliest", "max.partition.fetch.bytes": 5000}
    shell.do("nightly", "consumer", nightly, **{"group.id": "nightly", "processing_ms": 20})
    options = {"topic": "orders", "count": RECORDS, "bytes": 30, "interval_ms": INTERVAL_MS}
    sending = [shell.start(client, "send", options, partition=n) for n, client in enumerate(("checkout", "web"))]
    for answer in sending:
        answer.result()
    made.truth["last_produce_ms"] = now_ms()
    shell.do("fulfilment-1", "commit")
    made.truth["positions"] = {client: shell.do(client, "positions") for client in ("fulfilment-1", "archive")}
    shell.start("fulfilment-1", "sleep", ms=60_000)
    if work_ms > 1:
        shell.start("nightly", "sleep", ms=60_000)
    time.sleep(2.5)
    made.truth["described"] = described(made)
    shell.kill()
    made.truth["end_ms"] = now_ms()
    made.truth.update(backlog=BACKLOG, work_ms=work_ms, record_ms=times(made))


def record(folder: Path) -> None:
    for name, work_ms in (("lagging-group", 100), ("lagging-group-right", 1)):
        with stage() as made:
            made.create_topics({"orders": 2})
            fill(made)
            with made.recording(name, folder):
                play(made, name, work_ms)


if __name__ == "__main__":
    sys.exit(question_main(record, sys.argv[1:], FOLDER))
