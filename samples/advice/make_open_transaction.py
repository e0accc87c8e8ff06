"""Record readers behind an open transaction: `open-transaction.pcap.zst`, and `open-transaction-right.pcap.zst`.

    python samples/advice/make_open_transaction.py [FOLDER]        (as root: tcpdump records loopback)

`checkout` writes a record to `orders` each 0.4 s, without transactions. `ledger` reads it with
isolation.level=read_committed, `dashboard` with read_uncommitted. `settlement` writes three records to `orders` in a
transaction (transactional.id=settlement-1), and commits it after 6 s, then another one, in which the capture ends. In
the second recording it commits each at once. The truth has for each record that a reader had: its offset, its time at
the producer, and its arrival, in ms since the epoch; and the steps of `settlement`.
"""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parents[1]))

from confluent_kafka import Consumer, Producer, TopicPartition  # noqa: E402

from tests.support.questions import JavaClients, Scene, now_ms, question_main, stage  # noqa: E402


def read(made: Scene, client: str, isolation: str, stop: threading.Event, seen: list[list[int]]) -> None:
    """Read `orders` from its end until `stop`."""
    options = {"bootstrap.servers": made.broker.bootstrap, "client.id": client, "group.id": client, "log_level": 0}
    consumer = Consumer(options | {"isolation.level": isolation, "enable.auto.commit": False})
    consumer.assign([TopicPartition("orders", 0, -1)])
    while not stop.is_set():
        message = consumer.poll(0.05)
        if message is not None and not message.error():
            seen.append([message.offset(), message.timestamp()[1], now_ms()])
    consumer.close()


def write(made: Scene, stop: threading.Event) -> None:
    producer = Producer({"bootstrap.servers": made.broker.bootstrap, "client.id": "checkout", "linger.ms": 0})
    while not stop.wait(0.4):
        producer.produce("orders", b"x" * 80)
        producer.poll(0)
    producer.flush(10)


def transaction(shell: JavaClients, made: Scene, held: float, ends: bool) -> None:
    steps = made.truth.setdefault("steps", [])
    for verb, options in (("begin", {}), ("send", {"topic": "orders", "count": 3, "bytes": 60}), ("commit", {})):
        if verb == "commit":
            time.sleep(held)
            if not ends:
                return
        answer = shell.start("settlement", verb, options)
        answer.result()
        steps.append([answer.sent_ms, answer.done_ms, verb])


def play(made: Scene, name: str, held: float, ends: bool) -> None:
    shell, stop = made.java_clients(name), threading.Event()
    seen: dict[str, list[list[int]]] = {"ledger": [], "dashboard": []}
    threads = [
        threading.Thread(target=read, args=(made, "ledger", "read_committed", stop, seen["ledger"])),
        threading.Thread(target=read, args=(made, "dashboard", "read_uncommitted", stop, seen["dashboard"])),
        threading.Thread(target=write, args=(made, stop)),
    ]
    for thread in threads:
        thread.start()
    shell.do("settlement", "producer", {"transactional.id": "settlement-1", "linger.ms": 0})
    shell.do("settlement", "init")
    time.sleep(2)
    transaction(shell, made, held, True)
    time.sleep(2)
    transaction(shell, made, min(held, 3), ends)
    made.truth["end_ms"] = now_ms()
    shell.kill()  # before the readers stop: the transaction stays open
    stop.set()
    for thread in threads:
        thread.join(20)
    made.truth["records"] = seen


def record(folder: Path) -> None:
    for name, held, ends in (("open-transaction", 6.0, False), ("open-transaction-right", 0.0, True)):
        with stage() as made:
            made.create_topics({"orders": 1})
            with made.recording(name, folder):
                play(made, name, held, ends)


if __name__ == "__main__":
    sys.exit(question_main(record, sys.argv[1:], FOLDER))
