"""Connections that wait for secrets: what waits is bounded, and what was decrypted waits no more."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kafkatap.dissector.dtypes import TLS_VERSIONS
from kafkatap.engine.engine import Engine
from kafkatap.engine.read_options import ReadOptions
from kafkatap.engine.tls import layer as layer_module
from kafkatap.engine.tls.key_log import KeyLog
from kafkatap.engine.tls.tracked import Tracked
from kafkatap.reports.connection_words import D_DECRYPTED, D_LATE_KEY
from tests.support.captures import ETHERNET, pcap_bytes
from tests.support.tcp import Segment, TcpConversation, encode
from tests.support.tls_talk import OverTls, TLSv1_2, TLSv1_3
from tests.wire.harness import Decoded, decode_capture
from tests.wire.kafkatalk import METADATA, KafkaTalk, add_exchanges, small_talk


@pytest.fixture(scope="module")
def over(tmp_path_factory: pytest.TempPathFactory) -> OverTls:
    return OverTls(tmp_path_factory.mktemp("tls"))


def decode_singly(segments: list[Segment], key_log: KeyLog) -> tuple[Decoded, Engine]:
    """Decode packet by packet, as a live capture does at a low rate."""
    packets = encode(segments)
    engine = Engine(ReadOptions(key_log=key_log), all_results=True)
    seen = decode_capture(pcap_bytes(packets, ETHERNET, nanoseconds=True), runs=[1] * len(packets), engine=engine)
    for parts in seen.ledger.values():
        assert sum(n for part, n in parts.items() if part != "total") == parts["total"]
    return seen, engine


def test_what_was_decrypted_waits_no_more(over: OverTls, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bound for what waits of all connections does not add up over those that were decrypted."""
    monkeypatch.setattr(layer_module, "HOLD_ALL", 8 << 10)
    segments, wanted = [], 0
    for n in range(30):
        talk = small_talk(2, client=("10.0.0.1", 20_000 + n), time_ns=1_704_067_200_000_000_000 + n * 1_000_000_000)
        segments += over.replayed(talk.segments)
        wanted += len(talk.wanted)
    seen, _ = decode_singly(segments, KeyLog([str(over.key_log)]))
    assert len(seen.exchanges) == wanted


def test_small_records_that_wait(over: OverTls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a key log that grows, a flood of small records is given up when all that may wait does."""
    over.replayed(small_talk(1).segments)
    key_log = growing_key_log(tmp_path / "keys.log", f"CLIENT_RANDOM {'ab' * 32} {'cd' * 48}\n".encode())
    hello = over.replayed(small_talk(1).segments)[3].payload
    tcp = TcpConversation(("10.0.0.1", 40_000), ("10.0.0.2", 9_093), step_ns=1_000)
    tcp.open()
    tcp.client(hello)
    tcp.server(b"\x16\3\3\0\1\2" + b"\x17\3\3\0\1x" * 500)
    waiting = []
    kept = layer_module.TlsLayer._read_protected

    def counted(layer: layer_module.TlsLayer, tracked: Tracked, *rest: object) -> None:
        kept(layer, tracked, *rest)  # type: ignore[arg-type]
        waiting.append(layer._held_bytes)

    monkeypatch.setattr(layer_module.TlsLayer, "_read_protected", counted)
    monkeypatch.setattr(layer_module, "HOLD_ALL", 100_000)
    for _ in range(20):
        tcp.server(b"\x17\3\3\0\1x" * 100)
    tcp.close()
    seen, _ = decode_singly(tcp.segments, key_log)
    assert not seen.exchanges
    assert max(waiting) <= 100_000
    assert waiting.count(0) == 1  # when it was given up; then no record of it is read any more


def talk_of(sizes: list[int], **options: Any) -> KafkaTalk:
    """Some exchanges, and those with responses of about these sizes."""
    talk = KafkaTalk(**options)
    talk.tcp.open()
    add_exchanges(talk, 3)
    for n, size in enumerate(sizes):
        talk.exchange(METADATA, 4, 100 + n, Topics=[{"Name": "t" * 200}] * (size // 200))
    talk.tcp.close()
    return talk


def in_two(segment: Segment) -> list[Segment]:
    """The segment as two, the first one of which ends in the middle of a record."""
    half = len(segment.payload) // 2
    second = replace(segment, seq=segment.seq + half, payload=segment.payload[half:])
    return [replace(segment, payload=segment.payload[:half]), second]


def growing_key_log(path: Path, lines: bytes) -> KeyLog:
    path.write_bytes(lines)
    return KeyLog([str(path)], is_growing=True)


def decode_with_late_lines(segments: list[Segment], path: Path, early: bytes, late: bytes, at: int) -> Decoded:
    """Decode packet by packet; the rest of the key log comes before packet `at`."""
    packets = encode(segments)
    engine = Engine(ReadOptions(key_log=growing_key_log(path, early)), all_results=True)

    def runs() -> Iterator[int]:
        for n in range(len(packets)):
            if n == at:
                path.write_bytes(early + late)
            yield 1

    return decode_capture(pcap_bytes(packets, ETHERNET, nanoseconds=True), runs=runs(), engine=engine)  # type: ignore[arg-type]


SUITES = [
    (TLSv1_3, None),
    (TLSv1_2, "ECDHE-ECDSA-AES128-GCM-SHA256"),
    (TLSv1_2, "ECDHE-ECDSA-CHACHA20-POLY1305"),
    (TLSv1_2, "ECDHE-ECDSA-AES128-SHA"),
]


@pytest.mark.parametrize(("version", "suite"), SUITES)
@pytest.mark.parametrize("is_cut", [False, True])
def test_secrets_that_come_too_late(
    version: ssl.TLSVersion, suite: str | None, is_cut: bool, over: OverTls, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """What passed stays hidden, and every later exchange is found. `is_cut`: the secrets come in the middle of a
    record."""
    monkeypatch.setattr(layer_module, "HOLD_NS", 0)
    talk = small_talk(20)
    over.key_log.unlink(missing_ok=True)
    segments = over.replayed(talk.segments, version, suite)
    lines = over.key_log.read_bytes()
    late = 3 * len(segments) // 4
    if is_cut:
        late = next(n for n in range(late, len(segments)) if len(segments[n].payload) > 40) + 1
        segments[late - 1 : late] = in_two(segments[late - 1])
    seen = decode_with_late_lines(segments, tmp_path / "keys.log", b"", lines, late)
    asked = sorted(exchange["correlation_id"] for exchange in seen.exchanges)
    assert 2 < len(asked) < len(talk.wanted) - 10
    everything = [wanted["correlation_id"] for wanted in talk.wanted]
    assert asked == everything[-len(asked) :]
    assert {TLS_VERSIONS[row["tls_version"]] for row in seen.exchanges} == {f"TLS 1.{version - 0x301}"}
    (connection,) = seen.connections
    assert (connection["protocol"], connection["tls_decryption"]) == ("kafka", D_LATE_KEY)
    for parts in seen.ledger.values():
        assert sum(n for part, n in parts.items() if part != "total") == parts["total"]


def test_one_connection_may_hold_what_all_may(over: OverTls, tmp_path: Path) -> None:
    """A busy connection whose secrets come after two megabytes loses nothing."""
    talk = talk_of(sizes=[100_000] * 20)
    over.key_log.unlink(missing_ok=True)
    segments = over.replayed(talk.segments)
    seen = decode_with_late_lines(
        segments, tmp_path / "keys.log", b"", over.key_log.read_bytes(), len(segments) - 6
    )  # fmt: skip
    assert len(seen.exchanges) == len(talk.wanted)
    assert seen.connections[0]["tls_decryption"] == D_DECRYPTED


def test_what_waits_most_is_given_up_first(over: OverTls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the bound, a connection with much gives way, and those with little wait on."""
    monkeypatch.setattr(layer_module, "HOLD_ALL", 100_000)
    small, large = small_talk(3), talk_of(sizes=[200_000], client=("10.0.0.9", 50_000))
    over.key_log.unlink(missing_ok=True)
    one, other = over.replayed(small.segments), over.replayed(large.segments)
    in_turn = [*one[:-4], *other[:-4], *one[-4:], *other[-4:]]
    segments = [replace(segment, time_ns=one[0].time_ns + n * 10_000) for n, segment in enumerate(in_turn)]
    lines = over.key_log.read_bytes()
    seen = decode_with_late_lines(segments, tmp_path / "keys.log", b"", lines, len(segments) - 8)
    found = {row["client_port"]: row["tls_decryption"] for row in seen.connections}
    assert found == {one[0].source[1]: D_DECRYPTED, 50_000: D_LATE_KEY}
    assert len(seen.exchanges) == len(small.wanted)


def test_handshake_secrets_come_before_the_others(over: OverTls, tmp_path: Path) -> None:
    """With a key log that grows, records with data wait for their own secrets."""
    talk = small_talk(3)
    over.key_log.unlink(missing_ok=True)
    segments = over.replayed(talk.segments)
    lines = [line for line in over.key_log.read_bytes().splitlines(True) if not line.startswith(b"#")]
    early = [line for line in lines if b"HANDSHAKE" in line]
    growing = tmp_path / "keys.log"
    growing.write_bytes(b"".join(early))
    key_log = KeyLog([str(growing)])
    key_log.is_growing = True
    half = len(segments) - 6
    packets = encode(segments)
    engine = Engine(ReadOptions(key_log=key_log), all_results=True)

    def runs() -> Iterator[int]:
        for n in range(len(packets)):
            if n == half:
                growing.write_bytes(b"".join(early + [line for line in lines if line not in early]))
            yield 1

    data = pcap_bytes(packets, ETHERNET, nanoseconds=True)
    seen = decode_capture(data, runs=runs(), engine=engine)  # type: ignore[arg-type]
    assert len(seen.exchanges) == len(talk.wanted)
