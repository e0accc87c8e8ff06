"""Record each SASL mechanism at a broker whose sessions last four seconds: `sasl.pcap.zst`, with lines of its log.

    python samples/questions/make_sasl.py [FOLDER]        (as root: tcpdump records loopback; needs MIT Kerberos' KDC)

All sessions of listener SASL last 4 s. Clients of Kafka's Java client authenticate with PLAIN, SCRAM-SHA-256,
SCRAM-SHA-512, OAUTHBEARER and GSSAPI, and again before the session is over (KIP-368); `librd-again` is one of
librdkafka. `oauth-denied` has a token without the scope that the broker wants. `never-again` sends a request after its
session without authenticating, and `late-again` authenticates after it. Clients of listener OLD send SaslHandshake 0,
and then tokens without Kafka's header: `old-gssapi`, `old-plain` and `old-typo` (a wrong password) are kafka-clients
0.10.2, `old-scram` is kafka-python with the version of 0.10. `sasl.broker.tsv` has the broker's lines about
authentication, `sasl.truth.json` what each client was answered, and the ports. All passwords are generated.
"""

from __future__ import annotations

import os
import re
import socket
import struct
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

from confluent_kafka import Producer  # noqa: E402
from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion  # noqa: E402

from tests.support.broker import BrokerError, fetch_client_jars, java_command  # noqa: E402
from tests.support.kerberos import Realm, kdc, missing_kdc  # noqa: E402
from tests.support.questions import FOLDER, Scene, log_time_ms, question_main, scene  # noqa: E402
from tests.wire.kafkatalk import METADATA, SASL_AUTHENTICATE, SASL_HANDSHAKE, request  # noqa: E402

PASSWORD, WRONG = "made-up-4711", "made-up-4712"
PLAIN_LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SCRAM_LOGIN = "org.apache.kafka.common.security.scram.ScramLoginModule required"
TOKEN_LOGIN = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI")
LISTENERS = {"SASL": "SASL_PLAINTEXT", "OLD": "SASL_PLAINTEXT"}
SELECTOR = "org.apache.kafka.common.network.Selector"
LIFETIME_MS, SECONDS = 4000, 10
LINE = re.compile(
    r"^(?P<time>\S+) \[data-plane-kafka-network-thread-1-(?P<listener>[A-Z]+)-.*"
    r"(?P<result>Successfully (?:re-)?authenticated with|Failed (?:re-)?authentication with) /(?P<address>[\d.]+)"
    r"(?: \(channelId=\S+?-[\d.]+:(?P<port>\d+)-\S+?\))?(?: \((?P<reason>.*)\)$)?",
    re.MULTILINE,
)


def logins(realm: Realm) -> dict[str, str]:
    """The JAAS configuration of the broker by mechanism."""
    token = f'{TOKEN_LOGIN} unsecuredLoginStringClaim_sub="broker" unsecuredValidatorRequiredScope="orders";'
    return {
        "PLAIN": f'{PLAIN_LOGIN} user_shop="{PASSWORD}";', "SCRAM-SHA-256": f"{SCRAM_LOGIN};",
        "SCRAM-SHA-512": f"{SCRAM_LOGIN};", "OAUTHBEARER": token, "GSSAPI": realm.login("kafka/localhost"),
    }  # fmt: skip


def properties(realm: Realm) -> dict[str, str]:
    found = {"connections.max.reauth.ms": str(LIFETIME_MS), "sasl.kerberos.service.name": "kafka"}
    for listener in ("sasl", "old"):
        found[f"listener.name.{listener}.sasl.enabled.mechanisms"] = ",".join(MECHANISMS)
        for mechanism, login in logins(realm).items():
            found[f"listener.name.{listener}.{mechanism.lower()}.sasl.jaas.config"] = login
    return found


def client_settings(mechanism: str, login: str) -> dict[str, str]:
    """The settings of a Java client."""
    return {
        "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism, "sasl.jaas.config": login,
        "sasl.kerberos.service.name": "kafka", "max.block.ms": "3000", "reconnect.backoff.ms": "700",
    }  # fmt: skip


def java_logins(realm: Realm) -> dict[str, tuple[str, str]]:
    """The mechanism and the JAAS configuration of each Java client."""
    who = f'username="shop" password="{PASSWORD}";'
    token = f'{TOKEN_LOGIN} unsecuredLoginStringClaim_sub="shop"'
    return {
        "java-plain": ("PLAIN", f"{PLAIN_LOGIN} {who}"),
        "java-scram-256": ("SCRAM-SHA-256", f"{SCRAM_LOGIN} {who}"),
        "java-scram-512": ("SCRAM-SHA-512", f"{SCRAM_LOGIN} {who}"),
        "java-oauth": ("OAUTHBEARER", f'{token} unsecuredLoginListClaim_scope=",orders";'),
        "oauth-denied": ("OAUTHBEARER", f"{token};"),
        "java-gssapi": ("GSSAPI", realm.login("shop")),
    }


def play(made: Scene, realm: Realm) -> None:
    made.create_topics({"orders": 1})
    admin = AdminClient({"bootstrap.servers": made.ops, "log_level": 0})
    for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
        change = UserScramCredentialUpsertion("shop", ScramCredentialInfo(mechanism, 4096), PASSWORD.encode())
        for future in admin.alter_user_scram_credentials([change]).values():
            future.result(20)
    shell = made.java_clients()
    answers, settings = {}, java_logins(realm)
    for client, (mechanism, login) in settings.items():
        chosen = {**client_settings(mechanism, login), "bootstrap.servers": f"127.0.0.1:{made.ports['SASL']}"}
        shell.do(client, "producer", chosen)
        if client != "oauth-denied":
            answers[client] = shell.start(client, "send", topic="orders", count=SECONDS, interval_ms=1000, bytes=60)
    raw = [raw_client(made.ports["SASL"], name) for name in ("never-again", "late-again")]
    answers["oauth-denied"] = shell.start("oauth-denied", "send", topic="orders")
    answers["oauth-denied"].ready.wait(20)
    shell.do("oauth-denied", "close", seconds=1)
    results: dict[str, Any] = {"librd-again": librdkafka(made, "librd-again")}
    plain = '{} username="shop" password="{}";'
    for client, mechanism, login in (
        ("old-plain", "PLAIN", plain.format(PLAIN_LOGIN, PASSWORD)),
        ("old-typo", "PLAIN", plain.format(PLAIN_LOGIN, WRONG)),
        ("old-gssapi", "GSSAPI", realm.login("shop")),
    ):
        results[client] = old_java(made, client, mechanism, login)
    results["old-scram"] = old_python(made)
    results["never-again"], results["late-again"] = finish_raw(*raw)
    for client, answer in answers.items():
        answer.ready.wait(60)
        results[client] = answer.text
        shell.do(client, "close", seconds=1)
    made.truth["ports"], made.truth["lifetime_ms"] = made.ports, LIFETIME_MS
    made.truth["clients"] = results
    time.sleep(1)
    rows = ["time_ms\tlistener\taddress\tport\tresult\treason"]
    for line in LINE.finditer(made.broker.log()):
        result = line["result"].removesuffix(" with").lower()
        words = [str(log_time_ms(line["time"])), line["listener"], line["address"], line["port"] or "", result]
        rows.append("\t".join([*words, line["reason"] or ""]))
    made.files["broker.tsv"] = "\n".join(rows) + "\n"


def librdkafka(made: Scene, client: str) -> int:
    """A producer of librdkafka that sends a record a second; returns how many were acknowledged."""
    done: list[bool] = []
    producer = Producer(
        {
            "bootstrap.servers": f"127.0.0.1:{made.ports['SASL']}", "client.id": client, "log_level": 0,
            "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-256", "sasl.username": "shop",
            "sasl.password": PASSWORD, "message.timeout.ms": 2000,
        }
    )  # fmt: skip
    for _ in range(SECONDS):
        producer.produce("orders", b"x" * 60, on_delivery=lambda error, _: done.append(error is None))
        end = time.monotonic() + 1
        while time.monotonic() < end:
            producer.poll(0.1)
    producer.flush(3)
    return sum(done)


def old_java(made: Scene, client: str, mechanism: str, login: str) -> str:
    """kafka-clients 0.10.2; returns what it printed. The broker accepts its login, and no other request of it."""
    jars = fetch_client_jars("0.10.2.2")
    classes = made.work / "old"
    if not classes.exists():
        classes.mkdir()
        source = str(FOLDER / "java" / "OldClient.java")
        subprocess.run(["javac", "-cp", f"{jars}/*", "-d", str(classes), source], check=True, timeout=120)
    settings = client_settings(mechanism, login)
    chosen = [f"{name}={settings[name]}" for name in settings if name != "max.block.ms"]
    words = [f"127.0.0.1:{made.ports['OLD']}", client, "orders", "1", *chosen]
    done = subprocess.run(
        java_command(jars, "OldClient", words, classes=classes), capture_output=True, text=True, timeout=60, check=False
    )
    return done.stdout


def old_python(made: Scene) -> str:
    """kafka-python as of 0.10; returns whether it could send a record."""
    from kafka import KafkaProducer
    from kafka.errors import KafkaError

    producer = KafkaProducer(
        bootstrap_servers=f"127.0.0.1:{made.ports['OLD']}", client_id="old-scram", api_version=(0, 10, 2),
        security_protocol="SASL_PLAINTEXT", sasl_mechanism="SCRAM-SHA-512", sasl_plain_username="shop",
        sasl_plain_password=PASSWORD, max_block_ms=3000, reconnect_backoff_ms=700, retries=1,
    )  # fmt: skip
    result = "sent"
    try:
        producer.send("orders", b"x" * 60).get(3)
    except KafkaError as error:
        result = type(error).__name__
    with suppress(KafkaError):
        producer.close(0.5)
    return result


class RawClient:
    """A client made by hand, which authenticates with PLAIN."""

    def __init__(self, port: int, name: str) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=5)
        self.name, self.number = name, 0

    def ask(self, api_key: int, version: int, **values: Any) -> bytes:
        """Send a request; its response, b"" if the broker closes the connection."""
        self.number += 1
        self.socket.sendall(request(api_key, version, self.number, self.name, **values))
        try:
            size = self.socket.recv(4, socket.MSG_WAITALL)
            return self.socket.recv(struct.unpack("!i", size)[0], socket.MSG_WAITALL) if size else b""
        except ConnectionError:
            return b""

    def authenticate(self) -> None:
        self.ask(SASL_HANDSHAKE, 1, Mechanism="PLAIN")
        self.ask(SASL_AUTHENTICATE, 2, AuthBytes=f"\0shop\0{PASSWORD}".encode())

    def look(self) -> str:
        """Ask for metadata; whether that was answered."""
        return "answered" if self.ask(METADATA, 9, Topics=[]) else "closed"


def raw_client(port: int, name: str) -> RawClient:
    made = RawClient(port, name)
    made.authenticate()
    made.look()
    return made


def finish_raw(never: RawClient, late: RawClient) -> tuple[str, str]:
    """Both send a request after the session is over (librdkafka's ten seconds have passed)."""
    late.authenticate()
    results = never.look(), late.look()
    for client in (never, late):
        client.socket.close()
    return results


def record(folder: Path) -> None:
    if why := missing_kdc():
        raise BrokerError(why)
    principals = ("kafka/localhost", "kafka/127.0.0.1", "shop")
    with tempfile.TemporaryDirectory() as name, kdc(Path(name) / "kdc", *principals) as realm:
        os.environ["JDK_JAVA_OPTIONS"] = realm.java
        options = properties(realm)
        with scene("sasl", folder, loggers={SELECTOR: "debug"}, properties=options, listeners=LISTENERS) as made:
            play(made, realm)


if __name__ == "__main__":
    sys.exit(question_main(record, sys.argv[1:]))
