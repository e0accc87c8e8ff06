"""SASL conversations of connections, read from their exchanges in order.

An attempt is one SASL conversation of a connection: SaslHandshake, then tokens until it ends. The tokens travel in
SaslAuthenticate. After SaslHandshake 0 they are frames by themselves (bare tokens), which have no error code.
An attempt after which requests followed on the connection is followed by a re-authentication (KIP-368).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from kafkatap.dissector.dtypes import ANSWERED, IN_FLIGHT, NO_TIME
from kafkatap.dissector.facts.fact_rows import NO_NUMBER
from kafkatap.dissector.facts.sasl_messages import MESSAGES, mechanism_of
from kafkatap.dissector.kafka.error_codes import error_name

from ..batch import Array
from ..section_parts.event_rows import EventKind, EventView, events_of
from ..section_parts.gathered import Gathered
from ..section_parts.section_counts import Tally

#: `begin`: the request's first byte; `end`: the response's last byte. `message`, `answer`: the kinds of the client's
#: message and of the answer, -1: none. `lifetime_ms`: that of the session.
_SASL = EventView(
    mechanism="s0", user="s1", error_message="s2", begin="v0", message="v1", answer="v2", lifetime_ms="v3", end="v4"
)
#: Kinds of events: a SaslHandshake; a token in SaslAuthenticate; a bare token; another request without a response.
HANDSHAKE, TOKEN, BARE, REFUSED = EventKind(1, _SASL), EventKind(2, _SASL), EventKind(3, _SASL), EventKind(4)
SASL_HANDSHAKE, SASL_AUTHENTICATE = 17, 36
#: Answers after which the client has to send more.
_UNFINISHED = frozenset(
    MESSAGES.index(name)
    for name in ("SCRAM server-first", "OAUTHBEARER error", "GSSAPI answer (AP-REP)", "GSSAPI security layers offered")
)


def note_sasl(gathered: Gathered, tally: Tally) -> None:
    """Note all SASL exchanges and bare tokens."""
    chosen = gathered.of_api(SASL_HANDSHAKE, SASL_AUTHENTICATE)
    events = _events(gathered, chosen, TOKEN)
    if len(chosen):
        events["kind"][gathered.column("api_key")[chosen] == SASL_HANDSHAKE] = HANDSHAKE
        events["mechanism"] = gathered.top("sasl handshake", "mechanism")[chosen]
        events["error_message"] = gathered.top("sasl answer", "message")[chosen]
        events["lifetime_ms"] = np.maximum(gathered.top("sasl answer", "lifetime_ms", 0)[chosen], 0)
        for name in ("sasl handshake answer", "sasl answer"):
            events["error_code"] += gathered.top(name, "error_code", 0)[chosen].astype(np.int16)
    tally.note(events)
    tokens = gathered.tokens
    tally.note(_events(tokens, np.arange(len(tokens)), BARE))


def _events(gathered: Gathered, chosen: Array, kind: EventKind) -> Array:
    events = events_of(gathered, chosen, kind)
    if len(chosen):
        events["begin"] = gathered.column("request_first")[chosen]
        events["message"] = gathered.top("sasl message", "message")[chosen]
        events["answer"] = gathered.top("sasl answer message", "message")[chosen]
        events["end"] = gathered.column("response_last")[chosen]
        events["user"] = gathered.top("principal", "principal")[chosen]
    return events


@dataclass(slots=True)
class Connection:
    """What is known of a connection beside its SASL exchanges. Times are ns since the epoch; of other requests than
    SASL and ApiVersions that were answered `first`, of all requests `last`. `closed_by`: as in CONNECTION_ROW."""

    first: int
    last: int
    closed_by: int


@dataclass(slots=True)
class Attempt:
    """`mechanism`: its name if the handshake was not captured. `failure`: an error code's name, or why it counts as
    failed; None if it succeeded. `failed_at`: the kind of the client's last message. `since`: on a connection that
    authenticated before, the ns from there; `lifetime_ms`: that of the session before and after."""

    client: tuple[int, int]  # address, client_id
    broker: tuple[int, int]  # address, port
    connection: int
    time: int  # of its last message
    mechanism: int = -1
    mechanism_name: str = ""
    user: int = -1
    rounds: int = 0
    begin: int | None = None  # the first byte of the SaslHandshake request
    end: int | None = None  # the last byte of the last response
    has_bare: bool = False
    is_again: bool = False
    since: int | None = None
    lifetime_before: int = 0
    lifetime: int = 0
    last_answer: int = -1
    failure: str | None = None
    failed_at: str | None = None
    message: int | str | None = None
    messages: list[tuple[str, str, bool]] = field(default_factory=list)  # who sent it, what, whether it was bare

    @property
    def took(self) -> int | None:
        """From the SaslHandshake request to the last response, ns."""
        return None if self.begin is None or self.end is None or not self.rounds else self.end - self.begin

    @property
    def is_late(self) -> bool:
        """Whether the session before had expired."""
        return self.since is not None and 0 < self.lifetime_before * 1_000_000 < self.since


def attempts(events: Array, connections: Mapping[int, Connection]) -> Iterator[Attempt]:
    """The attempts in SASL events, connection by connection."""
    if not len(events):
        return
    events = _SASL.of(events)
    rows = events[np.lexsort((events["kind"], events["exchange"], events["begin"], events["connection"]))]
    starts = np.flatnonzero(np.diff(rows["connection"], prepend=rows["connection"][:1] - 1))
    for first, end in zip(starts, [*starts[1:], len(rows)], strict=True):
        yield from _of_connection(rows[first:end], connections.get(int(rows["connection"][first])))


def _of_connection(events: Array, connection: Connection | None) -> Iterator[Attempt]:
    current: Attempt | None = None
    before: Attempt | None = None
    has_handshake = False
    for event in events:
        is_handshake = event["kind"] == HANDSHAKE
        has_handshake |= is_handshake
        if event["kind"] == BARE and not has_handshake:
            continue  # its handshake is not selected
        begins = current is None or is_handshake or (event["user"] >= 0 and current.rounds > 0)
        if begins:
            if current is not None and _finish(current, connection, is_last=False):
                before = current
                yield current
            current = _begin(event, before, connection)
        assert current is not None
        _add(current, event)
    if current is not None and _finish(current, connection, is_last=True):
        yield current


def _begin(event: Array, before: Attempt | None, connection: Connection | None) -> Attempt:
    made = Attempt(
        (int(event["client_ip"]), int(event["client_id"])), (int(event["broker_ip"]), int(event["broker_port"])),
        int(event["connection"]), int(event["time"]),
    )  # fmt: skip
    start = int(event["begin"])
    if event["kind"] == HANDSHAKE:
        made.mechanism = int(event["mechanism"])
        made.begin = None if start == NO_TIME else start
    if before is not None and before.failure is None:
        made.is_again, made.lifetime_before = True, before.lifetime
        made.since = None if before.end is None or start == NO_TIME else start - before.end
    elif connection is not None and connection.first < start:
        made.is_again = True
    return made


def _add(current: Attempt, event: Array) -> None:
    current.time = max(current.time, int(event["time"]))
    is_answered = event["outcome"] == ANSWERED
    error = int(event["error_code"])
    current.failure = None
    if event["outcome"] == IN_FLIGHT:  # it has not failed yet
        return
    if not is_answered:
        current.failure = "unanswered"
    elif error:
        current.failure = error_name(error)
        current.message = int(event["error_message"])
    if event["kind"] == HANDSHAKE:
        return
    current.rounds += 1
    is_bare = bool(event["kind"] == BARE)
    current.has_bare |= is_bare
    current.user = max(current.user, int(event["user"]))
    current.lifetime = max(current.lifetime, int(event["lifetime_ms"]))
    current.last_answer = -1
    for by, kind in (("client", int(event["message"])), ("broker", int(event["answer"]))):
        if kind not in (-1, NO_NUMBER) and not (by == "broker" and error):  # an answer with an error has no token
            current.messages.append((by, MESSAGES[kind], is_bare))
            current.mechanism_name = current.mechanism_name or mechanism_of(kind)
            if by == "client":
                current.failed_at = MESSAGES[kind]
            else:
                current.last_answer = kind
    if is_answered:
        current.end = int(event["end"])


def _finish(current: Attempt, connection: Connection | None, is_last: bool) -> bool:
    """Judge how an attempt ended. Return whether it is one: a handshake without a token may be a mere question."""
    follows = connection is not None and connection.last > current.time
    if current.rounds and current.failure in (None, "unanswered"):
        is_closed = connection is not None and connection.closed_by >= 0
        if current.has_bare and current.failure and follows:
            current.failure = None  # only the answer is missing: the broker accepted it
        elif current.failure and current.has_bare and connection is not None and connection.closed_by == 1:
            current.message = "the broker closed the connection"
        elif not current.failure and current.last_answer in _UNFINISHED and not (follows and is_last) and is_closed:
            current.failure = "unfinished"
            current.message = f"nothing followed {MESSAGES[current.last_answer]}"
    if current.failure is None:
        current.failed_at = None
    return current.rounds > 0 or current.failure is not None
