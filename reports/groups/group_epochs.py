"""Epochs of groups whose members send heartbeats only (KIP-848): consumer, share and streams groups.

A response names the epoch of its member. The first one with a new epoch shows a rebalance. Its causes are requests that
were sent before it: an answer may come later than that of another member, which is faster.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from .group_events import SHARE, UNKNOWN_MEMBER_ID
from .group_rebalances import (
    BACK,
    JOINED,
    LEFT,
    SUBSCRIBED,
    TIMED_OUT,
    UNKNOWN,
    Cause,
    Expulsion,
    History,
    Ownership,
    Rebalance,
    Seen,
    lose_gone,
    seen_before,
)
from .group_requests import Event, Partition

#: A join or a subscription is the cause of a new epoch that comes so soon after it, in ns. The coordinator computes
#: assignments once a second (group.consumer.assignment.interval.ms).
_SOON = 5_000_000_000
#: Epochs in requests: the member leaves; a static member leaves, and may come back.
_LEAVES, _PAUSES = -1, -2
#: A member is silent after so many intervals of heartbeats. One heartbeat may be late; sessions last longer.
_SILENT_INTERVALS = 2


class _Pending(NamedTuple):
    """What may cause a new epoch. `done`: when it was answered."""

    cause: Cause
    done: int


class Epochs:
    """ConsumerGroupHeartbeat, ShareGroupHeartbeat and StreamsGroupHeartbeat."""

    def __init__(self, history: History, beats: Sequence[Event], seen: Mapping[str, Seen]) -> None:
        self.history, self.seen = history, seen
        known = [e for e in beats if e.member in seen]
        # A response that was not decoded has no epoch.
        self.answered = [e for e in known if e.is_answered and e.error == 0 and e.number >= -2 and e.sent_number >= 0]
        self.leaves = sorted((e for e in known if e.error == 0 and e.sent_number < 0), key=lambda e: e.sent)
        self.refused = [e for e in known if e.error == UNKNOWN_MEMBER_ID and e.sent_number > 0]
        self.interval_ms = max((e.interval_ms for e in known), default=0)
        self.current = seen_before(seen, min((e.sent for e in self.answered), default=0))
        self.reached: dict[str, int] = {}
        self.assigned: dict[str, frozenset[Partition]] = {}
        self.lost: list[tuple[int, str]] = []

    def run(self) -> None:
        back = self._expulsions()
        pending = self._pending(back)
        epoch = left = 0
        for e in self.answered:
            while left < len(self.leaves) and self.leaves[left].sent < e.done:
                self._leave(self.leaves[left])
                left += 1
                if not self.current:  # nobody hears of that epoch
                    pending = [p for p in pending if p.cause.time > self.leaves[left - 1].sent]
            self._stays(e)
            if epoch == 0 and e.sent_number > 0:
                epoch = e.sent_number  # the group is older than the capture
            is_change = self._changes(e)
            if e.number > epoch:
                self._add(e, _take(pending, e))
                epoch = e.number
            elif is_change and self.history.rebalances:
                self._extend(e)
        for leave in self.leaves[left:]:
            self._leave(leave)
        self._replay()

    def _expulsions(self) -> dict[tuple[str, int], Expulsion]:
        """The expulsion before each heartbeat that joins again, by member and time."""
        joins = [e for e in self.answered if e.sent_number == 0]
        lost = [(e.sent, TIMED_OUT, e.member) for e in self.refused]
        lost += [(e.sent, LEFT, e.member) for e in self.leaves if e.sent_number == _LEAVES]
        found: dict[tuple[str, int], Expulsion] = {}
        for time, cause, name in sorted(lost):
            join = min((e for e in joins if e.member == name and e.sent > time), key=lambda e: e.sent, default=None)
            if join is None and cause == LEFT:
                continue
            key = (name, join.sent if join is not None else time)
            if key not in found:  # a member is refused until it joins again
                member = self.history.members[name]
                back = None if join is None else join.sent
                found[key] = Expulsion(time, cause, name, member.client, member.address, back)
        self.history.expulsions += found.values()
        return found

    def _pending(self, back: Mapping[tuple[str, int], Expulsion]) -> list[_Pending]:
        """What may cause a new epoch, in order of time."""
        leaves = [e for e in self.leaves if e.sent_number == _LEAVES]
        found = [_Pending(Cause(e.sent, LEFT, e.client, None), e.done) for e in leaves]
        instances: dict[str, str] = {}
        topics: dict[str, frozenset[str]] = {}
        for e in self.answered:
            earlier = topics.get(e.member)
            if e.topics:
                topics[e.member] = e.topics
            is_static = e.instance is not None and instances.setdefault(e.instance, e.member) != e.member
            if is_static:  # another member with the same instance takes over its partitions
                continue
            if e.sent_number == 0:
                self.history.members[e.member].joined = self.history.members[e.member].joined or e.sent
                expulsion = back.get((e.member, e.sent))
                trigger, reason = (JOINED, None) if expulsion is None else BACK[expulsion.cause]
                found.append(_Pending(Cause(e.sent, trigger, e.client, reason), e.done))
            elif e.topics and earlier is not None and earlier != e.topics:  # another coordinator is told them all
                found.append(_Pending(Cause(e.sent, SUBSCRIBED, e.client, None), e.done))
        return sorted(found, key=lambda p: p.cause.time)

    def _leave(self, e: Event) -> None:
        member = self.history.members[e.member]
        member.left, member.left_by = e.sent, "left" if e.sent_number == _LEAVES else "left: a static member"
        if e.sent_number == _LEAVES:
            self.current.discard(e.member)
        self.assigned.pop(e.member, None)

    def _stays(self, e: Event) -> None:
        member = self.history.members[e.member]
        if member.left is None or e.sent > member.left:
            member.left = member.left_by = None  # it may be back
            self.current.add(e.member)

    def _changes(self, e: Event) -> bool:
        """Whether a response moves its member to another epoch, or gives it more partitions. One that takes some away
        belongs to an epoch that was not heard of yet."""
        is_new = e.sent_number == 0
        earlier = self.assigned.get(e.member, frozenset() if is_new and e.member not in self.reached else None)
        is_change = e.assignment is not None and earlier is not None and bool(e.assignment - earlier)
        moves = e.number > self.reached.get(e.member, e.sent_number)
        if is_new and self.history.rebalances:  # it came for this epoch, or it only comes back
            moves = moves and e.sent <= self.history.rebalances[-1].heard
            is_change = is_change and moves
        if e.assignment is not None or is_new:
            self.assigned[e.member] = e.assignment or frozenset()
        self.reached[e.member] = e.number
        return is_change or moves

    def _extend(self, e: Event) -> None:
        for rebalance in reversed(self.history.rebalances):
            if rebalance.number <= e.number:
                rebalance.end = max(rebalance.end, e.done)
                return

    def _gone(self, e: Event) -> list[str]:
        """The members that were silent for too long before a response, and those that the group refuses afterwards."""
        silent = e.done - _SILENT_INTERVALS * self.interval_ms * 1_000_000
        gone = {m for m in self.current if self.seen[m].last < min(silent, e.sent)}
        for refused in self.refused:
            if refused.sent > e.done and refused.member in self.current and refused.member != e.member:
                gone.add(refused.member)
                break
        return sorted(gone)

    def _add(self, e: Event, causes: list[Cause]) -> None:
        gone = [] if causes else self._gone(e)
        if gone:
            cause = self._timed_out(gone, e)
        else:
            cause = min(causes, key=lambda c: c.time, default=Cause(e.done, UNKNOWN, None, None))
        times, others = (cause.time, e.done, e.done), max(len(causes) - 1, 0)
        made = Rebalance(
            e.number, *times, cause.trigger, cause.who, cause.reason, others, frozenset(self.current), True,
            silent=cause.silent,
        )  # fmt: skip
        self.history.rebalances.append(made)

    def _timed_out(self, gone: Sequence[str], e: Event) -> Cause:
        self.current.difference_update(gone)
        for name in gone:
            joins = (x.sent for x in self.answered if x.member == name and x.sent_number == 0 and x.sent > e.done)
            back = min(joins, default=2**63)
            self.refused = [r for r in self.refused if r.member != name or r.sent > back]
        known = {x.member for x in self.history.expulsions}
        for name in gone:
            member = self.history.members[name]
            last = self.seen[name].last
            if last < e.sent:
                member.left, member.left_by = last, TIMED_OUT
            else:
                self.lost.append((e.done, name))
            if name not in known:
                self.history.expulsions.append(Expulsion(last, TIMED_OUT, name, member.client, member.address, None))
        silent = [e.done - self.seen[name].last for name in gone if self.seen[name].last < e.sent]
        refused = "its next heartbeat was refused: UNKNOWN_MEMBER_ID"
        reason = f"no heartbeat for {min(silent) // 1_000_000:,} ms" if silent else refused
        clients = {self.history.members[name].client or "?" for name in gone}
        return Cause(e.done, TIMED_OUT, ", ".join(sorted(clients)), reason, min(silent, default=0))

    def _replay(self) -> None:
        if self.history.type == SHARE:
            self.history.parts = {
                e.member: len(e.assignment)
                for e in self.answered
                if e.assignment is not None and self.history.members[e.member].left is None
            }
            return
        play = Ownership(self.history, self.seen)
        for e in self.leaves:
            play.lose(e.sent, e.member)
        for time, member in self.lost:
            play.lose(time, member)
        for e in self.answered:
            if e.assignment is not None:
                play.get(e.done, e.member, e.assignment)
        lose_gone(play, self.history, self.seen)
        play.replay()


def _take(pending: list[_Pending], e: Event) -> list[Cause]:
    """Remove what was sent before a response with a new epoch, and return what may have caused that epoch.

    What is not answered yet stays, if something else explains the epoch: it may cause the next one.
    """
    sent = [p for p in pending if p.cause.time < e.done]
    done = [p for p in sent if p.done <= e.done]
    taken = done or sent
    pending[:] = [p for p in pending if p not in taken]
    return [p.cause for p in taken if p.cause.trigger == LEFT or e.done - p.cause.time < _SOON]
