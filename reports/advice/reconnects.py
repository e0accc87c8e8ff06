"""Connections that are made too often: one for each message, or again and again without use."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from kafkatap.dissector.dtypes import ORPHAN_RESPONSE, OUTCOMES
from kafkatap.kernels.arrays import distinct_values, groups_of, is_among

from .. import units
from ..batch import Array
from ..batch import rows_of as rows_at
from ..connection_words import H_NOT_CAPTURED, H_REFUSED, H_UNANSWERED, P_KAFKA
from ..counting import tally
from ..counting.rollup import group_columns, value_columns
from ..finding_words import listed
from ..findings import NOTE, SEVERITIES, WARNING, Finding, Party
from ..section_parts.counted import CONNECTIONS, PAIR, counted, largest, least, total
from ..section_parts.gathered import Gathered
from ..section_parts.notable import API_VERSIONS, AUTHENTICATE
from ..section_parts.section import SectionInput
from .connection_limit import OPENED
from .idle_closes import IDLE_NS, idle_closed
from .parties import broker_party, client_option, client_parties, client_words
from .request_timeouts import clients_that_give_up
from .signature import Signature
from .stretches import COUNT_STRETCHES

_METADATA = 3
#: Requests that a connection begins with: ApiVersions, SaslHandshake, SaslAuthenticate.
_SETUP = (API_VERSIONS, 17, AUTHENTICATE)
#: Ids of requests begin at 0 in each new client (its first ApiVersions has at most this), and go on when it connects
#: again. Java's clients use other ids from this one on while they authenticate.
_FIRST_ID, _RESERVED_ID = 3, 2_147_483_640
#: A new client makes up to three connections: to bootstrap, to a leader, to a coordinator.
_CONNECTIONS_OF_NEW = 3
#: A client opens a few connections to a broker when it starts. These are more.
_LEAST, _LEAST_IDLE = 10, 20
#: Requests for each connection, without those of its setup and Metadata.
_REUSE = 3
#: Of the client's time: what a person notices. Less is a note.
_SHARE = 0.2
#: Connects a second. With Kafka's defaults a client waits for 50 ms to 1 s, longer each time, so after its first second
#: it connects about once a second. (librdkafka tries each 50 ms while it knows no other broker: that is a storm, too.)
_STORM = 5.0
#: Where something closes idle connections.
_IDLE_SETTING = "connections.max.idle.ms, or the idle timeout of a proxy or load balancer"
_IDLE_REMEDY = (
    "Raise the idle timeout above the pauses between messages: that of a proxy or load balancer between, or "
    "`connections.max.idle.ms` of the end that closes them. Clients that connect again each time need no change."
)
#: A host and a broker.
_END = ("client_ip", "broker_ip", "broker_port")

_CONNECTS = counted(
    "advice.reconnects", PAIR, lambda x: x.handshake != H_NOT_CAPTURED, of=CONNECTIONS,
    connections=total(1), refused=total(lambda x: x.handshake == H_REFUSED),
    unanswered=total(lambda x: x.handshake == H_UNANSWERED), kafka=total(lambda x: x.protocol == P_KAFKA),
    by_client=total(lambda x: x.closed_by == 0), by_broker=total(lambda x: x.closed_by == 1),
    handshake_ns=total(lambda x: np.maximum(x.handshake_rtt_ns, 0)), exchanges=total("exchanges"),
    first=least("first"), last=largest("first"), packet=least("first_packet"),
)  # fmt: skip


def _has_failed(gathered: Gathered) -> Array:
    """Whether exchanges have an error code."""
    results, failed = gathered.results, np.zeros(len(gathered), bool)
    failed[rows_at(gathered.column("exchange"), results["exchange"][results["error_code"] != 0])] = True
    return failed


#: Of requests of _SETUP: those of new clients, those with reserved ids, and those that failed.
_LOGINS = counted(
    "advice.logins", PAIR, lambda x: is_among(x.api_key, (API_VERSIONS, AUTHENTICATE)),
    starts=total(lambda x: (x.api_key == API_VERSIONS) & (x.correlation_id <= _FIRST_ID)),
    reserved=total(lambda x: (x.api_key == API_VERSIONS) & (x.correlation_id >= _RESERVED_ID)),
    failed=total(lambda x: (x.api_key != API_VERSIONS) & x.each(_has_failed)),
)  # fmt: skip


class _Client(NamedTuple):
    """A client (or with `client_id` -1 a host) at one broker: its connections, and what it sent over them."""

    who: tuple[int, ...]
    connects: dict[str, int]
    uses: dict[str, int]

    @property
    def seconds(self) -> float:
        return max((self.connects["last"] - self.connects["first"]) / units.SECOND, 1.0)


def _uses(given: SectionInput, wanted: Collection[tuple[int, ...]]) -> dict[tuple[int, ...], dict[str, int]]:
    """What the wanted clients sent to each broker, from the counts that every report has. `asked`: requests besides
    setup and Metadata. `uses`: of them, those with an answer, or that expect none."""
    given.counts.finish()
    groups = given.counts.groups
    keys, values = group_columns(groups, tally.GROUP_KEY), value_columns(groups, tally.GROUP_VALUES)
    is_setup = is_among(keys["api_key"], _SETUP)
    is_use = ~is_setup & (keys["api_key"] != _METADATA)
    requests: Array = sum((values[name] for name in OUTCOMES[:ORPHAN_RESPONSE]), np.zeros(len(groups), np.int64))
    found = {
        "requests": requests, "asked": is_use * requests,
        "uses": is_use * (values["answered"] + values["no_reply_expected"]), "setup_ns": is_setup * values["total_ns"],
        "total_ns": values["total_ns"] - ~is_setup * values["waiting_ns"],
    }  # fmt: skip
    uses: dict[tuple[int, ...], dict[str, int]] = defaultdict(lambda: dict.fromkeys((*found, *_LOGINS.values), 0))
    numbers = np.stack(list(found.values()), axis=1)
    for who, rows in groups_of(*(keys[name] for name in PAIR)):
        if tuple(who) in wanted:
            uses[tuple(who)].update(zip(found, numbers[rows].sum(axis=0).tolist(), strict=True))
    for login in given.rows(_LOGINS.name):
        uses[tuple(login[name] for name in PAIR)].update({name: login[name] for name in _LOGINS.values})
    return uses


def _clients(given: SectionInput) -> list[_Client]:
    """Without small ones, which are added up as one."""
    rows = {tuple(row[name] for name in PAIR): row for row in given.rows(_CONNECTS.name) if row["broker_port"] >= 0}
    uses = _uses(given, rows)
    return [_Client(who, row, uses[who]) for who, row in rows.items()]


def _each_message(given: SectionInput) -> list[Finding]:
    """One finding for each setting: on the client that spends most, with the others."""
    gave_up = clients_that_give_up(given)
    clients: dict[tuple[int, ...], list[_Client]] = defaultdict(list)
    for one in given.once(_clients):
        is_found = (
            one.who[:2] not in gave_up
            and one.connects["exchanges"] <= one.uses["requests"]  # all were read: none is left out by a selection
            and one.connects["kafka"] - one.uses["failed"] >= _LEAST
            and one.connects["kafka"] / 2 <= one.uses["uses"] < _REUSE * one.connects["kafka"]
        )
        if is_found:
            clients[one.who[:2]].append(one)
    alike: dict[str, list[Finding]] = defaultdict(list)
    for mine in clients.values():
        finding = _each_finding(given, mine)
        alike[finding.setting].append(finding)
    return [_together(findings) for findings in alike.values()]


def _together(findings: list[Finding]) -> Finding:
    """The finding that costs most, with the clients of the others."""
    first, *rest = sorted(findings, key=lambda f: (SEVERITIES.index(f.severity), -f.time_lost_ns, f.text))
    parties = tuple(dict.fromkeys(party for f in (first, *rest) for party in f.parties))
    mine = first.party("client")
    others = len({f.party("client") for f in rest} - {mine})
    too = f"; {others:,} other client{'' if others == 1 else 's'} too" if others else ""
    return first._replace(
        text=first.text + too, time_lost_ns=sum(f.time_lost_ns for f in findings), parties=parties,
        begin=min(f.begin or 0 for f in findings), end=max(f.end or 0 for f in findings),
        numbers={**first.numbers, "clients": others + 1},
    )  # fmt: skip


def _sum(rows: Sequence[dict[str, int]]) -> dict[str, int]:
    """The sum of rows of _CONNECTS, or of what was sent."""
    merged = {"first": min, "last": max, "packet": min}
    return {name: merged.get(name, sum)([row[name] for row in rows]) for name in rows[0]}


def _each_finding(given: SectionInput, mine: Sequence[_Client]) -> Finding:
    """The finding on a client, at each broker to which it makes too many connections."""
    context, (client, ip, *_) = given.context, mine[0].who
    one = _Client(mine[0].who, _sum([each.connects for each in mine]), _sum([each.uses for each in mine]))
    most = sorted(mine, key=lambda each: -each.connects["kafka"])
    brokers = [broker_party(context, *each.who[2:]) for each in most]
    count, setup = one.connects["kafka"], one.connects["handshake_ns"] + one.uses["setup_ns"]
    lost = setup * (count - 1) // count
    share = setup / max(one.uses["total_ns"] + one.connects["handshake_ns"], 1)
    is_new = _CONNECTIONS_OF_NEW * one.uses["starts"] >= count
    is_same = not is_new and 2 * one.uses["reserved"] < count
    limits = given.once(idle_closed)
    closed = [limits[each.who] for each in mine if each.who in limits]
    idle = sum(each.connections for each in closed)
    is_idle = 2 * idle >= one.uses["uses"]
    by = "the broker" if one.connects["by_broker"] > one.connects["by_client"] else "the client"
    why = "a new client is made each time" if is_new else f"{by} closes them again"
    setting, remedy = CONNECTION_EACH.setting, CONNECTION_EACH.remedy
    if is_idle:
        by = "the broker's end" if closed[0].by_broker else "the client's end"
        why = f"{by} closed {idle:,} of them after {units.duration(closed[0].idle_ns)} without a message, each time"
        setting, remedy = _IDLE_SETTING, _IDLE_REMEDY
    elif is_new:
        setting, remedy = "client reuse", "Make one client, and use it for all messages: it is made for many threads."
    elif is_same:
        setting = "connections.max.idle.ms"
        remedy = f"Raise `connections.max.idle.ms` of {by} above the pauses between messages."
    text = (
        f"{client_words(context, client, ip)} opened {count:,} connections to {listed([b.name for b in brokers])} for "
        f"{one.uses['uses']:,} requests besides their setup: {why}. Setup takes {units.share(share)} of its time, "
        f"{units.duration(setup // count)} each"
    )
    return CONNECTION_EACH.rule._replace(setting=setting, remedy=remedy).found(
        text, *client_parties(context, client, ip), *brokers, begin=one.connects["first"], end=one.connects["last"],
        packets=[one.connects["packet"]], lost=lost,
        see=[("sections", "connections"), *client_option(context, client)],
        severity=WARNING if share >= _SHARE else NOTE, connections=count, requests=one.uses["uses"], setup_ns=setup,
        setup_share=share, new_clients=one.uses["starts"], closed_by_client=one.connects["by_client"],
        closed_by_broker=one.connects["by_broker"],
        **({"idle_closed": idle, "idle_ns": closed[0].idle_ns} if is_idle else {}),
    )  # fmt: skip


def _storms(given: SectionInput) -> list[Finding]:
    clients = given.once(_clients)
    keys = group_columns(given.counts.groups, tally.GROUP_KEY)
    ports = set(keys["broker_port"].tolist())
    found = []
    for one in clients:
        count = one.connects["connections"]
        rate = count / one.seconds
        if count < _LEAST_IDLE or one.uses["asked"] >= count / 2 or rate < _STORM or one.who[3] not in ports:
            continue
        # Of a connect that failed no client_id is known: all clients of the host that use the broker may have made it.
        if given.context.text(one.who[0]) is not None or rate / _users(keys, one.who[1:]) >= _STORM:
            found.append(_storm_finding(given, one))
    return found


def _users(keys: Mapping[str, Array], end: Sequence[int]) -> int:
    """How many clients of a host use a broker, or 1. `keys`: of groups. `end`: the host, and the broker's address and
    port."""
    is_own = np.logical_and.reduce([keys[name] == key for name, key in zip(_END, end, strict=True)])
    return max(len(distinct_values(keys["client_id"][is_own])), 1)


def _storm_finding(given: SectionInput, one: _Client) -> Finding:
    context, (client, ip, broker_ip, port) = given.context, one.who
    broker, count = broker_party(context, broker_ip, port), one.connects["connections"]
    rate = count / one.seconds
    refused, unanswered = one.connects["refused"], one.connects["unanswered"]
    parts = [f"{refused:,} refused"] if refused else []
    parts += [f"{unanswered:,} unanswered"] if unanswered else []
    parts += (
        [f"{count - refused - unanswered:,} closed after {one.uses['requests']:,} requests"]
        if (count > refused + unanswered)
        else []
    )
    name = context.address(ip) or "?"
    who = f"host {name}" if context.text(client) is None else client_words(context, client, ip)
    text = f"{who} connects to {broker.name} {rate:,.0f} times a second: {count:,} times, {', '.join(parts)}"
    parties = client_parties(context, client, ip) or (Party("host", name),)
    return RECONNECT_STORM.rule.found(
        text, *parties, broker, begin=one.connects["first"], end=one.connects["last"],
        packets=[one.connects["packet"]], lost=one.uses["setup_ns"], see=[("sections", "connections")],
        connections=count, rate=rate, refused=refused, unanswered=unanswered, requests=one.uses["requests"],
    )  # fmt: skip


CONNECTION_EACH = Signature(
    "connection_each_message",
    "a connection for each message",
    "A client opens connection after connection, each for a request or two. If ids of requests restart, a new client "
    "was made; else the connection was closed because it was idle.",
    "client reuse, or connections.max.idle.ms",
    "Make one client, and use it for all messages. If idle connections are closed, raise `connections.max.idle.ms` of "
    "the side that closes them above the pauses between messages.",
    f"{_LEAST} connections to one broker that did not fail to log in, with fewer than {_REUSE} answered requests each "
    f"besides setup and Metadata. A note if setup takes less than {_SHARE:.0%} of the client's time. Not for clients "
    "with `request_timeout`. An idle timeout is named if half as many as its requests were closed after the same "
    f"pause of {units.duration(IDLE_NS)} or more, one at a time, and none was idle for longer.",
    _each_message,
    counts=(_CONNECTS, _LOGINS, OPENED),
    batch_counts=(COUNT_STRETCHES,),
)
RECONNECT_STORM = Signature(
    "reconnect_storm",
    "a client connects again and again without use",
    "Many SYNs from one host to one broker are refused or not answered, or the connection carries nothing but its "
    "setup.",
    "reconnect.backoff.ms, reconnect.backoff.max.ms",
    "Set `reconnect.backoff.max.ms` to a second or more (Kafka's default is 1 s), list several brokers in "
    "`bootstrap.servers`, and do not restart a client that fails without a pause.",
    f"{_LEAST_IDLE} connects at {_STORM:.0f} a second or more.",
    _storms,
    (_CONNECTS.form, _LOGINS.form),
)
