"""Captures that are cut, one-sided or incomplete: what they cannot show is no finding, and the output says so."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from kafkatap import Comparison, compare
from kafkatap.dissector import dtypes as r
from kafkatap.reports.batch import Array, Batch, FileInfo
from kafkatap.reports.comparison.comparison import Compared, compare_sides
from kafkatap.reports.comparison.leaves import Side
from kafkatap.reports.comparison.quality import encrypted_brokers, has_one_direction, one_sided, qualities
from kafkatap.reports.comparison.side_counts import SideCounts
from kafkatap.reports.connection_columns import CONNECTION_ROW
from kafkatap.reports.connection_words import H_COMPLETE, H_REFUSED, H_UNANSWERED, P_KAFKA, P_TLS
from tests.support import damage
from tests.support.captures import ETHERNET, Packet, pcap_bytes, read_capture
from tests.support.segments import tcp_at

from .loads import START, Load, context_of

SAMPLES = Path(__file__).resolve().parents[2] / "samples"
WHOLE = SAMPLES / "apache-4.3.pcap.zst"
PORTS = range(9092, 9097)
Spoil = Callable[[damage.Numbers], damage.Numbers]


def is_of_client(packet: Packet) -> bool:
    """Whether a packet is on its way to a broker."""
    at = tcp_at(packet, ETHERNET)
    return at > 0 and int.from_bytes(packet.data[at + 2 : at + 4], "big") in PORTS


@pytest.fixture(scope="module")
def spoilt(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A capture with errors, quotas and new connections, spoilt in a way."""
    whole = damage.numbered(read_capture(WHOLE).packets)
    folder = tmp_path_factory.mktemp("spoilt")
    ways: dict[str, Spoil] = {
        "cut": lambda packets: damage.cut(packets, 96),
        "one direction": lambda packets: damage.keep_if(packets, is_of_client),
        "lost": lambda packets: damage.lose_bursts(packets, random.Random(1), 0.1),
    }

    def made(name: str) -> Path:
        path = folder / f"{name.replace(' ', '-')}.pcap"
        if not path.exists():
            path.write_bytes(pcap_bytes(damage.packets_of(ways[name](whole))))
        return path

    return made


@pytest.mark.parametrize(
    ("way", "says", "left_out"),
    [
        ("cut", "the snap length cut 97.0 % of its requests and 83.8 % of its responses", "error codes, throttling"),
        ("one direction", "100 % of its connections were captured in one direction only", "refused connections"),
        ("lost", "of its bytes are in no packet", "requests without a response"),
    ],
)
def test_what_a_spoilt_side_cannot_show_is_no_finding(
    way: str, says: str, left_out: str, spoilt: Callable[[str], Path]
) -> None:
    for sides in ((WHOLE, spoilt(way)), (spoilt(way), WHOLE))[: 2 if way == "cut" else 1]:
        found = compare(*sides)
        assert found.findings == []
        name = "after" if sides[0] == WHOLE else "before"
        (warning,) = (text for text in found.warnings if text.startswith(f"The side {name} is incomplete: "))
        assert says in warning
        assert left_out in warning.partition("Not compared: ")[2]
        assert "More: kafkatap doctor" in warning
        assert way == "lost" or not any(row[1] == "error code" for row in found.table("presence").rows)


def test_a_cut_that_hides_connections_hides_clients_and_rates(tmp_path: Path) -> None:
    """Connections that began before the capture are not known as Kafka, if all their messages are cut."""
    packets = damage.numbered(read_capture(SAMPLES / "compare" / "quota.pcap.zst").packets)
    cut = tmp_path / "cut.pcap"
    cut.write_bytes(pcap_bytes(damage.packets_of(damage.cut(packets, 96))))
    found = compare(SAMPLES / "compare" / "quota.pcap.zst", cut)
    assert found.findings == []
    assert found.table("presence").rows == []
    assert "are cut and not known as Kafka" in found.warnings[0]


def test_the_same_capture_twice_is_named(tmp_path: Path) -> None:
    steady = SAMPLES / "compare" / "quota.pcap.zst"
    copy = tmp_path / "copy.pcap.zst"
    copy.write_bytes(steady.read_bytes())
    assert "Both sides are the same capture" in str(compare(steady, copy))
    assert "Both sides are the same capture" not in str(compare(steady, SAMPLES / "compare" / "before.pcap.zst"))


def connections(count: int, **values: int) -> Array:
    rows = np.zeros(count, CONNECTION_ROW)
    rows["connection"], rows["protocol"], rows["broker_port"] = np.arange(count), P_KAFKA, 9092
    rows["first"], rows["last"] = START, START + 1
    rows["client_packets"] = rows["broker_packets"] = 10
    rows["client_bytes"] = rows["broker_bytes"] = 1_000
    for name, value in values.items():
        rows[name] = value
    return rows


def test_a_client_that_repeats_itself_is_not_one_sided() -> None:
    """A broker that is dead does not answer; a capture without answers has no repetitions."""
    missing = connections(3, broker_packets=0, broker_bytes=0)
    assert one_sided(missing).all()
    assert has_one_direction(missing)
    dead = connections(3, broker_packets=0, broker_bytes=0, client_retransmitted_packets=8)
    assert not one_sided(dead).any()
    assert not has_one_direction(np.concatenate((missing, connections(4))))


def test_a_syn_without_a_captured_answer_is_not_refused() -> None:
    rows = connections(5, handshake=H_UNANSWERED)
    rows["handshake"][:2] = H_REFUSED
    for has_answers, refused in ((True, 5), (False, 2)):
        counts = SideCounts()
        counts.add_connections(rows, START, START + 10, has_answers)
        assert counts.forms["connections"].values()["refused"].sum() == refused


def test_refused_connections_are_counted_as_connections() -> None:
    sides = []
    for seed, handshake in ((1, H_COMPLETE), (2, H_REFUSED)):
        side = Load({"a": 5.0}).side(seed)
        rows = connections(120, handshake=handshake, broker_ip=1, client_id=0)
        rows["first"] = rows["last"] = START + np.arange(120) * 500_000_000
        side.counts.add_connections(rows, side.first, side.last)
        sides.append(side)
    found = compare_sides(sides[0], sides[1])
    (row,) = found.table("findings").rows
    assert str(row[2]).endswith("more refused connections")
    assert "0 and 120 connections in " in str(row[9])


def test_dropped_packets_leave_out_missing_responses() -> None:
    side = Load({"a": 5.0}).side(1)
    drops = FileInfo("x.pcapng", "pcapng", 1, 1_000, 1, drops=5)
    spoilt = side._replace(context=side.context._replace(files=[drops], packets=1_000))
    before, after = qualities((side, spoilt))
    assert before.allows("unanswered")
    assert not after.allows("unanswered")
    assert after.allows("rate")
    badly = side._replace(context=side.context._replace(files=[drops._replace(drops=300)], packets=1_000))
    assert not qualities((side, badly))[1].allows("rate")


def test_coarse_times_are_not_compared_with_fine_ones() -> None:
    side = Load({"a": 5.0}).side(1)
    batches, strings = Load({"a": 5.0}).batches(1)
    counts = SideCounts()
    for batch in batches:
        for name in ("request_first", "request_last", "response_first", "response_last"):
            batch.exchanges[name] -= batch.exchanges[name] % 1_000_000
        counts.add(batch)
    coarse = Side(counts, context_of(strings), side.first, side.last)
    assert not qualities((side, coarse))[1].allows("total")
    assert qualities((coarse, coarse))[1].allows("total")


def test_a_broker_that_is_encrypted_is_not_gone() -> None:
    side = Load({"a": 5.0}).side(1)
    rows = connections(1, protocol=P_TLS, broker_ip=1, broker_port=9093)
    context = side.context._replace(connections=rows)
    assert encrypted_brokers(context) == {"10.0.0.2:9093"}
    without = Load({"a": 5.0}, brokers=1).side(2)

    def gone(found: Compared) -> list[str]:
        return [str(row[2]) for row in found.table("presence").rows if row[1] == "broker"]

    assert gone(compare_sides(side, without)) == ["broker 10.0.0.2:9093"]
    hidden = without._replace(context=without.context._replace(connections=rows))
    assert gone(compare_sides(side, hidden)) == []


def throttled(seed: int, outlier_ns: int) -> Side:
    """A side in which each tenth request waits 20 ms for a quota, and one waits much longer."""
    batches, strings = Load({"a": 5.0, "b": 3.0}, brokers=1).batches(seed)
    counts = SideCounts()
    for number, batch in enumerate(batches):
        rows = batch.exchanges
        waits = np.where(np.random.default_rng(seed).random(len(rows)) < 0.1, 20_000_000, 0)
        if not number:
            waits[len(rows) // 2] += outlier_ns
        rows["throttle_wait_ns"] = waits
        rows["throttle_time_ms"] = waits // 1_000_000
        for name in ("total_ns", "response_first", "response_last"):
            rows[name] += waits
        assert (rows["outcome"] == r.ANSWERED).all()
        counts.add(Batch(rows, batch.results))
    return Side(counts, context_of(strings), START, START + 60_000_000_000)


@pytest.mark.parametrize("order", [1, -1])
def test_one_long_wait_is_no_change(order: int) -> None:
    """It doubles the mean, and comes once."""
    sides = (throttled(1, 0), throttled(2, 4_000_000_000))[::order]
    values = [s.counts.forms["exchanges"].values() for s in sides]
    means = sorted(v["throttle_wait_ns"].sum() / v["answered"].sum() for v in values)
    assert means[1] > 1.5 * means[0]
    found = compare_sides(sides[0], sides[1])
    assert found.table("findings").rows == []


def test_one_long_wait_of_a_recording_is_no_change() -> None:
    """One throttled Fetch of 3.96 s is in the second part."""
    found: Comparison = compare(WHOLE, split="2026-11-21T04:44:15Z")
    assert not any("throttled" in text for text in found.findings)
