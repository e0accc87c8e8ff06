"""Rebalances that one member holds up: the others wait in JoinGroup, and read nothing if the assignor is eager."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from .. import units
from ..finding_words import NAMED, and_more, listed
from ..findings import Finding, Party
from ..groups.group_requests import read_assignment
from ..parties import client_text
from ..section_parts.section import SectionInput
from .member_events import EXPELLED, JOINED, LAST, LEFT, REFUSED, SYNCED, TOLD, member_events
from .parties import client_parties
from .rebalance_holds import CAME, DEAD, LEAST_NS, REMOVED, STILL, WENT, Client, Hold, holds_of
from .signature import Signature

#: Assignors of Kafka by which members give up all partitions before they join.
_EAGER = frozenset(("range", "roundrobin", "sticky"))
_BUSY = (
    "max.poll.records, max.poll.interval.ms, partition.assignment.strategy or group.protocol",
    "Bound how long the client works between two polls: time-outs of its calls, fewer `max.poll.records`, or work off "
    "the thread that polls. The group waits for it up to `max.poll.interval.ms`. With a cooperative assignor, or "
    "`group.protocol=consumer`, the others read on meanwhile.",
)
_SILENT = (
    "session.timeout.ms, group.instance.id",
    "Find what stops the process (GC, CPU limits) or ends it. Let it close its consumer, so that it leaves, or give it "
    "a `group.instance.id`. The group waits for it up to `session.timeout.ms`.",
)


def _findings(given: SectionInput) -> list[Finding]:
    events = member_events(given, JOINED, REFUSED, TOLD, LEFT, EXPELLED, SYNCED)
    if not len(events):
        return []
    last = {(row["group"], row["member"]): row["last"] for row in given.rows(LAST.name)}
    groups: dict[int, list[Hold]] = defaultdict(list)
    for hold in holds_of(events, last, given.context.last or 0):
        groups[hold.group].append(hold)
    return [_finding(given, group, found) for group, found in groups.items()]


def _finding(given: SectionInput, group: int, found: Sequence[Hold]) -> Finding:
    context, name = given.context, given.context.text(group) or "?"
    worst = max(found, key=lambda hold: (hold.waited_ns, -hold.begin))
    client = worst.by[0][0]
    setting, remedy = _SILENT if worst.is_silent else _BUSY
    hows = {hold.how for hold in found}
    beats = sum(count for hold in found for *_, count in hold.by)
    return HELD_REBALANCES.rule._replace(setting=setting, remedy=remedy).found(
        _text(given, name, found, worst), Party("group", name), *client_parties(context, *client),
        begin=min(hold.begin for hold in found),
        end=None if found[-1].end is None else max(hold.until for hold in found),
        packets=(hold.packet for hold in found[:10]), lost=sum(hold.waited_ns for hold in found),
        see=[("sections", "groups"), *(() if set("*?[") & set(name) else (("group", name),))], rebalances=len(found),
        rebalance_ns=worst.until - worst.begin, held_ns=worst.until - worst.since,
        waited_ns=sum(hold.waited_ns for hold in found), members_waiting=len(worst.waited), heartbeats=beats,
        how=hows.pop() if len(hows) == 1 else "several", is_silent=worst.is_silent,
    )  # fmt: skip


def _text(given: SectionInput, name: str, found: Sequence[Hold], worst: Hold) -> str:
    context = given.context

    def words(client: Client) -> str:
        return client_text(context.text(client[0]), context.address(client[1]) or "")

    whole, held = units.duration(worst.until - worst.begin), units.duration(worst.until - worst.since)
    if len(found) > 1:
        text = f'group "{name}" was held up in {len(found):,} rebalances; for longest, {held}, by'
    else:
        stood = "has stood" if worst.end is None else "stood"
        part = "" if held == whole else f", {held} of it"
        text = f'group "{name}" {stood} in a rebalance for {whole}{part} because of'
    text += f" {words(worst.by[0][0])}" + and_more(len(worst.by) - 1)
    text += f", {_why(worst)}"
    names = list(dict.fromkeys(client_text(context.text(client)) for (client, _), _ in worst.waited))
    listed = _listed([one.removeprefix("client ") for one in names])
    text += f"; {listed} waited in JoinGroup, {units.duration(worst.waited_ns)} in total"
    topics = _topics(given, worst)
    if (context.text(worst.protocol) or "") in _EAGER:
        text += ", and read nothing" + (f" of {_listed(topics)}" if topics else "")
    if worst.cause is not None:
        text += f"; it began when {words(worst.cause[0])} {worst.cause[1]}"
    return text


def _why(hold: Hold) -> str:
    """What a member did while the group waited for it."""
    _, heard, beats = hold.by[0]
    limit = f" ({hold.timeout_ms:,} ms)" if hold.timeout_ms else ""
    if hold.how == DEAD:
        return f"which had gone without LeaveGroup until its session timeout was over{limit}"
    how = {
        CAME: "joined last", WENT: "left at last, without having joined", STILL: "has not joined yet",
        REMOVED: f"did not join within its rebalance timeout{limit}",
    }[hold.how]  # fmt: skip
    if hold.is_silent:
        return f"which sent no heartbeat for {units.duration(heard - hold.begin)}, and {how}"
    return f"which {how}, though it sent {beats:,} heartbeat{'s' if beats > 1 else ''} meanwhile: it did not poll"


def _topics(given: SectionInput, hold: Hold) -> list[str]:
    """The topics that the group reads."""
    strings = given.context.strings
    read = (read_assignment(strings[number] or b"") or () for number in hold.assignments)
    return sorted({topic for partitions in read for topic, _ in partitions})


def _listed(names: Sequence[str]) -> str:
    if len(names) > NAMED:
        return listed(names)
    return " and ".join((", ".join(names[:-1]), names[-1]) if len(names) > 1 else names)


HELD_REBALANCES = Signature(
    "held_rebalance",
    "a member holds up the rebalance of its group",
    "Members wait in JoinGroup until one member joins, leaves, or is removed. If that one sends heartbeats, it does "
    "not poll; if not, it does not run, or has ended without LeaveGroup.",
    "max.poll.records and max.poll.interval.ms, partition.assignment.strategy or group.protocol; or session.timeout.ms",
    "Bound how long a client works between two polls. With a cooperative assignor, or the new protocol (KIP-848), the "
    "other members read on meanwhile. Close consumers when their process ends.",
    f"a group waited for a member for {LEAST_NS // units.SECOND} s, and for half of the rebalance, with another member "
    "in JoinGroup as long. New members and groups of the new protocol do not count. Time lost: what the others waited "
    "since the last member in time had joined.",
    _findings,
    counts=(LAST,),
    label="held up",
)
