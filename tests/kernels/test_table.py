"""Tables that grow and whose rows are taken and released, and the arrays that they are made of."""

from __future__ import annotations

import ctypes
import errno
import mmap

import numpy as np
import pytest

from kafkatap.kernels import arrays
from kafkatap.kernels.arrays import drop_pages, grown, moved, shared_zeros, untouched
from kafkatap.kernels.decorator import record_dtype
from kafkatap.kernels.table import Column, SlotTable, Table, release_row, rows_in_use, rows_left, take_row

ROW = record_dtype(("number", "i8"), ("kind", "u1"))
PART = record_dtype(("half", "i4"))


def resident(array: np.ndarray) -> int:
    """Bytes of an array that take memory, as the kernel counts them (mincore)."""
    pages = -(-array.nbytes // mmap.PAGESIZE)
    found = (ctypes.c_ubyte * pages)()
    address = ctypes.c_void_p(array.__array_interface__["data"][0])
    assert ctypes.CDLL(None, use_errno=True).mincore(address, ctypes.c_size_t(array.nbytes), found) == 0
    return int(np.count_nonzero(np.frombuffer(found, np.uint8) & 1)) * mmap.PAGESIZE


def test_released_rows_are_taken_first_and_the_table_grows() -> None:
    table = SlotTable(16, rows=ROW, halves=Column(PART, 2))
    rows = [int(take_row(table.free)) for _ in range(16)]
    assert rows == list(range(16))
    assert rows_left(table.free) == 0
    table["rows"]["number"] = rows
    table["halves"]["half"] = np.arange(32)
    table.release(np.array([2]))
    release_row(table.free, 1)
    assert table.in_use == rows_in_use(table.free) == 14
    assert np.flatnonzero(~table.taken_rows()).tolist() == [1, 2]
    assert int(take_row(table.free)) == 1, "the row that was released last"
    table.grow()
    assert (len(table), table.in_use) == (32, 15)
    assert table["rows"]["number"].tolist() == [*range(16), *[0] * 16]
    assert table["halves"]["half"].tolist() == [*range(32), *[0] * 32]
    assert [int(take_row(table.free)) for _ in range(17)] == [2, *range(16, 32)]
    assert rows_left(table.free) == 0


def test_columns_grow_together_and_are_filled() -> None:
    table = Table(4, key=Column(np.int64, 3), value=Column(np.int64, 2, (7, -1)), kind=Column(np.int8, fill=5))
    table["key"][:] = np.arange(12)
    table["value"][:4] = 0
    assert not table.reserve(4)
    assert table.reserve(5, used=3), "at least twice as many rows"
    assert len(table) == 16
    assert table["key"].tolist() == [*range(9), *[0] * 39]
    assert table["value"].reshape(-1, 2).tolist() == [[0, 0], [0, 0], *[[7, -1]] * 14]
    assert table["kind"].tolist() == [5] * 16
    table.grow(100)
    assert [len(table[name]) for name in ("key", "value", "kind")] == [300, 200, 100]
    table.keep(np.array([2, 0]), 3)
    assert len(table) == 3
    assert table["key"].tolist() == [6, 7, 8, 0, 1, 2, 0, 0, 0]
    assert table["value"].tolist() == [7, -1, 0, 0, 7, -1]


def test_untouched_arrays_grow_without_taking_memory() -> None:
    array = untouched(64 << 20, np.uint8)
    array[:1000] = 7
    bigger = grown(array, used=1000)
    assert len(bigger) == 128 << 20
    assert bigger[:1001].tolist() == [7] * 1000 + [0]
    assert resident(bigger) <= 4 << 20


def test_arrays_do_without_huge_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    class Refusing(mmap.mmap):
        def madvise(self, *of: int) -> None:
            raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(arrays, "_Pages", Refusing)
    monkeypatch.setattr(mmap, "mmap", Refusing)
    for made in (untouched(8 << 20, np.uint8), shared_zeros(1 << 20, np.int64)):
        made[-1] = 7
        assert int(made.sum()) == 7


def test_moving_an_array_gives_back_what_it_leaves() -> None:
    array = untouched(64 << 20, np.uint8)
    array[: 24 << 20] = 1
    array[32 << 20 : 40 << 20] = 2
    before = resident(array)
    bigger = moved(array, 2 * len(array), 48 << 20)
    taken = resident(bigger)  # before it is read: pages of zeros count once they were
    assert len(bigger) == 128 << 20
    assert np.count_nonzero(bigger == 1) == 24 << 20
    assert (bigger[32 << 20 : 40 << 20] == 2).all()
    assert not bigger[40 << 20 :].any()
    assert before >= 32 << 20
    assert resident(array[: 24 << 20]) < 4 << 20
    assert taken <= before + (8 << 20)


@pytest.mark.parametrize("array", [np.zeros(1 << 20, np.uint8), untouched(1 << 20, np.uint8)[100:]])
def test_pages_are_dropped_where_they_can_be(array: np.ndarray) -> None:
    array[:] = 3
    drop_pages(array, 5_000, 5_100)
    assert (array == 3).all(), "no whole page lies in it"
    drop_pages(array, 0, 0)
    assert (array == 3).all()


def test_the_memory_of_free_rows_comes_back() -> None:
    table = SlotTable(1 << 20, moves=True, rows=Column(np.int64, 4))
    rows = [int(take_row(table.free)) for _ in range(1 << 20)]
    table["rows"][:] = 7
    full = resident(table["rows"])
    table.release(np.array([row for row in rows if row not in (3, 70_000)]))
    table.return_memory()
    assert resident(table["rows"]) <= full // 8
    assert table["rows"][4 * 3 : 4 * 4].tolist() == table["rows"][4 * 70_000 : 4 * 70_001].tolist() == [7] * 4
    assert not table["rows"][4 * 80_000 :].any()
    assert [int(take_row(table.free)) for _ in range(5)] == [0, 1, 2, 4, 5]
    table.release(np.array([0, 1, 2, 3, 4, 5, 70_000]))
    table.return_memory()
    assert resident(table["rows"]) <= 1 << 20


def test_a_table_that_grows_copies_only_up_to_the_last_taken_row() -> None:
    """Rows that nobody took have no memory, and a copy of them would take it."""
    table = SlotTable(1 << 16, rows=Column(np.uint8, 1_024))
    row = int(take_row(table.free))
    table["rows"][row * 1_024] = 7
    table.grow()
    assert resident(table["rows"]) <= 4 << 20
    assert table["rows"][row * 1_024] == 7
