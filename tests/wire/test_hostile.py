"""Whatever the bytes are: no crash, no hang, no endless memory, and a ledger that adds up (the harness sees to that).

KAFKATAP_FUZZ multiplies the rounds of the random tests (1 unless told). Bounds of time are many times what it takes.
"""

from __future__ import annotations

import os
import random
import struct
import time
from pathlib import Path

import numpy as np
import pytest

from kafkatap.engine.engine import Engine
from kafkatap.reassembly.scanner import HEADER_SIZE, Scanner
from tests.support.captures import ETHERNET, Packet, block, pcap_bytes, pcapng_bytes
from tests.support.sweeps import seeds
from tests.support.tcp import ACK, PSH, START_NS, SYN, Segment, encode, frame, request_frame, response_frame
from tests.wire import mutations
from tests.wire.harness import assert_same, decode_files, decode_packets
from tests.wire.kafkatalk import (
    HEARTBEAT,
    PRODUCE,
    KafkaTalk,
    add_exchanges,
    assert_exchanges,
    body,
    raw_request,
    small_talk,
)

ROUNDS = int(os.environ.get("KAFKATAP_FUZZ", "1"))
C, B = ("10.0.0.1", 40_000), ("10.0.0.2", 9_092)


@pytest.mark.parametrize("seed", seeds(4, 2))
def test_captures_of_any_bytes(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    for data in mutations.captures(seed, 60 * ROUNDS):
        path = tmp_path / "x"
        path.write_bytes(data)
        seen = decode_files([path], block_size=1 << 20)
        assert_same(decode_files([path], block_size=chance.choice((100, 999, 5_000))), seen)


@pytest.mark.parametrize("seed", seeds(4, 2))
def test_packets_of_any_bytes(seed: int) -> None:
    for packets in mutations.packets(seed, 60 * ROUNDS):
        assert_same(decode_packets(packets, runs=[3] * len(packets)), decode_packets(packets))


@pytest.mark.parametrize("seed", seeds(6, 2))
def test_payloads_of_any_bytes(seed: int) -> None:
    for packets in mutations.payloads(seed, 60 * ROUNDS):
        assert_same(decode_packets(packets, runs=[5] * len(packets)), decode_packets(packets))


@pytest.mark.parametrize("size", [-1, -(2**31), 0, 1, 3, 4, 7, 2**20 + 1, 2**30 + 1, 2**31 - 1])
@pytest.mark.parametrize("end", [0, 1])
@pytest.mark.parametrize("place", [0, 3])
def test_sizes_that_cannot_be(size: int, end: int, place: int) -> None:
    """At the start and in the middle, of either end; what comes after is found again where it can be."""
    talk = KafkaTalk()
    talk.tcp.open()
    add_exchanges(talk, place)
    before = list(talk.wanted)
    talk.tcp.send(end, struct.pack("!i", size) + bytes(range(80)))
    add_exchanges(talk, 6, 10)
    talk.tcp.close()
    seen = decode_packets(encode(talk.segments))
    assert_same(decode_packets(encode(talk.segments), runs=[1] * len(talk.segments)), seen)
    found = {x["correlation_id"] for x in seen.exchanges if x["outcome"] == "answered"}
    assert {row["correlation_id"] for row in before} <= found
    if place and not 0 <= size <= 2**20 + 1:
        assert len(found) >= place + 5


def engine_after(packets: list[Packet], block: int = 20_000) -> tuple[Engine, int]:
    """An engine that has taken all these packets, a block at a time, and how many rows it gave."""
    data = np.frombuffer(pcap_bytes(packets, nanoseconds=True), np.uint8).copy()
    scanner = Scanner(len(packets) + 1)
    count, _ = scanner.scan(data, scanner.start(data[:HEADER_SIZE].tobytes()), len(data))
    assert count == len(packets)
    engine = Engine()
    rows = 0
    for first in range(0, count, block):
        rows += sum(len(b.exchanges) for b in engine.take(data, scanner.packets, first, min(first + block, count)))
    rows += sum(len(b.exchanges) for b in engine.finish())
    for parts in engine.ledger().values():
        assert sum(parts.values()) == 2 * parts["total"]
    return engine, rows


def stream(data: bytes, mss: int, end: int = 0, seq: int = 1_001, step: int = 1_000) -> list[Segment]:
    """One end's bytes without anything from the other."""
    ends = (C, B) if end == 0 else (B, C)
    return [
        Segment(START_NS + n * step, *ends, (seq + n * mss) % 2**32, 0, ACK, data[n * mss : (n + 1) * mss])
        for n in range(-(-len(data) // mss))
    ]


@pytest.mark.parametrize("size", [2**31 - 1, 2**30, 100 << 20])
def test_a_claim_of_gigabytes_takes_no_memory(size: int) -> None:
    """Memory grows with what comes, not with what is said to come."""
    talk = KafkaTalk()
    talk.tcp.open()
    head = struct.pack("!ihhih", size, 0, 3, 1, 3) + b"app"
    talk.tcp.client(head + body(PRODUCE, 3, 0, TopicData=[]) + bytes(200_000))
    talk.tcp.server(struct.pack("!ii", size, 1) + bytes(200_000))
    fresh = Engine()
    engine, _ = engine_after(encode(talk.segments))
    assert len(engine.dissector.pool) == len(fresh.dissector.pool)
    assert len(engine.assembler.pool) == len(fresh.assembler.pool)


@pytest.mark.parametrize("tiny", [bytes(4), frame(b"a"), frame(bytes(4)), frame(b"\0\0\0\0\0\0\0\0"), b"\xff" * 4])
@pytest.mark.parametrize("end", [0, 1])
@pytest.mark.parametrize("syn", [True, False])
def test_a_million_tiny_frames(tiny: bytes, end: int, syn: bool) -> None:
    talk = KafkaTalk(mss=64_000)
    talk.tcp.open()
    add_exchanges(talk, 3)
    talk.tcp.send(end, tiny * (8 * 1_000_000 // 8 // len(tiny)))
    add_exchanges(talk, 3, 10)
    engine_after(encode(talk.segments[0 if syn else 3 :], zero_length=True, pad=False))


def test_tiny_sound_frames() -> None:
    """120,000 requests and their answers, packed as tightly as they can be."""
    count = 120_000
    talk = KafkaTalk(mss=60_000)
    talk.tcp.open()
    talk.tcp.client(b"".join(request_frame(22, 0, n, "a", b"\0\0\0\0\0\0") for n in range(1_000)))
    talk.tcp.server(b"".join(response_frame(n, b"\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0") for n in range(1_000)))
    for first in range(1_000, count, 1_000):
        talk.tcp.client(b"".join(request_frame(18, 0, n, "a") for n in range(first, first + 1_000)))
        talk.tcp.server(b"".join(response_frame(n, b"\0\0\0\0\0\0") for n in range(first, first + 1_000)))
    engine, rows = engine_after(encode(talk.segments))
    assert rows == count
    assert engine.ledger()["requests"]["answered"] == count
    assert len(engine.dissector.exchanges) <= 131_072


@pytest.mark.parametrize("begun", [b"", b"\0", b"\0\0\0\x20", b"\0\0\0\x20\0\3\0\4\0\0\0\1\0\3app\0\0"])
def test_many_half_open_connections(begun: bytes) -> None:
    """20,000 that never say more than this; one that works among them."""
    segments = []
    for n in range(20_000):
        end = (f"10.{n >> 14}.{n >> 7 & 127}.{n & 127}", 1_024 + n)
        segments.append(Segment(START_NS + n * 10_000, end, B, 1_000, 0, SYN))
        if begun:
            segments.append(Segment(START_NS + n * 10_000 + 1, end, B, 1_001, 0, ACK | PSH, begun))
    talk = small_talk(4, client=("10.9.0.1", 999))
    engine, rows = engine_after(encode(segments + talk.segments), 5_000)
    assert rows == 4
    assert len(engine.connections) == 20_001


@pytest.mark.parametrize("answers", [0, 50_000])
def test_many_pending_requests(answers: int) -> None:
    count = 50_000
    talk = KafkaTalk(mss=30_000)
    talk.tcp.open()
    talk.tcp.client(b"".join(raw_request(HEARTBEAT, 0, n, body(HEARTBEAT, 0, 0)) for n in range(count)))
    talk.tcp.server(b"".join(response_frame(n, b"\0\0") for n in range(answers)))
    engine, rows = engine_after(encode(talk.segments))
    assert rows == count
    assert engine.ledger()["requests"]["answered"] == answers


def test_many_pending_requests_and_answers_to_none() -> None:
    talk = KafkaTalk(mss=30_000)
    talk.tcp.open()
    talk.tcp.client(b"".join(raw_request(HEARTBEAT, 0, n, body(HEARTBEAT, 0, 0)) for n in range(50_000)))
    talk.tcp.server(b"".join(response_frame(-9 - n, b"\0\0") for n in range(50_000)))
    engine, rows = engine_after(encode(talk.segments))
    assert rows == 100_000
    assert engine.ledger()["responses"]["orphan"] == 50_000


def test_interleaved_gaps_on_many_connections(tmp_path: Path) -> None:
    """Every second segment lost on 500 connections at once."""
    segments = []
    for n in range(500):
        talk = small_talk(6, client=("10.0.0.9", 1_000 + n), mss=40, time_ns=START_NS + n)
        segments += talk.segments[::2]
    segments.sort(key=lambda s: s.time_ns)
    engine_after(encode(segments))


@pytest.mark.parametrize("mss", [1, 10])
def test_a_search_through_tiny_segments(mss: int) -> None:
    """Bytes in which a frame might start anywhere, a few at a time."""
    for data in (random.Random(3).randbytes(100_000), bytes(100_000), b"\0\0\0\x10\0\3\0\4" * 12_000):
        engine_after(encode(stream(data, mss)))


def test_a_block_that_names_an_interface_that_is_not(tmp_path: Path) -> None:
    packets = encode(small_talk(3).segments)
    data = pcapng_bytes(packets[:5])
    bad = block(6, struct.pack("<IIIII", 9, 0, 0, 4, 4) + b"abcd")
    path = tmp_path / "x"
    path.write_bytes(data + bad + data)
    seen = decode_files([path])
    assert_same(seen, decode_packets(packets[:5]))
    assert seen.files[0].damage is not None


def test_a_record_longer_than_its_block(tmp_path: Path) -> None:
    packets = encode(small_talk(3).segments)
    for captured in (5, 100, 262_144, 0xFFFFFFFF):
        bad = block(6, struct.pack("<IIIII", 0, 0, 0, captured, 4) + b"abcd")
        path = tmp_path / "x"
        path.write_bytes(pcapng_bytes(packets[:5]) + bad)
        seen = decode_files([path])
        assert_same(seen, decode_packets(packets[:5]))
        assert seen.files[0].damage is not None


def test_hostile_texts_go_through_unharmed() -> None:
    for text in ("\x1b[31mred", "<script>", "=1+1", "x\0y", "a\nb", "\u202e", "x" * 30_000):
        talk = KafkaTalk(client_id=text)
        talk.tcp.open()
        add_exchanges(talk, 3)
        talk.tcp.close()
        seen = decode_packets(encode(talk.segments))
        if text.isprintable() or text == "\u202e":
            assert_exchanges(seen, talk.wanted)


def test_an_empty_capture() -> None:
    seen = decode_packets([])
    assert seen.exchanges == seen.connections == []
    assert decode_packets([Packet(0, b"", 0)] * 3, ETHERNET).packets == 3


def test_sync_that_is_lost_again_and_again() -> None:
    """Behind each request a header that looks like one more, but whose size cannot be: every time what is left of the
    segment is searched anew. That ends, and takes no more memory than there is."""
    request = struct.pack("!ihhihci", 15, 3, 0, 7, 1, b"c", 0)
    segment = b"\xff" * 3 + (request + struct.pack("!ihhihc", 2**31 - 1, 3, 0, 8, 1, b"c")) * 1_900
    packets = encode([Segment(START_NS + n, (C[0], 1_024 + n), B, 1, 1, ACK, segment) for n in range(8)])
    engine = Engine()
    room = len(engine.dissector.pool)
    seen = decode_packets(packets, engine=engine)
    assert len(engine.dissector.pool) == room
    assert 8 <= len(seen.exchanges) <= 100, "a few searches a segment, not a thousand"
    assert_same(decode_packets(packets, runs=[1] * 8, all_results=False), decode_packets(packets, all_results=False))


def test_more_packets_at_once_than_are_read_at_once() -> None:
    """Blocks may hold any number of packets."""
    segments = [Segment(START_NS + n, C, B, n, 1, ACK, b"x") for n in range(70_000)]
    packets = encode(segments)
    assert_same(decode_packets(packets), decode_packets(packets, runs=[35_000] * 2))


def test_many_candidates_in_segments_of_a_byte() -> None:
    """Each may be a request that is far from whole, whose list of names is made of more of them."""
    unit = struct.pack("!ihhihcih", 600_000, 3, 0, 7, 1, b"c", 100_000, 19)
    data = b"\xff" * 3 + unit * 2_000
    packets = encode([Segment(START_NS + n, C, B, n, 1, ACK, data[n : n + 1]) for n in range(len(data))])
    started = time.process_time()
    assert decode_packets(packets).exchanges == []
    assert time.process_time() - started < 4  # it takes half a second
