"""The rows of selected exchanges are the same in the extracted capture as in the original."""

from __future__ import annotations

import random
from functools import cache
from itertools import pairwise
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
from tests.support.tcp import START_NS, encode, merge
from tests.wire.kafkatalk import API_VERSIONS, METADATA, KafkaTalk, request, response, small_talk

SECOND = 1_000_000_000

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


def copied(path: Path, *talks: KafkaTalk, select: int) -> set[int]:
    """The exchanges, by correlation id, that are copied with a selected one. No connection is copied whole."""
    capture = write_capture(path / "in.pcap", pcap_bytes(encode(merge(*(talk.segments for talk in talks)))))
    made = extracted(capture, path / "out.pcapng", f"correlation_id == {select}")
    assert_same_rows(capture, path / "out.pcapng", f"correlation_id == {select}")
    assert (made.exchanges, made.whole) == (1, [])
    found = rows_of(path / "out.pcapng").values()
    assert made.copied == len(found)
    return {row["correlation_id"] for row in found}


def opened() -> KafkaTalk:
    """A connection with an opening, exchange 0, and then 1 to 3."""
    talk = KafkaTalk()
    talk.tcp.open()
    for number in range(4):
        talk.exchange(METADATA if number else API_VERSIONS, 1 if number else 0, number)
        talk.tcp.wait(SECOND)
    return talk


def test_messages_that_were_under_way_are_copied_and_the_ones_before_them(tmp_path: Path) -> None:
    """Of 11 to 15, which were in flight together, and 16."""
    talk = opened()
    asked = []
    for number in range(11, 16):
        asked.append(talk.request(METADATA, 1, number))
        talk.tcp.wait(1_000_000)
        if number == 12:
            talk.respond(asked[0])
    for one in asked[1:]:
        talk.respond(one)
    talk.tcp.wait(SECOND)
    talk.exchange(METADATA, 1, 16)
    # 12 and 13 are answered meanwhile, and 11 before 12. 15 was sent meanwhile. 13 was sent before 14.
    assert copied(tmp_path, talk, select=14) == {0, 11, 12, 13, 14, 15}
    # The message before its own ones.
    assert copied(tmp_path, talk, select=16) == {0, 15, 16}
    assert copied(tmp_path, talk, select=2) == {0, 1, 2}


def test_exchanges_whose_wait_is_in_that_of_a_later_one_are_copied(tmp_path: Path) -> None:
    """Each is sent before the one ahead is answered, after that one's was."""
    talk = opened()
    asked = talk.request(METADATA, 1, 11)
    for number in range(12, 16):
        talk.tcp.wait(10_000_000)
        following = talk.request(METADATA, 1, number)
        talk.tcp.wait(10_000_000)
        talk.respond(asked)
        asked = following
    talk.respond(asked)
    assert copied(tmp_path, talk, select=15) == {0, 11, 12, 13, 14, 15}
    assert copied(tmp_path, talk, select=12) == {0, 3, 11, 12, 13}


def test_a_throttled_response_is_copied_with_the_requests_that_it_delays(tmp_path: Path) -> None:
    """11 mutes the connection for 2 s: 14 is read after that, and 17 at once. 15 mutes it for a shorter time."""
    talk = opened()
    for number in range(11, 18):
        asked = talk.request(METADATA, 3, number)
        talk.tcp.wait(1_700_000_000 if number == 14 else 0)
        talk.respond(asked, ThrottleTimeMs={11: 2_000, 15: 50}.get(number, 0))
        talk.tcp.wait(100_000_000)
    assert copied(tmp_path, talk, select=14) == {0, 11, 13, 14}
    assert copied(tmp_path, talk, select=17) == {0, 16, 17}


@pytest.mark.parametrize("end", [0, 1], ids=["requests", "responses"])
@pytest.mark.parametrize(("select", "last"), [(100, 117), (101, 118), (139, 139)])
def test_messages_that_begin_within_segments_are_copied_with_those_before(
    select: int, last: int, end: int, tmp_path: Path
) -> None:
    """Each segment of one end has the rest of a message and the beginning of the next one. MOST_FORWARD of those after
    it follow, from the one that was sent meanwhile."""
    talk, numbers = opened(), range(100, 140)
    messages = [[make(METADATA, 1, number) for number in numbers] for make in (request, response)]
    data = b"".join(messages[end])
    begins = [6 + sum(map(len, messages[end][:n])) for n in range(len(numbers))]
    cuts = [0, *begins[1:], len(data)] if end == 0 else [0, *begins, len(data)]
    for number, (begin, until) in enumerate(pairwise(cuts)):
        if end == 1 and number < len(numbers):
            talk.tcp.send(0, messages[0][number])
        talk.tcp.send(end, data[begin:until])
        if end == 0:
            talk.tcp.send(1, messages[1][number])
        talk.tcp.wait(100_000_000)
    assert copied(tmp_path, talk, select=select) == {0, *([3] if select < 102 else []), *range(100, last + 1)}
