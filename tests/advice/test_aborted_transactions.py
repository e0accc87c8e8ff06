"""A producer that aborts each of its transactions: just inside and just outside of the rule."""

from __future__ import annotations

from typing import Any

import pytest

from kafkatap.reports.advice.aborted_transactions import ABORTED_TRANSACTIONS
from kafkatap.reports.findings import Finding
from tests.reports.rows import GROUP, START, VERSION, exchange, fact

from .made_input import SECOND, given_of

_END_TXN = 26
INVALID_TXN_STATE = 48


def found(ends: str, code: int = 0) -> list[Finding]:
    """Of a producer that ends a transaction each second: `a` aborts it, `c` commits it, `x` tries to abort it in vain,
    of another id `o` aborts it."""
    exchanges: list[Any] = []
    facts: list[Any] = []
    for n, how in enumerate(ends, 1):
        exchanges.append(exchange(n, n * SECOND, api_key=_END_TXN, connection=1))
        name, error = (VERSION if how == "o" else GROUP), (INVALID_TXN_STATE if how == "x" else 0)
        facts += [
            fact(n, "end transaction", transactional_id=name, producer_id=7, producer_epoch=1, committed=how == "c"),
            fact(n, "ended transaction", error_code=error),
        ]
    return list(ABORTED_TRANSACTIONS.findings(given_of(exchanges, facts=facts)))


@pytest.mark.parametrize(
    ("ends", "is_named"),
    [
        ("aaaaa", True),
        ("aaaa", False),
        ("aaaaac", False),
        ("aacaaaa", False),
        ("ccaaaaa", True),
        ("aaaaxxxxx", False),
        ("aaaaooooo", True),
        ("aaaaoooo", False),
        ("c" * 20 + "ac" * 20, False),
    ],
)
def test_thresholds(ends: str, is_named: bool) -> None:
    assert bool(found(ends)) == is_named


def test_the_line_says_who_how_many_and_since_when() -> None:
    (one,) = found("ccaaaaaaaa")
    assert one.text == (
        'transactional id "group-1" of client "billing" (10.0.0.1): its producer aborted the last 8 of 10, for 7.00 s, '
        "and committed none since: readers of committed records get nothing of it"
    )
    assert (one.begin or 0) // SECOND == START // SECOND + 3
    assert one.numbers == {"aborts": 8, "transactions": 10, "committed": 2}
    (all_of_them,) = found("aaaaaa")
    assert "aborted all 6 transactions, for 5.00 s" in all_of_them.text
