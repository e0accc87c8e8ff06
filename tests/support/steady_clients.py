"""Clients of one library that write and read at a steady pace until stdin ends, for samples of healthy clusters.

    python -m tests.support.steady_clients LIBRARY BOOTSTRAP      (LIBRARY: confluent, kafka-python, aiokafka)

Each library has a producer with acks=all and a group of two readers. They go on whatever the brokers do.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from typing import Any

TOPICS = {"confluent": "orders", "kafka-python": "readings", "aiokafka": "mails"}
PAUSE = 0.05
VALUE = b"v" * 200

_ended = threading.Event()


def confluent(bootstrap: str, topic: str) -> None:
    from confluent_kafka import Consumer, Producer

    def write() -> None:
        producer = Producer({"bootstrap.servers": bootstrap, "client.id": f"{topic}-writer", "linger.ms": 10})
        while not _ended.wait(PAUSE):
            producer.produce(topic, VALUE, str(time.time_ns()))
            producer.poll(0)
        producer.flush(10)

    def read(number: int) -> None:
        reader = Consumer({
            "bootstrap.servers": bootstrap, "client.id": f"{topic}-reader-{number}", "group.id": f"{topic}-group",
            "auto.offset.reset": "earliest", "partition.assignment.strategy": "cooperative-sticky",
        })  # fmt: skip
        reader.subscribe([topic])
        while not _ended.is_set():
            reader.poll(0.5)
        reader.close()

    _threads(write, lambda: read(1), lambda: read(2))


def kafka_python(bootstrap: str, topic: str) -> None:
    from kafka import KafkaConsumer, KafkaProducer

    servers = bootstrap.split(",")

    def write() -> None:
        producer = KafkaProducer(bootstrap_servers=servers, client_id=f"{topic}-writer", acks="all", linger_ms=10)
        while not _ended.wait(PAUSE):
            producer.send(topic, VALUE, str(time.time_ns()).encode())
        producer.close(10)

    def read(number: int) -> None:
        reader = KafkaConsumer(
            topic, bootstrap_servers=servers, client_id=f"{topic}-reader-{number}", group_id=f"{topic}-group",
            auto_offset_reset="earliest",
        )  # fmt: skip
        while not _ended.is_set():
            reader.poll(500)
        reader.close()

    _threads(write, lambda: read(1), lambda: read(2))


def aiokafka(bootstrap: str, topic: str) -> None:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

    async def write() -> None:
        async with AIOKafkaProducer(
            bootstrap_servers=bootstrap, client_id=f"{topic}-writer", acks="all", linger_ms=10
        ) as producer:
            while not _ended.is_set():
                await producer.send(topic, VALUE, str(time.time_ns()).encode())
                await asyncio.sleep(PAUSE)

    async def read(number: int) -> None:
        async with AIOKafkaConsumer(
            topic, bootstrap_servers=bootstrap, client_id=f"{topic}-reader-{number}", group_id=f"{topic}-group",
            auto_offset_reset="earliest",
        ) as reader:  # fmt: skip
            while not _ended.is_set():
                await reader.getmany(timeout_ms=500)

    async def all_of_them() -> None:
        await asyncio.gather(write(), read(1), read(2))

    asyncio.run(all_of_them())


def _threads(*functions: Any) -> None:
    threads = [threading.Thread(target=function) for function in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _wait_for_end() -> None:
    sys.stdin.read()
    _ended.set()


if __name__ == "__main__":
    threading.Thread(target=_wait_for_end, daemon=True).start()
    {"confluent": confluent, "kafka-python": kafka_python, "aiokafka": aiokafka}[sys.argv[1]](
        sys.argv[2], TOPICS[sys.argv[1]]
    )
