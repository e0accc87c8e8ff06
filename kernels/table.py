"""Tables whose rows are taken and given back.

A kernel takes a row with `take_row(free)`, after it has seen to it that there is one (`rows_left(free)`); Python gives
rows back (`release`) and grows the table when a kernel says that none is left. Rows that were given back are taken
first, so a table is as large as what was in use at one time, and takes memory only for rows that were ever used.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .arrays import grown, untouched
from .decorator import helper

Array = np.ndarray[Any, Any]


@helper
def rows_left(free):  # type: ignore[no-untyped-def]
    """How many rows can be taken."""
    return np.int64(free[0])


@helper
def take_row(free):  # type: ignore[no-untyped-def]
    """The number of a free row, which is no longer free."""
    left = np.int64(free[0])
    free[0] = left - 1
    return np.int64(free[np.uintp(left)])


class Table:
    """Arrays with the same rows: each array has as many records for each row, one after another, as it was made for.

    `free` (int32): how many rows are free, then their numbers; the last of them is taken first.
    """

    __slots__ = ("arrays", "free")

    def __init__(self, rows: int, *columns: tuple[np.dtype[Any], int]) -> None:
        """`columns`: the dtype and the width of each array; `rows`: at first, 16 or more."""
        self.arrays: list[Array] = [untouched(rows * width, dtype) for dtype, width in columns]
        self.free: Array = _free_list(np.zeros(0, np.int32), 0, rows)

    def __len__(self) -> int:
        return len(self.free) - 1

    @property
    def in_use(self) -> int:
        return len(self) - int(self.free[0])

    def release(self, rows: Array) -> None:
        """Take rows (ints) back."""
        left = int(self.free[0])
        self.free[left + 1 : left + 1 + len(rows)] = rows
        self.free[0] = left + len(rows)

    def grow(self) -> None:
        """Have twice as many rows. The arrays are new ones."""
        rows = len(self)
        self.arrays = [grown(array) for array in self.arrays]
        self.free = _free_list(self.free[1 : 1 + int(self.free[0])], rows, 2 * rows)


def _free_list(left: Array, first: int, end: int) -> Array:
    """A list of the free rows `left`, and first:end, the lowest of which is taken first."""
    free = np.zeros(end + 1, np.int32)
    free[0] = len(left) + end - first
    free[1 : 1 + end - first] = np.arange(end - 1, first - 1, -1)
    free[1 + end - first : 1 + end - first + len(left)] = left
    return free
