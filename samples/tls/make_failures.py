"""Record handshakes that fail, and connections that cannot be decrypted: `failures.pcap.zst` and its truth.

    python samples/tls/make_failures.py [FOLDER]        (as root: tcpdump records a loopback of its own)

A terminator (this machine's OpenSSL) and a broker of Kafka 4.3.0 with two listeners: MUTUAL (SSL, requires a
certificate of clients) and PLAIN (no TLS). `failures.truth.json` has the ports, and for each connection the case, the
client's port, and the alert that one end received from the other: its number and the end that sent it, as OpenSSL
reports them. `failures.keys.log` has the secrets that the handshakes came to, from the client's OpenSSL.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

from tests.support.authority import Authority  # noqa: E402
from tests.support.broker import free_ports  # noqa: E402
from tests.support.openssl import TLS_1_1, TLS_1_2, TLS_1_3, Context, TlsError  # noqa: E402
from tests.support.questions import scene  # noqa: E402
from tests.support.terminator import Terminator  # noqa: E402
from tests.support.tls_samples import Requests, main  # noqa: E402

PASSWORD = "made-up-4711"
ONLY_11, ONLY_12, ONLY_13 = (TLS_1_1, TLS_1_1), (TLS_1_2, TLS_1_2), (TLS_1_3, TLS_1_3)
BOTH = (("12", ONLY_12), ("13", ONLY_13))
LISTENERS = {"MUTUAL": "SSL", "PLAIN": "PLAINTEXT"}


def properties(work: Path, authority: Authority) -> dict[str, str]:
    """The settings of the listener MUTUAL."""
    store, pem = work / "keys.p12", authority.issue("broker-1.kafka.example", "rsa", names=("localhost",))
    words = ["openssl", "pkcs12", "-export", "-in", str(pem), "-out", str(store), "-passout", f"pass:{PASSWORD}"]
    subprocess.run(words, check=True, timeout=60, capture_output=True)
    settings = {
        "ssl.keystore.location": str(store), "ssl.keystore.password": PASSWORD, "ssl.keystore.type": "PKCS12",
        "ssl.truststore.location": str(authority.certificate), "ssl.truststore.type": "PEM",
        "ssl.client.auth": "required",
    }  # fmt: skip
    return {f"listener.name.mutual.{name}": value for name, value in settings.items()}


class Play:
    """The cases, one after the other."""

    def __init__(self, ports: dict[str, int], terminator: Terminator, work: Path, authority: Authority) -> None:
        self.ports, self.terminator = ports, terminator
        self.trusted = authority.certificate
        self.other = Authority(work, "Another CA").certificate
        self.good = [authority.issue("broker-1.kafka.example", kind, names=("localhost",)) for kind in ("rsa", "ec")]
        self.expired = [authority.issue("broker-2.kafka.example", "rsa", days=-1, names=("localhost",))]
        self.secrets: list[str] = []
        self.rows: list[dict[str, Any]] = []

    def serve(self, case: str, **options: Any) -> None:
        context = Context(server=True, **{"certificates": self.good} | options)
        self.terminator.use(case, context)

    def client(self, **options: Any) -> Context:
        return Context(server=False, secrets=self.secrets.append, **{"trusted": self.trusted} | options)

    def connect(self, case: str, port: int, talk: Callable[[socket.socket], object]) -> None:
        """A connection of a client, and what became of it. `alert_by`: the end whose alert the other one received."""
        row: dict[str, Any] = {"case": case, "port": port, "alert": None, "alert_by": None}
        self.rows.append(row)
        with socket.create_connection(("127.0.0.1", port), 10) as connected:
            row["client"] = connected.getsockname()[1]
            connected.settimeout(None)
            try:
                talk(connected)
                row["error"] = None
            except TlsError as error:
                row["error"] = str(error)
                if error.alert is not None:
                    row |= {"alert": error.alert, "alert_by": "broker"}
        self.terminator.wait()
        served = [each for each in self.terminator.connections if each["front"] == row["client"]]
        if served and served[-1].get("alert") is not None:
            row |= {"alert": served[-1]["alert"], "alert_by": "client"}

    def tls(self, case: str, context: Context, port: int | None = None, count: int = 2) -> None:
        def talk(connected: socket.socket) -> None:
            end = context.connect(connected, "localhost")
            Requests(case).ask(end, count)
            end.close()

        self.connect(case, port or self.ports["front"], talk)

    def in_clear(self, case: str, port: int) -> None:
        def talk(connected: socket.socket) -> None:
            connected.sendall(Requests(case).next())
            connected.settimeout(5)
            try:
                while connected.recv(4096):
                    pass
            except OSError as error:
                raise TlsError(str(error)) from None

        self.connect(case, port, talk)

    def run(self) -> None:
        self.serve("no-suite", versions=ONLY_12, ciphers="ECDHE-RSA-AES128-GCM-SHA256")
        self.tls("no-suite", self.client(versions=ONLY_12, ciphers="ECDHE-RSA-AES256-GCM-SHA384"))
        self.serve("no-version", versions=ONLY_13)
        self.tls("no-version", self.client(versions=ONLY_12))
        for name, versions in BOTH:
            self.serve(f"unknown-authority-{name}", versions=versions)
            self.tls(f"unknown-authority-{name}", self.client(trusted=self.other))
            self.serve(f"expired-{name}", versions=versions, certificates=self.expired)
            self.tls(f"expired-{name}", self.client())
            self.serve(f"no-certificate-{name}", versions=versions, trusted=self.trusted)
            self.tls(f"no-certificate-{name}", self.client())
            self.tls(f"java-no-certificate-{name}", self.client(versions=versions), self.ports["MUTUAL"])
        self.serve("in-clear-to-tls")
        self.in_clear("in-clear-to-tls", self.ports["front"])
        self.in_clear("java-in-clear-to-tls", self.ports["MUTUAL"])
        self.tls("tls-to-plain", self.client(), self.ports["PLAIN"])
        weak = "DEFAULT:@SECLEVEL=0"
        self.serve("tls11", versions=ONLY_11, ciphers=weak)
        self.tls("tls11", self.client(versions=ONLY_11, ciphers=weak), count=6)
        self.serve("good")
        self.tls("good", self.client(), count=6)


def record(folder: Path) -> None:
    front = free_ports(1)[0]
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        authority = Authority(work)
        with scene(
            "failures", folder, properties=properties(work, authority), listeners=LISTENERS, also=(front,)
        ) as made:
            terminator = Terminator(front, made.ports["PLAIN"])
            play = Play(made.ports | {"front": front}, terminator, work, authority)
            play.run()
            terminator.close()
            time.sleep(0.5)
            made.truth.update({"ports": play.ports, "connections": play.rows})
            made.files["keys.log"] = "".join(f"{line}\n" for line in play.secrets)


if __name__ == "__main__":
    sys.exit(main(record, sys.argv[1:]))
