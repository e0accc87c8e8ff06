"""Record eight client libraries at a TLS listener: `libraries.pcap.zst`, `libraries.keys.log`, and truth.

    python samples/tls/make_libraries.py [FOLDER]        (as root; needs Go and npm besides what the others need)

Each of Java, librdkafka, kafka-python, aiokafka, franz-go, sarama, segmentio/kafka-go and kafkajs plays three
times, as a client of its own: `one` sends a record at a time, `many` sends records that do not wait for each other, in
batches of one, and `read` waits for records that do not come. The broker has an agent that writes all secrets.
`libraries.truth.json` has the port. Who sends what when is in the client_id.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import ssl
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

import aiokafka  # noqa: E402
import kafka  # noqa: E402
from confluent_kafka import Consumer, Producer  # noqa: E402

from samples.tls.make_broker import PASSWORD  # noqa: E402
from tests.support.authority import Authority  # noqa: E402
from tests.support.broker import fetch_agent  # noqa: E402
from tests.support.questions import scene  # noqa: E402
from tests.support.tls_samples import main  # noqa: E402

CLIENTS = Path(__file__).resolve().parent / "clients"
MODES = ("one", "many", "read")
VALUE = b"order 4711: two of article 99-1001, paid, shipped; " * 4
SINGLE, MANY, PAUSE, READ_S = 30, 150, 0.005, 3.0
GO = ("franz-go", "sarama", "segmentio")


def build(folder: Path) -> tuple[Path, Path]:
    """The program with the Go clients, and a folder with kafkajs."""
    shutil.copytree(CLIENTS, folder / "clients")
    for words in (["go", "mod", "tidy"], ["go", "build", "-o", "clients", "."], ["npm", "install", "kafkajs@2.2.4"]):
        subprocess.run(words, cwd=folder / "clients", check=True, timeout=600, capture_output=True)
    return folder / "clients" / "clients", folder / "clients" / "client.mjs"


class Play:
    """What the libraries do. `at`: the listener; `trusted`: the file of its authority."""

    def __init__(self, at: str, trusted: str) -> None:
        self.at, self.trusted = at, trusted

    def librdkafka(self, mode: str, client: str) -> None:
        settings = {
            "bootstrap.servers": self.at, "client.id": client, "security.protocol": "ssl",
            "ssl.ca.location": self.trusted, "enable.metrics.push": False, "log_level": 0,
            "broker.address.family": "v4",
        }  # fmt: skip
        if mode == "read":
            consumer = Consumer(settings | {"group.id": "librdkafka", "auto.offset.reset": "earliest"})
            consumer.subscribe(["quiet"])
            end = time.monotonic() + READ_S
            while time.monotonic() < end:
                consumer.poll(0.1)
            consumer.close()
            return
        producer = Producer(settings | {"linger.ms": 0, "batch.num.messages": 1, "max.in.flight": 5})
        for _ in range(SINGLE if mode == "one" else MANY):
            producer.produce("orders", VALUE)
            if mode == "one":
                producer.flush(20)
                time.sleep(PAUSE)
        if producer.flush(20):
            raise RuntimeError(f"{client}: not all was delivered")

    def kafka_python(self, mode: str, client: str) -> None:
        common: dict[str, Any] = {
            "bootstrap_servers": self.at, "client_id": client, "security_protocol": "SSL", "ssl_cafile": self.trusted,
        }  # fmt: skip
        if mode == "read":
            consumer = kafka.KafkaConsumer("quiet", auto_offset_reset="earliest", **common)
            end = time.monotonic() + READ_S
            while time.monotonic() < end:
                consumer.poll(100)
            consumer.close()
            return
        producer = kafka.KafkaProducer(linger_ms=0, batch_size=0, **common)
        for _ in range(SINGLE if mode == "one" else MANY):
            sent = producer.send("orders", VALUE)
            if mode == "one":
                sent.get(20)
                time.sleep(PAUSE)
        producer.flush(20)
        producer.close(5)

    async def aiokafka(self, mode: str, client: str) -> None:
        common: dict[str, Any] = {
            "bootstrap_servers": self.at, "client_id": client, "security_protocol": "SSL",
            "ssl_context": ssl.create_default_context(cafile=self.trusted),
        }  # fmt: skip
        if mode == "read":
            consumer = aiokafka.AIOKafkaConsumer("quiet", auto_offset_reset="earliest", **common)
            await consumer.start()
            end = time.monotonic() + READ_S
            while time.monotonic() < end:
                await consumer.getmany(timeout_ms=100)
            await consumer.stop()
            return
        producer = aiokafka.AIOKafkaProducer(max_batch_size=1, **common)
        await producer.start()
        if mode == "one":
            for _ in range(SINGLE):
                await producer.send_and_wait("orders", VALUE)
                await asyncio.sleep(PAUSE)
        else:
            await asyncio.gather(*[await producer.send("orders", VALUE) for _ in range(MANY)])
        await producer.stop()

    def other(self, words: list[str]) -> None:
        """A client that is a program of its own."""
        subprocess.run(words, check=True, timeout=60, stdin=subprocess.DEVNULL)


def record(folder: Path) -> None:
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        go, js = BUILT
        authority, secrets = Authority(work), work / "keys.log"
        with scene(
            "libraries", folder, properties=authority.key_store(PASSWORD), listeners={"TLS": "SSL"},
            jvm=[f"-javaagent:{fetch_agent()}={secrets}"],
        ) as made:  # fmt: skip
            made.create_topics({"orders": 1, "quiet": 1})
            trusted, at = str(authority.certificate), f"localhost:{made.ports['TLS']}"
            play = Play(at, trusted)
            shell = made.java_clients()
            over = {
                "security.protocol": "SSL", "ssl.truststore.type": "PEM", "ssl.truststore.location": trusted,
                "bootstrap.servers": at,
            }  # fmt: skip
            for mode in MODES[:2]:
                shell.do(f"java-{mode}", "producer", over | {"linger.ms": 0, "batch.size": 1})
                for _ in range(SINGLE if mode == "one" else 1):
                    shell.do(f"java-{mode}", "send", topic="orders", count=1 if mode == "one" else MANY, bytes=200)
                    time.sleep(PAUSE)
                shell.do(f"java-{mode}", "close", seconds=5)
            shell.do("java-read", "consumer", over, topics="quiet", group="java")
            time.sleep(READ_S)
            shell.do("java-read", "close")
            for mode in MODES:
                play.librdkafka(mode, f"librdkafka-{mode}")
                play.kafka_python(mode, f"kafka-python-{mode}")
                asyncio.run(play.aiokafka(mode, f"aiokafka-{mode}"))
                for library in GO:
                    play.other([str(go), library, mode, at, trusted, f"{library}-{mode}", os.devnull])
                play.other(["node", str(js), mode, at, trusted, f"kafkajs-{mode}"])
            time.sleep(1)
            made.truth["ports"] = made.ports
            made.files["keys.log"] = secrets.read_text()


BUILT = Path(), Path()

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as built:
        BUILT = build(Path(built))  # while there is a network
        sys.exit(main(record, sys.argv[1:]))
