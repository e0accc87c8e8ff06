"""Rebalances that a member holds up: as the broker's log says, and of groups without a broker."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kafkatap.engine.selection import Selection
from kafkatap.reports.findings import ERROR, NOTE, WARNING, Finding, Party
from kafkatap.reports.sections.advice import findings
from kafkatap.reports.sections.folding import folded
from kafkatap.reports.sections.folds import Known
from tests.reports.rows import context
from tests.reports.test_first_findings import rows
from tests.support.captures import pcap_bytes, read_capture
from tests.support.group_members import GroupMember
from tests.support.section_runs import section_input
from tests.support.tcp import START_NS, encode, merge

from .advice_samples import FOLDER, SECOND, found, lines, truth

MS = 1_000_000
REBALANCE_IN_PROGRESS, UNKNOWN_MEMBER_ID = 27, 25
#: By group of the recording: the member that it waited for, how that ended, and who had joined.
HELD = {
    "routing": ("routing-3", "joined", "routing-4"),
    "invoicing": ("invoicing-2", "left", "invoicing-3"),
    "auditing": ("auditing-2", "dead", "auditing-2"),
}


def of_group(group: str) -> Finding:
    (finding,) = [one for one in found("held-rebalance") if one.party("group") == group]
    return finding


def logged(group: str) -> tuple[int, int]:
    """The begin and the end of the longest rebalance of a group by the coordinator's log: ms."""
    log = lines("held-rebalance", "coordinator.tsv")
    begins = [at for at, text in log if text.startswith(f"Preparing to rebalance group {group} ")]
    ends = [at for at, text in log if text.startswith(f"Stabilized group {group} ")]
    return max(zip(begins, ends, strict=True), key=lambda each: each[1] - each[0])


@pytest.mark.parametrize("group", HELD)
def test_the_rebalance_is_that_of_the_coordinators_log(group: str) -> None:
    finding, (begin, end) = of_group(group), logged(group)
    assert finding.begin is not None
    assert finding.end is not None
    assert abs(finding.begin // MS - begin) < 50
    assert abs(finding.end // MS - end) < 50
    assert finding.numbers["rebalance_ns"] == pytest.approx((end - begin) * MS, rel=0.15)
    assert finding.numbers["rebalances"] == 1


@pytest.mark.parametrize("group", HELD)
def test_the_member_is_named_with_how_it_ended(group: str) -> None:
    finding, (member, how, newcomer) = of_group(group), HELD[group]
    assert finding.parties == (Party("group", group), Party("client", member), Party("host", "127.0.0.1"))
    assert finding.numbers["how"] == how
    assert finding.label == "held up"
    assert f'because of client "{member}" (127.0.0.1)' in finding.text
    assert f'it began when client "{newcomer}" (127.0.0.1) joined' in finding.text
    assert "read nothing of parcels" in finding.text
    assert ("sent no heartbeat" in finding.text, "heartbeats meanwhile" in finding.text) == (False, how != "dead")
    assert ("session.timeout.ms" in finding.setting) == (how == "dead")


def test_the_time_lost_is_what_the_others_had_nothing_to_read() -> None:
    """By their own callbacks: from when each gave up its partitions, or was to join, until it had some."""
    members = truth("held-rebalance")["members"]
    for group, (member, _, newcomer) in HELD.items():
        finding, (begin, end) = of_group(group), logged(group)
        waited = 0
        for name, events in members.items():
            if name.startswith(group) and name not in (member, newcomer):
                revoked = [at for at, what in events if what == "revoked" and begin <= at <= end]
                waited += end - revoked[0]
        waited += end - begin  # of the newcomer
        assert finding.time_lost_ns / MS == pytest.approx(waited, rel=0.15)


def test_members_that_work_less_or_leave_are_not_waited_for() -> None:
    """By the log, no rebalance took long."""
    assert found("held-rebalance-right") == ()
    log = lines("held-rebalance-right", "coordinator.tsv")
    for group in HELD:
        begins = [at for at, text in log if text.startswith(f"Preparing to rebalance group {group} ")]
        ends = [at for at, text in log if text.startswith(f"Stabilized group {group} ")]
        assert all(min(end for end in ends if end >= begin) - begin < 5000 for begin in begins)


def test_it_leads_the_first_lines_and_the_rebalance_follows() -> None:
    found = rows(FOLDER / "held-rebalance.pcap.zst")
    roots = [row for row in found if row["cause"] is None]
    assert [row["finding"] for row in roots[:3]] == ["held_rebalance"] * 3
    costs = [row["time_lost_ns"] for row in roots[:3]]
    assert costs == sorted(costs, reverse=True)
    caused = [row["parties"][0]["name"] for row in found if row["cause"] == "held_rebalance"]
    assert {"routing", "invoicing", "auditing"} <= set(caused)


def cut(tmp_path: Path, until_ms: int) -> list[Finding]:
    capture = read_capture(FOLDER / "held-rebalance.pcap.zst")
    path = tmp_path / "cut.pcap"
    path.write_bytes(pcap_bytes([packet for packet in capture.packets if packet.time_ns < until_ms * MS]))
    return [one for one in findings(section_input(path, "advice")) if one.party("group") == "routing"]


def test_a_capture_that_ends_in_the_rebalance_says_who_is_missing(tmp_path: Path) -> None:
    begin, end = logged("routing")
    (finding,) = cut(tmp_path, end - 500)
    assert finding.end is None
    assert finding.numbers["how"] == "still"
    assert finding.numbers["rebalance_ns"] == pytest.approx((end - 500 - begin) * MS, rel=0.15)
    assert "has stood in a rebalance for" in finding.text
    assert 'because of client "routing-3" (127.0.0.1), which has not joined yet, though it sent' in finding.text
    assert cut(tmp_path, begin + 4000) == []


@pytest.mark.parametrize("apis", [["JoinGroup", "SyncGroup"], ["Heartbeat", "SyncGroup"]])
def test_a_selection_without_the_evidence_is_silent(apis: list[str]) -> None:
    given = section_input(FOLDER / "held-rebalance.pcap.zst", "advice", selection=Selection.of(apis=apis))
    assert [one for one in findings(given) if one.numbers["how"] != "dead"] == []


# ------------------------------------------------------------ members of a group without a broker


class Group:
    """`early-1`, `early-2` and `late` are in generation 1. `new` joins at 10 s, and early ones are told at 12 s."""

    def __init__(self, end: float, early: float = 12.2) -> None:
        self.end = end
        self.members = [self.member("early-1", 1), self.member("early-2", 2), self.member("late", 3)]
        self.late = self.members[2]
        for member in self.members[:2]:
            tell(member, early - 0.2)
            join(member, 2, early + 0.01 * int(member.client_id[-1]), end)
        self.new = self.member("new", 4, at=9)
        self.new.ask_to_join(-1, 79)
        join(self.new, 2, 10, end)
        self.members.append(self.new)

    def member(self, name: str, host: int, at: float = 1) -> GroupMember:
        made = GroupMember(name, f"{name}-id", host, 5000 + host, at)
        if at == 1:
            made.join(1, host)
        return made

    def named(self, tmp_path: Path, *, without: tuple[str, ...] = ()) -> list[Finding]:
        segments = [one.talk.segments for one in self.members if one.client_id not in without]
        path = tmp_path / "group.pcap"
        path.write_bytes(pcap_bytes(encode(merge(*segments))))
        return [one for one in findings(section_input(path, "advice")) if one.id == "held_rebalance"]


def join(member: GroupMember, generation: int, at: float, end: float) -> None:
    """JoinGroup at a time in s, which is answered at another one."""
    member.talk.time_ns = START_NS + round(at * SECOND)
    member.join(generation, 1, wait_ns=max(round((end - at) * SECOND), 1))


def tell(member: GroupMember, *times: float, error: int = REBALANCE_IN_PROGRESS) -> None:
    """Heartbeats that are answered with an error."""
    for at in times:
        member.talk.time_ns = START_NS + round(at * SECOND)
        member.refused(error)


def test_a_member_that_beats_and_does_not_join_is_named(tmp_path: Path) -> None:
    group = Group(40)
    tell(group.late, *range(12, 40, 3))
    join(group.late, 2, 39.9, 40)
    (finding,) = group.named(tmp_path)
    assert finding.severity == WARNING
    assert finding.text == (
        'group "billing" stood in a rebalance for 30.0 s, 27.8 s of it because of client "late" (10.0.0.3), which '
        'joined last, though it sent 10 heartbeats meanwhile: it did not poll; "new", "early-1" and "early-2" waited '
        'in JoinGroup, 83.3 s in total, and read nothing of orders; it began when client "new" (10.0.0.4) joined'
    )
    assert finding.time_lost_ns == pytest.approx(3 * 27.8 * SECOND, rel=0.01)
    assert "max.poll.records" in finding.setting


def test_a_member_that_beats_late_was_silent(tmp_path: Path) -> None:
    group = Group(40)
    tell(group.late, 39.5)
    join(group.late, 2, 39.9, 40)
    (finding,) = group.named(tmp_path)
    assert "which sent no heartbeat for 29.5 s, and joined last;" in finding.text
    assert finding.setting == "session.timeout.ms, group.instance.id"


def test_a_member_that_never_came_is_named_with_its_rebalance_timeout(tmp_path: Path) -> None:
    group = Group(70)
    tell(group.late, *range(12, 70, 3))
    tell(group.late, 72, error=UNKNOWN_MEMBER_ID)
    (finding,) = group.named(tmp_path)
    assert "which did not join within its rebalance timeout (60,000 ms), though it sent 20 heartbeats" in finding.text
    assert finding.numbers["how"] == "removed"


def test_a_member_that_leaves_at_last_is_named(tmp_path: Path) -> None:
    group = Group(30)
    tell(group.late, *range(12, 30, 3))
    group.late.talk.time_ns = START_NS + 29_950 * MS
    group.late.leave()
    (finding,) = group.named(tmp_path)
    assert "which left at last, without having joined" in finding.text


def test_a_member_that_died_before_is_named_with_its_session_timeout(tmp_path: Path) -> None:
    """It beats at 4 s for the last time, its session takes 10 s, and the others are told at 5 s."""
    group = Group(14, early=5.2)
    group.new = group.member("newer", 5, at=4.5)
    join(group.new, 2, 5, 14)
    group.members[3] = group.new
    group.late.beat(4)
    (finding,) = group.named(tmp_path)
    assert "which had gone without LeaveGroup until its session timeout was over (10,000 ms);" in finding.text
    assert finding.numbers["how"] == "dead"


def test_two_members_that_come_late_are_counted(tmp_path: Path) -> None:
    group = Group(40)
    other = group.members[1] = group.member("other", 5)
    tell(other, *range(13, 40, 3))
    join(other, 2, 39.8, 40)
    tell(group.late, *range(12, 40, 3))
    join(group.late, 2, 39.9, 40)
    (finding,) = group.named(tmp_path)
    assert 'client "late" (10.0.0.3) and 1 more, which' in finding.text


def silent_cases() -> dict[str, Callable[[Group], Any]]:
    def tells(group: Group, end: float) -> None:
        tell(group.late, *range(12, round(end), 3))

    def is_not_last(group: Group) -> None:
        """Its own JoinGroup waits: the group waits for another one, which was not captured."""
        tells(group, 30)
        join(group.late, 2, 30, group.end)

    def goes_on(group: Group) -> None:
        """Its JoinGroup was not captured: it beats on in the new generation."""
        tells(group, group.end)
        group.late.beat(group.end + 3)

    def was_not_told(group: Group) -> None:
        join(group.late, 2, 39.9, group.end)

    def is_expelled_for_another_reason(group: Group) -> None:
        """It was told of nothing before the coordinator says that it is no member."""
        tell(group.late, 41, error=UNKNOWN_MEMBER_ID)

    return {each.__name__: each for each in (is_not_last, goes_on, was_not_told, is_expelled_for_another_reason)}


@pytest.mark.parametrize("case", silent_cases())
def test_without_evidence_there_is_no_finding(tmp_path: Path, case: str) -> None:
    group = Group(40)
    silent_cases()[case](group)
    assert group.named(tmp_path) == []


def test_a_member_that_comes_within_five_seconds_is_not_named(tmp_path: Path) -> None:
    """The group waits from 12.2 s on, when the last of the others has joined."""
    for end, count in ((17.0, 0), (17.5, 1)):
        group = Group(end)
        tell(group.late, 12.5, 15.5)
        join(group.late, 2, end - 0.1, end)
        assert len(group.named(tmp_path)) == count


def test_others_that_come_as_late_explain_the_time_as_well(tmp_path: Path) -> None:
    """early-1 and early-2 hear of it at 29 s: the last 11 s are not most of 30 s."""
    group = Group(40)
    steady = group.member("steady", 6)  # it hears of it from a commit, which is no evidence
    join(steady, 2, 29, 40)
    group.members.append(steady)
    tell(group.late, *range(12, 40, 3))
    join(group.late, 2, 39.9, 40)
    assert group.named(tmp_path) == []


def test_the_others_must_be_captured(tmp_path: Path) -> None:
    group = Group(40)
    tell(group.late, *range(12, 40, 3))
    join(group.late, 2, 39.9, 40)
    assert group.named(tmp_path, without=("early-1", "early-2", "new")) == []
    (finding,) = group.named(tmp_path, without=("early-1", "new"))
    assert '"early-2" waited in JoinGroup' in finding.text
    assert "it began" not in finding.text


def test_members_of_a_new_group_wait_for_its_first_rebalance(tmp_path: Path) -> None:
    """group.initial.rebalance.delay.ms: the broker waits for more of them."""
    members = [GroupMember(f"m-{n}", f"m-{n}-id", n, 5000 + n, n) for n in (1, 2, 3)]
    for member in members:
        join(member, 1, member.talk.time_ns / SECOND - START_NS / SECOND, 12)
    path = tmp_path / "group.pcap"
    path.write_bytes(pcap_bytes(encode(merge(*(member.talk.segments for member in members)))))
    assert findings(section_input(path, "advice")) == []


def test_several_rebalances_are_one_finding(tmp_path: Path) -> None:
    group = Group(40)
    tell(group.late, *range(12, 40, 3))
    join(group.late, 2, 39.9, 40)
    for member in group.members:
        if member is not group.late:
            member.talk.wait(SECOND)
            member.number += 1
    join(group.new, 3, 50, 90)
    for member in group.members[:2]:
        join(member, 3, 50.5, 90)
    for at in range(52, 90, 3):
        group.late.talk.time_ns = START_NS + at * SECOND
        group.late.refused(REBALANCE_IN_PROGRESS, 2)
    join(group.late, 3, 89.9, 90)
    (finding,) = group.named(tmp_path)
    assert finding.numbers["rebalances"] == 2
    assert 'group "billing" was held up in 2 rebalances; for longest, 39.5 s, by client "late" (10.0.0.3), which' in (
        finding.text
    )


def test_a_member_that_the_group_expels_each_time_is_one_line(tmp_path: Path) -> None:
    """It never comes, joins again as a new member, and never comes again: `expelled_members` says so."""
    early = [GroupMember(f"early-{n}", f"early-{n}-id", n, 5000 + n, 1) for n in (1, 2)]
    late = GroupMember("late", "late-0", 3, 5003, 1)
    for member in (*early, late):
        member.join(1, member.talk.ends[0][1] % 3)
    for turn in range(3):
        at, generation = 10 + 100 * turn, 1 + 2 * turn
        for n, member in enumerate(early):
            join(member, generation + 1, at + n, at + 60)
        for beat in range(at + 1, at + 60, 3):
            late.talk.time_ns = START_NS + beat * SECOND
            late.refused(REBALANCE_IN_PROGRESS, generation)
        tell(late, at + 62, error=UNKNOWN_MEMBER_ID)
        late.id = f"late-{turn + 1}"
        join(late, generation + 2, at + 64, at + 66)
        for n, member in enumerate(early):
            join(member, generation + 2, at + 65 + n / 2, at + 66)
    path = tmp_path / "group.pcap"
    path.write_bytes(pcap_bytes(encode(merge(*(member.talk.segments for member in (*early, late))))))
    made = {one.id: one for one in findings(section_input(path, "advice"))}
    assert set(made) == {"expelled_members", "held_rebalance"}
    assert made["held_rebalance"].numbers["rebalances"] == 3
    assert made["held_rebalance"].cause == made["expelled_members"].key


# ------------------------------------------------------------ what follows from it

AT = START_NS
GROUP = (Party("group", "billing"),)
HELD_UP = Finding("held_rebalance", WARNING, "held up", "", 90 * SECOND, AT, AT + 30 * SECOND, parties=GROUP)


@pytest.mark.parametrize(
    ("effect", "begin", "is_effect"),
    [
        ("group_rebalanced", 0, True),
        ("group_rebalanced", 60, False),
        ("lagging_group", 10, True),
        ("lagging_group", -100, False),
    ],
)
@pytest.mark.parametrize("lasts", [False, True])
def test_rebalances_and_lag_follow_from_it(effect: str, begin: int, is_effect: bool, lasts: bool) -> None:
    held = HELD_UP._replace(end=None) if lasts else HELD_UP
    section = "events" if effect == "group_rebalanced" else "advice"
    other = Finding(effect, NOTE, "", "", 0, AT + begin * SECOND, AT + (begin + 1) * SECOND, parties=GROUP)
    last = context(first=AT, last=AT + 40 * SECOND)
    made = folded([("advice", held), (section, other)], Known(last))
    expected = is_effect or (lasts and effect == "group_rebalanced")
    assert [finding.cause for _, finding in made] == [None, held.key if expected else None]


def test_it_makes_no_other_request_slow() -> None:
    client = (Party("client", "late"),)
    held = HELD_UP._replace(parties=(*GROUP, *client))
    slow = Finding("slow_client", ERROR, "slow", "", SECOND, AT, parties=client)
    made = folded([("advice", held), ("", slow)], Known(context()))
    assert [finding.cause for _, finding in made] == [None, None]
