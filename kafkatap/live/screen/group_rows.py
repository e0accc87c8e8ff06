"""Groups, for the screen: members and rebalances, by the rules of the report's section `groups`.

The facts of group requests are collected anyway, for events. Those of Fetch are only with `--sections groups`: then
lag is known too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafkatap.dissector.kafka.error_codes import error_name
from kafkatap.dissector.programs.fact_kinds import NUMBER_OF
from kafkatap.reports import units
from kafkatap.reports.batch import Batch

from ..provisional_rows import without_confirmed
from ..sink import Sink, names_of
from .columns import BAD, DIM, NONE, WARN, Column, Span, shown_count, shown_name, shown_time

if TYPE_CHECKING:
    from kafkatap.reports.groups.group import Group, MemberRow
    from kafkatap.reports.groups.group_rebalances import Rebalance
    from kafkatap.reports.section_parts.section_counts import SectionCounts

    from ...engine.engine import Engine

SECOND = 1_000_000_000
#: What members did is kept so long, for their history.
KEPT_NS = 1_800 * SECOND
#: Rows of each count that are kept.
ROWS = 20_000
#: A member without a request for so long is gone: session.timeout.ms is less, and heartbeats come every few seconds.
GONE_NS = 60 * SECOND


class GroupCounts(Sink):
    """What the groups' requests say since the start, or since names were forgotten."""

    def __init__(self) -> None:
        self._counts: SectionCounts | None = None
        self._engine: Engine | None = None

    def add_batch(self, batch: Batch, engine: Engine) -> None:
        if batch.facts is not None and len(batch.facts):
            if self._counts is None:
                self._counts, self._engine = _counts(engine), engine
            self._counts.add(without_confirmed(batch))

    def resolve_names(self, engine: Engine) -> None:
        self.restart()

    def restart(self) -> None:
        """Begin anew."""
        self._counts = None

    def groups(self) -> list[Group]:
        """All groups so far."""
        from kafkatap.reports.counting.counts import ReportCounts
        from kafkatap.reports.groups.group import groups_of
        from kafkatap.reports.groups.group_events import READ_BY
        from kafkatap.reports.section_parts.section import SectionInput

        if self._counts is None or self._engine is None:
            return []
        self._counts.finish()
        self._counts.forget_events(READ_BY, self._engine.latest - KEPT_NS)
        made = _counts(self._engine)
        made.merge(self._counts)
        return groups_of(SectionInput(made, ReportCounts(), names_of(self._engine), {}))


def _counts(engine: Engine) -> SectionCounts:
    from kafkatap.reports.groups.group_events import READ_BY
    from kafkatap.reports.section_parts.section_counts import SectionCounts

    return SectionCounts(("groups",), ROWS, lambda: engine.other, only=frozenset((READ_BY,)))


@dataclass(frozen=True, slots=True)
class GroupRow:
    """A group. `members`: those of the last minute. `rebalances`: in the window, and the last of all."""

    name: str
    type: str | None
    members: int
    clients: tuple[str, ...]
    rebalances: int
    last: Rebalance | None
    unassigned: int | None  # the longest in the window, ns
    errors: int  # since the start
    most_errors: str | None
    commits: int
    lag: int | None  # of reads


@dataclass(frozen=True, slots=True)
class MemberOfGroup:
    """A member that a group has or had."""

    name: str
    row: MemberRow
    is_there: bool
    left: int | None  # when, ns since the epoch; None: it did not
    partitions: int | None


def group_rows(groups: Sequence[Group], since: int, now: int) -> list[GroupRow]:
    """A row for each group. `since`: when the window begins, ns since the epoch."""
    return [_row(group, since, now) for group in groups]


def _row(group: Group, since: int, now: int) -> GroupRow:
    there = [name for name in group.members if _is_there(group, name, now)]
    lately = [rebalance for rebalance in group.rebalances if rebalance.end >= since]
    errors: dict[int, int] = {}
    for (_, code), count in group.errors.items():
        errors[code] = errors.get(code, 0) + count
    lags = [part.lag for part in group.lag if part.lag is not None]
    clients = {group.members[name].client[1] for name in there}
    return GroupRow(
        group.name, group.type, len(there), tuple(sorted(name for name in clients if name is not None)), len(lately),
        group.rebalances[-1] if group.rebalances else None,
        max((each.stop for each in lately if each.stop is not None), default=None), sum(errors.values()),
        error_name(max(errors, key=lambda code: (errors[code], -code))) if errors else None,
        sum(member.commits for member in group.members.values()), sum(lags) if lags else None,
    )  # fmt: skip


def _is_there(group: Group, name: str, now: int) -> bool:
    return bool(name) and group.is_member_now(name) and group.members[name].last >= now - GONE_NS


def members_of(group: Group, now: int) -> list[MemberOfGroup]:
    """The members that are there first."""
    parts, known = (group.history.parts, group.history.members) if group.history else ({}, {})
    found = [
        MemberOfGroup(
            name, row, _is_there(group, name, now), known[name].left if name in known else None, parts.get(name)
        )
        for name, row in group.members.items() if name
    ]  # fmt: skip
    return sorted(found, key=lambda each: (not each.is_there, each.row.client[1] or "", each.name))


def knows(engine: Engine, fact: str) -> bool:
    """Whether facts of a kind are collected: of "fetch partition" for lag, of "join group" for groups."""
    return NUMBER_OF[fact] in engine.facts


def cause_of(rebalance: Rebalance | None) -> str:
    if rebalance is None:
        return NONE
    return rebalance.trigger if rebalance.who is None else f"{rebalance.trigger} of {rebalance.who}"


def group_columns(utc: bool, has_lag: bool) -> tuple[Column[GroupRow], ...]:
    def last(row: GroupRow) -> Span:
        return (NONE, DIM) if row.last is None else (units.clock(row.last.end, utc, 0), "")

    columns: tuple[Column[GroupRow], ...] = (
        Column("name", "group", 0, 14, lambda r: (shown_name(r.name), ""), lambda r: r.name.lower(), 60, False),
        Column("members", "members", 1, 7, lambda r: shown_count(r.members), lambda r: r.members),
        Column("rebalances", "rebal.", 2, 7, lambda r: shown_count(r.rebalances, WARN), lambda r: r.rebalances),
        Column("last", "last one", 3, 8, last, lambda r: 0 if r.last is None else r.last.end),
        Column("cause", "its cause", 4, 16, lambda r: (units.safe(cause_of(r.last)), ""), None, 44, False),
        Column(
            "unassigned", "unassigned", 6, 10, lambda r: shown_time(r.unassigned, WARN), lambda r: r.unassigned or 0
        ),
        Column("lag", "lag", 5, 10, lambda r: shown_count(r.lag or 0), lambda r: r.lag or 0),
        Column("errors", "errors", 7, 7, lambda r: shown_count(r.errors, BAD), lambda r: r.errors),
        Column("error", "most of them", 8, 12, lambda r: (r.most_errors or "", BAD), None, 28, False),
        Column("commits", "commits", 9, 8, lambda r: shown_count(r.commits), lambda r: r.commits),
        Column("clients", "clients", 10, 14, lambda r: (units.safe(", ".join(r.clients)), ""), None, 60, False),
        Column("type", "type", 11, 8, lambda r: (r.type or NONE, DIM), None, 0, False),
    )  # fmt: skip
    return tuple(column for column in columns if has_lag or column.name != "lag")


def member_columns(utc: bool) -> tuple[Column[MemberOfGroup], ...]:
    def name(m: MemberOfGroup) -> Span:
        return shown_name(m.row.client[1]), "" if m.is_there else DIM

    def there(m: MemberOfGroup) -> Span:
        return ("yes", "") if m.is_there else ("silent", WARN) if m.left is None else ("left", DIM)

    def partitions(m: MemberOfGroup) -> Span:
        return (NONE, DIM) if m.partitions is None else (f"{m.partitions:,}", "")

    return (
        Column("name", "client", 0, 14, name, None, 44, False),
        Column("address", "from", 1, 15, lambda m: (units.safe(m.row.client[0] or NONE), ""), None, 39, False),
        Column("there", "in it", 2, 6, there),
        Column("partitions", "partitions", 3, 10, partitions),
        Column("last", "last seen", 4, 9, lambda m: (units.clock(m.row.last, utc, 0), "")),
        Column("errors", "failed", 5, 6, lambda m: shown_count(m.row.errors, BAD)),
        Column("heartbeats", "heartbeats", 6, 10, lambda m: shown_count(m.row.heartbeats)),
        Column("commits", "commits", 7, 8, lambda m: shown_count(m.row.commits)),
        Column("member", "member id", 8, 16, lambda m: (units.safe(m.name), DIM), None, 60, False),
    )  # fmt: skip


def rebalance_columns(utc: bool) -> tuple[Column[Rebalance], ...]:
    return (
        Column("at", "began", 1, 8, lambda r: (units.clock(r.start, utc, 0), "")),
        Column("name", "cause", 0, 24, lambda r: (units.safe(cause_of(r)), ""), None, 60, False),
        Column("duration", "took", 2, 9, lambda r: shown_time(r.end - r.start)),
        Column("stop", "unassigned", 3, 10, lambda r: shown_time(r.stop, WARN)),
        Column("members", "members", 4, 7, lambda r: shown_count(len(r.members))),
        Column("number", "generation", 5, 10, lambda r: (f"{r.number:,}", DIM)),
        Column("reason", "reason", 6, 16, lambda r: (units.safe(r.reason or ""), ""), None, 80, False),
    )  # fmt: skip
