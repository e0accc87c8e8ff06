"""Addresses that brokers advertise, and that clients cannot reach."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from .. import units
from ..batch import Context, endpoint
from ..connection_words import H_REFUSED, H_UNANSWERED
from ..counting.count_forms import ADDRESS, NUMBER, TEXT
from ..finding_words import and_more, listed
from ..findings import ERROR, Finding, Party
from ..section_parts.cluster import is_literal
from ..section_parts.counted import (
    BROKER,
    CLIENT,
    CONNECTIONS,
    Rows,
    counted,
    largest,
    largest_where,
    least,
    least_where,
    total,
)
from ..section_parts.section import SectionInput
from .hot_leaders import LEADERS, NODES, led_by
from .parties import client_option, client_parties, client_words
from .signature import Signature
from .sums import Work, work_of_clients

#: One refused connect may be a broker that restarts.
_LEAST_FAILED = 2
#: A client that asks for addresses so often, at such intervals on average, found none that works: clients refresh
#: what they know each 5 minutes (metadata.max.age.ms, topic.metadata.refresh.interval.ms), and pause for at most 10 s
#: after a failure (reconnect.backoff.max.ms of librdkafka).
_LEAST_ASKED, _PAUSE_NS = 5, 10 * units.SECOND
#: SaslHandshake, ApiVersions, SaslAuthenticate, Metadata, FindCoordinator: a client that sends no others has not begun
#: to work.
_PREPARING = frozenset((17, 18, 36, 3, 10))
#: A client by the numbers of its client_id and its address.
_Client = tuple[int, int]
#: Answers with addresses: a kind of fact for each.
_ADDRESSES = ("metadata broker", "coordinator", "coordinator of key")

_TOLD = counted(
    "advice.told", CLIENT | {"node": NUMBER, "host": TEXT, "port": NUMBER}, lambda x: x.port > 0, of=_ADDRESSES,
    responses=total(1), first=least("response_last"), last=largest("response_last"),
    packet=least("response_packet_last"),
)  # fmt: skip


def _has_failed(x: Rows) -> Any:
    return (x.handshake == H_REFUSED) | (x.handshake == H_UNANSWERED)


def _syns(x: Rows) -> Any:
    """How often a client tried: an end that gets no answer repeats its SYN."""
    return np.where(x.handshake == H_UNANSWERED, x.packets, 1)


_CONNECTS = counted(
    "advice.connects", {"client_ip": ADDRESS} | BROKER, of=CONNECTIONS,
    connects=total(_syns), refused=total(lambda x: x.handshake == H_REFUSED),
    unanswered=total(lambda x: np.where(x.handshake == H_UNANSWERED, _syns(x), 0)),
    reached=total(lambda x: ~_has_failed(x)), first=least(lambda x: least_where(_has_failed(x), x.first)),
    last=largest(lambda x: largest_where(_has_failed(x), x.last)),
    packet=least(lambda x: least_where(_has_failed(x), x.first_packet)),
)  # fmt: skip


class _Seen(NamedTuple):
    """Connects of the capture, by addresses as texts. `failed`: by client and broker. `reached`: brokers with a
    connection of any client. `tried`: clients with the brokers that they connected to, with success or not."""

    failed: dict[tuple[str | None, str], dict[str, int]]
    reached: set[str]
    tried: set[tuple[str | None, str]]


def _seen(given: SectionInput) -> _Seen:
    context = given.context
    seen = _Seen({}, set(), set())
    for row in given.rows(_CONNECTS.name):
        client = context.address(row["client_ip"])
        broker = endpoint(context.address(row["broker_ip"]), row["broker_port"])
        seen.tried.add((client, broker))
        if row["reached"]:
            seen.reached.add(broker)
        if row["refused"] or row["unanswered"]:
            seen.failed[client, broker] = row
    return seen


def _failures(seen: _Seen, address: str | None, told: str) -> dict[str, int] | None:
    """The failed connects of a client to an address that it was told. The capture does not show the address of a name:
    it is that of the failed connects to the same port if nobody reached that port at any address."""
    if is_literal(told):
        return None if told in seen.reached else seen.failed.get((address, told))
    port = told.rpartition(":")[2]
    if any(broker.rpartition(":")[2] == port for broker in seen.reached):
        return None
    found = [row for (who, broker), row in seen.failed.items() if who == address and broker.endswith(f":{port}")]
    return found[0] if len(found) == 1 else None


class _Told(NamedTuple):
    """Addresses in answers to clients. `clients`: for each client (client_id, address), what it was told of each
    address. `nodes`: for each node of a broker (its id), the rows by client and address."""

    clients: dict[_Client, dict[str, dict[str, int]]]
    nodes: dict[int, dict[_Client, dict[str, dict[str, int]]]]


def _told(given: SectionInput) -> _Told:
    told = _Told({}, {})
    for row in given.rows(_TOLD.name):
        host = given.context.text(row["host"])
        if host is None:
            continue
        who, address = (row["client_id"], row["client_ip"]), endpoint(host, row["port"])
        addresses = told.clients.setdefault(who, {})
        addresses[address] = _both(addresses[address], row) if address in addresses else row
        if row["node"] >= 0:
            told.nodes.setdefault(row["node"], {}).setdefault(who, {})[address] = row
    return told


def _both(one: dict[str, int], other: dict[str, int]) -> dict[str, int]:
    """The row of an address that two nodes have."""
    firsts = {name: min(one[name], other[name]) for name in ("first", "packet")}
    return one | firsts | {"responses": one["responses"] + other["responses"], "last": max(one["last"], other["last"])}


class _Failing(NamedTuple):
    """A client that was told an address (`told`: its row) to which all connects of its host fail (`row`)."""

    who: _Client
    told: dict[str, int]
    row: dict[str, int]
    whole: Work


class _Move(NamedTuple):
    """A node that came under another address, which nobody reaches. `told`: the rows of that address by client.
    `tries`: the connects to it that failed, of any host, by the host's address."""

    node: int
    address: str
    before: str
    told: dict[_Client, dict[str, int]]
    tries: dict[str | None, dict[str, int]]


def _moves(given: SectionInput, told: _Told, seen: _Seen, work: Mapping[_Client, Work]) -> Iterator[_Move]:
    """Brokers connect to each other without Metadata, and packets of clients to a broker may pass elsewhere: so the
    connects of any host count, if clients were told first one address of a node and then the other one."""
    for node, clients in told.nodes.items():
        before: dict[str, str] = {}
        for addresses in clients.values():
            in_turn = sorted((row["first"], address) for address, row in addresses.items())
            for (_, old), (_, new) in pairwise(in_turn):
                if addresses[old]["last"] < addresses[new]["first"]:  # not two listeners, nor one that changed back
                    before[new] = old
        for address, old in sorted(before.items()):
            if address in seen.reached or not is_literal(address):
                continue
            mine = {who: rows[address] for who, rows in clients.items() if address in rows}
            tries = {host: row for (host, broker), row in seen.failed.items() if broker == address}
            failed = sum(row["refused"] + row["unanswered"] for row in tries.values())
            is_shunned = any(
                _is_shunned(row, (given.context.address(who[1]), old, address), seen, work.get(who))
                for who, row in mine.items()
            )
            if failed >= _LEAST_FAILED or (not tries and is_shunned):
                yield _Move(node, address, old, mine, tries)


def _is_shunned(row: dict[str, int], where: tuple[str | None, str, str], seen: _Seen, whole: Work | None) -> bool:
    """Whether a client that had connected to the old address never connects to the new one, and asks again and again.
    `where`: its host, both addresses."""
    host, old, new = where
    asks = row["responses"]
    return (
        whole is not None and (host, old) in seen.tried and (host, new) not in seen.tried
        and asks >= _LEAST_ASKED and row["last"] - row["first"] <= _PAUSE_NS * asks
    )  # fmt: skip


def _moved(given: SectionInput, move: _Move) -> Finding:
    context = given.context
    rows, tries = move.told.values(), move.tries.values()
    sums = {way: sum(row[way] for row in tries) for way in ("refused", "unanswered")}
    ways = " and ".join(f"{count:,} {way}" for way, count in sums.items() if count)
    by = listed([str(host) for host in sorted(move.tries, key=str)])
    tried = f"{ways} connects, by {by}" if ways else "no client that is told so connects to it"
    most = sorted(move.told, key=lambda who: (-move.told[who]["responses"], client_words(context, *who)))
    clients = dict.fromkeys(client_words(context, client) for client, _ in most)
    led = led_by(given, move.node, move.address)
    partitions = [f"{topic}[{', '.join(units.ranges(numbers))}]" for topic, numbers in led.items()]
    leads = f"; it leads {listed(partitions)}" if led else ""
    text = (
        f"broker {move.node} is advertised as {move.address}, which cannot be reached, before as {move.before}: {tried}"
        f"{leads}; told to {listed(list(clients))}"
    )
    began, end = min(row["first"] for row in (*rows, *tries)), max(row["last"] for row in (*rows, *tries))
    numbers = {
        **sums, "node": move.node, "responses": sum(row["responses"] for row in rows), "clients": len(move.told),
        "partitions": sum(len(numbers) for numbers in led.values()), "lasts_ns": end - began,
    }  # fmt: skip
    packets = (min(row["packet"] for row in rows), *([min(row["packet"] for row in tries)] if tries else ()))
    parties = (
        Party("broker", move.address), Party("broker", move.before),
        *dict.fromkeys(party for client, _ in most for party in client_parties(context, client)),
        *(Party("topic", topic) for topic in led),
    )  # fmt: skip
    return ADVERTISED.rule._replace(command="show").found(
        text, *parties, begin=began, end=end, packets=packets, lost=end - began,
        see=[("filter", "api in (Metadata, FindCoordinator)")], severity=ERROR, **numbers,
    )  # fmt: skip


def _findings(given: SectionInput) -> list[Finding]:
    seen, work, all_told = _seen(given), work_of_clients(given), _told(given)
    moves = list(_moves(given, all_told, seen, work))
    moved = {move.address for move in moves}
    made = [_moved(given, move) for move in moves]
    failing: dict[tuple[int, str], list[_Failing]] = defaultdict(list)
    for (client, ip), addresses in all_told.clients.items():
        whole = work.get((client, ip))
        told = {broker: row for broker, row in addresses.items() if broker not in moved}
        if whole is None or not told:
            continue
        address = given.context.address(ip)
        mine = {broker: failed for broker in told if (failed := _failures(seen, address, broker)) is not None}
        for broker, failed in mine.items():
            failing[ip, broker].append(_Failing((client, ip), told[broker], failed, whole))
        if not mine and _never_tried(told, address, seen, whole):
            made.append(_untried(given.context, (client, ip), told, whole))
    in_order = sorted(failing.items(), key=lambda item: (given.context.address(item[0][0]) or "", item[0][1]))
    found = [_failed(given.context, broker, clients) for (_, broker), clients in in_order]
    return [*made, *(finding for finding in found if finding is not None)]


def _failed(context: Context, broker: str, clients: Sequence[_Failing]) -> Finding | None:
    """All connects of a host to an advertised address failed. Which of its clients made them is not known."""
    row = clients[0].row
    if row["refused"] + row["unanswered"] < _LEAST_FAILED:
        return None
    clients = sorted(clients, key=lambda one: (-sum(one.whole.requests.values()), client_words(context, *one.who)))
    ways = [f"{row[way]:,} {way}" for way in ("refused", "unanswered") if row[way]]
    host = "" if len(clients) == 1 else f" of {context.address(clients[0].who[1])}"
    names = listed([client_words(context, one.who[0], -1 if host else one.who[1]) for one in clients])
    text = (
        f"{broker}, which the broker advertises to {names}{host}, cannot be reached: "
        f"{' and '.join(ways)} of {row['connects']:,} connects"
    )
    begin, end = row["first"], max(row["last"], *(one.told["last"] for one in clients))
    return _finding(
        context, [one.who for one in clients], broker, text, begin, end, [one.whole for one in clients],
        (row["packet"], min(one.told["packet"] for one in clients)),
        {"refused": row["refused"], "unanswered": row["unanswered"],
         "responses": sum(one.told["responses"] for one in clients)},
    )  # fmt: skip


def _never_tried(told: dict[str, dict[str, int]], address: str | None, seen: _Seen, whole: Work) -> bool:
    """Whether a client gets nowhere with what it is told: it asks again and again, does nothing else, and is never
    told an address that it connects to. Names are no evidence: the capture does not show their addresses."""
    if whole.requests_of(3, 10) < _LEAST_ASKED or whole.api_keys - _PREPARING:
        return False
    if any((address, broker) in seen.tried or not is_literal(broker) for broker in told):
        return False
    first, last = min(row["first"] for row in told.values()), max(row["last"] for row in told.values())
    return last - first <= _PAUSE_NS * whole.requests_of(3, 10)


def _untried(context: Context, who: tuple[int, int], told: dict[str, dict[str, int]], whole: Work) -> Finding:
    broker = min(told, key=lambda name: (-told[name]["responses"], name))
    asked = whole.requests_of(3, 10)
    text = (
        f"{broker}{and_more(len(told) - 1)}, which the broker advertises to {client_words(context, *who)}, is never "
        f"connected to: the client asks for addresses {asked:,} times, and does nothing else"
    )
    begin, end = min(row["first"] for row in told.values()), max(row["last"] for row in told.values())
    packet = min(row["packet"] for row in told.values())
    return _finding(context, [who], broker, text, begin, end, [whole], (packet,), {"asked": asked})


def _finding(
    context: Context, clients: Sequence[_Client], broker: str, text: str, begin: int, end: int, works: Sequence[Work],
    packets: tuple[int, ...], numbers: dict[str, int],
) -> Finding:  # fmt: skip
    is_stuck = any(not whole.api_keys - _PREPARING for whole in works)
    people = dict.fromkeys(party for who in clients for party in client_parties(context, *who))
    parties = (*people, Party("broker", broker))
    option = client_option(context, clients[0][0]) if len(clients) == 1 else ()
    return ADVERTISED.rule._replace(command="show").found(
        text, *parties, begin=begin, end=end, packets=packets, lost=end - begin if is_stuck else 0,
        see=[("filter", "api in (Metadata, FindCoordinator)"), *option], severity=ERROR,
        **(numbers | {"lasts_ns": end - begin}),
    )  # fmt: skip


ADVERTISED = Signature(
    "advertised_unreachable",
    "a broker advertises an address that clients cannot reach",
    "Connects of a client to an address of a Metadata or FindCoordinator response fail, or it makes none and asks "
    "for addresses again and again. Or connects fail after a broker's address changed.",
    "advertised.listeners",
    "Advertise an address and port that these clients reach (`advertised.listeners` of the broker, for the listener "
    "that they use), or open the firewall between them.",
    f"{_LEAST_FAILED} connects failed, and no client of the capture reached that address (for a host name: that port); "
    f"or the client asked {_LEAST_ASKED} times, {_PAUSE_NS // units.SECOND} s apart at most on average, and did "
    f"nothing else. After a change of address, {_LEAST_FAILED} failed connects of any hosts count.",
    _findings,
    (LEADERS.form, NODES.form),
    counts=(_TOLD, _CONNECTS),
    label="unreachable",
)
