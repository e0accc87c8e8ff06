"""Groups with their members, history and lag, from the counts and events of `group_events`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from ..section_parts.section import SectionInput
from .group_events import READ_BY
from .group_history import history_of
from .group_lag import ASSIGNMENT, CLIENT, Client, PartitionLag, lag_of, read_offsets
from .group_rebalances import History, Rebalance, Seen
from .group_requests import Event, read_events

#: The names of the types CLASSIC, CONSUMER, SHARE, STREAMS of `group_events`.
TYPES = ("classic", "consumer", "share", "streams")
#: The default of session.timeout.ms and group.consumer.session.timeout.ms: members send heartbeats more often.
SESSION_MS = 45_000


@dataclass(slots=True)
class MemberRow:
    """A member of a group. `first`, `last`: of its requests, ns."""

    client: Client = (None, None)
    instance: str | None = None
    heartbeats: int = 0
    commits: int = 0
    errors: int = 0
    first: int = 2**63
    last: int = 0


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


def _add_history(group: Group, events: list[Event]) -> None:
    seen = {
        name: Seen(row.first, row.last, row.client[1], row.client[0], row.instance)
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
