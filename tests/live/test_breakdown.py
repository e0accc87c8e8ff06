"""Rows of the live screen are the numbers of the reports."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from kafkatap.dissector.dtypes import WAITS
from kafkatap.engine.engine import Engine
from kafkatap.live.screen.breakdown import BY, SECOND, Row, total_row, window_rows
from kafkatap.live.sink import names_of
from kafkatap.reports.batch import Context, endpoint
from kafkatap.reports.counting.counts import ReportCounts
from kafkatap.reports.model import ReportTable, Value
from kafkatap.reports.sections.error_codes import error_label, errors
from kafkatap.reports.sections.latency import latency
from kafkatap.reports.sections.throttle import throttle
from kafkatap.run import Run

SAMPLES = sorted(Path("samples").glob("*.pcap*"))
LENGTH = 20 * SECOND


@dataclass(frozen=True)
class Counted:
    counts: ReportCounts
    context: Context
    exchanges: np.ndarray  # type: ignore[type-arg]
    results: np.ndarray  # type: ignore[type-arg]

    def rows(self, by: str, **within: str | None) -> dict[str | None, Row]:
        found = window_rows(self.counts, self.context, by, LENGTH, tuple(within.items()))
        assert [row.requests for row in found] == sorted((row.requests for row in found), reverse=True)
        assert len({row.name for row in found}) == len(found)
        return {row.name: row for row in found}


@cache
def counted(path: Path) -> Counted:
    engine = Engine(all_results=True)
    counts = ReportCounts(by_topic=True)
    parts, results = [], []
    for batch in Run([str(path)], engine).batches():
        counts.add(batch)
        parts.append(batch.exchanges.copy())
        results.append(batch.results.copy())
    counts.finish()
    return Counted(counts, names_of(engine), np.concatenate(parts), np.concatenate(results))


def dicts(table: ReportTable) -> list[dict[str, Value]]:
    return [dict(zip((c.name for c in table.columns), row, strict=True)) for row in table.rows]


def assert_same(row: Row, wanted: dict[str, Value]) -> None:
    assert row.requests == wanted["count"]
    assert row.request_rate == pytest.approx(row.requests / 20)
    assert (row.broker_p50, row.broker_p99) == (wanted["broker_p50_ns"], wanted["broker_p99_ns"])
    assert row.total_p99 == wanted["total_p99_ns"]
    assert row.throttle_wait == wanted["throttle_wait_sum_ns"]
    assert row.unanswered == wanted["unanswered"]
    assert (row.api_key, row.long_poll) == (wanted["api_key"], wanted["long_poll"])
    assert row.waits == (wanted["api_key"] in WAITS)


@pytest.mark.parametrize("path", SAMPLES, ids=lambda p: p.name)
def test_by_api_it_is_the_latency_report(path: Path) -> None:
    run = counted(path)
    rows = run.rows("api")
    wanted = dicts(latency(run.counts, run.context))
    assert rows
    assert {str(w["api"]) for w in wanted} == set(rows)
    for each in wanted:
        assert_same(rows[str(each["api"])], each)


@pytest.mark.parametrize("by", ["client", "topic", "broker"])
@pytest.mark.parametrize("path", SAMPLES, ids=lambda p: p.name)
def test_the_apis_of_one_are_the_latency_report_by_it(path: Path, by: str) -> None:
    run = counted(path)
    rows = run.rows(by)
    column = {"client": "client_id"}.get(by, by)
    wanted = defaultdict(dict)
    for each in dicts(latency(run.counts, run.context, by)):
        name = each[column]
        wanted[name if name is None else str(name)][str(each["api"])] = each
    assert set(wanted) == set(rows)
    for name, apis in wanted.items():
        inner = run.rows("api", **{by: name})
        assert set(inner) == set(apis)
        assert rows[name].requests == sum(row.requests for row in inner.values())
        for api, each in apis.items():
            assert_same(inner[api], each)


@pytest.mark.parametrize("path", SAMPLES, ids=lambda p: p.name)
def test_times_are_of_requests_that_wait_for_nothing(path: Path) -> None:
    run = counted(path)
    e = run.exchanges
    names = [run.context.text(n) for n in e["client_id"].tolist()]
    answered = e["outcome"] == 0
    for name, row in run.rows("client").items():
        own = np.array([n == name for n in names]) & answered
        prompt = own & ~np.isin(e["api_key"], WAITS)
        waiting = own & (e["long_poll"] == 0)
        chosen = prompt if prompt.any() else waiting if waiting.any() else own
        if not chosen.any():
            assert row.broker_p99 is None
            continue
        assert row.waits != bool(prompt.any())
        times = np.sort(e["broker_ns"][chosen])
        rank = (len(times) * 9900 + 9999) // 10000 - 1
        assert row.broker_p99 == pytest.approx(times[rank], rel=0.008, abs=1)


@pytest.mark.parametrize("path", SAMPLES, ids=lambda p: p.name)
def test_errors_and_throttling(path: Path) -> None:
    run = counted(path)
    by_client: dict[Value, Counter[Value]] = defaultdict(Counter)
    for each in dicts(errors(run.counts, run.context)):
        by_client[each["client_id"]][each["error"]] += int(each["count"] or 0)
    throttled: Counter[Value] = Counter()
    for each in dicts(throttle(run.counts, run.context)):
        throttled[each["client_id"]] += int(each["throttled"] or 0)
    rows = run.rows("client")
    for name, row in rows.items():
        found = by_client[name]
        assert row.error_codes == sum(found.values())
        assert row.error_code_rate == pytest.approx(row.error_codes / 20)
        if found:
            assert found[row.top_error] == max(found.values())
        else:
            assert row.top_error is None
        assert row.throttled == throttled[name]
    for by in ("api", "topic", "broker"):
        assert all((row.top_error is not None) == (row.error_codes > 0) for row in run.rows(by).values())


@pytest.mark.parametrize("path", SAMPLES, ids=lambda p: p.name)
def test_errors_of_a_broker(path: Path) -> None:
    run = counted(path)
    broker_of = {
        int(e["exchange"]): endpoint(run.context.address(int(e["broker_ip"])), int(e["broker_port"]))
        for e in run.exchanges
    }
    wanted: dict[str | None, Counter[str]] = defaultdict(Counter)
    with_codes: dict[str | None, set[int]] = defaultdict(set)
    for result in run.results[run.results["error_code"] != 0]:
        broker = broker_of[int(result["exchange"])]
        wanted[broker][error_label(int(result["error_code"]))] += 1
        with_codes[broker].add(int(result["exchange"]))
    for name, row in run.rows("broker").items():
        assert row.error_codes == wanted[name].total()
        assert row.failed == len(with_codes[name])
        if row.error_codes:
            assert wanted[name][str(row.top_error)] == max(wanted[name].values())
            inside = run.rows("client", broker=name).values()
            assert {r.top_error for r in inside if r.error_codes} <= wanted[name].keys()
            assert sum(r.error_codes for r in inside) == row.error_codes


@pytest.mark.parametrize("path", SAMPLES, ids=lambda p: p.name)
def test_the_total_row(path: Path) -> None:
    run = counted(path)
    total = total_row(run.counts, LENGTH)
    assert total is not None
    rows = run.rows("client").values()
    for name in ("requests", "throttled", "throttle_wait", "failed", "error_codes", "unanswered"):
        assert getattr(total, name) == sum(getattr(row, name) for row in rows)
    assert total.in_rate == pytest.approx(sum(row.in_rate for row in rows))
    assert total.out_rate == pytest.approx(sum(row.out_rate for row in rows))


def test_nothing_gives_no_rows() -> None:
    assert all(window_rows(ReportCounts(by_topic=True), Context(), by, SECOND) == [] for by in BY)
    assert total_row(ReportCounts(), SECOND) is None
