"""Lost packets cost the exchanges that they carried, and no others: talks made to be misread, with packets taken out.

Correlation ids, partitions and counts are small numbers, so that four bytes inside of a body often read as a size or as
a correlation_id that was asked for.
"""

from __future__ import annotations

import random
import struct
from dataclasses import replace
from typing import Any

import pytest

from tests.support.sweeps import seeds
from tests.support.tcp import Segment, encode, lose
from tests.wire.harness import Decoded, decode_packets
from tests.wire.kafkatalk import (
    API_VERSIONS,
    FETCH,
    HEARTBEAT,
    METADATA,
    PRODUCE,
    SASL_HANDSHAKE,
    KafkaTalk,
    SentRequest,
    key_of,
)
from tests.wire.oracle import expected

LIST_OFFSETS, OFFSET_COMMIT, OFFSET_FETCH = 2, 8, 9
CLIENTS = ("app", "cons-etl-3", None, "", "bill\ting", "\x1b[31mred", "größe")


def _partitions(chance: random.Random, name: str, **values: int) -> list[dict[str, Any]]:
    first = chance.randrange(4)
    return [{name: n, **values} for n in range(first, first + chance.randrange(1, 9))]


def ask(talk: KafkaTalk, chance: random.Random, number: int) -> tuple[SentRequest, dict[str, Any]]:
    """A request of some kind, and the values of its response."""
    kind = chance.randrange(6)
    topics = [
        f"real.{name}" for name in ("cdc.public.users", "clicks", "logs-app", "metrics")[: chance.randrange(1, 5)]
    ]
    if kind < 2:
        asked = talk.request(
            OFFSET_COMMIT, chance.choice((2, 7, 9)), number, GroupId="real-etl", GenerationIdOrMemberEpoch=1,
            Topics=[{"Name": t, "Partitions": _partitions(chance, "PartitionIndex")} for t in topics],
        )  # fmt: skip
        return asked, {
            "Topics": [{"Name": t, "Partitions": _partitions(chance, "PartitionIndex", ErrorCode=0)} for t in topics]
        }
    if kind == 2:
        version = chance.choice((1, 5))
        asked = talk.request(OFFSET_FETCH, version, number, GroupId="real-etl", Topics=[{"Name": t} for t in topics])
        rows = {"CommittedOffset": chance.randrange(20), "ErrorCode": 0}
        return asked, {
            "Topics": [{"Name": t, "Partitions": _partitions(chance, "PartitionIndex", **rows)} for t in topics]
        }
    if kind == 3:
        asked = talk.request(METADATA, chance.choice((1, 8, 12)), number, Topics=[{"Name": t} for t in topics])
        return asked, {"Topics": [{"Name": t, "Partitions": _partitions(chance, "PartitionIndex")} for t in topics]}
    if kind == 4:
        records = [{"Index": n, "Records": chance.randbytes(chance.randrange(900))} for n in range(3)]
        asked = talk.request(
            PRODUCE, chance.choice((3, 9)), number, Acks=1, TopicData=[{"Name": "t", "PartitionData": records}]
        )
        return asked, {"Responses": [{"Name": "t", "PartitionResponses": _partitions(chance, "Index")}]}
    return talk.request(HEARTBEAT, chance.choice((0, 3)), number, GroupId="real-etl", GenerationId=1), {"ErrorCode": 0}


def conversation(chance: random.Random, count: int = 40) -> KafkaTalk:
    talk = KafkaTalk(mss=chance.choice((100, 536, 1448)), client_id=chance.choice(CLIENTS))
    talk.tcp.open()
    talk.respond(talk.request(API_VERSIONS, 0, 0), ApiKeys=[{"ApiKey": n, "MaxVersion": 9} for n in range(20)])
    number = 1
    while number < count:
        waiting = [ask(talk, chance, number + n) for n in range(chance.choice((1, 1, 1, 2, 4, 8)))]
        number += len(waiting)
        for asked, values in waiting:
            talk.respond(asked, **values)
    talk.tcp.close()
    return talk


def thinned(segments: list[Segment], chance: random.Random) -> list[Segment]:
    """Without some runs of packets; those of the handshake stay, so that it is known what is whole."""
    lost: set[int] = set()
    for _ in range(chance.choice((1, 2, 5))):
        first = chance.randrange(3, len(segments))
        lost.update(range(first, first + chance.choice((1, 1, 2, 5, 20))))
    return lose(segments, *lost)


def compared(captured: list[Segment], talk: KafkaTalk) -> tuple[list[Any], list[Any], Decoded]:
    """(exchanges that are whole in the capture and were not found so, exchanges that were never sent), and all."""
    seen = decode_packets(encode(captured))
    whole, _ = expected(captured, talk.segments)
    found = {key_of(x): x for x in seen.exchanges}
    wanted = ("outcome", "request_bytes", "response_bytes", "request_last", "response_first", "response_last")
    missed = []
    for row in whole:
        x = found.get(key_of(row), {})
        if row["outcome"] == "answered" and [x.get(n) for n in wanted] != [row[n] for n in wanted]:
            missed.append(key_of(row))
    sent = {(row["api_key"], row["correlation_id"]) for row in talk.wanted}
    made_up = [
        (x["api_key"], x["correlation_id"]) for x in seen.exchanges
        if x["outcome"] != "orphan_response" and (x["api_key"], x["correlation_id"]) not in sent
    ]  # fmt: skip
    return missed, made_up, seen


@pytest.mark.parametrize("seed", seeds(60, 20))
def test_what_lost_no_packet_is_found(seed: int) -> None:
    chance = random.Random(seed)
    talk = conversation(chance)
    for _ in range(4):
        missed, made_up, _ = compared(thinned(talk.segments, chance), talk)
        assert (missed, made_up) == ([], [])


def without(talk: KafkaTalk, *payloads: int) -> Decoded:
    """What is found without some of the segments with payload."""
    carriers = [n for n, s in enumerate(talk.segments) if s.payload]
    return decode_packets(encode(lose(talk.segments, *(carriers[n] for n in payloads))))


def pairs(seen: Decoded) -> list[tuple[int, int]]:
    return sorted((x["correlation_id"], x["response_bytes"]) for x in seen.exchanges if x["outcome"] == "answered")


def test_no_response_begins_within_one_that_fills_its_segment() -> None:
    """The response to a request that was lost. From its byte 5 on it reads as another one's: 256 bytes, id 0."""
    talk = KafkaTalk()
    talk.tcp.open()
    first = talk.request(API_VERSIONS, 3, 0)
    second = talk.request_raw(SASL_HANDSHAKE, 1, 1, b"\0\x05PLAIN")
    third = talk.request(HEARTBEAT, 0, 2)
    talk.respond(first, ApiKeys=[])
    talk.respond_raw(second, b"\0\0\0\0\0\1\0\x20max.mustermann@acme-corp.example")
    talk.respond_raw(third, b"\0" * 48)
    talk.exchange(METADATA, 1, 3, Brokers=[{"Host": "b" * 200}])
    last = talk.exchange(HEARTBEAT, 0, 4, ErrorCode=0)
    assert pairs(without(talk, 1, 2, 3, 7)) == [(4, last.row["response_bytes"])]


def test_a_response_within_a_segment_ends_with_one_or_before_another() -> None:
    """Inside of a response that began with a lost packet, bytes read as the begin of a long one. Whether it is one, its
    end shows."""
    for length, is_found in ((700, False), (1448, True)):
        talk = KafkaTalk()
        talk.tcp.open()
        offsets, fetched = talk.request(LIST_OFFSETS, 6, 2), talk.request(FETCH, 4, 3)
        talk.respond(offsets)
        begin = struct.pack(">ii", 2 * 1448 - 9 + length - 4, 2) + b"\0" * 5 + b"\2\xd1\x0f"  # a name of 2,000 bytes
        content = (b"\0" * (1440 + 9) + begin).ljust(2 * 1448 - 8, b"\0") + b"\xff" * 3 * 1448
        talk.respond_raw(fetched, content)
        last = talk.exchange(HEARTBEAT, 0, 4, ErrorCode=0)
        found = pairs(without(talk, 2, 3, 5))
        assert found[-1] == (4, last.row["response_bytes"])
        assert (len(found) == 2) is is_found


@pytest.mark.parametrize("seed", seeds(40, 12))
def test_packets_cut_anywhere(seed: int) -> None:
    """Whatever is captured of each packet, down to its headers alone: every byte is counted, no exchange is made up."""
    chance = random.Random(seed)
    talk = conversation(chance, 12)
    sent = {(row["api_key"], row["correlation_id"]) for row in talk.wanted}
    for low, high in ((54, 55), (54, 70), (54, 120), (54, 1_500)):
        packets = [replace(p, data=p.data[: chance.randrange(low, high)]) for p in encode(talk.segments)]
        for first in (0, chance.randrange(3, 12)):
            seen = decode_packets(packets[first:])
            asked = [x for x in seen.exchanges if x["outcome"] != "orphan_response"]
            assert {(x["api_key"], x["correlation_id"]) for x in asked} <= sent
