"""What one line can say of a message, read from its bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kafkatap.dissector.programs.loading import load_programs
from kafkatap.dissector.programs.machine import JOB
from kafkatap.dissector.programs.tape import as_array, decode_jobs
from kafkatap.dissector.tree.summary import FactReader, Facts, NamedPlace
from tests.support.records import GZIP, Record, batch, message_set
from tests.wire.kafkatalk import CREATE_TOPICS, FETCH, LIST_OFFSETS, METADATA, PRODUCE, body

ID_A, ID_B = bytes(range(16)), bytes(range(16, 32))


def read_facts(api_key: int, version: int, direction: int, cut: int = 0, **values: Any) -> tuple[Facts, Any]:
    """The facts and numbers (PACKED) of a body that lies 3 bytes into a buffer, behind another job's rows."""
    content = body(api_key, version, direction, **values)
    programs = load_programs("line")
    buffer = np.concatenate([np.zeros(3, np.uint8), as_array(content)])
    jobs = np.zeros(2, JOB)
    program = programs.find(api_key, version, direction)
    jobs[["at", "end", "limit", "program"]] = (3, len(buffer) - cut, len(buffer), program)
    jobs["end"][0] = len(buffer)
    none = np.zeros(0, np.uint8)
    buffers = (buffer, none, none)
    facts, numbers = FactReader(programs).read(jobs, decode_jobs(programs, jobs, buffers), buffers)
    assert cut or (facts[0] is facts[1] and numbers[0] == numbers[1])
    return facts[1], numbers[1]


def facts_of(api_key: int, version: int, direction: int, cut: int = 0, **values: Any) -> Facts:
    return read_facts(api_key, version, direction, cut, **values)[0]


def topic(name: bytes | None = None, *partitions: int, topic_id: bytes | None = None) -> NamedPlace:
    return NamedPlace(name, topic_id, list(partitions), True)


def test_topics_with_their_partitions() -> None:
    parts = [{"PartitionIndex": n, "Timestamp": -1} for n in (2, 0)]
    found = facts_of(LIST_OFFSETS, 1, 0, ReplicaId=-1, Topics=[
        {"Name": "orders", "Partitions": parts}, {"Name": "none"}, {"Name": "p", "Partitions": parts[:1]}])  # fmt: skip
    assert found.places == [topic(b"orders", 2, 0), topic(b"none"), topic(b"p", 2)]
    assert found.values == [("ReplicaId", -1)]
    assert not found.errors


def test_topics_by_id() -> None:
    topics = [{"TopicId": i, "Partitions": [{"Partition": 1}, {"Partition": 5}]} for i in (ID_A, ID_B)]
    found = facts_of(FETCH, 13, 0, MaxWaitMs=500, Topics=topics)
    assert found.places == [topic(None, 1, 5, topic_id=ID_A), topic(None, 1, 5, topic_id=ID_B)]
    assert ("MaxWaitMs", 500) in found.values


def test_topics_by_name_and_id() -> None:
    topics = [{"Name": "a", "TopicId": ID_A, "Partitions": [{"PartitionIndex": 0}]}, {"Name": None, "TopicId": ID_B}]
    found = facts_of(METADATA, 12, 1, ControllerId=4, Topics=topics)
    assert found.places == [topic(b"a", 0, topic_id=ID_A), topic(None, topic_id=ID_B)]


def test_arrays_of_plain_names() -> None:
    found = facts_of(20, 3, 0, TopicNames=["a", "b", "a"])  # DeleteTopics
    assert found.places == [topic(b"a"), topic(b"b"), topic(b"a")]


def test_errors_of_every_level_are_counted() -> None:
    parts = [{"Index": n, "ErrorCode": code, "BaseOffset": 7} for n, code in enumerate((0, 6, 6, 19))]
    found, numbers = read_facts(
        PRODUCE, 8, 1, ThrottleTimeMs=25, Responses=[{"Name": "orders", "PartitionResponses": parts}]
    )
    assert found.errors == {6: 2, 19: 1}
    assert numbers["throttle_time_ms"] == 25
    assert found.places == [topic(b"orders", 0, 1, 2, 3)]
    assert numbers["offset"] == -1
    refused = [{"Name": "x", "ErrorCode": 36}, {"Name": "y", "ErrorCode": 5120}]
    assert facts_of(CREATE_TOPICS, 4, 1, Topics=refused).errors == {36: 1, 5120: 1}


def test_an_offset_is_that_of_one_partition() -> None:
    parts = [{"Index": 1, "BaseOffset": 2**40}]
    _, numbers = read_facts(PRODUCE, 8, 1, Responses=[{"Name": "orders", "PartitionResponses": parts}])
    assert numbers["offset"] == 2**40
    assert numbers["record_bytes"] == -1


def test_how_many_records_there_are() -> None:
    two = batch([Record(b"k", b"v"), Record(None, b"w")])
    parts = [{"Index": 0, "Records": two}, {"Index": 1, "Records": None}, {"Index": 2, "Records": b""}]
    found, numbers = read_facts(PRODUCE, 8, 0, Acks=-1, TopicData=[{"Name": "t", "PartitionData": parts}])
    assert (numbers["record_bytes"], numbers["records"]) == (len(two), 2)
    assert ("Acks", -1) in found.values
    packed = message_set([Record(b"k", b"v")], 1, GZIP)
    parts.append({"Index": 3, "Records": packed})
    _, numbers = read_facts(PRODUCE, 8, 0, TopicData=[{"Name": "t", "PartitionData": parts}])
    assert (numbers["record_bytes"], numbers["records"]) == (len(two) + len(packed), -1)


def test_facts_beyond_those_that_are_kept_are_read_again() -> None:
    topics = [{"Name": f"topic-{n:04}"} for n in range(200)]
    content = body(METADATA, 4, 0, Topics=topics)
    programs, buffer = load_programs("line"), as_array(content)
    jobs = np.zeros(2, JOB)
    jobs[["end", "limit", "program"]] = (len(buffer), len(buffer), programs.find(METADATA, 4, 0))
    none = np.zeros(0, np.uint8)
    one, other = FactReader(programs).read(jobs, decode_jobs(programs, jobs, (buffer,)), (buffer, none, none))[0]
    assert one is not other
    assert one.places == other.places == [topic(t["Name"].encode()) for t in topics]


@pytest.mark.parametrize("cut", range(1, 30))
def test_what_came_before_the_end_is_told(cut: int) -> None:
    topics = [{"Name": "orders"}, {"Name": "payments"}]
    found = facts_of(METADATA, 4, 0, cut, Topics=topics)
    assert found.places == [topic(b"orders"), topic(b"payments")][: len(found.places)]
    assert len(found.places) == (2 if cut == 1 else 1 if cut < 12 else 0)


def test_groups_and_the_top() -> None:
    found = facts_of(12, 3, 0, GroupId="billing", GenerationId=7, MemberId="m-1", GroupInstanceId=None)
    assert found.values == [("GroupId", b"billing"), ("GenerationId", 7)]
    assert found.places == []
    groups = facts_of(15, 0, 0, Groups=["a", "b"])  # DescribeGroups
    assert groups.values == [("Groups", b"a"), ("Groups", b"b")]
    assert groups.places == []


def test_ids_at_the_top_are_printed_as_kafka_does() -> None:
    found = facts_of(71, 0, 1, ClientInstanceId=ID_A, SubscriptionId=7)  # GetTelemetrySubscriptions
    assert ("ClientInstanceId", b"AAECAwQFBgcICQoLDA0ODw") in found.values
    assert ("SubscriptionId", 7) in found.values
