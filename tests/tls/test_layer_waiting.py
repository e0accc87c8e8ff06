"""Connections that wait for secrets: what waits is bounded, and what was decrypted waits no more."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkatap.engine.engine import Engine
from kafkatap.engine.read_options import ReadOptions
from kafkatap.engine.tls import layer as layer_module
from kafkatap.engine.tls.key_log import KeyLog
from kafkatap.engine.tls.tracked import Tracked
from tests.support.captures import ETHERNET, pcap_bytes
from tests.support.tcp import Segment, TcpConversation, encode
from tests.support.tls_talk import OverTls
from tests.wire.harness import Decoded, decode_capture
from tests.wire.kafkatalk import small_talk


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
    """With a key log that grows, a flood of small records is given up."""
    over.replayed(small_talk(1).segments)
    secrets = tmp_path / "keys.log"
    secrets.write_text(f"CLIENT_RANDOM {'ab' * 32} {'cd' * 48}\n")
    key_log = KeyLog([str(secrets)])
    key_log.is_growing = True
    hello = over.replayed(small_talk(1).segments)[3].payload
    tcp = TcpConversation(("10.0.0.1", 40_000), ("10.0.0.2", 9_093), step_ns=1_000)
    tcp.open()
    tcp.client(hello)
    tcp.server(b"\x16\3\3\0\1\2" + b"\x17\3\3\0\1x" * 500)
    queued = []
    kept = layer_module.TlsLayer._read_protected

    def counted(layer: layer_module.TlsLayer, tracked: Tracked, *rest: object) -> None:
        kept(layer, tracked, *rest)  # type: ignore[arg-type]
        queued.append(len(tracked.queue))

    monkeypatch.setattr(layer_module.TlsLayer, "_read_protected", counted)
    monkeypatch.setattr(layer_module, "_MOST_QUEUED", 100)
    for _ in range(20):
        tcp.server(b"\x17\3\3\0\1x" * 100)
    tcp.close()
    seen, _ = decode_singly(tcp.segments, key_log)
    assert not seen.exchanges
    assert queued
    assert max(queued) <= 100


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
