"""Moves of leaders from every message and version that shows them: how many partitions, and the command beside."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kafkatap.reports.findings import Finding
from kafkatap.reports.sections.events import findings
from tests.cli.running import kafkatap
from tests.support.captures import pcap_bytes
from tests.support.section_runs import section_input
from tests.support.tcp import START_NS, encode, merge
from tests.wire.kafkatalk import KafkaTalk

METADATA, LEADER_AND_ISR, UPDATE_METADATA = 3, 4, 6
SECOND = 1_000_000_000
#: The partitions of two topics that broker 1 leads, and then broker 2.
SIX = {"orders": (0, 1, 2, 3), "refunds": (0, 1)}
IDS = {"orders": bytes(range(16)), "refunds": bytes(range(16, 32))}
EACH_VERSION = [
    (api, version)
    for api, last in ((METADATA, 13), (LEADER_AND_ISR, 7), (UPDATE_METADATA, 8))
    for version in range(last + 1)
]
#: A message: its API and version, the epoch of the leaders, and the leader.
Step = tuple[int, int, int, int]


def say(talk: KafkaTalk, number: int, api: int, version: int, epoch: int, leader: int, topics: Any) -> None:
    states = [
        {"TopicName": name, "PartitionIndex": p, "Leader": leader, "LeaderEpoch": epoch, "LeaderId": leader}
        for name, parts in topics.items() for p in parts
    ]  # fmt: skip
    grouped = [
        {"Name": name, "TopicName": name, "TopicId": IDS[name], "Partitions": mine, "PartitionStates": mine}
        for name in topics for mine in [[s for s in states if s["TopicName"] == name]]
    ]  # fmt: skip
    said = {"Topics": grouped, "TopicStates": grouped, "UngroupedPartitionStates": states}
    if api == METADATA:
        talk.respond(talk.request(api, version, number), **said)
    else:
        talk.respond(talk.request(api, version, number, **said))


def capture(path: Path, steps: Sequence[Step], one_by_one: bool = False, pause_ns: int = SECOND) -> Path:
    """What one broker is told, and answers: each step on a connection of its own."""
    talks = []
    for number, (api, version, epoch, leader) in enumerate(steps):
        talk = KafkaTalk(client=("10.0.0.9", 4000 + number), time_ns=START_NS + number * 3 * SECOND)
        talk.tcp.open()
        parts = [{t: (p,)} for t, all_of in SIX.items() for p in all_of] if one_by_one else [SIX]
        for each, topics in enumerate(parts):
            say(talk, each, api, version, epoch, leader, topics)
            talk.tcp.wait(pause_ns if one_by_one else 0)
        talks.append(talk.segments)
    path.write_bytes(pcap_bytes(encode(merge(*talks))))
    return path


def moved(path: Path) -> list[Finding]:
    return [finding for finding in findings(section_input(path, "events")) if finding.id == "leaders_moved"]


@pytest.mark.parametrize(("api", "version"), EACH_VERSION)
def test_every_version_shows_six_that_moved(api: int, version: int, tmp_path: Path) -> None:
    path = capture(tmp_path / "x.pcap", [(api, version, 4, 1), (api, version, 5, 2)])
    (event,) = moved(path)
    assert event.numbers["partitions"] == 6
    assert event.text == "leaders of 6 partitions moved, most from broker 1: 6 to broker 2"


@pytest.mark.parametrize("one_by_one", [False, True])
@pytest.mark.parametrize(
    "steps",
    [
        # The same move in several messages, some without ids, some without epochs, is one.
        [(METADATA, 9, 4, 1), (UPDATE_METADATA, 7, 5, 2), (METADATA, 12, 5, 2)],
        [(UPDATE_METADATA, 5, 4, 1), (LEADER_AND_ISR, 5, 5, 2), (METADATA, 9, 5, 2)],
        [(METADATA, 1, 4, 1), (METADATA, 12, 4, 1), (METADATA, 12, 5, 2), (METADATA, 1, 5, 2)],
        [(LEADER_AND_ISR, 1, 4, 1), (METADATA, 1, 4, 1), (UPDATE_METADATA, 4, 5, 2), (METADATA, 1, 5, 2)],
    ],
)
def test_six_over_two_topics(steps: list[Step], one_by_one: bool, tmp_path: Path) -> None:
    (event,) = moved(capture(tmp_path / "x.pcap", steps, one_by_one))
    assert event.text == "leaders of 6 partitions moved, most from broker 1: 6 to broker 2"


def test_a_leader_that_comes_back_moves_twice(tmp_path: Path) -> None:
    (event,) = moved(capture(tmp_path / "x.pcap", [(UPDATE_METADATA, 5, e, 1 + e % 2) for e in (4, 5, 6)]))
    assert event.text == "leaders of 6 partitions moved, most from broker 1: 6 to broker 1, 6 to broker 2"


@pytest.mark.parametrize(("epochs", "version"), [((4, 5), 12), ((0, 0), 1)])
@pytest.mark.parametrize("leaders", [(1, 2), (2, 1)])
def test_the_later_answer_has_the_new_leader(
    leaders: tuple[int, int], epochs: tuple[int, int], version: int, tmp_path: Path
) -> None:
    """Whichever is the greater number, and though its connection is the older one."""
    old, new = KafkaTalk(), KafkaTalk(client=("10.0.0.9", 4000), time_ns=START_NS + SECOND)
    for talk, wait, epoch, leader in ((new, 1, epochs[0], leaders[0]), (old, 8, epochs[1], leaders[1])):
        talk.tcp.open()
        talk.tcp.wait(wait * SECOND)
        say(talk, 1, METADATA, version, epoch, leader, SIX)
    path = tmp_path / "x.pcap"
    path.write_bytes(pcap_bytes(encode(merge(old.segments, new.segments))))
    (event,) = moved(path)
    assert event.text == f"leaders of 6 partitions moved, most from broker {leaders[0]}: 6 to broker {leaders[1]}"


def test_a_topic_that_was_made_anew_has_not_moved(tmp_path: Path) -> None:
    talk = KafkaTalk()
    talk.tcp.open()
    for number, (topic_id, leader) in enumerate(((1, 1), (2, 2))):
        partitions = [{"PartitionIndex": 0, "LeaderId": leader, "LeaderEpoch": number}]
        topics = [{"Name": "orders", "TopicId": bytes([topic_id] * 16), "Partitions": partitions}]
        talk.respond(talk.request(METADATA, 12, number), Topics=topics)
    path = tmp_path / "x.pcap"
    path.write_bytes(pcap_bytes(encode(talk.segments)))
    assert not moved(path)


@pytest.mark.parametrize(("api", "version"), [(METADATA, 1), (METADATA, 12), (LEADER_AND_ISR, 0), (UPDATE_METADATA, 8)])
def test_the_command_finds_what_showed_it(api: int, version: int, tmp_path: Path) -> None:
    """Also if the answer took long."""
    talk = KafkaTalk()
    talk.tcp.open()
    say(talk, 1, api, version, 4, 1, SIX)
    if api == METADATA:
        asked = talk.request(api, version, 2)
        talk.tcp.wait(8 * SECOND)
        partitions = [{"PartitionIndex": 0, "LeaderId": 2, "LeaderEpoch": 5}]
        talk.respond(asked, Topics=[{"Name": "orders", "TopicId": IDS["orders"], "Partitions": partitions}])
    else:
        talk.tcp.wait(8 * SECOND)
        say(talk, 2, api, version, 5, 2, SIX)
    path = tmp_path / "x.pcap"
    path.write_bytes(pcap_bytes(encode(talk.segments)))
    (event,) = moved(path)
    options = [word for option, value in event.options for word in (f"--{option}", str(value))]
    done = kafkatap("show", "--json", *options, path)
    assert done.code == 0, shlex.join(options)
    assert '"correlation_id": 2' in done.out
