"""Groups with their members, history and lag, from the counts and events of `group_events`.

A rebalance ends with a new generation (classic) or epoch (KIP-848, share, streams). Responses name it. The cause is the
first of what happened since the generation before: a member joins, leaves, or rejoins with a reason. Some causes are
not on the wire. If members hear of a rebalance (REBALANCE_IN_PROGRESS) before any request explains it, and a member is
missing afterwards, its session timed out. A join has the cause of the expulsion before it, if the same consumer joins
again: the group answered UNKNOWN_MEMBER_ID to its old member id, or it had left because of max.poll.interval.ms.

start   the first byte of the request that causes it; of a session timeout the member's last request and the timeout of
        its JoinGroup, or else when the first member hears of it
end     the last SyncGroup response of the generation; or the last heartbeat response that moves a member to the epoch,
        or gives it more partitions. A response that repeats them is no part of it: the first one of another coordinator
        does, and one to a static member that comes back.
stop    the longest time that a partition had no member, ending in this rebalance. A member of an eager assignor gives
        up all partitions with its JoinGroup request, other members those that a response takes away. Of a member whose
        assignment is older than the capture, only that it had some is known, if it committed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ..section_parts.section import SectionInput
from .group_epochs import Epochs
from .group_events import BEAT, CLASSIC, READ_BY
from .group_generations import Generations
from .group_lag import ASSIGNMENT, CLIENT, Client, PartitionLag, lag_of, read_offsets
from .group_rebalances import NEVER, History, Member, Rebalance, Seen
from .group_requests import Event, read_events

#: The names of the types CLASSIC, CONSUMER, SHARE, STREAMS of `group_events`.
TYPES = ("classic", "consumer", "share", "streams")
#: The default of session.timeout.ms and group.consumer.session.timeout.ms: members send heartbeats more often.
SESSION_MS = 45_000


@dataclass(slots=True)
class MemberRow:
    """A member of a group. `first`, `last`: of its requests, ns. `good`: the last one that was not refused.
    `committed`: the first commit."""

    client: Client = (None, None)
    instance: str | None = None
    heartbeats: int = 0
    commits: int = 0
    errors: int = 0
    first: int = NEVER
    last: int = 0
    good: int = 0
    committed: int = NEVER


@dataclass(slots=True)
class Group:
    """A group. `answered_at`, `moved_at`: the last time that a coordinator answered, and that a broker said that it is
    none, ns."""

    name: str
    history: History | None = None
    types: set[int] = field(default_factory=set)
    members: dict[str, MemberRow] = field(default_factory=dict)
    errors: Counter[tuple[int, int]] = field(default_factory=Counter)  # (api_key, code)
    lag: list[PartitionLag] = field(default_factory=list)
    answered_at: int = 0
    moved_at: int = 0

    @property
    def clients(self) -> list[Client]:
        """The clients of its members."""
        return sorted({row.client for row in self.members.values()}, key=str)

    @property
    def type(self) -> str | None:
        """One of TYPES; None: not captured."""
        return TYPES[max(self.types)] if self.types else None

    @property
    def known_until(self) -> int | None:
        """Since when its commits go to a coordinator that was not captured, ns: the broker said that it is none, or
        its members read on without heartbeats for longer than a session may last."""
        if self.moved_at > self.answered_at > 0:
            return self.answered_at
        timeouts = [m.timeout_ms for m in self.history.members.values() if m.left is None] if self.history else []
        session = (max(timeouts, default=0) or SESSION_MS) * 1_000_000
        has_members = any(row.heartbeats and self.is_member_now(name) for name, row in self.members.items())
        read_at = max((p.position_at or 0 for p in self.lag if p.sure in (ASSIGNMENT, CLIENT)), default=0)
        return self.answered_at if has_members and read_at - self.answered_at > session else None

    @property
    def rebalances(self) -> list[Rebalance]:
        """In order of time."""
        return [] if self.history is None else self.history.rebalances

    def is_member_at(self, name: str, time: int) -> bool:
        """Whether a member id is in the group at a time near the end."""
        member = None if self.history is None else self.history.members.get(name)
        return self.is_member_now(name) or (member is not None and member.left is not None and member.left >= time)

    def is_member_now(self, name: str) -> bool:
        """Whether a member id is in the group at the end."""
        if self.history is None or name not in self.history.members:
            return bool(name) and not self.rebalances
        return self.history.members[name].left is None


def groups_of(given: SectionInput) -> list[Group]:
    """All groups with their members, histories and lag. Use `given.once(groups_of)`."""
    context = given.context
    groups: dict[str, Group] = {}
    keys, values = given.keys("groups.members"), given.values("groups.members")
    for row in range(len(keys["group"])):
        name = context.text(int(keys["group"][row])) or ""
        group = groups.setdefault(name, Group(name))
        member = group.members.setdefault(context.text(int(keys["member"][row])) or "", MemberRow())
        member.client = context.address(int(keys["client_ip"][row])), context.text(int(keys["client_id"][row]))
        member.instance = member.instance or context.text(int(keys["instance"][row]))
        for column in ("heartbeats", "commits", "errors"):
            setattr(member, column, getattr(member, column) + int(values[column][row]))
        member.first = min(member.first, int(values["first"][row]))
        member.last = max(member.last, int(values["last"][row]))
        member.good = max(member.good, int(values["good"][row]))
        member.committed = min(member.committed, int(values["committed"][row]))
        if keys["type"][row] >= 0:
            group.types.add(int(keys["type"][row]))
    keys, codes = given.keys("groups.errors"), given.values("groups.errors")["codes"]
    for row in range(len(codes)):
        group = groups.setdefault(name := context.text(int(keys["group"][row])) or "", Group(name))
        group.errors[int(keys["api_key"][row]), int(keys["error_code"][row])] += int(codes[row])
    keys, values = given.keys("groups.coordinators"), given.values("groups.coordinators")
    for row, number in enumerate(keys["group"].tolist()):
        group = groups.setdefault(name := context.text(number) or "", Group(name))
        group.answered_at = max(group.answered_at, int(values["answered_at"][row]))
        group.moved_at = max(group.moved_at, int(values["moved_at"][row]))
    events = read_events(given.events(READ_BY), context)
    for name in set(groups) & set(events):
        _add_history(groups[name], events[name])
    _add_lag(given, groups)
    return list(groups.values())


def shared_clients(groups: Iterable[Group]) -> frozenset[Client]:
    """The clients that several groups have: their reads may be those of any of them."""
    count = Counter(client for group in groups for client in group.clients)
    return frozenset(client for client, number in count.items() if number > 1)


def history_of(events: Sequence[Event], seen: Mapping[str, Seen]) -> History:
    """The history of one group. `seen`: its members by their ids."""
    beats = [event for event in events if event.kind == BEAT]
    history = History(beats[-1].type if beats else CLASSIC)
    history.members = {name: Member(name, s.client, s.address, s.instance) for name, s in seen.items()}
    of_epochs = {event.member for event in beats}  # their commits may be refused, too
    classic = [event for event in events if event.kind != BEAT and event.member not in of_epochs]
    Generations(history, classic, seen).run()
    if beats:
        Epochs(history, beats, seen).run()
    history.expulsions.sort()
    return history


def _add_history(group: Group, events: list[Event]) -> None:
    seen = {
        name: Seen(row.first, row.last, row.client[1], row.client[0], row.instance, row.good, row.committed)
        for name, row in group.members.items()
        if name
    }
    group.history = history_of([event for event in events if not event.member or event.member in seen], seen)


def _add_lag(given: SectionInput, groups: dict[str, Group]) -> None:
    offsets = read_offsets(given)
    for name in offsets.committed:
        groups.setdefault(name, Group(name))
    shared = shared_clients(groups.values())
    for group in groups.values():
        group.lag = lag_of(group.name, group.history, group.clients, shared, offsets)
