"""Recordings of other protocols (tests/wire/foreign): whatever they look like, no Kafka is made of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.captures import PcapRecords
from tests.wire.harness import Decoded, decode_capture

RECORDINGS = sorted((Path(__file__).parent / "foreign").glob("*.pcap.zst"))


def assert_no_kafka(seen: Decoded, what: object) -> None:
    assert not seen.exchanges, (what, seen.exchanges[:2])
    protocols = {connection["protocol"] for connection in seen.connections}
    assert "kafka" not in protocols, (what, [c for c in seen.connections if c["protocol"] == "kafka"])
    payload = seen.ledger["payload bytes"]
    assert payload["kafka_frames"] == payload["sasl_tokens"] == payload["skipped"] == 0, (what, payload)


def test_there_are_recordings() -> None:
    assert len(RECORDINGS) >= 40


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.name.partition(".")[0])
def test_no_kafka_is_made_of_it(path: Path) -> None:
    """Whole, begun at many packets, with one packet lost, cut to some bytes of each packet, with a hint at the port."""
    records = PcapRecords(path)
    count = len(records)
    whole = decode_capture(records.data)
    assert_no_kafka(whole, "whole")
    assert whole.ledger["payload bytes"]["total"] > 0
    ports = sorted({connection["broker_port"] for connection in whole.connections})
    for first in sorted({*range(1, min(count, 10)), *range(10, count, 1 + count // 12)}):
        data = records.slice(first, count)
        assert_no_kafka(decode_capture(data), f"from packet {first} on")
        assert_no_kafka(decode_capture(data, ports=ports), f"from packet {first} on, with its ports")
        lost = records.keep(n for n in range(count) if n != first)
        assert_no_kafka(decode_capture(lost), f"without packet {first + 1}")
    for length in (60, 68, 80, 96, 128):
        assert_no_kafka(decode_capture(snapped(records, length)), f"cut to {length} bytes")


def snapped(records: PcapRecords, length: int) -> bytes:
    """The capture with at most this many bytes of each packet."""
    cut = []
    for n in range(len(records)):
        record = records.record(n)
        captured = min(length, len(record) - 16)
        cut.append(record[:8] + captured.to_bytes(4, "little") + record[12 : 16 + captured])
    return records.header + b"".join(cut)
