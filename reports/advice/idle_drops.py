"""Idle connections that a device on the path forgets: what they send afterwards never arrives, and nothing says so."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from .. import units
from ..connection_words import H_NOT_CAPTURED
from ..finding_words import listed
from ..findings import ERROR, Finding
from ..section_parts.counted import CONNECTION, CONNECTIONS, PAIR, Counted, Rows, counted, largest, least, total
from ..section_parts.section import SectionInput
from .parties import broker_party, client_option, client_parties, client_words
from .signature import Signature
from .stretches import COUNT_STRETCHES, PAUSE_NS, Connection, Stretch, lengths_in_words, pauses, stretches_of

#: A lost packet is repaired by its first or second copy. Three copies that are lost too take 1.4 s on Linux.
_COPIES, _STUCK_NS = 3, units.SECOND
#: Of two hosts. A single one may be a host that was away.
_LEAST = 2
_PACKETS = 10


def _stuck_at(by_broker: int, end: str, lost: str, last: str) -> Counted:
    """Connections on which an end sent again what never arrived. `lost`: its bytes. `last`: the time of the last copy,
    or of the last packet. That is a copy, or the sender's FIN or RST: nothing came from the other end since."""
    other = 1 - by_broker

    def last_copy(x: Rows) -> Any:
        return np.maximum(x.made(last), x.closed_at)

    def is_stuck(x: Rows) -> Any:
        again = (x.made(lost) > 0) & (x.made(f"{end}_retransmitted_packets") >= _COPIES) & (x.exchanges > 0)
        return again & (x.reset_by != other) & (x.closed_by != other) & (x.last <= last_copy(x))

    return counted(
        "advice.stuck-connections", CONNECTION | PAIR, is_stuck, of=CONNECTIONS, more={"by_broker": by_broker},
        newest="last", connections=total(1), first=least("first"), last=largest(last_copy), unacknowledged=total(lost),
        exchanges=total("exchanges"), was_open=total(lambda x: x.handshake == H_NOT_CAPTURED),
    )  # fmt: skip


_STUCK = (
    _stuck_at(0, "client", "client_lost_bytes", "client_lost_at"),
    _stuck_at(1, "broker", "broker_unacknowledged_bytes", "last"),
)


class _Drop(NamedTuple):
    """A connection of which nothing arrived after a pause. `begin`: its first message that did not. `idle_since`: its
    last one that did; or the begin of the capture, if it was open then and carried nothing (`is_longer`). `last`: the
    last copy. `until`: when its client made another one, or gave it up, or `last`."""

    begin: int
    idle_since: int
    last: int
    until: int
    is_replaced: bool
    who: tuple[int, int, int, int]
    requests: int
    unanswered: int
    packet: int
    is_longer: bool = False

    @property
    def idle_ns(self) -> int:
        return self.begin - self.idle_since


class _Path(NamedTuple):
    """The drops between some hosts, by `begin`. `passed_ns`: the longest pause meanwhile after which messages arrived;
    0: none of PAUSE_NS or more."""

    hosts: frozenset[int]
    drops: list[_Drop]
    passed_ns: int

    @property
    def has_timeout(self) -> bool:
        """Whether one timeout explains all."""
        return self.passed_ns < min(drop.idle_ns for drop in self.drops)

    @property
    def is_repeated(self) -> bool:
        """Whether one is dropped after another was given up, or those of several clients are. A client may be cut off
        once."""
        first_until = min(drop.until for drop in self.drops)
        return self.drops[-1].begin > first_until or len({drop.who[:2] for drop in self.drops}) > 1


def _paths(given: SectionInput) -> list[_Path]:
    """Those with a timeout, of hosts that have one of them in common together."""
    stuck: dict[tuple[int, int], list[dict[str, int]]] = defaultdict(list)
    for row in given.rows(_STUCK[0].name):
        stuck[row["client_ip"], row["broker_ip"]].append(row)
    if not stuck:
        return []
    connections, known_since = stretches_of(given, stuck.keys())
    between: dict[tuple[int, int], dict[int, Connection]] = defaultdict(dict)
    for number, one in connections.items():
        between[one.hosts][number] = one
    found = [_path(hosts, rows, between[hosts], known_since, given.context.first) for hosts, rows in stuck.items()]
    paths = [path for path in found if path is not None]
    made: list[_Path] = []
    for path in sorted(paths, key=lambda path: (-len(path.drops), path.drops)):
        for i, before in enumerate(made):
            both = _Path(
                before.hosts | path.hosts, sorted((*before.drops, *path.drops)), max(before.passed_ns, path.passed_ns)
            )
            if before.hosts & path.hosts and both.has_timeout:
                made[i] = both
                break
        else:
            if len(path.drops) >= _LEAST and path.is_repeated:
                made.append(path)
    return made


def _path(
    hosts: tuple[int, int], rows: Sequence[dict[str, int]], connections: Mapping[int, Connection], known_since: int,
    start: int | None,
) -> _Path | None:  # fmt: skip
    """The drops between two hosts; None without, and if they have another reason than a timeout. `start`: of the
    capture."""
    drops, busy = [], []
    for row in rows:
        one = connections.get(row["connection"])
        if one is None or sum(stretch.requests for stretch in one.stretches) < row["exchanges"]:
            continue  # a selection leaves requests out, and the pauses may have had traffic in them
        drop = _drop(row, one, connections, start)
        if drop is None:
            busy.append((one.stretches[-1].last, row["last"]))
        elif _others_pass(drop, row["connection"], connections):
            drops.append(drop)
    drops = sorted(drop for drop in drops if drop.last - drop.begin >= _STUCK_NS and drop.idle_since > known_since)
    if not drops:
        return None
    first, end, last = min(d.idle_since for d in drops), max(d.begin for d in drops), max(d.last for d in drops)
    if any(until - since >= _STUCK_NS and until >= drops[0].begin and since <= last for since, until in busy):
        return None  # what did not pause is stuck, too
    stuck = {row["connection"] for row in rows if row["by_broker"]}
    survived = [
        after - before
        for number, one in connections.items() for before, after in pauses(one)
        if first <= before <= end and not (number in stuck and after == one.stretches[-1].first)
    ]  # fmt: skip
    path = _Path(frozenset(hosts), drops, max(survived, default=0))
    return path if path.has_timeout else None


def _drop(
    row: dict[str, int], one: Connection, connections: Mapping[int, Connection], start: int | None
) -> _Drop | None:
    """What became of a stuck connection; None if it did not pause before. `start`: of the capture."""
    stretches = one.stretches
    is_first = row["was_open"] > 0 and row["first"] >= stretches[0].first and not stretches[0].answered
    if is_first and start is not None and stretches[0].first > start + PAUSE_NS and not row["by_broker"]:
        stretches = [Stretch(start, start, 0, 1, 0, 0, 0, 0), *stretches]  # nothing was sent on it since the start
    else:
        is_first = False
    if row["by_broker"]:
        at = len(stretches) - 1
        is_stuck = not stretches[at].requests and stretches[at].response_bytes <= row["unacknowledged"]
    else:
        replied = [i for i, stretch in enumerate(stretches) if stretch.answered]
        at = replied[-1] + 1 if replied else 0
        is_stuck = at < len(stretches)
    if not is_stuck or not at:
        return None
    begin = stretches[at].first
    who = row["client_id"], row["client_ip"], row["broker_ip"], row["broker_port"]
    later = (other.stretches[0] for other in connections.values() if other.who == who)
    again = min((stretch for stretch in later if stretch.first > begin), default=None)
    until = row["last"] if again is None else min(again.first, row["last"])
    requests = sum(stretch.requests for stretch in stretches[at:]) or stretches[at].answered
    return _Drop(
        begin, stretches[at - 1].last, row["last"], until, again is not None and again.answered > 0, who, requests,
        sum(stretch.unanswered for stretch in stretches[at:]), stretches[at].packet, is_first,
    )  # fmt: skip


def _others_pass(drop: _Drop, number: int, connections: Mapping[int, Connection]) -> bool:
    """Whether another connection of these hosts carried replies while this one was stuck."""
    return any(
        stretch.answered and stretch.last > drop.begin and stretch.first < drop.last
        for other, one in connections.items() if other != number
        for stretch in one.stretches
    )  # fmt: skip


def _findings(given: SectionInput) -> list[Finding]:
    return [_finding(given, path) for path in _paths(given)]


def _finding(given: SectionInput, path: _Path) -> Finding:
    context, drops = given.context, path.drops
    count, requests = len(drops), sum(drop.requests for drop in drops)
    idle = [drop.idle_ns for drop in drops]
    waited = max(drop.until - drop.begin for drop in drops)
    clients = [who for who, _ in Counter(drop.who[:2] for drop in drops).most_common()]
    brokers = [broker_party(context, *end) for end, _ in Counter(drop.who[2:] for drop in drops).most_common()]
    names = listed([client_words(context, *who) for who in clients])
    at = listed([broker.name for broker in brokers])
    replaced = sum(drop.is_replaced for drop in drops)
    shorter = f"connections that pause less than {units.duration(PAUSE_NS)} go on"
    if path.passed_ns:
        shorter = f"pauses of up to {units.duration(path.passed_ns)} do no harm"
    pause = lengths_in_words(idle)
    pause += " or more" if any(drop.is_longer for drop in drops) else ""
    were = "request was" if requests == 1 else "requests were"
    text = (
        f"idle connections are dropped on the path without a RST: {count:,} of {names} to {at}, after pauses of "
        f"{pause}. {requests:,} {were} sent again and again, never acknowledged, and given up after up to "
        f"{units.duration(waited)}; {shorter}"
    )
    if replaced:
        text += ", and new ones work at once" if replaced == count else f", and {replaced:,} new ones work at once"
    people = tuple(party for who in clients for party in client_parties(context, *who))
    option = client_option(context, clients[0][0]) if len({who[0] for who in clients}) == 1 else ()
    numbers = {
        "connections": count, "requests": requests, "unanswered": sum(drop.unanswered for drop in drops),
        "clients": len(clients), "shortest_pause_ns": min(idle), "longest_pause_ns": max(idle),
        "passed_pause_ns": path.passed_ns or None, "waited_max_ns": waited, "replaced": replaced,
    }  # fmt: skip
    return IDLE_DROPS.found(
        given, {"first": drops[0].begin, "last": max(drop.until for drop in drops)}, text,
        sum(drop.until - drop.begin for drop in drops), numbers, (("sections", "connections"), *option), ERROR,
        packets=tuple(drop.packet for drop in drops[:_PACKETS]), parties=(*dict.fromkeys(people), *brokers),
    )  # fmt: skip


IDLE_DROPS = Signature(
    "idle_dropped",
    "idle connections are dropped on the path (firewall, NAT, load balancer)",
    "After a pause of a connection, its next message is retransmitted again and again without any answer, not even a "
    "RST. Other connections of the hosts work: a device on the path forgot the idle one.",
    "connections.max.idle.ms or TCP keepalive",
    "Close idle connections before the device forgets them: `connections.max.idle.ms` of the clients below its idle "
    "timeout. Or keep them alive: `socket.keepalive.enable=true` (librdkafka) with `net.ipv4.tcp_keepalive_time` below "
    "the timeout. Or raise the idle timeout of the device, and let it answer with a RST.",
    f"{_LEAST} connections of two hosts are stuck so, with {_COPIES} copies in {units.duration(_STUCK_NS)} or more, "
    f"each after a pause of more than {units.duration(PAUSE_NS)}, longer than any that their other connections "
    "survived, and none without a pause. Needs a capture between the sender and the device. Time lost: from the first "
    "message until the client connects again, or the last copy.",
    _findings,
    counts=_STUCK,
    batch_counts=(COUNT_STRETCHES,),
    label="path broken",
)
