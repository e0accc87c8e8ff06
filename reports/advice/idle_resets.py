"""Connections that a RST answers after a pause, though no end had closed them: a device on the path forgot them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple

from .. import units
from ..connection_words import WITH_RST
from ..finding_words import counted as many
from ..finding_words import listed
from ..findings import Finding
from ..section_parts.counted import CONNECTION, CONNECTIONS, PAIR, Rows, counted, largest, least, total
from ..section_parts.section import SectionInput
from .parties import broker_party, client_option, client_parties, client_words
from .signature import Signature
from .stretches import COUNT_STRETCHES, PAUSE_NS, STRETCHES, Connection, lengths_in_words, stretches_of

#: The RST is the answer if it comes so soon after the first message behind the pause.
_AT_ONCE_NS = units.SECOND
#: A broker works if it answers so soon after the RST.
_SOON_NS = 10 * units.SECOND
#: So many connections of a broker that are reset, and none that lives on, are a broker that was started anew.
_RESTART = 3
_PACKETS = 10


def _is_reset(x: Rows) -> Any:
    return (x.closed_with == WITH_RST) & (x.closed_by == 1) & (x.unanswered > 0)


_RESET = counted(
    "advice.reset-connections", CONNECTION | PAIR, _is_reset, of=CONNECTIONS, newest="closed_at",
    connections=total(1), closed_at=largest("closed_at"), first=least("first"), exchanges=total("exchanges"),
)  # fmt: skip
#: Address and port of a broker, as numbers of the context.
_End = tuple[int, int]


class _Reset(NamedTuple):
    """`begin`: of the message that was answered by the RST, after a pause since `idle_since`."""

    begin: int
    idle_since: int
    closed_at: int
    who: tuple[int, int, int, int]
    unanswered: int
    packet: int

    @property
    def idle_ns(self) -> int:
        return self.begin - self.idle_since


def _resets(given: SectionInput) -> Iterator[tuple[_End, list[_Reset], bool]]:
    """By broker; and whether another connection of it lived on: it was not started anew."""
    rows = [row for row in given.rows(_RESET.name) if row["connection"] != -1]
    if not rows:
        return
    brokers, keys = {row["broker_ip"] for row in rows}, given.keys(STRETCHES.name)
    pairs = set(zip(keys["client_ip"].tolist(), keys["broker_ip"].tolist(), strict=True))
    connections, known_since = stretches_of(given, {pair for pair in pairs if pair[1] in brokers})
    found: dict[_End, list[_Reset]] = defaultdict(list)
    for row in rows:
        one = connections.pop(row["connection"], None)
        if one is not None and (reset := _reset(row, one)) is not None and reset.idle_since > known_since:
            found[row["broker_ip"], row["broker_port"]].append(reset)
    of_broker: dict[_End, list[Connection]] = defaultdict(list)
    for one in connections.values():
        of_broker[one.who[2:]].append(one)
    for end, resets in found.items():
        others = of_broker[end]
        since, until = min(reset.idle_since for reset in resets), max(reset.closed_at for reset in resets)
        if not any(s.answered and until < s.last <= until + _SOON_NS for one in others for s in one.stretches):
            continue  # the broker may be gone
        lives_on = any(
            one.stretches[0].first <= since and any(s.answered and s.last >= until for s in one.stretches)
            for one in others
        )
        if lives_on or len(resets) < _RESTART:
            yield end, sorted(resets), lives_on


def _reset(row: dict[str, int], one: Connection) -> _Reset | None:
    """What a RST answered; None if the connection did not pause before, or requests are left out by a selection."""
    if len(one.stretches) < 2 or sum(stretch.requests for stretch in one.stretches) < row["exchanges"]:
        return None
    before, last = one.stretches[-2:]
    if last.answered or row["closed_at"] - last.first > _AT_ONCE_NS:
        return None
    return _Reset(last.first, before.last, row["closed_at"], one.who, last.unanswered, last.packet)


def _findings(given: SectionInput) -> Iterator[Finding]:
    context = given.context
    for end, resets, lives_on in _resets(given):
        broker = broker_party(context, *end)
        clients = [who for who, _ in Counter(reset.who[:2] for reset in resets).most_common()]
        names = listed([client_words(context, *who) for who in clients])
        idle = [reset.idle_ns for reset in resets]
        were, them = ("was", "it") if len(resets) == 1 else ("were", "them")
        text = (
            f"{many(len(resets), 'idle connection')} of {names} to {broker.name} {were} answered by a RST at the first "
            f"message after a pause of {lengths_in_words(idle)}, though nobody had closed {them}: "
        )
        if lives_on:
            text += f"other connections of the broker live on, so a device on the path forgot {them}"
        else:
            text += f"a device on the path forgot {them}, unless the broker was started anew meanwhile"
        people = tuple(party for who in clients for party in client_parties(context, *who))
        option = client_option(context, clients[0][0]) if len({who[0] for who in clients}) == 1 else ()
        numbers = {
            "connections": len(resets), "clients": len(clients),
            "unanswered": sum(reset.unanswered for reset in resets), "lives_on": lives_on,
            "shortest_pause_ns": min(idle), "longest_pause_ns": max(idle),
        }  # fmt: skip
        yield IDLE_RESETS.found(
            given, {"first": resets[0].begin, "last": max(reset.closed_at for reset in resets)}, text, 0, numbers,
            (("sections", "connections"), *option), packets=tuple(reset.packet for reset in resets[:_PACKETS]),
            parties=(*dict.fromkeys(people), broker),
        )  # fmt: skip


IDLE_RESETS = Signature(
    "idle_reset",
    "idle connections are reset on the path (load balancer, firewall, NAT)",
    "After a pause of a connection that neither end had closed, a RST answers its next message at once. The broker "
    "answers on other connections.",
    "connections.max.idle.ms or TCP keepalive",
    "Close idle connections before the device forgets them: `connections.max.idle.ms` of the clients below its idle "
    "timeout. Or keep them alive: `socket.keepalive.enable=true` (librdkafka) with `net.ipv4.tcp_keepalive_time` below "
    "the timeout.",
    f"The RST comes within {units.duration(_AT_ONCE_NS)} of the first message after a pause of more than "
    f"{units.duration(PAUSE_NS)}, no FIN was captured, and the broker answers another connection within "
    f"{units.duration(_SOON_NS)}. From {_RESTART} connections of a broker on, another one has to live on all the time: "
    "else it was started anew. Time lost: unknown.",
    _findings,
    counts=(_RESET,),
    batch_counts=(COUNT_STRETCHES,),
    label="path broken",
)
