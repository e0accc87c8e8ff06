"""A page has the largest rows of a table, and says how many there are."""

from __future__ import annotations

import json
import re

from kafkatap.reports.model import Column, ReportTable
from kafkatap.reports.rendering.html import page


def rows_of(html: str) -> list[int]:
    """The number of rows of each table in a page's data."""
    found = re.search(r'<script type="application/json"[^>]*>(.*?)</script>', html, re.DOTALL)
    assert found is not None
    return [table["rows"] for table in json.loads(found[1])["tables"]]


def table(rows: int, chosen_by: str | None = None) -> ReportTable:
    columns = (Column("client", "client", "text", "client_id"), Column("requests", "requests", "count", "requests"))
    made = [(f"client {n}", n % 977) for n in range(rows)]
    return ReportTable("clients", "Clients", columns, made, chosen_by=chosen_by)


def test_rows_beyond_the_limit_are_counted() -> None:
    few, many = table(page.MOST_ROWS), table(page.MOST_ROWS + 1)
    html = page.render_page("title", [few, many])
    assert rows_of(html) == [page.MOST_ROWS] * 2
    assert html.count(f"The page has {page.MOST_ROWS:,} of {page.MOST_ROWS + 1:,} rows.") == 1
    assert f"client {page.MOST_ROWS}" not in html


def test_the_largest_rows_stay_in_their_order() -> None:
    whole = table(2 * page.MOST_ROWS, "requests")
    kept = page._bounded(whole).rows
    places = {row: place for place, row in enumerate(whole.rows)}
    assert kept == sorted(kept, key=places.__getitem__)
    assert min(row[1] for row in kept) >= sorted(row[1] for row in whole.rows)[page.MOST_ROWS - 1]
