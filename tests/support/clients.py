"""librdkafka clients of a small shop, for samples and tests, and a log of what they see."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, Producer

LINE = "order 4711: two of article 99-1001, one of article 17-0042, paid, shipped to the usual address; "


class ClientCounts:
    """Counts from the clients' side: messages delivered and read by client, errors by client and name."""

    def __init__(self) -> None:
        self.delivered: Counter[str] = Counter()
        self.read: Counter[str] = Counter()
        self.errors: Counter[str] = Counter()
        self.throttled_ms: dict[str, int] = {}

    def error(self, client: str, error: Any) -> None:
        self.errors[f"{client}: {error.name()}"] += 1

    def delivery(self, client: str) -> Callable[[Any, Any], None]:
        def report(error: Any, message: Any) -> None:
            if error is None:
                self.delivered[client] += 1
            else:
                self.error(client, error)

        return report

    def throttle(self, client: str) -> Callable[[Any], None]:
        def report(event: Any) -> None:
            milliseconds = round(event.throttle_time * 1000)
            self.throttled_ms[client] = max(milliseconds, self.throttled_ms.get(client, 0))

        return report

    def as_json(self) -> str:
        return json.dumps({k: dict(sorted(getattr(self, k).items())) for k in vars(self)}, indent=1) + "\n"


def producer(bootstrap: str, seen: ClientCounts, client: str, **options: Any) -> Producer:
    settings = {
        "bootstrap.servers": bootstrap,
        "client.id": client,
        "throttle_cb": seen.throttle(client),
        "log_level": 0,
    }
    return Producer(settings | {"error_cb": lambda e: seen.error(client, e), "socket.timeout.ms": 10000} | options)


def consumer(bootstrap: str, seen: ClientCounts, client: str, **options: Any) -> Consumer:
    settings = {
        "bootstrap.servers": bootstrap,
        "client.id": client,
        "group.id": f"{client}-group",
        "auto.offset.reset": "earliest",
        "throttle_cb": seen.throttle(client),
        "fetch.wait.max.ms": 300,
        "log_level": 0,
    }
    return Consumer(settings | options)


def produce(
    p: Producer, seen: ClientCounts, client: str, topic: str, count: int, size: int, pause: float = 0.0
) -> None:
    """Send `count` messages of `size` bytes and wait, at most 20 s, until all are answered."""
    value = (LINE * (size // len(LINE) + 1))[:size]
    for n in range(count):
        p.produce(topic, value, key=f"k{n % 50}", on_delivery=seen.delivery(client))
        p.poll(pause)
    p.flush(20)


def read(c: Consumer, seen: ClientCounts, client: str, wanted: int, seconds: float) -> None:
    """Read until `wanted` messages arrived or the time is over."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and seen.read[client] < wanted:
        message = c.poll(0.2)
        if message is None:
            continue
        if message.error():
            seen.error(client, message.error())
        else:
            seen.read[client] += 1
