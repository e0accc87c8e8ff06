"""New connections of a host that the broker closes at once, because the host has as many as the broker allows."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from .. import units
from ..connection_words import D_NOT_TLS, H_COMPLETE, H_NOT_CAPTURED, P_FOREIGN, P_KAFKA, P_TLS
from ..counting.count_forms import CONNECTION_ROWS
from ..finding_words import listed
from ..findings import ERROR, Finding, Party
from ..section_parts.counted import CONNECTION, CONNECTIONS, PAIR, Rows, counted, largest, least, total
from ..section_parts.section import SectionInput
from .parties import broker_party, client_option, client_parties, client_words
from .signature import Signature

#: From the handshake until the broker closes. It takes a millisecond or two: it does not read the request.
_SOON_NS = units.SECOND // 20
#: Connections that are closed so. A few may have another reason.
_LEAST = 5
#: Open connections. Fewer are constant by chance.
_FEWEST = 5
#: Share of the closings at which the host has all connections that it may, and how many fewer still count as all: the
#: broker notices a closed connection later than the capture does.
_MOST, _SLACK = 0.9, 20


def _is_refused(x: Rows) -> Any:
    since = x.closed_at - x.first - np.maximum(x.handshake_rtt_ns, 0)
    is_empty = (x.handshake == H_COMPLETE) & (x.broker_bytes == 0) & (x.closed_by == 1)
    return is_empty & (since <= _SOON_NS) & (x.protocol != P_FOREIGN)


def _is_used(x: Rows) -> Any:
    return (x.broker_bytes > 0) & ((x.protocol == P_KAFKA) | (x.protocol == P_TLS))


#: Connections that a broker closed at once (`refused`), that carried an answer (`used`), or an exchange.
OPENED = counted(
    "advice.connections", CONNECTION | PAIR,
    lambda x: _is_refused(x) | _is_used(x) | ((x.protocol == P_KAFKA) & (x.exchanges > 0)), of=CONNECTIONS,
    newest="last", rows=CONNECTION_ROWS,
    refused=total(_is_refused), used=total(_is_used), first=least("first"), last=largest("last"),
    closed_at=largest("closed_at"), by_client=total(lambda x: x.closed_by == 0),
    is_tls=total(lambda x: (x.protocol == P_TLS) | (x.tls_decryption != D_NOT_TLS)),
    is_whole=total(lambda x: x.handshake != H_NOT_CAPTURED), exchanges=total("exchanges"),
    unanswered=total("unanswered"), packet=least("first_packet"),
)  # fmt: skip


class _Host(NamedTuple):
    """A host at a broker that closes its new connections. `refused`, `used`: rows of OPENED in order of time.
    `most`: the connections that it had open at once. `others_go_on`: those of other hosts were captured, and last."""

    who: tuple[int, int, int]
    refused: Sequence[dict[str, int]]
    used: Sequence[dict[str, int]]
    most: int
    others_go_on: bool = False


def _hosts(given: SectionInput) -> list[_Host]:
    if given.values(OPENED.name)["refused"].sum() < _LEAST:
        return []
    rows: dict[tuple[int, int, int], list[dict[str, int]]] = defaultdict(list)
    refusals: Counter[tuple[int, int, int]] = Counter()
    for row in given.rows(OPENED.name):
        if row["connection"] == -1:
            return []  # there were too many to keep each: how many are open at a time is not known
        who = row["client_ip"], row["broker_ip"], row["broker_port"]
        rows[who].append(row)
        refusals[who] += row["refused"]
    found = []
    for who, count in sorted(refusals.items()):
        if count >= _LEAST:
            mine = sorted(rows[who], key=lambda row: (row["first"], row["packet"]))
            host = _host(who, mine)
            if host is None:
                continue
            others = [row for other, some in rows.items() if other[1:] == who[1:] and other != who for row in some]
            others = [row for row in others if row["used"]]
            if _goes_on(host, others or host.used):
                found.append(host._replace(others_go_on=bool(others)))
    return found


def _host(who: tuple[int, int, int], rows: Sequence[dict[str, int]]) -> _Host | None:
    """None if the connections that it has open do not explain that others are closed."""
    used = [row for row in rows if row["used"]]
    kinds, clients = {row["is_tls"] > 0 for row in used}, {row["client_id"] for row in used}
    # Plaintext to a port for TLS is closed as well, and so is a client that never got through.
    refused = [row for row in rows if row["refused"] and ((row["is_tls"] > 0) in kinds or row["client_id"] == -1)]
    if sum(row["client_id"] in clients or row["client_id"] == -1 for row in refused) < _LEAST or len(used) < _FEWEST:
        return None
    opened = np.sort([_since(row) for row in used])
    closed = np.sort([row["closed_at"] for row in used if row["closed_at"] >= 0])
    most = int((np.arange(1, len(opened) + 1) - np.searchsorted(closed, opened, "right")).max())
    times = np.array([row["first"] for row in refused])
    levels = np.searchsorted(opened, times, "right") - np.searchsorted(closed, times, "right")
    is_full = levels >= most - max(1, most // _SLACK)
    if most < _FEWEST or is_full.mean() < _MOST:
        return None
    return _Host(who, refused, used, most)


def _since(row: dict[str, int]) -> int:
    """When a connection was opened; 0: before the capture."""
    return row["first"] if row["is_whole"] else 0


def _goes_on(host: _Host, used: Iterable[dict[str, int]]) -> bool:
    """Whether some connections last longer than the closings."""
    end = host.refused[-1]["first"]
    return any(row["last"] > end and row["first"] <= end for row in used)


def _findings(given: SectionInput) -> list[Finding]:
    return [_finding(given, host) for host in _hosts(given)]


def _finding(given: SectionInput, host: _Host) -> Finding:
    context, (ip, *end) = given.context, host.who
    broker, name = broker_party(context, end[0], end[1]), context.address(ip) or "?"
    begin, until = host.refused[0]["first"], host.refused[-1]["closed_at"]
    held = [row for row in host.used if _since(row) <= begin and not 0 <= row["closed_at"] <= begin]
    (holder, count), *_ = Counter(row["client_id"] for row in held).most_common()
    mine = [row for row in held if row["client_id"] == holder]
    idle = sum(row["last"] < begin for row in mine)
    whole = [row["first"] for row in mine if row["is_whole"]]
    every = (whole[-1] - whole[0]) // (len(whole) - 1) if len(whole) > 1 else 0
    pace = f", one more each {units.duration(every)} for {units.duration(whole[-1] - whole[0])}" if every else ""
    victims = Counter(row["client_id"] for row in host.refused)
    known = [(client, number) for client, number in victims.most_common() if context.text(client) is not None]
    hit = listed([f'"{context.text(client)}" {number:,}' for client, number in known])
    text = (
        f"broker {broker.name} closed {len(host.refused):,} new connections of host {name} at once, without an answer, "
        f"while that host had {host.most:,} open that carried messages, and never more. {count:,} of them are of "
        f"{client_words(context, holder)}{pace}; {'all' if idle == count else f'{idle:,}'} of these are idle since"
    )
    if hit:
        text += f". Closed were those of {hit}"
    if host.others_go_on:
        text += ". Connections of other hosts go on" if hit else "; connections of other hosts go on"
    clients = [client for client, _ in known if client != holder]
    parties = (*client_parties(context, holder, ip), *(Party("client", str(context.text(one))) for one in clients))
    return CONNECTION_LIMIT.rule.found(
        text, *dict.fromkeys(parties), broker, begin=begin, end=until,
        packets=(row["packet"] for row in host.refused[:10]),
        see=[("sections", "connections"), *client_option(context, holder)], severity=ERROR,
        connections=len(host.refused), open=host.most, open_of_client=count, idle_of_client=idle, between_ns=every,
        clients=len(known), unanswered=sum(row["unanswered"] for row in host.refused),
    )  # fmt: skip


CONNECTION_LIMIT = Signature(
    "connection_limit",
    "a host has as many connections as a broker allows",
    "A broker accepts each new connection of a host, and closes it within milliseconds. Its open connections go on, "
    "and other hosts connect.",
    "max.connections.per.ip, max.connections.per.ip.overrides",
    "Close clients that are no longer used, or make one for all work: an application that makes a client for each "
    "piece of work, and does not close it, uses up any limit. If the host needs as many, raise "
    "`max.connections.per.ip`, or for this host `max.connections.per.ip.overrides`.",
    f"{_LEAST} new connections of a host closed within {_SOON_NS // 1_000_000} ms of their handshake, with {_FEWEST} "
    f"or more open: at {_MOST:.0%} of the closings as many as the host ever had at once, or 1 of {_SLACK} less. "
    "Connections that carry nothing in the capture do not count, so the limit may be higher. Time lost: unknown.",
    _findings,
    counts=(OPENED,),
    label="refused",
)
