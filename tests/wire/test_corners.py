"""Corners where what came before, or is missing, has to be remembered whatever the blocks are."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest

from tests.support.tcp import ACK, FIN, RST, START_NS, SYN, Segment, encode, merge
from tests.wire.harness import check, decode_packets
from tests.wire.kafkatalk import (
    API_VERSIONS,
    FETCH,
    HEARTBEAT,
    MS,
    PRODUCE,
    KafkaTalk,
    add_exchanges,
    assert_exchanges,
    body,
    raw_request,
    response,
    small_talk,
)
from tests.wire.test_hostile import B, C, engine_after, stream
from tests.wire.test_security import SCRAM, ZOOKEEPER, assert_foreign, foreign, old_sasl
from tests.wire.test_tcp import data_of, reused


def test_software_of_later_requests_in_one_block() -> None:
    """ApiVersions names the software of all that follows on its connection, also within the same block."""
    talk = KafkaTalk()
    talk.tcp.open()
    talk.respond(talk.request(API_VERSIONS, 3, 0, ClientSoftwareName="my-client", ClientSoftwareVersion="1.2.3"))
    add_exchanges(talk, 3, 5)
    talk.tcp.close()
    seen = check(encode(talk.segments))
    assert_exchanges(seen, talk.wanted)
    assert {x["client_software"] for x in seen.exchanges} == {"my-client"}


def test_offered_versions_count_from_where_they_are_told() -> None:
    """A throttled response before the ApiVersions response is judged alike, whether they share a block or not."""
    talk = KafkaTalk(acks=False)
    talk.tcp.open()
    asked = talk.request(PRODUCE, 2, 0)
    talk.tcp.wait(300 * MS)
    talk.respond(asked, ThrottleTimeMs=200)
    offered = [{"ApiKey": PRODUCE, "MaxVersion": 9}, {"ApiKey": FETCH, "MaxVersion": 12}]
    talk.respond(talk.request(API_VERSIONS, 0, 1), ApiKeys=offered)
    talk.respond(talk.request(HEARTBEAT, 0, 2))
    talk.tcp.close()
    assert_exchanges(check(encode(talk.segments)), talk.wanted)


@pytest.mark.parametrize("what", ["reset", "fin", "ack", "data"])
def test_a_late_packet_of_a_connection_that_is_over(what: str) -> None:
    """Seconds after the close: the same connections, whether the old one was put away meanwhile or not."""
    talk = small_talk(4)
    others = [
        small_talk(2, client=("10.0.0.3", 1000 + n), time_ns=talk.tcp.time_ns + n * 1_000 * MS) for n in range(30)
    ]
    flags = {"reset": RST, "fin": FIN | ACK, "ack": ACK, "data": ACK}[what]
    s = talk.segments[data_of(talk.segments, 1)[-1]]
    late = replace(s, time_ns=others[20].tcp.time_ns, flags=flags, payload=s.payload if what == "data" else b"")
    captured = [*talk.segments, *merge(*(o.segments for o in others), [late])]
    assert_exchanges(check(encode(captured)), talk.wanted + [row for o in others for row in o.wanted])


def test_a_late_packet_of_the_connection_before() -> None:
    """The same for a 4-tuple that a new connection uses by then."""
    old, new = reused(100 * MS, closed=True)
    others = [small_talk(2, client=("10.0.0.3", 1000 + n), time_ns=new.tcp.time_ns + n * 1_000 * MS) for n in range(30)]
    late = replace(old.segments[data_of(old.segments)[-1]], time_ns=others[20].tcp.time_ns)
    captured = old.segments + merge(new.segments[:-3], *(o.segments for o in others), [late])
    assert_exchanges(check(encode(captured)), old.wanted + new.wanted + [row for o in others for row in o.wanted])


@pytest.mark.parametrize("number", [3, 5, 7, 9, 11, 13])
def test_old_sasl_with_a_loss(number: int) -> None:
    """A token, its answer or the handshake is lost: what comes after authentication is not."""
    talk = old_sasl(SCRAM, "SCRAM-SHA-256")
    add_exchanges(talk, 5, 2)
    talk.tcp.close()
    whole = {x["correlation_id"] for x in talk.wanted if x["correlation_id"] >= 2}
    assert talk.segments[number].payload
    seen = check(encode(talk.segments[:number] + talk.segments[number + 1 :]))
    assert whole <= {x["correlation_id"] for x in seen.exchanges if x["outcome"] == "answered"}


def test_zookeeper_is_not_kafka() -> None:
    """Its frames have sizes too, and its first one reads as a Produce request with bytes left over."""
    talk = foreign(ZOOKEEPER, broker=("10.0.0.2", 2_181))
    assert_foreign(check(encode(talk.segments)))
    for first in (3, 5, 7):
        assert_foreign(decode_packets(encode(talk.segments[first:])))


@pytest.mark.parametrize("end", [0, 1])
@pytest.mark.parametrize("cut", [1, 2, 3])
def test_a_bad_size_field_over_two_segments(end: int, cut: int) -> None:
    """Every byte is counted once, also where sync is lost within a size field."""
    talk = KafkaTalk()
    talk.tcp.open()
    add_exchanges(talk, 2)
    bad = b"\xff\xff\xff\xf0" + bytes(40)
    talk.tcp.send(end, bad[:cut])
    talk.tcp.send(end, bad[cut:])
    add_exchanges(talk, 3, 10)
    talk.tcp.close()
    check(encode(talk.segments))


def test_a_reset_with_bytes() -> None:
    """A reset may carry a text (RFC 9293, 3.5.3): its bytes are in the ledger, also where it comes alone."""
    talk = small_talk(2)
    reset = replace(talk.segments[4], flags=RST | ACK, payload=b"go away")
    for captured in ([reset], [*talk.segments[:4], reset], [*talk.segments, replace(reset, source=("10.0.0.9", 7))]):
        check(encode(captured))


def test_a_doubtful_frame_in_tiny_segments() -> None:
    """One that may yet turn out to be a request is not decoded anew with each byte of it."""
    data = struct.pack("!ihhih", 900_000, 3, 4, 1, 3) + b"app" + struct.pack("!i", 80_000) + b"\0\1x" * 7_000
    packets = encode(stream(data, 1))
    engine_after(packets)


@pytest.mark.parametrize("acknowledged", [False, True])
def test_tiny_segments_behind_a_gap(acknowledged: bool) -> None:
    """40,000 segments of a byte wait for one that was lost: each is put in its place at once."""
    segments = stream(bytes(40_000), 1, step=100)
    opened = replace(segments[0], flags=SYN, seq=segments[0].seq - 1, payload=b"", time_ns=START_NS - 1)
    captured = [opened, *segments[1:]]
    if acknowledged:
        captured.append(Segment(captured[-1].time_ns, B, C, 1, 40_500, ACK, b"x"))
    packets = encode(captured)
    engine_after(packets)


def test_a_producer_that_never_asks_for_a_reply() -> None:
    """acks=0 for hours: its requests do not pile up until the connection ends."""
    talk = KafkaTalk(mss=60_000, client_id="metrics")
    talk.tcp.open()
    one = body(PRODUCE, 3, 0, Acks=0, TopicData=[{"Name": "t", "PartitionData": [{"Records": b"r" * 20}]}])
    for first in range(0, 200_000, 500):
        talk.tcp.client(b"".join(raw_request(PRODUCE, 3, n, one) for n in range(first, first + 500)))
    engine, rows = engine_after(encode(talk.segments), block=50)
    assert rows == 200_000
    assert engine.ledger()["requests"]["no_reply_expected"] == 200_000
    assert len(engine.dissector.exchanges) <= 131_072


def test_an_orphan_tells_nothing_of_its_client() -> None:
    """What a request would have told is null, wherever blocks end."""
    talk = KafkaTalk()
    talk.tcp.open()
    talk.respond(talk.request(API_VERSIONS, 3, 0, ClientSoftwareName="my-client", ClientSoftwareVersion="1.2.3"))
    talk.tcp.server(response(HEARTBEAT, 0, 777))
    add_exchanges(talk, 2, 5)
    talk.tcp.close()
    seen = check(encode(talk.segments))
    assert [x["client_software"] for x in seen.exchanges if x["outcome"] == "orphan_response"] == [None]
