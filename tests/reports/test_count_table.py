"""Rows that are added to counts, by columns or one after another, and which of them are small: beside plain Python."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kafkatap.reports.counting.count_forms import NUMBER, CountForm, FormCounts
from kafkatap.reports.counting.count_table import ANY, EMPTY, LATEST, MAX, MIN, SUM, CountTable

_OPS = (SUM, MAX, LATEST, MIN, LATEST, ANY, MAX, SUM)


def _added(keys: np.ndarray[Any, Any], values: np.ndarray[Any, Any], ops: tuple[int, ...]) -> dict[Any, list[int]]:
    found: dict[Any, list[int]] = {}
    for key, new in zip(map(tuple, keys.tolist()), values.tolist(), strict=True):
        row = found.setdefault(key, [EMPTY[op] for op in ops])
        newer = 0
        for c, (op, value) in enumerate(zip(ops, new, strict=True)):
            if op == SUM:
                row[c] += value
            elif op == MIN:
                row[c] = min(row[c], value)
            elif op == ANY:
                row[c] |= value
            elif op == MAX:
                newer = (value > row[c]) - (value < row[c])
                row[c] = max(row[c], value)
            elif newer > 0 or (newer == 0 and value > row[c]):
                row[c] = value
    return found


@pytest.mark.parametrize("ops", [_OPS, (LATEST, SUM, LATEST), (MAX, SUM, LATEST, LATEST), (MAX, MAX, LATEST)])
def test_rows_are_added_in_order(ops: tuple[int, ...]) -> None:
    rng = np.random.default_rng(len(ops))
    keys = rng.integers(-2, 12, (3000, 2)) << 33
    values = rng.integers(0, 9, (3000, len(ops)))
    by_row, by_column = CountTable(2, ops, 1), CountTable(2, ops, 1)
    by_row.add(keys, values)
    by_column.add_columns([*keys.T, *values.T], len(keys))
    wanted = _added(keys, values, ops)
    for table in (by_row, by_column):
        assert table.key_rows().tolist() == list(map(list, wanted))
        assert table.value_rows().tolist() == list(wanted.values())


def test_one_number_is_for_all_rows() -> None:
    table = CountTable(2, (SUM, MAX))
    table.add_columns([np.array([5, 6, 5], np.int32), -1, True, np.array([7])], 3)
    assert table.key_rows().tolist() == [[5, -1], [6, -1]]
    assert table.value_rows().tolist() == [[2, 7], [1, 7]]


@pytest.mark.parametrize("newest", ["", "last"])
def test_the_rows_with_most_are_the_first_by_weight(newest: str) -> None:
    counts = FormCounts(CountForm("f", {"k": NUMBER}, {"n": SUM, "last": MAX}, {}, newest=newest))
    counts.add(np.arange(200).reshape(-1, 1), np.random.default_rng(1).integers(0, 6, (200, 2)))
    for count in (0, 1, 20, 100, 199, 200, 300):
        assert np.flatnonzero(counts._have_most(count)).tolist() == sorted(counts._by_weight()[:count].tolist())
