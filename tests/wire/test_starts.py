"""What a connection carries: told by its first requests, by what answers them, or by what follows; never by a guess."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest

from tests.support.tcp import Segment, encode, frame, lose
from tests.wire.harness import Decoded, check, decode_packets
from tests.wire.kafkatalk import (
    API_VERSIONS,
    FETCH,
    HEARTBEAT,
    METADATA,
    MS,
    PRODUCE,
    SASL_HANDSHAKE,
    KafkaTalk,
    add_exchanges,
    assert_exchanges,
    body,
    raw_request,
    response,
    small_talk,
)
from tests.wire.test_kafka import closed as closed_and_seen
from tests.wire.test_kafka import opened

OFFSET_COMMIT = 8
ODD_CLIENTS = ("bill\ting", "\x1b[31mred\x1b[0m", "\0", "a\x7fb", "line\r\nbreak", "\x01" * 40)
VENDOR_KEYS = (1_001, 10_001, 15_000, 32_767)


def closed(talk: KafkaTalk) -> Decoded:
    seen = closed_and_seen(talk)
    assert seen.ledger["payload bytes"]["kafka_frames"] == seen.ledger["payload bytes"]["total"]
    return seen


def assert_nothing(talk: KafkaTalk) -> None:
    """No exchange is reported, and no connection with Kafka."""
    seen = check(encode(talk.segments))
    assert seen.exchanges == []
    assert [c["protocol"] for c in seen.connections] != ["kafka"]
    parts = seen.ledger["payload bytes"]
    assert parts["not_kafka"] == parts["total"]


# ---------------------------------------------------------------- clients with any name


@pytest.mark.parametrize("name", ODD_CLIENTS)
@pytest.mark.parametrize("mss", [1448, 20])
def test_a_client_id_may_be_any_bytes(name: str, mss: int) -> None:
    talk = opened(client_id=name, mss=mss)
    add_exchanges(talk, 5)
    seen = closed(talk)
    assert {x["client_id"] for x in seen.exchanges} == {name}
    assert seen.connections[0]["client_id"] == name


@pytest.mark.parametrize("name", ODD_CLIENTS)
def test_a_client_id_may_be_any_bytes_in_mid_connection(name: str) -> None:
    talk = small_talk(6, client_id=name)
    for first in (2, 3):
        assert_exchanges(check(encode(talk.segments[first:])), talk.wanted)
    data = [n for n, s in enumerate(talk.segments) if s.payload]
    seen = check(encode(lose(talk.segments, data[2])))  # the second request
    assert [x["correlation_id"] for x in seen.exchanges if x["outcome"] == "answered" and x["client_id"] == name] == [
        row["correlation_id"] for row in seen.exchanges if row["outcome"] == "answered"
    ]
    assert len([x for x in seen.exchanges if x["outcome"] == "answered"]) == 5


def test_such_a_client_ends_old_sasl() -> None:
    """After bare tokens its requests are known to be requests."""
    talk = opened(client_id="bill\ting")
    talk.respond(talk.request(SASL_HANDSHAKE, 0, 1, Mechanism="PLAIN"), ErrorCode=0)
    talk.tcp.client(frame(b"\0user\0password"))
    talk.tcp.server(frame(b""))
    add_exchanges(talk, 4, 10)
    talk.tcp.close()
    seen = check(encode(talk.segments))
    assert_exchanges(seen, talk.wanted)
    assert seen.ledger["requests"]["sasl_tokens"] == 1


# ---------------------------------------------------------------- APIs that nobody knows


@pytest.mark.parametrize("key", VENDOR_KEYS)
@pytest.mark.parametrize("place", ["first", "between", "piped", "only"])
@pytest.mark.parametrize("mss", [1448, 7])
def test_vendor_keys_are_paired(key: int, place: str, mss: int) -> None:
    talk = opened(mss=mss)
    if place == "between":
        add_exchanges(talk, 3)
    asked = [talk.request_raw(key, 0, 100, bytes(range(1, 40)))]
    if place == "piped":
        asked += [talk.request(HEARTBEAT, 0, 101), talk.request_raw(key, 3, 102, b"")]
    for one in asked:
        talk.respond_raw(one, bytes(12))
    if place == "only":
        for number in range(101, 105):
            talk.respond_raw(talk.request_raw(key, 0, number, b"\1\2\3\4" * 5), bytes(12))
    else:
        add_exchanges(talk, 3, 200)
    seen = closed(talk)
    assert {x["request_status"] for x in seen.exchanges if x["api_key"] == key} == {"unknown_api"}


@pytest.mark.parametrize("acks", [True, False])
def test_a_first_request_that_cannot_be_read_waits_for_its_answer(acks: bool) -> None:
    """Of a newer version, malformed, or with bytes left over: what it asked for comes back with its correlation_id."""
    for key, version, content in (
        (METADATA, 99, b"new" * 9),
        (METADATA, 4, b"\x7f\xff\xff\xff"),
        (HEARTBEAT, 0, bytes(40)),
    ):
        talk = opened(acks=acks)
        asked = talk.request_raw(key, version, 70_000, content)
        if version == 99:
            talk.respond_raw(asked, b"\0" * 11)
        else:
            talk.respond(asked)
        add_exchanges(talk, 3, 10)
        closed(talk)


def test_what_follows_confirms_it_too() -> None:
    """Its answer is not even captured, or it never comes."""
    talk = opened()
    talk.request_raw(10_001, 0, 7, b"anything" * 4)
    add_exchanges(talk, 4, 10)
    closed(talk)


def test_an_answer_that_does_not_fit_confirms_nothing() -> None:
    for answer in (struct.pack("!ii", 8, 8) + bytes(4), struct.pack("!ii", 3, 7), b"HTTP/1.1 200 OK\r\n\r\n"):
        talk = KafkaTalk()
        talk.tcp.open()
        talk.tcp.client(raw_request(10_001, 0, 7, b"anything" * 4))
        talk.tcp.server(answer)
        talk.tcp.close()
        assert_nothing(talk)


# ---------------------------------------------------------------- a single request, and what only looks like one


@pytest.mark.parametrize("end", ["close", "reset", "nothing"])
@pytest.mark.parametrize("name", ["app", None, "bill\ting"])
def test_a_single_request_without_an_answer(end: str, name: str | None) -> None:
    """A producer with acks=0, or a broker that is dead: the body reads to its end."""
    records = [{"Name": "orders", "PartitionData": [{"Index": 0, "Records": b"r" * 90}]}]
    for key, version, values, outcome in (
        (PRODUCE, 3, {"Acks": 0, "TopicData": records}, "no_reply_expected"),
        (PRODUCE, 9, {"Acks": 1, "TopicData": records}, "unanswered"),
        (METADATA, 12, {"Topics": [{"Name": "orders"}]}, "unanswered"),
        (API_VERSIONS, 0, {}, "unanswered"),
    ):
        talk = opened(client_id=name)
        if end == "nothing" and outcome == "unanswered":
            outcome = "in_flight"  # the connection is open
        talk.request(key, version, 1, **values).row["outcome"] = outcome  # type: ignore[arg-type]
        if end != "nothing":
            getattr(talk.tcp, end)()
        assert_exchanges(check(encode(talk.segments)), talk.wanted)


def test_a_single_request_of_an_unknown_api() -> None:
    """It ends where its segment does and names its client."""
    talk = opened()
    talk.request_raw(999, 0, 77, b"")
    closed(talk)


#: By name: (end, bytes) as they are sent.
LOOKALIKES = {
    # a record that begins a FastCGI request, then its parameters
    "fastcgi": [
        (0, b"\1\1\0\1\0\x08\0\0\0\1\0\0\0\0\0\0"), (0, b"\1\4\0\1\0\x10\0\0\x0e\0SCRIPT_FILENAM"),
        (1, b"\1\6\0\1\0\0\0\0"),
    ],
    # a length that includes itself
    "smpp": [
        (0, b"\0\0\0\x1f\0\0\0\x09\0\0\0\0\0\0\0\1user\0pass\0\0\x34\0\0\0"),
        (1, b"\0\0\0\x15\x80\0\0\x09\0\0\0\0\0\0\0\1smsc\0"),
        (0, b"\0\0\0\x10\0\0\0\x15\0\0\0\0\0\0\0\2"), (1, b"\0\0\0\x10\x80\0\0\x15\0\0\0\0\0\0\0\2"),
    ],
    # a magic word that reads as a size of 5 MB
    "gearman": [(0, b"\0REQ\0\0\0\x07\0\0\0\x0acount\0\0some"), (1, b"\0RES\0\0\0\x08\0\0\0\4H:1\0")],
    "openflow": [
        (0, b"\4\0\0\x08\0\0\0\1"), (1, b"\4\0\0\x08\0\0\0\2"), (0, b"\4\2\0\x08\0\3\0\1"),
        (1, b"\4\3\0\x08\0\3\0\1"),
    ],
    "dcerpc": [
        (0, b"\5\0\x0b\3\x10\0\0\0\x48\0\0\0\1\0\0\0\xb8\x10\xb8\x10" + bytes(52)),
        (1, b"\5\0\x0c\3\x10\0\0\0\x3c\0\0\0\1\0\0\0" + bytes(44)), (0, b"\0\0\0\x14\0\0\0\2" + bytes(16)),
    ],
    "echo": [(0, b"\0\0\0\x10" + bytes(16)), (1, b"\0\0\0\x10" + bytes(16))],
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(LOOKALIKES))
@pytest.mark.parametrize("mss", [1448, 6])
def test_lookalikes(name: str, mss: int) -> None:
    """Whole, and begun in the middle, with the port hinted at."""
    talk = KafkaTalk(mss=mss)
    talk.tcp.open()
    for end, data in LOOKALIKES[name] * 3:
        talk.tcp.send(end, data)
    talk.tcp.close()
    assert_nothing(talk)
    for first in range(1, len(talk.segments)):
        seen = decode_packets(encode(talk.segments[first:]), ports=[9_092])
        assert not seen.exchanges, first
        assert [c["protocol"] for c in seen.connections] != ["kafka"], first


def test_an_answer_captured_before_its_request() -> None:
    """As interfaces with several queues have it: the connection is not given up."""
    talk = small_talk(6, mss=12)
    data = [n for n, s in enumerate(talk.segments) if s.payload and s.source == talk.tcp.ends[0]]
    answer = next(n for n, s in enumerate(talk.segments) if s.payload and s.source == talk.tcp.ends[1])
    segments = list(talk.segments)
    early = replace(segments.pop(answer), ack=segments[data[0]].seq)
    segments.insert(data[1], early)
    seen = decode_packets(encode(segments))
    assert {x["correlation_id"] for x in seen.exchanges if x["outcome"] == "answered"} >= {1, 2, 3, 4, 5}


# ---------------------------------------------------------------- a frame that later ones contradict


@pytest.mark.parametrize("size", [0x700, 0x70000])
def test_a_doubtful_response_is_given_up(size: int) -> None:
    """Numbers in a body read as the start of a response that was asked for; then bytes are missing, then come whole
    ones."""
    talk = KafkaTalk()
    add_exchanges(talk, 1)
    asked = [talk.request(OFFSET_COMMIT, 9, n, GroupId="etl") for n in range(14, 20)]
    talk.tcp.server(b"\xff" * 30 + struct.pack("!ii", size, 14) + b"\0\0\0\0\0\x7f\x7f" + b"a" * 60)
    talk.tcp.skip(1, 54)
    for one in asked:
        talk.respond(one)
    add_exchanges(talk, 2, 30)
    seen = check(encode(talk.segments))
    answered = [x for x in seen.exchanges if x["outcome"] == "answered"]
    assert_exchanges(replace(seen, exchanges=answered), talk.wanted)


def test_a_doubtful_response_that_is_none_in_the_end() -> None:
    """It ends by arithmetic where no response begins: that is not taken for one."""
    talk = KafkaTalk()
    add_exchanges(talk, 1)
    asked = [talk.request(OFFSET_COMMIT, 9, n, GroupId="etl") for n in range(14, 20)]
    talk.tcp.server(b"\xff" * 30 + struct.pack("!ii", 300, 14) + b"\0\0\0\0\0\x7f\x7f" + b"a" * 60)
    talk.tcp.skip(1, 54)
    data = b"".join(response(OFFSET_COMMIT, 9, one.correlation_id, Topics=[{"Name": "t" * 90}]) for one in asked)
    for at in range(0, len(data), 100):
        talk.tcp.server(data[at : at + 100])
    add_exchanges(talk, 2, 30)
    seen = check(encode(talk.segments))
    assert {x["correlation_id"] for x in seen.exchanges if x["outcome"] == "answered"} >= {0, 17, 18, 19, 30, 31}
    assert not [x for x in seen.exchanges if x["outcome"] == "orphan_response"]


def test_a_true_response_with_a_gap_is_kept() -> None:
    """Its segments hold whole frames of other connections, which answer nothing that was asked here."""
    talk = KafkaTalk(mss=200)
    add_exchanges(talk, 2)
    inner = b"".join(s.payload for s in small_talk(8, client=("1.1.1.1", 1)).segments)
    asked = talk.request(FETCH, 4, 500, Topics=[{"Topic": "t", "Partitions": [{"Partition": 0}]}])
    start = len(talk.segments)
    talk.respond(asked, Responses=[{"Topic": "t", "Partitions": [{"PartitionIndex": 0, "Records": inner}]}])
    add_exchanges(talk, 2, 600)
    answer = [n for n in range(start, len(talk.segments)) if talk.segments[n].payload]
    segments: list[Segment] = lose(talk.segments[start - 1 :], answer[2] - start + 1)
    seen = check(encode([*talk.segments[: start - 1], *segments]))
    assert_exchanges(seen, talk.wanted)


def test_no_duration_is_negative_where_the_clock_steps_back() -> None:
    talk = opened()
    talk.respond(talk.request(API_VERSIONS, 0, 0))
    first, second = talk.request(HEARTBEAT, 0, 1), talk.request(HEARTBEAT, 0, 2)
    talk.respond(first)
    talk.tcp.wait(-5_000 * MS)
    talk.respond(second)
    talk.tcp.wait(5_000 * MS)
    talk.respond(talk.request(HEARTBEAT, 0, 3))
    talk.tcp.wait(-3_000 * MS)
    asked = talk.request_raw(HEARTBEAT, 0, 4, body(HEARTBEAT, 0, 0))
    talk.tcp.wait(-1_000 * MS)
    talk.respond(asked)
    talk.tcp.close()
    for x in check(encode(talk.segments)).exchanges:
        assert min(x["broker_ns"], x["hol_wait_ns"], x["throttle_wait_ns"]) >= 0
        assert x["total_ns"] >= x["broker_ns"] + x["hol_wait_ns"] + x["throttle_wait_ns"]
