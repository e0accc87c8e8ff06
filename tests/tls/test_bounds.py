"""Bounds of memory and time: each test fails without its bound."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kafkatap.engine.engine import Engine
from kafkatap.engine.read_options import ReadOptions
from kafkatap.engine.tls import layer as layer_module
from kafkatap.engine.tls import protection
from kafkatap.engine.tls.ciphers import AeadCipher13
from kafkatap.engine.tls.key_log import KeyLog
from kafkatap.engine.tls.layer import TlsLayer
from kafkatap.engine.tls.secrets import Secrets
from kafkatap.engine.tls.suites import Suite
from kafkatap.engine.tls.tracked import Tracked
from kafkatap.reports.connection_words import D_NO_KEY
from tests.support.captures import ETHERNET, pcap_bytes
from tests.support.tcp import Segment, TcpConversation, encode
from tests.support.tls_talk import OverTls
from tests.tls.crafted import Crafted13
from tests.tls.talk import SERVER, see
from tests.wire.harness import Decoded, decode_capture
from tests.wire.kafkatalk import small_talk

#: A record that begins with application data and never ends.
OPEN_RECORD = b"\x17\3\3\x3e\x80" + bytes(8_000)
Observe = Callable[[str, Callable[[TlsLayer], int]], list[int]]


@pytest.fixture(scope="module")
def hello(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A ClientHello."""
    return OverTls(tmp_path_factory.mktemp("tls")).replayed(small_talk(1).segments)[3].payload


@pytest.fixture
def growing(tmp_path: Path) -> KeyLog:
    """A key log that may still get the secrets that connections wait for."""
    path = tmp_path / "keys.log"
    path.write_text(f"CLIENT_RANDOM {'ab' * 32} {'cd' * 48}\n")
    key_log = KeyLog([str(path)])
    key_log.is_growing = True
    return key_log


@pytest.fixture
def observe(monkeypatch: pytest.MonkeyPatch) -> Observe:
    """Note a measure of the layer after each call of one of its methods."""

    def observed(method: str, measure: Callable[[TlsLayer], int]) -> list[int]:
        found, kept = [], getattr(TlsLayer, method)

        def noted(layer: TlsLayer, *rest: object) -> object:
            result = kept(layer, *rest)
            found.append(measure(layer))
            return result

        monkeypatch.setattr(TlsLayer, method, noted)
        return found

    return observed


def waiting(layer: TlsLayer) -> int:
    return sum(tracked.waiting_bytes for tracked in layer.tracked.values())


def connection(hello: bytes, port: int, *sent: bytes, step_ns: int = 1_000) -> list[Segment]:
    """A connection whose broker sends this behind its hello. It stays open."""
    tcp = TcpConversation(("10.0.0.1", port), ("10.0.0.2", 9_093), step_ns=step_ns, mss=60_000)
    tcp.open()
    tcp.client(hello)
    tcp.server(b"\x16\3\3\0\1\2")
    for data in sent:
        tcp.server(data)
    return tcp.segments


def decode(segments: list[Segment], key_log: KeyLog | None, singly: bool = True) -> Decoded:
    packets = encode(segments)
    data = pcap_bytes(packets, ETHERNET, nanoseconds=True)
    return decode_capture(
        data, runs=[1] * len(packets) if singly else None, engine=Engine(ReadOptions(key_log=key_log), all_results=True)
    )


def test_bytes_that_wait_of_all_connections(
    hello: bytes, growing: KeyLog, observe: Observe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layer_module, "HOLD_ALL", 64 << 10)
    sizes = observe("read", waiting)
    segments = [each for n in range(20) for each in connection(hello, 20_000 + n, OPEN_RECORD)]
    decode(segments, growing)
    assert 48 << 10 < max(sizes) <= 64 << 10


def test_records_that_wait_of_all_connections(
    hello: bytes, growing: KeyLog, observe: Observe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many small records in one packet, so that they wait before the packet does."""
    monkeypatch.setattr(layer_module, "HOLD_ALL", 64 << 10)
    sizes = observe("_read_protected", waiting)
    decode(connection(hello, 20_000, b"\x17\3\3\0\1x" * 200), growing)
    assert 48 << 10 < max(sizes) <= 64 << 10


def test_bytes_that_wait_of_one_connection(
    hello: bytes, growing: KeyLog, observe: Observe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layer_module, "HOLD_ALL", 512 << 10)
    sizes = observe("read", waiting)
    seen = decode(connection(hello, 20_000, *[OPEN_RECORD + bytes(8_000)] * 40), growing)
    assert 480 << 10 < max(sizes) <= 512 << 10
    assert seen.connections[0]["protocol"] == "tls"


def test_what_making_room_costs(hello: bytes, growing: KeyLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many connections that wait with little are not looked through for each packet."""
    monkeypatch.setattr(layer_module, "HOLD_ALL", 64 << 10)
    looked: list[int] = []
    wait = Tracked.waiting_bytes.fget
    assert wait is not None

    def counted(tracked: Tracked) -> int:
        looked.append(1)
        return wait(tracked)  # type: ignore[no-any-return]

    monkeypatch.setattr(Tracked, "waiting_bytes", property(counted))
    segments = [each for n in range(400) for each in connection(hello, 20_000 + n, OPEN_RECORD[:1_000])]
    decode(segments, growing)
    assert 400 < len(looked) < 400 * 10


def test_secrets_are_looked_for_when_there_are_new_lines(
    hello: bytes, growing: KeyLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not with each packet, for each connection that waits."""
    asked: list[bytes] = []
    ask = KeyLog.secrets

    def counted(key_log: KeyLog, client_random: bytes) -> Secrets | None:
        asked.append(client_random)
        return ask(key_log, client_random)

    monkeypatch.setattr(KeyLog, "secrets", counted)
    segments = [each for n in range(50) for each in connection(hello, 20_000 + n, *[b"\x17\3\3\0\1x"] * 10)]
    decode(segments, growing)
    assert 50 <= len(asked) <= 50 * 3


@pytest.mark.parametrize(("step_ns", "is_waiting"), [(100_000_000, True), (600_000_000, False)])
def test_how_long_a_connection_waits(
    hello: bytes, growing: KeyLog, observe: Observe, step_ns: int, is_waiting: bool
) -> None:
    found = observe("read", waiting)
    seen = decode(connection(hello, 20_000, *[b"\x17\3\3\0\1x"] * 10, step_ns=step_ns), growing)
    assert (found[-3] > 0) == is_waiting
    assert seen.connections[0]["tls_decryption"] == D_NO_KEY


def test_connections_that_are_tracked(hello: bytes, observe: Observe, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others are found to be TLS, too, also without their beginning."""
    monkeypatch.setattr(layer_module, "MOST_TRACKED", 10)
    tracked = observe("read", lambda layer: sum(each.slot >= 0 for each in layer.tracked.values()))
    segments = [each for n in range(30) for each in connection(hello, 20_000 + n, b"\x17\3\3\0\1x", b"\x17\3\3\0\1x")]
    for some in (segments, [each for each in segments if each.payload]):
        seen = decode(some, None)
        assert [row["protocol"] for row in seen.connections] == ["tls"] * 30
        assert max(tracked) == 10


def test_what_key_updates_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each derives as many secrets as the one before, also where records are missing."""
    derived: list[int] = []
    derive = protection.next_generation

    def counted(suite: Suite, secret: bytes, count: int = 1) -> bytes:
        derived.append(count)
        return derive(suite, secret, count)

    monkeypatch.setattr(protection, "next_generation", counted)
    crafted = Crafted13(0x1301)
    crafted.hello()
    for _ in range(300):
        crafted.update(SERVER)
        crafted.chat(1)
    seen = see(crafted.records, crafted.key_log)
    assert seen.plain == crafted.plain
    assert 300 <= sum(derived) <= 4 * 300
    derived.clear()
    session = see(crafted.records[:10], crafted.key_log).session
    for record in crafted.records[10:]:
        session.lost(SERVER)
        see([record], None, session)
    assert 300 <= sum(derived) <= 10 * 300


def test_what_a_search_for_numbers_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind a loss, records that never open cost no more than the budget, and then a few trials each."""
    crafted = Crafted13(0x1303)
    crafted.hello()
    crafted.chat(3)
    session = see(crafted.records, crafted.key_log).session
    session.lost(SERVER)
    tried = []
    find = AeadCipher13.find

    def counted(cipher: AeadCipher13, record: memoryview, out: memoryview, count: int) -> int:
        tried.append(count * len(record))
        return find(cipher, record, out, count)

    monkeypatch.setattr(AeadCipher13, "find", counted)
    records = 20
    see([(SERVER, b"\x17\3\3\x40\0" + bytes(16_384))] * records, None, session)
    few = 8 * (1 + 3) * 17_000  # for the current key and three updates
    assert 32 << 20 < sum(tried) <= (64 << 20) + records * few
