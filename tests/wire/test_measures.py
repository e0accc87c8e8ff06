"""Measures of TCP equal those of `slow_measures`, whatever the traffic, the block size and the form of the capture."""

from __future__ import annotations

import os
import random
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kafkatap.captures.capture_reader import CaptureReader
from kafkatap.engine.assembly import Assembly
from kafkatap.engine.engine import Engine
from kafkatap.reassembly.assembler import Assembler
from kafkatap.reassembly.dtypes import NOT_SCALED, SHIFT_UNKNOWN
from kafkatap.reports.batch import ADDRESS_COLUMNS, STRING_COLUMNS
from kafkatap.run import Run
from tests.support.captures import ETHERNET, Packet, pcap_bytes, write_capture
from tests.support.sweeps import seeds
from tests.support.tcp import START_NS
from tests.wire import mutations
from tests.wire.slow_measures import ACK, SYN, Conversation, Options, Sent

ROUNDS = int(os.environ.get("KAFKATAP_FUZZ", "1"))
ENDS = (b"\x0a\x00\x00\x01", 40_000), (b"\x0a\x00\x00\x02", 9_092)
MS = 1_000_000


def option_bytes(options: Options) -> bytes:
    """The options of a SYN."""
    made = b"" if options.mss is None else struct.pack("!BBH", 2, 4, options.mss)
    made += b"\x04\x02" if options.sack else b""
    made += struct.pack("!BBII", 8, 10, 1, 0) if options.timestamps else b""
    made += b"" if options.scale is None else b"\x01" + bytes((3, 3, options.scale))
    return made + bytes(-len(made) % 4)


def packet_of(number: int, s: Sent, isn: tuple[int, int]) -> Packet:
    """The captured packet of a segment. Its IPv4 id and TCP timestamps are its own."""
    source, target = ENDS[s.end], ENDS[1 - s.end]
    own = (isn[s.end] + (0 if s.flags & SYN else 1 + s.offset)) % 2**32
    acked = (isn[1 - s.end] + 1 + s.acked) % 2**32 if s.flags & ACK else 0
    if s.options is None:
        options = b"\x01\x01" + struct.pack("!BBII", 8, 10, number + 1, 7)
        if s.got_twice or number % 3 == 0:  # a block below what is acknowledged, or above it
            left = acked - 5 if s.got_twice else acked + 5
            options += b"\x01\x01" + struct.pack("!BBII", 5, 10, left % 2**32, (left + 3) % 2**32)
    else:
        options = option_bytes(s.options)
    header = 20 + len(options)
    tcp = struct.pack("!HHIIBBHHH", source[1], target[1], own, acked, header << 2, s.flags, s.window, 0, 0)
    ip = struct.pack("!BBHHHBBH", 0x45, 0, 20 + header + s.length, number * 97 % 65_536, 0, 64, 6, 0)
    ethernet = bytes(12) + b"\x08\x00"
    data = ethernet + ip + source[0] + target[0] + tcp + options + bytes(s.length)
    return Packet(s.time_ns, data)


def random_talk(rng: random.Random, count: int) -> list[Sent]:
    """Segments of two ends that send, lose, repeat, probe and close their windows at random."""
    now, made = START_NS, []
    offered = [
        Options(rng.choice((None, 536, 1460)), rng.choice((None, 0, 3, 14)), rng.random() < 0.8, rng.random() < 0.8)
        for _ in range(2)
    ]
    lag = [rng.choice((10_000, 400_000, 20 * MS)) for _ in range(2)]
    if rng.random() < 0.8:
        made.append(Sent(now, 0, 0, 0, 0, 64_000, SYN, offered[0]))
        made.append(Sent(now + lag[1], 1, 0, 0, 0, 65_535, SYN | ACK, offered[1]))
        now += lag[0] + lag[1]
        made.append(Sent(now, 0, 0, 0, 0, 500))
    else:
        made += [Sent(now, 0, 0, 0, 0, 500), Sent(now, 1, 0, 0, 0, 500)]
    following, acked, window = [0, 0], [0, 0], [500, 500]
    missing: list[list[tuple[int, int]]] = [[], []]
    captured: list[list[tuple[int, int]]] = [[], []]
    for _ in range(count):
        now += rng.choice((1_000, 20_000, 150_000, 201_000, 900_000, 30 * MS, 250 * MS))
        end = rng.randrange(2)
        seen = max([0, *(o + n for o, n in captured[1 - end])])
        acked[end] = rng.choice((acked[end], seen, rng.randint(acked[end], seen) if seen >= acked[end] else acked[end]))
        if rng.random() < 0.3:
            window[end] = rng.choice((0, 0, 1, 20, 500, 3_000, 65_535))
        what = rng.random()
        offset, length = following[end], 0
        if what < 0.45:
            length = rng.choice((1, 100, 1448, 3000))
            following[end] += length
        elif what < 0.55 and captured[end]:  # sent, and lost before the capture point
            lost = rng.choice((100, 1448))
            missing[end].append((offset, lost))
            offset, length = offset + lost, rng.choice((50, 1448))
            following[end] += lost + length
        elif what < 0.7 and missing[end]:
            offset, length = missing[end].pop(rng.randrange(len(missing[end])))
        elif what < 0.8 and captured[end]:  # again, whole or in part
            offset, length = rng.choice(captured[end][-5:])
            length = rng.choice((length, max(1, length // 2)))
        elif what < 0.84 and captured[end]:  # a keep-alive
            offset, length = following[end] - 1, 1
        if length:
            captured[end].append((offset, length))
        made.append(Sent(now, end, offset, length, acked[end], window[end], got_twice=rng.random() < 0.1))
    return made


class _Found:
    """What a run measured: MEASURE rows of one connection."""

    def __init__(self, path: Path, block_size: int, in_one_pass: bool) -> None:
        assembly = Assembly(Assembler(connections=1, chunks=16))
        assembly.assembler.measure()
        reader = CaptureReader(str(path), block_size)
        self.measures: Any = None
        while reader.next_block() if in_one_pass else reader.fill():
            if in_one_pass:
                parts = assembly.read(reader.buffer, reader.assemble)
            else:
                parts = assembly.feed(reader.buffer, reader.packets, reader.position, reader.count)
                reader.position = reader.count
            for part in parts:
                self._add(part)
        reader.close()
        for part in assembly.end_all():
            self._add(part)

    def _add(self, part: Any) -> None:
        if len(part.ended):
            assert self.measures is None, "one connection"
            self.measures, self.directions = part.ended_measures, part.ended_directions
            self.last = int(part.ended_rows["last"][0])


def check(path: Path, segments: list[Sent], block_size: int, in_one_pass: bool) -> _Found:
    talk, found = Conversation(segments), _Found(path, block_size, in_one_pass)
    for end in range(2):
        expected, row, direction = talk.measured(end), found.measures[end], found.directions[end]
        assert (row["rtt_count"], row["rtt_sum"]) == (len(expected.rtts), sum(expected.rtts))
        assert (row["rtt_min"], row["rtt_max"]) == (min(expected.rtts, default=0), max(expected.rtts, default=0))
        assert row["retransmission_wait_sum"] == sum(expected.waits)
        assert row["retransmission_wait_max"] == max(expected.waits, default=0)
        assert row["retransmissions"] == len(expected.waits)
        assert row["retransmission_timeouts"] == expected.timeouts
        assert row["in_flight_max"] == expected.in_flight_max
        assert row["window_max"] == expected.window_max
        still_closed = found.last - row["zero_since"] if row["zero_since"] else 0
        assert row["zero_window_ns"] + still_closed == expected.zero_window_ns
        options = talk.options.get(end)
        if options is None:
            assert direction["shift"] == SHIFT_UNKNOWN
            continue
        assert direction["shift"] == (NOT_SCALED if options.scale is None else options.scale)
        assert direction["mss"] == (options.mss or 0)
        assert (direction["sack_permitted"], direction["timestamps"]) == (options.sack, options.timestamps)
    return found


def captured(path: Path, segments: list[Sent], isn: tuple[int, int] = (7, 2**32 - 900)) -> Path:
    packets = [packet_of(n, s, isn) for n, s in enumerate(segments)]
    return write_capture(path, pcap_bytes(packets, ETHERNET, nanoseconds=True))


@pytest.mark.parametrize("seed", seeds(30 * ROUNDS, 10))
def test_random_talks(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    segments = random_talk(rng, rng.choice((5, 30, 120)))
    path = captured(tmp_path / "x.pcap", segments, (rng.randrange(2**32), 2**32 - rng.randrange(5_000)))
    for block_size, in_one_pass in ((1 << 20, True), (500, True), (700, False)):
        check(path, segments, block_size, in_one_pass)


def _transfer(lag: int, rtt: int, *, scale: int | None = None, idle: int = 0, lost: bool = False) -> list[Sent]:
    """A server sends four windows of 64 KB. `lag`: ns of the round trip that lie on its side of the capture point."""
    options, window = Options(scale=scale), 65_160
    now = START_NS
    made = [
        Sent(now, 0, 0, 0, 0, window, SYN, options),
        Sent(now + lag, 1, 0, 0, 0, window, SYN | ACK, options),
        Sent(now + rtt, 0, 0, 0, 0, window),
        Sent(now + rtt, 0, 0, 100, 0, window),
    ]
    now += rtt + lag
    offset = 0
    for turn in range(4):
        for n in range(45):
            made.append(Sent(now + 1_000 * n, 1, offset, 1_448, 100, 500))
            if not lost or turn != 1 or n != 44:
                made.append(Sent(now + 1_000 * n + rtt - lag, 0, 100, 0, offset + 1_448, window))
            offset += 1_448
        now += rtt + idle
    if lost:
        now += 300 * MS
        made.append(Sent(now, 1, offset - 1_448, 1_448, 100, 500))
    return sorted(made, key=lambda s: s.time_ns)


@pytest.mark.parametrize("cut", range(54, 74))
def test_options_that_are_cut_or_malformed(cut: int, tmp_path: Path) -> None:
    """Neither a snap length nor wrong lengths make the reader leave the options."""
    options = Options()
    segments = [
        Sent(START_NS, 0, 0, 0, 0, 64_000, SYN, options),
        Sent(START_NS + MS, 1, 0, 0, 0, 64_000, SYN | ACK, options),
        Sent(START_NS + 2 * MS, 0, 0, 10, 0, 500),
    ]
    packets = [packet_of(n, s, (1, 1)) for n, s in enumerate(segments)]
    short = [Packet(packets[0].time_ns, packets[0].data[:cut], len(packets[0].data)), *packets[1:]]
    found = _Found(write_capture(tmp_path / "x.pcap", pcap_bytes(short, ETHERNET)), 1 << 20, True)
    whole = cut == len(packets[0].data)
    assert found.directions["shift"].tolist() == [7 if whole else SHIFT_UNKNOWN, 7]
    damaged = bytearray(packets[0].data)
    damaged[cut:] = bytes(random.Random(cut).randbytes(len(damaged) - cut))
    odd = [Packet(packets[0].time_ns, bytes(damaged)), *packets[1:]]
    found = _Found(write_capture(tmp_path / "y.pcap", pcap_bytes(odd, ETHERNET)), 1 << 20, True)
    assert -2 <= int(found.directions["shift"][0]) <= 14


def test_runs_that_do_not_measure_have_no_rows(tmp_path: Path) -> None:
    segments = _transfer(0, 40 * MS)
    assembly = Assembly(Assembler())
    reader = CaptureReader(str(captured(tmp_path / "x.pcap", segments)))
    parts = []
    while reader.next_block():
        parts += list(assembly.read(reader.buffer, reader.assemble))
    reader.close()
    parts += list(assembly.end_all())
    assert not any(len(part.ended_measures) for part in parts)
    assert np.all(parts[-1].ended_directions["shift"] == NOT_SCALED)


def _all_connections(path: Path, block_size: int) -> list[tuple[object, ...]]:
    """The rows of all connections of a capture, by a run that measures."""
    engine = Engine(measures=True)
    for _ in Run([str(path)], engine, block_size=block_size, threaded=False).batches():
        pass
    rows, addresses = engine.connections, [*engine.addresses, ""]
    names = [name for name in rows.dtype.names if name not in STRING_COLUMNS | ADDRESS_COLUMNS]
    return sorted((addresses[row["client_ip"]], *row[names].tolist()) for row in rows)


@pytest.mark.parametrize("seed", seeds(4 * ROUNDS))
def test_damaged_packets_are_measured_alike_in_any_blocks(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    segments = random_talk(rng, 60)
    for n, packets in enumerate(mutations.packets(seed, 4)):
        damaged = [
            replace(p, data=mutations.changed(p.data, rng, 14)) if rng.random() < 0.5 else p
            for p in (packet_of(i, s, (5, 9)) for i, s in enumerate(segments))
        ]
        path = write_capture(tmp_path / f"{n}.pcap", pcap_bytes([*damaged, *packets], ETHERNET, nanoseconds=True))
        assert _all_connections(path, 1 << 20) == _all_connections(path, 900)
