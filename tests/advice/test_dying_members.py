"""Members that die are named with what kills them, as the script says. Members that end otherwise are not."""

from __future__ import annotations

import struct
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from kafkatap.engine.selection import Selection
from kafkatap.reports.findings import Finding, Party
from kafkatap.reports.sections.advice import findings
from tests.support.captures import pcap_bytes, read_capture
from tests.support.group_members import GroupMember
from tests.support.section_runs import section_input
from tests.support.tcp import START_NS, Segment, encode, merge

from .advice_samples import FOLDER, SECOND, found, truth

MS = 1_000_000
GROUPS = {"label-print": "label", "customs": "customs"}


def deaths(name: str, group: str) -> list[int]:
    """When members of a group died, or were killed and started again: ms."""
    members = truth(name)["members"]
    lines = [line for member, lines in members.items() if member.startswith(GROUPS[group]) for line in lines]
    last = max(at for at, _, _ in lines if at)
    return sorted(at for at, word, _ in lines if word in ("died", "killed") and at < last - 200)


def of_group(group: str) -> Finding:
    (finding,) = [one for one in found("dying") if one.id == "dying_members" and ("group", group) in one.parties]
    return finding


@pytest.mark.parametrize("group", GROUPS)
def test_each_death_of_the_script_is_counted(group: str) -> None:
    finding, expected = of_group(group), deaths("dying", group)
    # The group may not hear of the last one before the capture ends.
    assert finding.numbers["deaths"] in (len(expected), len(expected) - 1)
    assert finding.begin is not None
    assert abs(finding.begin // MS - expected[0]) < 50
    assert finding.end is not None
    assert min(abs(finding.end // MS - at) for at in expected[-2:]) < 50


def test_the_partition_and_the_committed_offset_are_those_of_the_bad_record() -> None:
    made = truth("dying")
    partition, offset = made["poison"]
    finding = of_group("label-print")
    assert Party("partition", f"shipments-{partition}") in finding.parties
    assert finding.numbers["partition"] == partition
    assert finding.numbers["committed_offset"] == made["committed"]["label-print"][partition] <= offset
    assert (
        f"shipments partition {partition}, committed offset stays {finding.numbers['committed_offset']}" in finding.text
    )
    assert f"--partition {partition} --offset {finding.numbers['committed_offset']}`" in finding.remedy
    assert f"`kafkatap records --topic shipments -f 'partition == {partition}'`" in finding.remedy
    other, committed = of_group("customs"), made["committed"]["customs"]
    assert Party("partition", f"shipments-{partition}") in other.parties
    assert "shipments partitions 0, 1, committed offsets stay 10, 10;" in other.text
    assert (other.numbers["partition"], other.numbers["committed_offset"]) == (0, committed[0])
    assert all(f"--partition {number} --offset {committed[number]}`" in other.remedy for number in (0, 1))


def test_the_time_lost_is_until_another_member_has_the_partition() -> None:
    """By the members' own callbacks."""
    lines = [line for name, lines in truth("dying")["members"].items() if name.startswith("label") for line in lines]
    expected = 0
    for at, word, numbers in lines:
        if word == "died":
            again = [time for time, kind, given in lines if kind == "assigned" and time > at and numbers[0] in given]
            expected += min(again) - at if again else 0
    finding = of_group("label-print")
    killed = 4000  # the member that was killed once had another partition: two sessions at most
    assert expected - 200 <= finding.time_lost_ns // MS <= expected + killed


def test_members_that_skip_the_record_are_not_named() -> None:
    """One member of each group was killed and started again."""
    assert found("dying-right") == ()
    words = Counter(word for lines in truth("dying-right")["members"].values() for _, word, _ in lines)
    assert words["skipped"] >= 2
    assert words["died"] == 0
    assert len(deaths("dying-right", "label-print")) == 1


def test_a_selection_of_some_requests_shows_no_deaths() -> None:
    """A LeaveGroup would be left out."""
    selection = Selection.of(apis=["JoinGroup", "SyncGroup", "ConsumerGroupHeartbeat"])
    given = section_input(FOLDER / "dying.pcap.zst", "advice", selection=selection)
    assert "dying_members" not in [finding.id for finding in findings(given)]


def test_a_capture_that_ends_at_the_third_death_is_silent(tmp_path: Path) -> None:
    capture = read_capture(FOLDER / "dying.pcap.zst")
    third = deaths("dying", "label-print")[2] * MS
    path = tmp_path / "cut.pcap"
    path.write_bytes(pcap_bytes([packet for packet in capture.packets if packet.time_ns < third + 20 * MS]))
    found_there = findings(section_input(path, "advice"))
    assert all(("group", "label-print") not in finding.parties for finding in found_there)


# ------------------------------------------------------------ members of a group without a broker


def named(tmp_path: Path, *members: GroupMember, more: tuple[list[Segment], ...] = ()) -> list[Finding]:
    """The findings on members of a group in which `steady` joins last, as the capture goes on."""
    steady = GroupMember("steady", "steady-1", 9, 9999, 0.5)
    steady.join(1, 7)
    last = max(member.talk.time_ns for member in members)
    steady.talk.time_ns = last + SECOND
    steady.join(2, 7)
    path = tmp_path / "group.pcap"
    path.write_bytes(pcap_bytes(encode(merge(*(m.talk.segments for m in (*members, steady)), *more))))
    return [finding for finding in findings(section_input(path, "advice")) if finding.id == "dying_members"]


def lives(clients: str, *partitions: int, **options: Any) -> list[GroupMember]:
    """Members that join each 3 s (`every`) and end 1 s later (`stays`). `clients`: a letter for each, of which the
    first has host 1. `partitions`: of each, or of all; `all`: several of each."""
    made = []
    for n, client in enumerate(clients):
        identity = options.get("identity") or f"{client}-{n}"
        member = GroupMember(client, identity, ord(client) - ord("a") + 1, 5000 + n, 1 + options.get("every", 3) * n)
        member.join(n + 1, *(options.get("all") or [partitions[n % len(partitions)]]))
        if "offsets" in options:
            member.fetch_offset(1, options["offsets"][n])
        member.talk.wait(round(options.get("stays", 1) * SECOND))
        if options.get("leaves"):
            member.leave()
        if options.get("error"):
            member.refused(options["error"])
        if options.get("resets"):
            member.talk.reset(0)
        else:
            member.talk.close(options.get("closes", 0))
        made.append(member)
    return made


@pytest.mark.parametrize("resets", [False, True])
def test_a_client_that_dies_three_times_is_named(tmp_path: Path, resets: bool) -> None:
    (finding,) = named(tmp_path, *lives("aaa", 1, resets=resets))
    assert (finding.numbers["deaths"], finding.numbers["clients"]) == (3, 1)
    assert Party("partition", "orders-1") in finding.parties
    # From its death until it joined again; nobody took the partition after the last one.
    assert finding.time_lost_ns == pytest.approx(2 * 2 * SECOND, rel=0.05)


@pytest.mark.parametrize(("offsets", "words"), [((5, 8, 8), "stays 8"), ((-1, -1, -1), "")])
def test_the_committed_offset_is_that_of_the_members_that_came_back(
    tmp_path: Path, offsets: tuple[int, ...], words: str
) -> None:
    (finding,) = named(tmp_path, *lives("aaa", 1, offsets=offsets))
    assert finding.numbers["committed_offset"] == offsets[-1]
    assert f"committed offset {words}" in finding.text if words else "committed offset" not in finding.text


def test_a_partition_whose_committed_offset_moves_on_kills_nobody(tmp_path: Path) -> None:
    (finding,) = named(tmp_path, *lives("aaa", 1, offsets=(5, 8, 9)))
    assert finding.party("partition") is None
    assert "record" not in finding.remedy


def test_three_clients_that_die_at_one_partition_are_named(tmp_path: Path) -> None:
    (finding,) = named(tmp_path, *lives("abc", 1))
    assert finding.numbers["clients"] == 3


@pytest.mark.parametrize(
    "members",
    [
        pytest.param({"clients": "aa"}, id="two deaths"),
        pytest.param({"clients": "aaaa", "leaves": True}, id="they leave the group"),
        pytest.param({"clients": "aaaa", "error": 25}, id="the group expelled them"),
        pytest.param({"clients": "aaaa", "error": 82}, id="others have their group.instance.id"),
        pytest.param({"clients": "aaaa", "closes": 1}, id="the broker closes the connections"),
        pytest.param({"clients": "aaa", "identity": "a-1"}, id="the same member comes back"),
    ],
)
def test_other_ends_are_no_deaths(tmp_path: Path, members: dict[str, Any]) -> None:
    assert named(tmp_path, *lives(members.pop("clients"), 1, **members)) == []


def test_members_that_are_restarted_in_turn_are_not_named(tmp_path: Path) -> None:
    assert named(tmp_path, *lives("abc", 1, 2, 3)) == []


@pytest.mark.parametrize(("stays", "is_named"), [(9.9, True), (10.1, False)])
def test_a_record_kills_soon_after_the_assignment(tmp_path: Path, stays: float, is_named: bool) -> None:
    assert bool(named(tmp_path, *lives("abc", 1, stays=stays))) == is_named


@pytest.mark.parametrize(
    ("members", "words", "partitions"),
    [
        (lives("aaa", 1), "each had just been assigned orders partition 1;", ["1"]),
        (lives("aaa", 1, stays=11, every=15), "each had been assigned orders partition 1", ["1"]),
        (lives("aaa", 1, 2, 1), "2 of them had just been assigned orders partition 1;", ["1"]),
        (lives("aaaa", 1, 2, 1, 2), "", []),
        (lives("aaa", all=[0, 1, 2]), "each had just been assigned orders partitions 0, 1, 2;", ["0", "1", "2"]),
        (lives("aaa", all=[0, 1, 2, 3]), "", []),
    ],
)
def test_partitions_that_the_dead_have_in_common(
    tmp_path: Path, members: list[GroupMember], words: str, partitions: list[str]
) -> None:
    (one,) = named(tmp_path, *members)
    assert words in one.text if words else "assigned" not in one.text
    assert [party.name for party in one.parties if party.kind == "partition"] == [f"orders-{n}" for n in partitions]
    assert ("record" in one.setting) == ("just" in words)


@pytest.mark.parametrize(
    ("since", "until", "is_named"), [(6.0, 8.9, True), (6.0, 9.3, False), (7.3, 9.3, True)]
)  # fmt: skip
def test_the_kernel_closes_all_connections_at_once(tmp_path: Path, since: float, until: float, is_named: bool) -> None:
    """The third one dies at 8 s."""
    reader = GroupMember("a", "-", 1, 6000, since)
    for at in (since, until):
        reader.talk.time_ns = START_NS + round(at * SECOND)
        reader.ask(18, 0, b"", struct.pack("!hi", 0, 0))
    assert bool(named(tmp_path, *lives("aaa", 1), more=(reader.talk.segments,))) == is_named


def test_a_client_whose_other_connection_lives_has_not_died(tmp_path: Path) -> None:
    reader = GroupMember("a", "-", 1, 6000, 0.8)
    reader.ask(18, 0, b"", struct.pack("!hi", 0, 0))
    reader.talk.time_ns = START_NS + 20 * SECOND
    reader.ask(18, 0, b"", struct.pack("!hi", 0, 0))
    assert named(tmp_path, *lives("aaa", 1), more=(reader.talk.segments,)) == []


def test_members_that_end_with_their_group_are_not_named(tmp_path: Path) -> None:
    members = lives("aaa", 1)
    path = tmp_path / "group.pcap"
    path.write_bytes(pcap_bytes(encode(merge(*(member.talk.segments for member in members)))))
    assert findings(section_input(path, "advice")) == []


def test_a_partition_that_another_member_reads_kills_nobody(tmp_path: Path) -> None:
    """It has partition 1 for 12 s between the deaths."""
    reader = GroupMember("reader", "reader-1", 5, 7000, 5)
    reader.join(2, 1)
    reader.beat(17)
    late = lives("aaa", 1)
    for number, member in enumerate(late):
        shift = 15 * SECOND * number
        member.talk.segments = [
            Segment(s.time_ns + shift, s.source, s.destination, s.seq, s.ack, s.flags, s.payload)
            for s in member.talk.segments
        ]
        member.talk.time_ns += shift
    (finding,) = named(tmp_path, *late, reader)
    assert finding.numbers["deaths"] == 3
    assert finding.party("partition") is None
    assert finding.setting == ""
