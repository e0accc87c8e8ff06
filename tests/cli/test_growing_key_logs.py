"""Key logs that grow while captures grow: `report --follow` and `kafkatap live` beside clients that write them."""

from __future__ import annotations

import json
import os
import signal
import socket
import ssl
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.running import KAFKATAP, kafkatap
from tests.cli.tls_captures import TlsCaptures, make_tls_captures
from tests.live.network import missing
from tests.live.running import Capturing, Live, catches, wait_for
from tests.support.authority import Authority
from tests.support.captures import pcap_bytes
from tests.support.tls_talk import TLSv1_2, TLSv1_3

REQUESTS = 5


class Broker:
    """Answers ApiVersions over TLS on a port of loopback."""

    def __init__(self, certificate: Path) -> None:
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(certificate)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                accepted, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(accepted,), daemon=True).start()

    def _serve(self, accepted: socket.socket) -> None:
        with self._context.wrap_socket(accepted, server_side=True) as tls:
            while request := read_frame(tls):
                tls.sendall(struct.pack(">i", 10) + request[4:8] + bytes(6))

    def close(self) -> None:
        self._listener.close()


def read_frame(tls: ssl.SSLSocket) -> bytes:
    """A frame without its size; nothing at the end."""
    data = b""
    while len(data) < 4 or len(data) < 4 + struct.unpack(">i", data[:4])[0]:
        more = tls.recv(4_096)
        if not more:
            return b""
        data += more
    return data[4:]


def talk(port: int, name: str, key_log: Path, version: ssl.TLSVersion) -> None:
    """A client that writes its secrets and sends REQUESTS requests."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.minimum_version = context.maximum_version = version
    context.keylog_filename = str(key_log)
    with socket.create_connection(("127.0.0.1", port)) as plain, context.wrap_socket(plain) as tls:
        for number in range(REQUESTS):
            head = struct.pack(">hhih", 18, 0, number, len(name)) + name.encode()
            tls.sendall(struct.pack(">i", len(head)) + head)
            assert read_frame(tls)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    made = Broker(Authority(tmp_path).issue("broker"))
    yield made
    made.close()


@pytest.mark.skipif(bool(missing()), reason=missing())
def test_live_with_the_key_log_of_clients_on_this_host(broker: Broker, tmp_path: Path) -> None:
    """There is no key log at first, and each client appends to it; connections of TLS 1.2 and 1.3."""
    key_log = tmp_path / "keys.log"
    arguments = ("-i", "lo", "--plain", "--json", "--interval", "1s", "--keylog", str(key_log))
    with Live(*arguments, f"tcp port {broker.port}") as live:
        live.wait_ready()
        for number, version in enumerate((TLSv1_3, TLSv1_2, TLSv1_3)):
            talk(broker.port, f"client-{number}", key_log, version)
            time.sleep(0.3)
        wait_for(lambda: live.err().count("requests") > 1, 10, live.err)
        time.sleep(2)
        done = live.end()
    assert done.code == 0
    assert f"kafkatap: {key_log}: there is no such key log yet; it is awaited" in done.err.splitlines()
    report = json.loads(done.out)
    assert report["capture"]["requests"] == 3 * REQUESTS


@pytest.mark.skipif(bool(missing()), reason=missing())
def test_live_with_secrets_that_come_after_the_handshake(broker: Broker, tmp_path: Path) -> None:
    """The secrets of a connection are written when it is over; it has waited for them."""
    own, key_log = tmp_path / "own.log", tmp_path / "keys.log"
    key_log.touch()
    arguments = ("-i", "lo", "--plain", "--json", "--interval", "1s", "--keylog", str(key_log))
    with Live(*arguments, f"tcp port {broker.port}") as live:
        live.wait_ready()
        talk(broker.port, "client", own, TLSv1_3)
        time.sleep(0.5)
        key_log.write_bytes(own.read_bytes())
        time.sleep(2.5)
        done = live.end()
    assert json.loads(done.out)["capture"]["requests"] == REQUESTS


def test_follow_a_capture_and_its_key_log(tmp_path: Path) -> None:
    """Both grow by turns. The key log's lines come after the packets of the handshake; in the end all is decrypted."""
    whole = make_tls_captures(tmp_path)
    expected = kafkatap("show", "--json", whole.plain).out.count("\n")
    capture, key_log = tmp_path / "grows.pcap", tmp_path / "grows.log"
    key_log.touch()
    with Capturing([*KAFKATAP, "show", "--follow", "--json", "--keylog", str(key_log), str(capture)]) as shown:
        write_by_turns(whole, capture, key_log)
        wait_for(lambda: shown.out().count("\n") == expected, 30, lambda: f"{shown.out().count(chr(10))} of {expected}")
        done = shown.end()
    assert done.code == 130
    reports = ("report", "--json", "--keylog", key_log, capture)
    assert json.loads(kafkatap(*reports).out)["capture"]["requests"] * 2 == expected


def write_by_turns(whole: TlsCaptures, capture: Path, key_log: Path) -> None:
    """Append the packets of each connection's first half second, then its secrets, then the rest."""
    lines = whole.key_log.read_bytes().splitlines(keepends=True)
    randoms = list(dict.fromkeys(line.split()[1] for line in lines if not line.startswith(b"#")))
    header = len(pcap_bytes([]))
    begin = whole.packets[0].time_ns
    with capture.open("ab", buffering=0) as packets, key_log.open("ab", buffering=0) as secrets:
        packets.write(pcap_bytes([]))
        for number, client_random in enumerate(randoms):
            first = begin + number * 2 * 10**9
            for start, end in ((first, first + 10**9), (first + 10**9, first + 2 * 10**9)):
                packets.write(pcap_bytes([p for p in whole.packets if start <= p.time_ns < end])[header:])
                time.sleep(0.4)
                secrets.write(b"".join(line for line in lines if client_random in line and start == first))


@pytest.mark.skipif(bool(missing()), reason=missing())
def test_interface_of_wireshark(broker: Broker, tmp_path: Path) -> None:
    """Wireshark gets the packets of the decrypted connection alone, with comments, and no secrets."""
    pipe, key_log, got = tmp_path / "pipe", tmp_path / "keys.log", tmp_path / "got.pcapng"
    os.mkfifo(pipe)
    key_log.touch()
    reader = threading.Thread(target=lambda: got.write_bytes(pipe.read_bytes()), daemon=True)
    reader.start()
    words = ["--capture", "--extcap-interface", "kafkatap-lo", "--fifo", str(pipe), "--keylog", str(key_log)]
    with Capturing([*KAFKATAP, "extcap", *words, "--extcap-capture-filter", f"tcp port {broker.port}"]) as capturing:
        wait_for(lambda: catches(capturing.process.pid, signal.SIGTERM), 60, capturing.err)
        time.sleep(2)
        talk(broker.port, "client", key_log, TLSv1_3)
        talk(broker.port, "stranger", tmp_path / "other.log", TLSv1_3)
        time.sleep(1)
        assert capturing.end(signal.SIGTERM).code == 0
    reader.join(20)
    written = got.read_bytes()
    assert written.count(b"kafkatap: ApiVersions v0 of client") == REQUESTS
    assert b"stranger" not in written
    assert b"TRAFFIC_SECRET" not in written
    report = json.loads(kafkatap("report", "--json", "--keylog", key_log, got).out)
    assert report["capture"]["requests"] == REQUESTS
