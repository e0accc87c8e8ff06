"""librdkafka clients of one host, for samples: python -m tests.support.event_clients SETTINGS

SETTINGS is a JSON object: `bootstrap`, `produce` (client id -> topic), `read` (client id -> topic and group), `pause`
(seconds between messages of a producer), `leak` (admin clients that are made and never closed, by their client id ->
count), `size` (bytes of a message), `acks`. The clients run until standard input ends.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from typing import Any

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from .clients import LINE

#: Clients return within a second to brokers that return.
QUIET = {
    "log_level": 0, "reconnect.backoff.ms": 100, "reconnect.backoff.max.ms": 500, "socket.keepalive.enable": False,
    "topic.metadata.refresh.interval.ms": 5000,
}  # fmt: skip


def produce(settings: dict[str, Any], topic: str, size: int, pause: float, stop: threading.Event) -> None:
    """Send one small message after the other, to the partitions in turns."""
    client = Producer(QUIET | {"linger.ms": 0, "partitioner": "random"} | settings)
    value = (LINE * (size // len(LINE) + 1))[:size]
    number = 0
    while not stop.is_set():
        try:
            client.produce(topic, value, key=f"k{number}")
        except BufferError:
            client.poll(0.1)
        client.poll(0)
        number += 1
        if pause:
            time.sleep(pause)
    client.flush(5)


def read(settings: dict[str, Any], topic: str, stop: threading.Event) -> None:
    """Read a topic as a member of a group."""
    client = Consumer(QUIET | {"fetch.wait.max.ms": 1500, "auto.commit.interval.ms": 3000} | settings)
    client.subscribe([topic])
    while not stop.is_set():
        client.poll(0.2)
    client.close()


def leak(settings: dict[str, Any], count: int, pause: float, kept: list[AdminClient]) -> None:
    """Make admin clients that stay open."""
    for _ in range(count):
        kept.append(AdminClient(QUIET | {"topic.metadata.refresh.interval.ms": -1} | settings))
        kept[-1].list_topics(timeout=10)
        time.sleep(pause)


def main(text: str) -> None:
    given = json.loads(text)
    stop, kept = threading.Event(), list[AdminClient]()
    pause, size = given.get("pause", 0.2), given.get("size", 20)
    bootstrap = {"bootstrap.servers": given["bootstrap"]}
    threads = []
    for client_id, topic in given.get("produce", {}).items():
        settings = bootstrap | {"client.id": client_id, "acks": given.get("acks", "all")}
        threads.append(threading.Thread(target=produce, args=(settings, topic, size, pause, stop), daemon=True))
    for client_id, (topic, group) in given.get("read", {}).items():
        settings = bootstrap | {"client.id": client_id, "group.id": group}
        threads.append(threading.Thread(target=read, args=(settings, topic, stop), daemon=True))
    for client_id, count in given.get("leak", {}).items():
        settings = bootstrap | {"client.id": client_id}
        threads.append(threading.Thread(target=leak, args=(settings, count, pause, kept), daemon=True))
    for thread in threads:
        thread.start()
    sys.stdin.read()
    stop.set()
    for thread in threads:
        thread.join(10)


if __name__ == "__main__":
    main(sys.argv[1])
