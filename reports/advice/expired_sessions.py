"""SASL sessions that expire: a client does not authenticate again, and the broker closes its connection."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from kafkatap.dissector.dtypes import ANSWERED, UNANSWERED
from kafkatap.kernels.arrays import is_among

from .. import units
from ..counting.count_forms import CONNECTION_ROWS
from ..finding_words import counted as many
from ..finding_words import listed
from ..findings import Finding
from ..section_parts.counted import (
    BROKER,
    CLIENT,
    CONNECTION,
    CONNECTIONS,
    PAIR,
    counted,
    largest,
    latest,
    least,
    total,
)
from ..section_parts.section import SectionInput
from .parties import broker_party, client_words
from .signature import Signature, spanning
from .stretches import lengths_in_words

#: Connections of a client.
_LEAST = 2
#: From the first request after the session until the broker closes: it does not read on.
_SOON_NS = units.SECOND
#: Share of the lifetime by which a request may be captured too early: the answer reached the capture later than the
#: broker's clock began.
_SLACK = 20
_PACKETS = 10
_SASL = (17, 36)

#: `lifetime_ms`: of the latest session. `first`: of requests that were not answered.
_SESSIONS = counted(
    "advice.sessions", CONNECTION | PAIR, lambda x: (x.outcome == ANSWERED) & (x.error_code == 0),
    of=("sasl answer",), newest="since", rows=CONNECTION_ROWS,
    since=largest("response_last"), lifetime_ms=latest("lifetime_ms"), first=least(), packet=least(),
    closed_at=largest(), unanswered=total(),
)  # fmt: skip
_REQUESTS = _SESSIONS.also(
    (), lambda x: (x.outcome == UNANSWERED) & ~is_among(x.api_key, _SASL) & (x.closed_by == 1),
    first="request_first", packet="request_packet_first", unanswered=1,
)  # fmt: skip
_ENDED = _SESSIONS.also(
    CONNECTIONS, lambda x: (x.closed_by == 1) & (x.unanswered > 0) & (x.sasl_mechanism != -1), closed_at="closed_at"
)


class _Session(NamedTuple):
    """A connection that a broker closed at the first request after its session."""

    connection: int
    who: tuple[int, ...]
    broker: tuple[int, ...]
    lifetime: int
    first: int
    last: int
    packet: int
    unanswered: int


def expired(given: SectionInput) -> Iterator[_Session]:
    """The connections whose sessions expired."""
    of_connection: dict[int, list[dict[str, int]]] = defaultdict(list)
    if not (given.values(_SESSIONS.name)["lifetime_ms"] > 0).any():
        return
    for row in given.rows(_SESSIONS.name):
        if row["connection"] != -1:
            of_connection[row["connection"]].append(row)
    for connection, rows in of_connection.items():
        session = max(rows, key=lambda row: row["since"])
        lifetime = session["lifetime_ms"] * 1_000_000
        if session["since"] <= 0 or lifetime <= 0:
            continue
        first, closed_at = min(row["first"] for row in rows), max(row["closed_at"] for row in rows)
        unanswered = sum(row["unanswered"] for row in rows)
        is_after = first >= session["since"] + lifetime - lifetime // _SLACK
        if is_after and unanswered > 0 and 0 <= closed_at - first <= _SOON_NS:
            client, broker = (tuple(session[name] for name in names) for names in (CLIENT, BROKER))
            yield _Session(
                connection, client, broker, lifetime, first, closed_at, min(row["packet"] for row in rows), unanswered
            )  # fmt: skip


def _findings(given: SectionInput) -> Iterator[Finding]:
    context = given.context
    of_client: dict[tuple[int, ...], list[_Session]] = defaultdict(list)
    for session in given.once(expired):
        of_client[session.who].append(session)
    for (client, ip), sessions in of_client.items():
        if len(sessions) < _LEAST:
            continue
        brokers = [broker_party(context, *end) for end in dict.fromkeys(session.broker for session in sessions)]
        lifetimes = [session.lifetime for session in sessions]
        text = (
            f"{client_words(context, client, ip)} does not authenticate again: "
            f"{listed([broker.name for broker in brokers])} closed {many(len(sessions), 'connection')} at the first "
            f"request after a SASL session of {lengths_in_words(lifetimes)}"
        )
        row = spanning([session._asdict() for session in sessions]) | {"client_id": client, "client_ip": ip}
        made = EXPIRED_SESSIONS.found(
            given, row, text, 0,
            {"connections": len(sessions), "lifetime_ns": min(lifetimes),
             "unanswered": sum(session.unanswered for session in sessions)},
            (("sections", "auth"),), packets=tuple(session.packet for session in sessions[:_PACKETS]),
        )  # fmt: skip
        yield made._replace(parties=(*made.parties, *brokers))


EXPIRED_SESSIONS = Signature(
    "session_expired",
    "SASL sessions expire, as the client does not authenticate again",
    "The answer to SaslAuthenticate has a session lifetime. A request that comes later on this connection is not "
    "answered: the broker closes it.",
    "connections.max.reauth.ms",
    "Use a client that authenticates again on its connections (KIP-368; Kafka's Java clients do since 2.2), or raise "
    "`connections.max.reauth.ms` of the broker. OAUTHBEARER: tokens that are valid for longer.",
    f"{_LEAST} connections of a client whose first request without an answer came after the lifetime, or less than "
    f"1 / {_SLACK} of it before, and that the broker closed within {units.duration(_SOON_NS)}. Time lost: unknown.",
    _findings,
    counts=(_SESSIONS, _REQUESTS, _ENDED),
    label="session expired",
)
