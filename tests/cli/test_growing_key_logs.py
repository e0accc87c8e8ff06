"""Key logs that grow while captures grow: `report --follow` and `kafkatap live` beside clients that write them."""

from __future__ import annotations

import json
import socket
import ssl
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.live.network import missing
from tests.live.running import Live, wait_for
from tests.support.authority import Authority
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
    """The key log is empty at first, and each client appends to it; connections of TLS 1.2 and 1.3."""
    key_log = tmp_path / "keys.log"
    key_log.touch()
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
    report = json.loads(done.out)
    assert report["input"]["requests"] == 3 * REQUESTS
