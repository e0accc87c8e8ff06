"""Record a reader that one record stops: `poison-record.pcap.zst`, and `poison-record-right.pcap.zst`.

    python samples/advice/make_poison_record.py [FOLDER]        (as root: tcpdump records loopback)

`payments` has 120 records, and gets 2 a second more. `charger` of group `charging` commits each record that it has
worked on. It cannot work on one, goes back to it (seek) and tries again after 0.5 s, for 15 s; in the second recording
it leaves it out after three attempts. `mirror` has the same client id, but another group and no such trouble. The truth
has the offset of the record, the attempts and their times in ms since the epoch, the offset that each group has
committed at the end, and the end of the partition.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parents[1]))

from confluent_kafka import Consumer, Producer, TopicPartition  # noqa: E402

from tests.support.questions import Scene, now_ms, question_main, stage  # noqa: E402

TOPIC, RECORDS, BATCH, POISON = "payments", 120, 20, 47
SECONDS, PAUSE, FEW = 15, 0.5, 3


def send(made: Scene, count: int, pause: float, stop: threading.Event) -> None:
    """Write records in batches on the listener that is not recorded."""
    producer = Producer({"bootstrap.servers": made.ops, "batch.num.messages": BATCH, "linger.ms": 50, "log_level": 0})
    for number in range(count):
        producer.produce(TOPIC, b"not JSON" if number == POISON and not pause else b"{}", partition=0)
        if number % BATCH == BATCH - 1 or pause:
            producer.flush(20)
            if stop.wait(pause):
                break
    producer.flush(20)


def reader(made: Scene, group: str) -> Consumer:
    consumer = Consumer({
        "bootstrap.servers": made.broker.bootstrap, "client.id": "charger", "group.id": group, "log_level": 0,
        "auto.offset.reset": "earliest", "enable.auto.commit": False, "max.partition.fetch.bytes": 200,
        "fetch.wait.max.ms": 500, "queued.min.messages": 1, "topic.metadata.refresh.interval.ms": -1,
    })  # fmt: skip
    consumer.subscribe([TOPIC])
    return consumer


def work(consumer: Consumer, attempts: list[int], most: int, until: int, stop: threading.Event) -> None:
    """Work on records, and on the poison one `most` times."""
    while now_ms() < until:
        message = consumer.poll(0.2)
        if message is None:
            continue
        assert not message.error()
        offset = message.offset()
        assert offset is not None
        if message.value() == b"not JSON" and len(attempts) < most:
            attempts.append(now_ms())
            consumer.seek(TopicPartition(TOPIC, 0, offset))
            stop.wait(PAUSE)
        elif offset % 5 == 4 or message.value() == b"not JSON" or offset == POISON - 1:
            consumer.commit(message, asynchronous=False)


def play(made: Scene, most: int) -> None:
    stop, attempts, none = threading.Event(), list[int](), list[int]()
    consumers = {group: reader(made, group) for group in ("charging", "mirroring")}
    until = now_ms() + (SECONDS + 5) * 1000
    running = [
        threading.Thread(target=send, args=(made, 1000, PAUSE, stop)),
        threading.Thread(target=work, args=(consumers["mirroring"], none, 0, until, stop)),
    ]
    for thread in running:
        thread.start()
    work(consumers["charging"], attempts, most, until, stop)
    stop.set()
    for thread in running:
        thread.join()
    part = [TopicPartition(TOPIC, 0)]
    committed = {group: consumer.committed(part, 20)[0].offset for group, consumer in consumers.items()}
    end = consumers["mirroring"].get_watermark_offsets(part[0], 20)[1]
    for consumer in consumers.values():
        consumer.close()
    made.truth.update(offset=POISON, attempts_ms=attempts, committed=committed, end=end)


def record(folder: Path) -> None:
    for name, most in (("poison-record", 10_000), ("poison-record-right", FEW)):
        with stage() as made:
            made.create_topics({TOPIC: 1})
            send(made, RECORDS, 0, threading.Event())
            with made.recording(name, folder):
                play(made, most)


if __name__ == "__main__":
    sys.exit(question_main(record, sys.argv[1:], FOLDER))
