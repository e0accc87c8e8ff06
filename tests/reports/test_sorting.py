"""`--sort`: the order of rows by any column that has the name."""

from __future__ import annotations

from collections import Counter

import pytest

from kafkatap.reports.build import build_report
from kafkatap.reports.model import Report
from kafkatap.reports.rendering.json_report import all_columns
from kafkatap.reports.rendering.sorting import _named, check_sort, sort_help, sort_report
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


@pytest.mark.parametrize(("heading", "name"), [
    ("broker p99", "broker_p99_ns"), ("Throttle Wait SUM", "throttle_wait_sum_ns"), ("HOL wait p99", "hol_wait_p99_ns"),
    ("HOL waited", "hol_wait_share"), ("API", "api"),
])  # fmt: skip
def test_headings_are_names_too(heading: str, name: str) -> None:
    check_sort(heading)
    assert sort_report(report(), heading).table("latency") == sort_report(report(), name).table("latency")


def test_every_heading_sorts_its_table() -> None:
    for columns in all_columns().values():
        assert all(_named(columns, each.plain_title) is not None for each in columns)
    assert "  broker p99               broker_p99_ns\n" in sort_help()


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


def test_no_table_has_two_columns_of_one_title() -> None:
    """Details of a row and `--sort` name columns by their titles, on one line."""
    for table, columns in all_columns().items():
        titles = Counter(each.plain_title.lower() for each in columns)
        assert max(titles.values(), default=1) == 1, (table, titles.most_common(1))
