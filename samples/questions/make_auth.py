"""Record clients that authenticate, and some that fail: `auth.pcap.zst`, with the lines of the broker's log beside it.

    python samples/questions/make_auth.py [FOLDER]        (as root: tcpdump records loopback)

On the port of listener SASL (SASL_PLAINTEXT, with PLAIN and SCRAM-SHA-256): `shop-plain`, `shop-scram` and
`librd-scram` have good passwords; `typo-plain`, `typo-scram` and `librd-typo` wrong ones; `ghost` is an unknown user;
`modern` asks for SCRAM-SHA-512, which is not enabled; `no-login` speaks without SASL. On the port of listener TLS:
`tls-trusting` trusts the certificate; `tls-untrusting-12` and `tls-untrusting-13` do not (TLS 1.2, with its alert in
clear, and 1.3); `no-tls` speaks plain text. `auth.broker.tsv` has the broker's lines about them (time in ms, listener,
address, port, result, reason; no port where a client authenticates); `auth.truth.json` what each client was answered,
and the ports. All passwords are generated.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

from confluent_kafka import Producer  # noqa: E402
from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion  # noqa: E402

from tests.support.authority import key_store_settings  # noqa: E402
from tests.support.questions import Answer, ClientError, Scene, log_time_ms, now_ms, question_main, scene  # noqa: E402

PASSWORD, WRONG = "made-up-4711", "made-up-4712"
PLAIN_LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SCRAM_LOGIN = "org.apache.kafka.common.security.scram.ScramLoginModule required"
LISTENERS = {"SASL": "SASL_PLAINTEXT", "TLS": "SSL"}
SELECTOR = "org.apache.kafka.common.network.Selector"
#: The broker's lines: "Successfully authenticated with /ADDRESS", "Failed authentication with /ADDRESS (channelId=...)"
#: and "Unexpected error from /ADDRESS (channelId=...)", which a line with the request follows.
LINE = re.compile(
    r"^(?P<time>\S+) \[data-plane-kafka-network-thread-1-(?P<listener>[A-Z]+)-.*"
    r"(?P<result>Successfully authenticated with|Failed authentication with|Unexpected error from) /(?P<address>[\d.]+)"
    r"(?: \(channelId=\S+?-[\d.]+:(?P<port>\d+)-\S+?\))?(?: \((?P<reason>.*)\)$|; closing connection\n(?P<error>.*))?",
    re.MULTILINE,
)
RESULTS = {"S": "authenticated", "F": "failed", "U": "closed"}


def sasl(mechanism: str, user: str, password: str) -> dict[str, str]:
    """The settings of a Java client."""
    login = PLAIN_LOGIN if mechanism == "PLAIN" else SCRAM_LOGIN
    return {
        "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism,
        "sasl.jaas.config": f'{login} username="{user}" password="{password}";',
    }  # fmt: skip


def key_stores(work: Path) -> tuple[Path, Path]:
    """A key store for the broker and a trust store for its certificate."""
    keys, trust, certificate = work / "keys.p12", work / "trust.p12", work / "broker.pem"
    common = ["-storetype", "PKCS12", "-storepass", PASSWORD, "-alias", "broker", "-noprompt"]
    name = ["-dname", "CN=localhost", "-ext", "san=ip:127.0.0.1,dns:localhost"]
    for options in (
        ["-genkeypair", "-keystore", str(keys), "-keyalg", "EC", "-groupname", "secp256r1", "-validity", "2", *name],
        ["-exportcert", "-rfc", "-keystore", str(keys), "-file", str(certificate)],
        ["-importcert", "-keystore", str(trust), "-file", str(certificate)],
    ):
        subprocess.run(["keytool", *options, *common], check=True, timeout=60, capture_output=True)
    return keys, trust


def properties(keys: Path) -> dict[str, str]:
    return {
        "listener.name.sasl.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "listener.name.sasl.plain.sasl.jaas.config": f'{PLAIN_LOGIN} user_shop="{PASSWORD}";',
        "listener.name.sasl.scram-sha-256.sasl.jaas.config": f"{SCRAM_LOGIN};",
        **key_store_settings(keys, PASSWORD),
        # The broker waits so long before it answers a failure.
        "connection.failed.authentication.delay.ms": "100",
    }


def play(made: Scene, trust: Path) -> None:
    made.create_topics({"orders": 1})
    admin = AdminClient({"bootstrap.servers": made.ops, "log_level": 0})
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    change = UserScramCredentialUpsertion("shop", info, PASSWORD.encode())
    for future in admin.alter_user_scram_credentials([change]).values():
        future.result(20)
    trusting = {
        "ssl.truststore.location": str(trust),
        "ssl.truststore.password": PASSWORD,
        "ssl.truststore.type": "PKCS12",
    }
    tls = {"security.protocol": "SSL"}
    java: dict[str, tuple[str, dict[str, str]]] = {
        "shop-plain": ("SASL", sasl("PLAIN", "shop", PASSWORD)),
        "shop-scram": ("SASL", sasl("SCRAM-SHA-256", "shop", PASSWORD)),
        "typo-plain": ("SASL", sasl("PLAIN", "shop", WRONG)),
        "typo-scram": ("SASL", sasl("SCRAM-SHA-256", "shop", WRONG)),
        "ghost": ("SASL", sasl("SCRAM-SHA-256", "ghost", PASSWORD)),
        "modern": ("SASL", sasl("SCRAM-SHA-512", "shop", PASSWORD)),
        "no-login": ("SASL", {}),
        "tls-trusting": ("TLS", tls | trusting),
        "tls-untrusting-12": ("TLS", tls | {"ssl.enabled.protocols": "TLSv1.2", "ssl.protocol": "TLSv1.2"}),
        "tls-untrusting-13": ("TLS", tls),
        "no-tls": ("TLS", {}),
    }
    shell = made.java_clients()
    answers: dict[str, Answer] = {}
    for client, (listener, settings) in java.items():
        address = f"127.0.0.1:{made.ports[listener]}"
        more: dict[str, Any] = {"bootstrap.servers": address, "max.block.ms": 2500, "reconnect.backoff.ms": 500}
        shell.do(client, "producer", settings | more)
        answers[client] = shell.start(client, "send", topic="orders", count=2, bytes=60)
        answers[client].ready.wait(20)
        shell.do(client, "close", seconds=1)
    results = {}
    for client, answer in answers.items():
        try:
            results[client] = (java[client][0], answer.sent_ms, answer.done_ms, answer.result())
        except ClientError as error:
            results[client] = (java[client][0], answer.sent_ms, answer.done_ms, str(error))
    for client, password in (("librd-scram", PASSWORD), ("librd-typo", WRONG)):
        results[client] = ("SASL", now_ms(), librdkafka(made, client, password), "")
    made.truth["ports"] = made.ports
    made.truth["clients"] = results
    time.sleep(1)
    rows = ["time_ms\tlistener\taddress\tport\tresult\treason"]
    for line in LINE.finditer(made.broker.log()):
        result = RESULTS[line["result"][0]]
        reason = line["reason"] or (line["error"] or "").rpartition("Exception: ")[2]
        words = [str(log_time_ms(line["time"])), line["listener"], line["address"], line["port"] or "", result, reason]
        rows.append("\t".join(words))
    made.files["broker.tsv"] = "\n".join(rows) + "\n"


def librdkafka(made: Scene, client: str, password: str) -> int:
    """A producer of librdkafka for two seconds; returns the time of its end in ms."""
    producer = Producer(
        {
            "bootstrap.servers": f"127.0.0.1:{made.ports['SASL']}", "client.id": client, "log_level": 0,
            "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-256", "sasl.username": "shop",
            "sasl.password": password, "message.timeout.ms": 2000, "reconnect.backoff.ms": 500,
        }
    )  # fmt: skip
    producer.produce("orders", b"x" * 60)
    producer.flush(3)
    return now_ms()


def record(folder: Path) -> None:
    with tempfile.TemporaryDirectory() as name:
        keys, trust = key_stores(Path(name))
        options = properties(keys)
        with scene("auth", folder, loggers={SELECTOR: "debug"}, properties=options, listeners=LISTENERS) as made:
            play(made, trust)


if __name__ == "__main__":
    sys.exit(question_main(record, sys.argv[1:]))
