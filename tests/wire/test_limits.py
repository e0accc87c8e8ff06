"""Limits (`Limits`): what goes beyond them is given up and counted, and everything else stays right."""

from __future__ import annotations

import pytest

from kafkatap.engine.engine import Engine
from kafkatap.engine.limits import Limits
from kafkatap.engine.read_options import ReadOptions
from kafkatap.reassembly.dtypes import Bounds
from tests.support.captures import Packet
from tests.support.tcp import START_NS, encode, merge
from tests.wire.harness import Decoded, decode_packets
from tests.wire.kafkatalk import METADATA, PRODUCE, KafkaTalk, small_talk

BROKER = ("10.0.1.1", 9_092)


def decode(packets: list[Packet], limits: Limits, parts: int = 20) -> Decoded:
    """In `parts`, as limits apply between two of them."""
    size = -(-len(packets) // parts)
    return decode_packets(packets, engine=Engine(ReadOptions(limits=limits), all_results=True), runs=[size] * parts)


def opened(number: int = 0, **options: object) -> KafkaTalk:
    talk = KafkaTalk((f"10.0.0.{number + 1}", 20_000), BROKER, time_ns=START_NS + number * 1_000, **options)  # type: ignore[arg-type]
    talk.tcp.open()
    return talk


def test_the_usual_limits_are_those_of_reassembly() -> None:
    assert Limits().bounds() == Bounds()


def test_the_oldest_waiting_requests_are_given_up() -> None:
    talk = opened()
    for number in range(100):
        talk.request(METADATA, 4, number, Topics=[])
    talk.respond(talk.request(METADATA, 4, 100, Topics=[]), Topics=[], ControllerId=1)
    seen = decode(encode(talk.tcp.segments), Limits(waiting=30))
    assert len(seen.exchanges) == 101
    assert seen.outcomes.count("answered") == 1, "the newest one still waited"
    assert 70 <= seen.ledger["limits"]["requests"] <= 100
    assert "limits" not in decode(encode(talk.tcp.segments), Limits()).ledger


def test_names_beyond_the_limit_are_other() -> None:
    talks = []
    for number in range(40):
        talk = opened(number, client_id=f"client-{number}")
        asked = talk.request(METADATA, 4, 1, Topics=[{"Name": f"topic-{number}"}])
        talk.respond(asked, Topics=[{"Name": f"topic-{number}", "ErrorCode": 3}], ControllerId=1)
        talks.append(talk)
    packets = encode(merge(*(talk.tcp.segments for talk in talks)))
    whole, seen = decode(packets, Limits()), decode(packets, Limits(names=12))
    assert len(seen.exchanges) == 40
    clients = {x["client_id"] for x in seen.exchanges}
    assert "(other)" in clients
    assert len(clients) <= 12
    assert {x["client_ip"] for x in seen.exchanges} > {"(other)"}
    assert "(other)" in {result["topic"] for result in seen.results}
    assert seen.ledger["limits"]["names"] > 40
    assert [x["outcome"] for x in seen.exchanges] == [x["outcome"] for x in whole.exchanges]
    without = [{k: v for k, v in each.ledger.items() if k != "limits"} for each in (whole, seen)]
    assert without[0] == without[1]


def test_messages_are_cut_while_too_much_is_not_complete() -> None:
    """Three large requests at once. Of the messages around them nothing is missing."""
    talks = []
    for number in range(3):
        talk = opened(number, mss=1_000)
        talk.respond(talk.request(METADATA, 4, 0, Topics=[]), Topics=[], ControllerId=1)
        records = bytes(200_000)
        topics = [{"Name": "t", "PartitionData": [{"Index": 0, "Records": records}]}]
        asked = talk.request(PRODUCE, 3, 1, Acks=-1, TimeoutMs=1, TopicData=topics)
        answer = [{"Name": "t", "PartitionResponses": [{"Index": 0, "BaseOffset": 1}]}]
        talk.respond(asked, Responses=answer)
        talk.respond(talk.request(METADATA, 4, 2, Topics=[]), Topics=[], ControllerId=1)
        talks.append(talk)
    packets = encode(merge(*(talk.tcp.segments for talk in talks)))
    seen = decode(packets, Limits(held=100_000), parts=40)
    assert seen.outcomes == ["answered"] * 9
    assert seen.ledger["limits"]["messages"] == 3
    status = {(x["api_key"], x["request_status"]) for x in seen.exchanges}
    assert status == {(0, "incomplete"), (3, "ok")}
    assert "limits" not in decode(packets, Limits(), parts=40).ledger


def test_a_large_first_message_is_given_up_and_what_follows_is_found() -> None:
    talk = opened(mss=1_000)
    topics = [{"Name": "t", "PartitionData": [{"Index": 0, "Records": bytes(200_000)}]}]
    asked = talk.request(PRODUCE, 3, 1, Acks=-1, TimeoutMs=1, TopicData=topics)
    talk.respond(asked, Responses=[{"Name": "t", "PartitionResponses": [{"Index": 0, "BaseOffset": 1}]}])
    for number in range(2, 5):
        talk.respond(talk.request(METADATA, 4, number, Topics=[]), Topics=[], ControllerId=1)
    seen = decode(encode(talk.tcp.segments), Limits(held=50_000), parts=40)
    assert [x["correlation_id"] for x in seen.exchanges if x["outcome"] == "answered"] == [2, 3, 4]


def test_a_search_gives_its_bytes_up() -> None:
    """Connections without a start, whose bytes are no Kafka: what is searched stays within the limit."""
    talks = []
    for number in range(6):
        talk = KafkaTalk((f"10.0.0.{number + 1}", 20_000), BROKER, time_ns=START_NS + number, mss=1_000)
        talk.tcp.client(b"\0\1\2\3" * 2_500)
        talks.append(talk)
    packets = encode(merge(*(talk.tcp.segments for talk in talks)))
    engine = Engine(ReadOptions(limits=Limits(held=20_000)), all_results=True)
    seen = decode_packets(packets, engine=engine, runs=[3] * len(packets))
    assert not seen.exchanges
    assert seen.ledger["payload bytes"]["not_kafka"] == seen.ledger["payload bytes"]["total"]


@pytest.mark.parametrize("limits", [Limits(connections=4), Limits(held=64)])
def test_connections_and_gaps_beyond_the_limit_are_counted(limits: Limits) -> None:
    talks = []
    for number in range(12):
        talk = small_talk(2, client=(f"10.0.0.{number + 1}", 20_000), time_ns=START_NS + number * 10**7)
        kept = [segment for segment in talk.tcp.segments if not segment.flags & 1]  # without FINs
        if limits.held == 64:
            del kept[3]
        talks.append(kept)
    seen = decode(encode(merge(*talks)), limits, parts=1)
    part = "gaps" if limits.held == 64 else "connections"
    assert seen.ledger["limits"][part] == seen.ledger["limits"]["total"] > 0
