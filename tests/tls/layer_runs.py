"""Runs of the engine with a key log over crafted connections, and what must be equal between them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kafkatap.engine.engine import Engine
from kafkatap.engine.read_options import ReadOptions
from kafkatap.engine.tls.key_log import KeyLog
from tests.support.captures import ETHERNET, Packet, pcap_bytes
from tests.support.tcp import Segment, encode
from tests.wire.harness import Decoded, Row, assert_same, decode_capture, run_lengths
from tests.wire.kafkatalk import METADATA, KafkaTalk, add_exchanges, small_talk

#: Columns of an exchange that encryption does not change.
SAME = (
    "client_ip", "client_port", "broker_ip", "broker_port", "api_key", "api_version", "correlation_id", "client_id",
    "request_bytes", "response_bytes", "outcome",
)  # fmt: skip


def decode(segments: Sequence[Segment], key_log: Path | None, runs: Sequence[int] | None = None) -> Decoded:
    """The rows of segments with a key log."""
    return decode_packets(encode(segments), key_log, runs)


def decode_packets(packets: Sequence[Packet], key_log: Path | None, runs: Sequence[int] | None = None) -> Decoded:
    """The rows of packets with a key log."""
    engine = Engine(ReadOptions(key_log=None if key_log is None else KeyLog([str(key_log)])), all_results=True)
    return decode_capture(pcap_bytes(packets, ETHERNET, nanoseconds=True), runs=runs, engine=engine)


def check(segments: Sequence[Segment], key_log: Path | None, splits: int = 4) -> Decoded:
    """Assert that segments have the same rows at once and in runs of many lengths; return the rows."""
    packets = encode(segments)
    whole = decode_packets(packets, key_log)
    for runs in run_lengths(len(packets), splits=splits):
        assert_same(decode_packets(packets, key_log, runs), whole, runs)
    return whole


def facts(rows: Sequence[Row]) -> list[tuple[Any, ...]]:
    """What encryption does not change, in order."""
    return sorted(tuple(row[name] for name in SAME) for row in rows)


def long_talk(count: int = 6, large: int = 60_000, **options: Any) -> KafkaTalk:
    """Exchanges of which one has a large response, in segments of at most a record's size, so that records are full."""
    talk = KafkaTalk(mss=options.pop("mss", 16_384), **options)
    talk.tcp.open()
    add_exchanges(talk, count // 2)
    asked = talk.request(METADATA, 4, 100, Topics=[{"Name": "large"}])
    talk.respond(asked, Topics=[{"Name": f"{n:04}" + "x" * 200, "ErrorCode": 0} for n in range(large // 210)])
    add_exchanges(talk, count - count // 2, count // 2)
    talk.tcp.close()
    return talk


__all__ = ["SAME", "check", "decode", "decode_packets", "facts", "long_talk", "small_talk"]
