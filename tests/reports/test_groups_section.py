"""The section `groups` says what the broker says: kafka-consumer-groups, and the log of the group coordinator.

samples/questions/README.md describes the recordings and their truth. Differences that remain are bounded here:

- The coordinator's times are in ms and from its own clock reads, between a request's arrival and its response.
- The coordinator bumps the epoch of an emptied group. No response has that epoch, so it is no rebalance here.
- A share group gets an epoch when its partitions are initialised; no request causes it.
- The stop of a rebalance ends with a response; a consumer's listener is called when the application polls.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kafkatap.engine.engine import engine_for
from kafkatap.engine.selection import EVERYTHING
from kafkatap.reports.build import build_report
from kafkatap.reports.counting.count_table import LATEST, MAX, SUM, CountTable
from kafkatap.reports.counting.counts import ReportCounts
from kafkatap.reports.groups.group import History, Seen, history_of
from kafkatap.reports.groups.group_events import BEAT, CLASSIC, CONSUMER, EXPELLED, JOIN, LEAVE, REFUSED, SYNC
from kafkatap.reports.groups.group_requests import Event, read_assignment
from kafkatap.reports.section_parts.registry import needs_of
from kafkatap.reports.section_parts.section_counts import SectionCounts
from kafkatap.reports.sections.groups import member_prefix
from kafkatap.run import Run

FOLDER = Path(__file__).resolve().parents[2] / "samples" / "questions"
MS = 1_000_000
Row = dict[str, Any]


@cache
def tables(name: str, until_ms: int = 2**42, from_ms: int = 0) -> dict[str, list[Row]]:
    """The tables of the section by name, of exchanges that were sent from a time on and answered before another."""
    wanted = ("groups",)
    engine = engine_for(EVERYTHING, tables=False, **needs_of(wanted)._asdict())
    sections = SectionCounts(wanted, engine.limits.names, lambda: engine.dissector.strings.other)
    run = Run([str(FOLDER / f"{name}.pcap.zst")], engine)
    for batch in run.batches():
        x = batch.exchanges
        sections.add(batch.picked((x["request_first"] >= from_ms * MS) & (x["response_last"] < until_ms * MS)))
    report = build_report(ReportCounts(), run.context(), sections=wanted, over_facts=sections)
    return {
        table.name: [dict(zip((c.name for c in table.columns), row, strict=True)) for row in table.rows]
        for table in report.tables
    }


# ------------------------------------------------------------ kafka-consumer-groups


class Described(NamedTuple):
    """One output of the tool: when it began and ended, its lines without headings, and their words by column."""

    from_ms: int
    to_ms: int
    lines: list[str]
    rows: list[dict[str, str]]


@cache
def described(title: str, options: str) -> Described:
    text = (FOLDER / "groups.describe.txt").read_text()
    found = re.search(rf"^# {title}: {options} from (\d+) to (\d+) ms\n(.*?)(?=^# |\Z)", text, re.MULTILINE | re.DOTALL)
    assert found is not None
    lines: list[str] = []
    rows: list[dict[str, str]] = []
    for block in found[3].strip().split("\n\n"):
        head, *values = block.splitlines()
        lines += values
        rows += [dict(zip(head.split(), line.split(), strict=False)) for line in values]
    return Described(int(found[1]), int(found[2]), lines, rows)


def offsets(rows: list[Row]) -> dict[tuple[str, str, int], tuple[int, int]]:
    """Committed offsets and ends by group and partition."""
    return {
        (row["group"], row["topic"], row["partition"]): (row["committed"], row["high_watermark"])
        for row in rows
        if row["committed"] is not None
    }


def tool_offsets(title: str) -> dict[tuple[str, str, int], tuple[int, int]]:
    return {
        (row["GROUP"], row["TOPIC"], int(row["PARTITION"])): (int(row["CURRENT-OFFSET"]), int(row["LOG-END-OFFSET"]))
        for row in described(title, "--offsets").rows
    }


def test_lag_is_that_of_the_tool() -> None:
    """At the end nothing moves: every committed offset, end and lag is the same."""
    found = tables("groups")["group_partitions"]
    wanted = tool_offsets("quiet")
    assert len(wanted) == 17
    assert offsets(found) == wanted
    lags = {(row["GROUP"], row["TOPIC"], int(row["PARTITION"])): int(row["LAG"])
            for row in described("quiet", "--offsets").rows}  # fmt: skip
    assert {(row["group"], row["topic"], row["partition"]): row["committed_lag"] for row in found} == lags
    by_topic = tables("groups")["group_lag"]
    slow = sum(lag for (group, *_), lag in lags.items() if group == "slow")
    assert slow > 100
    assert by_topic[0]["group"] == "slow"
    assert by_topic[0]["committed_lag"] == slow


def test_lag_while_clients_run_is_between_that_before_and_after_the_tool() -> None:
    tool = described("running", "--offsets")
    before, after = (offsets(tables("groups", ms)["group_partitions"]) for ms in (tool.from_ms, tool.to_ms))
    moved = 0
    for key, (committed, end) in tool_offsets("running").items():
        assert before[key][0] <= committed <= after[key][0], key
        assert before[key][1] <= end <= after[key][1], key
        moved += before[key] != after[key]
    assert moved > 10


def test_members_are_those_of_the_tool() -> None:
    tool = described("quiet", "--members --verbose")
    until = json.loads((FOLDER / "groups.truth.json").read_text())["snapshots"][1]["to_ms"]
    found = {
        (row["group"], row["member"], row["client_id"], row["address"], row["partitions"])
        for row in tables("groups", until)["group_members"]
        if row["left"] is None
    }
    wanted = {
        (row["GROUP"], row["CONSUMER-ID"], row["CLIENT-ID"], row["HOST"].lstrip("/"), int(row["#PARTITIONS"]))
        for row in tool.rows
    }
    assert len(wanted) == 6
    assert found == wanted
    groups = {row["group"]: row for row in tables("groups", until)["groups"]}
    states = described("quiet", "--state").lines
    assert len(states) == 6
    for line in states:
        group, *_, strategy, _, members = line.split()
        assert groups[group]["members"] == int(members)
        if groups[group]["type"] == "classic" and int(members):
            assert groups[group]["protocol"] == strategy


def test_positions_are_those_of_the_consumers() -> None:
    truth = json.loads((FOLDER / "groups.truth.json").read_text())
    wanted = {
        (client, *re.fullmatch(r"(\w+)-(\d+)=(\d+)", word).groups())  # type: ignore[union-attr]
        for client, text in truth["positions"].items()
        if truth["clients"][client]["group"] is not None
        for word in text.split()
    }
    rows = [row for row in tables("groups")["group_partitions"] if row["client_id"] in truth["positions"]]
    assert {(r["client_id"], r["topic"], str(r["partition"]), str(r["position"])) for r in rows} == wanted
    assert {r["sure"] for r in rows} == {"assignment"}


def test_groups_have_the_clients_and_types_of_the_scenario() -> None:
    clients = json.loads((FOLDER / "groups.truth.json").read_text())["clients"]
    wanted = {(c["group"], c["type"], name) for name, c in clients.items() if c.get("group")}
    assert {(r["group"], r["type"], client) for r in tables("groups")["groups"] for client in r["clients"]} == wanted


# ------------------------------------------------------------ the group coordinator


class Logged(NamedTuple):
    """A rebalance in the coordinator's log. `end_ms`: when the leader's assignment came; classic groups only."""

    group: str
    number: int
    start_ms: int
    end_ms: int | None
    trigger: str
    reason: str | None
    members: int | None


CAUSES = (
    (r"Adding new member|joins the (consumer|share) group", "join"),
    (r"explicit `LeaveGroup`|left the (consumer|share) group", "leave"),
    (r"on heartbeat expiration|session expired", "session timeout"),
    (r"re-joining group during Stable", "rejoin"),
)

#: Some bumps have the first line only, the one after a leave of a share group the second only.
EPOCH = r"\[GroupId (\w+)\] (?:Bumped group epoch to|Computed a new target assignment for epoch) (\d+)"


def trigger_of(text: str) -> str:
    return next((trigger for pattern, trigger in CAUSES if re.search(pattern, text)), "not captured")


def trigger_in_log(row: Row) -> str:
    """The trigger of a rebalance as the coordinator sees it: it knows no poll timeout, and not who joins again."""
    if row["reason"] == "joined again after its poll timeout":
        return "join"
    if row["trigger"] == "poll timeout":
        assert row["reason"] == "consumer poll timeout has expired."
        return "leave"
    return row["trigger"]


@cache
def logged() -> dict[tuple[str, int], Logged]:
    """The rebalances of the coordinator's log, by group and generation or epoch."""
    found: dict[tuple[str, int], Logged] = {}
    started: dict[str, tuple[int, str, str | None]] = {}
    cause: dict[str, tuple[int, str]] = {}
    for line in (FOLDER / "rebalances.coordinator.tsv").read_text().splitlines():
        at, text = int(line.partition("\t")[0]), line.partition("\t")[2]
        if m := re.match(r"Preparing to rebalance group (\w+) .*?reason: (.*)\)\.$", text):
            client_reason = re.search(r"client reason: (.*)$", m[2])
            started[m[1]] = at, trigger_of(m[2]), client_reason[1] if client_reason else None
        elif m := re.match(r"Stabilized group (\w+) generation (\d+) with (\d+) members", text):
            found[m[1], int(m[2])] = Logged(m[1], int(m[2]), started[m[1]][0], None, *started[m[1]][1:], int(m[3]))
        elif m := re.match(r"Assignment received from leader \S+ for group (\w+) for generation (\d+)", text):
            found[m[1], int(m[2])] = found[m[1], int(m[2])]._replace(end_ms=at)
        elif m := re.match(EPOCH, text):
            if (m[1], int(m[2])) in found:
                continue
            since, trigger = cause.pop(m[1], (at, "not captured"))
            found[m[1], int(m[2])] = Logged(m[1], int(m[2]), since, None, trigger, None, None)
        elif (m := re.match(r"\[GroupId (\w+)\] Member", text)) and trigger_of(text) != "not captured":
            cause[m[1]] = at, trigger_of(text)
    return found


def rebalances() -> Iterator[tuple[Row, Logged]]:
    """The rebalances that were found, and those of the log."""
    for row in tables("rebalances")["rebalances"]:
        yield row, logged()[row["group"], row["generation"]]


def test_all_rebalances_of_the_log_are_found() -> None:
    found = {(row["group"], row["generation"]) for row in tables("rebalances")["rebalances"]}
    assert set(logged()) - found == {("shipping", 7)}  # the last member left
    assert found <= set(logged())
    assert len(found) == 26


def test_causes_are_those_of_the_log() -> None:
    triggers = set()
    for row, log in rebalances():
        assert trigger_in_log(row) == log.trigger, row
        triggers.add(log.trigger)
        if log.trigger == "rejoin":
            assert row["reason"] == log.reason
        if log.members is not None:
            assert row["members"] == log.members
    assert triggers == {"join", "leave", "rejoin", "session timeout", "not captured"}


@pytest.mark.parametrize("seconds", [6, 9, 14, 20, 26])
def test_causes_are_those_of_the_log_where_the_capture_begins_later(seconds: int) -> None:
    """A rebalance in which the capture begins has another cause, or none."""
    first = min(log.start_ms for log in logged().values())
    begin = first + seconds * 1000
    compared = 0
    for row in tables("rebalances", from_ms=begin)["rebalances"]:
        log = logged()[row["group"], row["generation"]]
        if log.start_ms > begin + 100:
            assert trigger_in_log(row) == log.trigger, row
            compared += 1
    assert compared == sum(log.start_ms > begin + 100 for key, log in logged().items() if key != ("shipping", 7))


def test_leaves_have_the_reasons_of_the_log() -> None:
    left = {row["member"]: row["left_by"] for row in tables("rebalances")["group_members"]}
    text = (FOLDER / "rebalances.coordinator.tsv").read_text()
    explicit = re.findall(
        r"Member (\S+) has left group through explicit `LeaveGroup` request; client reason: (.*)", text
    )
    assert len(explicit) == 6
    assert {member: left[member] for member, _ in explicit} == {m: f"left: {reason}" for m, reason in explicit}
    failed = re.findall(r"Member (\S+) (?:in group \w+ has failed|fenced from the group)", text)
    assert len(failed) == 2
    assert {left[member] for member in failed} == {"session timeout"}


def test_times_are_those_of_the_log() -> None:
    """The start within 30 ms, the end from the leader's assignment to 30 ms after it.

    A group's first JoinGroup waits while the coordinator starts: the log has it up to 300 ms later.
    """
    for row, log in rebalances():
        early = row["start"] / MS - log.start_ms
        if log.trigger == "session timeout" and log.members is None:
            # A member of a KIP-848 group hears of it with its next heartbeat: they are 500 ms apart.
            assert 0 <= early < 600, row
            continue
        if log.trigger == "not captured":
            assert 0 <= early < 1100, row  # the next heartbeat of a share group
            continue
        is_first = log.number <= 2 and row["members"] == 1
        assert (-300 if is_first else -30) < early < 30, row
        if log.end_ms is not None:
            assert -1 <= row["end"] / MS - log.end_ms < 30, row


def listened() -> Iterator[tuple[str, int, float]]:
    """What the consumers' listeners saw: group, when a partition was assigned again (ms), how long it was revoked."""
    truth = json.loads((FOLDER / "rebalances.truth.json").read_text())
    revoked: dict[tuple[str, str], int] = {}
    for at, client, what, text in truth["assignments"]:
        group = client.rpartition("-")[0]
        for partition in text.split():
            if what == "assigned":
                since = revoked.pop((group, partition), None)
                if since is not None:
                    yield group, at, at - since
            else:
                revoked[group, partition] = at


def test_stops_are_those_of_the_listeners() -> None:
    """Within 100 ms. A rebalance may end for one partition after another, so the longest counts."""
    compared = 0
    for row, log in rebalances():
        if log.trigger == "session timeout" or row["reason"] == "consumer poll timeout has expired.":
            continue  # the listener of a dead member is not called, that of a late one later
        seen = [long for group, at, long in listened()
                if group == log.group and row["start"] / MS <= at <= row["end"] / MS + 100]  # fmt: skip
        if seen and row["stop_ns"] is not None:
            assert abs(max(seen) - row["stop_ns"] / MS) < 100, (row, seen)
            compared += 1
    assert compared >= 10


def test_a_dead_member_keeps_its_partitions_for_its_session() -> None:
    """From its last request, at most a heartbeat interval (500 ms) before it was killed, to the next assignment."""
    truth = json.loads((FOLDER / "rebalances.truth.json").read_text())
    killed = {group: at for at, what, group, _ in truth["steps"] if what == "kill"}
    for row, log in rebalances():
        if log.trigger == "session timeout":
            stop = row["end"] / MS - killed[log.group]
            assert stop - 100 < row["stop_ns"] / MS < stop + 600
            assert row["stop_ns"] > 3000 * MS


def test_a_static_member_that_comes_back_is_no_rebalance() -> None:
    members = [row for row in tables("rebalances")["group_members"] if row["instance"] == "till-1"]
    assert [row["client_id"] for row in members] == ["payments-1", "payments-1b"]
    assert members[0]["left_by"] == "replaced: the same instance joined again"
    assert members[1]["left"] is None
    assert members[1]["partitions"] == 4
    assert [row["generation"] for row in tables("rebalances")["rebalances"] if row["group"] == "payments"] == [1, 2, 3]


def test_heartbeat_errors_are_counted() -> None:
    errors = {(r["group"], r["error"], r["api"]): r["codes"] for r in tables("rebalances")["group_errors"]}
    assert errors["billing", "REBALANCE_IN_PROGRESS", "Heartbeat"] > 5
    assert not any(error == "MEMBER_ID_REQUIRED" for _, error, _ in errors)
    types = {row["group"]: row["type"] for row in tables("rebalances")["groups"]}
    assert types == {"billing": "classic", "reports": "classic", "payments": "classic", "shipping": "consumer",
                     "pickers": "share"}  # fmt: skip


def test_a_streams_group_has_members_and_epochs() -> None:
    found = tables("../live-4.4")
    assert {row["group"]: row["type"] for row in found["groups"]} == {
        "enrichment": "streams", "billing": "consumer", "audit": "classic",
    }  # fmt: skip
    (member,) = (row for row in found["group_members"] if row["group"] == "enrichment")
    assert (member["member"], member["client_id"], member["left_by"]) == ("member-1", "streams-1", "left")
    first, second = (row for row in found["rebalances"] if row["group"] == "enrichment")
    assert (first["generation"], first["trigger"], first["who"]) == (1, "join", "streams-1")
    assert (second["generation"], second["trigger"]) == (3, "not captured")  # its topology was complete


# ------------------------------------------------------------ parts


def test_assignments_are_read() -> None:
    raw = bytes.fromhex("0003 00000001 0006 6f7264657273 00000002 00000000 00000003 ffffffff".replace(" ", ""))
    assert read_assignment(raw) == frozenset({("orders", 0), ("orders", 3)})
    assert read_assignment(b"") == frozenset()


@pytest.mark.parametrize("length", range(1, 26))
def test_cut_assignments_are_none(length: int) -> None:
    raw = bytes.fromhex("0003 00000001 0006 6f7264657273 00000002 00000000 00000003".replace(" ", ""))
    assert read_assignment(raw[:length]) is None


@pytest.mark.parametrize(
    ("member", "prefix"),
    [
        ("billing-1-1ca8a9ac-be93-4507-9771-a91429f5c429", "billing-1"),
        ("1ca8a9ac-be93-4507-9771-a91429f5c429", "1ca8a9ac"),
        ("oRVVH4hJTn-OFrLDgMKo_Q", "oRVVH4hJ"),
    ],
)
def test_member_prefix(member: str, prefix: str) -> None:
    assert member_prefix(member) == prefix


def test_latest_values_do_not_depend_on_the_order() -> None:
    rows = [(1, 10, 5), (1, 30, 2), (1, 20, 9), (1, 30, 4)]
    for order in (rows, rows[::-1], rows[2:] + rows[:2]):
        table, other = (CountTable(1, [SUM, MAX, LATEST]) for _ in range(2))
        for n, row in enumerate(order):
            (table if n % 2 else other).add([[7]], [list(row)])  # type: ignore[arg-type]
        table.merge(other)
        assert table.value_rows().tolist() == [[4, 30, 4]]


# ------------------------------------------------------------ histories

SECOND = 1_000_000_000


class Story:
    """Events of one group, told in seconds."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.seen: dict[str, Seen] = {}
        self.more: dict[str, Any] = {}

    def add(self, kind: int, member: str, sent: float, done: float, number: int, **more: Any) -> None:
        values = {
            "group": "g", "instance": None, "client": member, "address": "10.0.0.1", "sent_number": number,
            "timeout_ms": 10_000, "text": None, "protocol": "range", "error": 0, "is_answered": True,
            "type": CLASSIC, "assignment": None,
        }  # fmt: skip
        event = Event(kind=kind, sent=int(sent * SECOND), done=int(done * SECOND), member=member, number=number,
                      **(values | more))  # fmt: skip
        self.events.append(event)
        before = self.seen.get(member, Seen(event.sent, event.sent, member, "10.0.0.1"))
        self.seen[member] = before._replace(last=max(before.last, event.sent))

    def history(self) -> History:
        return history_of(sorted(self.events, key=lambda e: e.done), self.seen)


def parts(*numbers: int) -> frozenset[tuple[str, int]]:
    return frozenset(("t", number) for number in numbers)


def test_a_capture_that_begins_in_a_rebalance_has_no_cause() -> None:
    story = Story()
    for member in ("a", "b"):
        story.add(REFUSED, member, 1, 1.1, 4, error=27)
        story.add(JOIN, member, 1.5, 3, 5)
        story.add(SYNC, member, 3.1, 3.2, 5, assignment=parts(ord(member)))
    (rebalance,) = story.history().rebalances
    assert (rebalance.trigger, rebalance.who, rebalance.start) == ("not captured", None, int(1.1 * SECOND))
    assert rebalance.end == int(3.2 * SECOND)
    assert rebalance.members == {"a", "b"}


def from_before(committed: float | None, how: str = "leave") -> History:
    """`a` and `b` have joined before the capture. `b` commits, and leaves at 4 s, or sends its last request then, and
    `a` has all partitions at 8 s."""
    story = Story()
    story.seen = {name: Seen(SECOND, 4 * SECOND, name, "10.0.0.1") for name in ("a", "b")}
    if how == "leave":
        story.add(LEAVE, "b", 4, 4.1, 5)
    if committed is not None:
        story.seen["b"] = story.seen["b"]._replace(committed=int(committed * SECOND))
    story.add(REFUSED, "a", 6.5, 6.6, 5, error=27)
    story.add(JOIN, "a", 7, 7.9, 6)
    story.add(SYNC, "a", 7.9, 8, 6, assignment=parts(1, 2))
    story.add(JOIN, "a", 20, 20.1, 7)
    story.add(SYNC, "a", 20.1, 20.25, 7, assignment=parts(1, 2))
    return story.history()


def test_partitions_of_a_member_from_before_the_capture_had_none_since_it_left() -> None:
    """If it committed, it had some. It is not known whether others were without a member for longer."""
    first, second = from_before(committed=2).rebalances
    assert (first.trigger, first.stop, first.is_at_least, first.without_member) == ("leave", 4 * SECOND, True, 0)
    assert (second.stop, second.is_at_least) == (SECOND // 4, False)  # all assignments before are known
    first, second = from_before(committed=2, how="die").rebalances
    assert first.has_timed_out
    assert (first.stop, first.is_at_least, first.without_member) == (4 * SECOND, True, 4 * SECOND)
    assert second.without_member == 0


@pytest.mark.parametrize("committed", [None, 4.5])
def test_a_member_from_before_the_capture_that_did_not_commit_may_have_had_none(committed: float | None) -> None:
    (first, _) = from_before(committed).rebalances
    assert (first.stop, first.is_at_least) == (None, True)


def test_a_group_that_begins_in_the_capture_has_known_assignments() -> None:
    story = Story()
    story.add(JOIN, "a", 1, 2, 1)
    story.add(SYNC, "a", 2, 2.5, 1, assignment=parts(1, 2))
    story.history()
    story.add(JOIN, "b", 3, 4.1, 2)
    story.add(JOIN, "a", 4, 4.1, 2)
    story.add(SYNC, "a", 4.1, 4.5, 2, assignment=parts(1, 3))  # 3 is new
    assert [(each.stop, each.is_at_least) for each in story.history().rebalances] == [
        (None, False),
        (SECOND // 2, False),
    ]


def test_a_timeout_starts_when_the_session_ends() -> None:
    story = Story()
    for member in ("a", "b"):
        story.add(JOIN, member, 1, 2, 1)
        story.add(SYNC, member, 2, 2.5, 1, assignment=parts(ord(member)))
    story.add(REFUSED, "a", 13, 13.1, 1, error=27)
    story.add(JOIN, "a", 13.2, 14, 2)
    story.add(SYNC, "a", 14, 14.5, 2, assignment=parts(97, 98))
    history = story.history()
    last = history.rebalances[-1]
    assert (last.trigger, last.who) == ("session timeout", "b")
    assert last.start == 12 * SECOND  # the last request at 2 s, and 10 s
    assert last.stop == 12 * SECOND  # from its last assignment
    assert history.members["b"].left_by == "session timeout"
    assert history.parts == {"a": 2, "b": 0}


@pytest.mark.parametrize(
    ("refused", "start", "silent", "stop"),
    [
        (14.9, 14.9, 0, 10.3),  # the session was not over: the coordinator removed it for another reason
        (15.1, 15, 10.1, 10.5),
        (25, 15, 20, 20.4),
    ],
)
def test_the_only_member_is_silent_until_it_joins_again(
    refused: float, start: float, silent: float, stop: float
) -> None:
    """Its last heartbeat is of 5 s, and its session lasts 10 s. It learns that it is no member when it is back."""
    story = Story()
    story.add(JOIN, "a", 1, 2, 1, client="one")
    story.add(SYNC, "a", 2, 2.5, 1, client="one", assignment=parts(1))
    story.add(EXPELLED, "a", refused, refused + 0.1, 0, client="one", error=25)
    story.add(JOIN, "b", refused + 0.1, refused + 0.2, 3, client="one")
    story.add(SYNC, "b", refused + 0.3, refused + 0.4, 3, client="one", assignment=parts(1))
    for member in story.seen:
        story.seen[member] = story.seen[member]._replace(client="one")
    story.seen["a"] = story.seen["a"]._replace(good=5 * SECOND)
    history = story.history()
    last = history.rebalances[-1]
    assert (last.trigger, last.who) == ("session timeout", "one")
    assert (last.start, last.silent) == (int(start * SECOND), int(silent * SECOND))
    assert last.stop == pytest.approx(stop * SECOND)
    assert history.members["a"].left == int(start * SECOND)


def test_two_members_that_join_at_once_are_two_causes() -> None:
    story = Story()
    story.add(JOIN, "a", 1, 2, 1)
    for member, sent in (("c", 5), ("b", 4), ("a", 6)):
        story.add(JOIN, member, sent, 7, 2)
    last = story.history().rebalances[-1]
    assert (last.trigger, last.who, last.others) == ("join", "b", 1)
    assert last.stop is None


def test_a_static_member_that_came_back_is_not_missed_later() -> None:
    """Its new member id takes the place of the old one, so the generation after it lacks nobody."""
    story = Story()
    story.add(JOIN, "a", 1, 2, 1, instance="static")
    story.add(JOIN, "b", 1, 2, 1)
    story.add(JOIN, "a2", 5, 5.1, 1, instance="static")
    story.add(JOIN, "b", 8, 9, 2)
    story.add(JOIN, "a2", 8.5, 9, 2, instance="static")
    for member in ("a", "a2"):
        story.seen[member] = story.seen[member]._replace(instance="static")
    first, last = story.history().rebalances
    assert first.members == {"a", "b"}
    assert (last.trigger, last.who, last.start) == ("rejoin", "b", 8 * SECOND)


def test_cooperative_members_keep_their_partitions() -> None:
    story = Story()
    story.add(JOIN, "a", 1, 2, 1, protocol="cooperative-sticky")
    story.add(SYNC, "a", 2, 3, 1, assignment=parts(1, 2))
    story.add(JOIN, "b", 4, 6, 2, protocol="cooperative-sticky")
    story.add(JOIN, "a", 5, 6, 2, protocol="cooperative-sticky")
    story.add(SYNC, "a", 6, 7, 2, assignment=parts(1))
    story.add(JOIN, "a", 8, 9, 3, protocol="cooperative-sticky", text="need to revoke")
    story.add(JOIN, "b", 8.5, 9, 3, protocol="cooperative-sticky")
    story.add(SYNC, "a", 9, 9.5, 3, assignment=parts(1))
    story.add(SYNC, "b", 9, 10, 3, assignment=parts(2))
    _, second, third = story.history().rebalances
    assert second.stop is None
    assert third.stop == 3 * SECOND  # partition 2 from 7 s to 10 s
    assert (third.trigger, third.reason) == ("rejoin", "need to revoke")
    assert third.is_cooperative


def test_a_subscription_changes_an_epoch() -> None:
    story = Story()
    more: dict[str, Any] = {"type": CONSUMER, "protocol": None, "sent_number": 7}
    story.add(BEAT, "a", 1, 1.1, 7, **more, topics=frozenset("t"))
    story.add(BEAT, "a", 2, 2.1, 8, **more, topics=frozenset("tu"), assignment=parts(1))
    (rebalance,) = story.history().rebalances
    assert (rebalance.number, rebalance.trigger, rebalance.who) == (8, "subscription", "a")


def heartbeats() -> Story:
    """Two members of a group with heartbeats, `a` and `b`, that have reached epoch 2 at 3.1 s."""
    story, more = Story(), {"type": CONSUMER, "protocol": None, "interval_ms": 1000}
    story.more = more
    story.add(BEAT, "a", 1, 1.1, 1, sent_number=0, topics=frozenset("t"), assignment=parts(1, 2), **more)
    story.add(BEAT, "b", 2, 2.1, 2, sent_number=0, topics=frozenset("t"), **more)
    story.add(BEAT, "a", 2.5, 2.6, 1, sent_number=1, assignment=parts(1), **more)
    story.add(BEAT, "a", 2.9, 3, 2, sent_number=1, **more)
    story.add(BEAT, "b", 3, 3.1, 2, sent_number=2, assignment=parts(2), **more)
    return story


def test_another_coordinator_repeats_assignments_and_is_no_rebalance() -> None:
    story = heartbeats()
    for at, member in ((60, "a"), (61, "b")):  # the coordinator moved: whole requests, and answers to them
        own = parts(1) if member == "a" else parts(2)
        story.add(BEAT, member, at, at + 1, 2, sent_number=2, topics=frozenset("t"), assignment=own, **story.more)
    found = story.history().rebalances
    assert [(r.number, r.trigger, r.end) for r in found] == [
        (1, "join", int(1.1 * SECOND)), (2, "join", int(3.1 * SECOND))
    ]  # fmt: skip


@pytest.mark.parametrize("answered", [10.103, None])
def test_a_leave_whose_answer_comes_after_that_of_another_member(answered: float | None) -> None:
    story = heartbeats()
    story.add(BEAT, "b", 10, answered or 10, -1, sent_number=-1, is_answered=answered is not None, **story.more)
    story.add(BEAT, "a", 10.05, 10.1, 3, sent_number=2, assignment=parts(1, 2), **story.more)
    history = story.history()
    last = history.rebalances[-1]
    assert (last.number, last.trigger, last.who, last.start) == (3, "leave", "b", 10 * SECOND)
    assert (history.members["b"].left_by, history.expulsions) == ("left", [])


def test_a_member_is_silent_only_after_two_intervals() -> None:
    """At 5 s, `b` has been silent for 2 s, which is no session timeout; at 30 s it is."""
    for at, trigger in ((5.0, "not captured"), (30.0, "session timeout")):
        story = heartbeats()
        story.add(BEAT, "a", at - 0.1, at, 3, sent_number=2, assignment=parts(1, 2), **story.more)
        assert story.history().rebalances[-1].trigger == trigger


def test_failed_requests_are_no_history() -> None:
    story = Story()
    story.add(JOIN, "", 1, 1.1, -1, error=79)
    story.add(JOIN, "a", 1.2, 1.3, -1, error=25)
    story.add(LEAVE, "a", 2, 2.1, 0, error=25)
    story.add(BEAT, "b", 3, 3.1, 5, type=CONSUMER, error=110)
    history = story.history()
    assert history.rebalances == []
    assert all(member.joined is None and member.left is None for member in history.members.values())


def test_members_from_before_the_capture() -> None:
    """They rejoin, leave or die, and the first generation that was captured has a cause."""
    story = Story()
    story.seen = {name: Seen(SECOND, 2 * SECOND, name, "10.0.0.1") for name in ("a", "b", "c")}
    story.add(LEAVE, "c", 3, 3.1, 0, text="closing")
    story.add(REFUSED, "a", 4, 4.1, 6, error=27)
    for member in ("a", "b"):
        story.add(JOIN, member, 4.5, 5, 7)
    history = story.history()
    (rebalance,) = history.rebalances
    assert (rebalance.trigger, rebalance.who, rebalance.reason) == ("leave", "c", "closing")
    assert history.members["c"].left == 3 * SECOND
    assert history.members["a"].joined is None
    dead = Story()
    dead.seen = {name: Seen(SECOND, 2 * SECOND, name, "10.0.0.1") for name in ("a", "b")}
    dead.add(BEAT, "a", 50, 50.1, 8, sent_number=7, type=CONSUMER)
    (rebalance,) = dead.history().rebalances
    assert (rebalance.trigger, rebalance.who) == ("session timeout", "b")
