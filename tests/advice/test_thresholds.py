"""Signatures just inside and just outside of their thresholds, from made exchanges through the counts of a report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from kafkatap.dissector.dtypes import NO_REPLY_EXPECTED, UNANSWERED
from kafkatap.reports.advice.fetch_waits import FETCH_WAITS
from kafkatap.reports.advice.nagle import NAGLE
from kafkatap.reports.advice.request_timeouts import REQUEST_TIMEOUTS
from kafkatap.reports.advice.single_records import SINGLE_RECORDS
from kafkatap.reports.connection_words import P_FOREIGN
from kafkatap.reports.findings import NOTE, WARNING
from tests.reports.rows import MS, START, connection, exchange

from .made_input import SECOND, found

# ------------------------------------------------------------ nagle


def delayed(count: int, other_ms: int = 0, **columns: Any) -> list[Any]:
    """Exchanges of 50 ms of which 40 ms wait for an ACK, and one without such a wait."""
    rows = [exchange(n, n * SECOND, 50 * MS, nagle_ns=40 * MS + n, api_key=0, **columns) for n in range(count)]
    return [*rows, *([exchange(count, 0, other_ms * MS, api_key=0)] if other_ms else [])]


def test_nagle() -> None:
    (one,) = found(NAGLE, delayed(3))
    assert one.numbers == {
        "nagle_ns": 120 * MS + 3, "mean_ns": 40 * MS + 1, "longest_ns": 40 * MS + 2, "exchanges": 3,
        "share": (120 * MS + 3) / (150 * MS),
    }  # fmt: skip
    assert (one.time_lost_ns, one.begin, one.end) == (120 * MS + 3, START, START + 2 * SECOND + 50 * MS)
    assert one.packets == (1,)
    assert one.text.startswith('client "billing" (10.0.0.1): 80.0 % of its time passes until a delayed ACK')


@pytest.mark.parametrize(
    ("exchanges", "is_named"),
    [
        (delayed(2), False),
        (delayed(3), True),
        (delayed(3, other_ms=450), True),  # 120 of 600 ms
        (delayed(3, other_ms=451), False),
        (
            [
                *(exchange(n, 0, 50 * MS, nagle_ns=40 * MS, api_key=0) for n in range(3)),
                exchange(3, 0, 450 * MS, api_key=0),
            ],
            True,
        ),
        ([*delayed(2), exchange(5, 0, 50 * MS, nagle_ns=40 * MS, outcome=UNANSWERED)], False),
        ([*delayed(2), exchange(5, 0, 50 * MS, nagle_ns=0, api_key=0)], False),
        ([*delayed(2), exchange(5, 0, 50 * MS, nagle_ns=1, api_key=0)], True),
    ],
)
def test_thresholds_of_nagle(exchanges: list[Any], is_named: bool) -> None:
    assert bool(found(NAGLE, exchanges)) == is_named


# ------------------------------------------------------------ Fetches that wait for more bytes


def fetches(count: int, full: int = 0, wait_ms: int = 200, size: int = 1000, **columns: Any) -> list[Any]:
    """Fetches of 1 MB that were answered with few bytes when the wait was over, and others that were full."""
    usual: dict[str, Any] = {"min_bytes": 1 << 20, "max_wait_ms": wait_ms, "request_bytes": 100}
    few = {**usual, "long_poll": 1, "response_bytes": size, **columns}
    late = [exchange(n, n * SECOND, wait_ms * MS, **few) for n in range(count)]
    return [*late, *(exchange(count + n, 0, MS, response_bytes=2 << 20, **usual) for n in range(full))]


def test_fetch_waits() -> None:
    (one,) = found(FETCH_WAITS, fetches(3, full=2))
    assert one.time_lost_ns == 300 * MS  # half of the waits: records came at any time in them
    assert (one.begin, one.packets) == (START, (2,))


@pytest.mark.parametrize(
    ("exchanges", "is_named"),
    [
        (fetches(2), False),
        (fetches(3), True),
        (fetches(3, full=3), True),
        (fetches(3, full=4), False),
        (fetches(3, size=214), False),  # as large as a response without records may be
        (fetches(3, size=215), True),
        (fetches(3, wait_ms=199), False),  # 99.5 ms each
        (fetches(3, min_bytes=1), False),
        (fetches(3, min_bytes=1000), False),  # they reached it
        (fetches(3, min_bytes=1001), True),
        (fetches(3, size=2 << 20), False),
        (fetches(3, api_key=78), False),
    ],
)
def test_thresholds_of_fetch_waits(exchanges: list[Any], is_named: bool) -> None:
    assert bool(found(FETCH_WAITS, exchanges)) == is_named


# ------------------------------------------------------------ single records


def sends(count: int = 101, seconds: float = 1.01, size: int = 1024, total: int = 1, **columns: Any) -> list[Any]:
    """Small Produce requests at the same pace. `seconds`: from the first to the last. `total`: of each, ms."""
    step = round(seconds * SECOND) // (count - 1)
    return [exchange(n, n * step, total * MS, api_key=0, request_bytes=size, **columns) for n in range(count)]


def waits_of(count: int) -> list[Any]:
    """101 requests, of which so many wait for others."""
    return [exchange(n, n * 10 * MS, 50 * MS, api_key=0, request_bytes=1024, hol_wait_ns=40 * MS * (n < count))
            for n in range(101)]  # fmt: skip


@pytest.mark.parametrize(
    ("exchanges", "severity"),
    [
        (sends(seconds=2.02), NOTE),  # fifty a second
        (sends(seconds=2.0201), None),
        (sends(100, seconds=1.98), NOTE),
        (sends(99, seconds=1.96), None),
        (sends(seconds=1), NOTE),
        (sends(seconds=0.999), None),
        (sends(size=1025), None),
        (sends(client_ip=-1), None),  # of many clients, which have no counts of their own
        (sends(total=50, hol_wait_ns=10 * MS), WARNING),  # a fifth of its time
        (sends(total=50, hol_wait_ns=10 * MS - 1), NOTE),
        (sends(total=40, hol_wait_ns=10 * MS - 1), NOTE),  # nobody notices less
        (waits_of(50), NOTE),  # most do not wait
        (waits_of(51), WARNING),
        (sends(hol_wait_ns=20 * MS, hol_poll_wait_ns=20 * MS), NOTE),
        (sends(hol_wait_ns=20 * MS, hol_throttle_wait_ns=20 * MS), NOTE),
        (sends(hol_wait_ns=20 * MS, hol_loss_wait_ns=20 * MS), NOTE),
        (sends(hol_wait_ns=20 * MS, hol_round_trip_ns=20 * MS), NOTE),
        (sends(hol_wait_ns=20 * MS, hol_unknown_wait_ns=20 * MS), NOTE),
        (sends(outcome=NO_REPLY_EXPECTED), NOTE),  # acks=0
    ],
)
def test_thresholds_of_single_records(exchanges: list[Any], severity: str | None) -> None:
    named = found(SINGLE_RECORDS, exchanges)
    assert [one.severity for one in named] == ([] if severity is None else [severity])
    for one in named:
        assert ("; each waits " in one.text) == (severity == WARNING) == (one.time_lost_ns > 0)
        assert (one.begin, one.packets) == (START, ())
    for one in named if severity == WARNING else ():
        assert one.time_lost_ns == one.numbers["hol_wait_ns"] in (101 * 10 * MS, 51 * 40 * MS)


# ------------------------------------------------------------ requests that are given up


def given_up(waits: Sequence[int], answered_ms: int = 5_000, **columns: Any) -> tuple[list[Any], list[Any]]:
    """Requests on connections of their own, closed by the client after so many ms without an answer; and one that the
    broker answered."""
    rows, ends = [], []
    for n, ms in enumerate(waits):
        begin = START + n * SECOND
        rows.append(exchange(n, n * SECOND, outcome=UNANSWERED, api_key=0, connection=n, **columns))
        ends.append(connection(connection=n, unanswered=1, closed_by=0, closed_at=begin + ms * MS, first=begin))
    rows.append(exchange(99, 0, answered_ms * MS, api_key=0, connection=99, correlation_id=1))
    return rows, ends


def test_request_timeouts() -> None:
    """The broker answers one of them later, and others after more time."""
    rows, ends = given_up([2_000, 2_100, 2_000])
    rows[1] = exchange(1, SECOND, 3_000 * MS, api_key=0, connection=1)
    (one,) = found(REQUEST_TIMEOUTS, rows, ends)
    assert one.numbers == {
        "given_up": 3, "timeout_ns": 2_000 * MS, "answered_later": 1, "needed_ns": 3_000 * MS, "others_ns": 5_000 * MS,
    }  # fmt: skip
    assert (one.time_lost_ns, one.begin, one.end) == (6_100 * MS, START, START + 4 * SECOND)
    assert one.packets == (1, 3, 5)
    assert "the broker answered 1 of them later, after up to 3.00 s" in one.text


@pytest.mark.parametrize(
    ("waits", "is_named"),
    [
        ([8_000] * 3, True),
        ([2_001] * 3, True),
        ([2_000] * 3, False),  # then the broker has to answer
        ([8_000, 8_000, 500], False),
    ],
)
def test_fetches_that_the_broker_may_hold_for_longer(waits: list[int], is_named: bool) -> None:
    """Nobody answers so late; the requests say so."""
    rows, ends = given_up([2_000] * 3, answered_ms=2_000)
    for row, ms in zip(rows, waits, strict=False):
        row["api_key"], row["max_wait_ms"] = 1, ms
    named = found(REQUEST_TIMEOUTS, rows, ends)
    assert bool(named) == is_named
    for one in named:
        wait = "8.00 s" if waits[0] == 8_000 else "2.00 s"
        assert f"its request.timeout.ms is shorter than the {wait} that the broker is to wait for data" in one.text
        assert one.numbers["wait_ns"] == waits[0] * MS
        assert one.setting.startswith("request.timeout.ms, fetch.max.wait.ms")


def changed(number: int, row: dict[str, Any], end: dict[str, Any]) -> tuple[list[Any], list[Any]]:
    """Three requests that are given up, one of which, or its connection, is otherwise."""
    rows, ends = given_up([2_000] * 3)
    for name, value in row.items():
        rows[number][name] = value
    for name, value in end.items():
        ends[number][name] = value
    return rows, ends


@pytest.mark.parametrize(
    ("row", "end"),
    [
        ({"api_key": 11}, {}),  # the group's own timeout
        ({"api_key": 14}, {}),
        ({}, {"closed_by": 1}),  # by the broker
        ({}, {"protocol": P_FOREIGN}),
        ({}, {"unanswered": 0, "total_ns": 99 * MS}),
        ({}, {"closed_at": START}),  # before the request
    ],
)
def test_connections_that_no_timeout_ends(row: dict[str, Any], end: dict[str, Any]) -> None:
    assert found(REQUEST_TIMEOUTS, *changed(1, {}, {}))
    assert not found(REQUEST_TIMEOUTS, *changed(1, row, end))


def test_the_oldest_request_of_a_connection_was_given_up() -> None:
    rows, ends = given_up([2_000] * 3)
    later = [
        exchange(10 + n, n * SECOND + 1_500 * MS, outcome=UNANSWERED, api_key=0, connection=n, correlation_id=1)
        for n in range(3)
    ]
    done = [
        exchange(20 + n, n * SECOND - 500 * MS, 200 * MS, api_key=0, connection=n, correlation_id=2) for n in range(3)
    ]
    (one,) = found(REQUEST_TIMEOUTS, [*rows, *later, *done], ends)
    assert one.numbers["timeout_ns"] == 2_000 * MS


@pytest.mark.parametrize(
    ("case", "is_named"),
    [
        (given_up([2_000] * 3), True),
        (given_up([2_000] * 2), False),
        (given_up([2_000] * 3, answered_ms=2_001), True),
        (given_up([2_000] * 3, answered_ms=2_000), False),  # nothing shows that more time helps
        (given_up([1_700, 2_000, 2_300]), True),  # 15 % apart
        (given_up([1_699, 2_000, 2_300]), False),
        (given_up([2_000] * 3 + [500, 4_000]), True),  # three of five
        (given_up([2_000] * 3 + [500, 600, 4_000]), False),
        (given_up([99] * 3), False),  # nobody sets a timeout below 100 ms
        (given_up([100] * 3), True),
    ],
)
def test_thresholds_of_request_timeouts(case: tuple[list[Any], list[Any]], is_named: bool) -> None:
    assert bool(found(REQUEST_TIMEOUTS, *case)) == is_named
