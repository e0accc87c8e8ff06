"""Clients that ask far more often than they need to: just inside and just outside of the rule."""

from __future__ import annotations

from typing import Any

import pytest

from kafkatap.reports.advice.floods import FLOODS_OF_REQUESTS
from kafkatap.reports.findings import Finding
from tests.reports.rows import MS, START, exchange, result

from .made_input import SECOND, given_of

_FETCH, _METADATA, _COMMIT = 1, 3, 8


def asked(api: int, count: int, lasts: float, **columns: Any) -> list[Any]:
    """Requests of one connection over some seconds."""
    usual = {
        "api_key": api,
        "api_version": 4,
        "connection": 1,
        "response_bytes": 70,
        "min_bytes": 0,
        "max_wait_ms": 500,
    }
    times = [int(n * lasts * SECOND) // (count - 1) for n in range(count)]
    return [exchange(n, at, MS // 10, **(usual | columns)) for n, at in enumerate(times)]


def findings(exchanges: list[Any], failed: int = 0) -> list[Finding]:
    results = [result(n, 5) for n in range(failed)]
    return list(FLOODS_OF_REQUESTS.findings(given_of(exchanges, results=results)))


@pytest.mark.parametrize(
    ("rows", "is_named"),
    [
        (asked(_FETCH, 100, 2), True),
        (asked(_FETCH, 99, 2), False),
        (asked(_FETCH, 50, 1), True),
        (asked(_FETCH, 50, 0.99), False),
        (asked(_FETCH, 500, 2, min_bytes=1), False),
        (asked(_FETCH, 500, 2, min_bytes=1, max_wait_ms=10), True),
        (asked(_FETCH, 500, 2, min_bytes=1, max_wait_ms=11), False),
        (asked(_FETCH, 500, 2, response_bytes=256), True),
        (asked(_FETCH, 500, 2, response_bytes=257), False),
        (asked(_METADATA, 50, 5), True),
        (asked(_METADATA, 49, 5), False),
        (asked(_METADATA, 50, 4.9), False),
        (asked(_COMMIT, 100, 5), True),
        (asked(_COMMIT, 99, 5), False),
        (asked(12, 500, 5), False),
        ([*asked(_COMMIT, 90, 5), *asked(_COMMIT, 90, 5, connection=2)], False),
    ],
)
def test_thresholds(rows: list[Any], is_named: bool) -> None:
    for n, row in enumerate(rows):
        row["exchange"] = n
    assert bool(findings(rows)) == is_named


@pytest.mark.parametrize(("failed", "is_named"), [(49, True), (50, False)])
def test_errors_explain_metadata(failed: int, is_named: bool) -> None:
    assert bool(findings(asked(_METADATA, 100, 5), failed)) == is_named


def test_the_line_has_rate_size_setting_and_time() -> None:
    (one,) = findings(asked(_FETCH, 201, 2))
    assert one.text == (
        'client "billing" (10.0.0.1): 201 Fetch requests, 100 a second, for 2.00 s, nearly all with nothing to read '
        "(70 B on average): fetch.min.bytes=0 lets the broker answer at once"
    )
    assert one.setting.startswith("fetch.min.bytes")
    assert (one.begin, one.end) == (START, START + 2 * SECOND)
    (two,) = findings(asked(_COMMIT, 501, 5))
    assert two.setting.startswith("when it commits")
    assert two.text.endswith("501 OffsetCommit requests, 100 a second, for 5.00 s")
    (three,) = findings(asked(_METADATA, 541, 54))
    assert three.text.endswith("541 Metadata requests, 10 a second, all along, with 37.0 KiB of responses")
    (four,) = findings(asked(_METADATA, 531, 53))
    assert ", for 53.0 s, " in four.text
