"""Damaged captures: nothing is made up, and what survived is found. `decode_packets` checks that the ledger adds up.

The cases are connections of real clients and brokers. KAFKATAP_DAMAGE=N tries N times as many.
"""

from __future__ import annotations

import os
import random
from collections import defaultdict
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkatap.reassembly.dtypes import LATE_NS
from tests.conftest import ROOT
from tests.support.captures import Packet, read_capture
from tests.support.damage import (
    Numbered,
    Numbers,
    cut,
    duplicate,
    lose,
    lose_bursts,
    numbered,
    packets_of,
    reorder,
    shift_numbers,
    shuffle,
    step_clock,
)
from tests.support.segments import tcp_part, way_of
from tests.support.survival import Outcome, WholeCapture
from tests.support.sweeps import examples
from tests.wire.harness import Row, decode_packets

SAMPLES = ("apache-4.3", "apache-2.8", "apache-0.10.2", "apache-0.8.2")
#: The longest connection that is a case, packets.
LONGEST = 120
EXAMPLES = int(os.environ.get("KAFKATAP_DAMAGE", "1")) * examples(400)
SECOND = 1_000_000_000
RST = 4

#: What one step of damage is.
DAMAGES = {
    "lose": lambda packets, chance: lose(packets, chance, chance.choice((0.02, 0.1, 0.3))),
    "burst": lambda packets, chance: lose_bursts(packets, chance, 0.1, chance.choice((3, 10))),
    "reorder": lambda packets, chance: reorder(packets, chance, 0.2, chance.choice((SECOND // 1000, LATE_NS * 4 // 5))),
    "shuffle": lambda packets, chance: shuffle(packets, chance, 0.2, chance.choice((SECOND // 1000, LATE_NS * 4 // 5))),
    "duplicate": lambda packets, chance: duplicate(packets, chance, 0.2),
    "cut": lambda packets, chance: cut(packets, chance.choice((66, 70, 78, 96, 128, 300))),
    "clock": lambda packets, chance: step_clock(packets, chance, 2, 10 * SECOND),
    "begun": lambda packets, chance: packets[chance.randrange(len(packets) // 2 + 1) :],
}

seeds = st.integers(0, 2**32)


def read_rows(packets: list[Packet], link_type: int) -> list[Row]:
    return decode_packets(packets, link_type, all_results=False).exchanges


@cache
def connections() -> list[list[Packet]]:
    """The packets of each short connection of the samples that has exchanges. All are Ethernet."""
    found: list[list[Packet]] = []
    for name in SAMPLES:
        capture = read_capture(ROOT / "samples" / f"{name}.pcap.zst")
        assert set(capture.link_types) == {1}
        by_ends: dict[Any, list[Packet]] = defaultdict(list)
        for packet in capture.packets:
            way = way_of(packet, 1)
            if way is not None:
                by_ends[frozenset((way[:2], way[2:]))].append(packet)
        found += [packets for packets in by_ends.values() if 12 < len(packets) <= LONGEST]
    return [packets for packets in found if len(WholeCapture(packets, read_rows).exchanges) > 3]


@cache
def whole_capture(number: int) -> WholeCapture:
    return WholeCapture(connections()[number], read_rows)


def a_case(seed: int) -> tuple[WholeCapture, Numbers, random.Random]:
    """A connection, its packets, and the dice for its damage."""
    chance = random.Random(seed)
    number = chance.randrange(len(connections()))
    return whole_capture(number), numbered(connections()[number]), chance


def made_up(outcome: Outcome) -> list[Row]:
    return [*outcome.invented, *outcome.wrong, *outcome.orphans]


def told(rows: list[Row]) -> list[tuple[Any, ...]]:
    """What rows say of exchanges, whatever the capture's packets and times."""
    names = ("api_key", "api_version", "correlation_id", "client_id", "outcome", "request_bytes", "response_bytes",
             "request_status", "response_status", "throttle_time_ms", "client_port", "broker_port")  # fmt: skip
    return sorted((tuple(row[name] for name in names) for row in rows), key=repr)


@settings(max_examples=2 * EXAMPLES, deadline=None)
@given(seeds, st.lists(st.sampled_from(sorted(DAMAGES)), min_size=1, max_size=3))
def test_nothing_is_made_up(seed: int, steps: list[str]) -> None:
    whole, packets, chance = a_case(seed)
    for step in steps:
        packets = DAMAGES[step](packets, chance)
    assert made_up(whole.compare(packets)) == []


@settings(max_examples=EXAMPLES, deadline=None)
@given(seeds, st.sampled_from((0.01, 0.05, 0.1)), st.booleans())
def test_what_survived_is_found(seed: int, share: float, in_bursts: bool) -> None:
    whole, packets, chance = a_case(seed)
    outcome = whole.compare(lose_bursts(packets, chance, share, 5) if in_bursts else lose(packets, chance, share))
    assert outcome.whole_found == outcome.whole
    assert outcome.begun_found >= outcome.begun - 1  # the last one's end may be lost with the connection's


@settings(max_examples=EXAMPLES, deadline=None)
@given(seeds, st.lists(st.sampled_from(("reorder", "shuffle", "duplicate")), min_size=1, max_size=2))
def test_order_and_duplicates_change_nothing(seed: int, steps: list[str]) -> None:
    whole, packets, chance = a_case(seed)
    kept, rest = packets[:3], packets[3:]  # the first packets show where the streams begin
    for step in steps:
        rest = DAMAGES[step](rest, chance)
    later = [p for p in rest if p.packet.time_ns >= kept[-1].packet.time_ns]
    assert told(read_rows(packets_of([*kept, *later]), 1)) == told(whole.rows)


@settings(max_examples=EXAMPLES, deadline=None)
@given(seeds)
def test_sequence_numbers_wrap_anywhere(seed: int) -> None:
    whole, packets, chance = a_case(seed)
    shifts = []
    for way in (whole.parts[0].way, (*whole.parts[0].way[2:], *whole.parts[0].way[:2])):
        segments = [part for part in whole.parts if part.way == way and part.length]
        part = chance.choice(segments) if segments else whole.parts[0]
        shifts.append(2**32 - part.seq - chance.randrange(part.length + 1))
    shifted = shift_numbers(packets, (shifts[0], shifts[1]))
    rows = read_rows(packets_of(shifted), 1)
    times = ("request_first", "request_last", "response_first", "response_last", "request_packet_last")
    assert told(rows) == told(whole.rows)
    assert sorted(tuple(row[n] for n in times) for row in rows) == sorted(
        tuple(row[n] for n in times) for row in whole.rows
    )


@settings(max_examples=EXAMPLES // 2, deadline=None)
@given(seeds)
def test_ports_are_used_again_at_once(seed: int) -> None:
    """A reset in the middle of a message, then the same connection again, with other sequence numbers."""
    whole, packets, chance = a_case(seed)
    if not whole.parts[0].flags & 2:
        return
    broken = packets[: chance.randrange(3, len(packets))]
    last = broken[-1].packet
    reset = bytearray(last.data)
    part = tcp_part(last, 1)
    assert part is not None
    begin = len(reset) - len(part.payload) if part.payload else len(reset)
    reset[begin - (len(reset) - begin) : begin - (len(reset) - begin)] = b""
    flags_at = 14 + (reset[14] & 15) * 4 + 13
    reset[flags_at] |= RST
    broken = [*broken[:-1], Numbered(broken[-1].number, Packet(last.time_ns, bytes(reset)))]
    again = shift_numbers(packets, (chance.randrange(2**32), chance.randrange(2**32)))
    shift = last.time_ns - again[0].packet.time_ns + 1_000
    later = [Packet(p.packet.time_ns + shift, p.packet.data, p.packet.original_length) for p in again]
    rows = read_rows([*packets_of(broken), *later], 1)
    second = [row for row in rows if max(row["request_packet_first"], row["response_packet_first"]) > len(broken)]
    assert told(second) == told(whole.rows)


@settings(max_examples=EXAMPLES // 4, deadline=None)
@given(seeds)
def test_one_direction(seed: int) -> None:
    """Requests alone are found, and their responses are lost, not missing. Responses alone show nothing."""
    whole, packets, _ = a_case(seed)
    rows = [row for row in whole.rows if row["api_key"] >= 0]
    to_broker = [p for p in packets_of(packets) if way_of(p, 1)[3] == rows[0]["broker_port"]]  # type: ignore[index]
    seen = decode_packets(to_broker)
    assert {x["outcome"] for x in seen.exchanges} <= {"response_lost", "no_reply_expected"}
    assert len(seen.exchanges) >= 0.9 * len(rows)
    assert seen.connections[0]["broker_packets"] == 0
    from_broker = [p for p in packets_of(packets) if way_of(p, 1)[1] == rows[0]["broker_port"]]  # type: ignore[index]
    assert decode_packets(from_broker).exchanges == []


@pytest.mark.long
@pytest.mark.parametrize("first", range(0, 40_000, 1_000))
def test_nothing_is_made_up_of_many(first: int) -> None:
    for seed in range(first, first + 1_000):
        whole, packets, chance = a_case(seed)
        for _ in range(chance.randrange(1, 4)):
            packets = DAMAGES[chance.choice(sorted(DAMAGES))](packets, chance)
        assert made_up(whole.compare(packets)) == [], seed
