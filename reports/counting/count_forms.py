"""Counts of declared forms: named key columns, values with an operation (sum, min, max, latest, any), and histograms.

Reports, sections, comparisons and connections are counted in a `CountStore`. It adds, merges, renumbers, bounds and
pickles the counts of all its forms.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from types import MappingProxyType
from typing import Any, NamedTuple, Self

import numpy as np

from kafkatap.kernels.arrays import value_counts

from ..batch import ADDRESS_COLUMNS, STRING_COLUMNS, Array
from .count_table import EMPTY, CountTable
from .histogram import BUCKET_BITS, BUCKETS, OWNER_SHIFT, Histograms, buckets, keys_of

#: Kinds of key columns. A NUMBER is any int64. The others are numbers of strings and addresses, -1: null.
NUMBER, TEXT, ADDRESS = "number", "text", "address"


class CountForm(NamedTuple):
    """`keys`: the kind of each key column. `values`: SUM to ANY by name. Rows with little of the first
    value are small. `newest`: a value by which the smallest of rows with the same first value are small, such as the
    last time. Without it, rows that came later are. `other`: the key columns of small rows once there are too many:
    OTHER, or a number. `metrics`: values with a histogram. `rows`: the most rows, if fewer than `--max-names`.
    `weights`: the first values whose sum is the weight of a row. `further`: more key columns of small rows, if there
    are still too many.
    """

    name: str
    keys: Mapping[str, str]
    values: Mapping[str, int]
    other: Mapping[str, int]
    metrics: tuple[str, ...] = ()
    newest: str = ""
    rows: int | None = None
    weights: int = 1
    further: Mapping[str, int] | None = None


_NONE: Mapping[str, Any] = MappingProxyType({})
#: The first key of forms `by_place`: a number for a capture and an hour.
PLACE = "place"
#: The new numbers of strings and addresses by kind: int64, one for each old number, and last -1 for -1.
Numbers = Mapping[str, Array]
#: `CountForm.rows` of forms with a row for each connection, which are looked at one by one.
CONNECTION_ROWS = 50_000

#: In `CountForm.other`: the text "(other)".
OTHER = -2


def by_place(form: CountForm) -> CountForm:
    """A form with PLACE before its keys."""
    return form._replace(keys={PLACE: NUMBER, **form.keys})


class FormCounts:
    """The counts of one form. `rows`: for which there is room at first. `noted`: values that kernels may note in its
    histograms before they are counted."""

    __slots__ = ("form", "histograms", "table")

    def __init__(self, form: CountForm, rows: int = 64, noted: int = 0) -> None:
        self.form = form
        self.table = CountTable(len(form.keys), list(form.values.values()), rows)
        self.histograms = Histograms(noted)

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
        owners = self.table.find(keys)
        is_new = owners < 0
        if is_new.any():
            self.table.add(keys[is_new], np.tile(self.table.empty, (int(is_new.sum()), 1)))
            owners = self.table.find(keys)
        self.histograms.add(*value_counts(keys_of(owners, metric, buckets(numbers))))

    def add_buckets(self, metric: int, rows: Array, bucket: Array, counts: Array) -> None:
        """Add to the histogram of rows, by their numbers: int64 (n,) each."""
        self.histograms.add(keys_of(rows, metric, bucket), counts)

    def add_columns(self, keys: Mapping[str, Any], values: Mapping[str, Any]) -> None:
        """Add rows by the names of their columns: int64 (n,), or one number for all. Values that are left out are not
        changed."""
        columns = [keys[name] for name in self.form.keys]
        rows = _length(columns)
        if rows:
            self.table.add_columns(
                columns + [values.get(name, EMPTY[op]) for name, op in self.form.values.items()], rows
            )

    def observe_columns(self, keys: Mapping[str, Any], metric: str, numbers: Array) -> None:
        """`observe` by the names of key columns and of the metric."""
        self.observe(self.form.metrics.index(metric), self._key_rows(keys), numbers)

    def _key_rows(self, keys: Mapping[str, Any]) -> Array:
        columns = [keys[name] for name in self.form.keys]
        found = np.empty((_length(columns), len(columns)), np.int64)
        for number, column in enumerate(columns):
            found[:, number] = column
        return found

    def merge(self, keys: Array, other: FormCounts) -> None:
        """Add other counts, whose keys have become `keys`."""
        self.add_rows(keys, *other.without_keys())

    def without_keys(self) -> tuple[Array, Array, Array]:
        """The values and histograms of all rows, as of `add_rows`."""
        self.histograms.merge_noted()
        return self.table.value_rows(), self.histograms.keys, self.histograms.counts

    def add_rows(self, keys: Array, values: Array, histograms: Array, counts: Array) -> None:
        """Add rows as of `add`, whose keys may repeat, with their histograms: int64 (m,) each, whose owners are places
        in `keys`. Histograms are merged when they are read."""
        self.add(keys, values)
        if len(histograms):
            owners, low = self.table.find(keys)[histograms >> OWNER_SHIFT], histograms & ((1 << OWNER_SHIFT) - 1)
            self.histograms.add(owners << OWNER_SHIFT | low, counts)

    def move_to(self, other: FormCounts, place: int) -> None:
        """Move all rows to counts of the form `by_place`."""
        if len(self):
            keys = self.table.key_rows()
            other.merge(np.hstack((np.full((len(keys), 1), place), keys)), self)
            self.table.clear()
            self.histograms.clear()

    def rekeyed(self, keys: Array) -> FormCounts:
        """The same counts under other keys. Rows with equal new keys are added up."""
        made = FormCounts(self.form, max(len(self), 64), len(self.histograms.noted))
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
        """Counts in which the small rows are added up, so that half of `rows` is left beside them, if there are more
        than that. `other`: the number of the text "(other)"."""
        found, form = self, self.form
        for keys_of_small in (form.other, {**form.other, **form.further}) if form.further else (form.other,):
            if len(found) <= rows:
                break
            keys, small = found.table.key_rows().copy(), ~found._have_most(rows // 2)
            for name, value in keys_of_small.items():
                keys[small, list(form.keys).index(name)] = other if value == OTHER else value
            found = found.rekeyed(keys)
        return found

    def largest(self, rows: int) -> FormCounts:
        """Only the rows with the most weight: half of `rows`, if there are more than that."""
        return self if len(self) <= rows else self.with_rows(self._by_weight()[: rows // 2])

    def _by_weight(self) -> Array:
        """The rows, those with much weight first."""
        weight, *newest = self._weights()
        return np.lexsort((-newest[0], -weight)) if newest else np.argsort(-weight, kind="stable")

    def _weights(self) -> list[Array]:
        """What rows are small by, one after another: int64 (rows,) each."""
        values = self.table.value_rows()
        newest = [values[:, list(self.form.values).index(name)] for name in (self.form.newest,) if name]
        return [values[:, : self.form.weights].sum(axis=1), *newest]

    def _have_most(self, count: int) -> Array:
        """Whether each row is one of the first of `_by_weight`, without sorting all: bool."""
        found, like = np.zeros(len(self), bool), np.arange(len(self))
        for column in self._weights() if 0 < count < len(self) else ():
            numbers = column[like]
            least = np.partition(numbers, len(numbers) - count)[len(numbers) - count]
            more = numbers > least
            found[like[more]] = True
            count -= int(np.count_nonzero(more))
            like = like[numbers == least]
        found[like[:count]] = True
        return found

    def names_used(self) -> dict[str, list[Array]]:
        """The numbers of strings and of addresses in the keys, by kind: int64 (rows,) for each column."""
        found: dict[str, list[Array]] = {TEXT: [], ADDRESS: []}
        if len(self):
            for kind, column in zip(self.form.keys.values(), self.table.key_rows().T, strict=True):
                if kind in found:
                    found[kind].append(column)
        return found

    def keys_with(self, numbers: Numbers) -> Array:
        """A copy of the keys with other numbers of strings and addresses: int64 (rows, keys)."""
        keys = self.table.key_rows().copy()
        for column, kind in enumerate(self.form.keys.values()):
            if kind in numbers:
                keys[:, column] = numbers[kind][keys[:, column]]
        return keys

    def __getstate__(self) -> tuple[CountForm, Array, Array, Array, Array]:
        self.histograms.merge_noted()
        rows = self.table.key_rows().copy(), self.table.value_rows().copy()
        return self.form, *rows, self.histograms.keys, self.histograms.counts

    def __setstate__(self, state: tuple[CountForm, Array, Array, Array, Array]) -> None:
        form, keys, values, buckets_of, counts = state
        FormCounts.__init__(self, form, len(keys))
        self.table.set_rows(keys, values)
        self.histograms.set_counts(buckets_of, counts)

    def with_rows(self, rows: Array) -> FormCounts:
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


def _length(columns: Sequence[Any]) -> int:
    """The number of rows of columns, some of which have one number for all."""
    return next((len(c) for c in columns if np.ndim(c) and len(c) != 1), 1)


class CountStore:
    """Counts of several forms, by name. Strings and addresses in keys are numbers of one process."""

    def __init__(self, forms: Iterable[FormCounts]) -> None:
        self.forms = {each.form.name: each for each in forms}

    def __getitem__(self, form: str) -> FormCounts:
        return self.forms[form]

    def copy(self) -> Self:
        """The same counts, to which more can be added."""
        made = copy(self)
        made.forms = {name: counts.rekeyed(counts.table.key_rows()) for name, counts in self.forms.items()}
        return made

    def merge(self, other: CountStore, numbers: Numbers | None = None, keys: Mapping[str, Array] = _NONE) -> None:
        """Add other counts of the same forms, and perhaps of more, which stay out. `numbers`: the number here of each
        number there; None: the same. `keys`: what the keys of some forms are here."""
        for name, mine in self.forms.items():
            counts, here = other.forms[name], keys.get(name)
            if not len(counts):
                continue
            if here is None:
                here = counts.table.key_rows() if numbers is None else counts.keys_with(numbers)
            mine.merge(here, counts)

    def rekey(self, form: str, keys: Array) -> None:
        """Change the keys of a form: int64 (rows, keys). Rows with equal new keys are added up."""
        self.forms[form] = self.forms[form].rekeyed(keys)

    def renumber(self, numbers: Numbers) -> None:
        """Change the numbers of strings and addresses."""
        for name, counts in self.forms.items():
            self.rekey(name, counts.keys_with(numbers))

    def used(self) -> dict[str, list[Array]]:
        """The numbers of strings and of addresses in the keys, by kind: int64 (n,) for each column."""
        found: dict[str, list[Array]] = {TEXT: [], ADDRESS: []}
        for counts in self.forms.values():
            for kind, columns in counts.names_used().items():
                found[kind] += columns
        return found

    def names_used(self) -> tuple[Array, Array]:
        """The numbers of strings and of addresses in the keys, ascending: int64 (n,) each."""
        found = self.used()
        return numbers_in(found[TEXT]), numbers_in(found[ADDRESS])


def kinds_of(names: Iterable[str]) -> dict[str, str]:
    """The kind of each key column that has the name of a column of rows."""
    return {name: TEXT if name in STRING_COLUMNS else ADDRESS if name in ADDRESS_COLUMNS else NUMBER for name in names}


def numbers_by_kind(strings: Array, addresses: Array) -> Numbers:
    """`strings`, `addresses`: int64, the new number of each old one."""
    return {TEXT: np.append(strings, -1), ADDRESS: np.append(addresses, -1)}


def numbers_in(columns: Iterable[Array]) -> Array:
    """The numbers in some columns (-1: none), ascending: int64."""
    columns = list(columns)
    is_used = np.zeros(2 + max((int(column.max()) for column in columns), default=-1), bool)
    for column in columns:
        is_used[column] = True
    found: Array = np.flatnonzero(is_used[:-1])  # the last one is that of -1
    return found
