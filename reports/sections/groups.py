"""Groups: members, rebalances with their causes, errors, and lag.

`group_reading` reads the exchanges, and `reports.groups` makes groups of them. This module makes the tables.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from kafkatap.dissector.kafka.error_codes import error_name

from ..counting.rollup import api_label
from ..groups.group import Group, MemberRow, groups_of
from ..groups.group_lag import COMMITS, SURE, PartitionLag
from ..groups.group_rebalances import Member, Rebalance, longest
from ..groups.group_requests import Partition
from ..groups.lag_growth import growths
from ..model import Column, ReportTable, in_columns
from ..section_parts.section import READ_SELECTED, Section, SectionInput

#: Records/s by group and partition.
Growth = Mapping[tuple[str, Partition], float]
_HEARTBEATS = (12, 68, 76, 88)
#: What follows the client's name in the member ids of clients, and ids without a name.
_ID = re.compile(r"-?[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$")

_GROWS = "records/s by which the lag grew while it was captured, of commits, or else of reads; negative: it shrinks"
_KNOWN = "the last answer of its coordinator here; later commits went to one that was not captured: they are not known"
_AT_LEAST = "true: it may have been longer, as assignments from before the capture are not known"


def _is_at_least(rebalances: Sequence[Rebalance]) -> bool | None:
    """Of the longest time unassigned. None: no, or none is known; tables without any leave the column out."""
    is_known = any(r.stop is not None for r in rebalances)
    return True if is_known and any(r.is_at_least for r in rebalances) else None


#: APIs without which a column is not known: of classic groups, which most are.
_COMMITS, _JOINS, _BEATS = (8,), (11,), (12,)
GROUPS = (
    Column("group", "group", "text", "group id", of="group.name"),
    Column("type", "type", "text", "classic, consumer (KIP-848), share or streams", of="group.type"),
    Column("members", "members", "count", "members at the end", apis=_JOINS,
           of=lambda r: sum(map(r.group.is_member_now, r.group.members))),
    Column("rebalances", "rebalances", "count", "new generations or epochs", apis=_JOINS,
           of=lambda r: len(r.group.rebalances)),
    Column("cause", "most frequent cause", "text", "what caused most of the rebalances", of=lambda r: _cause(r.group)),
    Column("longest_cause", "cause of the longest", "text",
           "what caused the rebalance with the longest time unassigned", 1, of=lambda r: _longest_cause(r.group)),
    Column("rebalancing_ns", "time in\nrebalances", "ns", "summed time of the rebalances",
           of=lambda r: _sum(x.end - x.start for x in r.group.rebalances)),
    Column("stop_ns", "longest time\nunassigned", "ns", "the longest time that a partition had no member in a "
           "rebalance", of=lambda r: longest(x.stop for x in r.group.rebalances)),
    Column("stop_is_at_least", "at\nleast", "flag", _AT_LEAST, 1,
           of=lambda r: _is_at_least(r.group.rebalances)),
    Column("errors", "errors", "count", "error codes of the group's requests without MEMBER_ID_REQUIRED, a part of "
           "joining", 1, of=lambda r: r.group.errors.total()),
    Column("most_errors", "most frequent error", "text", "the most frequent error code", 2,
           of=lambda r: _most_errors(r.group)),
    Column("commits", "commits", "count", "OffsetCommit and TxnOffsetCommit requests", apis=_COMMITS,
           of=lambda r: sum(m.commits for m in r.group.members.values())),
    Column("committed_lag", "lag of\ncommits", "count", "ends of the partitions less committed offsets"),
    Column("lag", "lag of\nreads", "count", "ends of the partitions less the offsets that members fetch"),
    Column("lag_growth_per_s", "lag\ngrows/s", "number", _GROWS),
    Column("known_until", "known\nuntil", "time", _KNOWN, of="group.known_until"),
    Column("clients", "clients", "texts", "client_ids of the members", 2,
           of=lambda r: tuple(sorted({name for _, name in r.group.clients if name is not None}))),
    Column("protocol", "protocol", "text", "the assignor that a classic group chose", 4,
           of=lambda r: r.group.history and r.group.history.protocol),
    Column("ever_members", "members ever", "count", "different member ids", 4, apis=_JOINS,
           of=lambda r: sum(map(bool, r.group.members))),
    Column("heartbeats", "heartbeats", "count", "heartbeat requests", 4, apis=_BEATS,
           of=lambda r: sum(m.heartbeats for m in r.group.members.values())),
    Column("first", "first", "time", "the group's first request", 3,
           of=lambda r: min((m.first for m in r.group.members.values()), default=None)),
    Column("last", "last", "time", "the group's last request", 3,
           of=lambda r: max((m.last for m in r.group.members.values()), default=None)),
)  # fmt: skip
REBALANCES = (
    Column("start", "start", "time", "when its cause was sent", of="of.start"),
    Column("group", "group", "text", "group id", of="group.name"),
    Column("generation", "generation", "count", "the new generation, or epoch", of="of.number"),
    Column("trigger", "trigger", "text",
           "join, leave, rejoin, session timeout, poll timeout, subscription, or not captured", of="of.trigger"),
    Column("who", "who", "text", "client_id of the member that caused it", of="of.who"),
    Column("reason", "reason", "text", "the reason that the client gives", of="of.reason"),
    Column("others", "more\ncauses", "count", "other members that joined or left in it", 2, of="of.others"),
    Column("duration_ns", "duration", "ns", "from the start to the last assignment",
           of=lambda r: r.of.end - r.of.start),
    Column("stop_ns", "longest time\nunassigned", "ns",
           "the longest time that a partition had no member, until it", of="of.stop"),
    Column("stop_is_at_least", "at\nleast", "flag", _AT_LEAST, 1, of=lambda r: _is_at_least([r.of])),
    Column("members", "members", "count", "members after it", of=lambda r: len(r.of.members)),
    Column("is_cooperative", "cooperative", "flag", "members keep partitions during it", 3, of="of.is_cooperative"),
    Column("end", "end", "time", "the last assignment", 9, of="of.end"),
)  # fmt: skip
MEMBERS = (
    Column("group", "group", "text", "group id", of="group.name"),
    Column("client_id", "client", "text", "client_id", of=lambda m: m.row.client[1]),
    Column("address", "address", "text", "IP address of the client", end="client", of=lambda m: m.row.client[0]),
    Column("member_prefix", "member", "text", "the member id without its random end, or the beginning of it",
           of=lambda m: member_prefix(m.name)),
    Column("instance", "instance", "text", "group.instance.id of a static member", 1, of="row.instance"),
    Column("partitions", "parts", "count", "partitions that it has at the end; empty: unknown, or it has left"),
    Column("joined", "joined", "time", "its first JoinGroup or heartbeat to join",
           of=lambda m: m.member and m.member.joined),
    Column("left", "left", "time", "when it left, or its session timed out", of=lambda m: m.member and m.member.left),
    Column("left_by", "left by", "text", "how it left, with the reason that it gives",
           of=lambda m: m.member and m.member.left_by),
    Column("heartbeats", "heartbeats", "count", "heartbeat requests", 2, apis=_BEATS, of="row.heartbeats"),
    Column("commits", "commits", "count",
           "OffsetCommit and TxnOffsetCommit requests", 1, apis=_COMMITS, of="row.commits"),
    Column("failed", "failed", "count", "requests with an error code besides MEMBER_ID_REQUIRED", 2, of="row.errors"),
    Column("last", "last", "time", "its last request", 2, of="row.last"),
    Column("member", "member id", "text", "member id", 9, of="name"),
)  # fmt: skip
_SURE = "how sure the reads are the group's: assignment, client (address and client_id), shared by groups, commits only"
LAG = (
    Column("group", "group", "text", "group id", of="group.name"),
    Column("topic", "topic", "text", "topic", of="first.topic"),
    Column("partitions", "parts", "count", "partitions that the group has, committed or reads",
           of=lambda r: len(r.parts)),
    Column("committed_lag", "lag of\ncommits", "count", "ends less committed offsets"),
    Column("lag", "lag of\nreads", "count", "ends less the offsets that readers fetch next"),
    Column("lag_growth_per_s", "lag\ngrows/s", "number", _GROWS),
    Column("most", "most in\na partition", "count", "the largest lag of a partition: of commits, or else of reads",
           of=lambda r: r.most[0]),
    Column("most_in", "in", "count", "that partition", 1, of=lambda r: r.most[1]),
    Column("committed_at", "last commit", "time", "the last commit",
           of=lambda r: longest(p.committed_at for p in r.parts)),
    Column("known_until", "known\nuntil", "time", _KNOWN, of="group.known_until"),
    Column("sure", "reads by", "text", _SURE, of=lambda r: max((p.sure for p in r.parts), key=SURE.index)),
    Column("readers", "readers", "texts", "client_ids that read for the group", 1,
           of=lambda r: tuple(sorted({p.reader[1] for p in r.parts if p.reader and p.sure != COMMITS} - {None}))),
    Column("commits", "commits", "count", "commits of partitions", 3, apis=_COMMITS,
           of=lambda r: sum(p.commits for p in r.parts)),
)  # fmt: skip
PARTITIONS = (
    Column("group", "group", "text", "group id", of="group.name"),
    Column("topic", "topic", "text", "topic", of="first.topic"),
    Column("partition", "part", "count", "partition", of="first.partition"),
    Column("committed", "committed", "count", "committed offset", of="first.committed"),
    Column("position", "position", "count", "the offset that the reader fetches next", of="first.position"),
    Column("high_watermark", "end", "count", "high watermark, or the end of what was produced", of="first.end"),
    Column("committed_lag", "lag of\ncommits", "count", "end less committed offset"),
    Column("lag", "lag of\nreads", "count", "end less position"),
    Column("lag_growth_per_s", "lag\ngrows/s", "number", _GROWS),
    Column("client_id", "reader", "text", "client_id that reads it", of=lambda r: r.first.reader and r.first.reader[1]),
    Column(
        "address", "address", "text", "its address", 2, end="client", of=lambda r: r.first.reader and r.first.reader[0]
    ),
    Column("sure", "reads by", "text", _SURE, of="first.sure"),
    Column("committed_at", "committed at", "time", "the last commit", 3, of="first.committed_at"),
    Column("position_at", "fetched at", "time", "the last fetch", 3, of="first.position_at"),
)
ERRORS = (
    Column("group", "group", "text", "group id", of=lambda e: e[0]),
    Column("error", "error", "text", "error code", of=lambda e: error_name(e[2])),
    Column("code", "code", "count", "its number", 1, of=lambda e: e[2]),
    Column("api", "API", "text", "request", of=lambda e: api_label(e[1])),
    Column("codes", "codes", "count", "how often", of=lambda e: e[3]),
)


_LAG_NOTE = (
    "Lag is of the partitions that the group commits or reads, as captured. known until: then the coordinator moved "
    "away, and later commits were not captured."
)
_ENDS_NOTE = "Ends of partitions: high watermarks of Fetch, appends of Produce, latest offsets of ListOffsets."
_STOP_NOTE = "longest time unassigned: of a partition. It includes the session timeout of a member that died."


_ONLY_NOTE = "--group leaves out rows here. Every exchange was read, so the lag is whole."


def tables(given: SectionInput) -> tuple[ReportTable, ...]:
    """Groups by rebalances and lag, rebalances in order of time, members, lag by topic and partition, errors."""
    wanted = given.options.get("group")
    growth = given.once(growths)
    groups = sorted(
        (group for group in given.once(groups_of) if wanted is None or group.name in wanted),
        key=lambda g: (-len(g.rebalances), -(_sum(p.committed_lag for p in g.lag) or 0), g.name),
    )
    if given.selected is not None:
        for group in groups:
            group.lag = [p for p in group.lag if given.selected.may_have({"topic": (p.topic,), "group": (p.group,)})]
    none = "no commits or assignments"
    notes = (_LAG_NOTE,) if wanted is None else (_LAG_NOTE, _ONLY_NOTE)
    whole = [_Lag(group, group.lag, growth) for group in groups]
    lag = [_Lag(group, [p for p in group.lag if p.topic == topic], growth)
           for group in groups for topic in {p.topic for p in group.lag}]  # fmt: skip
    parts = [_Lag(group, [p], growth) for group in groups for p in group.lag]
    rebalances = (_Rebalance(group, of) for group in groups for of in group.rebalances)
    errors = [(group.name, *code, count) for group in groups for code, count in group.errors.items()]
    return (
        ReportTable("groups", "Groups", GROUPS, in_columns(GROUPS, whole), notes, empty="no group requests"),
        ReportTable("group_lag", "Lag by group and topic", LAG, in_columns(LAG, lag, _Lag.order), (_ENDS_NOTE,),
                    empty=none),
        ReportTable("rebalances", "Rebalances", REBALANCES,
                    in_columns(REBALANCES, rebalances, lambda r: (r.of.start, r.group.name)),
                    (_STOP_NOTE,), empty="no rebalances", chosen_by="stop_ns"),
        ReportTable("group_members", "Group members", MEMBERS, in_columns(MEMBERS, _members(groups)),
                    empty="no members"),
        ReportTable("group_partitions", "Lag by partition", PARTITIONS, in_columns(PARTITIONS, parts, _Lag.order),
                    empty=none),
        ReportTable("group_errors", "Errors of groups", ERRORS,
                    in_columns(ERRORS, errors, lambda e: (-e[3], str((e[0], error_name(e[2]), e[2], api_label(e[1]))))),
                    empty="no errors"),
    )  # fmt: skip


class _Lag(NamedTuple):
    """Partitions of a group: all, those of a topic, or one."""

    group: Group
    parts: Sequence[PartitionLag]
    growth: Growth

    @property
    def first(self) -> PartitionLag:
        return self.parts[0]

    @property
    def committed_lag(self) -> Any:
        return _sum(p.committed_lag for p in self.parts)

    @property
    def lag(self) -> Any:
        return _sum(p.lag for p in self.parts)

    @property
    def lag_growth_per_s(self) -> float | None:
        """None: not captured for any."""
        found = _sum(self.growth.get((self.group.name, (p.topic, p.partition))) for p in self.parts)
        return None if found is None else round(found, 2)

    @property
    def most(self) -> tuple[int | None, int | None]:
        """The largest lag of a partition, and which one that is."""
        lags = ((p.lag if p.committed_lag is None else p.committed_lag, p.partition) for p in self.parts)
        return max((own for own in lags if own[0] is not None), key=lambda own: (own[0], -own[1]), default=(None, None))

    def order(self) -> tuple[Any, ...]:
        """Of the rows of topics and partitions: the largest lag first."""
        most = max(self.committed_lag or 0, self.lag or 0)
        return -most, self.group.name, self.first.topic, self.first.partition


class _Rebalance(NamedTuple):
    group: Group
    of: Rebalance


class _Member(NamedTuple):
    """A member: its id, what counts have of it, and what its history has."""

    group: Group
    name: str
    row: MemberRow
    member: Member | None
    partitions: int | None


def _sum(values: Iterable[Any]) -> Any:
    found = [value for value in values if value is not None]
    return sum(found) if found else None


def _cause(group: Group) -> str | None:
    causes = Counter(rebalance.trigger for rebalance in group.rebalances)
    cause, often = min(causes.items(), key=lambda item: (-item[1], item[0]), default=(None, 0))
    return f"{cause} ({often} of {len(group.rebalances)})" if len(causes) > 1 else cause


def _most_errors(group: Group) -> str | None:
    errors: Counter[int] = Counter()
    for (_, code), count in group.errors.items():
        errors[code] += count
    return error_name(min(errors, key=lambda code: (-errors[code], code))) if errors else None


def _longest_cause(group: Group) -> str | None:
    found = max(group.rebalances, key=lambda r: (r.stop or 0, r.end - r.start), default=None)
    if found is None:
        return None
    return found.trigger if found.who is None else f"{found.trigger} of {found.who}"


def _members(groups: Sequence[Group]) -> Iterator[_Member]:
    for group in groups:
        members, parts = (group.history.members, group.history.parts) if group.history else ({}, {})
        for name, row in sorted(group.members.items(), key=lambda item: (item[1].first, item[0])):
            if name:
                member = members.get(name)
                is_there = parts and (member is None or member.left is None)
                yield _Member(group, name, row, member, parts.get(name, 0) if is_there else None)


def member_prefix(member: str) -> str:
    """The name in a member id, or the first characters of an id without a name."""
    named = _ID.sub("", member)
    return named if named and named != member else member[:8]


SECTION = Section(
    "groups", "Who rebalances, why and for how long, and how far does each group lag?",
    columns={
        "groups": GROUPS, "group_lag": LAG, "rebalances": REBALANCES, "group_members": MEMBERS,
        "group_partitions": PARTITIONS, "group_errors": ERRORS,
    },
    tables=tables, under_selection=READ_SELECTED, made_of=("groups.offsets_over_time:READING",),
)  # fmt: skip
