"""Connections without number, frames without measure, gaps that nothing fills: memory stays bounded, rows stay right.

Bounds are counted in connections and packets, so that wherever the input is cut the rows are the same.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from kafkatap.engine.engine import Engine
from kafkatap.engine.read_options import ReadOptions
from kafkatap.kernels import hashing
from kafkatap.reassembly.assembler import Assembler
from kafkatap.reassembly.dtypes import LISTENER, Bounds
from tests.support.captures import Packet
from tests.support.tcp import ACK, FIN, RST, START_NS, SYN, Segment, TcpConversation, encode, merge
from tests.wire.harness import Decoded, assert_same, decode_files, decode_packets, run_lengths
from tests.wire.kafkatalk import METADATA, PRODUCE, KafkaTalk, add_exchanges, assert_exchanges, raw_request

Endpoint = tuple[str, int]
BROKER: Endpoint = ("10.0.1.1", 9_092)


def engine(bounds: Bounds, max_frame: int | None = None) -> Engine:
    read = ReadOptions(max_frame=max_frame)
    return Engine(read, all_results=True, assembler=Assembler(turns=3, bounds=bounds))


def talks(count: int, low: bool = True, close: bool = True, host: int = 1) -> list[KafkaTalk]:
    """Short connections of one host with sequential ports, one after another."""
    found = []
    for number in range(count):
        address = f"10.0.{0 if low else 2}.{host}"
        talk = KafkaTalk((address, 20_000 + number), BROKER, time_ns=START_NS + number * 10**6)
        talk.tcp.open()
        add_exchanges(talk, 1)
        if close:
            talk.tcp.close()
        found.append(talk)
    return found


def packets_of(found: list[KafkaTalk]) -> list[Packet]:
    return encode(merge(*(talk.tcp.segments for talk in found)))


def wanted(found: list[KafkaTalk]) -> list[dict[str, object]]:
    return [row for talk in found for row in talk.wanted]


# ---------------------------------------------------------------- hashes


def displacement(assembler: Assembler) -> float:
    """How far from the place of its hash a flow lies in the table, on average."""
    from kafkatap.reassembly.flows import Ends, hash_flow

    table = assembler._flows
    mask, seed = len(table.buckets) - 1, table.seed
    where = {int(number) - 1: at for at, number in enumerate(table.buckets.tolist()) if number}
    far = []
    for number, flow in enumerate(assembler.flows.tolist()):
        far.append((where[number] - int(hash_flow(Ends(*flow[:6]), seed))) & mask)
    return float(np.mean(far))


@pytest.mark.parametrize("low", [True, False])
@pytest.mark.parametrize("hosts", [1, 2, 8])
def test_many_connections_of_a_host_are_found_at_once(low: bool, hosts: int) -> None:
    segments = []
    for number in range(4_000):
        client = (f"10.0.{0 if low else 2}.{1 + number % hosts}", 1_024 + number // hosts)
        segments.append(Segment(START_NS + number, client, BROKER, 1_000, 0, SYN))
    made = engine(Bounds())
    decode_packets(encode(segments), engine=made)
    assert displacement(made.assembler) < 1.5


@pytest.mark.parametrize("number", [0, 1, 2**61 - 1])
def test_no_row_depends_on_the_seed(number: int, samples: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = samples / "apache-2.8.pcap.zst"
    before = decode_files([path])
    for module in ("dissector.strings", "reassembly.flows", "reassembly.listeners", "reports.counting.count_table"):
        monkeypatch.setattr(f"kafkatap.{module}.new_seed", lambda: number << 31 & (1 << 62) - 1 | 0x40000001)
    assert_same(decode_files([path]), before)


def test_seeds_differ_between_tables() -> None:
    assert len({hashing.new_seed() for _ in range(20)}) == 20


# ---------------------------------------------------------------- listeners


def test_any_number_of_listeners_is_known() -> None:
    """More ends that answer a SYN than the table has room for at first, in one neighbourhood."""
    segments: list[Segment] = []
    for number in range(3_000):
        talk = TcpConversation(
            (f"10.0.0.{1 + number % 200}", 30_000), ("10.9.0.1", 1 + number), time_ns=START_NS + number
        )
        talk.open()
        segments += talk.segments
    made = Assembler()
    one = Engine(all_results=True, assembler=made)
    decode_packets(encode(segments), engine=one)
    known = made.listeners
    assert sorted(known["port"].tolist()) == list(range(1, 3_001))
    assert len(made._listeners.arrays.rows) >= 2 * len(known)
    # Others learn them from each other, as the splits of a capture do.
    other = Assembler()
    other.learn_listeners(known)
    assert sorted(other.listeners.tolist()) == sorted(known.tolist())
    assert sorted(other.listeners["port"].tolist()) == list(range(1, 3_001))
    other.forget_listeners()
    assert len(other.listeners) == 0
    other.learn_listeners(np.zeros(1, LISTENER))
    assert len(other.listeners) == 0, "port 0 is no end"


# ---------------------------------------------------------------- connections


def test_closed_connections_are_given_back() -> None:
    found = talks(600)
    made = engine(Bounds(closed=16))
    packets = packets_of(found)
    seen = decode_packets(packets, runs=[50] * len(packets), engine=made)
    assert_exchanges(seen, wanted(found))
    assert len(seen.connections) == 600
    assert len(made.assembler.connections) == 256, "no more than at first"


@pytest.mark.parametrize(
    ("bounds", "close"),
    [(Bounds(closed=5), True), (Bounds(idle=7), False), (Bounds(closed=3, idle=4, syns=2), True)],
)
def test_bounds_of_connections_give_the_same_rows_however_cut(bounds: Bounds, close: bool) -> None:
    found = talks(40, close=close)
    packets = packets_of(found)
    whole = decode_packets(packets, engine=engine(bounds))
    assert_exchanges(whole, wanted(found))
    for runs in run_lengths(len(packets), splits=6):
        assert_same(decode_packets(packets, runs=runs, engine=engine(bounds)), whole, runs)


@pytest.mark.parametrize("seed", [3, 5, 9])
def test_connections_of_a_few_ends_however_often_past_ones_are_looked_for(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SYNs, data, closes and resets on 14 pairs of ends, in any order, with bounds that all of them reach."""
    chance = random.Random(seed)
    segments = []
    for number in range(150):
        ends = ("10.0.0.1", 20_000 + chance.randrange(14)), BROKER
        flags = chance.choice((SYN, SYN | ACK, FIN | ACK, RST, ACK, ACK, ACK, ACK))
        source, target = ends if flags == SYN or chance.random() < 0.6 else ends[::-1]
        data = bytes(chance.choice((5, 25))) if flags == ACK else b""
        seq = chance.choice((999, 1_000, 1_010, 1_040, 90_000))
        segments.append(Segment(START_NS + number * 1_000, source, target, seq, 1, flags, data))
    packets = encode(segments)
    bounds = Bounds(closed=4, syns=4, idle=8)
    whole = decode_packets(packets, engine=engine(bounds))
    for every, length in ((1, 1), (1, 3), (2, 2)):
        monkeypatch.setattr("kafkatap.engine.assembly.REAP_EVERY", every)
        assert_same(
            decode_packets(packets, runs=[length] * len(packets), engine=engine(bounds)), whole, (every, length)
        )


def late(segment: Segment, other: list[KafkaTalk]) -> list[Packet]:
    """A segment that comes after all of these."""
    after = max(s.time_ns for talk in other for s in talk.tcp.segments) + 1_000
    return encode([*merge(*(talk.tcp.segments for talk in other)), replace(segment, time_ns=after)])


@pytest.mark.parametrize(("kept", "connections"), [(30, 20), (5, 21)])
def test_a_late_segment_of_a_closed_connection(kept: int, connections: int) -> None:
    """Sent again soon, it is part of the old connection; once many others were closed, it is one of its own."""
    found = talks(20)
    again = next(s for s in found[0].tcp.segments if s.payload)
    packets = late(again, found)
    seen = decode_packets(packets, engine=engine(Bounds(closed=kept)))
    assert len(seen.connections) == connections
    assert len([x for x in seen.exchanges if x["outcome"] == "answered"]) == 20
    for runs in run_lengths(len(packets), splits=3):
        assert_same(decode_packets(packets, runs=runs, engine=engine(Bounds(closed=kept))), seen, runs)


@pytest.mark.parametrize(("kept", "connections"), [(30, 20), (5, 21)])
def test_a_connection_goes_on_after_many_others_began(kept: int, connections: int) -> None:
    found = talks(20, close=False)
    first = found[0]
    count = len(first.tcp.segments)
    first.tcp.time_ns = START_NS + 10**9
    add_exchanges(first, 3, 10)
    packets = packets_of(found)
    seen = decode_packets(packets, engine=engine(Bounds(idle=kept)))
    assert len(seen.connections) == connections
    assert [x["outcome"] for x in seen.exchanges].count("answered") == 23, "found again in mid-connection"
    assert count < len(first.tcp.segments)
    for runs in run_lengths(len(packets), splits=3):
        assert_same(decode_packets(packets, runs=runs, engine=engine(Bounds(idle=kept))), seen, runs)


def test_lone_syns_are_given_back_and_an_answer_in_time_is_not_lost() -> None:
    syns = [
        Segment(START_NS + 10**9 + n, (f"10.0.3.{1 + n // 60_000}", 1 + n % 60_000), BROKER, 7, 0, SYN)
        for n in range(900)
    ]
    slow = talks(1)[0].tcp.segments
    after = START_NS + 2 * 10**9
    rest = [replace(s, time_ns=after + n * 1000) for n, s in enumerate(slow[1:])]
    for kept, connections in ((2_000, 901), (300, 902)):
        made = engine(Bounds(syns=kept))
        packets = encode([slow[0], *syns, *rest])
        seen = decode_packets(packets, runs=[10] * 200, engine=made)
        assert len(seen.connections) == connections
        assert seen.outcomes == ["answered"]
        assert_same(decode_packets(packets, engine=engine(Bounds(syns=kept))), seen)
    assert len(made.assembler.connections) <= 512


# ---------------------------------------------------------------- gaps


def gaps(count: int, size: int) -> list[Packet]:
    """Connections whose first data segment is missing while more comes behind it, all at once."""
    lists = []
    for number in range(count):
        talk = TcpConversation(
            (f"10.0.0.{1 + number % 250}", 20_000 + number), BROKER, time_ns=START_NS + number, acks=False
        )
        talk.open()
        talk.skip(0, 100)
        talk.client(bytes(size))
        lists.append(talk.segments)
    return encode(merge(*lists))


def test_what_waits_behind_gaps_is_bounded_for_all_connections_together() -> None:
    packets = gaps(300, 20_000)
    bounds = Bounds(held_bytes=500_000)
    made = engine(bounds)
    seen = decode_packets(packets, runs=[64] * len(packets), engine=made)
    assert len(made.assembler.pool) <= 16 << 20, "6 MB wait without the bound"
    assert len(seen.connections) == 300
    assert sum(c["client_gap_bytes"] for c in seen.connections) == 300 * 100
    assert_same(decode_packets(packets, engine=engine(bounds)), seen)
    few = engine(Bounds(held_segments=50))
    assert_same(
        decode_packets(packets, engine=few),
        decode_packets(packets, runs=[7] * len(packets), engine=engine(Bounds(held_segments=50))),
    )
    assert len(few.assembler.held) <= 256


def test_the_oldest_gap_is_given_up_first() -> None:
    """The first of two fills its gap too late, the second in time."""
    lists, pieces = [], []
    for number in range(2):
        talk = KafkaTalk(("10.0.0.1", 20_000 + number), BROKER, time_ns=START_NS + number, acks=False)
        talk.tcp.open()
        opened = len(talk.tcp.segments)
        talk.tcp.client(raw_request(METADATA, 0, 1, b"\0\0\0\1\0\1t" + bytes(0)))
        talk.tcp.client(bytes(1_400))
        first, *others = talk.tcp.segments[opened:]
        lists.append(talk.tcp.segments[:opened] + others)
        pieces.append(first)
    end = max(s.time_ns for each in lists for s in each) + 10
    segments = [*merge(*lists), *(replace(p, time_ns=end + n) for n, p in enumerate(pieces))]
    seen = decode_packets(encode(segments), engine=engine(Bounds(held_bytes=2_000)))
    gaps = {c["client_port"]: c["client_gap_bytes"] for c in seen.connections}
    assert gaps[20_000] > 0
    assert gaps[20_001] == 0


# ---------------------------------------------------------------- frames


def produce(size: int) -> KafkaTalk:
    """A connection with a Produce request of `size` bytes of records between small exchanges."""
    talk = KafkaTalk()
    talk.tcp.open()
    add_exchanges(talk, 2)
    asked = talk.request(
        PRODUCE, 3, 500, Acks=1, TopicData=[{"Name": "t", "PartitionData": [{"Records": bytes(size)}]}]
    )
    talk.respond(asked, Responses=[{"Name": "t", "PartitionResponses": [{"ErrorCode": 6}]}])
    add_exchanges(talk, 2, 600)
    return talk


@pytest.mark.parametrize(("size", "status"), [(90_000, "ok"), (300_000, "too_large")])
def test_a_frame_beyond_the_limit_is_measured_and_its_head_decoded(size: int, status: str) -> None:
    talk = produce(size)
    packets = encode(talk.tcp.segments)
    make: Callable[[], Engine] = lambda: engine(Bounds(), max_frame=200_000)  # noqa: E731
    seen = decode_packets(packets, engine=make())
    assert_exchanges(seen, talk.wanted)
    large = next(x for x in seen.exchanges if x["api_key"] == PRODUCE)
    assert (large["request_status"], large["response_status"]) == (status, "ok")
    assert large["acks"] == 1
    assert large["errors"] == {6: 1}
    assert large["request_bytes"] > size
    assert all(x["request_status"] == "ok" for x in seen.exchanges if x is not large)
    for runs in run_lengths(len(packets), splits=5):
        assert_same(decode_packets(packets, runs=runs, engine=make()), seen, runs)


def test_a_large_segment_is_measured_as_many_small_ones_are() -> None:
    """A frame that lies whole in one packet has the limit of one that does not."""
    seen = []
    for mss in (60_000, 1_448):
        talk = KafkaTalk(mss=mss)
        talk.tcp.open()
        asked = talk.request(PRODUCE, 3, 5, TopicData=[{"Name": "t", "PartitionData": [{"Records": bytes(50_000)}]}])
        talk.respond(asked)
        made = engine(Bounds())
        made.dissector.shed(2_000)
        seen.append(decode_packets(encode(talk.tcp.segments), engine=made).exchanges[0])
    assert seen[0]["request_status"] == seen[1]["request_status"] == "incomplete"
    assert seen[0]["response_status"] == seen[1]["response_status"] == "ok"


def test_no_more_than_is_asked_for_is_kept_of_each_frame() -> None:
    talk = produce(300_000)
    packets = encode(talk.tcp.segments)
    made = engine(Bounds())
    made.dissector.shed(512)
    seen = decode_packets(packets, engine=made)
    assert_exchanges(seen, talk.wanted)
    large = next(x for x in seen.exchanges if x["api_key"] == PRODUCE)
    assert (large["request_status"], large["acks"]) == ("incomplete", 1)
    for runs in run_lengths(len(packets), splits=3):
        again = engine(Bounds())
        again.dissector.shed(512)
        assert_same(decode_packets(packets, runs=runs, engine=again), seen, runs)


def largest_buffer(made: Engine, packets: list[Packet]) -> int:
    """The largest place in the pool of frames that was ever used."""

    tops = []

    class Watch:
        def look(self, frames: object) -> None:
            tops.append(made.dissector.pool_used)

    made.dissector.inspectors = (Watch(),)
    decode_packets(packets, runs=[200] * len(packets), engine=made)
    return max(tops)


def test_only_the_head_is_kept_of_what_nobody_asks_for() -> None:
    packets = encode(produce(1_500_000).tcp.segments)
    whole = Engine(all_results=False, assembler=Assembler(turns=3))
    heads = Engine(all_results=False, assembler=Assembler(turns=3), apis=frozenset((METADATA,)))
    assert largest_buffer(whole, packets) > 1_500_000
    assert largest_buffer(heads, packets) < 600_000


def test_rows_of_other_apis_are_the_same_where_only_heads_are_kept() -> None:
    packets = encode(produce(1_500_000).tcp.segments)
    whole = decode_packets(packets, engine=Engine(all_results=True, assembler=Assembler(turns=3)))
    heads = decode_packets(
        packets, engine=Engine(all_results=True, assembler=Assembler(turns=3), apis=frozenset((METADATA,)))
    )

    def others(seen: Decoded) -> list[dict[str, object]]:
        return [x for x in seen.exchanges if x["api_key"] != PRODUCE]

    assert others(heads) == others(whole)
    assert heads.ledger == whole.ledger
