"""What networks and captures do to TCP: the exchanges stay those that were sent, with the times of the first copies."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.support.captures import SLL2, Packet
from tests.support.sweeps import seeds
from tests.support.tcp import (
    ACK,
    FIN,
    PSH,
    RST,
    SYN,
    Segment,
    duplicate,
    encode,
    lose,
    merge,
    move,
    retransmit,
    split_small,
)
from tests.wire.harness import Decoded, Row, check, decode_packets
from tests.wire.kafkatalk import FETCH, METADATA, MS, KafkaTalk, add_exchanges, assert_exchanges, key_of, small_talk
from tests.wire.oracle import expected

WRAPPING = {"isn": (2**32 - 300, 2**32 - 700)}


def pipelined(count: int = 9, **options: object) -> KafkaTalk:
    """Up to three requests at once before their responses."""
    talk = KafkaTalk(**options)  # type: ignore[arg-type]
    talk.tcp.open()
    for first in range(0, count, 3):
        asked = [
            talk.request(METADATA, 4, first + n, Topics=[{"Name": f"t{first}-{k}"} for k in range(n * 5)])
            for n in range(3)
        ]
        for n, one in enumerate(asked):
            talk.respond(one, Topics=[{"Name": f"t{first}-{k}", "ErrorCode": k % 3} for k in range(n * 4 + 1)])
    talk.tcp.close()
    return talk


TALKS = {
    "one by one": small_talk(7),
    "small segments": small_talk(5, mss=40),
    "pipelined": pipelined(),
    "pipelined, small segments": pipelined(6, mss=60),
    "wrapping": small_talk(7, mss=70, **WRAPPING),  # type: ignore[arg-type]
}


@pytest.fixture(params=sorted(TALKS))
def talk(request: pytest.FixtureRequest) -> KafkaTalk:
    return TALKS[request.param]


def data_of(segments: Sequence[Segment], end: int | None = None) -> list[int]:
    """Numbers of the segments with payload, of one end where named."""
    first = segments[0].source
    return [n for n, s in enumerate(segments) if s.payload and (end is None or (s.source == first) == (end == 0))]


def assert_intact(seen: Decoded, captured: Sequence[Segment], sent: Sequence[Segment], may_miss: int = 0) -> None:
    """Every exchange whose bytes were captured is there as it was; what else there is was sent as well."""
    whole, damaged = expected(captured, sent)
    found = {key_of(x): x for x in seen.exchanges}
    missing = [row for row in whole if key_of(row) not in found]
    assert len(missing) <= may_miss, missing
    for row in whole:
        if row not in missing:
            x = found.pop(key_of(row))
            assert {name: x[name] for name in row} == row
    for x in found.values():
        candidates = [row for row in whole + damaged if row["correlation_id"] == x["correlation_id"]]
        assert candidates, x
        if x["outcome"] != "orphan_response":
            [row] = candidates
            for name in ("api_key", "api_version", "client_id", "request_bytes"):
                assert x[name] == row[name], (name, x)


def look(number: int, packets: list[Packet]) -> Decoded:
    """At once; every fifth of many like ones in every cutting as well."""
    return decode_packets(packets) if number % 5 else check(packets, splits=3)


# ---------------------------------------------------------------- nothing is missing


def test_the_oracle_and_the_talks_agree(talk: KafkaTalk) -> None:
    whole, damaged = expected(talk.segments)
    assert not damaged
    names = talk.wanted[0]
    assert [{name: row[name] for name in names} for row in whole] == talk.wanted
    assert_exchanges(check(encode(talk.segments)), whole)


def test_every_segment_twice(talk: KafkaTalk) -> None:
    for number in range(len(talk.segments)):
        for later in (1, 2, 5):
            copies = duplicate(talk.segments, number, later)
            assert_exchanges(decode_packets(encode(copies)), expected(copies)[0])


def test_all_packets_twice(talk: KafkaTalk) -> None:
    """As a capture of all interfaces has them."""
    twice = [replace(s, time_ns=s.time_ns + k * 2_000) for s in talk.segments for k in (0, 1)]
    seen = check(encode(twice, SLL2), SLL2)
    assert_exchanges(seen, expected(twice)[0])
    once = decode_packets(encode(talk.segments))
    assert seen.ledger["payload bytes"]["retransmitted"] == 0
    for section in ("packets", "payload bytes"):
        assert seen.ledger[section]["duplicate"] == once.ledger[section]["total"]


def test_each_data_segment_later_in_its_burst(talk: KafkaTalk) -> None:
    """Moved behind those that follow it from the same end, before the other end says anything."""
    for number in data_of(talk.segments):
        to = number
        while talk.segments[to + 1].payload and talk.segments[to + 1].source == talk.segments[number].source:
            to += 1
            moved = move(talk.segments, number, to)
            assert_exchanges(decode_packets(encode(moved)), expected(moved)[0])


def test_retransmission_before_anything_else(talk: KafkaTalk) -> None:
    """Lost before the capture's place and sent again, later in its burst or right after it."""
    for number in data_of(talk.segments):
        captured = retransmit(talk.segments, number, 1)
        assert_exchanges(decode_packets(encode(captured)), expected(captured)[0])


def test_the_first_copy_wins(talk: KafkaTalk) -> None:
    """A second copy with other bytes changes nothing."""
    for number in data_of(talk.segments):
        copy = replace(talk.segments[number], payload=b"\xff" * len(talk.segments[number].payload))
        captured = [*talk.segments[: number + 1], copy, *talk.segments[number + 1 :]]
        assert_exchanges(decode_packets(encode(captured)), expected(captured, talk.segments)[0])


@pytest.mark.parametrize("seed", seeds(25, 8))
def test_a_bad_network(seed: int) -> None:
    """Copies, overlaps, other cuts of the same bytes, and other orders within a burst, all at once."""
    chance = random.Random(seed)
    talk = chance.choice([small_talk, pipelined])(6, mss=chance.choice((30, 80, 200)), isn=(2**32 - 200, 77))
    result: list[Segment] = []
    burst: list[Segment] = []
    for s in [*talk.segments, talk.segments[-1]]:
        if burst and (not s.payload or s.source != burst[0].source):
            result += _bad(burst, chance)
            burst = []
        if s.payload:
            burst.append(s)
        else:
            result.append(s)
    captured = [replace(s, time_ns=talk.segments[0].time_ns + n * 1000) for n, s in enumerate(result)]
    assert_exchanges(check(encode(captured)), expected(captured)[0])


def _bad(burst: list[Segment], chance: random.Random) -> list[Segment]:
    burst = list(burst)
    for s in list(burst):
        if chance.random() < 0.3:
            burst.append(s)
        if chance.random() < 0.3:
            at = chance.randrange(len(s.payload))
            burst.append(replace(s, seq=(s.seq + at) % 2**32, payload=s.payload[at : at + chance.randint(1, 30)]))
        if chance.random() < 0.2:
            both = [b for b in burst if b.seq == (s.seq + len(s.payload)) % 2**32]
            if both:
                burst.append(replace(s, payload=s.payload + both[0].payload))
    for _ in range(chance.randint(0, 3)):
        burst.insert(chance.randrange(len(burst)), burst.pop(chance.randrange(len(burst))))
    return burst


def test_one_byte_segments() -> None:
    talk = small_talk(3)
    captured = [replace(s, time_ns=s.time_ns + n) for n, s in enumerate(split_small(talk.segments, 1))]
    assert_exchanges(check(encode(captured)), expected(captured)[0])


def test_keep_alives_and_probes(talk: KafkaTalk) -> None:
    captured: list[Segment] = []
    for s in talk.segments:
        captured.append(s)
        if not s.flags & (SYN | FIN):
            after = replace(s, seq=(s.seq + len(s.payload) - 1) % 2**32, flags=ACK)
            captured += [replace(after, payload=b"\0"), replace(after, payload=b"")]
    seen = check(encode(captured))
    assert_exchanges(seen, expected(captured, talk.segments)[0])
    assert seen.connections[0]["client_retransmitted_packets"] == 0
    assert seen.connections[0]["broker_retransmitted_packets"] == 0


def _window(packet: Packet, window: int) -> Packet:
    data = bytearray(packet.data)
    data[14 + 20 + 14 : 14 + 20 + 16] = window.to_bytes(2, "big")
    return replace(packet, data=bytes(data))


def test_zero_windows_and_their_probes() -> None:
    """The receiver says 0; the sender probes with the next byte, which the receiver does not take until it has room."""
    talk = KafkaTalk(mss=50, acks=False)
    talk.tcp.open()
    asked = talk.request(METADATA, 4, 1)
    talk.respond(asked, Topics=[{"Name": f"t{k}"} for k in range(20)])
    talk.tcp.close()
    segments = talk.segments
    at = data_of(segments, 1)[2]
    probe = replace(segments[at], payload=segments[at].payload[:1])
    full = replace(segments[3], seq=(segments[3].seq + len(segments[3].payload)) % 2**32, payload=b"", ack=probe.seq)
    captured = [*segments[:at], full, probe, full, probe, full, *segments[at:]]
    captured = [replace(s, time_ns=segments[0].time_ns + n * MS) for n, s in enumerate(captured)]
    packets = [
        _window(p, 0) if s.ack == probe.seq and not s.payload else p
        for p, s in zip(encode(captured), captured, strict=True)
    ]
    seen = check(packets)
    assert_exchanges(seen, expected(captured)[0])
    assert seen.connections[0]["client_zero_windows"] == 3


# ---------------------------------------------------------------- the ends of connections


def test_data_on_the_fin() -> None:
    talk = KafkaTalk()
    talk.tcp.open()
    add_exchanges(talk, 3)
    last = data_of(talk.segments, 1)[-1]
    captured = [replace(s, flags=s.flags | FIN) if n == last else s for n, s in enumerate(talk.segments)]
    assert_exchanges(check(encode(captured)), talk.wanted)


def test_data_on_the_syn() -> None:
    """TCP Fast Open."""
    talk = small_talk(3)
    first = data_of(talk.segments, 0)[0]
    s = talk.segments[first]
    opened = replace(talk.segments[0], payload=s.payload)
    captured = [opened, *talk.segments[1:first], *talk.segments[first + 1 :]]
    assert_exchanges(check(encode(captured)), expected(captured)[0])


@pytest.mark.parametrize("end", [0, 1])
def test_reset_in_the_middle(end: int) -> None:
    talk = KafkaTalk(mss=60)
    talk.tcp.open()
    add_exchanges(talk, 4)
    asked = talk.request(METADATA, 4, 99)
    talk.tcp.send(1, b"\0\0\0\x50\0\0\0\x63" + bytes(20))
    talk.tcp.reset(end)
    seen = check(encode(talk.segments))
    [last] = [x for x in seen.exchanges if x["correlation_id"] == 99]
    assert last["outcome"] in ("unanswered", "response_lost")
    assert (last["response_bytes"], last["response_cut_bytes"]) == (80, 80 + 4 - 28)
    cut = ("outcome", "response_bytes", "response_first", "response_last")
    whole = [x for x in seen.exchanges if x["correlation_id"] != 99]
    assert_exchanges(replace(seen, exchanges=whole), [row for row in talk.wanted if row is not asked.row])
    assert_exchanges(replace(seen, exchanges=[last]), [asked.row], besides=cut)


def test_a_syn_without_an_answer_then_again() -> None:
    talk = small_talk(3)
    syn = talk.segments[0]
    captured = [replace(syn, time_ns=syn.time_ns - n * 1_000 * MS) for n in (3, 2, 1)] + talk.segments
    seen = check(encode(captured))
    assert_exchanges(seen, talk.wanted)
    assert len(seen.connections) == 1


def test_refused_and_scanned() -> None:
    """SYN, RST; SYN alone; a lone RST; a lone FIN: connections without a byte."""
    talk = small_talk(2)
    other = KafkaTalk(client=("10.0.0.9", 1111))
    other.tcp.open()
    syn, syn_ack, ack = other.segments
    captured = [syn, replace(syn_ack, flags=RST | ACK)]
    for port, flags in ((1, SYN), (2, RST), (3, FIN | ACK), (4, ACK), (5, SYN | ACK), (6, 0), (7, SYN | FIN | RST)):
        captured.append(replace(ack, source=("10.0.0.9", port), flags=flags))
    seen = check(encode(captured + talk.segments))
    assert_exchanges(seen, talk.wanted)
    assert {c["protocol"] for c in seen.connections if c["client_port"] != 40_000} == {"unknown"}


def reused(gap_ns: int, closed: bool) -> tuple[KafkaTalk, KafkaTalk]:
    """Two connections with the same addresses and ports."""
    old = KafkaTalk(mss=100)
    old.tcp.open()
    add_exchanges(old, 3)
    if closed:
        old.tcp.close()
    new = KafkaTalk(mss=100, time_ns=old.tcp.time_ns + gap_ns, isn=(3_000_000_000, 2_000_000_000))
    new.tcp.open()
    add_exchanges(new, 5, 50)
    new.tcp.close()
    return old, new


@pytest.mark.parametrize("closed", [True, False])
@pytest.mark.parametrize("gap_ns", [1_000, 1_000 * MS, 100_000 * MS])
def test_ports_used_again(gap_ns: int, closed: bool) -> None:
    old, new = reused(gap_ns, closed)
    seen = check(encode(old.segments + new.segments))
    assert_exchanges(seen, old.wanted + new.wanted)
    assert len(seen.connections) == 2


@pytest.mark.parametrize("closed", [True, False])
def test_ports_used_again_while_old_packets_arrive(closed: bool) -> None:
    """The old connection's last response comes again (retransmitted) in the midst of the new one."""
    old, new = reused(100 * MS, closed)
    late = [old.segments[n] for n in data_of(old.segments)[-2:]]
    for place in range(1, len(new.segments)):
        time = new.segments[place].time_ns - 1
        captured = new.segments[:place] + [replace(s, time_ns=time) for s in late] + new.segments[place:]
        seen = decode_packets(encode(old.segments + captured))
        assert_exchanges(seen, old.wanted + new.wanted)
        assert len(seen.connections) == 2


def test_the_old_connection_ends_within_the_new_one() -> None:
    """Its last response was not seen before: it still is the old request's."""
    old, new = reused(10 * MS, closed=False)
    last = data_of(old.segments, 1)[-1]
    held, kept = old.segments[last:], old.segments[:last]
    for place in range(1, len(new.segments)):
        time = new.segments[place].time_ns - 10
        late = [replace(s, time_ns=time + n) for n, s in enumerate(held)]
        seen = look(place, encode(kept + new.segments[:place] + late + new.segments[place:]))
        wanted = [dict(row) for row in old.wanted]
        wanted[-1].update(response_last=late[0].time_ns)
        if len([n for n in data_of(old.segments, 1) if n >= last]) == 1 and wanted[-1]["response_bytes"] <= 96:
            wanted[-1].update(response_first=late[0].time_ns)
        assert_exchanges(seen, wanted + new.wanted)


def test_two_interleaved_connections_of_one_client() -> None:
    first, second = small_talk(6, mss=70), small_talk(6, mss=50, client=("10.0.0.1", 40_001))
    back = small_talk(6, mss=50, client=("10.0.0.2", 9_093), broker=("10.0.0.1", 9_092), step_ns=130_000)
    seen = check(encode(merge(first.segments, second.segments, back.segments)))
    assert_exchanges(seen, first.wanted + second.wanted + back.wanted)


# ---------------------------------------------------------------- losses


def test_each_segment_lost(talk: KafkaTalk) -> None:
    """Nothing that was captured whole is lost with it."""
    for number in range(len(talk.segments)):
        captured = lose(talk.segments, number)
        assert_intact(decode_packets(encode(captured)), captured, talk.segments)


def test_each_run_of_segments_lost(talk: KafkaTalk) -> None:
    for length in (2, 3, 5):
        for number in range(3, len(talk.segments) - length):
            captured = lose(talk.segments, *range(number, number + length))
            assert_intact(decode_packets(encode(captured)), captured, talk.segments)


@pytest.mark.parametrize("seed", seeds(12, 4))
def test_losses_in_every_cutting(seed: int) -> None:
    chance = random.Random(seed)
    talk = chance.choice([small_talk, pipelined])(12, mss=chance.choice((40, 100, 1448)), isn=(2**32 - 500, 4))
    lost = chance.sample(range(len(talk.segments)), 3)
    captured = lose(talk.segments, *lost)
    assert_intact(check(encode(captured)), captured, talk.segments)


def test_a_gap_in_a_request_body() -> None:
    """The request keeps its header, its times and its answer."""
    talk = KafkaTalk(mss=50)
    talk.tcp.open()
    asked = talk.request(METADATA, 4, 5, Topics=[{"Name": f"topic-{k}"} for k in range(20)])
    talk.respond(asked, Topics=[{"Name": "topic-1", "ErrorCode": 3}])
    add_exchanges(talk, 2, 10)
    talk.tcp.close()
    numbers = data_of(talk.segments, 0)
    for lost in ([numbers[1]], [numbers[2]], numbers[1:3]):
        seen = check(encode(lose(talk.segments, *lost)))
        assert_exchanges(seen, talk.wanted)
        [x] = [x for x in seen.exchanges if x["correlation_id"] == 5]
        assert x["request_status"] == "incomplete"
        assert x["errors"] == {3: 1}
        assert seen.connections[0]["client_gaps"] == 1
        assert seen.connections[0]["client_gap_bytes"] == 50 * len(lost)


def test_a_gap_in_a_response_body() -> None:
    talk = KafkaTalk(mss=50)
    talk.tcp.open()
    asked = talk.request(METADATA, 4, 5)
    talk.respond(asked, Topics=[{"Name": f"topic-{k}", "ErrorCode": 3} for k in range(20)])
    add_exchanges(talk, 2, 10)
    talk.tcp.close()
    numbers = data_of(talk.segments, 1)
    for lost in ([numbers[1]], [numbers[2]], numbers[1:4]):
        seen = check(encode(lose(talk.segments, *lost)))
        assert_exchanges(seen, talk.wanted)
        [x] = [x for x in seen.exchanges if x["correlation_id"] == 5]
        assert x["response_status"] == "incomplete"


def test_a_gap_over_a_size_field() -> None:
    """Sync is lost and found again at the next frame."""
    talk = KafkaTalk(mss=50)
    talk.tcp.open()
    add_exchanges(talk, 8)
    talk.tcp.close()
    for end in (0, 1):
        for number in data_of(talk.segments, end):
            captured = lose(talk.segments, number)
            assert_intact(look(number, encode(captured)), captured, talk.segments)


def test_a_gap_over_several_frames() -> None:
    talk = small_talk(30, mss=1448)
    for first in range(5, 60, 5):
        captured = lose(talk.segments, *range(first, first + 50))
        assert_intact(check(encode(captured), splits=5), captured, talk.segments)


def test_a_gap_of_one_direction_only() -> None:
    """Asymmetric routes, or a mirror port that is too slow: requests alone, then both again."""
    talk = small_talk(20)
    for end in (0, 1):
        numbers = data_of(talk.segments, end)[4:12]
        captured = lose(talk.segments, *numbers)
        assert_intact(check(encode(captured), splits=5), captured, talk.segments)


def test_responses_that_were_lost_are_said_to_be() -> None:
    talk = small_talk(9)
    lost = data_of(talk.segments, 1)[4]
    seen = check(encode(lose(talk.segments, lost)))
    assert [x["correlation_id"] for x in seen.exchanges if x["outcome"] == "response_lost"] == [4]
    assert seen.outcomes.count("answered") == 8


# ---------------------------------------------------------------- beginnings in mid-connection


def begun(talk: KafkaTalk, place: int) -> tuple[list[Segment], list[Row], list[Row]]:
    """What is captured from `place` on, and the exchanges that lie behind it: those wholly so, and the others."""
    captured = talk.segments[place:]
    whole, damaged = expected(captured, talk.segments)
    return captured, whole, damaged


def test_captures_that_begin_anywhere(talk: KafkaTalk) -> None:
    """From the first boundary of each direction on, nothing is lost; nothing is made up."""
    for place in range(1, len(talk.segments)):
        captured, _, _ = begun(talk, place)
        assert_intact(look(place, encode(captured)), captured, talk.segments)


@pytest.mark.parametrize("mss", [100, 1448])
def test_captures_that_begin_within_a_large_response(mss: int) -> None:
    talk = KafkaTalk(mss=mss)
    talk.tcp.open()
    add_exchanges(talk, 2)
    asked = talk.request(FETCH, 4, 70, MaxWaitMs=500)
    partitions = [{"PartitionIndex": n, "Records": bytes(range(256)) * 20} for n in range(4)]
    talk.respond(asked, Responses=[{"Topic": "orders", "Partitions": partitions}])
    add_exchanges(talk, 5, 100)
    talk.tcp.close()
    for place in range(1, len(talk.segments), 9 if mss == 100 else 1):
        captured, _, _ = begun(talk, place)
        assert_intact(look(place, encode(captured)), captured, talk.segments)


def test_the_port_hint_tells_the_broker() -> None:
    """A connection that began before the capture and says nothing of itself: the hint names its broker's end."""
    talk = KafkaTalk(client_id=None)
    talk.tcp.open()
    add_exchanges(talk, 6)
    captured = talk.segments[3:]
    seen = check(encode(captured), ports=[9_092])
    assert_exchanges(seen, talk.wanted)


# ---------------------------------------------------------------- times


def test_times_that_step_back() -> None:
    """Packets keep their own times; durations stay sums of their parts (or 0 where an answer seems to come first)."""
    talk = small_talk(20, mss=80)
    chance = random.Random(3)
    captured = [replace(s, time_ns=s.time_ns - chance.choice((0, 0, 0, 50_000, 3 * MS))) for s in talk.segments]
    seen = check(encode(captured))
    assert_exchanges(seen, expected(captured)[0])
    for x in seen.exchanges:
        assert min(x["broker_ns"], x["hol_wait_ns"], x["throttle_wait_ns"]) >= 0


def test_long_pauses() -> None:
    """A connection that is silent for hours goes on."""
    talk = KafkaTalk()
    talk.tcp.open()
    for n in range(4):
        add_exchanges(talk, 2, 2 * n)
        talk.tcp.wait(3 * 3600 * 1_000 * MS)
    talk.tcp.close()
    assert_exchanges(check(encode(talk.segments)), talk.wanted)


def test_a_retransmission_after_the_close() -> None:
    """Long after both FINs, when the connection may have been forgotten."""
    talk = small_talk(4)
    others = [
        small_talk(2, client=("10.0.0.3", 1000 + n), time_ns=talk.tcp.time_ns + n * 1_000 * MS) for n in range(30)
    ]
    late = replace(talk.segments[-1], time_ns=others[20].tcp.time_ns, flags=ACK | PSH)
    reset = replace(late, flags=RST, time_ns=late.time_ns + 1)
    captured = [*talk.segments, *merge(*(o.segments for o in others), [late, reset])]
    wanted = talk.wanted + [row for o in others for row in o.wanted]
    assert_exchanges(check(encode(captured)), wanted)
