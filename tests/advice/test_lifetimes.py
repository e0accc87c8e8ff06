"""Connections that end at an age: just inside and just outside of the rules on SASL sessions, and on limits of life."""

from __future__ import annotations

from typing import Any

import pytest

from kafkatap.dissector.dtypes import UNANSWERED
from kafkatap.reports.advice.expired_sessions import EXPIRED_SESSIONS
from kafkatap.reports.advice.lifetime_limits import LIFETIME_LIMITS
from kafkatap.reports.advice.signature import Signature
from kafkatap.reports.connection_words import H_COMPLETE, H_NOT_CAPTURED
from kafkatap.reports.findings import Finding
from tests.reports.rows import FORMULA, HOSTILE, MS, START, connection, exchange, fact

from .advice_samples import of, truth
from .made_input import SECOND, found

Made = tuple[list[Any], Any, list[Any]]
AUTHENTICATE = 36
ORDERS_MECHANISM = 3


def findings(signature: Signature, *made: Made) -> list[Finding]:
    rows = sorted((row for rows, _, _ in made for row in rows), key=lambda row: int(row["request_first"]))
    facts = [one for _, _, facts in made for one in facts]
    return found(signature, rows, [row for _, row, _ in made], facts)


def session(
    number: int, after: float = 1, lifetime_ms: int = 60_000, again: float | None = None, soon: float = 0.001,
    closed_by: int = 1, is_answered: bool = False, error: int = 0, api: int = 3,
) -> Made:  # fmt: skip
    """A connection whose last request comes `after` seconds after its session. `again`: it authenticated again at that
    time, in seconds."""
    times = [0.0, *([] if again is None else [again])]
    rows = [exchange(10 * number + n, int(at * SECOND), MS, connection=number, api_key=AUTHENTICATE)
            for n, at in enumerate(times)]  # fmt: skip
    facts = [fact(10 * number + n, "sasl answer", lifetime_ms=lifetime_ms, error_code=error) for n in range(len(times))]
    begin = int(lifetime_ms * MS + after * SECOND) + MS
    outcome = {} if is_answered else {"outcome": UNANSWERED, "closed_by": 1}
    rows.append(exchange(10 * number + 5, begin, MS, connection=number, api_key=api, **outcome))
    ends = connection(
        connection=number, sasl_mechanism=ORDERS_MECHANISM, closed_by=closed_by, unanswered=int(not is_answered),
        closed_at=START + begin + int(soon * SECOND), exchanges=len(rows),
    )  # fmt: skip
    return rows, ends, facts


def test_it_names_client_broker_and_lifetime() -> None:
    (one,) = findings(EXPIRED_SESSIONS, session(1), session(2))
    assert one.text == (
        'client "billing" (10.0.0.1) does not authenticate again: 10.0.0.2:9092 closed 2 connections at the first '
        "request after a SASL session of 60.0 s"
    )
    assert [party.kind for party in one.parties] == ["client", "host", "broker"]
    assert one.numbers["unanswered"] == 2
    assert one.begin == START + 61 * SECOND + MS


@pytest.mark.parametrize(
    ("changed", "is_named"),
    [
        ({}, True),
        ({"after": -2.9}, True),
        ({"after": -3.1}, False),
        ({"soon": 1}, True),
        ({"soon": 1.1}, False),
        ({"closed_by": 0}, False),
        ({"is_answered": True}, False),
        ({"lifetime_ms": 0}, False),
        ({"again": 50}, False),
        ({"error": 58}, False),
        ({"api": AUTHENTICATE}, False),
    ],
)
def test_sessions_just_inside_and_outside(changed: dict[str, Any], is_named: bool) -> None:
    assert bool(findings(EXPIRED_SESSIONS, session(1), session(2, **changed))) == is_named


def test_one_connection_is_no_habit() -> None:
    assert not findings(EXPIRED_SESSIONS, session(1))


def limited(
    number: int, begin: float = 0, age: float = 60, idle: float = 0, handshake: int = H_COMPLETE, closed_by: int = 1,
    client: int = FORMULA, port: int = 9092,
) -> Made:  # fmt: skip
    """A connection from `begin` on, that its broker's end closes `age` seconds later, `idle` seconds after its last
    message. Its messages are 5 s apart."""
    last = age - idle
    times = [begin + n * 5 for n in range(int(last // 5) + 1)] + [begin + last - 0.01]
    who = {"connection": number, "client_id": client, "broker_port": port}
    rows = [exchange(100 * number + n, int(at * SECOND), MS, **who) for n, at in enumerate(times)]
    end = START + int((begin + age) * SECOND)
    ends = connection(
        **who, handshake=handshake, exchanges=len(rows), first=START + int(begin * SECOND), last=end,
        closed_by=closed_by, closed_at=end if closed_by >= 0 else -1,
    )  # fmt: skip
    return rows, ends, []


def others(*changed: dict[str, Any]) -> list[Made]:
    """Three connections that begin 10 s apart, and one that goes on when the last of them ends."""
    each = [{"begin": 10.0 * n} for n in range(3)]
    for n, more in enumerate(changed):
        each[n] |= more
    return [limited(n + 1, **one) for n, one in enumerate(each)] + [limited(8, 40, 50, closed_by=-1, client=HOSTILE)]


def test_it_names_ends_ages_and_clients() -> None:
    (one,) = findings(LIFETIME_LIMITS, *others())
    assert one.text.endswith(
        " to 10.0.0.2:9092 ended at one age, 60.0 s, though they were in use, and none lived longer: the broker's "
        "end closed them, while its others went on"
    )
    assert one.text.startswith("3 connections of client ")
    assert one.numbers["age_ns"] == 60 * SECOND
    assert one.begin == START + 60 * SECOND


@pytest.mark.parametrize(
    ("made", "is_named"),
    [
        (others({"age": 58.3}), True),
        (others({"age": 58.1}), False),
        (others({"idle": 5.9}), True),
        (others({"idle": 6.5}), False),
        (others({"handshake": H_NOT_CAPTURED}), False),
        (others({"closed_by": 0}), False),
        (others({"begin": 8.1}), False),  # two end together
        (others()[:3], False),  # when the last ends, no other goes on
        ([*others()[:3], limited(8, 40, 50, closed_by=-1, port=9093)], False),
        ([*others(), limited(9, 5, 61.7, closed_by=-1)], True),
        ([*others(), limited(9, 5, 61.9, closed_by=-1)], False),
        ([*others(), limited(9, 5, 30)], False),  # another age
        ([*others(), limited(9, 5, 9.9)], True),
        ([limited(n, 10.0 * n, 10.1) for n in range(1, 4)] + [limited(8, 0, 9.9, closed_by=0)], False),
    ],
)
def test_limits_just_inside_and_outside(made: list[Made], is_named: bool) -> None:
    assert bool(findings(LIFETIME_LIMITS, *made)) == is_named


def test_expired_sessions_are_no_limit_of_the_path() -> None:
    made = [session(n, after=10 * n + 0.5, soon=0.01) for n in range(1, 4)]
    assert findings(EXPIRED_SESSIONS, *made)
    assert not findings(LIFETIME_LIMITS, *made)


def test_the_client_notices_what_the_finding_counts() -> None:
    (one,) = of("session-expired", "session_expired")
    closed = truth("session-expired")["clients"]["invoice"]["closed"]
    assert one.numbers["connections"] == len(closed) == one.numbers["unanswered"]
    assert one.numbers["lifetime_ns"] == truth("session-expired")["lifetime_ms"] * MS
    assert abs((one.end or 0) / SECOND - closed[-1]) < 0.1


def test_the_proxy_ended_what_the_finding_counts() -> None:
    (one,) = of("lifetime-limit", "lifetime_limit")
    made = truth("lifetime-limit")
    ended = [row["ended"] for row in made["connections"] if row["by"] == "proxy"]
    assert one.numbers["connections"] == len(ended)
    assert abs(int(one.numbers["age_ns"]) / SECOND - made["limit_s"]) < 0.1
    assert abs((one.begin or 0) / SECOND - min(ended)) < 0.1
    assert abs((one.end or 0) / SECOND - max(ended)) < 0.1
