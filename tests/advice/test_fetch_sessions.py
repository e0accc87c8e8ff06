"""Fetch sessions that no reader goes on with: just inside and just outside of the rule."""

from __future__ import annotations

from typing import Any

import pytest

from kafkatap.reports.advice.fetch_sessions import FETCH_SESSIONS
from kafkatap.reports.findings import NOTE, Finding
from tests.reports.rows import exchange, fact

from .advice_samples import found, truth
from .made_input import SECOND, given_of

NEW, NONE, SESSION = 0, -1, 77


def fetches(
    count: int, epoch: int = NEW, given: int = 0, partitions: int = 2, error: int = 0, first: int = 1, **columns: Any
) -> tuple[list[Any], list[Any]]:
    """Fetch requests, one a second: exchanges and facts."""
    exchanges, facts = [], []
    for n in range(first, first + count):
        exchanges.append(exchange(n, n * SECOND, **{"connection": 1, **columns}))
        facts.append(fact(n, "fetch", session_epoch=epoch))
        facts += [fact(n, "fetch partition", partition=p, offset=5) for p in range(partitions)]
        facts.append(fact(n, "fetched", session_id=given, error_code=error))
    return exchanges, facts


def findings(*made: tuple[list[Any], list[Any]]) -> list[Finding]:
    exchanges, facts = ([row for one in made for row in one[side]] for side in (0, 1))
    return list(FETCH_SESSIONS.findings(given_of(exchanges, facts=facts)))


def test_the_broker_without_room_is_named_with_its_readers() -> None:
    (finding,) = found("fetch-sessions")
    given = truth("fetch-sessions")
    assert finding.severity == NOTE
    assert [party.name for party in finding.parties if party.kind == "client"] == given["readers"]
    assert f"name {given['partitions']} partitions each" in finding.text
    assert finding.numbers["refused"] == finding.numbers["asked"] == finding.numbers["fetches"]
    assert found("fetch-sessions-right") == ()


def test_it_names_broker_client_and_share() -> None:
    (refused,) = findings(fetches(20), fetches(5, epoch=3, given=SESSION, first=50))
    assert refused.text == (
        'broker 10.0.0.2:9092 gives no fetch session to client "billing" (10.0.0.1): 20 of 25 Fetch requests asked for '
        "one in vain, and name 2 partitions each (2.0 KiB, 1 connection)"
    )
    (kept,) = findings(fetches(20, given=SESSION))
    assert kept.text == (
        'client "billing" (10.0.0.1) opens a new fetch session at broker 10.0.0.2:9092 in 20 of 20 Fetch requests, and '
        "keeps none: each pushes one of another reader out of the broker's cache (2.0 KiB, 1 connection)"
    )


@pytest.mark.parametrize(
    ("made", "is_named"),
    [
        ([fetches(20)], True),
        ([fetches(19)], False),
        ([fetches(20), fetches(20, epoch=3, first=50)], True),
        ([fetches(20), fetches(21, epoch=3, first=50)], False),
        ([fetches(20, partitions=1)], False),
        ([fetches(20, partitions=1, given=SESSION)], True),
        ([fetches(20, epoch=NONE)], False),
        ([fetches(20, error=70)], False),
        ([fetches(10), fetches(10, first=50, connection=2)], False),
    ],
)
def test_thresholds(made: list[tuple[list[Any], list[Any]]], is_named: bool) -> None:
    assert bool(findings(*made)) == is_named
