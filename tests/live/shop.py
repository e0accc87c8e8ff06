"""Real clients of three libraries (librdkafka, aiokafka, kafka-python) that talk to a broker at once, for some seconds.

    python -m tests.live.shop HOST:PORT PREFIX

A process of its own, so that it can run in another network namespace. PREFIX begins the names of topics and groups.
What the clients themselves saw is printed as one JSON object.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from threading import Thread

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.clients import LINE, ClientCounts, consumer, produce, producer, read

#: Has a quota of QUOTA bytes a second, and sends more.
THROTTLED, QUOTA = "bulk-loader", 20_000
SECONDS = 5.0


def topics_of(at: str, seen: ClientCounts, prefix: str) -> None:
    admin = AdminClient({"bootstrap.servers": at, "client.id": "ops-admin", "log_level": 0})
    wanted = [
        NewTopic(f"{prefix}orders", 3, 1),
        NewTopic(f"{prefix}events", 2, 1),
        NewTopic(f"{prefix}tiny", 1, 1, config={"max.message.bytes": "500"}),
    ]
    for future in admin.create_topics(wanted).values():
        future.result(20)
    for future in admin.create_topics(wanted[:1]).values():
        try:
            future.result(20)
        except KafkaException as error:
            seen.error("ops-admin", error.args[0])
    admin.list_consumer_groups().result(20)
    admin.describe_cluster().result(20)


def librdkafka(at: str, seen: ClientCounts, prefix: str) -> None:
    orders = f"{prefix}orders"
    for codec in ("none", "zstd"):
        client = f"checkout-{codec}"
        produce(
            producer(at, seen, client, **{"compression.codec": codec, "linger.ms": 5}),
            seen,
            client,
            orders,
            100,
            300,
            0.003,
        )
    produce(producer(at, seen, "metrics", acks=0), seen, "metrics", orders, 50, 120, pause=0.005)
    produce(producer(at, seen, "verbose"), seen, "verbose", f"{prefix}tiny", 2, 2_000)
    produce(producer(at, seen, "typo", **{"message.timeout.ms": 1_000}), seen, "typo", f"{prefix}order", 2, 50)
    lost = consumer(at, seen, "archive", **{"auto.offset.reset": "error"})
    lost.assign([TopicPartition(orders, 0, 10_000_000)])
    read(lost, seen, "archive", 1, 1)
    lost.close()


def reading(at: str, seen: ClientCounts, prefix: str) -> None:
    members = {
        client: consumer(at, seen, client, **{"group.id": f"{prefix}billing", "session.timeout.ms": 6_000})
        for client in ("billing-1", "billing-2")
    }
    new = consumer(at, seen, "billing-next", **{"group.protocol": "consumer", "group.id": f"{prefix}next"})
    for each in (*members.values(), new):
        each.subscribe([f"{prefix}orders"])
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        for client, each in {**members, "billing-next": new}.items():
            read(each, seen, client, 1 << 30, 0.1)
    for each in (*members.values(), new):
        each.close()


def throttled(at: str, seen: ClientCounts, prefix: str) -> None:
    bulk = producer(at, seen, THROTTLED, **{"batch.size": 8_000, "linger.ms": 10, "max.in.flight": 2})
    produce(bulk, seen, THROTTLED, f"{prefix}orders", 100, 1_000, pause=0.005)


def aiokafka(at: str, seen: ClientCounts, prefix: str) -> None:
    asyncio.run(_aiokafka(at, seen, prefix))


async def _aiokafka(at: str, seen: ClientCounts, prefix: str) -> None:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

    topic = f"{prefix}events"
    sender = AIOKafkaProducer(bootstrap_servers=at, client_id="aio-sender", linger_ms=2)
    reader = AIOKafkaConsumer(
        topic, bootstrap_servers=at, client_id="aio-reader", group_id=f"{prefix}aio", auto_offset_reset="earliest"
    )
    await sender.start()
    await reader.start()
    try:
        for n in range(150):
            await sender.send(topic, f"{LINE}{n}".encode())
            await asyncio.sleep(0.01)
        await sender.flush()
        seen.delivered["aio-sender"] += 150
        end = time.monotonic() + 3
        while seen.read["aio-reader"] < 150 and time.monotonic() < end:
            got = await reader.getmany(timeout_ms=200)
            seen.read["aio-reader"] += sum(map(len, got.values()))
    finally:
        await reader.stop()
        await sender.stop()


def kafka_python(at: str, seen: ClientCounts, prefix: str) -> None:
    from kafka import KafkaConsumer, KafkaProducer

    topic = f"{prefix}events"
    sender = KafkaProducer(bootstrap_servers=at, client_id="py-sender", acks="all", linger_ms=2)
    for n in range(80):
        sender.send(topic, f"{LINE}{n}".encode())
        if n % 8 == 0:
            time.sleep(0.01)
    sender.flush(10)
    sender.close(10)
    seen.delivered["py-sender"] += 80
    reader = KafkaConsumer(
        topic, bootstrap_servers=at, client_id="py-reader", group_id=f"{prefix}py", auto_offset_reset="earliest",
        consumer_timeout_ms=1_500,
    )  # fmt: skip
    for _ in reader:
        seen.read["py-reader"] += 1
        if seen.read["py-reader"] >= 80:
            break
    reader.close()


def play(at: str, prefix: str) -> ClientCounts:
    """All of it; what goes wrong in one is raised here."""
    seen = ClientCounts()
    failed: list[BaseException] = []
    topics_of(at, seen, prefix)

    def run(part: Callable[[str, ClientCounts, str], None]) -> None:
        try:
            part(at, seen, prefix)
        except BaseException as error:
            failed.append(error)

    threads = [Thread(target=run, args=(part,)) for part in (librdkafka, reading, throttled, aiokafka, kafka_python)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]
    return seen


if __name__ == "__main__":
    print(play(*sys.argv[1:]).as_json())
