"""Record a sample of real clients against a real Apache Kafka broker: `live-4.3.pcap.zst` and `live-4.3.clients.json`.

    python samples/make_live.py [FOLDER]        (as root: tcpdump records loopback)

A broker is started from Maven's jars, tcpdump records its ports, and about half a minute of librdkafka clients and of
Kafka's own tools follows: producers with several codecs, a transaction, a consumer group, clients beyond a byte quota,
a forbidden topic, an unknown one, a message that is too large, an offset out of range, a fenced producer. The JSON
file says what the clients themselves saw. All that was started is stopped; nothing waits without an end.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition  # noqa: E402
from confluent_kafka.admin import (  # noqa: E402
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from tests.support.broker import BrokerError, KafkaBroker, fetch_jars, missing  # noqa: E402
from tests.support.captures import write_capture  # noqa: E402

LINE = "order 4711: two of article 99-1001, one of article 17-0042, paid, shipped to the usual address; "


class Seen:
    """What the clients saw: messages delivered and read by client, and errors by client and name."""

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


def producer(bootstrap: str, seen: Seen, client: str, **options: Any) -> Producer:
    settings = {
        "bootstrap.servers": bootstrap,
        "client.id": client,
        "throttle_cb": seen.throttle(client),
        "log_level": 0,
    }
    return Producer(settings | {"error_cb": lambda e: seen.error(client, e), "socket.timeout.ms": 10000} | options)


def consumer(bootstrap: str, seen: Seen, client: str, **options: Any) -> Consumer:
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


def produce(p: Producer, seen: Seen, client: str, topic: str, count: int, size: int, pause: float = 0.0) -> None:
    """Send `count` messages of `size` bytes and wait, at most 20 s, until all are answered."""
    value = (LINE * (size // len(LINE) + 1))[:size]
    for n in range(count):
        p.produce(topic, value, key=f"k{n % 50}", on_delivery=seen.delivery(client))
        p.poll(pause)
    p.flush(20)


def read(c: Consumer, seen: Seen, client: str, wanted: int, seconds: float) -> None:
    """Read until `wanted` messages came or the time is over."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and seen.read[client] < wanted:
        message = c.poll(0.2)
        if message is None:
            continue
        if message.error():
            seen.error(client, message.error())
        else:
            seen.read[client] += 1


def set_up(broker: KafkaBroker, seen: Seen) -> AdminClient:
    """Topics, a topic for somebody else alone, and quotas (by Kafka's own tool, so that a Java client is seen)."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "client.id": "ops-admin", "log_level": 0})
    topics = [
        NewTopic("orders", 3, 1),
        NewTopic("payroll", 1, 1),
        NewTopic("tiny", 1, 1, config={"max.message.bytes": "500"}),
    ]
    for future in admin.create_topics(topics).values():
        future.result(20)
    for name, future in admin.create_topics([NewTopic("orders", 3, 1)]).items():
        try:
            future.result(20)
        except KafkaException as error:
            seen.error(f"ops-admin {name}", error.args[0])
    rule = AclBinding(
        ResourceType.TOPIC,
        "payroll",
        ResourcePatternType.LITERAL,
        "User:payroll-service",
        "*",
        AclOperation.ALL,
        AclPermissionType.ALLOW,
    )
    for future in admin.create_acls([rule]).values():
        future.result(20)
    limits = "producer_byte_rate=20000,consumer_byte_rate=40000"
    for client in ("bulk-loader", "nightly-report"):
        change = ["--alter", "--add-config", limits, "--entity-type", "clients", "--entity-name", client]
        broker.tool("kafka.admin.ConfigCommand", *change)
    return admin


def play(broker: KafkaBroker, seen: Seen) -> None:
    """The clients, one after another, as a small shop's would be."""
    at = broker.bootstrap
    admin = set_up(broker, seen)
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        client = f"checkout-{codec}"
        p = producer(at, seen, client, **{"compression.codec": codec, "linger.ms": 5})
        produce(p, seen, client, "orders", 40, 300, pause=0.005)
    produce(producer(at, seen, "metrics", acks=0), seen, "metrics", "orders", 30, 120, pause=0.01)

    bulk = producer(at, seen, "bulk-loader", **{"batch.size": 8000, "linger.ms": 10, "max.in.flight": 2})
    produce(bulk, seen, "bulk-loader", "orders", 120, 1000, pause=0.01)

    billing = consumer(at, seen, "billing", **{"session.timeout.ms": 6000})
    billing.subscribe(["orders"])
    read(billing, seen, "billing", 300, 10)
    billing.commit(asynchronous=False)
    next_generation = consumer(at, seen, "billing-next", **{"group.protocol": "consumer"})
    next_generation.subscribe(["orders"])
    read(next_generation, seen, "billing-next", 200, 8)
    night = consumer(at, seen, "nightly-report", **{"fetch.message.max.bytes": 30000, "enable.auto.commit": False})
    night.assign([TopicPartition("orders", n, 0) for n in range(3)])
    read(night, seen, "nightly-report", 350, 6)

    forbidden = {"message.timeout.ms": 2500}
    produce(producer(at, seen, "curious", **forbidden), seen, "curious", "payroll", 3, 50)
    produce(producer(at, seen, "typo", **forbidden), seen, "typo", "order", 2, 50)
    produce(producer(at, seen, "verbose"), seen, "verbose", "tiny", 2, 2000)
    lost = consumer(at, seen, "archive", **{"auto.offset.reset": "error"})
    lost.assign([TopicPartition("orders", 0, 10_000_000)])
    read(lost, seen, "archive", 1, 2)

    options = {"transactional.id": "settlement", "transaction.timeout.ms": 10000}
    first = producer(at, seen, "settlement-1", **options)
    first.init_transactions(15)
    first.begin_transaction()
    produce(first, seen, "settlement-1", "orders", 5, 200)
    first.commit_transaction(15)
    second = producer(at, seen, "settlement-2", **options)
    second.init_transactions(15)
    first.begin_transaction()
    try:
        produce(first, seen, "settlement-1", "orders", 1, 200)
        first.commit_transaction(15)
    except (KafkaException, SystemError) as error:  # a fatal error comes out of flush in either form
        cause = error if isinstance(error, KafkaException) else error.__cause__
        assert isinstance(cause, KafkaException)
        seen.error("settlement-1", cause.args[0])
    for future in admin.delete_topics(["tiny"]).values():
        future.result(20)
    for c in (billing, next_generation, night, lost):
        c.close()


def record(folder: Path) -> None:
    """Start the broker and tcpdump, play, stop both, write the sample."""
    seen = Seen()
    with tempfile.TemporaryDirectory() as work, KafkaBroker.start(Path(work) / "broker") as broker:
        raw = Path(work) / "live.pcap"
        command = [
            "tcpdump",
            "-i",
            "lo",
            "-U",
            "-w",
            str(raw),
            "-s",
            "0",
            "-B",
            "65536",
            "tcp",
            "port",
            str(broker.port),
        ]
        with open(Path(work) / "tcpdump.log", "wb") as log:
            tcpdump = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            end = time.monotonic() + 10
            while not (raw.exists() and raw.stat().st_size >= 24) and time.monotonic() < end:
                time.sleep(0.1)
            if tcpdump.poll() is not None:
                raise BrokerError(f"tcpdump ended: {(Path(work) / 'tcpdump.log').read_text()}")
            play(broker, seen)
            time.sleep(1)
        finally:
            tcpdump.terminate()
            tcpdump.wait(10)
        print((Path(work) / "tcpdump.log").read_text().strip())
        target = write_capture(folder / "live-4.3.pcap.zst", raw.read_bytes())
        (folder / "live-4.3.clients.json").write_text(seen.as_json())
        print(f"{target}: {target.stat().st_size} bytes, {raw.stat().st_size} unpacked")


def main(arguments: list[str]) -> int:
    if len(arguments) > 1:
        print("usage: python samples/make_live.py [FOLDER]", file=sys.stderr)
        return 2
    why = missing()
    if shutil.which("tcpdump") is None:
        why = "needs tcpdump to record loopback (apt-get install tcpdump)"
    elif os.geteuid() != 0:
        why = why or "needs to be root: tcpdump records loopback"
    if why:
        print(f"make_live: {why}", file=sys.stderr)
        return 2
    fetch_jars()
    record(Path(arguments[0]) if arguments else Path(__file__).resolve().parent)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
