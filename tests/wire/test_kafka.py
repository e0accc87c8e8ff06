"""What Kafka's clients and brokers do that a reader of the protocol would not expect."""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import Any

import pytest

from kafkatap.dissector import dtypes as r
from tests.support.tcp import encode, frame, merge
from tests.wire.harness import Decoded, Row, check, decode_packets
from tests.wire.kafkatalk import (
    API_VERSIONS,
    CONTROLLED_SHUTDOWN,
    CREATE_TOPICS,
    FETCH,
    FIND_COORDINATOR,
    HEARTBEAT,
    METADATA,
    MS,
    PRODUCE,
    KafkaTalk,
    SentRequest,
    add_exchanges,
    assert_exchanges,
    body,
    small_talk,
)


def opened(**options: Any) -> KafkaTalk:
    talk = KafkaTalk(**options)
    talk.tcp.open()
    return talk


def closed(talk: KafkaTalk) -> Decoded:
    """Close the connection; look at it in every cutting; its exchanges are those wanted."""
    talk.tcp.close()
    seen = check(encode(talk.segments))
    assert_exchanges(seen, talk.wanted)
    return seen


def of(seen: Decoded, correlation_id: int) -> Row:
    [x] = [x for x in seen.exchanges if x["correlation_id"] == correlation_id]
    return x


def produce(talk: KafkaTalk, correlation_id: int, acks: int, version: int = 3) -> SentRequest:
    partitions = [{"Index": n, "Records": b"r" * 40} for n in range(2)]
    return talk.request(
        PRODUCE, version, correlation_id, Acks=acks, TopicData=[{"Name": "orders", "PartitionData": partitions}]
    )


# ---------------------------------------------------------------- versions


def test_api_versions_fall_back() -> None:
    """A broker that does not know the version answers in v0 with error 35, whatever was asked."""
    talk = opened()
    asked = talk.request(API_VERSIONS, 4, 0, ClientSoftwareName="x", ClientSoftwareVersion="1")
    talk.respond(asked, version=0, ErrorCode=35, ApiKeys=[{"ApiKey": 18, "MaxVersion": 3}])
    asked = talk.request(API_VERSIONS, 3, 1, ClientSoftwareName="x", ClientSoftwareVersion="1")
    talk.respond(asked, ApiKeys=[{"ApiKey": n, "MaxVersion": 9} for n in range(30)])
    seen = closed(talk)
    assert of(seen, 0)["errors"] == {35: 1}
    assert of(seen, 0)["response_status"] == "ok"
    assert of(seen, 0)["throttle_time_ms"] == -(2**31)
    assert of(seen, 1)["errors"] == {}
    assert of(seen, 1)["response_status"] == "ok"


def test_api_versions_of_a_version_nobody_knows() -> None:
    talk = opened()
    asked = talk.request_raw(API_VERSIONS, 77, 0, b"\0\x05what\x02x\0")
    talk.respond_raw(asked, body(API_VERSIONS, 0, 1, ErrorCode=35, ApiKeys=[{"ApiKey": 18, "MaxVersion": 3}]))
    add_exchanges(talk, 3, 5)
    seen = closed(talk)
    assert of(seen, 0)["request_status"] == "unknown_version"
    assert of(seen, 0)["errors"] == {35: 1}


def test_controlled_shutdown_without_a_client_id() -> None:
    talk = opened()
    asked = talk.request(CONTROLLED_SHUTDOWN, 0, 3, BrokerId=4)
    talk.respond(asked, ErrorCode=0, RemainingPartitions=[{"TopicName": "t", "PartitionIndex": 1}])
    add_exchanges(talk, 2, 10)
    asked = talk.request(CONTROLLED_SHUTDOWN, 0, 4, BrokerId=4)
    talk.respond(asked, ErrorCode=3)
    asked = talk.request(CONTROLLED_SHUTDOWN, 1, 5, BrokerId=4)
    talk.respond(asked, ErrorCode=0)
    seen = closed(talk)
    assert of(seen, 4)["errors"] == {3: 1}
    assert {x["request_status"] for x in seen.exchanges} == {"ok"}


@pytest.mark.parametrize(("key", "version", "status"), [
    (499, 0, "unknown_api"), (120, 3, "unknown_api"), (METADATA, 99, "unknown_version"), (-5, 1, "unknown_api"),
    (FETCH, 31, "unknown_version"), (-32768, -1, "unknown_api"), (METADATA, -1, "unknown_version"),
])  # fmt: skip
def test_unknown_keys_and_versions(key: int, version: int, status: str) -> None:
    """Within a connection that speaks Kafka: they are paired, and said to be unknown."""
    talk = opened()
    add_exchanges(talk, 1)
    asked = talk.request_raw(key, version, 7, b"anything" * 9)
    talk.respond_raw(asked, b"\0" * 11)
    add_exchanges(talk, 2, 10)
    if key < 0 or version < 0:  # no header that a client means: it may be passed over, and no more than that
        talk.tcp.close()
        seen = check(encode(talk.segments))
        rest = [x for x in seen.exchanges if x["correlation_id"] != 7]
        assert_exchanges(replace(seen, exchanges=rest), [row for row in talk.wanted if row["correlation_id"] != 7])
        return
    x = of(closed(talk), 7)
    assert (x["request_status"], x["response_status"]) == (status, status)


@pytest.mark.parametrize(("key", "version"), [(499, 0), (METADATA, 99)])
def test_unknown_ones_first(key: int, version: int) -> None:
    talk = opened()
    asked = talk.request_raw(key, version, 7, b"anything" * 9)
    talk.respond_raw(asked, b"\0" * 11)
    add_exchanges(talk, 2, 10)
    closed(talk)


# ---------------------------------------------------------------- bodies


def test_trailing_bytes_are_told() -> None:
    """As librdkafka sends them: 4 after ApiVersions v0, 3 after Metadata v12."""
    talk = opened()
    asked = talk.request_raw(API_VERSIONS, 0, 1, b"\0\0\0\0")
    talk.respond_raw(asked, body(API_VERSIONS, 0, 1) + b"xyz")
    asked = talk.request_raw(METADATA, 12, 2, body(METADATA, 12, 0, Topics=None) + b"\0\0\0")
    talk.respond(asked, Topics=[{"Name": "t", "ErrorCode": 5}])
    add_exchanges(talk, 2, 10)
    seen = closed(talk)
    assert (of(seen, 1)["request_status"], of(seen, 1)["response_status"]) == ("trailing_bytes", "trailing_bytes")
    assert (of(seen, 2)["request_status"], of(seen, 2)["response_status"]) == ("trailing_bytes", "ok")
    first = of(seen, 1)
    assert (first["request_problem"], first["request_problem_at"]) == (None, first["request_bytes"] + 4 - 4)
    assert (first["response_problem"], first["response_problem_at"]) == (None, first["response_bytes"] + 4 - 3)
    assert of(seen, 2)["request_problem_at"] == of(seen, 2)["request_bytes"] + 4 - 3
    assert of(seen, 2)["response_problem_at"] == r.NO_INT32
    assert of(seen, 2)["errors"] == {5: 1}


def test_malformed_bodies_keep_their_pairs() -> None:
    talk = opened()
    add_exchanges(talk, 1)
    asked = talk.request_raw(METADATA, 4, 1, b"\x7f\xff\xff\xff" * 3)
    talk.respond_raw(asked, b"\x7f\xff\xff\xff" * 9)
    asked = talk.request_raw(METADATA, 9, 2, b"\0" + b"\xff" * 20)
    talk.respond_raw(asked, b"\0" + b"\xff" * 30)
    asked = talk.request_raw(METADATA, 4, 3, b"")
    talk.respond_raw(asked, b"")
    add_exchanges(talk, 2, 10)
    seen = closed(talk)
    for n in (1, 2, 3):
        assert (of(seen, n)["request_status"], of(seen, n)["response_status"]) == ("malformed", "malformed")
    names = ("request_problem", "request_problem_at", "response_problem", "response_problem_at")
    header = 4 + 8 + 2 + len("app")
    assert [tuple(of(seen, n)[name] for name in names) for n in (0, 1, 2, 3)] == [
        (None, r.NO_INT32, None, r.NO_INT32),
        ("Topics", header + 4, "Brokers", 8 + 4 + 4),
        ("Topics", header + 1, "Brokers", 8 + 1 + 4),
        ("Topics", header, "ThrottleTimeMs", 8),
    ]


def test_nulls_where_none_may_be() -> None:
    """As a mock broker sends them in error responses: taken as null."""
    talk = opened()
    asked = talk.request(FIND_COORDINATOR, 1, 1, Key="g")
    talk.respond_raw(asked, struct.pack("!ihhih", 0, 15, -1, -1, -1) + struct.pack("!i", -1))
    add_exchanges(talk, 2, 10)
    seen = closed(talk)
    assert of(seen, 1)["response_status"] == "ok"
    assert of(seen, 1)["errors"] == {15: 1}


def test_error_codes_at_every_level() -> None:
    talk = opened()
    asked = talk.request(METADATA, 13, 1)
    partitions = [{"ErrorCode": code, "PartitionIndex": n} for n, code in enumerate((0, 5, 6, 5))]
    topics = [{"Name": "a", "ErrorCode": 3}, {"Name": "b", "Partitions": partitions}, {"Name": "c", "ErrorCode": -1}]
    talk.respond(asked, ErrorCode=41, Topics=topics)
    asked = talk.request(FETCH, 4, 2, Topics=[{"Topic": "b", "Partitions": [{"Partition": 3}]}])
    partitions = [{"PartitionIndex": 3, "ErrorCode": 5120}, {"PartitionIndex": 4, "ErrorCode": 6}]
    talk.respond(asked, Responses=[{"Topic": "b", "Partitions": partitions}])
    seen = closed(talk)
    assert of(seen, 1)["errors"] == {3: 1, 5: 2, 6: 1, -1: 1, 41: 1}
    assert of(seen, 2)["errors"] == {5120: 1, 6: 1}
    named = {(x["topic"], x["partition"], x["error_code"]) for x in seen.results if x["error_code"] in (5, 6, 3, -1)}
    assert {("a", -(2**31), 3), ("b", 1, 5), ("b", 2, 6), ("b", 3, 5), ("c", -(2**31), -1), ("b", 4, 6)} == named


def test_topics_by_id_get_their_names_from_any_connection() -> None:
    """Before or after, by Metadata or CreateTopics; unknown ones stay ids."""
    ids = [bytes([n]) * 16 for n in (1, 2, 3)]
    fetcher = opened(mss=500)
    asked = fetcher.request(FETCH, 13, 1, Topics=[{"TopicId": i, "Partitions": [{"Partition": 0}]} for i in ids])
    fetcher.respond(
        asked, Responses=[{"TopicId": i, "Partitions": [{"ErrorCode": 6, "PartitionIndex": 0}]} for i in ids]
    )
    fetcher.tcp.close()
    admin = opened(client=("10.0.0.7", 5000), time_ns=fetcher.tcp.time_ns - 300_000)
    asked = admin.request(METADATA, 12, 1)
    admin.respond(
        asked, Topics=[{"Name": "one", "TopicId": ids[0]}, {"Name": None, "TopicId": ids[2], "ErrorCode": 100}]
    )
    asked = admin.request(CREATE_TOPICS, 7, 2)
    admin.respond(asked, Topics=[{"Name": "two", "TopicId": ids[1]}])
    admin.tcp.close()
    seen = check(encode(merge(fetcher.segments, admin.segments)))
    assert_exchanges(seen, fetcher.wanted + admin.wanted)
    topics = {x["topic"] for x in seen.results if x["error_code"] == 6}
    assert topics == {"one", "two", "AwMDAwMDAwMDAwMDAwMDAw"}


@pytest.mark.parametrize(
    ("api", "version", "path", "comes_first"),
    [(4, 5, "TopicName", False), (4, 7, "TopicName", True), (6, 7, "TopicName", True), (6, 8, "TopicName", False),
     (20, 6, "Name", False), (75, 0, "Name", True)],
)  # fmt: skip
def test_topics_by_id_get_their_names_from_controllers_and_tools(
    api: int, version: int, path: str, comes_first: bool
) -> None:
    """LeaderAndIsr and UpdateMetadata requests; DeleteTopics and DescribeTopicPartitions responses."""
    ids = [bytes([n]) * 16 for n in (1, 2)]
    fetcher = opened(mss=500)
    asked = fetcher.request(FETCH, 13, 1, Topics=[{"TopicId": i, "Partitions": [{"Partition": 0}]} for i in ids])
    partitions = [{"ErrorCode": 6, "PartitionIndex": 0}]
    fetcher.respond(asked, Responses=[{"TopicId": i, "Partitions": partitions} for i in ids])
    fetcher.tcp.close()
    offset = -9_000_000 if comes_first else 300_000
    other = opened(client=("10.0.0.7", 5000), time_ns=fetcher.tcp.time_ns + offset)
    named = [{path: "one", "TopicId": ids[0]}, {path: "none", "TopicId": bytes(16)}]
    if api in (4, 6):
        other.respond(other.request(api, version, 1, TopicStates=named))
    else:
        other.respond(other.request(api, version, 1), **{"Responses" if api == 20 else "Topics": named})
    other.tcp.close()
    seen = check(encode(merge(fetcher.segments, other.segments)))
    assert_exchanges(seen, fetcher.wanted + other.wanted)
    assert {x["topic"] for x in seen.results if x["error_code"] == 6} == {"one", "AgICAgICAgICAgICAgICAg"}


# ---------------------------------------------------------------- pairing


@pytest.mark.parametrize("version", [0, 3, 9, 13])
def test_acks_0_is_not_answered(version: int) -> None:
    talk = opened()
    for n in range(4):
        produce(talk, n, 0, version).row["outcome"] = "no_reply_expected"
        asked = produce(talk, 100 + n, 1, version)
        talk.respond(asked)
    produce(talk, 9, 0, version).row["outcome"] = "no_reply_expected"
    seen = closed(talk)
    assert of(seen, 0)["acks"] == 0
    assert of(seen, 101)["acks"] == 1


@pytest.mark.parametrize("version", [0, 3, 9])
def test_acks_0_answered_all_the_same(version: int) -> None:
    talk = opened()
    for n in range(4):
        asked = produce(talk, n, 0, version)
        talk.respond(asked)
    seen = closed(talk)
    assert seen.ledger["requests"]["answered"] == 4


def test_pipelines() -> None:
    talk = opened(mss=200)
    asked = [talk.request(HEARTBEAT, 0, n) for n in range(40)]
    for one in asked:
        talk.respond(one, ErrorCode=27)
    closed(talk)


def test_a_pipeline_in_one_segment() -> None:
    """Twenty requests and their answers, each side in one segment."""
    single = opened()
    asked = [single.request(HEARTBEAT, 0, n) for n in range(20)]
    for one in asked:
        single.respond(one)
    talk = opened()
    for end in (0, 1):
        sender = single.tcp.ends[end]
        talk.tcp.send(end, b"".join(s.payload for s in single.segments if s.source == sender))
    talk.tcp.close()
    seen = check(encode(talk.segments))
    assert len(seen.exchanges) == 20
    data = [s for s in talk.segments if s.payload]
    for x in seen.exchanges:
        assert x["request_first"] == x["request_last"] == data[0].time_ns
        assert x["response_first"] == x["response_last"] == data[1].time_ns
        assert x["outcome"] == "answered"


@pytest.mark.parametrize("ids", [
    [0, 0, 0, 0], [-1, -2, -3, -2**31], [2**31 - 1, -2**31, 0, 1], [7, 7, 8, 7], [1000, 5, -5, 5],
], ids=str)  # fmt: skip
def test_any_correlation_ids(ids: list[int]) -> None:
    talk = opened()
    for n in ids:
        asked = talk.request(HEARTBEAT, 0, n)
        talk.respond(asked)
    several = [talk.request(HEARTBEAT, 0, n) for n in ids]
    for one in several:
        talk.respond(one)
    closed(talk)


def test_requests_without_a_response() -> None:
    """In the middle and at the end; nothing was lost, so nothing is said to be."""
    talk = opened()
    add_exchanges(talk, 2)
    talk.request(HEARTBEAT, 0, 50)
    talk.request(HEARTBEAT, 0, 51)
    add_exchanges(talk, 3, 60)
    talk.request(HEARTBEAT, 0, 70)
    seen = closed(talk)
    assert seen.ledger["requests"]["unanswered"] == 3


def test_responses_without_a_request() -> None:
    talk = opened()
    add_exchanges(talk, 2)
    talk.tcp.server(frame(struct.pack("!i", 777) + bytes(20)))
    add_exchanges(talk, 3, 60)
    talk.tcp.close()
    seen = check(encode(talk.segments))
    orphans = [x for x in seen.exchanges if x["outcome"] == "orphan_response"]
    assert [(x["correlation_id"], x["response_bytes"], x["request_bytes"]) for x in orphans] == [(777, 24, -1)]
    assert_exchanges(replace(seen, exchanges=[x for x in seen.exchanges if x not in orphans]), talk.wanted)


def test_no_client_id_and_an_empty_one() -> None:
    for name in (None, "", "größe", "x" * 300):
        talk = opened(client_id=name)
        add_exchanges(talk, 4)
        closed(talk)


@pytest.mark.parametrize("port", [80, 443, 53, 22, 65_535, 1])
def test_kafka_on_any_port(port: int) -> None:
    talk = small_talk(3, broker=("10.0.0.2", port), client=("10.0.0.1", 9_092))
    assert_exchanges(decode_packets(encode(talk.segments)), talk.wanted)


@pytest.mark.parametrize("swap", [False, True])
def test_orientation_without_a_handshake(swap: bool) -> None:
    """Told by the requests, whichever end has the smaller address, and whoever speaks first in the capture."""
    ends = [("10.0.0.1", 9_092), ("10.0.0.2", 9_093)]
    talk = small_talk(6, client=ends[swap], broker=ends[not swap])
    for first in (2, 3):
        seen = check(encode(talk.segments[first:]))
        assert_exchanges(seen, talk.wanted)
    data = [n for n, s in enumerate(talk.segments) if s.payload]
    seen = check(encode(talk.segments[data[1] :]))
    assert_exchanges(
        replace(seen, exchanges=[x for x in seen.exchanges if x["outcome"] == "answered"]), talk.wanted[1:]
    )


def test_a_request_inside_of_an_envelope_is_one_request() -> None:
    talk = opened()
    inner = struct.pack("!hhih", 3, 4, 99, 1) + b"c" + body(METADATA, 4, 0)
    asked = talk.request(58, 0, 1, RequestData=inner, ClientHostAddress=b"\x0a\0\0\1")
    talk.respond(
        asked, ErrorCode=0, ResponseData=struct.pack("!i", 99) + body(METADATA, 4, 1, Topics=[{"ErrorCode": 3}])
    )
    seen = closed(talk)
    assert of(seen, 1)["errors"] == {}


def test_software_of_later_requests() -> None:
    """ApiVersions names the software of all that follows on its connection."""
    talk = opened()
    add_exchanges(talk, 1)
    asked = talk.request(API_VERSIONS, 3, 50, ClientSoftwareName="my-client", ClientSoftwareVersion="1.2.3")
    talk.respond(asked)
    add_exchanges(talk, 3, 60)
    talk.tcp.close()
    seen = decode_packets(encode(talk.segments), runs=[1] * len(talk.segments))
    assert {x["client_software"] for x in seen.exchanges if x["correlation_id"] >= 50} == {"my-client"}
    assert seen.connections[0]["software"] == "my-client"
    assert seen.connections[0]["software_version"] == "1.2.3"


def test_long_polls() -> None:
    talk = opened(acks=False)
    for n, (wait, took) in enumerate(((500, 500), (500, 100), (500, 1_400), (0, 30), (100, 99))):
        asked = talk.request(FETCH, 4, n, MaxWaitMs=wait, MinBytes=1)
        talk.tcp.wait(took * MS - talk.tcp.step_ns)
        talk.respond(asked)
    seen = closed(talk)
    assert [of(seen, n)["long_poll"] for n in range(5)] == [1, 0, 1, 0, 1]
    assert [of(seen, n)["broker_ns"] // MS for n in range(5)] == [500, 100, 1_400, 30, 99]
    assert [of(seen, n)["max_wait_ms"] for n in range(5)] == [500, 500, 500, 0, 100]
    assert {x["min_bytes"] for x in seen.exchanges} == {1}


def test_the_all_zero_topic_id_is_none() -> None:
    """It stands beside a name, or for a topic that is not known: it teaches no name, and gets none."""
    zero, known = bytes(16), b"\7" * 16
    talk = opened()
    asked = talk.request(METADATA, 12, 1, Topics=[{"TopicId": zero, "Name": "one"}])
    talk.respond(asked, Topics=[{"Name": "one", "TopicId": zero}, {"Name": "two", "TopicId": known}])
    asked = talk.request(FETCH, 13, 2, Topics=[{"TopicId": i, "Partitions": [{"Partition": 0}]} for i in (zero, known)])
    partitions = [{"ErrorCode": 100, "PartitionIndex": 0}]
    talk.respond(asked, Responses=[{"TopicId": i, "Partitions": partitions} for i in (zero, known)])
    seen = closed(talk)
    fetched = [x["topic"] for x in seen.results if x["error_code"] == 100]
    assert sorted(fetched, key=str) == [None, "two"]
    assert {x["topic"] for x in seen.results if x["of_request_packet_first"] == 4} == {"one", "two"}
