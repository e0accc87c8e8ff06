"""What the history of a group consists of: members, rebalances, expulsions, and which member has which partition."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from .group_requests import Partition

#: Causes of rebalances, as in the column `trigger`.
JOINED, LEFT, REJOINED, TIMED_OUT, POLL, SUBSCRIBED, UNKNOWN = (
    "join", "leave", "rejoin", "session timeout", "poll timeout", "subscription", "not captured",
)  # fmt: skip
#: The reason of Kafka's Java client for a leave because of max.poll.interval.ms (LeaveGroup 5).
POLL_REASON = "poll timeout has expired"
#: How a static member left that came back with another id.
REPLACED = "replaced: the same instance joined again"
#: The cause of a rebalance in which an expelled consumer joins again, and its reason, by the cause of the expulsion.
BACK = {
    TIMED_OUT: (TIMED_OUT, "joined again after its session timed out"),
    POLL: (POLL, "joined again after its poll timeout"),
    LEFT: (REJOINED, "left and joined again without closing"),
}


#: A time after all others.
NEVER = 2**63


class Seen(NamedTuple):
    """A member's first and last request, ns, and where it sent them from. `good`: the last one that was not refused; 0:
    none was. `committed`: its first commit."""

    first: int
    last: int
    client: str | None
    address: str | None
    instance: str | None = None
    good: int = 0
    committed: int = NEVER

    @property
    def alive(self) -> int:
        """When it was known to be a member last: members that were silent learn that they are none."""
        return self.good or self.last


@dataclass(slots=True)
class Rebalance:
    """`members`: after it. Times in ns; `stop`: None where no partition was seen to change, and `is_at_least` if it is
    not known who had some before. `without_member`: the same of partitions of members that died. `silent`: how long the
    member was without a request whose session timed out; 0: not known."""

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
    silent: int = 0
    without_member: int = 0
    is_at_least: bool = False

    @property
    def has_timed_out(self) -> bool:
        """Whether the session of its member timed out."""
        return self.trigger == TIMED_OUT


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


class Expulsion(NamedTuple):
    """A consumer that the group lost though it had not ended: `cause` TIMED_OUT (the coordinator dropped it), POLL (it
    says that it left because of max.poll.interval.ms), or LEFT (it left, and joined again without closing: either that,
    or its program unsubscribed). Times in ns; `back`: when it joined again, None: it did not. `silent`: as of
    `Rebalance`."""

    time: int
    cause: str
    member: str
    client: str | None
    address: str | None
    back: int | None
    silent: int = 0


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
    #: In order of time.
    expulsions: list[Expulsion] = field(default_factory=list)


def seen_before(seen: Mapping[str, Seen], time: int) -> set[str]:
    """The members that sent a request before a time."""
    return {name for name, s in seen.items() if s.first < time}


class Cause(NamedTuple):
    """Why a rebalance began: the time in ns, the trigger, the client, and the reason that it gives. `silent`: as of
    `Rebalance`."""

    time: int
    trigger: str
    who: str | None
    reason: str | None
    silent: int = 0


class Ownership:
    """Which member has which partition, replayed in order of time: actions are (time, order, member, set, whether it
    died). A member that committed had some, also if its assignment is older than the capture."""

    def __init__(self, history: History, seen: Mapping[str, Seen]) -> None:
        self.history, self.seen = history, seen
        self.actions: list[tuple[int, int, str, frozenset[Partition] | None, bool]] = []
        self.heard = [rebalance.heard for rebalance in history.rebalances]
        self.free: dict[Partition, tuple[int, bool]] = {}  # since when, and whether its member died
        self.untold: list[tuple[int, bool]] = []  # the same of members whose partitions are not known
        self.got: dict[str, int] = {}  # when each member got partitions last
        self.is_older = any(member.joined is None for member in history.members.values())  # than the capture

    def lose(self, time: int, member: str, order: int = 0, *, is_dead: bool = False) -> None:
        """`order`: 0 before, 2 after what members get at the same time."""
        self.actions.append((time, order, member, None, is_dead))

    def get(self, time: int, member: str, partitions: frozenset[Partition]) -> None:
        self.actions.append((time, 1, member, partitions, False))
        self.got[member] = max(self.got.get(member, time), time)

    def replay(self) -> None:
        owners = self.history.owners
        owned: dict[str, set[Partition]] = {}
        for time, _, member, partitions, is_dead in sorted(self.actions, key=lambda action: action[:3]):
            if partitions is None and member not in owned and self.seen[member].committed < time:
                self.untold.append((time, is_dead))
            mine = owned.setdefault(member, set())
            for partition in mine - (partitions or set()):
                self.free[partition] = time, is_dead
                owners.pop(partition, None)
            for partition in (partitions or frozenset()) - mine:
                if partition in self.free:
                    since, has_died = self.free.pop(partition)
                    self._end(time, time - since, time - since if has_died else 0)
                elif (before := owners.get(partition)) is not None:
                    owned[before].discard(partition)
                    self._end(time, 0)
                elif self.is_older:
                    self._end_untold(time)
                owners[partition] = self.history.last_owners[partition] = member
            owned[member] = set(partitions or ())
        self.history.parts = {member: len(partitions) for member, partitions in owned.items()}

    def _at(self, time: int) -> Rebalance | None:
        """The rebalance of that time, if there is one."""
        at = bisect_right(self.heard, time) - 1
        rebalance = self.history.rebalances[at] if at >= 0 else None
        return rebalance if rebalance is not None and time <= rebalance.end else None

    def _end(self, time: int, length: int, without_member: int = 0) -> None:
        """A partition has a member again."""
        rebalance = self._at(time)
        if rebalance is not None:
            rebalance.stop = max(rebalance.stop or 0, length)
            rebalance.without_member = max(rebalance.without_member, without_member)

    def _end_untold(self, time: int) -> None:
        """A partition has a member whose member before is not known. Those that lost some had them until then: this
        rebalance gives them to others, now or until its end."""
        rebalance = self._at(time)
        if rebalance is not None:
            rebalance.is_at_least = True
            for since, has_died in self.untold:
                self._end(time, time - since, rebalance.end - since if has_died else 0)
            self.untold = []


def lose_gone(play: Ownership, history: History, seen: Mapping[str, Seen]) -> None:
    """Members that left or died give up their partitions: at their request to leave, or after their last request."""
    for member in history.members.values():
        if member.left is not None:
            is_dead = member.left_by in (TIMED_OUT, REPLACED)
            one = seen[member.name]
            last = max(one.alive if member.left_by == TIMED_OUT else one.last, play.got.get(member.name, 0))
            play.lose(last if is_dead else member.left, member.name, 2, is_dead=is_dead)


def longest(values: Iterable[int | None]) -> int | None:
    """The largest of some values that may be missing."""
    found = [value for value in values if value is not None]
    return max(found, default=None)
