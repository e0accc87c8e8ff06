"""What is counted, filtered and merged."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkatap.dissector import dtypes as r
from kafkatap.reports.addresses import split_broker
from kafkatap.reports.batch import Context, rows_of
from kafkatap.reports.build import build_report
from kafkatap.reports.counting import counts as counts_module
from kafkatap.reports.counting import tally
from kafkatap.reports.counting.counts import SECOND, ReportCounts
from kafkatap.reports.model import ReportTable

from . import rows as made
from .rows import MS, START, batch, context, counted, exchange, result


def traffic(seed: int, n: int) -> tuple[list[Any], list[Any]]:
    """Random exchanges with results."""
    rng = np.random.default_rng(seed)
    exchanges, results = [], []
    for i in range(n):
        exchanges.append(
            exchange(
                i, at=int(rng.integers(0, 30 * SECOND)), broker=int(rng.integers(0, SECOND)),
                api_key=int(rng.integers(0, 4)), api_version=int(rng.integers(0, 3)),
                client_id=int(rng.integers(-1, 3)), outcome=int(rng.integers(0, 4)),
                throttle_time_ms=int(rng.integers(0, 3)), throttle_wait_ns=int(rng.integers(0, 2)),
                hol_wait_ns=int(rng.integers(0, 5)), long_poll=int(rng.integers(0, 2)),
            )
        )  # fmt: skip
        for p in range(int(rng.integers(0, 3))):
            results.append(result(i, int(rng.integers(0, 4)), partition=p))
    return exchanges, results


def tables(counts: ReportCounts) -> list[ReportTable]:
    report = build_report(counts, context())
    return [*report.tables, report.heading]


@given(st.integers(0, 1000), st.integers(1, 40), st.integers(0, 3))
@settings(max_examples=15, deadline=None)
def test_however_it_is_split_and_merged_the_reports_are_the_same(seed: int, size: int, merged: int) -> None:
    exchanges, results = traffic(seed, 60)
    whole = counted(exchanges, results, by_topic=True)
    parts = [ReportCounts(by_topic=True) for _ in range(merged + 1)]
    for start in range(0, len(exchanges), size):
        some = exchanges[start : start + size]
        numbers = {int(e["exchange"]) for e in some}
        part = parts[(start // size) % len(parts)]
        part.add(batch(some, [x for x in results if int(x["exchange"]) in numbers]))
    together = parts[-1]
    for part in parts[:-1]:
        together.merge(part)
    assert tables(together) == tables(whole)


def test_large_batches_and_small_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    exchanges, results = traffic(5, 300)
    whole = tables(counted(exchanges, results))
    monkeypatch.setattr(counts_module, "_ROOM", 128)
    assert tables(counted(exchanges, results)) == whole


def test_values_of_a_group() -> None:
    counts = counted([
        exchange(0, broker=2 * MS, throttle_time_ms=0, hol_wait_ns=5, hol_throttle_wait_ns=3, hol_poll_wait_ns=1,
                 total_ns=3 * MS),
        exchange(1, at=MS, broker=4 * MS, throttle_time_ms=30, throttle_wait_ns=7),
        exchange(2, outcome=r.UNANSWERED),
        exchange(4, outcome=r.IN_FLIGHT),
        exchange(5, outcome=r.UNANSWERED, closed_by=r.CLOSED_BY_CLIENT),
        exchange(3, outcome=r.NO_REPLY_EXPECTED, response_bytes=-1),
    ], [result(0, 3), result(0, 3, partition=1), result(1, 0)])  # fmt: skip
    assert len(counts.groups) == 1
    values = dict(zip(tally.GROUP_VALUES, counts.groups.value_rows()[0].tolist(), strict=True))
    assert values == {
        "answered": 2, "no_reply_expected": 1, "in_flight": 1, "unanswered": 2, "response_lost": 0,
        "orphan_response": 0, "request_bytes": 600, "response_bytes": 2000, "throttle_known": 2, "throttled": 1,
        "throttle_time_ms": 30, "throttle_time_ms_max": 30, "broker_ns": 6 * MS, "broker_max": 4 * MS,
        "total_ns": 7 * MS, "total_max": 4 * MS,
        "hol_waits": 1, "hol_wait_ns": 5, "hol_wait_max": 5, "hol_throttle_wait_ns": 3, "hol_poll_wait_ns": 1,
        "hol_unknown_wait_ns": 0, "hol_loss_wait_ns": 0, "throttle_waits": 1,
            "throttle_wait_ns": 7, "throttle_wait_max": 7,
        "failed_exchanges": 1, "error_codes": 2,
        "unknown_waits": 0, "unknown_broker_ns": 0, "waiting_ns": 6 * MS, "path_ns": MS - 5, "failed_ns": MS,
        **dict.fromkeys(("loss_ns", "receiver_ns", "sender_ns", "nagle_ns", "unexplained_ns", "client_ns"), 0),
        **dict.fromkeys(("round_trip_ns", "hol_round_trip_ns"), 0),
        "client_closed": 1, "broker_closed": 0, "cut": 0, "first": START, "last": START + MS,
    }  # fmt: skip


def test_a_result_without_its_exchange_is_left_out_and_order_does_not_matter() -> None:
    exchanges = [exchange(9), exchange(4), exchange(6)]
    counts = counted(exchanges, [result(6, 3), result(9, 3), result(5, 3)])
    assert counts.errors.value_rows().tolist() == [[2, START + MS, START + MS, 14]]


def test_a_failed_exchange_counts_once_wherever_the_table_of_codes_grows() -> None:
    """Each exchange has a result without an error, then two codes for a topic of its own."""
    numbers = range(1000)
    results = [result(n, code, topic=n) for n in numbers for code in (0, 3, 6)]
    counts = counted([exchange(n) for n in numbers], results)
    at = [list(tally.GROUP_VALUES).index(name) for name in ("failed_exchanges", "error_codes")]
    assert counts.groups.value_rows()[:, at].sum(axis=0).tolist() == [1000, 2000]
    at = [list(tally.TIMELINE_VALUES).index(name) for name in ("failed_exchanges", "error_codes")]
    assert counts.timeline.value_rows()[:, at].sum(axis=0).tolist() == [1000, 2000]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [("10.0.0.1", ("10.0.0.1", -1)), ("[::1]:9092", ("::1", 9092)), ("::1", ("::1", -1)), (":9", ("", 9))],
)
def test_brokers_are_addresses_and_ports(text: str, wanted: tuple[str, int]) -> None:
    assert split_broker(text) == wanted


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("9092", "a port alone is written :9092"), ("kafka-1:9092", "holds no host names"),
        ("10.0.0.1:x", "not a port"),
        ("10.0.0.1:", "not an address and port"), (":", "not an address and port"), ("[::1", "not an address and port"),
        ("[::1]9092", "not an address and port"), ("", "not an address and port"), ("10.0.0.1:0", "not a port number"),
    ],
)  # fmt: skip
def test_what_is_no_broker(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        split_broker(text)


def test_an_exchange_counts_once_for_each_of_its_topics() -> None:
    counts = counted(
        [exchange(0), exchange(1)],
        [result(0), result(0, partition=1), result(0, topic=made.BILLING), result(0, partition=2), result(1, 3)],
        by_topic=True,
    )
    table = build_report(counts, context(), by="topic").table("latency")
    assert [(row[1], row[2]) for row in table.rows] == [("orders", 2), ("billing", 1)]


def test_the_timeline_takes_longer_intervals_when_it_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counts_module, "TIMELINE_LIMIT", 20)
    exchanges = [exchange(i, at=i * SECOND, broker=MS) for i in range(100)]
    whole = counted(exchanges)
    assert whole.interval == 10 * SECOND  # 100 s touch 21 intervals of 5 s
    a, b = counted(exchanges[:50]), counted(exchanges[50:])
    a.merge(b)
    assert a.interval == 10 * SECOND
    assert tables(a) == tables(whole)
    assert counted(exchanges, interval=SECOND).interval == SECOND


def test_counts_with_other_names_are_renumbered() -> None:
    exchanges, results = traffic(3, 50)
    mine, turned = (counted(exchanges, results, by_topic=True) for _ in range(2))
    order = np.array([3, 1, 2, 0, *range(4, len(made.STRINGS))], np.int64)
    strings = [made.STRINGS[i] for i in order]
    turned.renumber(np.argsort(order), np.array([2, 1, 0]))
    other: Context = context()._replace(strings=strings, addresses=made.ADDRESSES[::-1])
    wanted, got = build_report(mine, context()), build_report(turned, other)
    for name in ("latency", "throttle", "errors", "timeline"):
        assert got.table(name) == wanted.table(name)


@given(
    numbers=st.one_of(*(st.lists(st.integers(1, top), unique=True, max_size=40) for top in (60, 2**62))),
    others=st.lists(st.integers(0, 2**62), max_size=10),
    chance=st.randoms(use_true_random=False),
)
def test_rows_are_found_by_exchange_number(numbers: list[int], others: list[int], chance: Any) -> None:
    wanted = [*others, *(chance.choices(numbers, k=50) if numbers else [])]
    chance.shuffle(wanted)
    found = rows_of(np.array(numbers, np.int64), np.array(wanted, np.int64))
    assert found.tolist() == [numbers.index(number) if number in numbers else -1 for number in wanted]
    assert found.dtype == np.int64
