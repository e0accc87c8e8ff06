"""The rows of selected exchanges are the same in the extracted capture as in the original."""

from __future__ import annotations

import random
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kafkatap
from tests.extract.support import SAMPLES, assert_same_rows, extracted, rows_of
from tests.support import copies, damage
from tests.support.captures import SLL, SLL2, Interface, Packet, pcap_bytes, pcapng_bytes, read_capture, write_capture
from tests.support.encapsulation import KINDS, encapsulate, fragment, link_type_of
from tests.support.tcp import START_NS, encode
from tests.wire.kafkatalk import METADATA, KafkaTalk, small_talk

FILTERS = ("latency > 50ms", "error", "hol_wait > 0ms", "throttle > 0ms", "api == Metadata", "outcome != answered")
NAMES = ("apache-0.8.2.pcap.zst", "apache-4.3.pcap.zst", "live-4.3.pcap.zst", "apache-4.3-two-interfaces.pcapng",
         "questions/auth.pcap.zst", "questions/throttle.pcap.zst", "questions/retries.pcap.zst",
         "questions/tcp.pcap.zst")  # fmt: skip


@cache
def keys_of(name: str) -> list[int]:
    keys: list[int] = kafkatap.analyze(SAMPLES / name).exchanges["exchange"].to_pylist()
    return keys


@cache
def packets_of(name: str) -> tuple[Packet, ...]:
    return tuple(read_capture(SAMPLES / name).packets)


@pytest.mark.parametrize("filter", FILTERS)
@pytest.mark.parametrize("name", ["apache-4.3.pcap.zst", "questions/throttle.pcap.zst"])
def test_filters(name: str, filter: str, tmp_path: Path) -> None:
    made = extracted(SAMPLES / name, tmp_path / "out.pcapng", filter)
    rows = assert_same_rows(SAMPLES / name, tmp_path / "out.pcapng", filter)
    assert made.exchanges == len(rows) > 0
    assert made.different == 0
    assert made.packets < len(packets_of(name))


def connections_of(capture: Path) -> dict[int, dict[str, Any]]:
    return {row["connection"]: row for row in kafkatap.analyze(capture).connections.to_pylist()}


def test_one_metadata_response_is_enough_to_name_a_topic(tmp_path: Path) -> None:
    """A Produce with a topic id: the extract has its connection only, which has a Metadata response of its own."""
    filter = "exchange == 3975860567264145241"
    made = extracted(SAMPLES / "apache-4.3.pcap.zst", tmp_path / "out.pcapng", filter)
    (row,) = assert_same_rows(SAMPLES / "apache-4.3.pcap.zst", tmp_path / "out.pcapng", filter).values()
    assert row["topics"] == ["secret"]
    assert list(connections_of(tmp_path / "out.pcapng")) == [row["connection"]]
    assert (made.copied, made.packets < 100) == (7, True)


@settings(max_examples=12)
@given(name=st.sampled_from(NAMES), seed=st.integers(0, 1 << 32), count=st.sampled_from((1, 1, 3, 20)))
def test_random_selections(tmp_path_factory: pytest.TempPathFactory, name: str, seed: int, count: int) -> None:
    output = tmp_path_factory.mktemp("extract") / "out.pcapng"
    keys = random.Random(seed).sample(keys_of(name), min(count, len(keys_of(name))))
    filter = f"exchange in ({', '.join(map(str, keys))})"
    made = extracted(SAMPLES / name, output, filter)
    assert made.exchanges == len(assert_same_rows(SAMPLES / name, output, filter)) == len(keys)


def test_whole_connections(tmp_path: Path) -> None:
    capture = SAMPLES / "live-4.3.pcap.zst"
    made = extracted(capture, tmp_path / "out.pcapng", "error", connections=True)
    rows = rows_of(capture)
    chosen = {row["connection"] for row in rows_of(capture, "error").values()}
    of_these = {key: row for key, row in rows.items() if row["connection"] in chosen}
    found = rows_of(tmp_path / "out.pcapng")
    assert {key: row for key, row in found.items() if row["connection"] in chosen} == of_these
    assert made.connections == len(chosen)
    # Others are there only as they name topics.
    others = [row for row in found.values() if row["connection"] not in chosen]
    assert made.copied == len(of_these) + len(others) < len(rows)
    before, after = (connections_of(path) for path in (capture, tmp_path / "out.pcapng"))
    assert {key: after[key] for key in chosen} == {key: before[key] for key in chosen}


def test_everything(tmp_path: Path) -> None:
    """Without a selection all connections with Kafka are copied, with the same report on them."""
    capture = SAMPLES / "questions" / "tcp.pcap.zst"
    extracted(capture, tmp_path / "out.pcapng")
    assert rows_of(tmp_path / "out.pcapng") == rows_of(capture)
    before = connections_of(capture)
    assert connections_of(tmp_path / "out.pcapng") == {
        k: row for k, row in before.items() if row["protocol"] == "kafka"
    }


@pytest.mark.parametrize("harm", ["lose", "bursts", "reorder", "duplicate", "cut", "late start"])
def test_damaged_captures(harm: str, tmp_path: Path) -> None:
    packets, chance = damage.numbered(packets_of("live-4.3.pcap.zst")), random.Random(7)
    made = {
        "lose": lambda: damage.lose(packets, chance, 0.02),
        "bursts": lambda: damage.lose_bursts(packets, chance, 0.05),
        "reorder": lambda: damage.reorder(packets, chance, 0.05, 3_000_000),
        "duplicate": lambda: damage.duplicate(packets, chance, 0.2),
        "cut": lambda: damage.cut(packets, 96),
        "late start": lambda: packets[len(packets) // 3 :],
    }[harm]()
    capture = write_capture(tmp_path / "in.pcap", pcap_bytes(damage.packets_of(made)))
    for filter in ("latency > 50ms", "outcome != answered", "api == Produce"):
        if not rows_of(capture, filter):
            continue
        extracted(capture, tmp_path / "out.pcapng", filter)
        assert_same_rows(capture, tmp_path / "out.pcapng", filter)


@pytest.mark.parametrize("kind", ["vxlan", "vlan", "erspan 2"])
def test_tunnels(kind: str, tmp_path: Path) -> None:
    assert kind in KINDS
    packets = encapsulate(packets_of("live-4.3.pcap.zst"), kind)
    capture = write_capture(tmp_path / "in.pcap", pcap_bytes(packets, link_type_of(kind)))
    extracted(capture, tmp_path / "out.pcapng", "latency > 50ms")
    assert_same_rows(capture, tmp_path / "out.pcapng", "latency > 50ms")
    assert_copied(packets, tmp_path / "out.pcapng")


@pytest.mark.parametrize("order", ["forward", "shuffled"])
def test_fragments(order: str, tmp_path: Path) -> None:
    """The fragments of a wanted datagram are copied, before the one that completes it too."""
    packets = fragment(packets_of("live-4.3.pcap.zst"), 200, order)
    capture = write_capture(tmp_path / "in.pcap", pcap_bytes(packets))
    extracted(capture, tmp_path / "out.pcapng", "latency > 50ms")
    assert_same_rows(capture, tmp_path / "out.pcapng", "latency > 50ms")
    assert_copied(packets, tmp_path / "out.pcapng")
    assert kafkatap.analyze(tmp_path / "out.pcapng").ledger.to_pandas().set_index("part")["count"]["fragment"] == 0


def assert_copied(packets: list[Packet], output: Path) -> None:
    """Each packet of the output is one of these packets, with its time and length, in their order."""
    left = iter((p.time_ns, p.data, p.wire_length) for p in packets)
    for found in read_capture(output).packets:
        assert (found.time_ns, found.data, found.wire_length) in left


def test_rotated_captures(tmp_path: Path) -> None:
    """The files of a ring are one sequence; the copy is a single file."""
    parts = damage.rotate(damage.numbered(packets_of("live-4.3.pcap.zst")), 4)
    captures = [write_capture(tmp_path / f"{n}.pcap.gz", pcap_bytes(damage.packets_of(p))) for n, p in enumerate(parts)]
    extracted(captures, tmp_path / "out.pcapng", "latency > 50ms")
    assert_same_rows(captures, tmp_path / "out.pcapng", "latency > 50ms")
    assert_copied(list(packets_of("live-4.3.pcap.zst")), tmp_path / "out.pcapng")


@pytest.mark.parametrize("snap_length", [262_144, 128])
def test_two_capture_points(snap_length: int, tmp_path: Path) -> None:
    """Two hosts captured the same connections: packets of both are in the copy, in the order in which they are merged:
    whole ones before those that were cut."""
    packets = list(packets_of("live-4.3.pcap.zst"))
    one = write_capture(tmp_path / "broker.pcap", pcap_bytes(packets))
    skew = 700_000 if snap_length > 65_535 else -10_000
    there = pcap_bytes(copies.elsewhere(packets, skew_ns=skew), snap_length=snap_length)
    other = write_capture(tmp_path / "client.pcap", there)
    made = extracted([other, one], tmp_path / "out.pcapng", "latency > 50ms")
    assert_same_rows([other, one], tmp_path / "out.pcapng", "latency > 50ms")
    found = read_capture(tmp_path / "out.pcapng").packets
    assert len({packet.interface for packet in found}) == (1 if snap_length > 65_535 else 2)
    delays = [1_000_000 if len(packet.data) < packet.wire_length else 0 for packet in found]
    if not any(delays):
        assert [p.time_ns for p in found] == sorted(p.time_ns for p in found)
    assert made.whole == []


@pytest.mark.parametrize("link", [SLL, SLL2])
def test_interfaces_of_several_link_types(link: int, tmp_path: Path) -> None:
    """Each interface keeps its link type, name, resolution and snap length."""
    packets = packets_of("live-4.3.pcap.zst")
    kind = "sll" if link == SLL else "sll2"
    cooked = {id(p): q for p, q in zip(packets, encapsulate(packets, kind), strict=False)}
    mixed = [cooked.get(id(p), p) for p in packets] if len(cooked) == len(packets) else list(packets)
    half = len(mixed) // 2
    mixed = list(packets[:half]) + [Packet(p.time_ns, p.data, p.original_length, 1) for p in mixed[half:]]
    interfaces = (Interface(name="eth0", snap_length=4096), Interface(link, 9, name="any", tsoffset=3600))
    capture = write_capture(tmp_path / "in.pcapng", pcapng_bytes(mixed, interfaces))
    extracted(capture, tmp_path / "out.pcapng", "latency > 50ms")
    assert_same_rows(capture, tmp_path / "out.pcapng", "latency > 50ms")
    assert sorted(read_capture(tmp_path / "out.pcapng").link_types) == sorted((1, link))


def test_a_port_that_is_used_again(tmp_path: Path) -> None:
    """Of three connections of one 4-tuple only the selected one is copied."""
    talks = [small_talk(4, time_ns=START_NS + n * 1_000_000_000, isn=(1_000 + n * 7_000, n)) for n in range(3)]
    packets = encode([segment for talk in talks for segment in talk.segments])
    capture = write_capture(tmp_path / "in.pcap", pcap_bytes(packets, nanoseconds=True))
    keys = kafkatap.analyze(capture).exchanges
    for n, talk in enumerate(talks):
        chosen = keys.filter(pc.equal(keys["connection"], keys["connection"][4 * n]))
        made = extracted(capture, tmp_path / "out.pcapng", f"exchange == {chosen['exchange'][2]}", connections=True)
        assert made.packets == len(talk.segments)
        assert set(rows_of(tmp_path / "out.pcapng")) == set(chosen["exchange"].to_pylist())


def test_gaps_longer_than_sequence_numbers_reach(tmp_path: Path) -> None:
    """If much was left out between two exchanges, single segments between them keep the offsets known."""
    talk = KafkaTalk()
    talk.tcp.open()
    for number in range(40):
        talk.exchange(METADATA, 1, number, ControllerId=1)
        talk.tcp.wait(300_000_000)
        talk.tcp.skip(0, 100 << 20)
        talk.tcp.skip(1, 70 << 20)
    capture = write_capture(tmp_path / "in.pcap", pcap_bytes(encode(talk.segments)))
    keys = kafkatap.analyze(capture).exchanges["exchange"].to_pylist()
    assert len(keys) == 40
    filter = f"exchange in ({keys[0]}, {keys[-1]})"
    made = extracted(capture, tmp_path / "out.pcapng", filter)
    assert_same_rows(capture, tmp_path / "out.pcapng", filter)
    assert made.whole == []
    assert made.packets < len(talk.segments) * 2 // 3
