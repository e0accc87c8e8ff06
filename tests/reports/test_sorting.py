"""`--sort`: the order of rows by any column that has the name."""

from __future__ import annotations

import pytest

from kafkatap.reports.build import build_report
from kafkatap.reports.model import Report
from kafkatap.reports.rendering.sorting import check_sort, sort_report
from kafkatap.reports.rendering.text import render_table

from . import rows as made
from .test_reports import column, report, small


def test_numbers_descend_and_rows_without_a_value_come_last() -> None:
    by_p99 = sort_report(report(), "total_p99_ns")
    values = column(by_p99.table("latency"), "total_p99_ns")
    assert values == sorted(values, reverse=True)
    clients = column(by_p99.table("clients"), "total_p99_ns")
    assert clients[0] is not None
    assert clients[1:] == [None, None]
    assert by_p99.table("throttle") == report().table("throttle")


@pytest.mark.parametrize("name", ["total_p99", "total-p99", "TOTAL_P99_NS "])
def test_the_unit_may_be_left_out(name: str) -> None:
    check_sort(name)
    assert sort_report(report(), name).tables == sort_report(report(), "total_p99_ns").tables


def test_texts_ascend() -> None:
    assert column(sort_report(report(), "client_id").table("clients"), "client_id") == [
        "\x1b[31mred\x1b[0m", "=cmd|' /C calc'!A0", "billing",
    ]  # fmt: skip
    check_sort("removed")
    assert column(sort_report(report(), "removed").table("clients"), "removed") == [(("Produce", (2,)),), (), ()]


def test_the_order_is_said() -> None:
    table = sort_report(report(), "broker_p99").table("latency")
    lines = ["".join(t for t, _ in line) for line in render_table(table, 120, 0, True)]
    assert "Sorted by broker p99 (broker_p99_ns)." in lines
    assert "Rows are in order of summed broker time." not in lines


def test_summary_and_ledger_keep_their_order() -> None:
    before, after = report(), sort_report(report(), "count")
    assert (after.table("summary"), after.ledger) == (before.table("summary"), before.ledger)
    assert column(after.table("latency"), "count") == [3, 2, 1, 1]


def test_a_timeline_shows_its_first_rows_in_that_order() -> None:
    whole: Report = build_report(small(), made.context(), timeline_rows=1)
    table = sort_report(whole, "broker_max").table("timeline")
    assert table.chosen_by is None


def test_unknown_columns_have_close_matches() -> None:
    with pytest.raises(ValueError, match="no table has a column 'total_p98'; did you mean total_p9"):
        check_sort("total_p98")
    with pytest.raises(ValueError, match="no table has a column 'zzzz'; --sort total_p99, requests"):
        check_sort("zzzz")
