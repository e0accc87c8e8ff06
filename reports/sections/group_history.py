"""The history of a group from its events: members, and rebalances with their causes.

A rebalance ends with a new generation (classic) or epoch (KIP-848, share, streams). Responses name it. The cause is the
first of what happened since the generation before: a member joins, leaves, or rejoins with a reason. Some causes are
not on the wire. If members hear of a rebalance (REBALANCE_IN_PROGRESS) before any request explains it, and a member is
missing afterwards, its session timed out.

start   the first byte of the request that causes it; of a session timeout the member's last request and the timeout of
        its JoinGroup, or else when the first member hears of it
end     the last SyncGroup response of the generation, or heartbeat response with the epoch or partitions of it
stop    the longest time that a partition had no member, ending in this rebalance. A member of an eager assignor gives
        up all partitions with its JoinGroup request, other members those that a response takes away.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import NamedTuple

from .group_events import BEAT, CLASSIC, JOIN, LEAVE, REFUSED, SHARE, SYNC
from .group_requests import Event, Partition

#: Causes of rebalances, as in the column `trigger`.
JOINED, LEFT, REJOINED, TIMED_OUT, SUBSCRIBED, UNKNOWN = (
    "join", "leave", "rejoin", "session timeout", "subscription", "not captured",
)  # fmt: skip
#: How a static member left that came back with another id.
REPLACED = "replaced: the same instance joined again"
_COOPERATIVE = "cooperative"
#: A subscription is the cause of a new epoch that comes so soon after it, in ns.
_SOON = 5_000_000_000


class Seen(NamedTuple):
    """A member's first and last request, ns, and where it sent them from."""

    first: int
    last: int
    client: str | None
    address: str | None
    instance: str | None = None


@dataclass(slots=True)
class Rebalance:
    """`members`: after it. Times in ns; `stop`: None where no partition was seen to change."""

    number: int
    start: int
    heard: int  # the first response with the new generation or epoch
    end: int
    trigger: str
    who: str | None
    reason: str | None
    others: int  # more causes
    members: frozenset[str]
    is_cooperative: bool = False
    stop: int | None = None


@dataclass(slots=True)
class Member:
    """`joined`, `left`: ns, None: not captured. `left_by`: how it left, or None."""

    name: str
    client: str | None
    address: str | None
    instance: str | None = None
    joined: int | None = None
    left: int | None = None
    left_by: str | None = None
    timeout_ms: int = 0


@dataclass(slots=True)
class History:
    type: int
    members: dict[str, Member] = field(default_factory=dict)
    rebalances: list[Rebalance] = field(default_factory=list)
    #: The member that has each partition at the end, and had it last.
    owners: dict[Partition, str] = field(default_factory=dict)
    last_owners: dict[Partition, str] = field(default_factory=dict)
    #: How many partitions each member has at the end. Members of a share group have some together.
    parts: dict[str, int] = field(default_factory=dict)
    protocol: str | None = None


def history_of(events: Sequence[Event], seen: Mapping[str, Seen]) -> History:
    """The history of one group. `seen`: its members by their ids."""
    beats = [event for event in events if event.kind == BEAT]
    history = History(beats[-1].type if beats else CLASSIC)
    history.members = {name: Member(name, s.client, s.address, s.instance) for name, s in seen.items()}
    classic = [event for event in events if event.kind != BEAT]
    _Classic(history, classic, seen).run()
    if beats:
        _Epochs(history, beats, seen).run()
    return history


def _before(seen: Mapping[str, Seen], time: int) -> set[str]:
    """The members that sent a request before a time."""
    return {name for name, s in seen.items() if s.first < time}


class _Cause(NamedTuple):
    time: int
    trigger: str
    who: str | None
    reason: str | None


class _Ownership:
    """Which member has which partition, replayed in order of time: actions are (time, order, what, member, set)."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.actions: list[tuple[int, int, str, frozenset[Partition] | None]] = []
        self.heard = [rebalance.heard for rebalance in history.rebalances]
        self.free: dict[Partition, int] = {}
        self.got: dict[str, int] = {}  # when each member got partitions last

    def lose(self, time: int, member: str, order: int = 0) -> None:
        """`order`: 0 before, 2 after what members get at the same time."""
        self.actions.append((time, order, member, None))

    def get(self, time: int, member: str, partitions: frozenset[Partition]) -> None:
        self.actions.append((time, 1, member, partitions))
        self.got[member] = max(self.got.get(member, time), time)

    def replay(self) -> None:
        owners = self.history.owners
        owned: dict[str, set[Partition]] = {}
        for time, _, member, partitions in sorted(self.actions, key=lambda action: action[:3]):
            mine = owned.setdefault(member, set())
            for partition in mine - (partitions or set()):
                self.free[partition] = time
                owners.pop(partition, None)
            for partition in (partitions or frozenset()) - mine:
                if partition in self.free:
                    self._end(time, time - self.free.pop(partition))
                elif (before := owners.get(partition)) is not None:
                    owned[before].discard(partition)
                    self._end(time, 0)
                owners[partition] = self.history.last_owners[partition] = member
            owned[member] = set(partitions or ())
        self.history.parts = {member: len(partitions) for member, partitions in owned.items()}

    def _end(self, time: int, length: int) -> None:
        """A partition has a member again: in the rebalance of that time, if there is one."""
        at = bisect_right(self.heard, time) - 1
        if at >= 0 and time <= self.history.rebalances[at].end:
            rebalance = self.history.rebalances[at]
            rebalance.stop = max(rebalance.stop or 0, length)


def _between(events: Sequence[Event], after: int, until: int, time: str) -> Sequence[Event]:
    """The events with after < time <= until. They are in order of that time ("sent" or "done")."""
    of = attrgetter(time)
    return events[bisect_right(events, after, key=of) : bisect_right(events, until, key=of)]


class _Classic:
    """JoinGroup, SyncGroup, LeaveGroup."""

    def __init__(self, history: History, events: Sequence[Event], seen: Mapping[str, Seen]) -> None:
        self.history, self.seen = history, seen
        self.joins = sorted(
            (
                e
                for e in events
                if e.kind == JOIN and e.is_answered and e.error == 0 and e.number >= 0 and e.member in seen
            ),
            key=lambda e: (e.done, e.sent),
        )
        self.syncs = [e for e in events if e.kind == SYNC and e.is_answered and e.error == 0]
        self.leaves = sorted((e for e in events if e.kind == LEAVE and e.error == 0), key=lambda e: e.sent)
        self.refusals = [e for e in events if e.kind == REFUSED]
        self.first_leave: dict[str, int] = {}  # by member, and by "instance:" and the instance
        for leave in reversed(self.leaves):
            self.first_leave[leave.member] = leave.sent
            if leave.instance is not None:
                self.first_leave[f"instance:{leave.instance}"] = leave.sent

    def run(self) -> None:
        rounds = self._rounds()
        since = 0
        before = frozenset(_before(self.seen, min(e.sent for e in rounds[0])) if rounds else ())
        for number, joins in enumerate(rounds):
            heard = joins[0].done
            until = rounds[number + 1][0].done if number + 1 < len(rounds) else 2**63
            for join in joins:
                self._note_member(join)
            members = frozenset(e.member for e in joins if e.sent <= heard)
            cause, others = self._cause(members, before, since, heard, joins)
            ends = [
                e.done
                for e in _between(self.syncs, heard - 1, until - 1, "done")
                if e.number == joins[0].number and e.member in members
            ]
            protocol = joins[0].protocol
            self.history.protocol = protocol or self.history.protocol
            is_cooperative = (protocol or "").startswith(_COOPERATIVE)
            end = max(ends, default=heard)
            self.history.rebalances.append(
                Rebalance(
                    joins[0].number, cause.time, heard, end, cause.trigger, cause.who, cause.reason, others, members,
                    is_cooperative,
                )
            )  # fmt: skip
            # A static member that comes back takes the place of another id.
            late = {e.member: e.instance for e in joins if e.sent > heard}
            gone = {
                m for m in members if m not in late and self.history.members[m].instance in set(late.values()) - {None}
            }
            before, since = (members | frozenset(late)) - gone, heard
        for leave in self.leaves:
            member = self._member_of(leave)
            if member is not None and member.left is None:
                member.left, member.left_by = leave.sent, f"left: {leave.text}" if leave.text else "left"
        self._replay(rounds)

    def _rounds(self) -> list[list[Event]]:
        """The answered JoinGroups by generation, in order of time."""
        rounds: list[list[Event]] = []
        for join in self.joins:
            if not rounds or rounds[-1][0].number != join.number:
                rounds.append([])
            rounds[-1].append(join)
        return rounds

    def _note_member(self, join: Event) -> None:
        member = self.history.members[join.member]
        member.timeout_ms = join.timeout_ms
        if self._is_new(join) and member.joined is None:
            member.joined = join.sent
            for other in self.history.members.values() if join.instance is not None else ():
                is_older = self.seen[other.name].first < join.sent and other is not member
                if is_older and other.instance == join.instance and other.left is None:
                    other.left, other.left_by = join.sent, REPLACED

    def _is_new(self, join: Event) -> bool:
        """Whether the member sent nothing before."""
        return self.seen[join.member].first >= join.sent

    def _member_of(self, leave: Event) -> Member | None:
        found = self.history.members.get(leave.member)
        if found is None and leave.instance is not None:
            named = [m for m in self.history.members.values() if m.instance == leave.instance]
            found = named[-1] if named else None
        return found

    def _cause(
        self,
        members: frozenset[str],
        before: frozenset[str],
        since: int,
        heard: int,
        joins: Sequence[Event],
    ) -> tuple[_Cause, int]:
        left = _between(self.leaves, since, heard, "sent")
        causes = [_Cause(e.sent, LEFT, self._client_of(e), e.text) for e in left]
        seen: set[str] = set()
        for e in sorted(joins, key=lambda e: e.sent):
            if e.sent > heard or e.member in seen:
                continue
            seen.add(e.member)
            if e.member not in before and self._is_new(e):
                causes.append(_Cause(e.sent, JOINED, e.client, None))
            else:
                causes.append(_Cause(e.sent, REJOINED, e.client, e.text))
        causes.sort(key=lambda cause: cause.time)
        named = {e.member for e in left}
        missing = sorted(m for m in before - members if m not in named and not self._has_left(m, heard))
        refused = min((e.done for e in _between(self.refusals, since, heard, "done")), default=None)
        hidden = refused is not None and refused < causes[0].time
        others = len([c for c in causes if c.trigger in (JOINED, LEFT)])
        if missing and (hidden or (causes[0].trigger == REJOINED and not causes[0].reason)):
            return self._timed_out(missing, since, refused if hidden and refused else causes[0].time), others
        if hidden and refused is not None:
            return _Cause(refused, UNKNOWN, None, None), others
        first = causes[0]
        return first, max(others - (first.trigger in (JOINED, LEFT)), 0)

    def _has_left(self, member: str, time: int) -> bool:
        known = self.history.members.get(member)
        names = [member] if known is None or known.instance is None else [member, f"instance:{known.instance}"]
        return any(self.first_leave.get(name, time + 1) <= time for name in names)

    def _client_of(self, leave: Event) -> str | None:
        member = self._member_of(leave)
        return member.client if member is not None else leave.client

    def _timed_out(self, missing: Sequence[str], since: int, heard: int) -> _Cause:
        member = self.history.members[missing[0]]
        last = self.seen[missing[0]].last
        start = last + member.timeout_ms * 1_000_000
        for name in missing:
            gone = self.history.members[name]
            gone.left, gone.left_by = min(max(start, since), heard), TIMED_OUT
        names = ", ".join(sorted({self.history.members[name].client or "?" for name in missing}))
        reason = f"no heartbeat for {member.timeout_ms:,} ms" if member.timeout_ms else None
        return _Cause(start if since < start <= heard else heard, TIMED_OUT, names, reason)

    def _replay(self, rounds: Sequence[Sequence[Event]]) -> None:
        play = _Ownership(self.history)
        protocols = {joins[0].number: joins[0].protocol or "" for joins in rounds}
        by_instance: dict[str, str] = {}
        for join in self.joins:
            if not protocols.get(join.number, "").startswith(_COOPERATIVE):
                play.lose(join.sent, join.member)
            if join.instance is not None:
                other = by_instance.get(join.instance)
                if other is not None and other != join.member:
                    play.lose(self.seen[other].last, other)
                by_instance[join.instance] = join.member
        for sync in self.syncs:
            if sync.assignment is not None:
                play.get(sync.done, sync.member, sync.assignment)
        _lose_gone(play, self.history, self.seen)
        play.replay()


class _Epochs:
    """ConsumerGroupHeartbeat, ShareGroupHeartbeat and StreamsGroupHeartbeat."""

    def __init__(self, history: History, beats: Sequence[Event], seen: Mapping[str, Seen]) -> None:
        self.history, self.seen = history, seen
        # A response that was not decoded has no epoch.
        self.answered = [e for e in beats if e.is_answered and e.error == 0 and e.number >= -2 and e.member in seen]

    def run(self) -> None:
        members: dict[str, Member] = self.history.members
        current = _before(self.seen, min((e.sent for e in self.answered), default=0))
        epoch = 0
        causes: list[_Cause] = []
        for e in self.answered:
            if e.sent_number < 0:
                causes.append(_Cause(e.sent, LEFT, e.client, None))
                current.discard(e.member)
                members[e.member].left, members[e.member].left_by = e.sent, "left"
                continue
            current.add(e.member)
            if e.sent_number == 0:
                members[e.member].joined = members[e.member].joined or e.sent
                causes.append(_Cause(e.sent, JOINED, e.client, None))
            elif e.subscribes:
                causes.append(_Cause(e.sent, SUBSCRIBED, e.client, None))
            if epoch == 0 and e.sent_number > 0:
                epoch = e.sent_number  # the group is older than the capture
            if e.number > epoch:
                self._add(e, causes, self._gone(current, e.sent), current)
                epoch, causes = e.number, []
            elif self.history.rebalances and (e.number != e.sent_number or e.assignment is not None):
                self.history.rebalances[-1].end = max(self.history.rebalances[-1].end, e.done)
        self._replay()

    def _gone(self, current: set[str], time: int) -> list[str]:
        """The members that sent nothing from this time on, and did not leave."""
        return sorted(m for m in current if self.seen[m].last < time)

    def _add(self, e: Event, causes: list[_Cause], gone: list[str], current: set[str]) -> None:
        clients = {self.history.members[m].client or "?" for m in gone}
        causes = [c for c in causes if c.trigger != SUBSCRIBED or e.done - c.time < _SOON]
        if gone and not causes:
            for name in gone:
                self.history.members[name].left = self.seen[name].last
                self.history.members[name].left_by = TIMED_OUT
            current.difference_update(gone)
            silent = e.done - max(self.seen[name].last for name in gone)
            reason = f"no heartbeat for {silent // 1_000_000:,} ms"
            cause = _Cause(e.done, TIMED_OUT, ", ".join(sorted(clients)), reason)
        else:
            cause = min(causes, key=lambda c: c.time, default=_Cause(e.done, UNKNOWN, None, None))
        self.history.rebalances.append(
            Rebalance(
                e.number, cause.time, e.done, e.done, cause.trigger, cause.who, cause.reason, max(len(causes) - 1, 0),
                frozenset(current), True,
            )
        )  # fmt: skip

    def _replay(self) -> None:
        if self.history.type == SHARE:
            self.history.parts = {
                e.member: len(e.assignment)
                for e in self.answered
                if e.assignment is not None and self.history.members[e.member].left is None
            }
            return
        play = _Ownership(self.history)
        for e in self.answered:
            if e.sent_number < 0:
                play.lose(e.sent, e.member)
            elif e.assignment is not None:
                play.get(e.done, e.member, e.assignment)
        _lose_gone(play, self.history, self.seen)
        play.replay()


def _lose_gone(play: _Ownership, history: History, seen: Mapping[str, Seen]) -> None:
    """Members that left or died give up their partitions: at their request to leave, or after their last request."""
    for member in history.members.values():
        if member.left is not None:
            is_dead = member.left_by in (TIMED_OUT, REPLACED)
            last = max(seen[member.name].last, play.got.get(member.name, 0))
            play.lose(last if is_dead else member.left, member.name, 2)


def longest(values: Iterable[int | None]) -> int | None:
    """The largest of some values that may be missing."""
    found = [value for value in values if value is not None]
    return max(found, default=None)
