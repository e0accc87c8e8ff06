"""Two members with one group.instance.id: just inside and just outside of the rule."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from kafkatap.reports.advice.same_instance import SAME_INSTANCE
from kafkatap.reports.findings import ERROR, Finding
from tests.reports.rows import GROUP, MS, ORDERS, START, VERSION, exchange, fact

from .made_input import SECOND, given_of

_HEARTBEAT, FENCED, ILLEGAL_GENERATION = 12, 82, 22
INSTANCE, OTHER = VERSION, ORDERS
#: A client by the numbers of its client id, and of its address.
A, B = (0, 0), (ORDERS, 2)


def found(beats: Sequence[tuple[tuple[int, int], int, int]]) -> list[Finding]:
    """Of heartbeats, one each second: the client, the instance, and the error code."""
    exchanges: list[Any] = []
    facts: list[Any] = []
    for n, ((client, ip), instance, code) in enumerate(beats, 1):
        exchanges.append(exchange(n, n * SECOND, api_key=_HEARTBEAT, client_id=client, client_ip=ip, connection=ip))
        facts += [
            fact(n, "heartbeat", group=GROUP, member=n, instance=instance),
            fact(n, "heartbeat answer", error_code=code),
        ]
    return list(SAME_INSTANCE.findings(given_of(exchanges, facts=facts)))


@pytest.mark.parametrize(
    ("beats", "is_named"),
    [
        ([(A, INSTANCE, 0), (B, INSTANCE, 0), (A, INSTANCE, FENCED)], True),
        ([(A, INSTANCE, 0), (B, INSTANCE, 0)], False),  # one took the place of the other
        ([(A, INSTANCE, 0), (B, OTHER, 0), (A, INSTANCE, FENCED)], False),
        ([(A, INSTANCE, 0), (B, INSTANCE, 0), (A, INSTANCE, ILLEGAL_GENERATION)], False),
        ([(A, INSTANCE, FENCED)] * 3, True),
        ([(A, INSTANCE, FENCED)] * 2, False),
        ([(A, -1, FENCED)] * 5, False),
    ],
)
def test_thresholds(beats: Sequence[tuple[tuple[int, int], int, int]], is_named: bool) -> None:
    assert bool(found(beats)) == is_named


def test_the_line_names_both() -> None:
    (one,) = found([(A, INSTANCE, 0), (B, INSTANCE, 0), (A, INSTANCE, FENCED), (B, INSTANCE, 0), (A, INSTANCE, FENCED)])
    assert one.text.startswith(
        'client "billing" (10.0.0.1), client "orders" (10.0.0.9) have the same group.instance.id '
    )
    assert one.text.endswith('in group "group-1", and expel each other: 2 times in 2.00 s')
    assert one.severity == ERROR
    assert [party.name for party in one.parties] == ["group-1", "billing", "10.0.0.1", "orders", "10.0.0.9"]
    assert (one.begin, one.end) == (START + 3 * SECOND + MS, START + 5 * SECOND + MS)
