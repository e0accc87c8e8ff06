"""Record a sample of real clients against a real Apache Kafka broker: `live-4.3.pcap.zst` and `live-4.3.clients.json`.

    python samples/make_live.py [FOLDER]        (as root: tcpdump records loopback)

The program starts a broker from Maven's jars and records its ports with tcpdump. For about half a minute librdkafka
clients and Kafka's own tools use it: producers with several codecs, a transaction, a consumer group, clients beyond a
byte quota, a forbidden topic, an unknown one, a message that is too large, an offset out of range, a fenced producer.
The JSON file holds what the clients themselves saw. Every wait has a limit, and every process is stopped.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from confluent_kafka import KafkaException, TopicPartition  # noqa: E402
from confluent_kafka.admin import (  # noqa: E402
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from tests.support.broker import KafkaBroker, fetch_jars  # noqa: E402
from tests.support.captures import write_capture  # noqa: E402
from tests.support.clients import ClientCounts, consumer, produce, producer, read  # noqa: E402
from tests.support.recording import cannot_record, recorded  # noqa: E402


def set_up(broker: KafkaBroker, seen: ClientCounts) -> AdminClient:
    """Create topics, one that only another user may use, and quotas (with Kafka's own tool, a Java client)."""
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


def play(broker: KafkaBroker, seen: ClientCounts) -> None:
    """Run the clients of a small shop, one after another."""
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
    except (KafkaException, SystemError) as error:  # flush raises a fatal error in either form
        cause = error if isinstance(error, KafkaException) else error.__cause__
        assert isinstance(cause, KafkaException)
        seen.error("settlement-1", cause.args[0])
    for future in admin.delete_topics(["tiny"]).values():
        future.result(20)
    for c in (billing, next_generation, night, lost):
        c.close()


def record(folder: Path) -> None:
    """Start the broker and tcpdump, run the clients, stop both, write the sample."""
    seen = ClientCounts()
    with tempfile.TemporaryDirectory() as work, KafkaBroker.start(Path(work) / "broker") as broker:
        with recorded(Path(work), broker.port) as raw:
            play(broker, seen)
        target = write_capture(folder / "live-4.3.pcap.zst", raw.read_bytes())
        (folder / "live-4.3.clients.json").write_text(seen.as_json())
        print(f"{target}: {target.stat().st_size} bytes, {raw.stat().st_size} unpacked")


def main(arguments: list[str]) -> int:
    if len(arguments) > 1:
        print("usage: python samples/make_live.py [FOLDER]", file=sys.stderr)
        return 2
    if why := cannot_record():
        print(f"make_live: {why}", file=sys.stderr)
        return 2
    fetch_jars()
    record(Path(arguments[0]) if arguments else Path(__file__).resolve().parent)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
