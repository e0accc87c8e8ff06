"""Tables that grow: arrays whose rows belong together, and a free list of rows where rows come and go.

Kernels never allocate. A kernel checks that there is room for the most rows that its next step can need, and returns a
status when there is not. Python then grows the table, and calls the kernel again with the new arrays.

* `Table`: rows are numbered by the caller (append the next one, or use the number of a row elsewhere).
* `SlotTable`: a kernel takes a free row with `take_row(free)` and returns it with `release_row(free, row)`. Released
  rows are taken first, so the table is as large as the most rows that were ever in use at one time.

New rows are zero, or the column's `fill`. Large tables use memory only for rows that were written (`untouched`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from .arrays import grown, moved, return_memory, zeros
from .declarations import helper

Array = np.ndarray[Any, Any]


class Column(NamedTuple):
    """One array of a table."""

    dtype: Any
    width: int = 1  # how many items one row has
    fill: Any = None  # the items of a new row: one value for all, or one for each; None: zeros


@helper
def rows_left(free):  # type: ignore[no-untyped-def]
    """Return how many rows are free."""
    return np.int64(free[0])


@helper
def rows_in_use(free):  # type: ignore[no-untyped-def]
    """Return how many rows are taken."""
    return free.shape[0] - 1 - np.int64(free[0])


@helper
def take_row(free):  # type: ignore[no-untyped-def]
    """Remove a row from the free list and return its number. The caller has checked `rows_left`."""
    left = np.int64(free[0])
    free[0] = left - 1
    return np.int64(free[np.uintp(left)])


@helper
def release_row(free, row):  # type: ignore[no-untyped-def]
    """Put a row back on the free list."""
    left = np.int64(free[0]) + 1
    free[0] = left
    free[np.uintp(left)] = row


class Table:
    """Named columns with the same number of rows, which grow together: `table["name"]` is an array.

    An array has `width` items for each row, one row after another. After a growth the arrays are new ones, so no caller
    may keep them. With `moves`, the old ones are empty then: a large table never takes its memory twice.
    """

    __slots__ = ("_arrays", "_columns", "_moves")

    def __init__(self, rows: int, /, moves: bool = False, **columns: Any) -> None:
        """`columns`: the `Column` of each name, or its dtype alone."""
        self._moves = moves
        self._columns = {name: c if isinstance(c, Column) else Column(c) for name, c in columns.items()}
        self._arrays = {name: zeros(max(rows, 1) * c.width, c.dtype) for name, c in self._columns.items()}
        self._fill(0)

    def __getitem__(self, name: str) -> Array:
        return self._arrays[name]

    def __len__(self) -> int:
        """Return how many rows there is room for."""
        name, column = next(iter(self._columns.items()))
        return len(self._arrays[name]) // column.width

    def grow(self, rows: int = 0, used: int | None = None) -> None:
        """Make room for at least twice as many rows, and for at least `rows`.

        `used`: copy only that many leading rows (None: all). The others are new ones.
        """
        old = len(self)
        kept = old if used is None else used
        size = max(2 * old, rows, 16)
        grow = moved if self._moves else grown
        for name, column in self._columns.items():
            self._arrays[name] = grow(self._arrays[name], size * column.width, kept * column.width)
        self._fill(kept)

    def reserve(self, rows: int, used: int | None = None) -> bool:
        """Grow if there are fewer than `rows` rows; return whether the arrays are new ones."""
        if rows <= len(self):
            return False
        self.grow(rows, used)
        return True

    def keep(self, rows: Array, size: int) -> None:
        """Keep only the rows numbered `rows` (ints), in that order from row 0 on, with room for `size` rows."""
        for name, column in self._columns.items():
            array = self._arrays[name]
            whole = np.dtype((np.void, column.width * array.itemsize))
            self._arrays[name] = zeros(max(size, 1) * column.width, array.dtype)
            self._arrays[name].view(whole)[: len(rows)] = array.view(whole)[rows]
        self._fill(len(rows))

    def _fill(self, first: int) -> None:
        """Set the rows from `first` on, which are zero, to their columns' fill."""
        for name, column in self._columns.items():
            if column.fill is not None:
                self._arrays[name].reshape(-1, column.width)[first:] = column.fill


class SlotTable(Table):
    """A table whose rows are taken and released.

    `free` (int32) is the free list: how many rows are free, then their numbers. The last number is taken first.
    """

    __slots__ = ("free",)

    def __init__(self, rows: int, /, moves: bool = False, **columns: Any) -> None:
        super().__init__(rows, moves, **columns)
        self.free: Array = _free_list(np.zeros(0, np.int32), 0, len(self))

    @property
    def in_use(self) -> int:
        return len(self) - int(self.free[0])

    def release(self, rows: Array) -> None:
        """Put rows (ints) back on the free list."""
        left = int(self.free[0])
        self.free[left + 1 : left + 1 + len(rows)] = rows
        self.free[0] = left + len(rows)

    def taken_rows(self) -> Array:
        """Return which rows are taken: bool, one for each row."""
        taken = np.ones(len(self), bool)
        taken[self.free[1 : 1 + int(self.free[0])]] = False
        return taken

    def _used(self) -> int:
        """How many leading rows there are up to the last taken one."""
        taken = np.flatnonzero(self.taken_rows())
        return int(taken[-1]) + 1 if len(taken) else 0

    def return_memory(self) -> None:
        """Return the memory of the rows behind the last taken one to the system. The first free rows are the next to be
        taken then. Only for tables whose new rows are zero."""
        left = self.free[1 : 1 + int(self.free[0])]
        left[::-1].sort()
        used = self._used()
        for name, column in self._columns.items():
            return_memory(self._arrays[name], used * column.width)

    def grow(self, rows: int = 0, used: int | None = None) -> None:
        """Make room for at least twice as many rows, and for at least `rows`. The new rows are free. `used`: copy only
        that many leading rows (None: those up to the last taken one)."""
        old = len(self)
        super().grow(rows, self._used() if used is None else used)
        self.free = _free_list(self.free[1 : 1 + int(self.free[0])], old, len(self))


def _free_list(left: Array, first: int, end: int) -> Array:
    """Return a free list of first:end, lowest first, behind the rows `left`."""
    new = end - first
    free = np.zeros(end + 1, np.int32)
    free[0] = len(left) + new
    free[1 : 1 + new] = np.arange(end - 1, first - 1, -1)
    free[1 + new : 1 + new + len(left)] = left
    return free
