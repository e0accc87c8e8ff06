"""Generations of classic groups: JoinGroup, SyncGroup, LeaveGroup."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from operator import attrgetter

from .group_events import EXPELLED, JOIN, LEAVE, REFUSED, SYNC
from .group_rebalances import (
    BACK,
    JOINED,
    LEFT,
    POLL,
    POLL_REASON,
    REJOINED,
    REPLACED,
    TIMED_OUT,
    UNKNOWN,
    Cause,
    Expulsion,
    History,
    Member,
    Ownership,
    Rebalance,
    Seen,
    lose_gone,
    seen_before,
)
from .group_requests import Event

_COOPERATIVE = "cooperative"


class Generations:
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
        self.refused = {e.member: e for e in reversed(events) if e.kind == EXPELLED and e.member in seen}
        #: The expulsion before each member's first JoinGroup, by its new id.
        self.back: dict[str, Expulsion] = {}

    def run(self) -> None:
        self._find_expelled()
        rounds = self._rounds()
        since = 0
        current = frozenset(seen_before(self.seen, min(e.sent for e in rounds[0])) if rounds else ())
        for number, joins in enumerate(rounds):
            heard = joins[0].done
            until = rounds[number + 1][0].done if number + 1 < len(rounds) else 2**63
            for join in joins:
                self._note_member(join)
            members = frozenset(e.member for e in joins if e.sent <= heard)
            has_emptied = number > 0 and joins[0].number > rounds[number - 1][0].number + 1
            cause, others = self._cause(members, current, since, heard, joins, has_emptied)
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
                    is_cooperative, silent=cause.silent,
                )
            )  # fmt: skip
            # A static member that comes back takes the place of another id.
            late = {e.member: e.instance for e in joins if e.sent > heard}
            gone = {
                m for m in members if m not in late and self.history.members[m].instance in set(late.values()) - {None}
            }
            current, since = (members | frozenset(late)) - gone, heard
        for expulsion in self.history.expulsions:
            expelled = self.history.members[expulsion.member]
            if expulsion.cause == TIMED_OUT and expelled.left is None:
                expelled.left, expelled.left_by = expulsion.time, TIMED_OUT
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
        has_emptied: bool,
    ) -> tuple[Cause, int]:
        """`has_emptied`: a generation was skipped, which is that of the group without members."""
        left = _between(self.leaves, since, heard, "sent")
        named = {e.member for e in left}
        if before and before <= named:  # nobody heard of the generation without members
            left = [e for e in left if e.sent > min(join.sent for join in joins)]
        causes = [Cause(e.sent, _cause_of(e), self._client_of(e), e.text) for e in left]
        seen: set[str] = set()
        for e in sorted(joins, key=lambda e: e.sent):
            if e.sent > heard or e.member in seen:
                continue
            seen.add(e.member)
            expulsion = self.back.get(e.member)
            if expulsion is not None:
                is_first = expulsion.cause == TIMED_OUT and expulsion.member in before
                causes.append(Cause(expulsion.time if is_first else e.sent, *_back(expulsion)))
            elif e.member not in before and self._is_new(e):
                causes.append(Cause(e.sent, JOINED, e.client, None))
            else:
                causes.append(Cause(e.sent, REJOINED, e.client, e.text))
        if not causes:  # a clock was set back: each JoinGroup was sent after it was answered
            return Cause(heard, UNKNOWN, None, None), 0
        causes.sort(key=lambda cause: cause.time)
        missing = sorted(m for m in before - members if m not in named and not self._has_left(m, heard))
        refused = min((e.done for e in _between(self.refusals, since, heard, "done")), default=None)
        hidden = refused is not None and refused < causes[0].time
        others = len([c for c in causes if c.trigger in (JOINED, LEFT)])
        if missing and (hidden or (causes[0].trigger == REJOINED and not causes[0].reason)):
            return self._timed_out(missing, since, refused if hidden and refused else causes[0].time), others
        if missing and has_emptied and all(self._is_dead(name, heard) for name in before):
            return self._timed_out(missing, since, heard, joins), others
        if hidden and refused is not None:
            return Cause(refused, UNKNOWN, None, None), others
        first = causes[0]
        return first, max(others - (first.trigger in (JOINED, LEFT)), 0)

    def _find_expelled(self) -> None:
        """Find consumers that lost their member id without closing, and the JoinGroups by which they came back: on the
        same connection, or after a session timeout from the same client."""
        joined = {join.member: join for join in self.joins}
        lost = [
            (self._expired(e, joined.get(e.member)), TIMED_OUT, e)
            for e in self.refused.values()
            if not self._has_left(e.member, e.sent)
        ]
        lost += [(e.sent, _cause_of(e), e) for e in self.leaves if e.member in self.seen]
        lost.sort(key=lambda item: item[0])
        back: dict[int, Event] = {}
        firsts = {e.member: e for e in sorted(self.joins, key=lambda e: -e.sent)}
        for join in sorted(firsts.values(), key=lambda e: e.sent):
            for number in reversed(range(bisect_right(lost, join.sent, key=lambda item: item[0]))):
                _, cause, e = lost[number]
                is_same = (e.client, e.address) == (join.client, join.address) and (
                    cause == TIMED_OUT or e.connection == join.connection
                )
                if is_same and number not in back and e.member != join.member:
                    back[number] = join
                    break
        for number, (time, cause, e) in enumerate(lost):
            found = back.get(number)
            if found is not None or cause != LEFT:
                silent = e.sent - self.seen[e.member].alive if cause == TIMED_OUT and time < e.sent else 0
                expulsion = self._add_expulsion(self.history.members[e.member], time, cause, found, silent)
                if found is not None:
                    self.back[found.member] = expulsion

    def _expired(self, refused: Event, join: Event | None) -> int:
        """When the session of a member ended that was told so later: if it sent nothing for as long as the session
        lasts. `join`: its last."""
        if join is None or not join.timeout_ms:
            return refused.sent
        return min(max(self.seen[refused.member].alive, join.done) + join.timeout_ms * 1_000_000, refused.sent)

    def _add_expulsion(self, member: Member, time: int, cause: str, join: Event | None, silent: int = 0) -> Expulsion:
        back = None if join is None else join.sent
        found = Expulsion(time, cause, member.name, member.client, member.address, back, silent)
        self.history.expulsions.append(found)
        return found

    def _has_left(self, member: str, time: int) -> bool:
        known = self.history.members.get(member)
        names = [member] if known is None or known.instance is None else [member, f"instance:{known.instance}"]
        return any(self.first_leave.get(name, time + 1) <= time for name in names)

    def _client_of(self, leave: Event) -> str | None:
        member = self._member_of(leave)
        return member.client if member is not None else leave.client

    def _is_dead(self, name: str, time: int) -> bool:
        """Whether a member sent nothing for its session timeout, and did not leave: librdkafka forgets its id then."""
        timeout = self.history.members[name].timeout_ms
        return timeout > 0 and self.seen[name].last + timeout * 1_000_000 <= time and not self._has_left(name, time)

    def _timed_out(self, missing: Sequence[str], since: int, heard: int, joins: Sequence[Event] = ()) -> Cause:
        """`joins`: those by which members may come back."""
        member = self.history.members[missing[0]]
        last = self.seen[missing[0]].alive
        start = last + member.timeout_ms * 1_000_000
        for name in missing:
            gone = self.history.members[name]
            gone.left, gone.left_by = min(max(start, since), heard), TIMED_OUT
            if name not in self.refused:
                same = [e for e in joins if (e.client, e.address) == (gone.client, gone.address)]
                self._add_expulsion(gone, gone.left, TIMED_OUT, same[0] if len(same) == 1 else None)
        names = ", ".join(sorted({self.history.members[name].client or "?" for name in missing}))
        reason = f"no heartbeat for {member.timeout_ms:,} ms" if member.timeout_ms else None
        is_silent = since < start <= heard and member.timeout_ms > 0
        return Cause(
            start if since < start <= heard else heard, TIMED_OUT, names, reason, (heard - max(last, since)) * is_silent
        )

    def _replay(self, rounds: Sequence[Sequence[Event]]) -> None:
        play = Ownership(self.history, self.seen)
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
        lose_gone(play, self.history, self.seen)
        play.replay()


def _cause_of(leave: Event) -> str:
    return POLL if leave.text is not None and POLL_REASON in leave.text else LEFT


def _back(expulsion: Expulsion) -> tuple[str, str | None, str, int]:
    trigger, reason = BACK[expulsion.cause]
    return trigger, expulsion.client, reason, expulsion.silent


def _between(events: Sequence[Event], after: int, until: int, time: str) -> Sequence[Event]:
    """The events with after < time <= until. They are in order of that time ("sent" or "done")."""
    of = attrgetter(time)
    return events[bisect_right(events, after, key=of) : bisect_right(events, until, key=of)]
