"""One librdkafka client as a program, for samples: python -m tests.support.run_client create|produce|consume SETTINGS

SETTINGS is a JSON object: `topic`, `count` (messages), `size` (bytes of a message), `pause` (seconds between messages),
`seconds` (at most), `partitions`, `replicas` (lists of brokers, the leader first), `config` (of the topic), `bursts`,
`large` (of each so many messages, one of so many bytes); everything else is librdkafka's. The output is a JSON object:
what the client saw.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from .clients import LINE


def create(topic: str, replicas: list[list[int]], config: dict[str, str], settings: dict[str, Any]) -> dict[str, Any]:
    """Create a topic: the brokers of each partition."""
    admin = AdminClient(settings)
    for future in admin.create_topics(
        [NewTopic(topic, len(replicas), replica_assignment=replicas, config=config)]
    ).values():
        future.result(30)
    return {"created": topic}


def produce(
    topic: str,
    count: int,
    size: int,
    pause: float,
    seconds: float,
    settings: dict[str, Any],
    bursts: int = 0,
    large: tuple[int, int] = (0, 0),
) -> dict[str, Any]:
    """Send messages and wait for their answers. `bursts`: send them in so many bursts, each half a second after the
    answers to the one before; then `latency_ms` has the sum of the messages' latencies, and the longest."""
    seen: dict[str, Any] = {"delivered": 0, "errors": 0, "throttle_ms": []}
    if bursts:
        seen["latency_ms"] = [0.0, 0.0]

    def answered(error: Any, message: Any) -> None:
        seen["errors" if error else "delivered"] += 1
        if bursts:
            latency, (total, longest) = 1000 * message.latency(), seen["latency_ms"]
            seen["latency_ms"] = [round(total + latency, 1), round(max(longest, latency), 1)]

    client = Producer(settings | {"throttle_cb": lambda event: seen["throttle_ms"].append(event.throttle_time * 1000)})
    each, large_size = large
    text = LINE * (max(size, large_size) // len(LINE) + 1)
    end = time.monotonic() + seconds
    for number in range(count):
        if time.monotonic() > end:
            break
        length = large_size if each and number % each == each - 1 else size
        while True:
            try:
                client.produce(
                    topic,
                    text[:length],
                    key=f"k{number % 50}",
                    on_delivery=answered,
                )
                break
            except BufferError:
                client.poll(0.1)
        client.poll(0)
        if pause:
            time.sleep(pause)
        if bursts and (number + 1) % (count // bursts) == 0:
            client.flush(max(1.0, end - time.monotonic()))
            time.sleep(0.5)
    client.flush(max(1.0, end - time.monotonic()))
    return seen


def consume(
    topic: str, count: int, partitions: int, seconds: float, pause: float, settings: dict[str, Any]
) -> dict[str, Any]:
    """Read messages from the start of the partitions."""
    seen: dict[str, Any] = {"read": 0, "bytes": 0, "errors": 0, "throttle_ms": []}
    defaults = {
        "group.id": f"{settings['client.id']}-group",
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
    }
    throttled = {"throttle_cb": lambda event: seen["throttle_ms"].append(event.throttle_time * 1000)}
    client = Consumer(defaults | settings | throttled)
    client.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    began = time.monotonic()
    while time.monotonic() - began < seconds and seen["read"] < count:
        message = client.poll(0.2)
        if message is None:
            continue
        if message.error():
            seen["errors"] += 1
        else:
            seen["read"] += 1
            seen["bytes"] += len(message.value())
            if pause:
                time.sleep(pause)
    seen["seconds"] = round(time.monotonic() - began, 3)
    client.close()
    return seen


def main(kind: str, text: str) -> None:
    settings = json.loads(text)
    topic, count = settings.pop("topic"), settings.pop("count", 0)
    pause, seconds = settings.pop("pause", 0.0), settings.pop("seconds", 60.0)
    settings = {"log_level": 0} | settings
    if kind == "create":
        seen = create(topic, settings.pop("replicas"), settings.pop("config", {}), settings)
    elif kind == "produce":
        size, bursts, large = settings.pop("size"), settings.pop("bursts", 0), settings.pop("large", (0, 0))
        seen = produce(topic, count, size, pause, seconds, settings, bursts, large)
    else:
        seen = consume(topic, count, settings.pop("partitions", 1), seconds, pause, settings)
    print(json.dumps(seen))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
