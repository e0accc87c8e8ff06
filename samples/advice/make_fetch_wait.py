"""Record a reader that waits for more bytes than there are: `fetch-wait.pcap.zst`, and `fetch-wait-right.pcap.zst`.

    python samples/advice/make_fetch_wait.py [FOLDER]        (as root: tcpdump records loopback)

`checkout` writes a record to `orders` each 0.7 s. `report` reads it with fetch.min.bytes=100000 and
fetch.wait.max.ms=2000, and then with fetch.min.bytes=1. `audit` always reads the empty topic `alerts` with the first
settings: it waits for data, and delays nothing. The truth has for each record of `orders`: its offset, its time at the
producer, and when `report` had it, in ms since the epoch.
"""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parents[1]))

from confluent_kafka import Consumer, Producer, TopicPartition  # noqa: E402

from tests.support.questions import Scene, now_ms, question_main, stage  # noqa: E402

SLOW = {"fetch.min.bytes": 100_000, "fetch.wait.max.ms": 2000}


def read(made: Scene, client: str, topic: str, settings: dict[str, int], stop: threading.Event) -> list[list[int]]:
    """Read a topic from its end until `stop`: offset, time at the producer, time of arrival of each record."""
    options = {"bootstrap.servers": made.broker.bootstrap, "client.id": client, "group.id": client, "log_level": 0}
    consumer = Consumer({**options, **settings, "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, -1)])
    seen = []
    while not stop.is_set():
        message = consumer.poll(0.05)
        if message is not None and not message.error():
            seen.append([message.offset(), message.timestamp()[1], now_ms()])
    consumer.close()
    return seen


def play(made: Scene, settings: dict[str, int]) -> None:
    stop = threading.Event()
    seen: list[list[int]] = []
    threads = [
        threading.Thread(target=lambda: seen.extend(read(made, "report", "orders", settings, stop))),
        threading.Thread(target=read, args=(made, "audit", "alerts", SLOW, stop)),
    ]
    for thread in threads:
        thread.start()
    producer = Producer({"bootstrap.servers": made.broker.bootstrap, "client.id": "checkout", "linger.ms": 0})
    time.sleep(2.5)
    for _ in range(12):
        producer.produce("orders", b"x" * 80)
        producer.flush(10)
        time.sleep(0.7)
    time.sleep(2)
    stop.set()
    for thread in threads:
        thread.join(20)
    made.truth.update(settings=settings, records=seen)


def record(folder: Path) -> None:
    with stage() as made:
        made.create_topics({"orders": 1, "alerts": 1})
        for name, settings in (("fetch-wait", SLOW), ("fetch-wait-right", {"fetch.wait.max.ms": 2000})):
            with made.recording(name, folder):
                play(made, settings)


if __name__ == "__main__":
    sys.exit(question_main(record, sys.argv[1:], FOLDER))
