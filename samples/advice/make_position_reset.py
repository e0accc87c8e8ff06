"""Record readers that lose their position: `position-reset.pcap.zst`, and `position-reset-right.pcap.zst`.

    python samples/advice/make_position_reset.py [FOLDER]        (as root: tcpdump records loopback)

`clicks` has 1,000 records. Four readers read 100 of them and pause. Then the first 600 are deleted, as retention would;
in the second recording the first 100. `dwh-loader` (auto.offset.reset=latest) goes on at the end, `archive` (earliest)
at the beginning, and `strict` (error) stops. `moved` begins at offset 5,000, as if another cluster had written its
position; in the second recording it begins where the others are. The truth has for each reader its last offset before,
its first one after, and its errors; and when the records were deleted, in ms since the epoch.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parents[1]))

from confluent_kafka import Consumer, Producer, TopicPartition  # noqa: E402
from confluent_kafka.admin import AdminClient  # noqa: E402

from tests.support.questions import Scene, now_ms, question_main, stage  # noqa: E402

RECORDS, READ, AFTER, BATCH, WRONG = 1000, 100, 40, 20, 5000
READERS = {"dwh-loader": "latest", "archive": "earliest", "strict": "error", "moved": "latest"}
TOPIC = "clicks"


def send(made: Scene, count: int, pause: float, stop: threading.Event) -> None:
    """Write records in batches on the listener that is not recorded."""
    producer = Producer({"bootstrap.servers": made.ops, "batch.num.messages": BATCH, "linger.ms": 50, "log_level": 0})
    for number in range(count):
        producer.produce(TOPIC, b"a click", partition=0)
        if number % BATCH == BATCH - 1:
            producer.flush(20)
            if stop.wait(pause):
                break
    producer.flush(20)


def reader(made: Scene, name: str, begin: int) -> Consumer:
    consumer = Consumer({
        "bootstrap.servers": made.broker.bootstrap, "client.id": name, "group.id": name, "log_level": 0,
        "auto.offset.reset": READERS[name], "enable.auto.commit": False, "max.partition.fetch.bytes": 1500,
        "fetch.wait.max.ms": 500, "queued.min.messages": 1, "topic.metadata.refresh.interval.ms": -1,
        "enable.partition.eof": False,
    })  # fmt: skip
    consumer.assign([TopicPartition(TOPIC, 0, begin)])
    return consumer


def offsets_of(consumer: Consumer, count: int, errors: list[str], seconds: float) -> list[int]:
    """The offsets of the next records."""
    found: list[int] = []
    until = now_ms() + seconds * 1000
    while len(found) < count and now_ms() < until:
        message = consumer.poll(0.5)
        if message is not None and (error := message.error()):
            errors.append(str(error.name()))
        elif message is not None:
            offset = message.offset()
            assert offset is not None
            found.append(offset)
    return found


def play(made: Scene, deleted: int, begin_of_moved: int) -> None:
    stop = threading.Event()
    part = [TopicPartition(TOPIC, 0)]
    consumers = {name: reader(made, name, 0) for name in READERS if name != "moved"}
    truth: dict[str, dict[str, Any]] = {name: {"errors": []} for name in READERS}
    for name, consumer in consumers.items():
        truth[name]["last_before"] = offsets_of(consumer, READ, truth[name]["errors"], 20)[-1]
        consumer.pause(part)
    admin = AdminClient({"bootstrap.servers": made.ops, "log_level": 0})
    for future in admin.delete_records([TopicPartition(TOPIC, 0, deleted)]).values():
        future.result(20)
    made.truth["deleted_ms"] = now_ms()
    consumers["moved"] = reader(made, "moved", begin_of_moved)
    sending = threading.Thread(target=send, args=(made, 6000, 0.2, stop))
    sending.start()
    for name, consumer in consumers.items():
        if name != "moved":
            consumer.resume(part)
        found = offsets_of(consumer, AFTER, truth[name]["errors"], 8 if name == "strict" and deleted > READ else 20)
        truth[name]["first_after"] = found[0] if found else None
        consumer.close()
    stop.set()
    sending.join()
    made.truth.update(readers=truth, deleted=deleted, moved_from=begin_of_moved)


def record(folder: Path) -> None:
    for name, deleted, begin_of_moved in (("position-reset", 600, WRONG), ("position-reset-right", READ, READ)):
        with stage() as made:
            made.create_topics({TOPIC: 1})
            send(made, RECORDS, 0, threading.Event())
            with made.recording(name, folder):
                play(made, deleted, begin_of_moved)


if __name__ == "__main__":
    sys.exit(question_main(record, sys.argv[1:], FOLDER))
