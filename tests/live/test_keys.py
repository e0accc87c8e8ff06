"""`kafkatap keys` at a real broker and a real Java client: the secrets of connections that were open before, and of new
ones. What is right comes from the broker's own log of requests, and from the JVM (jcmd)."""

from __future__ import annotations

import re
import signal
import ssl
import stat
import subprocess
import sys
import time
import warnings
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kafkatap import analyze
from kafkatap.engine.tls.secrets import name_of_ends
from kafkatap.request_log.log_line import read_line
from tests.support.authority import Authority
from tests.support.broker import KafkaBroker, free_ports, missing_compiler
from tests.support.live_tables import read_tables
from tests.support.questions import JavaClients, class_folder

from . import network
from .running import Capturing, Live, Tcpdump, wait_for

WHY_NOT = network.missing("tcpdump", "openssl", "jcmd") or missing_compiler()
if not WHY_NOT:
    pytest.importorskip("kafkatap_keys", reason="needs kafkatap-keys: pip install ./agent")
pytestmark = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)

#: Requests by connection: the ports of client and broker; each is an API key and a correlation id.
Requests = dict[tuple[int, int], set[tuple[int, int]]]
_SENT = re.compile(r"(\d+) open connections")


def keys(*arguments: object) -> Capturing:
    return Capturing([sys.executable, "-m", "kafkatap", "keys", *map(str, arguments)])


@dataclass(frozen=True, slots=True)
class Played:
    """What came of some seconds of traffic. `logged`: all requests at listeners with TLS; `late`: those that came after
    live had the secrets."""

    folder: Path
    logged: Requests
    late: Requests
    is_open: frozenset[tuple[int, int]]  # connections when the key log of all was written
    is_new: frozenset[tuple[int, int]]  # connections that began while live had secrets
    said: dict[str, str]  # by each run of keys
    threads: dict[str, list[str]]  # of the broker, at some times
    live: Requests
    left: list[Path]  # of what a run that was killed made


class Play:
    """A broker with listeners for TLS 1.3 and 1.2, its clients, and those who look on."""

    def __init__(self, stack: ExitStack, folder: Path) -> None:
        self.stack, self.folder = stack, folder
        authority = Authority(folder)
        self.trusted = str(authority.certificate)
        plain, self.tls, self.tls12, controller = free_ports(4)
        names = {"PLAIN": plain, "TLS": self.tls, "TLS12": self.tls12}
        listeners = ",".join(f"{name}://127.0.0.1:{port}" for name, port in names.items())
        properties = {
            "listeners": f"{listeners},CONTROLLER://127.0.0.1:{controller}", "advertised.listeners": listeners,
            "controller.quorum.voters": f"1@127.0.0.1:{controller}", "inter.broker.listener.name": "PLAIN",
            "listener.security.protocol.map": "PLAIN:PLAINTEXT,CONTROLLER:PLAINTEXT,TLS:SSL,TLS12:SSL",
            "listener.name.tls12.ssl.enabled.protocols": "TLSv1.2", "auto.create.topics.enable": "true",
        } | authority.key_store("made-up-4711", ("TLS", "TLS12"))  # fmt: skip
        classes = class_folder(folder / "classes", {"kafka.request.logger": "debug"})
        self.broker = stack.enter_context(
            KafkaBroker.start(folder / "broker", port=plain, properties=properties, classes=classes)
        )
        self.java = JavaClients(self.broker.jars, classes, self.broker.bootstrap, folder / "java.log")
        stack.callback(self.java.stop)
        self.pid = self.broker.process.pid
        self.filter = f"tcp port {self.tls} or tcp port {self.tls12}"
        self.said: dict[str, str] = {}

    def producer(self, port: int, name: str) -> Any:
        with warnings.catch_warnings(action="ignore"):  # it reads its schemas in an old way
            import kafka
        made = kafka.KafkaProducer(
            bootstrap_servers=f"127.0.0.1:{port}", security_protocol="SSL", client_id=name,
            ssl_context=ssl.create_default_context(cafile=self.trusted),
        )  # fmt: skip
        self.stack.callback(made.close)
        return made

    def java_producer(self, name: str) -> None:
        settings = {
            "bootstrap.servers": f"127.0.0.1:{self.tls}", "security.protocol": "SSL", "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.trusted,
        }  # fmt: skip
        self.java.do(name, "producer", settings)
        self.java.do(name, "send", topic="orders", count=5, bytes=300)

    def logged(self) -> Requests:
        """The requests that the broker has logged."""
        found: Requests = defaultdict(set)
        for line in map(read_line, self.broker.log().splitlines()):
            if line is not None and line.listener.startswith("TLS"):
                found[line.client_port, line.broker_port].add((line.api_key, line.correlation_id))
        return found

    def threads(self) -> list[str]:
        said = subprocess.run(["jcmd", str(self.pid), "Thread.print"], capture_output=True, text=True, timeout=30)
        return [line for line in said.stdout.splitlines() if line.startswith('"kafkatap')]

    @contextmanager
    def keys(self, name: str, pid: int, *arguments: object) -> Iterator[Capturing]:
        """Take keys until the end of the context."""
        with keys("--pid", pid, "--duration", "60s", "--yes", *arguments) as taking:
            wait_for(lambda: _SENT.search(taking.err()), 30, taking.err)
            yield taking
            done = taking.end()
            self.said[name] = done.err
            assert done.code == 0, done.err


def of_python(producer: Any) -> None:
    for _ in range(5):
        producer.send("orders", b"order 4711: two of article 99-1001").get(20)


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Played]:
    folder = tmp_path_factory.mktemp("keys")
    with ExitStack() as stack:
        yield _play(Play(stack, folder))


def _play(play: Play) -> Played:
    folder, socket, threads = play.folder, play.folder / "keys.sock", {}
    dump = play.stack.enter_context(Tcpdump("lo", folder / "whole.pcap", play.filter))
    dump.wait_ready()
    old = [play.producer(play.tls, "open-13"), play.producer(play.tls12, "open-12")]
    for each in old:
        of_python(each)
    play.java_producer("java")
    live = play.stack.enter_context(
        Live("-i", "lo", "--plain", "--keylog", socket, "--parquet", folder / "live", play.filter)
    )
    live.wait_ready()
    for each in old:
        of_python(each)
    threads["before"] = play.threads()
    with play.keys("socket", play.pid, "--socket", socket):
        threads["while"] = play.threads()
        with keys("--pid", play.pid, "-o", folder / "second.log", "--yes") as second:
            play.said["at once"] = second.finish().err
        time.sleep(3)
        before = play.logged()
        for each in old:
            of_python(each)
        play.java.do("java", "send", topic="orders", count=5, bytes=300)
        for each in (play.producer(play.tls, "new-13"), play.producer(play.tls12, "new-12")):
            of_python(each)
        time.sleep(1)
        after = play.logged()
    threads["after"] = play.threads()
    with play.keys("file", play.pid, "-o", folder / "open.log"):
        pass
    with play.keys("peer", play.pid, "-o", folder / "peer.log", "--peer", "127.0.0.9"):
        play.producer(play.tls, "other")
    with play.keys("java", play.java.process.pid, "-o", folder / "java.keys.log"):
        play.java_producer("java-new")
    with keys("--pid", play.pid, "-o", folder / "killed.log", "--yes") as killed:
        wait_for(lambda: _SENT.search(killed.err()), 30, killed.err)
        killed.send(signal.SIGKILL)
    time.sleep(2)
    left = list(Path("/tmp").glob(f"kafkatap-keys-{killed.process.pid}-*"))
    threads["killed"] = play.threads()
    done = live.end()
    assert done.code == 0, done.err
    time.sleep(1)
    dump.end()
    logged = play.logged()
    log = (folder / "open.log").read_text()
    is_open = frozenset(
        ports for ports in logged if name_of_ends(*(("127.0.0.1", port) for port in ports)).hex() in log
    )
    return Played(
        folder, logged, {ports: after[ports] - before.get(ports, set()) for ports in after}, is_open,
        frozenset(after.keys() - before.keys()), play.said, threads,
        by_connection(read_tables(folder / "live", "exchanges")), left,
    )  # fmt: skip


def by_connection(table: Any) -> Requests:
    found: Requests = defaultdict(set)
    for row in table.select(["client_port", "broker_port", "api_key", "correlation_id"]).to_pylist():
        found[row["client_port"], row["broker_port"]].add((row["api_key"], row["correlation_id"]))
    return found


def test_connections_that_were_open_are_decrypted_from_their_beginning(played: Played) -> None:
    found = by_connection(analyze(played.folder / "whole.pcap", keylog=played.folder / "open.log").exchanges)
    assert len(played.is_open) >= 5  # of three clients that were open first, and two later ones
    assert {port for _, port in played.is_open} == {port for _, port in played.logged}
    for ports in played.is_open:
        assert played.logged[ports] <= found[ports], ports
    assert set(found) == played.is_open, "a connection that was closed before has no secrets"


def test_live_decrypts_what_comes_after_the_secrets(played: Played) -> None:
    assert played.is_new
    for ports in played.is_new:
        assert played.late[ports] <= played.live[ports], ports
    before = [ports for ports in played.is_open - played.is_new if played.late[ports]]
    tls_13 = {ports for ports in before if played.live[ports]}
    assert len(tls_13) >= 2, "TLS 1.3 needs no handshake"  # of Python and of Java
    for ports in tls_13:
        assert played.late[ports] <= played.live[ports], ports


def test_one_client_gives_its_own_connections(played: Played) -> None:
    found = by_connection(analyze(played.folder / "whole.pcap", keylog=played.folder / "java.keys.log").exchanges)
    assert len(found) >= 2
    for ports, requests in found.items():
        assert played.logged[ports] <= requests
    lines = (played.folder / "java.keys.log").read_text()
    assert b"kafkatap".hex() in lines
    assert "CLIENT_HANDSHAKE_TRAFFIC_SECRET" in lines


def test_only_wanted_peers(played: Played) -> None:
    assert (played.folder / "peer.log").read_text() == ""
    assert "0 open and 0 new connections" in played.said["peer"]


def test_nothing_of_it_runs_afterwards(played: Played) -> None:
    assert len(played.threads["while"]) == 1
    assert [played.threads[when] for when in ("before", "after", "killed")] == [[], [], []]
    assert "another kafkatap takes the keys of this JVM" in played.said["at once"]
    assert played.left == []


def test_secrets_are_the_callers_alone(played: Played) -> None:
    for name in ("open.log", "java.keys.log"):
        assert stat.S_IMODE((played.folder / name).stat().st_mode) == 0o600
    assert not (played.folder / "keys.sock").exists()
    for text in played.said.values():
        assert not re.search(r"[0-9a-f]{48}", text)
