"""What the oldest versions say in another way: ends of partitions, and whose coordinator is looked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.cli.running import kafkatap
from tests.support.captures import pcap_bytes
from tests.support.section_runs import section_rows
from tests.support.tcp import encode
from tests.wire.kafkatalk import FIND_COORDINATOR, LIST_OFFSETS, KafkaTalk

COMMIT = 8
NOT_AVAILABLE, NO_RIGHT = 15, 53
GROUP, TRANSACTION, SHARE = 0, 1, 2


def written(path: Path, talk: KafkaTalk) -> Path:
    path.write_bytes(pcap_bytes(encode(talk.segments)))
    return path


@pytest.mark.parametrize("version", range(12))
def test_the_end_of_a_partition_gives_lag(version: int, tmp_path: Path) -> None:
    talk = KafkaTalk()
    talk.tcp.open()
    partitions = [
        {"PartitionIndex": 0, "Timestamp": -1, "MaxNumOffsets": 2, "Offset": 100, "OldStyleOffsets": [100, 0]}
    ]
    topics = [{"Name": "orders", "Partitions": partitions}]
    talk.respond(talk.request(LIST_OFFSETS, version, 1, ReplicaId=-1, Topics=topics), Topics=topics)
    commits = [{"Name": "orders", "Partitions": [{"PartitionIndex": 0, "CommittedOffset": 30}]}]
    talk.respond(talk.request(COMMIT, 2, 2, GroupId="billing", Topics=commits), Topics=commits)
    path = written(tmp_path / "x.pcap", talk)
    (row,) = section_rows(path, "groups")["group_partitions"]
    assert (row["high_watermark"], row["committed_lag"]) == (100, 70)


def searches(path: Path, version: int) -> Path:
    """A search for each type, with correlation ids by type, that fails."""
    talk = KafkaTalk()
    talk.tcp.open()
    for key_type in (GROUP, TRANSACTION, SHARE) if version else (GROUP,):
        key = ("billing", "pay", "billing:id:0")[key_type]
        error = {"ErrorCode": NO_RIGHT if key_type == TRANSACTION else NOT_AVAILABLE, "NodeId": -1}
        asked = talk.request(FIND_COORDINATOR, version, key_type, Key=key, KeyType=key_type, CoordinatorKeys=[key])
        talk.respond(asked, **error, Coordinators=[{"Key": key, **error}])
    return written(path, talk)


@pytest.mark.parametrize("version", range(7))
def test_a_search_for_a_coordinator_is_found_by_its_key(version: int, tmp_path: Path) -> None:
    path = searches(tmp_path / "x.pcap", version)

    def found(*words: str) -> list[int]:
        lines = kafkatap("show", "--only", "requests", "--json", *words, path).out.splitlines()
        return [key_type for line in lines for key_type in range(3) if f'"correlation_id": {key_type},' in line]

    assert found("--group", "billing") == found("-f", "group == billing") == found("-f", "group") == [GROUP]
    everything = [GROUP, TRANSACTION, SHARE] if version else [GROUP]
    assert found("-f", "transactional_id == pay") == found("-f", "transactional_id") == everything[1:2]
    assert found("-f", "not group") == found("-f", "group == null") == everything[1:]
    assert not found("-f", "group == pay")
    assert not found("-f", "transactional_id == billing")


@pytest.mark.parametrize("version", range(7))
def test_errors_of_searches_are_those_of_the_group(version: int, tmp_path: Path) -> None:
    path = searches(tmp_path / "x.pcap", version)
    (row,) = section_rows(path, "groups")["group_errors"]
    wanted = {
        "group": "billing",
        "error": "COORDINATOR_NOT_AVAILABLE",
        "code": 15,
        "api": "FindCoordinator",
        "codes": 1,
    }
    assert row == wanted
    shown = kafkatap("report", "--json", "--sections", "errors", path).out
    for name in ("billing", "pay") if version else ("billing",):
        assert f'"name": "{name}"' in shown


@pytest.mark.parametrize("version", range(11))
def test_errors_of_readers_of_offsets_are_those_of_the_group(version: int, tmp_path: Path) -> None:
    talk = KafkaTalk()
    talk.tcp.open()
    asked: dict[str, Any] = {"GroupId": "billing"}
    answer: dict[str, Any] = {"ErrorCode": 16}
    if version < 2:
        answer = {"Topics": [{"Name": "orders", "Partitions": [{"PartitionIndex": 0, "ErrorCode": 16}]}]}
    elif version >= 8:
        asked, answer = {"Groups": [asked]}, {"Groups": [{**asked, "ErrorCode": 16}]}
    talk.respond(talk.request(9, version, 1, **asked), **answer)
    (row,) = section_rows(written(tmp_path / "x.pcap", talk), "groups")["group_errors"]
    assert (row["group"], row["error"], row["api"], row["codes"]) == ("billing", "NOT_COORDINATOR", "OffsetFetch", 1)
