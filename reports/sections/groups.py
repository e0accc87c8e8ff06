"""Groups: members, rebalances with their causes, errors, and lag.

`group_reading` reads the exchanges, and `reports.groups` makes groups of them. This module makes the tables.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from kafkatap.dissector.kafka.error_codes import error_name

from ..counting.rollup import api_label
from ..groups.group import Group, groups_of
from ..groups.group_lag import COMMITS, SURE, PartitionLag
from ..groups.group_rebalances import longest
from ..groups.group_requests import Partition
from ..groups.lag_growth import growths
from ..model import Column, ReportTable, Row, as_number, in_columns, largest_first
from ..section_parts.section import READ_SELECTED, Section, SectionInput

#: Records/s by group and partition.
Growth = Mapping[tuple[str, Partition], float]
_HEARTBEATS = (12, 68, 76, 88)
#: What follows the client's name in the member ids of clients, and ids without a name.
_ID = re.compile(r"-?[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$")

_GROWS = "records/s by which the lag grew while it was captured, of commits, or else of reads; negative: it shrinks"
_KNOWN = "the last answer of its coordinator here; later commits went to one that was not captured: they are not known"

#: APIs without which a column is not known: of classic groups, which most are.
_COMMITS, _JOINS, _BEATS = (8,), (11,), (12,)
GROUPS = (
    Column("group", "group", "text", "group id"),
    Column("type", "type", "text", "classic, consumer (KIP-848), share or streams"),
    Column("members", "members", "count", "members at the end", apis=_JOINS),
    Column("rebalances", "rebalances", "count", "new generations or epochs", apis=_JOINS),
    Column("cause", "most frequent cause", "text", "what caused most of the rebalances"),
    Column(
        "longest_cause", "cause of the longest", "text", "what caused the rebalance with the longest time unassigned", 1
    ),
    Column("rebalancing_ns", "time in\nrebalances", "ns", "summed time of the rebalances"),
    Column(
        "stop_ns", "longest time\nunassigned", "ns", "the longest time that a partition had no member in a rebalance"
    ),
    Column(
        "errors",
        "errors",
        "count",
        "error codes of the group's requests without MEMBER_ID_REQUIRED, a part of joining",
        1,
    ),
    Column("most_errors", "most frequent error", "text", "the most frequent error code", 2),
    Column("commits", "commits", "count", "OffsetCommit and TxnOffsetCommit requests", apis=_COMMITS),
    Column("committed_lag", "lag of\ncommits", "count", "ends of the partitions less committed offsets"),
    Column("lag", "lag of\nreads", "count", "ends of the partitions less the offsets that members fetch"),
    Column("lag_growth_per_s", "lag\ngrows/s", "number", _GROWS),
    Column("known_until", "known\nuntil", "time", _KNOWN),
    Column("clients", "clients", "texts", "client_ids of the members", 2),
    Column("protocol", "protocol", "text", "the assignor that a classic group chose", 4),
    Column("ever_members", "members ever", "count", "different member ids", 4, apis=_JOINS),
    Column("heartbeats", "heartbeats", "count", "heartbeat requests", 4, apis=_BEATS),
    Column("first", "first", "time", "the group's first request", 3),
    Column("last", "last", "time", "the group's last request", 3),
)
REBALANCES = (
    Column("start", "start", "time", "when its cause was sent"),
    Column("group", "group", "text", "group id"),
    Column("generation", "generation", "count", "the new generation, or epoch"),
    Column(
        "trigger",
        "trigger",
        "text",
        "join, leave, rejoin, session timeout, poll timeout, subscription, or not captured",
    ),
    Column("who", "who", "text", "client_id of the member that caused it"),
    Column("reason", "reason", "text", "the reason that the client gives"),
    Column("others", "more\ncauses", "count", "other members that joined or left in it", 2),
    Column("duration_ns", "duration", "ns", "from the start to the last assignment"),
    Column("stop_ns", "longest time\nunassigned", "ns", "the longest time that a partition had no member, until it"),
    Column("members", "members", "count", "members after it"),
    Column("is_cooperative", "cooperative", "flag", "members keep partitions during it", 3),
    Column("end", "end", "time", "the last assignment", 9),
)
MEMBERS = (
    Column("group", "group", "text", "group id"),
    Column("client_id", "client", "text", "client_id"),
    Column("address", "address", "text", "IP address of the client"),
    Column("member_prefix", "member", "text", "the member id without its random end, or the beginning of it"),
    Column("instance", "instance", "text", "group.instance.id of a static member", 1),
    Column("partitions", "parts", "count", "partitions that it has at the end"),
    Column("joined", "joined", "time", "its first JoinGroup or heartbeat to join"),
    Column("left", "left", "time", "when it left, or its session timed out"),
    Column("left_by", "left by", "text", "how it left, with the reason that it gives"),
    Column("heartbeats", "heartbeats", "count", "heartbeat requests", 2, apis=_BEATS),
    Column("commits", "commits", "count", "OffsetCommit and TxnOffsetCommit requests", 1, apis=_COMMITS),
    Column("failed", "failed", "count", "requests with an error code besides MEMBER_ID_REQUIRED", 2),
    Column("last", "last", "time", "its last request", 2),
    Column("member", "member id", "text", "member id", 9),
)
_SURE = "how sure the reads are the group's: assignment, client (address and client_id), shared by groups, commits only"
LAG = (
    Column("group", "group", "text", "group id"),
    Column("topic", "topic", "text", "topic"),
    Column("partitions", "parts", "count", "partitions that the group has, committed or reads"),
    Column("committed_lag", "lag of\ncommits", "count", "ends less committed offsets"),
    Column("lag", "lag of\nreads", "count", "ends less the offsets that readers fetch next"),
    Column("lag_growth_per_s", "lag\ngrows/s", "number", _GROWS),
    Column("most", "most in\na partition", "count", "the largest lag of a partition: of commits, or else of reads"),
    Column("most_in", "in", "count", "that partition", 1),
    Column("committed_at", "last commit", "time", "the last commit"),
    Column("known_until", "known\nuntil", "time", _KNOWN),
    Column("sure", "reads by", "text", _SURE),
    Column("readers", "readers", "texts", "client_ids that read for the group", 1),
    Column("commits", "commits", "count", "commits of partitions", 3, apis=_COMMITS),
)
PARTITIONS = (
    Column("group", "group", "text", "group id"),
    Column("topic", "topic", "text", "topic"),
    Column("partition", "part", "count", "partition"),
    Column("committed", "committed", "count", "committed offset"),
    Column("position", "position", "count", "the offset that the reader fetches next"),
    Column("high_watermark", "end", "count", "high watermark, or the end of what was produced"),
    Column("committed_lag", "lag of\ncommits", "count", "end less committed offset"),
    Column("lag", "lag of\nreads", "count", "end less position"),
    Column("lag_growth_per_s", "lag\ngrows/s", "number", _GROWS),
    Column("client_id", "reader", "text", "client_id that reads it"),
    Column("address", "address", "text", "its address", 2),
    Column("sure", "reads by", "text", _SURE),
    Column("committed_at", "committed at", "time", "the last commit", 3),
    Column("position_at", "fetched at", "time", "the last fetch", 3),
)
ERRORS = (
    Column("group", "group", "text", "group id"),
    Column("error", "error", "text", "error code"),
    Column("code", "code", "count", "its number", 1),
    Column("api", "API", "text", "request"),
    Column("codes", "codes", "count", "how often"),
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
    lag, partitions = _lag_rows(groups, growth), _partition_rows(groups, growth)
    rows = (_group_row(group, growth) for group in groups)
    return (
        ReportTable("groups", "Groups", GROUPS, in_columns(GROUPS, rows), notes, empty="no group requests"),
        ReportTable("group_lag", "Lag by group and topic", LAG, in_columns(LAG, lag, _by_lag), (_ENDS_NOTE,),
                    empty=none),
        ReportTable("rebalances", "Rebalances", REBALANCES, in_columns(REBALANCES, _rebalance_rows(groups)),
                    (_STOP_NOTE,), empty="no rebalances", chosen_by="stop_ns"),
        ReportTable("group_members", "Group members", MEMBERS, in_columns(MEMBERS, _member_rows(groups)),
                    empty="no members"),
        ReportTable("group_partitions", "Lag by partition", PARTITIONS, in_columns(PARTITIONS, partitions),
                    empty=none),
        ReportTable("group_errors", "Errors of groups", ERRORS,
                    in_columns(ERRORS, _error_rows(groups), largest_first("codes")), empty="no errors"),
    )  # fmt: skip


def _sum(values: object) -> int | None:
    found = [value for value in values if value is not None]  # type: ignore[attr-defined]
    return sum(found) if found else None


def _grown(growth: Growth, group: str, parts: Iterable[PartitionLag]) -> float | None:
    """By how much the lag of some partitions grows, in records/s; None: not captured for any."""
    found = [growth[key] for p in parts if (key := (group, (p.topic, p.partition))) in growth]
    return round(sum(found), 2) if found else None


def _group_row(group: Group, growth: Growth) -> Row:
    causes = Counter(rebalance.trigger for rebalance in group.rebalances)
    errors: Counter[int] = Counter()
    for (_, code), count in group.errors.items():
        errors[code] += count
    cause, often = min(causes.items(), key=lambda item: (-item[1], item[0]), default=(None, 0))
    rows = group.members.values()
    return {
        "group": group.name, "type": group.type, "members": sum(map(group.is_member_now, group.members)),
        "rebalances": len(group.rebalances),
        "cause": f"{cause} ({often} of {len(group.rebalances)})" if len(causes) > 1 else cause,
        "longest_cause": _longest_cause(group),
        "rebalancing_ns": sum(r.end - r.start for r in group.rebalances) if group.rebalances else None,
        "stop_ns": longest(r.stop for r in group.rebalances), "errors": errors.total(),
        "most_errors": error_name(min(errors, key=lambda code: (-errors[code], code))) if errors else None,
        "commits": sum(row.commits for row in rows), "committed_lag": _sum(p.committed_lag for p in group.lag),
        "lag": _sum(p.lag for p in group.lag),
        "lag_growth_per_s": _grown(growth, group.name, group.lag), "known_until": group.known_until,
        "clients": tuple(sorted({client for _, client in group.clients if client is not None})),
        "protocol": group.history.protocol if group.history else None,
        "ever_members": sum(1 for name in group.members if name), "heartbeats": sum(row.heartbeats for row in rows),
        "first": min((row.first for row in rows), default=None), "last": max((row.last for row in rows), default=None),
    }  # fmt: skip


def _longest_cause(group: Group) -> str | None:
    found = max(group.rebalances, key=lambda r: (r.stop or 0, r.end - r.start), default=None)
    if found is None:
        return None
    return found.trigger if found.who is None else f"{found.trigger} of {found.who}"


def _rebalance_rows(groups: Sequence[Group]) -> Iterator[Row]:
    found = sorted(((r.start, g.name, r) for g in groups for r in g.rebalances), key=lambda item: item[:2])
    for _, name, r in found:
        yield {
            "start": r.start, "group": name, "generation": r.number, "trigger": r.trigger, "who": r.who,
            "reason": r.reason, "others": r.others, "duration_ns": r.end - r.start, "stop_ns": r.stop,
            "members": len(r.members), "is_cooperative": r.is_cooperative, "end": r.end,
        }  # fmt: skip


def _member_rows(groups: Sequence[Group]) -> Iterator[Row]:
    for group in groups:
        history = group.history
        for name, row in sorted(group.members.items(), key=lambda item: (item[1].first, item[0])):
            if not name:
                continue
            member = history.members.get(name) if history else None
            parts = history.parts.get(name, 0) if history and history.parts else None
            address, client = row.client
            yield {
                "group": group.name, "client_id": client, "address": address, "member_prefix": member_prefix(name),
                "instance": row.instance, "partitions": parts, "joined": member.joined if member else None,
                "left": member.left if member else None, "left_by": member.left_by if member else None,
                "heartbeats": row.heartbeats, "commits": row.commits, "failed": row.errors, "last": row.last,
                "member": name,
            }  # fmt: skip


def member_prefix(member: str) -> str:
    """The name in a member id, or the first characters of an id without a name."""
    named = _ID.sub("", member)
    return named if named and named != member else member[:8]


def _lag_rows(groups: Sequence[Group], growth: Growth) -> Iterator[Row]:
    for group in groups:
        for topic in sorted({p.topic for p in group.lag}):
            parts = [p for p in group.lag if p.topic == topic]
            lags = [(p.lag if p.committed_lag is None else p.committed_lag, -p.partition) for p in parts]
            most, where = max(((lag, at) for lag, at in lags if lag is not None), default=(None, None))
            readers = {p.reader[1] for p in parts if p.reader is not None and p.sure != COMMITS}
            yield {
                "group": group.name, "topic": topic, "partitions": len(parts),
                "committed_lag": _sum(p.committed_lag for p in parts), "lag": _sum(p.lag for p in parts),
                "lag_growth_per_s": _grown(growth, group.name, parts), "most": most,
                "most_in": None if where is None else -where, "committed_at": longest(p.committed_at for p in parts),
                "known_until": group.known_until, "sure": max((p.sure for p in parts), key=SURE.index),
                "readers": tuple(sorted(reader for reader in readers if reader is not None)),
                "commits": sum(p.commits for p in parts),
            }  # fmt: skip


def _by_lag(row: Row) -> tuple[Any, ...]:
    return -max(as_number(row["committed_lag"]), as_number(row["lag"])), row["group"], row["topic"]


def _partition_rows(groups: Sequence[Group], growth: Growth) -> Iterator[Row]:
    parts = [p for group in groups for p in group.lag]
    parts.sort(key=lambda p: (-max(p.committed_lag or 0, p.lag or 0), p.group, p.topic, p.partition))
    for p in parts:
        yield {
            "group": p.group, "topic": p.topic, "partition": p.partition, "committed": p.committed,
            "position": p.position, "high_watermark": p.end, "committed_lag": p.committed_lag, "lag": p.lag,
            "lag_growth_per_s": _grown(growth, p.group, (p,)), "client_id": p.reader[1] if p.reader else None,
            "address": p.reader[0] if p.reader else None, "sure": p.sure,
            "committed_at": p.committed_at, "position_at": p.position_at,
        }  # fmt: skip


def _error_rows(groups: Sequence[Group]) -> Iterator[Row]:
    for group in groups:
        for (api, code), count in group.errors.items():
            yield {
                "group": group.name, "error": error_name(code), "code": code,
                "api": api_label(api), "codes": count,
            }  # fmt: skip


SECTION = Section(
    "groups", "Who rebalances, why and for how long, and how far does each group lag?",
    columns={
        "groups": GROUPS, "group_lag": LAG, "rebalances": REBALANCES, "group_members": MEMBERS,
        "group_partitions": PARTITIONS, "group_errors": ERRORS,
    },
    tables=tables, under_selection=READ_SELECTED, made_of=("groups.offsets_over_time:READING",),
)  # fmt: skip
