"""Rebalances of classic groups that waited for some members, from the events of members (`member_events`).

JoinGroup is answered when all members have joined. So what ended a rebalance is what it waited for: the last member
joins, and is answered at once; or it leaves, or the group removes it. Members that were told of the rebalance (a
heartbeat answered REBALANCE_IN_PROGRESS) and came late held it up. A new member is not waited for.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

from kafkatap.dissector.dtypes import IN_FLIGHT
from kafkatap.kernels.arrays import dict_rows, is_among

from .. import units
from ..batch import Array
from .member_events import EXPELLED, JOINED, LEFT, REFUSED, SYNCED, TOLD

#: A member hears of a rebalance by its next heartbeat (heartbeat.interval.ms, 3 s), and joins with its next poll.
LEAST_NS = 5 * units.SECOND
#: What ends a rebalance comes at most so long before the answers to JoinGroup: they are sent at once.
AT_ONCE_NS = units.SECOND
#: A member that is told of a rebalance beats again within this, and what begins a rebalance is heard of within it.
SOON_NS = 10 * units.SECOND
#: A member explains a rebalance if it held it up for this part of its time.
_MOST = 0.5
_JOIN_GROUP, _MEMBER_ID_REQUIRED = 11, 79
#: How a hold ended: the member joined, left, was removed as it had not joined in time, or died before (its session
#: timeout ended); or the capture ended first.
CAME, WENT, REMOVED, DEAD, STILL = "joined", "left", "removed", "dead", "still"

_COLUMNS = (
    "kind", "time", "exchange", "connection", "packet", "client_id", "client_ip", "broker_ip", "broker_port", "outcome",
    "error_code", "group", "member", "protocol", "assignment", "session_timeout_ms", "rebalance_timeout_ms", "sent",
    "generation", "is_new",
)  # fmt: skip
Row = dict[str, int]
_SENT, _TIME = itemgetter("sent"), itemgetter("time")
Client = tuple[int, int]


class Hold(NamedTuple):
    """A rebalance that was held up. Times in ns.

    `begin`: of the rebalance. `by`: the members that it waited for, as (client, heard, heartbeats) with the time at
    which each heard of it, 0: never. `since`: when it began to wait for these alone. `end`: None: not captured;
    `until`: that, or the capture's end. `waited`: by client, in JoinGroup since then, in order of time. `cause`: who
    set it off, and whether it joined or left; None: not captured. `timeout_ms`: the session timeout of dead members, or
    the rebalance timeout. `protocol`, `assignments`: numbers of texts.
    """

    group: int
    how: str
    begin: int
    since: int
    end: int | None
    until: int
    by: tuple[tuple[Client, int, int], ...]
    waited: tuple[tuple[Client, int], ...]
    cause: tuple[Client, str] | None
    timeout_ms: int
    protocol: int
    assignments: tuple[int, ...]
    packet: int

    @property
    def waited_ns(self) -> int:
        return sum(ns for _, ns in self.waited)

    @property
    def is_silent(self) -> bool:
        """Whether the member was silent for most of the time, and not busy."""
        _, heard, _ = self.by[0]
        return heard == 0 or heard - self.since > _MOST * (self.until - self.since)


class _Group:
    """The events of a group at one coordinator. By generation: `joins` of members as answered, their last `syncs`,
    heartbeats that were `told` of the next one."""

    def __init__(self) -> None:
        self.joins: dict[int, dict[int, Row]] = defaultdict(dict)
        self.syncs: dict[int, dict[int, Row]] = defaultdict(dict)
        self.told: dict[int, dict[int, list[Row]]] = defaultdict(lambda: defaultdict(list))
        self.waiting: list[Row] = []  # JoinGroups that the capture ends in
        self.firsts: dict[int, Row] = {}  # by member, its first join
        self.new: set[int] = set()  # connections that were told to join with an id
        self.left: list[Row] = []  # in order of requests
        self.left_by: dict[int, list[Row]] = defaultdict(list)
        self.expelled: dict[int, list[Row]] = defaultdict(list)  # by connection

    def add(self, row: Row) -> None:
        kind, member, generation = row["kind"], row["member"], row["generation"]
        if kind == JOINED and generation >= 0:
            self.joins[generation].setdefault(member, row)
            self.firsts.setdefault(member, row)
        elif kind == REFUSED and row["outcome"] == IN_FLIGHT:
            self.waiting.append(row)
        elif kind == REFUSED and row["error_code"] == _MEMBER_ID_REQUIRED:
            self.new.add(row["connection"])
        elif kind == TOLD:
            self.told[generation][member].append(row)
        elif kind == SYNCED:
            self.syncs[generation][member] = row
        elif kind == LEFT:
            self.left.append(row)
            self.left_by[member].append(row)
        elif kind == EXPELLED:
            self.expelled[row["connection"]].append(row)

    def is_new(self, join: Row) -> bool:
        """Whether a member was not in the group before."""
        return self.firsts.get(join["member"], join) is join and (
            bool(join["is_new"]) or join["connection"] in self.new
        )


def holds_of(events: Array, last: Mapping[tuple[int, int], int], end: int) -> Iterator[Hold]:
    """The holds in events in order of time. `last`: of a (group, member), the time of its last request. `end`: of the
    capture."""
    groups: dict[tuple[int, ...], _Group] = defaultdict(_Group)
    is_beat = is_among(events["kind"], (JOINED, REFUSED)) & (events["api_key"] != _JOIN_GROUP)
    classic = events[~is_beat]
    for row in dict_rows(classic, _COLUMNS):
        groups[row["group"], row["broker_ip"], row["broker_port"]].add(row)
    for (number, *_), group in groups.items():
        group.left.sort(key=_SENT)
        before = 0
        for generation in sorted(group.joins):
            found = _Rebalance(group, generation, before)
            hold = found.hold(number, last)
            before = found.end
            if hold is not None:
                yield hold
        latest = max((*group.joins, *group.told), default=0)
        if latest in group.told and latest + 1 not in group.joins:
            hold = _Rebalance(group, latest + 1, before, end).hold(number, last)
            if hold is not None:
                yield hold


class _Rebalance:
    """A rebalance to a generation. `before`: when the one before it ended. `cut`: the capture's end if it was under way
    then."""

    def __init__(self, group: _Group, generation: int, before: int, cut: int | None = None) -> None:
        self.group, self.generation, self.is_cut = group, generation, cut is not None
        joins = group.joins.get(generation, {})
        if cut is not None:
            told = group.told[generation - 1]  # new members may have no id yet
            joins = {
                row["member"] if row["member"] in told else -1 - row["connection"]: row
                for row in group.waiting if row["sent"] > before
            }  # fmt: skip
        self.end = min(row["time"] for row in joins.values()) if cut is None else cut
        self.joins = {member: row for member, row in joins.items() if row["sent"] <= self.end}
        synced = group.syncs.get(generation - 1, {})
        self.told: dict[int, list[Row]] = {}
        for member, rows in group.told.get(generation - 1, {}).items():
            since = max(before, synced[member]["time"] if member in synced else 0)
            if beats := [row for row in rows if since < row["time"] and row["sent"] <= self.end]:
                self.told[member] = beats
        self.starts = [row["sent"] for row in self.joins.values()]
        self.begin = min((*self.starts, *(rows[0]["time"] for rows in self.told.values())), default=self.end)
        at = bisect_right(group.left, max(before, self.begin - SOON_NS), key=_SENT)
        self.leave = group.left[at] if at < len(group.left) and group.left[at]["sent"] <= self.begin else None
        self.begin = self.begin if self.leave is None else self.leave["sent"]

    def hold(self, number: int, last: Mapping[tuple[int, int], int]) -> Hold | None:
        ends = {member: found for member, rows in self.told.items() if (found := self._end_of(member, rows))}
        late = {member: (how, at) for member, (how, at) in ends.items() if at - self.begin >= LEAST_NS}
        by = [member for member, (_, at) in late.items() if self.end - at <= AT_ONCE_NS]
        dead = () if by or self.is_cut else self._dead(number, last)
        if not by and not dead:
            return None
        # The other members were there from then on. What is late as well explains nothing of the wait for the last.
        others = [row for member, row in self.joins.items() if member not in late and not self.group.is_new(row)]
        since = max((self.begin, *(row["sent"] for row in others)))
        waiting = [row for member, row in self.joins.items() if member not in by]
        waiting.sort(key=itemgetter("sent", "exchange"))
        waited = tuple((_client(row), self.end - max(since, row["sent"])) for row in waiting if row["sent"] < self.end)
        is_held = self.end - since >= max(LEAST_NS, _MOST * (self.end - self.begin))
        if not is_held or max((ns for _, ns in waited), default=0) < LEAST_NS:
            return None
        by.sort(key=lambda member: (self.told[member][0]["time"], self.told[member][0]["packet"]))
        rows = [self.told[member][0] for member in by] or list(dead)
        held = tuple(
            (_client(row), told[0]["time"] if told else 0, len(told))
            for row in rows for told in [self.told[row["member"]] if by else []]
        )  # fmt: skip
        how = late[by[0]][0] if by else DEAD
        first = min(self.joins.values(), key=lambda row: row["sent"])
        limit = "session_timeout_ms" if how == DEAD else "rebalance_timeout_ms"
        timeouts = [row[limit] for row in (rows if dead else self.joins.values())]
        given = self.group.syncs.get(self.generation) or self.group.syncs.get(self.generation - 1, {})
        return Hold(
            number, how, self.begin, since, None if self.is_cut else self.end, self.end, held, waited, self._cause(),
            max(timeouts), first["protocol"],
            tuple(row["assignment"] for row in given.values() if row["assignment"] >= 0),
            rows[0]["packet"] if by else first["packet"],
        )  # fmt: skip

    def _end_of(self, member: int, told: Sequence[Row]) -> tuple[str, int] | None:
        """How and when the rebalance had to wait no longer for a member that was told of it; None: not captured."""
        heard, link = told[0]["time"], told[0]["connection"]
        if member in self.joins:
            return CAME, self.joins[member]["sent"]
        left = _first_from(self.group.left_by.get(member, ()), heard, _SENT)
        if left is not None and left["sent"] <= self.end:
            return WENT, left["sent"]
        out = _first_from(self.group.expelled.get(link, ()), heard, _TIME)
        if self.is_cut:
            return (STILL, self.end) if out is None and self.end - told[-1]["sent"] <= SOON_NS else None
        return (REMOVED, self.end) if out and self.end <= out["time"] <= self.end + SOON_NS else None

    def _dead(self, number: int, last: Mapping[tuple[int, int], int]) -> list[Row]:
        """Members of the generation before that never heard of the rebalance, and whose sessions ended with it."""
        found = []
        for member, row in self.group.joins.get(self.generation - 1, {}).items():
            if member in self.joins or member in self.told or member in self.group.left_by:
                continue
            synced = self.group.syncs.get(self.generation - 1, {}).get(member, row)
            seen = max(last.get((number, member), 0), row["time"], synced["time"])
            if abs(seen + row["session_timeout_ms"] * 1_000_000 - self.end) <= AT_ONCE_NS:
                found.append(row)
        return found

    def _cause(self) -> tuple[Client, str] | None:
        if self.leave is not None:
            return _client(self.leave), "left"
        first = min(self.joins.values(), key=lambda row: row["sent"])
        if first["sent"] > self.begin:
            return None
        return _client(first), "joined" if self.group.is_new(first) else "joined again"


def _first_from(rows: Sequence[Row], time: int, of: itemgetter[str]) -> Row | None:
    """The first row from a time on, of rows in that order."""
    at = bisect_left(rows, time, key=of)
    return rows[at] if at < len(rows) else None


def _client(row: Mapping[str, Any]) -> Client:
    return row["client_id"], row["client_ip"]
