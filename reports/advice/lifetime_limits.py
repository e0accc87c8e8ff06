"""Connections of a broker's address that all end at one age, though they are in use: something limits their life."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from .. import units
from ..finding_words import counted as many
from ..finding_words import listed
from ..findings import Finding
from ..section_parts.section import SectionInput
from .connection_limit import OPENED
from .expired_sessions import EXPIRED_SESSIONS, expired
from .parties import broker_party, client_option, client_parties, client_words
from .signature import Signature, spanning
from .stretches import COUNT_STRETCHES, PAUSE_NS, lengths_in_words, stretches_of

#: Connections of that age, and as many times at which some of them end.
_LEAST = 3
#: Younger ones end for many reasons.
_AGE_NS = 10 * units.SECOND
#: How far their ages are apart at most, as a share.
_APART = 0.03
#: Times that are closer are one: what ends all connections of a broker takes that long.
_ONCE_NS = 2 * units.SECOND
_PACKETS = 10
#: Address and port of a broker, as numbers of the context.
_End = tuple[int, int]


class _Limit(NamedTuple):
    """`rows`: of OPENED. `ages`: of these."""

    end: _End
    rows: Sequence[dict[str, int]]
    ages: Sequence[int]


def _age(row: dict[str, int]) -> int:
    """How long a connection lived, or was seen to live."""
    return (row["closed_at"] if row["closed_at"] >= 0 else row["last"]) - row["first"]


def _limits(given: SectionInput) -> Iterator[_Limit]:
    of_broker: dict[_End, list[dict[str, int]]] = defaultdict(list)
    for row in given.rows(OPENED.name):
        if row["connection"] == -1:
            return  # there were too many to keep each: others may have lived longer
        of_broker[row["broker_ip"], row["broker_port"]].append(row)
    explained = {session.connection for session in given.once(expired)}
    for end, rows in of_broker.items():
        ended = [
            row for row in rows
            if row["is_whole"] and row["exchanges"] and not row["by_client"] and row["closed_at"] >= 0
            and _age(row) >= _AGE_NS and row["connection"] not in explained
        ]  # fmt: skip
        if len(ended) < _LEAST or max(map(_age, ended)) - min(map(_age, ended)) > _APART * float(
            np.median([*map(_age, ended)])
        ):
            continue
        if max(map(_age, rows)) > max(map(_age, ended)) * (1 + _APART):
            continue
        ended = _in_use(given, ended)
        if _times(ended, rows) >= _LEAST:
            yield _Limit(end, sorted(ended, key=lambda row: row["closed_at"]), [*map(_age, ended)])


def _in_use(given: SectionInput, rows: list[dict[str, int]]) -> list[dict[str, int]]:
    """Those that carried messages until they ended."""
    connections, _ = stretches_of(given, {(row["client_ip"], row["broker_ip"]) for row in rows})
    return [
        row for row in rows
        if (one := connections.get(row["connection"])) and one.stretches[-1].last >= row["closed_at"] - PAUSE_NS
    ]  # fmt: skip


def _times(ended: Sequence[dict[str, int]], rows: Sequence[dict[str, int]]) -> int:
    """At how many times some ended while other connections of the broker went on."""
    found, last = 0, -_ONCE_NS
    for row in sorted(ended, key=lambda row: row["closed_at"]):
        at = row["closed_at"]
        goes_on = any(
            one["used"] and one["first"] < at - _ONCE_NS and one["last"] > at + _ONCE_NS
            and not 0 <= one["closed_at"] <= at + _ONCE_NS
            for one in rows
        )  # fmt: skip
        if goes_on and at >= last + _ONCE_NS:
            found, last = found + 1, at
    return found


def _findings(given: SectionInput) -> Iterator[Finding]:
    context = given.context
    for limit in _limits(given):
        broker = broker_party(context, *limit.end)
        clients = [who for who, _ in Counter((r["client_id"], r["client_ip"]) for r in limit.rows).most_common()]
        text = (
            f"{many(len(limit.rows), 'connection')} of {listed([client_words(context, *who) for who in clients])} to "
            f"{broker.name} ended at one age, {lengths_in_words(sorted(limit.ages))}, though they were in use, and "
            "none lived longer: the broker's end closed them, while its others went on"
        )
        people = tuple(party for who in clients for party in client_parties(context, *who))
        row = spanning(limit.rows)
        numbers = {
            "connections": len(limit.rows), "clients": len(clients), "age_ns": int(np.median([*limit.ages])),
            "unanswered": sum(one["unanswered"] for one in limit.rows),
        }  # fmt: skip
        option = client_option(context, clients[0][0]) if len({who[0] for who in clients}) == 1 else ()
        yield LIFETIME_LIMITS.found(
            given, {"first": limit.rows[0]["closed_at"], "last": row["last"]}, text, 0, numbers,
            (("sections", "connections"), *option), packets=tuple(one["packet"] for one in limit.rows[:_PACKETS]),
            parties=(*dict.fromkeys(people), broker),
        )  # fmt: skip


LIFETIME_LIMITS = Signature(
    "lifetime_limit",
    "connections end at one age (load balancer, proxy)",
    "The broker's end closes connections to an address at the same age, though they carry messages, while others "
    "stay open.",
    "the longest time of a connection at the load balancer or proxy, connections.max.reauth.ms",
    "Raise that time at the load balancer or proxy in front of the broker, or remove it: clients connect again, and "
    "send what was not answered again. Under TLS it may be a SASL session that the client did not renew "
    f"(`connections.max.reauth.ms`, as for `{EXPIRED_SESSIONS.id}`).",
    f"{_LEAST} connections whose begin was captured, {units.duration(_AGE_NS)} old or older, {_APART:.0%} apart in "
    f"age at most, that had a message in the last {units.duration(PAUSE_NS)}, and ended at {_LEAST} times, each "
    f"{units.duration(_ONCE_NS)} apart, while another one went on. None of the broker lived longer. Time lost: "
    "unknown.",
    _findings,
    counts=(OPENED,),
    batch_counts=(COUNT_STRETCHES,),
    label="connections cut",
)
