"""Packets that were captured twice: in one capture, in several, at one host or at two. They count once.

Rows are those of the plain capture, retransmissions stay retransmissions, and the number of duplicates is exact.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.support import copies
from tests.support.captures import ETHERNET, SLL2, Packet, pcap_bytes, read_capture, write_capture
from tests.support.tcp import ACK, RST, START_NS, Segment, encode, merge
from tests.wire.harness import Decoded, check, decode_files, decode_packets
from tests.wire.kafkatalk import CLIENT, MS, KafkaTalk, add_exchanges, assert_exchanges, small_talk

SAMPLE = Path(__file__).parents[2] / "samples" / "apache-4.3.pcap.zst"
SECOND = 1_000 * MS


@cache
def real_packets() -> list[Packet]:
    """A part of a sample with several connections, some of them closed and reset, and retransmissions."""
    return read_capture(SAMPLE).packets[:2_400]


@cache
def plain() -> Decoded:
    return decode_packets(real_packets())


def bare(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Rows without the numbers of packets, and without how many were duplicates. A request in flight waits until the
    capture ends, which the last duplicate moves."""
    left_out = ("first_packet", "closed_packet", "packet_first", "packet_last", "duplicates")
    kept = ({n: v for n, v in row.items() if not n.endswith(left_out)} for row in rows)
    return sorted((row | {"waited_ns": None} if row.get("outcome") == "in_flight" else row for row in kept), key=repr)


def assert_once(got: Decoded, wanted: Decoded, duplicates: int) -> None:
    """The rows of `wanted`, and so many duplicates."""
    assert bare(got.exchanges) == bare(wanted.exchanges)
    assert bare(got.connections) == bare(wanted.connections)
    assert got.ledger["packets"]["duplicate"] == duplicates
    assert sum(row["client_duplicates"] + row["broker_duplicates"] for row in got.connections) == duplicates
    assert got.ledger["payload bytes"]["retransmitted"] == wanted.ledger["payload bytes"]["retransmitted"]
    for section in ("packets", "payload bytes"):
        parts = dict(got.ledger[section])
        assert parts.pop("total") == sum(parts.values())


def write(folder: Path, name: str, packets: Sequence[Packet], link: int = ETHERNET) -> Path:
    return write_capture(folder / name, pcap_bytes(packets, link, nanoseconds=True))


# ---------------------------------------------------------------- in one capture

Copy = Callable[[Sequence[Packet]], list[Packet]]
WAYS: dict[str, Copy] = {
    "at once": copies.twice,
    "50 µs later": lambda p: copies.twice(p, 50_000),
    "5 ms later": lambda p: copies.twice(p, 5 * MS),
    "eight, then their copies": lambda p: copies.in_bursts(p, 8),
    "blocks of interfaces": lambda p: copies.in_bursts(p, 500),
    "with a VLAN tag": lambda p: [q for x in p for q in (x, *copies.tagged([x]))],
    "behind a router": lambda p: [q for x in p for q in (x, *copies.routed([x]))],
    "cut up by a network card": lambda p: [q for x in p for q in (x, *copies.cut_up([x], 500))],
}


@pytest.mark.parametrize("way", WAYS)
def test_copies_in_one_capture(way: str) -> None:
    packets = WAYS[way](real_packets())
    assert plain().ledger["packets"]["duplicate"] == 0
    assert plain().ledger["payload bytes"]["retransmitted"] > 0
    assert_once(decode_packets(packets), plain(), len(packets) - len(real_packets()))


def test_segments_joined_after_their_parts() -> None:
    """A receiver with GRO: the interface has the parts, and a later one has them joined."""
    talk = small_talk(8, mss=60)
    parts = copies.with_timestamps(copies.with_ids(encode(talk.segments)))
    joined = copies.coalesce(parts)
    assert len(joined) < len(parts)
    packets = copies.by_time([*parts, *copies.later(joined, 10 * MS)])
    assert_once(check(packets), decode_packets(parts), len(joined))


@pytest.mark.parametrize("how", ["ids", "timestamps", "neither"])
def test_copies_by_what_packets_have(how: str) -> None:
    """IPv4 ids; IPv6 with TCP timestamps; or nothing but a time that is shorter than any retransmission takes."""
    ends = {"client": ("fd00::1", 40_000), "broker": ("fd00::2", 9_092)} if how == "timestamps" else {}
    packets = encode(small_talk(6, mss=90, step_ns=3 * MS, **ends).segments)
    if how != "neither":
        packets = copies.with_ids(packets) if how == "ids" else copies.with_timestamps(packets)
    whole = decode_packets(packets)
    assert_once(check(copies.twice(packets, MS - 1)), whole, len(packets))
    seen = decode_packets(copies.twice(packets, 2 * MS))
    if how == "neither":
        assert seen.ledger["payload bytes"]["duplicate"] == 0
        assert seen.ledger["payload bytes"]["retransmitted"] == whole.ledger["payload bytes"]["total"]
    else:
        assert_once(seen, whole, len(packets))


@pytest.mark.parametrize("marked", [copies.with_ids, copies.with_timestamps])
def test_retransmissions_among_copies(marked: Callable[[Sequence[Packet]], list[Packet]]) -> None:
    """A retransmission has an id and a timestamp of its own, and copies as well."""
    segments: list[Segment] = []
    for s in small_talk(8, mss=90).segments:
        segments.append(s)
        if s.payload and len(segments) % 3 == 0:
            segments.append(replace(s, time_ns=s.time_ns + 50_000))
    packets = marked([replace(p, time_ns=START_NS + n * 2 * MS) for n, p in enumerate(encode(segments))])
    once = decode_packets(packets)
    assert once.ledger["packets"]["duplicate"] == 0
    again = sum(row["client_retransmitted_packets"] + row["broker_retransmitted_packets"] for row in once.connections)
    assert again == len(segments) - len(small_talk(8, mss=90).segments) > 5
    assert_once(check(copies.twice(packets, 10_000)), once, len(packets))


@pytest.mark.parametrize("marked", [copies.with_ids, copies.with_timestamps])
def test_keep_alives_are_no_duplicates(marked: Callable[[Sequence[Packet]], list[Packet]]) -> None:
    segments: list[Segment] = []
    for s in small_talk(5).segments:
        segments.append(s)
        if s.payload:
            probe = replace(s, seq=(s.seq + len(s.payload) - 1) % 2**32, flags=ACK)
            segments += [replace(probe, payload=b"\0"), replace(probe, payload=b"")] * 2
    packets = marked([replace(p, time_ns=START_NS + n * MS) for n, p in enumerate(encode(segments))])
    seen = check(packets)
    assert seen.ledger["packets"]["duplicate"] == 0
    assert seen.connections[0]["client_retransmitted_packets"] == 0


def test_equal_resets_are_no_duplicates() -> None:
    """Linux answers each segment to a closed port by the same RST, without an id."""
    talk = small_talk(3)
    last = talk.segments[-1]
    resets = [replace(last, flags=RST, time_ns=last.time_ns + n * 10_000) for n in (1, 2, 3)]
    ids = copies.with_ids(encode(talk.segments))
    packets = [*ids, *encode(resets)]
    once = check(packets)
    assert once.ledger["packets"]["duplicate"] == 0
    twice = check(copies.by_time([*copies.twice(ids, 1_000), *encode(resets), *copies.later(encode(resets[:1]), 1)]))
    assert twice.ledger["packets"]["duplicate"] > len(ids)


def test_a_copy_with_other_numbers_of_a_window_is_none() -> None:
    """An acknowledgement repeated with another window opens it: nothing was captured twice."""
    talk = small_talk(4)
    packets = []
    for packet, segment in zip(copies.with_timestamps(encode(talk.segments)), talk.segments, strict=True):
        packets.append(packet)
        if segment.flags == ACK and not segment.payload:
            data = bytearray(packet.data)
            struct.pack_into("!H", data, 14 + 20 + 14, 12_345)
            packets.append(replace(packet, data=bytes(data)))
    assert check(packets).ledger["packets"]["duplicate"] == 0


# ---------------------------------------------------------------- in several captures


@pytest.mark.parametrize("block_size", [50_000, 1 << 20])
def test_the_same_file_twice(block_size: int, tmp_path: Path) -> None:
    paths = [write(tmp_path, name, real_packets()) for name in ("x.pcap", "x.pcap.gz", "y.pcap")]
    assert_once(decode_files(paths[:2], block_size=block_size), plain(), len(real_packets()))
    seen = decode_files(paths, block_size=block_size)
    assert_once(seen, plain(), 2 * len(real_packets()))
    assert [f.duplicates for f in seen.files] == [0, len(real_packets()), len(real_packets())]


def test_files_that_overlap(tmp_path: Path) -> None:
    """Two programs captured one after the other, and together for a while. Retransmissions count before and after."""
    packets = real_packets()
    third = len(packets) // 3
    paths = [write(tmp_path, "a.pcap", packets[: 2 * third]), write(tmp_path, "b.pcap", packets[third:])]
    seen = decode_files(paths)
    assert_once(seen, plain(), third)
    assert sum(f.duplicates for f in seen.files) == third


@pytest.mark.parametrize("skew_ns", [-2 * SECOND, -3 * MS, -20_000, 20_000, 3 * MS, 2 * SECOND])
def test_two_hosts_whose_clocks_differ(skew_ns: int, tmp_path: Path) -> None:
    """Each connection is seen at both hosts. Its times are those of the clock that is behind."""
    other = copies.elsewhere(real_packets(), skew_ns)
    paths = [write(tmp_path, "here.pcap", real_packets()), write(tmp_path, "there.pcap", other)]
    wanted = plain() if skew_ns > 0 else decode_packets(other)
    assert_once(decode_files(paths), wanted, len(other))


@pytest.mark.parametrize("skew_ns", [-3 * MS, 0, 3 * MS])
def test_segments_of_an_offloading_sender(skew_ns: int, tmp_path: Path) -> None:
    """One host sees segments of up to 64 KB, the other packet by packet. Many connections, both ways."""
    talks = [
        small_talk(12, client=("10.0.1.1", 2_000 + n), mss=1448, time_ns=START_NS + n * 1_300_777, acks=False)
        for n in range(4)
    ]
    small = copies.with_timestamps(copies.with_ids(encode(merge(*(t.segments for t in talks)))), tick_ns=SECOND)
    small = copies.cut_up(small, 40)
    large = copies.coalesce(small)
    assert len(large) < len(small) / 1.5
    path = (
        write(tmp_path, "sender.pcap", large),
        write(tmp_path, "receiver.pcap", copies.elsewhere(small, skew_ns, 30_000)),
    )
    seen = decode_files(path)
    assert seen.ledger["payload bytes"]["retransmitted"] == 0
    assert [row["outcome"] for row in seen.exchanges] == ["answered"] * 48
    first = len(large) if skew_ns >= 0 else len(small)
    assert seen.ledger["packets"]["tcp"] == first == sum(row["packets"] for row in seen.connections)
    assert len(seen.connections) == 4
    assert sum(row["client_gaps"] + row["broker_gaps"] for row in seen.connections) == 0


@pytest.mark.parametrize("seed", range(3))
def test_one_host_has_what_the_other_lost(seed: int, tmp_path: Path) -> None:
    """Both captures lost 5 % of their packets, but never the same one."""
    chance = random.Random(seed)
    packets = real_packets()
    gone = {n for n in range(len(packets)) if chance.random() < 0.1}
    first = {n for n in gone if chance.random() < 0.5}
    here = [p for n, p in enumerate(packets) if n not in first]
    there = copies.elsewhere([p for n, p in enumerate(packets) if n not in gone - first], 1_000)
    seen = decode_files([write(tmp_path, "here.pcap", here), write(tmp_path, "there.pcap", there)])
    names = ("client_ip", "client_port", "broker_port", "api_key", "correlation_id", "outcome", "errors")

    def known(decoded: Decoded) -> list[str]:
        return sorted(repr([row[name] for name in names]) for row in decoded.exchanges)

    assert known(seen) == known(plain())
    assert len(seen.connections) == len(plain().connections)
    assert seen.ledger["payload bytes"]["retransmitted"] <= plain().ledger["payload bytes"]["retransmitted"]
    assert sum(row["client_gap_bytes"] + row["broker_gap_bytes"] for row in seen.connections) == 0


@pytest.mark.parametrize("block_size", [5_000, 1 << 20])
def test_rotated_files_of_two_hosts(block_size: int, tmp_path: Path) -> None:
    """Each host's files are one capture point, and the order of arguments does not matter."""
    packets = real_packets()
    paths = []
    for host, part, size in (("a", packets, 500), ("b", copies.elsewhere(packets, 2_000), 700)):
        (tmp_path / host).mkdir(exist_ok=True)
        for n in range(0, len(part), size):
            paths.append(write(tmp_path / host, f"{n:05}.pcap", part[n : n + size]))
    random.Random(1).shuffle(paths)
    assert_once(decode_files(paths, block_size=block_size), plain(), len(packets))


def test_rotated_files_of_one_host_are_one_point(tmp_path: Path) -> None:
    """No packet of the next file counts as one of another point, even if times step back between both."""
    packets = real_packets()
    paths = [write(tmp_path, f"{n}.pcap", packets[n : n + 400]) for n in range(0, len(packets), 400)]
    seen = decode_files(paths)
    assert_once(seen, plain(), 0)


@pytest.mark.parametrize("late_ns", [300 * MS, 2 * SECOND])
def test_ports_reused_while_another_host_is_behind(late_ns: int, tmp_path: Path) -> None:
    """The copy of a whole connection comes after the next one on its ports began."""
    talks = [small_talk(3, client=("10.0.0.9", 41_000), time_ns=START_NS + 4 * SECOND)]
    for n in range(2):
        talk = KafkaTalk(time_ns=START_NS + n * 100 * MS, step_ns=MS, isn=(10_000_000 + n * 10**9, 5_000 + n * 10**9))
        talk.tcp.open()
        add_exchanges(talk, 5, first=n * 100)
        talk.tcp.close()
        talks.append(talk)
    packets = copies.with_ids(encode(merge(*(t.segments for t in talks))))
    paths = [write(tmp_path, "here.pcap", packets), write(tmp_path, "behind.pcap", copies.elsewhere(packets, late_ns))]
    assert_once(decode_files(paths), decode_packets(packets), len(packets))


def test_one_direction_at_each_host(tmp_path: Path) -> None:
    """Captures of one direction each have nothing twice, retransmissions neither."""
    talk = KafkaTalk(step_ns=3 * MS, mss=90)
    talk.tcp.open()
    add_exchanges(talk, 6)
    talk.tcp.close()
    segments = [s for s in talk.segments for _ in range(2 if s.payload and s.source[1] == 9_092 else 1)]
    packets = copies.with_ids([replace(p, time_ns=START_NS + n * MS) for n, p in enumerate(encode(segments))])
    ways: list[list[Packet]] = [[], []]
    for packet, segment in zip(packets, segments, strict=True):
        ways[segment.source == CLIENT].append(packet)
    paths = [write(tmp_path, f"{n}.pcap", way) for n, way in enumerate(ways)]
    assert_once(decode_files(paths), decode_packets(packets), 0)


def test_cooked_and_plain_captures_of_one_host(tmp_path: Path) -> None:
    """`-i any` and `-i eth0` at the same time."""
    talk = small_talk(9, mss=200)
    paths = [
        write(tmp_path, "any.pcap", encode(talk.segments, SLL2), SLL2),
        write(tmp_path, "eth0.pcap", copies.elsewhere(encode(talk.segments), 7_000)),
    ]
    seen = decode_files(paths)
    assert_exchanges(seen, talk.wanted)
    assert_once(seen, decode_packets(encode(talk.segments)), len(talk.segments))


def test_a_whole_copy_of_a_cut_packet(tmp_path: Path) -> None:
    """`tcpdump -s 96` began first, and its clock is some µs ahead."""
    cut = [replace(p, data=p.data[:96], original_length=p.wire_length) for p in copies.later(real_packets(), -5_000)]
    short = tmp_path / "short.pcap"
    short.write_bytes(pcap_bytes(cut, nanoseconds=True, snap_length=96))
    seen = decode_files([short, write(tmp_path, "whole.pcap", real_packets())])
    assert_once(seen, plain(), len(cut))
