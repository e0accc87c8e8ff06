"""Record clients of a real broker with TLS: `broker.pcap.zst`, key logs, and the broker's own request log.

    python samples/tls/make_broker.py [FOLDER]        (as root: tcpdump records a loopback of its own)

A broker of Kafka 4.3.0 has three listeners: TLS (SSL), TLS12 (SSL, TLS 1.2 only) and LOGIN (SASL_SSL). Clients are the
Java client, librdkafka, kafka-python and aiokafka, with TLS 1.2 and 1.3, SCRAM-SHA-256 and PLAIN. LOGIN wants a new
authentication every 1.5 s (KIP-368).

    broker.keys.log          the secrets of all connections, by a Java agent in the broker
    broker.python.keys.log   those of kafka-python and aiokafka, by Python
    broker.request.log.zst   the broker's log of requests, without the bodies of messages
    broker.truth.json        the listeners' ports
"""

from __future__ import annotations

import asyncio
import json
import ssl
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

import aiokafka  # noqa: E402
import kafka  # noqa: E402
from confluent_kafka import Producer  # noqa: E402
from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion  # noqa: E402

from tests.support.authority import Authority  # noqa: E402
from tests.support.broker import fetch_agent  # noqa: E402
from tests.support.captures import write_capture  # noqa: E402
from tests.support.questions import Scene, scene  # noqa: E402
from tests.support.tls_samples import main  # noqa: E402

PASSWORD = "made-up-4711"
PLAIN_LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SCRAM_LOGIN = "org.apache.kafka.common.security.scram.ScramLoginModule required"
LISTENERS = {"TLS": "SSL", "TLS12": "SSL", "LOGIN": "SASL_SSL"}
VALUE = b"order 4711: two of article 99-1001, one of article 17-0042, paid, shipped; " * 4
LARGE = VALUE * 70


def properties(authority: Authority) -> dict[str, str]:
    """The broker's settings, with its key store."""
    return authority.key_store(PASSWORD, LISTENERS) | {
        "listener.name.tls12.ssl.enabled.protocols": "TLSv1.2",
        "listener.name.login.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "listener.name.login.plain.sasl.jaas.config": f'{PLAIN_LOGIN} user_shop="{PASSWORD}";',
        "listener.name.login.scram-sha-256.sasl.jaas.config": f"{SCRAM_LOGIN};",
        "listener.name.login.plain.connections.max.reauth.ms": "1500",
        "listener.name.login.scram-sha-256.connections.max.reauth.ms": "1500",
    }


class Play:
    def __init__(self, made: Scene, authority: Authority, key_log: Path) -> None:
        self.made, self.trusted, self.key_log = made, str(authority.certificate), key_log
        self.at = {name: f"localhost:{port}" for name, port in made.ports.items()}

    def java(self) -> None:
        shell = self.made.java_clients()
        trust = {"ssl.truststore.type": "PEM", "ssl.truststore.location": self.trusted}
        scram = {
            "security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.jaas.config": f'{SCRAM_LOGIN} username="shop" password="{PASSWORD}";',
        }  # fmt: skip
        for client, listener, settings in (
            ("java-13", "TLS", {"security.protocol": "SSL"}),
            (
                "java-12",
                "TLS",
                {"security.protocol": "SSL", "ssl.enabled.protocols": "TLSv1.2", "ssl.protocol": "TLSv1.2"},
            ),
            ("java-scram", "LOGIN", scram),
        ):
            shell.do(client, "producer", trust | settings | {"bootstrap.servers": self.at[listener]})
            shell.do(client, "send", topic="orders", count=3, bytes=300)
            if listener == "LOGIN":
                time.sleep(2)
                shell.do(client, "send", topic="orders", count=3, bytes=300)
            shell.do(client, "close", seconds=1)

    def librdkafka(self) -> None:
        plain = {"security.protocol": "sasl_ssl", "sasl.mechanism": "PLAIN", "sasl.username": "shop",
                 "sasl.password": PASSWORD}  # fmt: skip
        tls: dict[str, Any] = {"security.protocol": "ssl"}
        for client, listener, more in (
            ("librd-13", "TLS", tls), ("librd-12", "TLS12", tls), ("librd-plain", "LOGIN", plain),
        ):  # fmt: skip
            settings = {
                "bootstrap.servers": self.at[listener], "client.id": client, "ssl.ca.location": self.trusted,
                "enable.metrics.push": False, "log_level": 0, "broker.address.family": "v4",
            } | more  # fmt: skip
            producer = Producer(settings)
            for number in range(8 if listener == "LOGIN" else 3):
                producer.produce("orders", LARGE if (client, number) == ("librd-13", 2) else VALUE)
                producer.poll(0.3 if listener == "LOGIN" else 0.01)
            if producer.flush(20):
                raise RuntimeError(f"{client}: not all was delivered")

    def context(self, version: ssl.TLSVersion) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self.trusted)
        context.minimum_version = context.maximum_version = version
        context.keylog_filename = str(self.key_log)
        return context

    def kafka_python(self) -> None:
        for client, version in (
            ("kafka-python-13", ssl.TLSVersion.TLSv1_3),
            ("kafka-python-12", ssl.TLSVersion.TLSv1_2),
        ):
            producer = kafka.KafkaProducer(
                bootstrap_servers=self.at["TLS"], client_id=client, security_protocol="SSL",
                ssl_context=self.context(version),
            )  # fmt: skip
            for _ in range(3):
                producer.send("orders", VALUE).get(20)
            producer.close(5)

    async def aiokafka(self) -> None:
        for client, version in (("aiokafka-13", ssl.TLSVersion.TLSv1_3), ("aiokafka-12", ssl.TLSVersion.TLSv1_2)):
            common: dict[str, Any] = {
                "bootstrap_servers": self.at["LOGIN"], "client_id": client, "security_protocol": "SASL_SSL",
                "ssl_context": self.context(version), "sasl_mechanism": "PLAIN", "sasl_plain_username": "shop",
                "sasl_plain_password": PASSWORD,
            }  # fmt: skip
            producer = aiokafka.AIOKafkaProducer(**common)
            await producer.start()
            for _ in range(3):
                await producer.send_and_wait("orders", VALUE)
            await producer.stop()
            consumer = aiokafka.AIOKafkaConsumer("orders", auto_offset_reset="earliest", **common)
            await consumer.start()
            await consumer.getmany(timeout_ms=1000, max_records=3)
            await consumer.stop()


def request_log(text: str) -> str:
    """The lines of requests, with empty bodies."""
    lines = []
    for line in text.splitlines():
        begin = line.find("Completed request:{")
        if begin < 0:
            continue
        entry = json.loads(line[begin + len("Completed request:") :])
        entry["request"] = entry["response"] = {}
        lines.append(f"{line[: line.index(' ')]} Completed request:{json.dumps(entry, separators=(',', ':'))}\n")
    return "".join(lines)


def record(folder: Path) -> None:
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        authority, secrets, python_secrets = Authority(work), work / "keys.log", work / "python.keys.log"
        loggers = {"kafka.request.logger": "debug"}
        with scene(
            "broker", folder, loggers=loggers, properties=properties(authority), listeners=LISTENERS,
            jvm=[f"-javaagent:{fetch_agent()}={secrets}"],
        ) as made:  # fmt: skip
            made.create_topics({"orders": 1})
            admin = AdminClient({"bootstrap.servers": made.ops, "log_level": 0})
            info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
            change = UserScramCredentialUpsertion("shop", info, PASSWORD.encode())
            for future in admin.alter_user_scram_credentials([change]).values():
                future.result(20)
            play = Play(made, authority, python_secrets)
            play.java()
            play.librdkafka()
            play.kafka_python()
            asyncio.run(play.aiokafka())
            time.sleep(1)
            made.truth["ports"] = made.ports
            made.files["keys.log"] = secrets.read_text()
            made.files["python.keys.log"] = python_secrets.read_text()
            log = request_log(made.broker.log())
        write_capture(folder / "broker.request.log.zst", log.encode())


if __name__ == "__main__":
    sys.exit(main(record, sys.argv[1:]))
