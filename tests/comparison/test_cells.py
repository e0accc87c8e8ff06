"""Cells and leaves are found by their keys, as a search of all of them finds them."""

from __future__ import annotations

from itertools import product

import numpy as np

from kafkatap.reports.comparison.cells import KINDS, Cell, Within
from kafkatap.reports.comparison.leaves import Key
from kafkatap.reports.counting.count_table import distinct_rows
from kafkatap.reports.counting.rollup import numbered, numbered_rows

LEAVES = [Key(api, client, broker) for api, client, broker in product((0, 3), ("a", None, "c"), ("x:1", "y:1"))]


def cells() -> list[Cell]:
    found = []
    for kind in KINDS:
        keys = dict.fromkeys(Key(**{part: getattr(leaf, part) for part in kind}) for leaf in LEAVES)
        found += [Cell(kind, key, np.zeros(1, np.int64)) for key in keys]
    return found


def test_the_cells_inside_a_cell() -> None:
    within = Within(cells())
    found = 0
    for cell, part in product(within.cells, ("api", "client", "broker")):
        kind = {*cell.kind, part}
        inside = [
            other for other in within.cells
            if set(other.kind) == kind and all(getattr(other.key, p) == getattr(cell.key, p) for p in cell.kind)
        ]  # fmt: skip
        assert within.along(cell, part) == inside
        found += len(inside)
    assert found > len(within.cells)


def test_no_cells_inside_along_what_is_not_compared() -> None:
    within = Within(cells())
    assert within.along(within.cells[0], "topic") == []


def test_distinct_rows_are_in_order_of_their_first_appearance() -> None:
    rows = np.random.default_rng(1).integers(-3, 3, (5_000, 3))
    distinct, numbers = distinct_rows(rows)
    assert list(map(tuple, distinct.tolist())) == list(dict.fromkeys(map(tuple, rows.tolist())))
    assert np.array_equal(distinct[numbers], rows)
    keys, again = numbered(map(tuple, rows.tolist()))
    assert (keys, again.tolist()) == (numbered_rows(rows)[0], numbers.tolist())


def test_no_rows() -> None:
    distinct, numbers = distinct_rows(np.zeros((0, 2), np.int64))
    assert distinct.shape == (0, 2)
    assert not len(numbers)
