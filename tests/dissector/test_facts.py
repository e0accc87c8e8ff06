"""What one line can say of a message, read from its bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kafkatap.dissector.programs.loading import load_programs
from kafkatap.dissector.programs.machine import JOB
from kafkatap.dissector.programs.tape import as_array, decode_jobs
from kafkatap.dissector.tree.summary import FactReader, Facts, NamedPlace
from tests.wire.kafkatalk import CREATE_TOPICS, FETCH, LIST_OFFSETS, METADATA, PRODUCE, body

ID_A, ID_B = bytes(range(16)), bytes(range(16, 32))


def facts_of(api_key: int, version: int, direction: int, cut: int = 0, before: int = 3, **values: Any) -> Facts:
    """The facts of a body that lies `before` bytes into a buffer, and `before` rows into a tape."""
    content = body(api_key, version, direction, **values)
    programs = load_programs("line")
    buffer = np.concatenate([np.zeros(before, np.uint8), as_array(content)])
    end = len(buffer) - cut
    jobs = np.zeros(1, JOB)
    jobs[["at", "end", "limit", "program"]] = (before, end, len(buffer), programs.find(api_key, version, direction))
    rows = decode_jobs(programs, jobs, (buffer,)).tolist()
    moved = [(v, f, parent + before if parent >= 0 else parent, *rest) for v, f, parent, *rest in rows]
    return FactReader(programs).read(moved, before, buffer)


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
    found = facts_of(PRODUCE, 8, 1, ThrottleTimeMs=25, Responses=[{"Name": "orders", "PartitionResponses": parts}])
    assert found.errors == {6: 2, 19: 1}
    assert found.throttle_time_ms == 25
    assert found.places == [topic(b"orders", 0, 1, 2, 3)]
    assert found.offsets.count(7) == 4
    refused = [{"Name": "x", "ErrorCode": 36}, {"Name": "y", "ErrorCode": 5120}]
    assert facts_of(CREATE_TOPICS, 4, 1, Topics=refused).errors == {36: 1, 5120: 1}


def test_where_records_lie() -> None:
    parts = [{"Index": 0, "Records": b"abc"}, {"Index": 1, "Records": None}, {"Index": 2, "Records": b""}]
    found = facts_of(PRODUCE, 8, 0, Acks=-1, TopicData=[{"Name": "t", "PartitionData": parts}])
    assert found.records is not None
    assert [length for _, length in found.records] == [3, 0]
    content = body(PRODUCE, 8, 0, Acks=-1, TopicData=[{"Name": "t", "PartitionData": parts}])
    assert found.records[0][0] == 3 + content.index(b"abc")
    assert ("Acks", -1) in found.values
    assert facts_of(METADATA, 4, 0).records is None


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
