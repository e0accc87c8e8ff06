"""Secrets of connections that are known by their ends, as `kafkatap keys` writes them for those that were open."""

from __future__ import annotations

import hashlib
import selectors
import socket
import ssl
from contextlib import suppress
from pathlib import Path

import pytest

from kafkatap.engine.engine import Engine
from kafkatap.engine.read_options import ReadOptions
from kafkatap.engine.tls.key_log import KeyLog
from kafkatap.engine.tls.key_log_files import open_key_logs
from kafkatap.engine.tls.key_log_sources import LineSocket
from kafkatap.engine.tls.secrets import name_of_ends
from kafkatap.reports.connection_words import D_LATE_KEY, D_NO_KEY
from tests.cli.running import kafkatap
from tests.support.captures import ETHERNET, pcap_bytes
from tests.support.tcp import Segment, encode
from tests.support.tls_talk import OverTls, TLSv1_2, TLSv1_3
from tests.wire.harness import Decoded, decode_capture
from tests.wire.kafkatalk import small_talk

from .test_layer_waiting import decode_with_late_lines

CLIENT, BROKER = ("10.0.0.1", 40_000), ("10.0.0.2", 9_093)


@pytest.fixture(scope="module")
def over(tmp_path_factory: pytest.TempPathFactory) -> OverTls:
    return OverTls(tmp_path_factory.mktemp("tls"))


def by_ends(lines: bytes, ends: bytes) -> bytes:
    """The lines of data, for ends in place of a client random."""
    of_data = (b"CLIENT_RANDOM", b"CLIENT_TRAFFIC_SECRET_0", b"SERVER_TRAFFIC_SECRET_0")
    kept = [line.split() for line in lines.splitlines() if line.startswith(of_data)]
    return b"".join(b"%s %s %s\n" % (label, ends.hex().encode(), secret) for label, _, secret in kept)


def decode(segments: list[Segment], key_log: KeyLog) -> Decoded:
    engine = Engine(ReadOptions(key_log=key_log), all_results=True)
    return decode_capture(pcap_bytes(encode(segments), ETHERNET, nanoseconds=True), engine=engine)


def ends_of(segments: list[Segment]) -> bytes:
    syn = segments[0]
    return name_of_ends(syn.source, syn.destination)


def test_the_name_of_ends() -> None:
    ipv4 = bytes(10) + b"\xff\xff" + bytes([10, 0, 0, 1]) + (40_000).to_bytes(2, "big")
    other = bytes(10) + b"\xff\xff" + bytes([10, 0, 0, 2]) + (9_093).to_bytes(2, "big")
    assert name_of_ends(CLIENT, BROKER) == b"kafkatap" + hashlib.sha256(ipv4 + other).digest()[:24]
    assert name_of_ends(BROKER, CLIENT) == name_of_ends(CLIENT, BROKER)
    assert name_of_ends(("::ffff:10.0.0.1", 40_000), BROKER) == name_of_ends(CLIENT, BROKER)
    assert name_of_ends(("fe80::1", 1), ("fe80::2", 2)) == name_of_ends(("fe80:0::2", 2), ("fe80::0:1", 1))
    assert name_of_ends(("(other)", 1), BROKER) == b""


@pytest.mark.parametrize(("version", "is_middle"), [(TLSv1_3, False), (TLSv1_3, True), (TLSv1_2, False)])
def test_connections_by_their_ends(version: ssl.TLSVersion, is_middle: bool, over: OverTls, tmp_path: Path) -> None:
    """All is decrypted, from the first exchange on; without the handshake, what was captured."""
    talk = small_talk(20)
    over.key_log.unlink(missing_ok=True)
    segments = over.replayed(talk.segments, version)
    (tmp_path / "keys.log").write_bytes(by_ends(over.key_log.read_bytes(), ends_of(segments)))
    part = segments[len(segments) // 2 :] if is_middle else segments
    seen = decode(part, KeyLog([str(tmp_path / "keys.log")]))
    wanted = [exchange["correlation_id"] for exchange in talk.wanted]
    found = sorted(exchange["correlation_id"] for exchange in seen.exchanges)
    assert found == wanted[-len(found) :]
    assert len(found) >= len(wanted) // 2 - 1 if is_middle else found == wanted


@pytest.mark.parametrize("is_middle", [False, True])
def test_secrets_of_ends_that_come_late(
    is_middle: bool, over: OverTls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where nothing of the handshake was captured, it is decrypted from then on."""
    monkeypatch.setattr("kafkatap.engine.tls.layer.HOLD_NS", 0)
    talk = small_talk(20)
    over.key_log.unlink(missing_ok=True)
    segments = over.replayed(talk.segments, TLSv1_3)
    lines = by_ends(over.key_log.read_bytes(), ends_of(segments))
    part = segments[len(segments) // 3 :] if is_middle else segments
    late = 2 * len(part) // 3
    seen = decode_with_late_lines(part, tmp_path / "keys.log", b"", lines, late)
    asked = sorted(exchange["correlation_id"] for exchange in seen.exchanges)
    wanted = [exchange["correlation_id"] for exchange in talk.wanted]
    assert asked == wanted[-len(asked) :]
    assert len(asked) >= 4
    assert [row["tls_decryption"] for row in seen.connections] == [D_LATE_KEY]


def test_ends_of_another_connection_are_no_wrong_key(over: OverTls, tmp_path: Path) -> None:
    """A port is used again: the secrets of the later connection do not fit the earlier one, whose are not there."""
    talk = small_talk(5)
    segments = over.replayed(talk.segments, TLSv1_3)
    over.key_log.unlink()
    over.replayed(talk.segments, TLSv1_3)
    (tmp_path / "keys.log").write_bytes(by_ends(over.key_log.read_bytes(), ends_of(segments)))
    seen = decode(segments, KeyLog([str(tmp_path / "keys.log")]))
    assert seen.exchanges == []
    assert [row["tls_decryption"] for row in seen.connections] == [D_NO_KEY]


def test_an_extract_has_the_true_client_random(over: OverTls, tmp_path: Path) -> None:
    """So that others decrypt it, too."""
    random, ends = bytes(range(32)), name_of_ends(CLIENT, BROKER)
    path = tmp_path / "keys.log"
    path.write_bytes(b"CLIENT_TRAFFIC_SECRET_0 %s %s\n" % (ends.hex().encode(), b"ab" * 48))
    key_log = KeyLog([str(path)])
    assert key_log.secrets(random) is None
    key_log.locate(random, ends)
    assert key_log.lines_for([random]) == b"CLIENT_TRAFFIC_SECRET_0 %s %s\n" % (random.hex().encode(), b"ab" * 48)


def test_a_socket_that_comes_ends_and_comes_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafkatap.engine.tls.key_log_sources._AGAIN", 0.0)
    outlets = pytest.importorskip("kafkatap_keys.outlets", reason="needs kafkatap-keys: pip install ./agent")
    path = str(tmp_path / "keys.sock")
    key_log = open_key_logs([path], is_growing=True)
    assert key_log.missing == [path]
    for number in range(2):
        random = bytes([number]) * 32
        outlet, selector = outlets.KeySocket(path), selectors.DefaultSelector()
        outlet.begin(selector)
        outlet.write(b"CLIENT_RANDOM %s %s\n" % (random.hex().encode(), b"cd" * 48))
        key_log.poll()
        for key, _ in selector.select(5):
            key.data()
        assert key_log.missing == []
        assert key_log.poll()
        secrets = key_log.secrets(random)
        assert secrets is not None
        assert secrets.master == b"\xcd" * 48
        outlet.close()
        selector.close()
        assert not key_log.poll()
    assert key_log.line_count == 2


def test_a_sender_that_never_ends_a_line_is_read_in_parts(tmp_path: Path) -> None:
    path = str(tmp_path / "keys.sock")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        lines = LineSocket(path)
        sender, _ = listener.accept()
        with sender:
            sender.setblocking(False)
            for _ in range(200):
                with suppress(BlockingIOError):
                    while True:
                        sender.send(b"x" * 65_536)
                assert lines.read() == b""
                assert len(lines._rest) <= 65_536
            sender.setblocking(True)
            sender.send(b"\nCLIENT_RANDOM 1\n")
        assert lines.read().endswith(b"\nCLIENT_RANDOM 1\n")
        assert lines.read() == b""
        assert not lines.is_connected


def test_a_socket_is_for_input_that_grows(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "keys.sock"))
        done = kafkatap("report", "--keylog", tmp_path / "keys.sock", "samples/tls/broker.pcap.zst")
    assert done.code == 2
    assert "a socket is read by live and by --follow" in done.err
