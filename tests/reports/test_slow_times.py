"""When requests were slow, and which of them are a finding: by hand, and beside the rows of a recording."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kafkatap import analyze
from kafkatap.dissector import dtypes as r
from kafkatap.reports.build import build_report
from kafkatap.reports.rendering.text import finding_text
from kafkatap.reports.section_parts.section_counts import SectionCounts
from kafkatap.reports.sections.slow_times import slow_times
from tests.reports import rows as made
from tests.reports.rows import MS, START, batch, context, counted, exchange, result
from tests.support.section_runs import section_input

SAMPLE = Path(__file__).resolve().parents[2] / "samples" / "apache-4.3.pcap.zst"
SECOND = 1000 * MS


def produced(number: int, at: int, ms: int, **columns: Any) -> Any:
    return exchange(number, at * MS, ms * MS, api_key=0, api_version=9, **columns)


def first_lines(
    *exchanges: Any, codes: Sequence[Any] = (), last: int = START + 60 * SECOND
) -> list[dict[str, Any]]:  # fmt: skip
    """The findings of a report of a minute, with `shown`: the text as a terminal shows it. `codes`: results."""
    sections = SectionCounts(("first-lines",), 1000, lambda: 0)
    sections.add(batch(list(exchanges), list(codes)))
    report = build_report(counted(list(exchanges), list(codes)), context(last=last), over_facts=sections)
    table = report.table("summary")
    rows = [dict(zip((c.name for c in table.columns), row, strict=True)) for row in table.rows]
    return [row | {"shown": finding_text(row, report.heading, True)} for row in rows if row["finding"] != "not_checked"]


def slow_logins(*others: Any) -> list[dict[str, Any]]:
    """The findings of a report with ten failed logins of `billing`, whose answers its broker delays."""
    logins = [
        exchange(i, 1_000 * MS * i, 1_000 * MS, api_key=36, api_version=2, client_id=made.BILLING) for i in range(10)
    ]
    codes = [result(i, 58, kind=r.KIND_RESPONSE, topic=-1, partition=r.NO_INT32) for i in range(10)]
    return first_lines(*logins, *others, codes=codes)


def test_other_clients_are_not_slow_because_of_failed_logins() -> None:
    """Both wait for the broker; the logins cost more time."""
    slow = [produced(50 + i, 500 * i, 300, client_id=made.GROUP) for i in range(20)]
    found = {(row["finding"], row["cause"]): row["text"] for row in slow_logins(*slow)}
    assert found.keys() == {("sasl_failed", None), ("slow_broker", "sasl_failed"), ("slow_broker", None)}
    assert found["slow_broker", None].startswith('client "group-1": Produce p99 300 ms')
    assert found["slow_broker", "sasl_failed"].startswith('client "billing": SaslAuthenticate p99 1.00 s')
    assert not any("other client" in text for text in found.values())


def test_nor_are_other_requests_of_the_same_client_id() -> None:
    """Several processes share it, of which one has a wrong password."""
    found = {(row["finding"], row["cause"]): row["text"] for row in slow_logins(
        *(produced(50 + i, 500 * i, 300, client_id=made.BILLING) for i in range(20))
    )}  # fmt: skip
    assert found["slow_broker", None].startswith('client "billing": Produce p99 300 ms')
    assert ("slow_broker", "sasl_failed") in found


def usual(n: int = 500) -> list[Any]:
    return [produced(1000 + i, 100 * i, 5) for i in range(n)]


def test_a_slow_start_is_no_finding() -> None:
    """One request of 64 ms is the 99th percentile of three, but nobody noticed."""
    (row,) = first_lines(*usual(), exchange(1, api_key=10, broker=64 * MS), exchange(2, api_key=10))
    assert row["finding"] == "none"
    assert "None was slow for long, failed or throttled" in row["text"]


def test_the_slow_time_is_named() -> None:
    """From second 20 to 30, whatever single requests did before and after."""
    slow = [produced(i, 20_000 + 500 * i, 300) for i in range(20)]
    stray = [produced(50, 1_000, 90), produced(51, 55_000, 90)]
    (row,) = first_lines(*usual(), *slow, *stray)
    assert (row["begin"] - START, row["end"] - START) == (20 * SECOND, 29_800 * MS)
    assert "; for 9.80 s; " in row["text"]
    assert row["shown"].startswith("04:44:19.0 client ")
    assert row["severity"] == "warning"
    assert dict(row["numbers"])["slow_ns"] == row["time_lost_ns"] == (20 * 300 + 2 * 90) * MS


def test_a_rare_request_that_takes_seconds_is_slow() -> None:
    (row,) = first_lines(*usual(), produced(1, 30_000, 5_000))
    assert row["finding"] == "slow_broker"
    assert "Produce p99 5.0" in row["text"]
    assert "longest 5.00 s; for 5.00 s; broker" in row["text"]


def test_mild_slowness_comes_last() -> None:
    mild = [produced(i, 1000 * i, 30) for i in range(50)]
    silent = exchange(80, api_key=3, outcome=3)
    rows = first_lines(*usual(), *mild, silent)
    assert [row["finding"] for row in rows] == ["unanswered", "slow_broker"]
    assert rows[-1]["severity"] == "note"


def test_requests_that_are_slow_now_and_then_say_so() -> None:
    slow = [produced(i, 10_000 * (i // 10) + i, 150) for i in range(60)]
    (row,) = first_lines(*usual(), *slow)
    assert "; in 6 s of 50.2 s; " in row["text"]


@pytest.mark.parametrize(
    ("ms", "many", "every_ms", "severity"),
    [(199, 14, 8_000, "note"), (200, 14, 8_000, "warning"), (100, 20, 1_000, "warning")],
)
def test_short_times_now_and_then_are_a_note(ms: int, many: int, every_ms: int, severity: str) -> None:
    """Nearly all requests take 5 ms; in most seconds none is slow, but in the last case."""
    quick = [produced(1000 + i, 15 * i, 5) for i in range(3_800)]
    (row,) = [
        row for row in first_lines(*quick, *(produced(i, every_ms * (i // 2), ms) for i in range(many)))
        if row["finding"].startswith("slow")
    ]  # fmt: skip
    assert row["severity"] == severity
    assert "p99 5.00 ms" in row["text"] or "p99 5.0" in row["text"]


def test_a_short_capture_has_its_slow_request() -> None:
    """What `extract` cuts out of another one."""
    (row,) = first_lines(produced(1, 0, 700), last=START + 2 * SECOND)
    assert row["finding"] == "slow_broker"


def test_the_slow_requests_are_those_of_the_rows() -> None:
    given = section_input(SAMPLE, "events")
    found = slow_times(given)
    assert found is not None
    wanted: dict[tuple[str | None, int], list[tuple[int, int]]] = defaultdict(list)
    for row in analyze(SAMPLE).exchanges.to_pylist():
        if row["outcome"] == "answered":
            own = row["total_ns"] - row["waiting_ns"] - row["hol_poll_wait_ns"]
            if own >= 20 * MS:
                wanted[row["client_id"], row["api_key"]].append((own, row["request_first"].value // 10**9))
    assert {who: (time.requests, time.ns, time.seconds) for who, time in found.items()} == {
        who: (len(rows), sum(ns for ns, _ in rows), len({at for _, at in rows})) for who, rows in wanted.items()
    }
