"""Members that die again and again: their processes end without LeaveGroup, often at the same record."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np

from .. import units
from ..batch import P_KAFKA, Array
from ..counting.count_table import LATEST, MAX, MIN, SUM
from ..findings import WARNING, Finding, Party
from ..groups.group_requests import Partition, assigned_partitions, read_assignment
from ..questions.count_forms import ADDRESS, NUMBER, OTHER, TEXT, CountForm
from ..questions.gathered import Gathered
from ..questions.section import SectionInput
from ..questions.section_counts import Tally
from .expulsions import EXPULSIONS
from .member_events import EXPELLED, FENCED, JOINED, KINDS, LAST, LEFT, OWNS, SYNCED, member_events
from .parties import broker_party, client_option, client_parties
from .signature import Signature
from .sums import rows_of

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

_CONNECTIONS = CountForm(
    "advice.members-connections",
    {"client_id": TEXT, "client_ip": ADDRESS, "connection": NUMBER},
    {"connections": SUM, "first": MIN, "last": MAX, "closed_at": MAX},
    {"client_id": OTHER, "client_ip": -1, "connection": -1},
    newest="last",
)
#: The offsets that OffsetFetch responses have.
_COMMITTED = CountForm(
    "advice.members-committed",
    {"connection": NUMBER, "topic": TEXT, "topic_id": TEXT, "partition": NUMBER},
    {"responses": SUM, "time": MAX, "offset": LATEST},
    {"connection": -1, "topic": OTHER, "topic_id": -1, "partition": -1},
    newest="time",
)


def _read(gathered: Gathered, tally: Tally) -> None:
    for kind in ("fetched offset", "fetched offset of group"):
        rows = gathered.facts(kind)
        if not len(rows):
            continue
        many = np.bincount(rows.exchange, minlength=len(gathered.exchanges))
        rows = rows.where((many[rows.exchange] <= _MOST_PARTITIONS) & (rows["error_code"] == 0))
        keys = {name: rows[name] for name in ("topic", "topic_id", "partition")}
        keys["connection"] = gathered.column("connection")[rows.exchange]
        times = gathered.column("response_last")[rows.exchange]
        tally.add(_COMMITTED.name, keys, {"responses": 1, "time": times, "offset": rows["offset"]})


def _read_connections(rows: Array, tally: Tally) -> None:
    at = np.flatnonzero((rows["protocol"] == P_KAFKA) & (rows["exchanges"] > 0))
    if len(at):
        mine = rows[at]
        closed = np.where(mine["closed_by"] == 0, mine["closed_at"], 0)
        tally.add(_CONNECTIONS.name, {name: mine[name] for name in _CONNECTIONS.keys}, {
            "connections": 1, "first": mine["first"], "last": mine["last"], "closed_at": closed,
        })  # fmt: skip


class _Life:
    """A member from its join until its connection to the coordinator ended. `assigned`: (time, partitions), in order of
    time. `died`: ns, 0: it did not."""

    def __init__(self, connection: int, client: tuple[int, int], broker: tuple[int, int]) -> None:
        self.connection, self.client, self.broker = connection, client, broker
        self.members: set[int] = set()
        self.assigned: list[tuple[int, frozenset[Partition]]] = []
        self.asked = 0  # the first byte of its last request that changes the group
        self.packet = self.died = 0
        self.has_left = False  # or the group expelled it

    @property
    def partitions(self) -> frozenset[Partition]:
        """Its last assignment."""
        return self.assigned[-1][1] if self.assigned else frozenset()

    @property
    def assigned_at(self) -> int:
        return self.assigned[-1][0] if self.assigned else 0


_COLUMNS = (
    "kind", "time", "connection", "exchange", "packet", "client_id", "client_ip", "broker_ip", "broker_port", "s0",
    "s1", "s3", "v2",
)  # fmt: skip


def _lives(given: SectionInput) -> dict[int, dict[int, _Life]]:
    """The members of each group that join in the capture, by the numbers of the group and of the connection."""
    context = given.context
    events = member_events(given, EXPULSIONS, *KINDS)
    owned = assigned_partitions(events[events["kind"] == OWNS], context)
    assignment = cache(lambda text: read_assignment(context.strings[text] or b""))
    groups: dict[int, dict[int, _Life]] = defaultdict(dict)
    for row in zip(*(events[name].tolist() for name in _COLUMNS), strict=True):
        event = dict(zip(_COLUMNS, row, strict=True))
        lives, link = groups[event["s0"]], event["connection"]
        life = lives.get(link)
        if life is None:
            client, broker = (event["client_id"], event["client_ip"]), (event["broker_ip"], event["broker_port"])
            life = lives[link] = _Life(link, client, broker)
        life.asked = max(life.asked, event["v2"])
        life.packet = event["packet"]
        if event["kind"] == JOINED:
            life.members.add(event["s1"])
            life.has_left = False
        elif event["kind"] in (LEFT, EXPELLED, FENCED):
            life.has_left = True
        elif event["kind"] == SYNCED and event["s3"] >= 0:
            life.assigned.append((event["time"], assignment(event["s3"]) or frozenset()))
        elif event["kind"] == OWNS and (not life.assigned or life.assigned[-1][0] != event["time"]):
            life.assigned.append((event["time"], frozenset(owned[event["exchange"]])))
    return groups


class _Connections:
    """When connections began and ended, by client."""

    def __init__(self, given: SectionInput) -> None:
        self.closed: dict[int, int] = {}
        self._of_client: dict[tuple[int, int], list[tuple[int, int, int]]] = defaultdict(list)
        for row in rows_of(given, _CONNECTIONS):
            self.closed[row["connection"]] = row["closed_at"]
            client = row["client_id"], row["client_ip"]
            self._of_client[client].append((row["first"], row["last"], row["closed_at"]))

    def has_another(self, client: tuple[int, int], time: int) -> bool:
        """Whether a client uses a connection after a time that it had before."""
        late = time + _AT_ONCE_NS
        return any(
            first < time - _AT_ONCE_NS and last > late and not 0 < closed <= late
            for first, last, closed in self._of_client[client]
        )


def _find_dead(given: SectionInput, groups: dict[int, dict[int, _Life]]) -> None:
    """Note which members died. Their group must go on, so that the end of a capture, or of a group, is no death."""
    connections = _Connections(given)
    last = {(row["group"], row["member"]): row["last"] for row in rows_of(given, LAST)}
    for group, lives in groups.items():
        for life in lives.values():
            closed = connections.closed.get(life.connection, 0)
            is_over = closed > 0 and life.members and not life.has_left
            if not is_over or any(last.get((group, member), 0) > closed for member in life.members):
                continue
            goes_on = any(other.asked > closed for other in lives.values() if other is not life)
            if goes_on and not connections.has_another(life.client, closed):
                life.died = closed


class _Stop(NamedTuple):
    """`partitions`: in common. `had`: how many of the dead had them. `is_soon`: they died soon after they had been
    assigned them. `offset`: the committed one of the only such partition, None: not captured; `stays`: the members that
    came back read the same one."""

    partitions: tuple[Partition, ...]
    had: int
    is_soon: bool
    offset: int | None
    stays: bool


def _in_common(lives: Sequence[_Life], dead: Sequence[_Life]) -> tuple[Partition, ...]:
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
            return tuple(found) if len(found) <= _NAMED else ()
    return ()


def _stop_of(given: SectionInput, lives: Sequence[_Life], dead: Sequence[_Life]) -> _Stop:
    partitions = _in_common(lives, dead)
    soon = sum(life.died - life.assigned_at <= _SOON_NS for life in dead if life.assigned)
    offsets: list[int] = []
    if len(partitions) == 1:
        by_connection = {
            row["connection"]: row["offset"]
            for row in rows_of(given, _COMMITTED)
            if (given.context.topic(row["topic"], row["topic_id"]), row["partition"]) == partitions[0]
        }
        offsets = [by_connection[life.connection] for life in dead[1:] if life.connection in by_connection]
    stays = len(offsets) > 1 and len(set(offsets)) == 1
    had = sum(life.partitions.issuperset(partitions) for life in dead)
    return _Stop(partitions, had, soon >= len(dead) - 1, offsets[-1] if offsets else None, stays)


def _stopped_ns(lives: Sequence[_Life], dead: Sequence[_Life]) -> int:
    """How long the partitions of dead members had no member, the longest one of each death."""
    taken: dict[Partition, list[int]] = defaultdict(list)
    for life in lives:
        for time, partitions in life.assigned:
            for partition in partitions:
                taken[partition].append(time)
    total = 0
    for life in dead:
        again = (min((t for t in taken[each] if t > life.died), default=0) for each in life.partitions)
        total += max((time - life.died for time in again if time), default=0)
    return total


def _findings(given: SectionInput) -> Iterator[Finding]:
    groups = _lives(given)
    _find_dead(given, groups)
    for group, by_connection in groups.items():
        lives = list(by_connection.values())
        dead = sorted((life for life in lives if life.died), key=lambda life: life.died)
        if len(dead) < _LEAST:
            continue
        stop = _stop_of(given, lives, dead)
        # Members that are restarted in turn, without LeaveGroup, die once each.
        if max(Counter(life.client for life in dead).values()) > 1 or (stop.partitions and stop.is_soon):
            yield _finding(given, group, dead, stop, _stopped_ns(lives, dead))


def _finding(given: SectionInput, group: int, dead: Sequence[_Life], stop: _Stop, stopped_ns: int) -> Finding:
    context, name = given.context, given.context.text(group) or "?"
    counts = Counter(life.client for life in dead)
    clients = sorted(counts, key=lambda client: (-counts[client], context.text(client[0]) or ""))
    named = [f'"{context.text(client)}"' for client, _ in clients[:_NAMED] if client >= 0]
    more = len(clients) - len(named)
    who = ", ".join(named) + (f" and {more:,} more" if named and more else "")
    text = f'group "{name}": members died {len(dead)} times (they closed all connections without LeaveGroup)'
    text += f": {'client' if len(clients) == 1 else 'clients'} {who}" if who else ""
    places = " and ".join(f"{topic} partition {partition}" for topic, partition in stop.partitions)
    if places:
        each = "each" if stop.had == len(dead) else f"{stop.had:,} of them"
        text += f"; {each} had {'just ' if stop.is_soon else ''}been assigned {places}"
        if stop.offset is not None and stop.offset >= 0:
            text += f", committed offset {'stays' if stop.stays else 'was'} {stop.offset:,}"
    if stopped_ns:
        text += f"; partitions without a member for {units.duration(stopped_ns)} in total"
    is_record = bool(places) and stop.is_soon
    topic, partition = stop.partitions[0] if stop.partitions else ("", 0)
    return Finding(
        DYING_MEMBERS.id, WARNING, DYING_MEMBERS.label, text, stopped_ns, dead[0].died, dead[-1].died,
        {"deaths": len(dead), "clients": len(clients), "stopped_ns": stopped_ns,
         "topic": topic or None, "partition": partition if topic else None, "committed_offset": stop.offset},
        tuple(life.packet for life in dead[:10]),
        (Party("group", name), *(party for client in clients[:_NAMED] for party in client_parties(context, *client)),
         *(Party("partition", f"{each}-{number}") for each, number in stop.partitions),
         broker_party(context, *dead[-1].broker)),
        "how the consumer handles a record that it cannot process" if is_record else "",
        _remedy(topic, partition, stop.offset) if is_record else
        "Find what ends the processes: the log of each, its limit of memory, the probes of its supervisor.",
        (("sections", "groups"), *(client_option(context, clients[0][0]) if len(clients) == 1 else ())),
    )  # fmt: skip


def _remedy(topic: str, partition: int, offset: int | None) -> str:
    at = "" if offset is None or offset < 0 else f" --offset {offset}"
    return (
        f"A record that kills its reader is likely. Look at those from the committed offset on: `kafkatap records "
        f"--topic {topic}`, or `kafka-console-consumer.sh --topic {topic} --partition {partition}{at}`. Let the "
        "consumer skip what it cannot process, or write it to a dead letter topic."
    )


DYING_MEMBERS = Signature(
    "dying_members",
    "members of a group die again and again",
    "A member joins a group. Then its end closes the connection to the coordinator (FIN or RST), and all others of "
    "that client, without LeaveGroup, and not because the group expelled it. The group goes on: the same client joins "
    "as a new member, or the others rebalance without it. If the members that died had the same partition, a record of "
    "it may kill its readers.",
    "how the consumer handles a record that it cannot process",
    "Look at the records from the committed offset of that partition on. Skip the one that cannot be processed, or "
    "write it to a dead letter topic. Without such a partition, find what ends the processes.",
    f"{_LEAST} deaths in one group, and one client died twice: members that are restarted in turn die once. Or they "
    f"had a partition in common, and died within {_SOON_NS // units.SECOND} s after its assignment. A partition is in "
    "common if all dead members had it, or all but one, and nobody else had it for as long. The time lost is how long "
    "partitions of dead members had no member.",
    lambda given: list(_findings(given)),
    (_CONNECTIONS, _COMMITTED),
    _read,
    _read_connections,
    facts=("fetched offset", "fetched offset of group"),
    label="members die",
)  # fmt: skip
