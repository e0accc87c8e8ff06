"""The first lines of healthy clusters accuse nobody, and those of one full disk name only that."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from kafkatap import analyze
from kafkatap.reports.findings import ERROR, NOTE, WARNING
from kafkatap.reports.sections.failure_findings import _is_noticed
from tests.reports import rows as made
from tests.reports.rows import MS, result

from .test_slow_times import first_lines, produced

FOLDER = Path(__file__).resolve().parents[2] / "samples" / "events" / "healthy"
SECOND = 1000 * MS
CONCURRENT_TRANSACTIONS = 51


@cache
def lines(name: str) -> list[dict[str, Any]]:
    """The findings of a report that stand by themselves."""
    report = analyze(FOLDER / f"{name}.pcap.zst").report(sections=("summary", "advice"))
    rows = report.table("summary").named_rows()
    return [dict(row) for row in rows if row["cause"] is None]


def test_a_steady_cluster_is_well() -> None:
    assert {row["severity"] for row in lines("steady")} == {NOTE}
    assert lines("steady")[0]["finding"] == "none"


def test_of_restarts_one_after_another_there_are_only_these() -> None:
    steps = json.loads((FOLDER / "rolling.truth.json").read_text())["steps"]
    found = [row for row in lines("rolling") if row["severity"] != NOTE]
    assert {(row["finding"], row["severity"]) for row in found} == {("broker_stopped", WARNING)}
    told = sorted(int(row["begin"]) / SECOND for row in found)
    assert [round(at - steps[f"stopped {n}"]) for n, at in zip((3, 2, 1), told, strict=True)] == [0, 0, 0]
    for row in found:
        number = row["text"][len("broker ")]
        assert steps[f"started {number}"] < int(row["end"]) / SECOND < steps[f"listens {number}"] + 3


def test_a_full_disk_is_why_the_broker_ended() -> None:
    ended = json.loads((FOLDER.parent / "disk" / "full-disk.truth.json").read_text())["ended"]
    report = analyze(FOLDER.parent / "disk" / "full-disk.pcap.zst").report()
    rows = [dict(row) for row in report.table("summary").named_rows()]
    (stop,) = (row for row in rows if row["finding"] == "broker_stopped")
    assert (rows[0]["label"], stop["cause"]) == ("disk failed", "errors")
    assert ended - 2 < int(rows[0]["begin"]) / SECOND <= int(stop["begin"]) / SECOND < ended + 0.5
    moved = [row for row in rows if row["finding"] in ("leaders_moved", "error_burst")]
    assert moved
    assert all(row["cause"] in ("errors", "broker_stopped") for row in moved)


@pytest.mark.parametrize(
    ("lost", "codes", "span", "is_noticed"),
    [
        (999, 1, 0, False),
        (1000, 50, 10_000, True),
        (1000, 51, 5_000, True),
        (1000, 51, 5_001, False),
        (9000, 9000, 45_001, False),
    ],
)
def test_quick_retries_are_noticed_if_they_are_much_of_the_time(
    lost: int, codes: int, span: int, is_noticed: bool
) -> None:
    assert _is_noticed(lost * MS, codes, span * MS) is is_noticed


def test_transactions_that_begin_soon_are_retried() -> None:
    """One request in four has to wait for the end of the transaction before, as long as the capture is."""

    def severity(ms: int) -> str:
        rows = [produced(n, 20 * n, ms if n % 4 == 0 else 1, client_id=made.GROUP) for n in range(2_900)]
        codes = [result(n, CONCURRENT_TRANSACTIONS) for n in range(0, 2_900, 4)]
        (row,) = (one for one in first_lines(*rows, codes=codes) if one["finding"] in ("errors", "retried"))
        return str(row["severity"])

    assert severity(2) == NOTE
    assert severity(25) == ERROR
