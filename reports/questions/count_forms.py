"""Tables of counts that a section declares: named key columns, and values with an operation: sum, min, max, latest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from ..batch import Array
from ..counting.count_table import EMPTY, CountTable
from ..counting.histogram import BUCKET_BITS, BUCKETS, OWNER_SHIFT, Histograms, buckets

#: Kinds of key columns. A NUMBER is any int64. The others are numbers of strings and addresses, -1: null.
NUMBER, TEXT, ADDRESS = "number", "text", "address"


class CountForm(NamedTuple):
    """`keys`: the kind of each key column. `values`: SUM, MIN, MAX or LATEST by name. Rows with little of the first
    value are small. `newest`: a value by which the smallest of rows with the same first value are small, such as the
    last time. Without it, rows that came later are. `other`: the key columns of small rows once there are too many:
    OTHER, or a number. `metrics`: values with a histogram. `rows`: the most rows, if fewer than `--max-names`.
    """

    name: str
    keys: Mapping[str, str]
    values: Mapping[str, int]
    other: Mapping[str, int]
    metrics: tuple[str, ...] = ()
    newest: str = ""
    rows: int | None = None


#: `CountForm.rows` of forms with a row for each connection, which are looked at one by one.
CONNECTION_ROWS = 50_000

#: In `CountForm.other`: the text "(other)".
OTHER = -2


class FormCounts:
    """The counts of one form."""

    def __init__(self, form: CountForm) -> None:
        self.form = form
        self.table = CountTable(len(form.keys), list(form.values.values()), 64)
        self.histograms = Histograms(0)

    def __len__(self) -> int:
        return len(self.table)

    def add(self, keys: Array, values: Array) -> None:
        """Add rows: int64 (n, keys) and (n, values), in the order of the form."""
        if len(keys):
            self.table.add(keys, values)

    def observe(self, metric: int, keys: Array, numbers: Array) -> None:
        """Add values (int64 (n,), not negative) to the histogram of rows, by their keys."""
        if not len(keys):
            return
        self.table.add(keys, np.tile(self.table.empty, (len(keys), 1)))
        owners = self.table.find(keys)
        found, counts = np.unique(
            (owners << OWNER_SHIFT) | (metric << BUCKET_BITS) | buckets(numbers), return_counts=True
        )
        self.histograms.add(found, counts)

    def merge(self, keys: Array, other: FormCounts) -> None:
        """Add other counts, whose keys have become `keys`."""
        if not len(other):
            return
        self.table.add(keys, other.table.value_rows())
        other.histograms.merge_noted()
        if len(other.histograms):
            owners = self.table.find(keys)[other.histograms.keys >> OWNER_SHIFT]
            low = other.histograms.keys & ((1 << OWNER_SHIFT) - 1)
            self.histograms.add(owners << OWNER_SHIFT | low, other.histograms.counts)

    def rekeyed(self, keys: Array) -> FormCounts:
        """The same counts under other keys. Rows with equal new keys are added up."""
        made = FormCounts(self.form)
        made.merge(keys, self)
        return made

    def keys(self) -> dict[str, Array]:
        """The key columns: int64 (rows,) each."""
        rows = self.table.key_rows()
        return {name: rows[:, i] for i, name in enumerate(self.form.keys)}

    def values(self) -> dict[str, Array]:
        """The value columns: int64 (rows,) each. A MIN or MAX without a value is `count_table.EMPTY`."""
        rows = self.table.value_rows()
        return {name: rows[:, i] for i, name in enumerate(self.form.values)}

    def buckets(self, metric: str) -> tuple[Array, Array, Array]:
        """(row, bucket, count) of a metric's histogram: int64 (n,) each."""
        self.histograms.merge_noted()
        chosen = (self.histograms.keys >> BUCKET_BITS) & 0xFF == self.form.metrics.index(metric)
        keys = self.histograms.keys[chosen]
        return keys >> OWNER_SHIFT, keys & (BUCKETS - 1), self.histograms.counts[chosen]

    def put_in_order(self, ranks: Mapping[str, Array]) -> None:
        """Put the rows in order of their keys. `ranks`: by the kind of key, those of numbers in order of what they
        name, and last that of -1."""
        keys = self.table.key_rows()
        columns = [
            ranks[kind][keys[:, i]] if kind in ranks else keys[:, i] for i, kind in enumerate(self.form.keys.values())
        ]
        order = np.lexsort(columns[::-1])
        if not (order[1:] > order[:-1]).all():
            self.table.put_in_order(order)
            self.histograms = self.histograms.with_owners(_numbers_of(order, len(self)))

    def without_small_rows(self, rows: int, other: int) -> FormCounts:
        """Counts of no more than `rows` rows. If there are more, half of that is left, and the others are added up. Of
        those, too, only the largest stay if there are too many. `other`: the number of the text "(other)"."""
        if len(self) <= rows:
            return self
        keys, small = self.table.key_rows().copy(), self._by_weight()[rows // 2 :]
        for name, value in self.form.other.items():
            keys[small, list(self.form.keys).index(name)] = other if value == OTHER else value
        folded = self.rekeyed(keys)
        return folded if len(folded) <= rows else folded._with_rows(folded._by_weight()[: rows // 2])

    def _by_weight(self) -> Array:
        """The rows, those with much of the first value first."""
        values = self.table.value_rows()
        if self.form.newest:
            return np.lexsort((-values[:, list(self.form.values).index(self.form.newest)], -values[:, 0]))
        return np.argsort(-values[:, 0], kind="stable")

    def _with_rows(self, rows: Array) -> FormCounts:
        """Only these rows, with their histograms."""
        made = FormCounts(self.form)
        made.add(self.table.key_rows()[rows], self.table.value_rows()[rows])
        made.histograms = self.histograms.with_owners(_numbers_of(rows, len(self)))
        return made


def _numbers_of(rows: Array, count: int) -> Array:
    """The place in `rows` of each of `count` rows, -1 if it is not there."""
    found = np.full(count, -1, np.int64)
    found[rows] = np.arange(len(rows))
    return found


def empty_values(form: CountForm, rows: int) -> Array:
    """Rows without values: int64 (rows, values)."""
    return np.tile(np.array([EMPTY[op] for op in form.values.values()], np.int64), (rows, 1))
