"""Tables whose rows are taken and given back, and the arrays that they are made of."""

from __future__ import annotations

import numpy as np
import pytest

from kafkatap.kernels.arrays import drop_pages, grown, moved, untouched
from kafkatap.kernels.decorator import record_dtype
from kafkatap.kernels.table import Table, rows_left, take_row

ROW = record_dtype(("number", "i8"), ("kind", "u1"))
PART = record_dtype(("half", "i4"))


def resident(array: np.ndarray) -> int:
    """Bytes of an array that take memory, as the kernel counts them."""
    address = array.__array_interface__["data"][0]
    with open("/proc/self/smaps") as file:
        for line in file:
            if "-" in line.split()[0] and ":" not in line.split()[0]:
                low, high = (int(x, 16) for x in line.split()[0].split("-"))
                inside = low <= address < high
            elif inside and line.startswith("Rss:"):
                return int(line.split()[1]) * 1024
    raise AssertionError("the array is in no mapping")


def test_rows_come_back_and_the_table_grows() -> None:
    table = Table(4, (ROW, 1), (PART, 2))
    rows = [int(take_row(table.free)) for _ in range(4)]
    assert rows == [0, 1, 2, 3]
    assert rows_left(table.free) == 0
    table.arrays[0]["number"] = [10, 11, 12, 13]
    table.arrays[1]["half"] = np.arange(8)
    table.release(np.array([2, 1]))
    assert table.in_use == 2
    assert int(take_row(table.free)) == 1, "what was given back last"
    table.grow()
    assert len(table) == 8
    assert table.in_use == 3
    assert table.arrays[0]["number"].tolist() == [10, 11, 12, 13, 0, 0, 0, 0]
    assert table.arrays[1]["half"][:8].tolist() == list(range(8))
    assert len(table.arrays[1]) == 16
    assert [int(take_row(table.free)) for _ in range(5)] == [2, 4, 5, 6, 7]
    assert rows_left(table.free) == 0


def test_untouched_arrays_grow_without_taking_memory() -> None:
    array = untouched(64 << 20, np.uint8)
    array[:1000] = 7
    bigger = grown(array, used=1000)
    assert len(bigger) == 128 << 20
    assert bigger[:1001].tolist() == [7] * 1000 + [0]
    assert resident(bigger) <= 2 << 20


def test_moving_an_array_gives_back_what_it_leaves() -> None:
    array = untouched(64 << 20, np.uint8)
    array[: 24 << 20] = 1
    array[32 << 20 : 40 << 20] = 2
    before = resident(array)
    bigger = moved(array, 48 << 20)
    assert len(bigger) == 128 << 20
    assert np.count_nonzero(bigger == 1) == 24 << 20
    assert (bigger[32 << 20 : 40 << 20] == 2).all()
    assert not bigger[40 << 20 :].any()
    assert before >= 32 << 20
    assert resident(array) < 4 << 20
    assert resident(bigger) <= before + (8 << 20)


@pytest.mark.parametrize("array", [np.zeros(1 << 20, np.uint8), untouched(1 << 20, np.uint8)[100:]])
def test_pages_are_dropped_where_they_can_be(array: np.ndarray) -> None:
    array[:] = 3
    drop_pages(array, 5_000, 5_100)
    assert (array == 3).all(), "no whole page lies in it"
    drop_pages(array, 0, 0)
    assert (array == 3).all()
