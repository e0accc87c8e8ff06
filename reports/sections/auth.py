"""Authentication: SASL attempts by client address, user and mechanism, and how they ended (`auth_attempts`).

SCRAM names the user in the first of its two rounds, and fails in the second. So the exchanges of a connection are read
in order. A conversation of GSSAPI without SaslHandshake does not appear.

An attempt succeeds with the last response that has no error code. It fails with an error code, or `unanswered` if its
last request has no response: brokers close a connection after a failure, some before the response is out. A bare token
has no error code: it succeeded if it was answered, or if requests follow. An attempt that stops before the mechanism's
last message, and whose connection is closed, is `unfinished`.

Two failures have no SASL requests. In both, the broker closes a connection whose start was captured, and answers no
request of it but ApiVersions:

no SASL  at a broker's port where others use SASL
no TLS   at a broker's port where others use TLS: it reads the request as a TLS record

A TLS connection has failed if its handshake did not end, or if an alert came before it did.
Failures of handshakes are shown in detail in the section `tls`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from kafkatap.dissector.dtypes import ANSWERED, RESPONSE_LOST, UNANSWERED
from kafkatap.kernels.arrays import is_among

from ..batch import Array, Context, endpoint
from ..connection_columns import decryptions
from ..connection_words import D_NOT_TLS, H_COMPLETE, P_KAFKA
from ..counting.count_forms import TEXT
from ..counting.percentiles import percentile
from ..counting.rollup import api_label
from ..model import Column, ReportTable, Row, as_number, in_columns, largest_first
from ..section_parts.counted import BROKER, CONNECTION, CONNECTIONS, Rows, counted, largest, least, least_where, total
from ..section_parts.event_rows import events_of
from ..section_parts.gathered import Gathered
from ..section_parts.section import Section, SectionInput
from ..section_parts.section_counts import Tally
from .auth_attempts import REFUSED, SASL_AUTHENTICATE, SASL_HANDSHAKE, Attempt, Connection, attempts, note_sasl
from .auth_tls import TLS, failed_tls

COLUMNS = (
    Column("client_ip", "client IP", "text", "IP address of the client", end="client"),
    Column("client_id", "client", "text", "client_id of the SASL requests"),
    Column("principal", "principal", "text", "user name in the SASL token (PLAIN, SCRAM)"),
    Column("mechanism", "mechanism", "text", "SASL mechanism of the handshake"),
    Column("attempts", "attempts", "count", "SASL conversations, and connections without one that need it; of failed "
           "TLS handshakes, TLS connections of the client"),
    Column("failed", "failed", "count", "those that failed"),
    Column("rounds", "rounds", "count", "tokens of the client in an attempt, at most", 3),
    Column("time_p50_ns", "time\np50", "ns", "from the SaslHandshake request to the last response, median"),
    Column("time_max_ns", "slowest", "ns", "from the SaslHandshake request to the last response, at most", 4),
    Column("outcome", "outcome", "text", "error code of the last failure, or unanswered, unfinished, no SASL, no TLS, "
           "or the alert of a TLS handshake"),
    Column("failed_at", "failed at", "text", "kind of the client's message that the last failure answers", 3),
    Column("message", "message", "text", "error message of the broker for the last failure, or what happened", 1),
    Column("connections", "conns", "count", "connections with such a conversation", 2),
    Column("first", "first", "time", "the first attempt", 4),
    Column("last", "last", "time", "the last attempt", 1),
)  # fmt: skip
MECHANISM_COLUMNS = (
    Column("broker", "broker", "text", "address and port of the broker", end="broker"),
    Column("mechanism", "mechanism", "text", "SASL mechanism"),
    Column("offered", "offered", "flag", "whether the broker lists it in a response to SaslHandshake"),
    Column("handshakes", "handshakes", "count", "SaslHandshake requests that name it"),
    Column("attempts", "attempts", "count", "SASL conversations with it"),
    Column("failed", "failed", "count", "those that failed"),
    Column("client_addresses", "client\naddresses", "count", "addresses with such a conversation"),
)
MESSAGE_COLUMNS = (
    Column("mechanism", "mechanism", "text", "SASL mechanism of the handshake"),
    Column("message", "message", "text", "kind of message, by its form alone"),
    Column("sent_by", "sent by", "text", "client or broker"),
    Column("carried_in", "carried in", "text", "SaslAuthenticate, or a frame of its own (after SaslHandshake 0)"),
    Column("messages", "messages", "count", "how many were sent"),
    Column("client_addresses", "client\naddresses", "count", "addresses of their clients"),
)
SESSION_COLUMNS = (
    Column("client_ip", "client IP", "text", "IP address of the client", end="client"),
    Column("client_id", "client", "text", "client_id of the SASL requests"),
    Column("principal", "principal", "text", "user name in the SASL token (PLAIN, SCRAM)"),
    Column("mechanism", "mechanism", "text", "SASL mechanism of the handshake"),
    Column("lifetime_ms", "session\nlifetime", "ms", "the latest session lifetime that the broker granted"),
    Column("sessions", "sessions", "count", "connections with such a lifetime or with a re-authentication"),
    Column("again", "re-auth-\nentications", "count", "authentications on a connection that was authenticated before"),
    Column("failed", "failed", "count", "those that failed"),
    Column("after_p50_ns", "after", "ns", "from the authentication before to the re-authentication, median"),
    Column("after_max_ns", "at most", "ns", "from the authentication before to the re-authentication, at most", 2),
    Column("late", "late", "count", "re-authentications after the session had expired"),
    Column("expired", "expired", "count", "connections with a request after their session had expired, and without a "
           "re-authentication in between: the broker closes these"),
)  # fmt: skip
_API_VERSIONS = 18


def _is_answered(x: Rows) -> Any:
    needs_login = ~is_among(x.api_key, (SASL_HANDSHAKE, _API_VERSIONS, SASL_AUTHENTICATE))
    return (x.outcome == ANSWERED) & needs_login


#: A row for each connection. `answered`: requests that need authentication, and were answered; `first_answered`: when
#: the first of these was sent.
_CONNECTIONS = counted(
    "auth.connections", CONNECTION, newest="last",
    requests=total(1), answered=total(_is_answered), closed_by=largest(), handshake=largest(), tls=largest(),
    last=largest("request_first"), first_answered=least(lambda x: least_where(_is_answered(x), x.request_first)),
)  # fmt: skip
_ENDED = _CONNECTIONS.also(
    CONNECTIONS, lambda x: x.protocol == P_KAFKA,
    closed_by="closed_by", handshake="handshake", tls=lambda x: decryptions(x) != D_NOT_TLS,
)  # fmt: skip
_MECHANISMS = counted(
    "auth.mechanisms", BROKER | {"mechanism": TEXT}, of=("sasl handshake",), offered=total(), handshakes=total(1)
)
_OFFERED = _MECHANISMS.also(("sasl mechanism",), more={"mechanism": "item"}, offered=1)
_BROKER = 1


def read(gathered: Gathered, tally: Tally) -> None:
    """Note each SASL exchange and bare token as an event, and other requests without a response."""
    outcome = gathered.column("outcome")
    refused = np.flatnonzero((outcome == UNANSWERED) | (outcome == RESPONSE_LOST))
    if len(refused):
        tally.note(events_of(gathered, refused, REFUSED))
    note_sasl(gathered, tally)


def _refused(given: SectionInput, events: Array) -> Iterator[Attempt]:
    """Connections that a broker closed because they did not use SASL, or TLS."""
    sasl = events[events["kind"] != REFUSED]
    sasl_ports = set(zip(sasl["broker_ip"].tolist(), sasl["broker_port"].tolist(), strict=True))
    keys = given.keys(TLS.name)
    tls_ports = set(zip(keys["broker_ip"].tolist(), keys["broker_port"].tolist(), strict=True))
    seen = set(sasl["connection"].tolist())
    keys, values = given.keys(_CONNECTIONS.name), given.values(_CONNECTIONS.name)
    is_closed = (values["answered"] == 0) & (values["closed_by"] == _BROKER) & (values["handshake"] == H_COMPLETE)
    closed = set(keys["connection"][is_closed & (values["requests"] > 0)].tolist())
    over_tls = set(keys["connection"][values["tls"] > 0].tolist())
    for event in events[events["kind"] == REFUSED]:
        connection, port = int(event["connection"]), (int(event["broker_ip"]), int(event["broker_port"]))
        if connection in seen or connection not in closed or port not in sasl_ports | tls_ports:
            continue
        if connection in over_tls and port not in sasl_ports:
            continue
        seen.add(connection)
        client = int(event["client_ip"]), int(event["client_id"])
        made = Attempt(client, port, connection, int(event["time"]))
        made.failure = "no SASL" if port in sasl_ports else "no TLS"
        made.message = f"the broker closed the connection after {api_label(int(event['api_key']))}"
        yield made


def _connections(given: SectionInput, events: Array) -> dict[int, Connection]:
    """The connections with SASL events."""
    keys, values = given.keys(_CONNECTIONS.name)["connection"], given.values(_CONNECTIONS.name)
    chosen = is_among(keys, events["connection"])
    columns = (values[name][chosen].tolist() for name in ("first_answered", "last", "closed_by"))
    rows = zip(*columns, strict=True)
    return {key: Connection(*row) for key, row in zip(keys[chosen].tolist(), rows, strict=True)}


class Key(NamedTuple):
    """The columns of who authenticates."""

    client_ip: str | None
    client_id: str | None = None
    principal: str | None = None
    mechanism: str | None = None


def _key(attempt: Attempt, context: Context) -> Key:
    ip, client = attempt.client
    mechanism = context.text(attempt.mechanism) or attempt.mechanism_name or None
    return Key(context.address(ip), context.text(client), context.text(attempt.user), mechanism)


def _grouped(found: Sequence[Attempt], context: Context) -> dict[Key, list[Attempt]]:
    groups: dict[Key, list[Attempt]] = {}
    for attempt in found:
        groups.setdefault(_key(attempt, context), []).append(attempt)
    return groups


def _row(key: Key, group: Sequence[Attempt], context: Context) -> Row:
    failed = [a for a in group if a.failure is not None]
    # An error code says more.
    shown = max(failed, key=lambda a: (a.failure != "unanswered", a.time), default=None)
    message = shown.message if shown is not None else None
    times = [a.took for a in group if a.took is not None]
    return {
        **key._asdict(), "attempts": len(group), "failed": len(failed), "rounds": max(a.rounds for a in group),
        "time_p50_ns": percentile(times, 50), "time_max_ns": max(times, default=None),
        "outcome": shown.failure if shown else None, "failed_at": shown.failed_at if shown else None,
        "message": (context.text(message) if isinstance(message, int) else message) or None,
        "connections": len({a.connection for a in group}),
        "first": min(a.time for a in group), "last": max(a.time for a in group),
    }  # fmt: skip


def _auth(given: SectionInput, found: Sequence[Attempt]) -> ReportTable:
    """Rows by failures, then by attempts, names and time."""
    context = given.context
    values = [_row(key, group, context) for key, group in _grouped(found, context).items()]
    for t in failed_tls(given):
        where = f"broker {endpoint(context.address(t.broker[0]), t.broker[1])}, {t.sent_by}"
        values.append({
            **Key(context.address(t.client))._asdict(), "attempts": t.connections, "failed": t.failed,
            "rounds": 0, "time_p50_ns": None, "time_max_ns": None, "outcome": t.outcome, "failed_at": None,
            "message": where, "connections": t.failed, "first": t.first, "last": t.last,
        })  # fmt: skip
    values.sort(key=lambda row: as_number(row["first"]))
    notes = (
        "principal: of the tokens of PLAIN and SCRAM. Passwords and other parts of a token are never shown.",
        "TLS alerts: of connections with TLS whose handshake failed, as far as they can be read.",
    )
    has_tls = any(row["outcome"] is not None and str(row["outcome"]).startswith("TLS") for row in values)
    rows = largest_first(COLUMNS, in_columns(COLUMNS, values), "failed", "attempts", then=Key._fields)
    return ReportTable(
        "auth", "Authentication", COLUMNS, rows, notes if has_tls else notes[:1], empty="no SASL requests"
    )


def _mechanisms(given: SectionInput, found: Sequence[Attempt]) -> ReportTable:
    context = given.context
    by: dict[tuple[tuple[int, int], str], list[Attempt]] = {}
    for attempt in found:
        name = context.text(attempt.mechanism) or attempt.mechanism_name
        if name:
            by.setdefault((attempt.broker, name), []).append(attempt)
    counted: dict[tuple[tuple[int, int], str], tuple[int, int]] = dict.fromkeys(by, (0, 0))
    keys, values = given.keys(_MECHANISMS.name), given.values(_MECHANISMS.name)
    columns = (*keys.values(), values["offered"], values["handshakes"])
    for ip, port, mechanism, offered, asked in zip(*(c.tolist() for c in columns), strict=True):
        counted[(ip, port), context.text(mechanism) or ""] = offered, asked
    named: list[Row] = []
    for (broker, name), (offered, asked) in counted.items():
        group = by.get((broker, name), [])
        named.append({
            "broker": endpoint(context.address(broker[0]), broker[1]), "mechanism": name, "offered": offered > 0,
            "handshakes": asked, "attempts": len(group), "failed": sum(a.failure is not None for a in group),
            "client_addresses": len({a.client[0] for a in group}),
        })  # fmt: skip
    rows = in_columns(
        MECHANISM_COLUMNS, named,
        lambda row: (str(row["broker"]), -as_number(row["handshakes"]), str(row["mechanism"])),
    )  # fmt: skip
    return ReportTable("auth_mechanisms", "SASL mechanisms by broker", MECHANISM_COLUMNS, rows, shown_from=1)


def _messages(found: Sequence[Attempt], context: Context) -> ReportTable:
    counts: dict[tuple[str, str, str, str], list[int]] = {}
    for attempt in found:
        mechanism = context.text(attempt.mechanism) or attempt.mechanism_name
        for by, kind, is_bare in attempt.messages:
            carried = "frame of its own" if is_bare else "SaslAuthenticate"
            counts.setdefault((mechanism, kind, by, carried), []).append(attempt.client[0])
    order = {key: number for number, key in enumerate(counts)}
    rows = in_columns(MESSAGE_COLUMNS, (
        {"mechanism": mechanism or None, "message": kind, "sent_by": by, "carried_in": carried,
         "messages": len(ips), "client_addresses": len(set(ips))}
        for (mechanism, kind, by, carried), ips in sorted(counts.items(), key=lambda i: (i[0][0], order[i[0]]))
    ))  # fmt: skip
    notes = ("message: by the form of its token. Nothing else of a token is shown.",)
    return ReportTable("auth_messages", "SASL messages", MESSAGE_COLUMNS, rows, notes, shown_from=1)


def _sessions(found: Sequence[Attempt], connections: dict[int, Connection], context: Context) -> ReportTable:
    chosen = [a for a in found if a.lifetime or a.is_again]
    last_of = {a.connection: a for a in sorted(found, key=lambda a: a.time)}
    rows: list[Row] = []
    for key, group in _grouped(chosen, context).items():
        again = [a for a in group if a.is_again]
        after = [a.since for a in again if a.since is not None]
        latest = max(group, key=lambda a: (a.lifetime > 0, a.time))
        expired = {a.connection for a in group if last_of[a.connection] is a and _has_expired(a, connections)}
        rows.append({
            **key._asdict(), "lifetime_ms": latest.lifetime or None, "sessions": len({a.connection for a in group}),
            "again": len(again), "failed": sum(a.failure is not None for a in again),
            "after_p50_ns": percentile(after, 50), "after_max_ns": max(after, default=None),
            "late": sum(a.is_late for a in again), "expired": len(expired),
        })  # fmt: skip
    title = "Re-authentication of SASL sessions"
    made = in_columns(SESSION_COLUMNS, rows)
    made = largest_first(SESSION_COLUMNS, made, "expired", "late", "again", then=Key._fields)
    return ReportTable("auth_sessions", title, SESSION_COLUMNS, made, shown_from=1)


def _has_expired(attempt: Attempt, connections: dict[int, Connection]) -> bool:
    """Whether a request came after the session of an attempt, the last one of its connection."""
    connection = connections.get(attempt.connection)
    if connection is None or attempt.end is None or not attempt.lifetime or attempt.failure is not None:
        return False
    return connection.last > attempt.end + attempt.lifetime * 1_000_000


def tables(given: SectionInput) -> tuple[ReportTable, ...]:
    """Attempts by client, then mechanisms, kinds of messages, and re-authentications."""
    events = given.events("auth")
    sasl = events[events["kind"] != REFUSED]
    connections = _connections(given, sasl)
    found = list(attempts(sasl, connections))
    everything = [*found, *_refused(given, events)]
    return (
        _auth(given, everything),
        _mechanisms(given, found),
        _messages(found, given.context),
        _sessions(found, connections, given.context),
    )


SECTION = Section(
    "auth", "Who fails to authenticate?",
    columns={
        "auth": COLUMNS,
        "auth_mechanisms": MECHANISM_COLUMNS,
        "auth_messages": MESSAGE_COLUMNS,
        "auth_sessions": SESSION_COLUMNS,
    },
    tables=tables,
    facts=(
        "sasl handshake", "sasl handshake answer", "sasl mechanism", "sasl token", "sasl answer", "principal",
        "sasl message", "sasl answer message",
    ),
    counts=(_CONNECTIONS, _ENDED, _MECHANISMS, _OFFERED, TLS), read=read,
)  # fmt: skip
