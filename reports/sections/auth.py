"""Authentication: SASL attempts by client address, user and mechanism, and how they ended.

An attempt is one SASL conversation of a connection: SaslHandshake, then SaslAuthenticate until it ends. SCRAM names the
user in the first of its two rounds, and fails in the second. So the exchanges of a connection are read in order. A
re-authentication (KIP-368) is another attempt. Conversations without Kafka headers (SaslHandshake 0, GSSAPI without
handshake) do not appear.

An attempt succeeds with the last response that has no error code. It fails with an error code, or `unanswered` if its
last request has no response: brokers close a connection after a failure, some before the response is out.

Two failures have no SASL requests. In both, the broker closes a connection whose start was captured, and answers no
request of it but ApiVersions:

no SASL  at a broker's port where others use SASL
no TLS   at a broker's port where others use TLS: it reads the request as a TLS record

Failed TLS handshakes are in the section `tls`. Without decryption, attempts inside TLS are not visible.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from kafkatap.dissector.dtypes import ANSWERED, RESPONSE_LOST, UNANSWERED
from kafkatap.dissector.kafka.error_codes import error_name

from ..batch import D_NOT_TLS, H_COMPLETE, P_KAFKA, Array, Context, decryptions
from ..counting.count_table import MAX, SUM
from ..counting.rollup import api_label
from ..model import Column, ReportTable, Value
from ..questions.count_forms import ADDRESS, NUMBER, CountForm
from ..questions.event_rows import events_of
from ..questions.gathered import Gathered
from ..questions.section import Section, SectionInput
from ..questions.section_counts import Tally

COLUMNS = (
    Column("client_ip", "address", "text", "IP address of the client"),
    Column("client_id", "client", "text", "client_id of the SASL requests"),
    Column("principal", "user", "text", "user name in the SASL token (PLAIN, SCRAM)"),
    Column("mechanism", "mechanism", "text", "SASL mechanism of the handshake"),
    Column("attempts", "attempts", "count", "SASL conversations, and connections without one that need it"),
    Column("failed", "failed", "count", "those that failed"),
    Column("outcome", "last failure", "text", "error code of the last failure, or unanswered, no SASL, no TLS"),
    Column("message", "message", "text", "error message of the broker for the last failure", 2),
    Column("connections", "conns", "count", "connections with such a conversation", 1),
    Column("first", "first", "time", "the first attempt", 2),
    Column("last", "last", "time", "the last attempt", 1),
)
_HANDSHAKE, _TOKEN, _REFUSED = 1, 2, 3
_SASL_HANDSHAKE, _API_VERSIONS, _SASL_AUTHENTICATE = 17, 18, 36
#: A row for each connection. `answered`: requests that need authentication, and were answered.
_CONNECTIONS = CountForm(
    "auth.connections",
    {"connection": NUMBER},
    {"requests": SUM, "answered": SUM, "closed_by": MAX, "handshake": MAX, "tls": MAX, "last": MAX},
    {"connection": 0},
    newest="last",
)
_TLS = CountForm(
    "auth.tls",
    {"broker_ip": ADDRESS, "broker_port": NUMBER},
    {"connections": SUM},
    {"broker_ip": -1, "broker_port": -1},
)
_BROKER = 1


def read(gathered: Gathered, tally: Tally) -> None:
    """Note each SASL exchange as an event: s0 mechanism, s1 user, s2 message; and other requests without a response."""
    rows = gathered.exchanges
    needs_no_login = np.isin(rows["api_key"], (_SASL_HANDSHAKE, _API_VERSIONS, _SASL_AUTHENTICATE))
    answered = (rows["outcome"] == ANSWERED) & ~needs_no_login
    values = {"requests": 1, "answered": answered, "last": rows["request_first"]}
    tally.add(_CONNECTIONS.name, {"connection": rows["connection"]}, values)
    refused = np.flatnonzero((rows["outcome"] == UNANSWERED) | (rows["outcome"] == RESPONSE_LOST))
    if len(refused):
        tally.note(events_of(gathered, refused, _REFUSED))
    chosen = gathered.of_api(_SASL_HANDSHAKE, _SASL_AUTHENTICATE)
    if not len(chosen):
        return
    is_handshake = gathered.exchanges["api_key"][chosen] == _SASL_HANDSHAKE
    events = events_of(gathered, chosen, _TOKEN)
    events["kind"][is_handshake] = _HANDSHAKE
    events["s0"] = gathered.top("sasl handshake", "mechanism")[chosen]
    events["s1"] = gathered.top("principal", "principal")[chosen]
    events["s2"] = gathered.top("sasl answer", "message")[chosen]
    for name in ("sasl handshake answer", "sasl answer"):
        events["error_code"] += gathered.top(name, "error_code", 0)[chosen].astype(np.int16)
    tally.note(events)


def read_connections(rows: Array, tally: Tally) -> None:
    """Keep how connections began and ended, and which ports of brokers use TLS."""
    kafka, tls = rows[rows["protocol"] == P_KAFKA], rows[decryptions(rows) != D_NOT_TLS]
    if len(kafka):
        is_tls = decryptions(kafka) != D_NOT_TLS
        values = {"closed_by": kafka["closed_by"], "handshake": kafka["handshake"], "tls": is_tls}
        tally.add(_CONNECTIONS.name, {"connection": kafka["connection"]}, values)
    if len(tls):
        keys = {"broker_ip": tls["broker_ip"], "broker_port": tls["broker_port"]}
        tally.add(_TLS.name, keys, {"connections": 1})


class _Attempt(NamedTuple):
    who: tuple[int, int]  # address, client_id
    user: int
    mechanism: int
    failure: str | None
    message: int | str
    connection: int
    time: int


def _attempts(events: Array) -> Iterator[_Attempt]:
    """The attempts in the events, connection by connection."""
    order = np.lexsort((np.arange(len(events)), events["connection"]))
    mechanism, user, connection = -1, -1, None
    pending: _Attempt | None = None
    for event in events[order]:
        if int(event["connection"]) != connection:
            if pending is not None:
                yield pending
            mechanism, user, pending, connection = -1, -1, None, int(event["connection"])
        if event["kind"] == _HANDSHAKE:
            if pending is not None:
                yield pending
            mechanism, user, pending = int(event["s0"]), -1, None
        elif event["s1"] >= 0:  # a first token begins an attempt
            if pending is not None:
                yield pending
            user = int(event["s1"])
        is_handshake_over = event["kind"] == _HANDSHAKE and event["error_code"] == 0 and event["outcome"] == ANSWERED
        if is_handshake_over:
            continue
        failure = None
        if event["outcome"] != ANSWERED:
            failure = "unanswered"
        elif event["error_code"]:
            failure = error_name(int(event["error_code"]))
        pending = _Attempt(
            (int(event["client_ip"]), int(event["client_id"])), user, mechanism, failure, int(event["s2"]),
            int(event["connection"]), int(event["time"]),
        )  # fmt: skip
    if pending is not None:
        yield pending


def _refused(given: SectionInput, events: Array) -> Iterator[_Attempt]:
    """Connections that a broker closed because they did not use SASL, or TLS."""
    sasl = events[events["kind"] != _REFUSED]
    sasl_ports = set(zip(sasl["broker_ip"].tolist(), sasl["broker_port"].tolist(), strict=True))
    keys = given.keys(_TLS.name)
    tls_ports = set(zip(keys["broker_ip"].tolist(), keys["broker_port"].tolist(), strict=True))
    seen = set(sasl["connection"].tolist())
    keys, values = given.keys(_CONNECTIONS.name), given.values(_CONNECTIONS.name)
    is_closed = (values["answered"] == 0) & (values["closed_by"] == _BROKER) & (values["handshake"] == H_COMPLETE)
    closed = set(keys["connection"][is_closed & (values["requests"] > 0)].tolist())
    over_tls = set(keys["connection"][values["tls"] > 0].tolist())
    for event in events[events["kind"] == _REFUSED]:
        connection, port = int(event["connection"]), (int(event["broker_ip"]), int(event["broker_port"]))
        if connection in seen or connection not in closed or port not in sasl_ports | tls_ports:
            continue
        if connection in over_tls and port not in sasl_ports:
            continue
        seen.add(connection)
        yield _Attempt(
            (int(event["client_ip"]), int(event["client_id"])), -1, -1, "no SASL" if port in sasl_ports else "no TLS",
            f"the broker closed the connection after {api_label(int(event['api_key']))}", connection,
            int(event["time"]),
        )  # fmt: skip


class _Row:
    def __init__(self) -> None:
        self.attempts = self.failed = 0
        self.shown = (False, 0)
        self.failure: str | None = None
        self.message: str | None = None
        self.connections: set[int] = set()
        self.first, self.last = 2**63, 0

    def add(self, attempt: _Attempt, context: Context) -> None:
        self.attempts += 1
        self.connections.add(attempt.connection)
        self.first, self.last = min(self.first, attempt.time), max(self.last, attempt.time)
        if attempt.failure is not None:
            self.failed += 1
            shown = attempt.failure != "unanswered", attempt.time  # an error code says more
            if shown >= self.shown:
                message = attempt.message
                self.failure = attempt.failure
                self.message = message if isinstance(message, str) else context.text(message)
                self.shown = shown


def tables(given: SectionInput) -> tuple[ReportTable, ...]:
    """Rows by failures, then by attempts."""
    context = given.context
    rows: dict[tuple[str | None, ...], _Row] = {}
    events = given.events("auth")
    for attempt in (*_attempts(events[events["kind"] != _REFUSED]), *_refused(given, events)):
        ip, client = attempt.who
        key = context.address(ip), context.text(client), context.text(attempt.user), context.text(attempt.mechanism)
        rows.setdefault(key, _Row()).add(attempt, context)
    ordered = sorted(rows.items(), key=lambda item: (-item[1].failed, -item[1].attempts, str(item[0])))
    values: list[tuple[Value, ...]] = [
        (*key, r.attempts, r.failed, r.failure, r.message or None, len(r.connections), r.first, r.last)
        for key, r in ordered
    ]
    notes = ("user: of the tokens of PLAIN and SCRAM. Passwords and other parts of a token are never read.",)
    return (ReportTable("auth", "Authentication", COLUMNS, values, notes, empty="no SASL requests"),)


SECTION = Section(
    "auth",
    "Who fails to authenticate?",
    ("sasl handshake", "sasl handshake answer", "sasl token", "sasl answer", "principal"),
    (_CONNECTIONS, _TLS),
    {"auth": COLUMNS},
    read,
    tables,
    read_connections,
)
