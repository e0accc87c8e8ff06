"""Packets that go to chunks in one pass make the same chunks, row by row, as packets that go through all the tables.

So do the counts of packets, the rows of connections, and the report on the capture, whatever the bytes, the block size
and the sizes of the tables.
"""

from __future__ import annotations

import os
import random
from dataclasses import replace
from pathlib import Path

import pytest

from kafkatap.reassembly.dtypes import Bounds
from tests.support.captures import (
    ETHERNET,
    IPV4,
    NULL,
    RAW,
    SLL2,
    Interface,
    Packet,
    every_form,
    pcap_bytes,
    pcapng_bytes,
    write_capture,
)
from tests.support.sweeps import seeds
from tests.support.tcp import ACK, FIN, PSH, START_NS, SYN, Segment, TcpConversation, encode, lose, merge, shake
from tests.wire import mutations
from tests.wire.kafkatalk import small_talk
from tests.wire.test_measures import captured, random_talk
from tests.wire.two_paths import CONNECTION_FIELDS, assert_same_streams

ROUNDS = int(os.environ.get("KAFKATAP_FUZZ", "1"))
SAMPLES = Path(__file__).resolve().parents[2] / "samples"


@pytest.mark.parametrize("name", sorted(p.name for p in SAMPLES.glob("*.pcap*")))
def test_samples(name: str) -> None:
    for block_size, size in ((1 << 20, 0), (40_000, 3)):
        assert_same_streams(SAMPLES / name, block_size, size)


@pytest.mark.parametrize(
    "name",
    ["apache-4.3-broker1-s128.pcap.zst", "apache-4.3-broker1-any.pcap.zst", "diverse.pcap", "apache-2.8.pcap.zst"],
)
def test_long_recordings(corpus: Path, name: str) -> None:
    """Snap length, two interfaces at once (each packet twice), several clients."""
    got, _ = assert_same_streams(corpus / "captures" / name, 1 << 22)
    assert len(got.chunks) > 10


@pytest.mark.parametrize("seed", seeds(10, 3))
def test_reports_of_duplicates(seed: int, tmp_path: Path) -> None:
    """Segments with SACK blocks that bring new bytes, or acknowledge some, beside retransmissions."""
    rng = random.Random(seed)
    assert_same_streams(captured(tmp_path / "x.pcap", random_talk(rng, 120)))


@pytest.mark.parametrize("link", [ETHERNET, SLL2, NULL, RAW, IPV4])
def test_forms_and_link_layers(link: int, tmp_path: Path) -> None:
    packets = encode(small_talk(6, mss=100).segments, link)
    for name, data in every_form(packets, link).items():
        path = write_capture(tmp_path / name, data)
        for block_size in (1, 97, 5_000):
            got, _ = assert_same_streams(path, block_size)
            assert got.counts["tcp"] == len(packets)


@pytest.mark.parametrize("order", "<>")
def test_interfaces_of_different_link_types_and_units(order: str, tmp_path: Path) -> None:
    """Of one file, with new sections in between, more interfaces than the table has room for, and drops."""
    talk = small_talk(8, mss=100).segments
    links = (ETHERNET, SLL2, RAW, NULL)
    packets = [replace(encode([s], links[n % 4])[0], interface=n % 4) for n, s in enumerate(talk)]
    interfaces = [Interface(links[n % 4], (6, 9, 0x80 | 20, 3)[n % 4], drops=n) for n in range(40)]
    half = len(packets) // 2
    data = pcapng_bytes(packets[:half], interfaces, order=order)
    data += pcapng_bytes(packets[half:], interfaces[:4], order=">" if order == "<" else "<")
    path = write_capture(tmp_path / "x.pcapng", data)
    for block_size in (1, 300, 1 << 20):
        got, _ = assert_same_streams(path, block_size)
        assert got.counts["tcp"] == len(packets)
        assert got.report.drops == sum(range(40)) + 6
        assert len(got.report.link_types) == 4


def test_captures_that_were_joined(tmp_path: Path) -> None:
    packets = encode(small_talk(6, mss=100).segments)
    for options in ({}, {"nanoseconds": True}, {"modified": True}):
        data = pcap_bytes(packets[:9], **options) + pcap_bytes(packets[9:], **options)  # type: ignore[arg-type]
        got, _ = assert_same_streams(write_capture(tmp_path / "x.pcap", data), 60)
        assert got.packets == len(packets)


def many_talks(chance: random.Random, count: int, size: int = 3_000) -> list[Segment]:
    """Connections at the same time: with and without an end, with reused ports, on a bad network."""
    talks = []
    for n in range(count):
        client = (f"10.{n % 3}.0.{1 + n % 7}", 40_000 + n // 2)
        talk = TcpConversation(
            client, ("10.9.0.1", 9_092), time_ns=START_NS + chance.randrange(10**9), step_ns=chance.randrange(1, 10**7),
            isn=(chance.getrandbits(32), chance.getrandbits(32)), mss=chance.choice((50, 400)),
        )  # fmt: skip
        if chance.random() < 0.7:
            talk.open()
        for _ in range(chance.randrange(6)):
            talk.send(chance.randrange(2), chance.randbytes(chance.randrange(1, size)))
        if chance.random() < 0.6:
            talk.close()
        segments = shake(talk.segments, chance)
        talks.append(lose(segments, *chance.sample(range(len(segments)), len(segments) // 20)) if segments else [])
    return merge(*talks)


@pytest.mark.parametrize("seed", seeds(3, 1))
def test_many_connections_in_small_tables(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    packets = encode(many_talks(chance, 60))
    path = write_capture(tmp_path / "x.pcap", pcap_bytes(packets, nanoseconds=True))
    small = Bounds(closed=3, syns=2, idle=9, held_bytes=2_000, held_segments=9)
    for block_size, size, bounds in ((1 << 20, 1, None), (2_000, 2, None), (20_000, 1, small), (1, 0, small)):
        got, _ = assert_same_streams(path, block_size, size, bounds)
        assert len(got.ended) >= 50


def test_a_flow_that_another_one_displaced_is_found(tmp_path: Path) -> None:
    """More flows at the same time than the table of recent ones has places."""
    broker = ("10.9.0.1", 9_092)
    segments = [
        Segment(START_NS + n, (f"10.0.{n % 5_000 // 250}.{n % 250}", 40_000), broker, n // 5_000 * 5, 0, ACK, b"12345")
        for n in range(15_000)
    ]
    path = write_capture(tmp_path / "x.pcap", pcap_bytes(encode(segments), nanoseconds=True))
    got, _ = assert_same_streams(path)
    assert len(got.chunks) == 5_000
    assert {len(chunks) for chunks in got.chunks.values()} == {5}  # START, 3 DATA, END


def test_times_at_the_epoch(tmp_path: Path) -> None:
    """A close at time 0 counts as no close, so the next segment closes the connection again."""
    c, b = ("10.0.0.1", 40_000), ("10.0.0.2", 9_092)
    both = [(c, b, 100, 500), (b, c, 500, 100)]
    segments = [Segment(0, *ends[:2], ends[2], ends[3], ACK | flags) for flags in (0, FIN) for ends in both]
    segments += [Segment(9, *both[0][:2], 101, 501, ACK), Segment(10, *both[1][:2], 501, 101, ACK)]
    path = write_capture(tmp_path / "x.pcap", pcap_bytes(encode(segments), nanoseconds=True))
    got, _ = assert_same_streams(path)
    (ended,) = got.ended.values()
    assert dict(zip(CONNECTION_FIELDS, ended[0], strict=True))["closed_at"] == 9


@pytest.mark.parametrize("seed", seeds(3, 1))
def test_captures_of_any_bytes(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    for data in mutations.captures(seed + 50, 60 * ROUNDS):
        path = write_capture(tmp_path / "x", data)
        assert_same_streams(path, chance.choice((1, 100, 999, 1 << 20)), chance.choice((0, 1, 5)))


@pytest.mark.parametrize("seed", seeds(3, 1))
def test_packets_of_any_bytes(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    for kind in (mutations.packets, mutations.payloads):
        for packets in kind(seed + 50, 40 * ROUNDS):
            shaken: list[Packet] = [p if chance.random() < 0.9 else chance.choice(packets) for p in packets]
            path = write_capture(tmp_path / "x", pcap_bytes(shaken, nanoseconds=True))
            assert_same_streams(path, chance.choice((1, 999, 1 << 20)), chance.choice((0, 1, 5)))


@pytest.mark.parametrize("seed", seeds(3, 1))
def test_flags_and_numbers_of_any_kind(seed: int, tmp_path: Path) -> None:
    """Few ends, few sequence numbers: segments that come near to the usual kind, and differ in one thing."""
    chance = random.Random(seed)
    ends = [("10.0.0.1", 40_000), ("10.0.0.2", 9_092), ("10.0.0.3", 40_000)]
    usual = (ACK, ACK, ACK | PSH, ACK | PSH, ACK | 0xC0, SYN, SYN | ACK, ACK | FIN, 4, ACK | 4, 0, FIN, PSH)
    for _ in range(30 * ROUNDS):
        time, following = START_NS, {}
        segments = []
        for _ in range(chance.choice((20, 200))):
            source, target = chance.sample(ends[: chance.choice((2, 2, 3))], 2)
            time += chance.choice((0, 1, 1_000, 10**8, -500, 6 * 10**9)) if chance.random() < 0.3 else 1_000
            seq = following.get((source, target), 1_000)
            if chance.random() < 0.2:
                seq += chance.choice((-10, -1, 1, 10, 5_000, 2**31, 2**30 + 7))
            flags = ACK if chance.random() < 0.8 else chance.choice(usual)
            data = chance.randbytes(chance.choice((0, 0, 1, 10, 10)))
            ack = following.get((target, source), 1_000) + chance.choice((0, 0, 0, 20, -10, 2**31))
            segments.append(Segment(time, source, target, seq % 2**32, ack % 2**32, flags, data))
            following[source, target] = (seq + len(data) + (flags & SYN > 0)) % 2**32
        path = write_capture(tmp_path / "x", pcap_bytes(encode(segments), nanoseconds=True))
        assert_same_streams(path, chance.choice((100, 1 << 20)), chance.choice((0, 2)))
