"""Members that die again and again: their processes end without LeaveGroup, often at the same record."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence, Set
from functools import cache
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from kafkatap.kernels.arrays import dict_rows, is_among

from .. import units
from ..batch import Array
from ..finding_words import and_more
from ..findings import Finding, Party
from ..groups.group_requests import Partition, assigned_partitions, read_assignment
from ..section_parts.counted import CONNECTION, PLACE, counted, largest, latest, total
from ..section_parts.section import SectionInput
from .connection_limit import OPENED
from .member_events import EXPELLED, FENCED, JOINED, KINDS, LAST, LEFT, OWNS, SYNCED, TOLD, member_events
from .parties import broker_party, client_option, client_parties
from .record_commands import record_commands
from .signature import Signature
from .sums import exchanges_of_clients

#: Of one group. One or two may be a deployment.
_LEAST = 3
#: The kernel of a dead process closes all its connections at once; packets of several hosts have several clocks.
_AT_ONCE_NS = units.SECOND
#: A record kills a member within this after its assignment: it reads from the committed offset.
_SOON_NS = 10 * units.SECOND
#: More partitions than these point to none of them.
_NAMED = 3
#: Responses with more partitions are those of tools.
_MOST_PARTITIONS = 1000

#: The offsets that OffsetFetch responses have.
_COMMITTED = counted(
    "advice.members-committed", CONNECTION | PLACE,
    lambda x: (x.error_code == 0) & (x.together() <= _MOST_PARTITIONS),
    of=("fetched offset", "fetched offset of group"), newest="time",
    responses=total(1), time=largest("response_last"), offset=latest("offset"),
)  # fmt: skip


class _Life:
    """A member from its join until its connection to the coordinator ended. `received`: its assignments as (time, kind
    of event, number of the text or key of the exchange). `died`: ns, 0: it did not."""

    def __init__(self, client: tuple[int, int], broker: tuple[int, int]) -> None:
        self.client, self.broker = client, broker
        self.members: set[int] = set()
        self.received: list[tuple[int, int, int]] = []
        self.assigned: list[tuple[int, frozenset[Partition]]] = []  # in order of time
        self.asked = 0  # the first byte of its last request that changes the group
        self.packet = self.died = self.connection = 0
        self.has_left = False  # or the group expelled it

    @property
    def partitions(self) -> frozenset[Partition]:
        """Its last assignment."""
        return self.assigned[-1][1] if self.assigned else frozenset()

    @property
    def assigned_at(self) -> int:
        return self.assigned[-1][0] if self.assigned else 0


_COLUMNS = (
    "kind", "time", "connection", "exchange", "packet", "client_id", "client_ip", "broker_ip", "broker_port",
    "group", "member", "assignment", "sent",
)  # fmt: skip


def _lives(events: Array) -> dict[int, list[_Life]]:
    """The members of each group that join in the capture, by the number of the group."""
    found: dict[tuple[int, int], _Life] = {}
    groups: dict[int, list[_Life]] = defaultdict(list)
    for event in dict_rows(events, _COLUMNS):
        key = event["group"], event["connection"]
        life = found.get(key)
        if life is None:
            client, broker = (event["client_id"], event["client_ip"]), (event["broker_ip"], event["broker_port"])
            life = found[key] = _Life(client, broker)
            life.connection = event["connection"]
            groups[event["group"]].append(life)
        life.asked = max(life.asked, event["sent"])
        life.packet = event["packet"]
        if event["kind"] == JOINED:
            life.members.add(event["member"])
            life.has_left = False
        elif event["kind"] in (LEFT, EXPELLED, FENCED):
            life.has_left = True
        elif event["kind"] == SYNCED and event["assignment"] >= 0:
            life.received.append((event["time"], SYNCED, event["assignment"]))
        elif event["kind"] == OWNS and life.received[-1:] != [(event["time"], OWNS, event["exchange"])]:
            life.received.append((event["time"], OWNS, event["exchange"]))
    return groups


def _read_assignments(given: SectionInput, lives: Sequence[_Life], events: Array) -> None:
    """Read the assignments of the members of a group. `events`: those of the group."""
    context = given.context
    owned = assigned_partitions(events[events["kind"] == OWNS], context)
    read = cache(lambda text: read_assignment(context.strings[text] or b"") or frozenset())
    for life in lives:
        life.assigned = [
            (time, read(number) if kind == SYNCED else frozenset(owned[number])) for time, kind, number in life.received
        ]


class _Connections:
    """When the connections of some clients began and ended."""

    def __init__(self, given: SectionInput, clients: Set[tuple[int, int]]) -> None:
        self.closed: dict[int, int] = {}  # when the client closed them, by their keys; 0: it did not
        self._left_out = Counter[tuple[int, int]]()
        self._left_out.subtract(exchanges_of_clients(given))
        spans: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
        columns = given.keys(OPENED.name) | given.values(OPENED.name)
        at = np.flatnonzero((columns["exchanges"] > 0) & is_among(columns["client_id"], [one for one, _ in clients]))
        for row in dict_rows({name: column[at] for name, column in columns.items()}):
            client = row["client_id"], row["client_ip"]
            closed = row["closed_at"] if row["by_client"] else 0
            self.closed[row["connection"]] = closed
            spans[client].append((row["first"], closed if closed > 0 else row["last"]))
            self._left_out[client] += row["exchanges"]
        self._firsts: dict[tuple[int, int], list[int]] = {}
        self._latest: dict[tuple[int, int], list[int]] = {}  # the last end of those that began until then
        for client, mine in spans.items():
            mine.sort()
            self._firsts[client] = [first for first, _ in mine]
            self._latest[client] = list(accumulate((end for _, end in mine), max))

    def is_read(self, client: tuple[int, int]) -> bool:
        """Whether all exchanges of a client were read: a selection may leave out that it leaves the group."""
        return self._left_out[client] <= 0

    def has_another(self, client: tuple[int, int], time: int) -> bool:
        """Whether a client uses a connection after a time that it had before."""
        before = bisect_left(self._firsts.get(client, []), time - _AT_ONCE_NS)
        return before > 0 and self._latest[client][before - 1] > time + _AT_ONCE_NS


def _find_dead(given: SectionInput, groups: dict[int, list[_Life]]) -> None:
    """Note which members died. Their group must go on, so that the end of a capture, or of a group, is no death."""
    connections = _Connections(given, {life.client for lives in groups.values() for life in lives})
    last = {(row["group"], row["member"]): row["last"] for row in given.rows(LAST.name)}
    for group, lives in groups.items():
        *_, second, latest = sorted((0, 0, *(life.asked for life in lives)))
        for life in lives:
            closed = connections.closed.get(life.connection, 0)
            others = second if life.asked == latest else latest
            if closed <= 0 or others <= closed or not life.members or life.has_left:
                continue
            is_back = any(last.get((group, member), 0) > closed for member in life.members)
            if connections.is_read(life.client) and not is_back and not connections.has_another(life.client, closed):
                life.died = closed


class _Stop(NamedTuple):
    """`partitions`: those that the dead had in common, and whose committed offset stays. `had`: how many of the dead
    had them. `is_soon`: they died soon after they had been assigned them. `offsets`: the committed ones, None: not
    captured; `stays`: more than one member read each."""

    partitions: tuple[Partition, ...]
    had: int
    is_soon: bool
    offsets: tuple[int | None, ...]
    stays: bool

    @property
    def words(self) -> str:
        """The committed offsets in words; nothing unless all are known."""
        known = [offset for offset in self.offsets if offset is not None and offset >= 0]
        if not known or len(known) < len(self.offsets):
            return ""
        many = "s" if len(known) > 1 else ""
        stay = f"stay{'' if many else 's'}" if self.stays else f"w{'ere' if many else 'as'}"
        return f", committed offset{many} {stay} {', '.join(f'{offset:,}' for offset in known)}"


def _in_common(lives: Sequence[_Life], dead: Sequence[_Life]) -> list[Partition]:
    """The partitions that all dead members had, or all but one, and that nobody had for long without dying."""
    count = Counter(partition for life in dead for partition in life.partitions)
    known = sum(bool(life.partitions) for life in dead)
    begin, end = dead[0].died, dead[-1].died
    kept: set[Partition] = set()
    for life in lives:
        if not life.died and life.assigned:
            ends = [*(time for time, _ in life.assigned[1:]), end]
            for (time, partitions), until in zip(life.assigned, ends, strict=True):
                if until - max(time, begin) >= _SOON_NS:
                    kept |= partitions
    for least in (known, known - 1):
        found = sorted(p for p, n in count.items() if n >= max(least, _LEAST - 1) and p not in kept)
        if found and known >= _LEAST:
            return found
    return []


def _stop_of(given: SectionInput, lives: Sequence[_Life], dead: Sequence[_Life]) -> _Stop:
    found = _in_common(lives, dead)
    order = {life.connection: n for n, life in enumerate(dead)}
    read: dict[Partition, dict[int, int]] = defaultdict(dict)  # the committed offsets that each of the dead read
    for row in given.rows(_COMMITTED.name) if found else ():
        if row["connection"] in order:
            place = given.context.topic(row["topic"], row["topic_id"]) or "", row["partition"]
            read[place][order[row["connection"]]] = row["offset"]
    offsets = {each: [offset for _, offset in sorted(read[each].items())] for each in found}
    partitions = tuple(each for each in found if len(offsets[each]) < 2 or offsets[each][-1] == offsets[each][-2])
    partitions = partitions if len(partitions) <= _NAMED else ()
    had = sum(life.partitions.issuperset(partitions) for life in dead)
    soon = sum(life.died - life.assigned_at <= _SOON_NS for life in dead if life.assigned)
    mine = [offsets[each] for each in partitions]
    latest_of = tuple(each[-1] if each else None for each in mine)
    return _Stop(partitions, had, soon >= len(dead) - 1, latest_of, all(len(each) > 1 for each in mine))


def _stopped_ns(lives: Sequence[_Life], dead: Sequence[_Life]) -> int:
    """How long the partitions of dead members had no member, the longest one of each death."""
    times: dict[Partition, list[int]] = defaultdict(list)
    for time, partitions in sorted((each for life in lives for each in life.assigned), key=lambda each: each[0]):
        for partition in partitions:
            times[partition].append(time)
    total = 0
    for life in dead:
        longest = 0
        for partition in life.partitions:
            at = bisect_right(times[partition], life.died)
            if at < len(times[partition]):
                longest = max(longest, times[partition][at] - life.died)
        total += longest
    return total


def _findings(given: SectionInput) -> Iterator[Finding]:
    events = member_events(given, *(kind for kind in KINDS if kind != TOLD))
    groups = _lives(events)
    if not groups:
        return
    _find_dead(given, groups)
    for group, lives in groups.items():
        dead = sorted((life for life in lives if life.died), key=lambda life: life.died)
        if len(dead) < _LEAST:
            continue
        _read_assignments(given, lives, events[events["group"] == group])
        stop = _stop_of(given, lives, dead)
        # Members that are restarted in turn, without LeaveGroup, die once each.
        if max(Counter(life.client for life in dead).values()) > 1 or (stop.partitions and stop.is_soon):
            yield _finding(given, group, dead, stop, _stopped_ns(lives, dead))


def _finding(given: SectionInput, group: int, dead: Sequence[_Life], stop: _Stop, stopped_ns: int) -> Finding:
    context, name = given.context, given.context.text(group) or "?"
    counts = Counter(life.client for life in dead)
    clients = sorted(counts, key=lambda client: (-counts[client], context.text(client[0]) or ""))
    named = [f'"{context.text(client)}"' for client, _ in clients[:_NAMED] if client >= 0]
    who = ", ".join(named) + (and_more(len(clients) - len(named)) if named else "")
    text = f'group "{name}": members died {len(dead)} times (they closed all connections without LeaveGroup)'
    text += f": {'client' if len(clients) == 1 else 'clients'} {who}" if who else ""
    places = _places(stop.partitions)
    if places:
        each = "each" if stop.had == len(dead) else f"{stop.had:,} of them"
        text += f"; {each} had {'just ' if stop.is_soon else ''}been assigned {places}{stop.words}"
    if stopped_ns:
        text += f"; partitions without a member for {units.duration(stopped_ns)} in total"
    is_record = bool(places) and stop.is_soon
    topic, partition = stop.partitions[0] if stop.partitions else ("", 0)
    numbers = {
        "deaths": len(dead), "clients": len(clients), "stopped_ns": stopped_ns, "topic": topic or None,
        "partition": partition if topic else None, "committed_offset": stop.offsets[0] if stop.offsets else None,
    }  # fmt: skip
    return DYING_MEMBERS.found(
        given, {"first": dead[0].died, "last": dead[-1].died}, text, stopped_ns, numbers,
        (("sections", "groups"), *(client_option(context, clients[0][0]) if len(clients) == 1 else ())),
        packets=tuple(life.packet for life in dead[:10]),
        parties=(
            Party("group", name), *(party for client in clients[:_NAMED] for party in client_parties(context, *client)),
            *(Party("partition", f"{each}-{number}") for each, number in stop.partitions),
            broker_party(context, *dead[-1].broker),
        ),
        setting=_OF_RECORD if is_record else "",
        remedy=_remedy(stop) if is_record else _OF_PROCESS,
    )  # fmt: skip


def _places(partitions: Sequence[Partition]) -> str:
    """`orders partition 1`, `orders partitions 0, 1`."""
    numbers: dict[str, list[str]] = defaultdict(list)
    for topic, partition in partitions:
        numbers[topic].append(str(partition))
    return " and ".join(
        f"{topic} partition{'s' if len(mine) > 1 else ''} {', '.join(mine)}" for topic, mine in numbers.items()
    )


def _remedy(stop: _Stop) -> str:
    topic = stop.partitions[0][0]
    mine = [(number, at) for (each, number), at in zip(stop.partitions, stop.offsets, strict=True) if each == topic]
    return (
        "A record that kills its reader is likely. Look at those from the committed offset on: "
        f"{record_commands(topic, mine)}. Let the consumer skip what it cannot process, or write it to a dead letter "
        "topic."
    )


_OF_RECORD = "how the consumer handles a record that it cannot process"
_OF_PROCESS = "Find what ends the processes: the log of each, its limit of memory, the probes of its supervisor."
DYING_MEMBERS = Signature(
    "dying_members",
    "members of a group die again and again",
    "A member that was not expelled closes all of its connections without LeaveGroup. If those that died had the "
    "same partition, one of its records may be the reason.",
    _OF_RECORD,
    "Look at the records from the committed offset of that partition on. Skip the one that cannot be processed, or "
    "write it to a dead letter topic. Without such a partition, find what ends the processes.",
    f"{_LEAST} deaths in one group, and one client died twice; or all dead members but at most one had the same "
    f"partition, died within {_SOON_NS // units.SECOND} s after its assignment, and its committed offset stays. Time "
    "lost: how long partitions of dead members had no member.",
    _findings,
    counts=(OPENED, _COMMITTED),
    label="members die",
)  # fmt: skip
