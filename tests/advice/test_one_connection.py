"""What `one_connection` is on: many requests ahead, and not few slow ones; `single_records`: a rate. By hand."""

from __future__ import annotations

from typing import Any

import pytest

from kafkatap.reports.connection_words import H_COMPLETE
from kafkatap.reports.section_parts.section import SectionInput
from kafkatap.reports.section_parts.section_counts import SectionCounts
from kafkatap.reports.sections.advice import findings
from tests.reports.rows import MS, batch, connection, context, counted, exchange

PRODUCE, METADATA = 0, 3
#: Requests that arrive at once, and how often they do.
_BURST, _BURSTS = 60, 8


def burst(begin: int, first_api: int, first_ms: int, behind_what: str = "") -> list[Any]:
    """Requests that a broker handles one after another. The first one takes it `first_ms`, the others 2 ms each.
    `behind_what`: a column that has all of the time behind others too."""
    made, behind = [], 0
    for n in range(_BURST):
        broker = first_ms * MS if n == 0 else 2 * MS
        made.append(exchange(
            begin * _BURST + n, begin * 2_000 * MS, api_key=PRODUCE if n else first_api, connection=7,
            hol_wait_ns=behind, broker_ns=broker, total_ns=behind + broker,
            **({behind_what: behind} if behind_what else {}),
        ))  # fmt: skip
        behind += broker
    return made


def ids(first_api: int, first_ms: int, runs: int = 1, behind_what: str = "") -> list[str]:
    """The findings on bursts that several runs read, each a part of them."""
    bursts = [burst(n, first_api, first_ms, behind_what) for n in range(_BURSTS)]
    exchanges = [row for rows in bursts for row in rows]
    total = SectionCounts(("first-lines",), 1000, lambda: 0)
    for run in range(runs):
        part = SectionCounts(("first-lines",), 1000, lambda: 0)
        part.add(batch(exchanges[run::runs]))
        part.finish()
        total.merge(part)
    return [finding.id for finding in findings(SectionInput(total, counted(exchanges), context(), {}))]


@pytest.mark.parametrize("runs", [1, 3])
def test_many_requests_ahead_are_named(runs: int) -> None:
    assert ids(PRODUCE, 2, runs) == ["one_connection"]


@pytest.mark.parametrize("runs", [1, 3])
@pytest.mark.parametrize("api", [PRODUCE, METADATA])
def test_requests_behind_a_slow_one_are_not(api: int, runs: int) -> None:
    """The broker stalls for 300 ms. The requests that come meanwhile wait for that one, whatever its API is."""
    assert ids(api, 300, runs) == []


@pytest.mark.parametrize(
    "cause",
    ["hol_throttle_wait_ns", "hol_poll_wait_ns", "hol_unknown_wait_ns", "hol_loss_wait_ns", "hol_round_trip_ns"],
)
def test_waits_behind_requests_that_wait_for_something_else_are_not(cause: str) -> None:
    """A quota, data, lost segments or the path: more connections shorten none of these."""
    assert ids(PRODUCE, 2, behind_what=cause) == []


@pytest.mark.parametrize(("apart_ms", "is_named"), [(8, True), (1, False)])
def test_what_a_client_sends_at_once_is_no_rate(apart_ms: int, is_named: bool) -> None:
    """150 small requests within 150 ms: a firewall had held them back."""
    rows = [exchange(n, n * apart_ms * MS, api_key=PRODUCE) for n in range(150)]
    counts = SectionCounts(("first-lines",), 1000, lambda: 0)
    counts.add(batch(rows))
    counts.finish()
    given = SectionInput(counts, counted(rows), context(), {})
    assert ("single_records" in [finding.id for finding in findings(given)]) is is_named


@pytest.mark.parametrize(("of_each", "is_named"), [(1, True), (5, False)])
def test_connections_are_judged_by_all_of_their_requests(of_each: int, is_named: bool) -> None:
    """A selection has one request of each."""
    counts = SectionCounts(("first-lines",), 1000, lambda: 0)
    rows = [exchange(n, n * MS, api_key=PRODUCE, client_port=40_000 + n) for n in range(12)]
    counts.add(batch(rows))
    for n in range(12):
        counts.add_connections(connection(client_port=40_000 + n, handshake=H_COMPLETE, exchanges=of_each))
    counts.finish()
    given = SectionInput(counts, counted(rows), context(), {})
    assert ("connection_each_message" in [finding.id for finding in findings(given)]) is is_named


def test_few_slow_requests_among_many_change_nothing() -> None:
    assert ids(PRODUCE, 30) == ["one_connection"]
