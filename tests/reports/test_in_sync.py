"""Changes of in-sync replicas, from every message and version that shows them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest

from kafkatap.reports.findings import Finding
from kafkatap.reports.sections.events import findings
from tests.cli.running import kafkatap
from tests.support.captures import pcap_bytes
from tests.support.section_runs import section_input
from tests.support.tcp import encode
from tests.wire.kafkatalk import KafkaTalk

LEADER_AND_ISR, UPDATE_METADATA, ALTER_PARTITION = 4, 6, 56
EACH_VERSION = [
    (api, version)
    for api, last in ((LEADER_AND_ISR, 7), (UPDATE_METADATA, 8), (ALTER_PARTITION, 3))
    for version in range(last + 1)
]
PARTITIONS = {"orders": (0, 1), "refunds": (0,)}
#: The in-sync replicas of all partitions, one after another.
SHRINKS_AND_GROWS = ((1, 2, 3), (1, 2), (1, 2, 3), (1, 2, 3))


def capture(path: Path, api: int, version: int, states: Sequence[Sequence[int]], error: int = 0) -> Path:
    """Each state twice, as brokers are told of it one after another. Each change has an epoch of its own."""
    talk = KafkaTalk()
    talk.tcp.open()
    for number, isr in enumerate(states):
        epoch = sum(a != b for a, b in pairwise(states[: number + 1]))
        mine = [
            {"TopicName": topic, "PartitionIndex": p, "Leader": 1, "LeaderId": 1, "LeaderEpoch": 4, "Isr": list(isr),
             "PartitionEpoch": epoch, "ZkVersion": epoch, "ErrorCode": error}
            for topic, parts in PARTITIONS.items() for p in parts
        ]  # fmt: skip
        grouped = [
            {"TopicName": topic, "TopicId": topic.encode().ljust(16, b"."), "PartitionStates": of, "Partitions": of}
            for topic in PARTITIONS for of in [[state for state in mine if state["TopicName"] == topic]]
        ]  # fmt: skip
        for copy in range(2):
            said = {"Topics": grouped, "TopicStates": grouped, "UngroupedPartitionStates": mine}
            asked = talk.request(api, version, 10 * number + copy, **({} if api == ALTER_PARTITION else said))
            talk.respond(asked, **(said if api == ALTER_PARTITION else {}))
        talk.tcp.wait(30_000_000_000)
    path.write_bytes(pcap_bytes(encode(talk.segments)))
    return path


def changed(path: Path) -> list[Finding]:
    return [finding for finding in findings(section_input(path, "events")) if finding.id.startswith("isr_")]


@pytest.mark.parametrize(("api", "version"), EACH_VERSION)
def test_every_version_shows_them(api: int, version: int, tmp_path: Path) -> None:
    shrank, grew = changed(capture(tmp_path / "x.pcap", api, version, SHRINKS_AND_GROWS))
    assert (shrank.id, grew.id) == ("isr_shrank", "isr_grew")
    assert shrank.text == "in-sync replicas of 3 partitions shrank: broker 3 left 3"
    assert grew.text == "in-sync replicas of 3 partitions grew: broker 3 joined 3"
    assert shrank.numbers == {"partitions": 3, "fewest": 2}
    assert (grew.begin or 0) - (shrank.begin or 0) >= 30_000_000_000


def test_one_that_takes_the_place_of_another(tmp_path: Path) -> None:
    found = changed(capture(tmp_path / "x.pcap", UPDATE_METADATA, 5, ((1, 2), (1, 3))))
    assert [finding.text.rpartition(": ")[2] for finding in found] == ["broker 3 joined 3", "broker 2 left 3"]


def test_what_the_controller_refused_is_no_change(tmp_path: Path) -> None:
    assert not changed(capture(tmp_path / "x.pcap", ALTER_PARTITION, 2, SHRINKS_AND_GROWS, error=109))


@pytest.mark.parametrize(("api", "version"), [(LEADER_AND_ISR, 1), (UPDATE_METADATA, 8), (ALTER_PARTITION, 3)])
def test_the_command_finds_what_showed_it(api: int, version: int, tmp_path: Path) -> None:
    path = capture(tmp_path / "x.pcap", api, version, SHRINKS_AND_GROWS)
    for number, event in enumerate(changed(path), 1):
        done = kafkatap("show", "--json", *(f"--{option}={value}" for option, value in event.options), path)
        assert done.code == 0
        assert f'"correlation_id": {10 * number},' in done.out
