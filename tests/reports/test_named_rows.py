"""Rows of tables and events have names: what is declared once holds for those who write them and for those who read."""

from __future__ import annotations

import numpy as np
import pytest

from kafkatap.kernels.arrays import dict_rows
from kafkatap.reports.model import Column, ReportTable, Row, in_columns, in_rows
from kafkatap.reports.section_parts.event_rows import EVENT, EventKind, EventView
from kafkatap.reports.section_parts.registry import OVER_FACTS, load_sections

COLUMNS = (Column("name", "name", "text", ""), Column("count", "count", "count", ""))


def test_rows_are_in_the_order_of_their_columns() -> None:
    rows: list[Row] = [{"count": 2, "name": "b"}, {"name": "a", "count": 1}]
    assert in_columns(COLUMNS, rows) == [("b", 2), ("a", 1)]
    assert ReportTable("t", "T", COLUMNS, in_columns(COLUMNS, rows)).named_rows() == rows


def test_rows_with_the_same_key_keep_their_order() -> None:
    rows: list[Row] = [{"name": name, "count": count} for name, count in (("c", 1), ("a", 0), ("b", 1))]
    assert in_columns(COLUMNS, rows, lambda row: row["count"]) == [("a", 0), ("c", 1), ("b", 1)]


def test_a_row_has_the_declared_columns_and_no_others() -> None:
    with pytest.raises(KeyError, match="count"):
        in_columns(COLUMNS, [{"name": "a"} | {"number": 1}])
    with pytest.raises(ValueError, match="number"):
        in_columns(COLUMNS, [{"name": "a", "count": 1, "number": 2}])


def test_rows_of_columns_are_those_of_rows() -> None:
    assert in_rows(COLUMNS, {"count": [2, 1], "name": ["b", "a"]}) == [("b", 2), ("a", 1)]
    with pytest.raises(ValueError, match="count"):
        in_rows(COLUMNS, {"name": ["a"]})
    with pytest.raises(ValueError, match="number"):
        in_rows(COLUMNS, {"name": ["a"], "count": [1], "number": [2]})


def test_rows_with_a_value_in_some_columns() -> None:
    table = ReportTable("t", "T", COLUMNS, [("a", 0), ("b", 2), ("", 3)])
    assert [row["count"] for row in table.named_rows("count")] == [2, 3]
    assert [row["count"] for row in table.named_rows("name", "count")] == [0, 2, 3]


def test_names_of_columns_are_distinct() -> None:
    """Those of a table, and the keys and values of a form: `SectionInput.rows` has both by name."""
    for section in load_sections(list(OVER_FACTS)):
        for name, columns in section.columns.items():
            assert len({column.name for column in columns}) == len(columns), name
        for form in section.forms:
            assert form.keys.keys().isdisjoint(form.values), form.name


def test_an_event_is_written_and_read_by_name() -> None:
    kind, other = EventKind(3, EventView(size="v2", member="s1", reason="s1")), EventKind(4)
    rows = np.zeros(3, EVENT)
    rows["kind"] = 3, 4, 3
    named = kind.view.of(rows)
    named["size"], named["member"] = (7, 8, 9), (1, 2, 3)
    assert rows["v2"].tolist() == [7, 8, 9]
    assert kind.among(rows)["size"].tolist() == [7, 9]
    assert kind.among(rows)["reason"].tolist() == [1, 3]
    assert "v2" not in (kind.among(rows).dtype.names or ())
    assert len(other.among(rows)) == 1


def test_rows_as_dictionaries() -> None:
    columns = {"a": np.array([1, 2]), "b": np.array([3, 4])}
    assert list(dict_rows(columns)) == [{"a": 1, "b": 3}, {"a": 2, "b": 4}]
    records = np.array([(1, 2.5)], [("a", "i8"), ("b", "f8")])
    assert list(dict_rows(records)) == [{"a": 1, "b": 2.5}]
    assert list(dict_rows(records, ["b"])) == [{"b": 2.5}]
