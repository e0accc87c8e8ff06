"""Record the same traffic with TLS and in the clear: `matrix.pcap.zst`, its key log and `matrix.truth.json`.

    python samples/tls/make_matrix.py [FOLDER]        (as root: tcpdump records a loopback of its own)

A TLS terminator listens before a broker of Kafka 4.3.0. The capture has both: connections with TLS to the terminator,
and the connections in the clear from it to the broker. Each client is named after what it does with TLS, and runs
alone. Clients are librdkafka, and one that sends single requests with this machine's OpenSSL.
`matrix.truth.json` has the two ports, and for each connection to the terminator: the case, the client's port, the
terminator's port behind, version, suite, whether the session was resumed, bytes of early data; and for some cases more.
`matrix.keys.log` has the secrets, as the terminator's OpenSSL wrote them.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

from confluent_kafka import Consumer, Producer, TopicPartition  # noqa: E402

from tests.support import openssl  # noqa: E402
from tests.support.authority import Authority  # noqa: E402
from tests.support.broker import free_ports  # noqa: E402
from tests.support.openssl import TLS_1_2, TLS_1_3, Context, End  # noqa: E402
from tests.support.questions import scene  # noqa: E402
from tests.support.terminator import Terminator  # noqa: E402
from tests.support.tls_samples import Requests, connection, main  # noqa: E402

ONLY_12, ONLY_13 = (TLS_1_2, TLS_1_2), (TLS_1_3, TLS_1_3)
#: Suites of TLS 1.2, in OpenSSL's words.
SUITES_12 = (
    "ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-RSA-AES256-GCM-SHA384", "ECDHE-ECDSA-AES128-GCM-SHA256",
    "ECDHE-ECDSA-AES256-GCM-SHA384", "ECDHE-RSA-CHACHA20-POLY1305", "ECDHE-ECDSA-CHACHA20-POLY1305",
    "ECDHE-RSA-AES128-SHA", "ECDHE-RSA-AES256-SHA", "ECDHE-RSA-AES128-SHA256", "ECDHE-RSA-AES256-SHA384",
    "ECDHE-ECDSA-AES128-SHA", "ECDHE-ECDSA-AES256-SHA384", "ECDHE-ECDSA-AES128-CCM", "ECDHE-ECDSA-AES256-CCM",
    "AES128-GCM-SHA256", "AES256-SHA256", "DHE-RSA-AES256-GCM-SHA384",
)  # fmt: skip
SUITES_13 = ("TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256")
CCM_13 = ("TLS_AES_128_CCM_SHA256", "TLS_AES_128_CCM_8_SHA256")
#: OpenSSL refuses tags of 8 bytes otherwise.
WEAK = "DEFAULT:@SECLEVEL=0"
CBC = ("ECDHE-RSA-AES128-SHA", "ECDHE-RSA-AES256-SHA384")

#: Connections with many requests.
LONG: dict[str, dict[str, Any]] = {
    "long-13-gcm": {"versions": ONLY_13, "suites": "TLS_AES_256_GCM_SHA384"},
    "long-13-chacha": {"versions": ONLY_13, "suites": "TLS_CHACHA20_POLY1305_SHA256"},
    "long-12-gcm": {"versions": ONLY_12, "ciphers": "ECDHE-ECDSA-AES128-GCM-SHA256"},
    "long-12-cbc": {"versions": ONLY_12, "ciphers": "ECDHE-ECDSA-AES128-SHA256"},
}


class Play:
    """The cases, one after the other."""

    def __init__(self, port: int, terminator: Terminator, work: Path) -> None:
        self.port, self.terminator = port, terminator
        self.secrets: list[str] = []
        authority = Authority(work)
        self.trusted = authority.certificate
        names = ("localhost", "broker-1.kafka.example")
        self.certificates = [authority.issue(names[1], kind, names=names) for kind in ("rsa", "ec")]
        self.client_certificate = authority.issue("checkout", unit="shop")
        self.notes: dict[str, Any] = {}

    def serve(self, case: str, hook: Any = None, **options: Any) -> None:
        """Let the terminator speak TLS like this."""
        context = Context(server=True, certificates=self.certificates, secrets=self.secrets.append, **options)
        self.terminator.use(case, context, hook)

    def librdkafka(
        self, case: str, settings: Mapping[str, str] | None = None, messages: int = 6, size: int = 300
    ) -> None:
        """Produce messages and, with some suites, read them."""
        common: dict[str, Any] = {
            "bootstrap.servers": f"localhost:{self.port}", "client.id": case, "broker.address.family": "v4",
            "security.protocol": "ssl", "ssl.ca.location": str(self.trusted), "log_level": 0,
        } | dict(settings or {})  # fmt: skip
        delivered: list[int] = []
        producer = Producer(common | {"linger.ms": 1, "enable.metrics.push": False})
        for number in range(messages):
            value = (f"{case} {number}; " * size)[:size]
            producer.produce("orders", value, on_delivery=lambda e, m: delivered.append(-1 if e else m.offset()))
            producer.poll(0.01)
        producer.flush(20)
        if len(delivered) < messages or min(delivered) < 0:
            raise RuntimeError(f"{case}: {delivered}")
        del producer
        if "ECDSA" not in case:
            self.read(case, common, messages, min(delivered))

    @staticmethod
    def read(case: str, common: dict[str, Any], messages: int, first: int) -> None:
        """Read messages from an offset on."""
        more = {"group.id": case, "fetch.wait.max.ms": 50, "enable.metrics.push": False, "enable.auto.commit": False}
        consumer = Consumer(common | more)
        consumer.assign([TopicPartition("orders", 0, first)])
        count, end = 0, time.monotonic() + 20
        while count < messages and time.monotonic() < end:
            message = consumer.poll(0.2)
            count += message is not None and message.error() is None
        consumer.close()
        del consumer
        if count < messages:
            raise RuntimeError(f"{case}: read {count}")

    def client(self, **options: Any) -> Context:
        return Context(server=False, trusted=self.trusted, **options)

    def single(self, case: str, context: Context, count: int = 6, connections: int = 1) -> None:
        """Single requests over connections of which each resumes the session of the one before."""
        session = None
        for _ in range(connections):
            end = connection(self.port, context, session)
            Requests(case).ask(end, count)
            session = end.session()
            end.close()

    def suites(self) -> None:
        for suite in SUITES_12:
            case = f"tls12-{suite}"
            self.serve(case, versions=ONLY_12, ciphers=suite)
            self.librdkafka(case, {"ssl.cipher.suites": suite})
        for suite in SUITES_13:
            self.serve(f"tls13-{suite}", versions=ONLY_13, suites=suite)
            self.librdkafka(f"tls13-{suite}")
        for suite in CCM_13:
            self.serve(f"tls13-{suite}", versions=ONLY_13, suites=suite, ciphers=WEAK)
            self.single(f"tls13-{suite}", self.client(suites=suite, ciphers=WEAK))
        short_tag = "ECDHE-ECDSA-AES128-CCM8:@SECLEVEL=0"
        self.serve("tls12-ECDHE-ECDSA-AES128-CCM8", versions=ONLY_12, ciphers=short_tag)
        self.single("tls12-ECDHE-ECDSA-AES128-CCM8", self.client(ciphers=short_tag))
        for suite in CBC:
            case = f"mac-then-encrypt-{suite}"
            self.serve(case, versions=ONLY_12, ciphers=suite, options=openssl.NO_ENCRYPT_THEN_MAC)
            self.librdkafka(case, {"ssl.cipher.suites": suite})
        self.serve("no-extended-master-secret", versions=ONLY_12, options=openssl.NO_EXTENDED_MASTER_SECRET)
        self.single("no-extended-master-secret", self.client())
        for name, options in LONG.items():
            self.serve(name, **options)
            end = connection(self.port, self.client())
            Requests(name, short=True).ask(end, 100)
            end.close()
        for case, versions in (("large-12", ONLY_12), ("large-13", ONLY_13)):
            self.serve(case, versions=versions)
            self.librdkafka(case, messages=2, size=20_000)

    def sessions(self) -> None:
        self.serve("resumed-ticket", versions=ONLY_12)
        self.single("resumed-ticket", self.client(), connections=3)
        self.serve("resumed-id", versions=ONLY_12, options=openssl.NO_TICKET)
        self.single("resumed-id", self.client(options=openssl.NO_TICKET), connections=3)
        self.serve("resumed-psk", versions=ONLY_13)
        self.single("resumed-psk", self.client(), connections=3)
        self.serve("early-data", versions=ONLY_13, early_data=16_384)
        context, requests = self.client(), Requests("early-data")
        end = connection(self.port, context)
        requests.ask(end, 3)
        for _ in range(2):
            session = end.session()
            end.close()
            requests = Requests("early-data")
            end = connection(self.port, context, session, requests.next())
            requests.answer(end)
            requests.ask(end, 4)
        end.close()

    def handshakes(self) -> None:
        for case, versions in (("client-certificate-12", ONLY_12), ("client-certificate-13", ONLY_13)):
            self.serve(case, versions=versions, trusted=self.trusted)
            own = str(self.client_certificate)
            self.librdkafka(case, {"ssl.certificate.location": own, "ssl.key.location": own})
        for case, versions in (("fragments-12", ONLY_12), ("fragments-13", ONLY_13)):
            self.serve(case, versions=versions, fragment=512)
            long = [f"protocol-{number:03d}" for number in range(60)]
            self.single(case, self.client(fragment=512, protocols=long))
        self.serve("hello-retry", versions=ONLY_13, groups="P-384")
        self.single("hello-retry", self.client(groups="X25519:P-384"))
        self.serve("alpn", protocols=["kafka"])
        self.single("alpn", self.client(protocols=["kafka", "http/1.1"]))

    def in_between(self) -> None:
        for suite in SUITES_13:
            case = f"key-update-{suite}"
            self.serve(case, self.update_keys, versions=ONLY_13, suites=suite)
            end, requests = connection(self.port, self.client()), Requests(case)
            for number in range(6):
                if number in (2, 4):
                    end.update_key(both=number == 4)
                requests.ask(end, 2)
            end.close()
        self.serve("padding-13", versions=ONLY_13, padding=256)
        self.single("padding-13", self.client(padding=128), 12)
        self.serve("renegotiation", versions=ONLY_12, options=openssl.ALLOW_CLIENT_RENEGOTIATION)
        end, requests = connection(self.port, self.client()), Requests("renegotiation")
        requests.ask(end, 3)
        end.renegotiate()
        requests.ask(end, 3)
        end.close()
        self.notes["key_updates"] = {"client": 3, "broker": "2 after the 4th and the 8th response, 1 as requested"}

    @staticmethod
    def update_keys(end: End, direction: int, number: int) -> None:
        """The terminator's own key updates, before some responses."""
        if direction == 1 and number in (4, 8):
            end.update_key(both=number == 8)


def record(folder: Path) -> None:
    front = free_ports(1)[0]
    with (
        tempfile.TemporaryDirectory() as work,
        scene("matrix", folder, listeners={"BEHIND": "PLAINTEXT"}, advertised=front, also=(front,)) as made,
    ):
        made.create_topics({"orders": 1})
        back = made.ports["BEHIND"]
        terminator = Terminator(front, back)
        play = Play(front, terminator, Path(work))
        for part in (play.suites, play.sessions, play.handshakes, play.in_between):
            part()
        terminator.close()
        made.truth.update({"front": front, "behind": back, "connections": terminator.connections} | play.notes)
        made.files["keys.log"] = "".join(f"{line}\n" for line in play.secrets)


if __name__ == "__main__":
    sys.exit(main(record, sys.argv[1:]))
