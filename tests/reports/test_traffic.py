"""The data of a page's picture: every request in its interval, with its names and its broker time, whatever merges."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from kafkatap import analyze
from kafkatap.dissector import dtypes as r
from kafkatap.reports.counting import counts as report_counts
from kafkatap.reports.counting.counts import SECOND, ReportCounts
from kafkatap.reports.counting.traffic import CELLS, EDGES, SLOTS, UNTIMED, traffic
from kafkatap.reports.model import Traffic

from . import rows as made
from .rows import MS, START


def picture(counts: ReportCounts, **context: object) -> Traffic:
    found = traffic(counts.traffic, counts.traffic_interval, made.context(**context))
    assert found is not None
    return found


def test_a_request_is_in_its_interval_with_its_broker_time() -> None:
    exchanges = [
        made.exchange(0, api_key=0, broker=3 * MS),
        made.exchange(1, at=2 * SECOND, api_key=1, broker=500 * MS, waiting_ns=480 * MS),  # 20 ms besides its wait
        made.exchange(2, at=4 * SECOND, api_key=1, broker=500 * MS),  # nothing but its wait
        made.exchange(3, at=6 * SECOND, api_key=3, outcome=r.UNANSWERED),
        made.exchange(4, at=8 * SECOND, api_key=3, broker=MS, throttle_time_ms=40),
    ]
    failed = np.zeros(2, r.RESULT)
    failed["exchange"], failed["error_code"] = [0, 0], [6, 7]  # two codes of one response
    counts = ReportCounts(fine=True)
    counts.add(made.batch(exchanges, [failed[0], failed[1]]))
    found = picture(counts)
    assert found.interval == 100 * MS
    by_api = {found.apis[cell[1]]: [] for cell in found.cells}
    for slot, api, client, broker, level, requests, size, *trouble in found.cells:
        assert (found.clients[client], found.brokers[broker]) == ("billing", "10.0.0.2:9092")
        at = (found.first + slot * found.interval - START) / SECOND
        time = None if level == UNTIMED else (found.edges[level], found.edges[level + 1])
        by_api[found.apis[api]].append((round(at, 1), time, requests, size, trouble))
    ((at, (low, high), requests, size, trouble),) = by_api["Produce"]
    assert (at, requests, size, trouble) == (0.0, 1, 1100, [1, 0, 0])
    assert low <= 3 * MS < high
    (timed, wait) = by_api["Fetch"]
    assert timed[0] == 2.0
    assert timed[1][0] <= 20 * MS < timed[1][1]
    assert wait[:2] == (4.0, None)
    assert [(at, time is None, trouble) for at, time, _, _, trouble in by_api["Metadata"]] == [
        (6.0, True, [0, 1, 0]), (8.0, False, [0, 0, 1])
    ]  # fmt: skip


def test_merges_change_nothing() -> None:
    exchanges = [made.exchange(n, at=n * 700 * MS, broker=(n + 1) * MS, api_key=n % 4) for n in range(40)]
    whole, parts = ReportCounts(fine=True), [ReportCounts(fine=True) for _ in range(3)]
    whole.add(made.batch(exchanges))
    for n, part in enumerate(parts):
        part.add(made.batch(exchanges[n::3]))
    parts[1]._set_traffic_interval(SECOND)  # as that of a longer part
    for part in parts[1:]:
        parts[0].merge(part)
    assert parts[0].traffic_interval == SECOND
    whole._set_traffic_interval(SECOND)
    assert picture(parts[0]) == picture(whole)


def test_without_fine_nothing_is_counted() -> None:
    counts = made.counted([made.exchange(0)])
    assert traffic(counts.traffic, counts.traffic_interval, made.context()) is None


def test_many_names_and_intervals_stay_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_counts, "_TRAFFIC_ROWS", 2_000)
    names = [f"client-{n}".encode() for n in range(500)]
    exchanges = [
        made.exchange(n, at=n * SECOND, broker=(1 + n * 7919 % 3_000) * MS, client_id=n % 500, api_key=n % 30)
        for n in range(6_000)
    ]
    counts = ReportCounts(fine=True)
    for first in range(0, len(exchanges), 500):
        counts.add(made.batch(exchanges[first : first + 500]))
    assert counts.traffic_interval > SECOND
    found = picture(counts, strings=names)
    assert len({cell[0] for cell in found.cells}) <= SLOTS
    assert len(found.cells) <= CELLS
    assert found.clients[-1] == found.apis[-1] == "(other)"
    assert sum(cell[5] for cell in found.cells) == len(exchanges)
    assert sum(cell[6] for cell in found.cells) == 1100 * len(exchanges)


def test_requests_and_failures_are_those_of_the_report(samples: Path) -> None:
    """Also with several processes, and as a text of its own: the table of exchanges."""
    capture = samples / "apache-4.3.pcap.zst"
    analysis = analyze(capture)
    report = analysis.report()
    found = report.curves.traffic
    assert found is not None
    (heading,) = report.heading.named_rows()
    sums = np.array(found.cells)[:, 5:].sum(axis=0).tolist()
    rows = analysis.exchanges.to_pylist()
    rows = [row for row in rows if row["outcome"] != "orphan_response"]
    assert sums[0] == heading["requests"] == len(rows)
    assert sums[1] == sum((row["request_bytes"] or 0) + (row["response_bytes"] or 0) for row in rows)
    assert sums[2] == heading["failed_exchanges"]
    assert sums[4] == sum((row["throttle_time_ms"] or 0) > 0 for row in rows)
    apis: Counter[str] = Counter()
    for cell in found.cells:
        apis[str(found.apis[cell[1]])] += cell[5]
    wanted = Counter(row["api_name"] for row in rows)
    assert {name: count for name, count in apis.items() if name != "(other)"}.items() <= wanted.items()
    assert list(found.edges) == EDGES.tolist()
