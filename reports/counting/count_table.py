"""A table of counts: int64 key columns and int64 value columns, which are added up by sum, min or max, or
as sets of bits (ANY).

A column of LATEST has the value that came with the largest value of the last MAX column before it: of equal ones the
larger value.

It is a hash table with open addressing. `slots` (int32, a power of two, -1: free) has row numbers. Row r has its key at
keys[r * width:] and its values at values[r * columns:]. Kernels claim rows and return before a table is full. Then
Python grows the table and calls again. Rows are in order of first appearance.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Annotated, Any, NamedTuple

import numpy as np

from kafkatap.kernels import helper, kernel
from kafkatap.kernels.hashing import hash_start, mix, new_seed, spread
from kafkatap.kernels.table import Column, Table

Array = np.ndarray[Any, np.dtype[Any]]

SUM, MIN, MAX, LATEST, ANY = range(5)
#: Indexes of `used`.
ROWS, SEED = range(2)
#: The initial value of a value column.
EMPTY = {SUM: 0, MIN: 2**63 - 1, MAX: -(2**63), LATEST: -(2**63), ANY: 0}


@helper
def _probe_slots(keys, width, slots, h, probe, at, step):  # type: ignore[no-untyped-def]
    """`find_slot` for a key whose hash is `h`. `step`: from one column of it to the next."""
    mask = np.int64(len(slots) - 1)
    slot = spread(h) & mask
    row = np.int64(slots[np.uintp(slot)])
    while row >= 0:
        c = 0
        while c < width and keys[np.uintp(row * width + c)] == probe[np.uintp(at + c * step)]:
            c += 1
        if c == width:
            return row
        slot = (slot + 1) & mask
        row = np.int64(slots[np.uintp(slot)])
    return -1 - slot


@helper
def _claimed(keys, width, slots, used, row, probe, at, step):  # type: ignore[no-untyped-def]
    """The row that `_probe_slots` found, a new one if it is a free slot."""
    if row < 0:
        slot = -1 - row
        row = used[ROWS]
        used[ROWS] = row + 1
        slots[slot] = row
        for c in range(width):
            keys[np.uintp(row * width + c)] = probe[np.uintp(at + c * step)]
    return row


@helper
def find_slot(keys, width, slots, seed, probe, at):  # type: ignore[no-untyped-def]
    """The row with the key probe[at : at + width], or -1 - the free slot for it."""
    h = hash_start(seed)
    for c in range(width):
        x = probe[at + c]
        h = mix(h, x ^ (x >> 32), seed)
    return _probe_slots(keys, width, slots, h, probe, at, 1)


@helper
def claim_row(keys, width, slots, used, probe, at):  # type: ignore[no-untyped-def]
    """The row of a key, a new one if needed. The caller has made sure that there is space."""
    row = find_slot(keys, width, slots, used[SEED], probe, at)
    return _claimed(keys, width, slots, used, row, probe, at, 1)


@helper
def claim_again(table, width, row, probe):  # type: ignore[no-untyped-def]
    """`claim_row` of a table (CountArrays) for a key that is often that of `row`, the one before; -1: none."""
    is_same = row >= 0
    for c in range(width):
        is_same = is_same and table.keys[row * width + c] == probe[c]
    return row if is_same else np.int64(claim_row(table.keys, width, table.slots, table.used, probe, 0))


#: So many rows are added column by column, few enough for the first cache.
_BLOCK = 1024


@helper
def claim_rows(new_keys, first, step, next_key, count, found, keys, slots, used, width):  # type: ignore[no-untyped-def]
    """Write the row of each of some new keys to `found`, up to the first one without space; return how many they are.

    `step`, `next_key`: from a column of a key to that of the next key, and to the next column.
    """
    seed = used[SEED]
    for i in range(count):
        found[i] = hash_start(seed)
    for c in range(width):  # column by column, as the steps for one key wait for each other
        at = first * step + c * next_key
        for i in range(count):
            key = new_keys[np.uintp(at + i * step)]
            found[i] = mix(found[i], key ^ (key >> 32), seed)
    done = 0
    while done < count and used[ROWS] < len(keys) // width:
        at = (first + done) * step
        row = np.int64(_probe_slots(keys, width, slots, found[done], new_keys, at, next_key))
        found[done] = _claimed(keys, width, slots, used, row, new_keys, at, next_key)
        done += 1
    return done


@kernel(np.int64, np.int64, int, int, int, np.int64, np.int64, np.int64, np.int32, np.int64, np.uint8, int)
def add_rows(new_keys, new_values, in_columns, first, rows, found, keys, values, slots, used, ops, width):  # type: ignore[no-untyped-def]
    """Add new rows from `first` on. Return the index of the first row without space, or the number of rows.

    `in_columns`: the new rows are column after column, not row after row. `found`: room for numbers of rows.
    """
    columns = len(ops)
    step = 1 if in_columns else columns
    next_value = rows if in_columns else 1
    count = done = np.int64(0)
    while first < rows and done == count:
        count = np.int64(min(rows - first, len(found)))
        done = np.int64(
            claim_rows(
                new_keys, first, 1 if in_columns else width, rows if in_columns else 1, count, found,
                keys, slots, used, width,
            )
        )  # fmt: skip
        has_latest = False
        for c in range(columns):
            at = first * step + c * next_value
            op = ops[c]
            if op == SUM:
                for i in range(done):
                    values[np.uintp(found[i] * columns + c)] += new_values[np.uintp(at + i * step)]
            elif op == MIN:
                for i in range(done):
                    v = np.uintp(found[i] * columns + c)
                    values[v] = min(values[v], new_values[np.uintp(at + i * step)])
            elif op == ANY:
                for i in range(done):
                    values[np.uintp(found[i] * columns + c)] |= new_values[np.uintp(at + i * step)]
            elif op == MAX or not has_latest:
                has_latest = False
                last = c + 1  # where the LATEST columns of this one end
                while op == MAX and last < columns and ops[last] != MAX:
                    has_latest = has_latest or ops[last] == LATEST
                    last += 1
                for i in range(done):
                    v = np.uintp(found[i] * columns + c)
                    value = new_values[np.uintp(at + i * step)]
                    old = values[v]
                    values[v] = max(old, value)
                    if has_latest and value >= old:
                        for d in range(c + 1, last):
                            latest = new_values[np.uintp(at + i * step + (d - c) * next_value)]
                            v = np.uintp(found[i] * columns + d)
                            if ops[d] == LATEST and (value > old or latest > values[v]):
                                values[v] = latest
        first += done
    return first


@kernel(np.int64, np.int32, int, int, int)
def fill_slots(keys, slots, seed, rows, width):  # type: ignore[no-untyped-def]
    """Write all rows to free slots. Their keys are distinct."""
    for row in range(rows):
        slot = -1 - find_slot(keys, width, slots, seed, keys, row * width)
        slots[slot] = row
    return rows


@kernel(np.int64, np.int64, np.int32, int, np.int64, int)
def find_rows(probes, keys, slots, seed, out, width):  # type: ignore[no-untyped-def]
    """Write the row number of each probe, -1 if it is missing."""
    rows = len(probes) // width
    for i in range(rows):
        out[i] = max(find_slot(keys, width, slots, seed, probes, i * width), -1)
    return rows


class CountArrays(NamedTuple):
    """The arrays of a CountTable, for kernels that add to it. There is room for more rows while `has_room`."""

    keys: Annotated[Any, np.int64]
    values: Annotated[Any, np.int64]
    slots: Annotated[Any, np.int32]
    used: Annotated[Any, np.int64]


@helper
def has_room(table, columns, rows):  # type: ignore[no-untyped-def]
    """Whether a table (CountArrays) with so many value columns has room for so many more rows."""
    return table.used[ROWS] + rows <= len(table.values) // columns


@cache
def _columns(ops: tuple[int, ...]) -> tuple[Array, Array]:
    """Value columns as an array, and their values in a new row."""
    return np.array(ops, np.uint8), np.array([EMPTY[op] for op in ops], np.int64)


class CountTable:
    """A table with `width` key columns and one value column for each of `ops` (SUM to ANY).

    `keys`, `values`: flat int64 arrays of capacity * columns. `slots`: int32. `used`: int64 (2,), the number of rows
    and the hash seed. There are no arrays until one is needed: a run has hundreds of tables, most of them empty.
    """

    __slots__ = ("_capacity", "_made", "_slots", "empty", "ops", "used", "width")

    def __init__(self, width: int, ops: Sequence[int], capacity: int = 256) -> None:
        self.width, self._capacity = width, capacity
        self.ops, self.empty = _columns(tuple(ops))
        self.used = np.array([0, new_seed()], np.int64)
        self._made: Table | None = None
        self._slots: Array | None = None

    @property
    def _table(self) -> Table:
        if self._made is None:
            keys, values = Column(np.int64, self.width), Column(np.int64, len(self.ops), self.empty)
            self._made = Table(self._capacity, keys=keys, values=values)
        return self._made

    @property
    def keys(self) -> Array:
        return self._table["keys"]

    @property
    def values(self) -> Array:
        return self._table["values"]

    @property
    def columns(self) -> int:
        return len(self.ops)

    @property
    def arrays(self) -> CountArrays:
        """The arrays, until the table grows."""
        return CountArrays(self.keys, self.values, self.slots, self.used)

    @property
    def capacity(self) -> int:
        return self._capacity if self._made is None else len(self._made)

    def __len__(self) -> int:
        return int(self.used[ROWS])

    @property
    def slots(self) -> Array:
        """The hash table over the keys. It is made when it is needed: counts that only go on to others need none."""
        if self._slots is None:
            self._slots = np.full(1 << (2 * self.capacity - 1).bit_length(), -1, np.int32)
            if len(self):
                fill_slots(self.keys, self._slots, int(self.used[SEED]), len(self), self.width)
        return self._slots

    def set_rows(self, keys: Array, values: Array) -> None:
        """Take the rows of another table, instead of those here: int64 (n, width) and (n, columns), distinct keys."""
        self._table.reserve(len(keys), 0)
        self.used[ROWS] = len(keys)
        self.key_rows()[:], self.value_rows()[:] = keys, values
        self._slots = None

    def clear(self) -> None:
        """Remove all rows. The arrays stay the same ones."""
        if not len(self):
            return
        self.value_rows()[:] = self.empty
        if self._slots is not None:
            self._slots.fill(-1)
        self.used[ROWS] = 0

    def reserve(self, free: int) -> None:
        """Grow so that at least `free` more rows fit."""
        if self._table.reserve(len(self) + free, len(self)):
            self._slots = None

    def key_rows(self) -> Array:
        """A view of the keys: int64 (rows, width)."""
        if self._made is None:
            return np.zeros((0, self.width), np.int64)
        return self.keys[: len(self) * self.width].reshape(-1, self.width)

    def value_rows(self) -> Array:
        """A view of the values: int64 (rows, columns)."""
        if self._made is None:
            return np.zeros((0, self.columns), np.int64)
        return self.values[: len(self) * self.columns].reshape(-1, self.columns)

    def add(self, keys: Array, values: Array) -> None:
        """Add rows: int64 (n, width) and (n, columns)."""
        flat_keys, flat_values = (np.ascontiguousarray(rows, np.int64).reshape(-1) for rows in (keys, values))
        self._add(flat_keys, flat_values, False, len(keys))

    def add_columns(self, columns: Sequence[Any], rows: int) -> None:
        """Add rows by their columns, first those of keys: numbers (rows,), or one number for all."""
        found = np.empty((len(columns), rows), np.int64)
        for number, column in enumerate(columns):
            found[number] = column
        flat = found.reshape(-1)
        self._add(flat, flat[self.width * rows :], True, rows)

    def _add(self, keys: Array, values: Array, in_columns: bool, rows: int) -> None:
        found, done = np.empty(min(rows, _BLOCK), np.int64), 0
        while done < rows:
            self.reserve(1)
            done = add_rows(
                keys, values, in_columns, done, rows, found,
                self.keys, self.values, self.slots, self.used, self.ops, self.width,
            )  # fmt: skip

    def find(self, keys: Array) -> Array:
        """The row number of each key, -1 if it is missing: int64 (n, width) -> int64 (n,)."""
        out = np.empty(len(keys), np.int64)
        probes = np.ascontiguousarray(keys, np.int64).reshape(-1)
        find_rows(probes, self.keys, self.slots, int(self.used[SEED]), out, self.width)
        return out

    def put_in_order(self, order: Array) -> None:
        """Put the rows in another order: all their numbers."""
        for rows in (self.key_rows(), self.value_rows()):
            rows[:] = rows[order]
        self._slots = None

    def merge(self, other: CountTable) -> None:
        """Add all rows of another table with the same columns."""
        self.add(other.key_rows(), other.value_rows())


def distinct_rows(rows: Array) -> tuple[Array, Array]:
    """The distinct rows of int64 (n, width), in order of their first appearance, and the number of each row there."""
    table = CountTable(rows.shape[1], [SUM])
    table.add(rows, np.zeros((len(rows), 1), np.int64))
    return table.key_rows(), table.find(rows)


def merge(a: CountTable, b: CountTable) -> CountTable:
    """A new table with the sum of two tables."""
    result = CountTable(a.width, [int(op) for op in a.ops], max(len(a) + len(b), 16))
    result.merge(a)
    result.merge(b)
    return result
