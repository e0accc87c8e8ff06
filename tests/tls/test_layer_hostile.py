"""Hostile bytes that look like TLS: nothing breaks, memory is bounded, and every byte is in the ledger."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import pytest

from kafkatap.engine.tls import layer as layer_module
from kafkatap.library import analyze
from tests.support.captures import pcap_bytes
from tests.support.sweeps import seeds
from tests.support.tcp import Segment, TcpConversation, encode, split_small
from tests.support.tls_talk import OverTls
from tests.tls.layer_runs import check, decode
from tests.wire.kafkatalk import small_talk


@pytest.fixture(scope="module")
def over(tmp_path_factory: pytest.TempPathFactory) -> OverTls:
    found = OverTls(tmp_path_factory.mktemp("tls"))
    found.replayed(small_talk(1).segments)
    return found


def record(kind: int, data: bytes, version: int = 0x0303, length: int | None = None) -> bytes:
    return struct.pack("!BHH", kind, version, len(data) if length is None else length) + data


def talk(*sent: tuple[int, bytes], client: tuple[str, int] = ("10.0.0.1", 40_000)) -> list[Segment]:
    tcp = TcpConversation(client, ("10.0.0.2", 9_093))
    tcp.open()
    for end, data in sent:
        tcp.send(end, data)
    tcp.close()
    return tcp.segments


CHANCE = random.Random(3)
CASES = {
    "no record behind the first byte": [(0, b"\x16" + bytes(50))],
    "one byte": [(0, b"\x16")],
    "a header": [(0, b"\x16\3\1\2\0")],
    "length 0": [(0, record(22, b"") * 100)],
    "longest length": [(0, record(22, bytes(100), length=65_535))],
    "largest record": [(0, record(22, CHANCE.randbytes(18_432)))],
    "longer than the largest": [(0, record(22, CHANCE.randbytes(18_433)))],
    "unknown types": [(0, record(22, bytes(10)) + record(99, bytes(10)) + record(22, bytes(10)))],
    "tiny records": [(0, record(22, b"\1") * 20_000), (1, record(21, b"\2") * 20_000)],
    "tiny data": [(0, record(22, b"\1\0\0\1\3")), (1, record(23, b"x") * 20_000), (0, record(23, b"x") * 20_000)],
    "hello without an end": [(0, b"".join(record(22, b"\1\xff\xff\xff" + bytes(16_000)) for _ in range(40)))],
    "garbage later": [(0, record(22, CHANCE.randbytes(200)) + CHANCE.randbytes(40_000)), (1, CHANCE.randbytes(40_000))],
    "only the server": [(1, record(22, CHANCE.randbytes(200)) * 10)],
    "PROXY without an end": [(0, b"PROXY TCP4 " + b"1" * 200)],
    "PROXY then Kafka": [(0, b"PROXY UNKNOWN\r\n" + bytes(30))],
    "PROXY 2 then nothing": [(0, bytes.fromhex("0d0a0d0a000d0a515549540a2111ffff") + bytes(500))],
    "alerts": [(0, record(22, bytes(40))), (1, record(21, b"\2\x28") * 500)],
}


@pytest.mark.parametrize("length", [16_640, 16_641, 16_704, 18_432, 18_433])
@pytest.mark.parametrize("is_whole", [False, True])
def test_the_longest_record(tmp_path: Path, length: int, is_whole: bool) -> None:
    """Layer and dissector accept the records of TLS 1.2, at the start of a connection and behind it. With CBC, SHA-384
    and random padding they have up to 2^14 + 16 + 48 + 256 bytes."""
    tcp = TcpConversation(("10.0.0.1", 40_000), ("10.0.0.2", 9_093), mss=65_000)
    if is_whole:
        tcp.open()
    for _ in range(4):
        tcp.send(0, record(22 if is_whole else 23, CHANCE.randbytes(length)))
        tcp.send(1, record(23, CHANCE.randbytes(length)))
    path = tmp_path / "long.pcap"
    path.write_bytes(pcap_bytes(encode(tcp.segments)))
    (protocol,) = analyze(path).connections.column("protocol").to_pylist()
    assert (protocol == "tls") == (length <= 18_432)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("has_keys", [False, True])
def test_bytes_that_look_like_tls(over: OverTls, name: str, has_keys: bool) -> None:
    segments = talk(*CASES[name])
    keys = over.key_log if has_keys else None
    seen = check(segments, keys, splits=2)
    assert not seen.exchanges
    if sum(len(each.payload) for each in segments) < 2_000:
        assert decode(split_small(segments, 1), keys).ledger["payload bytes"] == seen.ledger["payload bytes"]


@pytest.mark.parametrize("seed", seeds(30, 10))
def test_damaged_connections(over: OverTls, seed: int) -> None:
    """Bytes of a real connection are changed anywhere."""
    chance = random.Random(seed)
    made = small_talk(6)
    segments = over.replayed(made.segments)
    changed = []
    for each in segments:
        data = bytearray(each.payload)
        for _ in range(chance.randrange(3)):
            if data and chance.random() < 0.3:
                data[chance.randrange(len(data))] = chance.randrange(256)
        changed.append(type(each)(*(getattr(each, name) for name in each.__slots__[:-1]), bytes(data)))
    seen = check(changed, over.key_log, splits=1)
    assert len(seen.exchanges) <= len(made.wanted)


def test_many_connections_that_begin_like_tls(over: OverTls, monkeypatch: pytest.MonkeyPatch) -> None:
    """More than are tracked: the others pass."""
    monkeypatch.setattr(layer_module, "MOST_TRACKED", 100)
    segments = []
    for n in range(600):
        tcp = TcpConversation(("10.0.0.1", 1_000 + n), ("10.0.0.2", 9_093))
        tcp.open()
        tcp.client(record(22, b"\1\0\0\x20\3\3" + bytes(30)))
        segments += tcp.segments
    for keys in (None, over.key_log):
        seen = check(segments, keys, splits=1)
        assert [row["protocol"] for row in seen.connections] == ["tls"] * 600


@pytest.mark.parametrize(("count", "protocol"), [(2, "unknown"), (3, "tls")])
def test_records_that_begin_segments_late(count: int, protocol: str) -> None:
    """Without its beginning, a connection is TLS once three segments begin with a record, however late."""
    tcp = TcpConversation(("10.0.0.1", 40_000), ("10.0.0.2", 9_093))
    for n in range(100):
        tcp.send(n % 2, b"\xff" * 100)
    for n in range(count):
        tcp.send(n % 2, record(23, CHANCE.randbytes(200)))
    (row,) = decode(tcp.segments, None).connections
    assert row["protocol"] == protocol


def test_records_that_are_never_complete(over: OverTls, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows for gathered records run out: those of other connections are skipped."""
    monkeypatch.setattr(layer_module, "GATHERED_BYTES", 20 * layer_module.RECORD_ROOM)
    segments = []
    for n in range(60):
        tcp = TcpConversation(("10.0.0.1", 1_000 + n), ("10.0.0.2", 9_093))
        tcp.open()
        tcp.client(record(22, b"\1\0\0\x20\3\3" + bytes(30), length=16_000))
        segments += tcp.segments
    good = small_talk(4)
    assert not check([*segments, *good.segments], over.key_log, splits=1).outcomes.count("unanswered")
