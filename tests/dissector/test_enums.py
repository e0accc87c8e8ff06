"""Names of numbers: as Kafka has them, and for every field that carries an enum."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkatap.dissector.kafka.enums import (
    enum_name,
    enum_of,
    enums,
    is_operations,
    is_time,
    names_of,
    operations_text,
    time_text,
)
from kafkatap.dissector.layouts.schema import REQUEST, RESPONSE
from kafkatap.dissector.programs.fields import K_VALUE, FieldInfo, number_fields
from tests.dissector.machine_support import MESSAGES

FIELDS = [info for info in number_fields(MESSAGES) if info.kind == K_VALUE]
#: Small numbers that are counts, versions, epochs and the like: by name.
PLAIN = {
    "DeliveryCount", "MaxSupportedVersion", "MaxVersion", "MaxVersionLevel", "MinSupportedVersion", "MinVersion",
    "MinVersionLevel", "OngoingTxnProducerEpoch", "ProducerEpoch", "RepartitionSourceTopics", "ReplicationFactor",
    "SourceTopicRegex", "SourceTopics", "TransactionVersion", "V3AndBelowProducerEpoch",
}  # fmt: skip
#: Enums for which no names are known: what controllers before KRaft sent.
NAMELESS = {(4, "Type"), (6, "Type")}


def _enum(info: FieldInfo) -> str | None:
    return enum_of(info.api_key, info.direction, info.path, info.type)


def test_every_small_number_is_an_enum_or_known_to_be_none() -> None:
    left = {
        (info.api_key, info.path)
        for info in FIELDS
        if info.type in ("int8", "int16") and _enum(info) is None and info.inner[-1] not in PLAIN
    }
    assert {(key, path.split(".")[-1]) for key, path in left} == NAMELESS


def test_no_plain_number_has_an_enum() -> None:
    assert not [info.path for info in FIELDS if info.inner[-1] in PLAIN and _enum(info) is not None]
    assert {info.type for info in FIELDS if _enum(info) is not None} == {"bool", "int8", "int16", "int64"}


def test_every_enum_is_carried_by_some_field() -> None:
    carried = {enum for info in FIELDS if (enum := _enum(info)) is not None} - {"ErrorCode", "ApiKey"}
    #: Of records and of control records.
    assert set(enums()) - carried == {"ControlRecordType", "TimestampType"}
    assert carried <= set(enums())


def test_resources_of_acls_and_of_configurations_are_two_enums() -> None:
    by_api = {info.api_key: _enum(info) for info in FIELDS if info.inner[-1].startswith("ResourceType")}
    acls = {29, 30, 31}
    assert {key for key, enum in by_api.items() if enum == "ResourceType"} == acls
    assert {key for key, enum in by_api.items() if enum == "ConfigResourceType"} == {32, 33, 44, 74}


def test_names_are_kafkas(corpus: Path) -> None:
    lines = (corpus / "kafka-facts" / "enums.tsv").read_text(encoding="ascii").splitlines()[1:]
    assert len(lines) > 90
    for line in lines:
        enum, number, name = line.split("\t")
        assert enum_name(enum, int({"false": "0", "true": "1"}.get(number, number))) == name


def test_errors_and_apis_are_enums_too() -> None:
    assert enum_name("ErrorCode", 6) == "NOT_LEADER_OR_FOLLOWER"
    assert names_of("ApiKey")[1] == "Fetch"
    assert enum_name("ErrorCode", 5120) == ""
    assert enum_of(0, RESPONSE, "Responses.PartitionResponses.ErrorCode", "int16") == "ErrorCode"
    assert enum_of(0, REQUEST, "TimeoutMs", "int32") is None


def test_operations() -> None:
    assert operations_text(1 << 3 | 1 << 8) == "READ, DESCRIBE"
    assert operations_text(-(2**31)) == "not requested"
    assert operations_text(0) == "none"
    assert operations_text(1 << 30) == "bit 30"
    assert {info.inner[-1] for info in FIELDS if is_operations(info.path, info.type)} == {
        "AuthorizedOperations", "ClusterAuthorizedOperations", "TopicAuthorizedOperations",
    }  # fmt: skip


def test_times() -> None:
    assert {info.inner[-1] for info in FIELDS if is_time(info.path, info.type)} == {
        "CommitTimestamp", "ExpiryTimestamp", "ExpiryTimestampMs", "IssueTimestamp", "IssueTimestampMs",
        "LastCaughtUpTimestamp", "LastFetchTimestamp", "LastTimestamp", "LogAppendTimeMs", "MaxTimestamp",
        "MaxTimestampMs", "Timestamp", "TransactionStartTimeMs",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (1_795_259_439_392, "2026-11-21T11:10:39.392Z"),
        (1, "1970-01-01T00:00:00.001Z"),
        (0, ""),
        (-1, ""),
        (253_402_300_799_999, "9999-12-31T23:59:59.999Z"),
        (253_402_300_800_000, ""),
        (2**63 - 1, ""),
    ],
)
def test_a_time(ms: int, text: str) -> None:
    assert time_text(ms) == text
