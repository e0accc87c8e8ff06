"""Sessions over connections of OpenSSL's own client and server: what Python's `ssl` cannot do."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from kafkatap.reports.connection_words import D_DECRYPTED, D_FAILED_HANDSHAKE, TLS_EARLY_DATA, TLS_FULL, TLS_RESUMED

from .relayed import OPENSSL, Server
from .talk import CLIENT, SERVER, certificate, see

pytestmark = pytest.mark.skipif(OPENSSL is None, reason="openssl is not installed")
LINES = ["hello", "a longer line " * 20, "end"]
Start = Callable[[Sequence[str]], Server]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    servers: list[Server] = []

    def begin(options: Sequence[str]) -> Server:
        servers.append(Server(tmp_path, options))
        return servers[-1]

    yield begin
    for server in servers:
        server.close()


def check(server: Server, records: list[tuple[int, bytes]], lines: Sequence[str], all_answered: bool = True) -> None:
    log = server.key_log
    seen = see(records, log)
    assert seen.plain[CLIENT].decode().split("\n")[:-1] == list(lines)
    replies = seen.plain[SERVER].decode().split("\n")[:-1]
    assert replies == [line[::-1] for line in lines][: len(replies)]
    assert len(replies) == len(lines) or not all_answered
    assert seen.session.facts.decryption == D_DECRYPTED
    assert -1 not in [opened[0] for opened in seen.opened]


@pytest.mark.parametrize(
    "suite",
    [
        "TLS_AES_128_GCM_SHA256",
        pytest.param("TLS_CHACHA20_POLY1305_SHA256", marks=pytest.mark.long),
        pytest.param("TLS_AES_128_CCM_SHA256", marks=pytest.mark.long),
        pytest.param("TLS_AES_128_CCM_8_SHA256", marks=pytest.mark.long),
    ],
)
def test_suites_and_key_updates_of_tls_1_3(start: Start, suite: str) -> None:
    server = start(["-ciphersuites", suite])
    records = server.say(["first", "K", "second", "k", "third"], ["-ciphersuites", suite])
    check(server, records, ["first", "second", "third"], False)  # s_server does not answer after updates


@pytest.mark.long
def test_hello_retry_request(start: Start) -> None:
    server = start(["-groups", "P-384"])
    records = server.say(LINES, ["-groups", "X25519:P-384"])
    assert [kind for kind, *_ in see(records, None).opened].count(22) >= 4
    check(server, records, LINES)


@pytest.mark.long
def test_early_data(start: Start, tmp_path: Path) -> None:
    server = start(["-early_data"])
    kept, early = str(tmp_path / "session"), tmp_path / "early"
    early.write_bytes(b"some early data\n")
    first = server.say(["first"], ["-sess_out", kept], 0.4)
    second = server.say(["second"], ["-sess_in", kept, "-early_data", str(early)], 0.4)
    for records, expected, session in ((first, b"first\n", TLS_FULL), (second, b"some early data\nsecond\n", 2)):
        seen = see(records, server.key_log)
        assert seen.plain[CLIENT] == expected
        assert seen.session.facts.session == session
        assert -1 not in [opened[0] for opened in seen.opened]
    assert seen.session.facts.session == TLS_EARLY_DATA


@pytest.mark.long
@pytest.mark.parametrize("version", ["-tls1_2", "-tls1_3"])
def test_resumption(start: Start, tmp_path: Path, version: str) -> None:
    server = start([])
    kept = str(tmp_path / "session")
    server.say(["first"], [version, "-sess_out", kept])
    records = server.say(LINES, [version, "-sess_in", kept])
    check(server, records, LINES)
    assert see(records, server.key_log).session.facts.session == TLS_RESUMED
    assert see(records, None).session.facts.session == TLS_RESUMED


@pytest.mark.long
@pytest.mark.parametrize("suite", ["ECDHE-RSA-AES128-GCM-SHA256", "AES256-SHA256", "ECDHE-RSA-CHACHA20-POLY1305"])
def test_renegotiation(start: Start, suite: str) -> None:
    options = ["-tls1_2", "-cipher", suite]
    server = start([*options, "-client_renegotiation"])
    records = server.say(["first", "R", "second"], options)
    check(server, records, ["first", "second"], False)  # s_server does not answer after that
    assert sum(opened[0] == 20 for opened in see(records, server.key_log).opened) == 4


@pytest.mark.long
@pytest.mark.parametrize("version", ["-tls1_2", "-tls1_3"])
def test_pre_shared_keys(start: Start, version: str) -> None:
    options = ["-psk", "00112233445566778899", version]
    if version == "-tls1_2":
        options += ["-cipher", "PSK-AES128-GCM-SHA256"]
    server = start([*options, "-nocert"])
    check(server, server.say(LINES, options), LINES)


@pytest.mark.long
@pytest.mark.parametrize("version", ["-tls1_2", "-tls1_3"])
def test_client_certificates(start: Start, version: str) -> None:
    path = certificate("client.example")
    server = start([version, "-Verify", "1", "-CAfile", path])
    records = server.say(LINES, ["-cert", path, "-key", path])
    check(server, records, LINES)
    facts = see(records, server.key_log).session.facts
    assert facts.asks_certificate
    assert facts.client_certificate == "CN=client.example common"


@pytest.mark.long
def test_no_common_suite(start: Start) -> None:
    server = start(["-tls1_2", "-cipher", "ECDHE-RSA-AES128-GCM-SHA256"])
    records = server.say([], ["-tls1_2", "-cipher", "AES256-SHA256"])
    facts = see(records, server.key_log).session.facts
    assert (facts.alert, facts.alert_by, facts.decryption) == (40, SERVER, D_FAILED_HANDSHAKE)


@pytest.mark.long
@pytest.mark.parametrize("version", ["-tls1_2", "-tls1_3"])
def test_a_missing_client_certificate(start: Start, version: str) -> None:
    server = start([version, "-Verify", "1"])
    records = server.say(["hello"], [version])
    facts = see(records, server.key_log).session.facts
    assert (facts.alert, facts.alert_by) == (40 if version == "-tls1_2" else 116, SERVER)
    assert facts.decryption == D_FAILED_HANDSHAKE
    assert see(records, None).session.facts.alert == (40 if version == "-tls1_2" else -1)
