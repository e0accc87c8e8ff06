"""Counts as rows of a table that only kafkatap reads, and back: a row has the counts of one form.

    rows, places = stored_table(parts, names)       # parts of any FormCounts, and of events, of many places
    for part in parts_of(rows, forms, names): ...   # one part for each form: rows with the same keys are not added up

A layout says which columns a part has, so that rows of an earlier version are read by name.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from kafkatap.dissector.dtypes import LIST_STRING
from kafkatap.kernels.arrays import groups_of

from ..arrow_arrays import arrow_indices, arrow_numbers, arrow_texts
from ..batch import Array, Names
from ..table_columns import TableColumn
from .count_forms import ADDRESS, TEXT
from .histogram import OWNER_SHIFT
from .parts import Part

if TYPE_CHECKING:
    import pyarrow as pa

    from ..name_table import NameTable

COLUMNS = (
    TableColumn("form", "string", "what is counted"),
    TableColumn("layout", "string", "names of its columns"),
    TableColumn("rows", "int64", "number of its rows"),
    TableColumn("numbers", "binary", "keys, values and histograms"),
    TableColumn("texts", LIST_STRING, "strings that the keys refer to, a character for each byte"),
    TableColumn("addresses", LIST_STRING, "addresses that the keys refer to"),
)
#: Each character is a byte: strings from the wire may be no UTF-8, and ids of topics are 16 bytes.
_BYTES = "latin-1"
#: Of the column `numbers`.
_WORD = np.dtype("<i8")
#: Numbers are sorted if there are fewer than one of so many.
_DENSE = 32


def stored_table(parts: Iterable[tuple[Part, Array]], names: Names) -> tuple[pa.Table, Array]:
    """A row of COLUMNS for each place that has rows of a part, part by part, and these places: int64. `parts`: with the
    place of each row, int64 (n,), from 0 on. `names`: the meaning of the numbers in keys."""
    import pyarrow as pa

    from ..tables import arrow_schema

    schema = arrow_schema(COLUMNS)
    rows = [_Rows.of(*part) for part in parts if len(part[1])]
    places = np.concatenate([each.places for each in rows]) if rows else np.zeros(0, np.int64)
    of_part = np.repeat(np.arange(len(rows)), [len(each.places) for each in rows])
    ends = np.cumsum(np.concatenate([[0], *(each.words for each in rows)])) * _WORD.itemsize
    numbers = b"".join(each.numbers.tobytes() for each in rows)
    texts, addresses = (
        _lists([each.named[kind] for each in rows], name_of)
        for kind, name_of in (
            (TEXT, lambda n: (names.strings[n] or b"").decode(_BYTES)), (ADDRESS, names.addresses.__getitem__),
        )
    )  # fmt: skip
    columns = [
        arrow_texts([each.part.form for each in rows]).take(arrow_indices(of_part)),
        arrow_texts([each.part.layout for each in rows]).take(arrow_indices(of_part)),
        arrow_numbers(np.concatenate([np.zeros(0, np.int64), *(each.counts for each in rows)]), pa.int64()),
        pa.Array.from_buffers(
            pa.binary(), len(places), [None, pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(numbers)]
        ),
        texts, addresses,
    ]  # fmt: skip
    return pa.table(columns, names=schema.names).cast(schema), places


class _Rows(NamedTuple):
    """The rows of a part by place. `places`: ascending. Of each: `counts`, the number of its rows; `words`, that of its
    numbers, which are all in `numbers`. `named`: by kind, the names of all, and how many each has."""

    part: Part
    places: Array
    counts: Array
    words: Array
    numbers: Array
    named: Mapping[str, tuple[Array, Array]]

    @classmethod
    def of(cls, part: Part, places: Array) -> Self:
        order = np.argsort(places, kind="stable")
        is_first = np.diff(places[order], prepend=-1) != 0
        distinct, owners = places[order][is_first], np.cumsum(is_first) - 1
        counts = np.bincount(owners, minlength=len(distinct))
        at = np.arange(len(order)) - (np.cumsum(counts) - counts)[owners]  # of each row among those of its place
        keys, named = part.keys[order], {}
        for kind in (TEXT, ADDRESS):
            named[kind] = _number_apart(keys, _columns_of(part.kinds, kind), owners, len(distinct))
        rows = np.hstack((keys, part.values[order])) if len(part.values) else keys
        row_of = np.empty_like(order)
        row_of[order] = np.arange(len(order))
        buckets, of_buckets = part.histograms
        rows_of = row_of[buckets >> OWNER_SHIFT]
        buckets = at[rows_of] << OWNER_SHIFT | buckets & ((1 << OWNER_SHIFT) - 1)
        by_place = np.lexsort((buckets, owners[rows_of]))
        lengths = np.bincount(owners[rows_of], minlength=len(distinct))
        words = rows.shape[1] * counts + 2 * lengths
        begins = np.cumsum(words) - words
        numbers = np.empty(words.sum(), _WORD)
        places_of_columns = begins[owners] + at
        for column in rows.T:
            numbers[places_of_columns] = column
            places_of_columns = places_of_columns + counts[owners]
        of, places_of_buckets = _ranges(begins + rows.shape[1] * counts, lengths)
        numbers[places_of_buckets], numbers[places_of_buckets + lengths[of]] = buckets[by_place], of_buckets[by_place]
        return cls(part, distinct, counts, words, numbers, named)


def _columns_of(kinds: Mapping[str, str], kind: str) -> list[int]:
    return [number for number, its_kind in enumerate(kinds.values()) if its_kind == kind]


def _number_apart(keys: Array, columns: Sequence[int], owners: Array, places: int) -> tuple[Array, Array]:
    """Give the names in some columns of keys numbers from 0 on in each place. Return the numbers that these had, place
    by place, and how many each place has. `owners`: the place of each row."""
    if not columns:
        return np.zeros(0, np.int64), np.zeros(places, np.int64)
    own = keys[:, columns]
    has_name, width = own >= 0, int(own.max(initial=-1)) + 1
    found, own[has_name] = _distinct((owners[:, None] * width + own)[has_name], places * width)
    firsts = np.searchsorted(found, np.arange(places + 1) * width)
    keys[:, columns] = np.where(has_name, own - firsts[owners][:, None], -1)
    return found - np.repeat(np.arange(places) * width, np.diff(firsts)), np.diff(firsts)


def _distinct(numbers: Array, end: int) -> tuple[Array, Array]:
    """The distinct ones of some numbers from 0 to `end`, ascending, and the place of each number among these."""
    if end > _DENSE * len(numbers):
        return np.unique(numbers, return_inverse=True)
    there = np.zeros(end, bool)
    there[numbers] = True
    return np.flatnonzero(there), np.cumsum(there)[numbers] - 1


def _lists(parts: Sequence[tuple[Array, Array]], name_of: Callable[[int], str]) -> pa.Array:
    """A list of names for each row. `parts`: the numbers of all, and how many each row has."""
    import pyarrow as pa

    none = np.zeros(0, np.int64)
    numbers, lengths = (np.concatenate([none, *each]) for each in (zip(*parts, strict=True) if parts else ((), ())))
    distinct, at = np.unique(numbers, return_inverse=True)
    texts = arrow_texts([name_of(number) for number in distinct.tolist()]).take(arrow_indices(at))
    ends = arrow_numbers(np.concatenate(([0], np.cumsum(lengths))), pa.int32())
    return pa.ListArray.from_arrays(ends, texts)


def parts_of(rows: pa.Table, forms: Container[str], names: NameTable) -> Iterator[Part]:
    """The parts of rows of COLUMNS that are of some forms, one for all rows of a form and a layout. `names`: gets what
    keys refer to."""
    (form_of, all_forms), (layout_of, layouts) = (_coded(_whole(rows[name])) for name in ("form", "layout"))
    stored = _Stored.of(rows, names)
    for [form, layout], chosen in groups_of(form_of, layout_of):
        if all_forms[form] in forms:
            yield stored.part(all_forms[form], layouts[layout], chosen)


class _Stored(NamedTuple):
    """Rows of COLUMNS. `counts`: their numbers of rows. `words`: all numbers; `begins`: where those of each row begin,
    and their end. `named`: by kind, the numbers of all names and last -1, and where those of each row begin."""

    counts: Array
    words: Array
    begins: Array
    named: Mapping[str, tuple[Array, Array]]

    @classmethod
    def of(cls, rows: pa.Table, names: NameTable) -> Self:
        numbers = _whole(rows["numbers"])
        _, offsets, data = numbers.buffers()
        begins = np.frombuffer(offsets, np.int32)[numbers.offset :][: rows.num_rows + 1] // _WORD.itemsize
        words = np.zeros(0, _WORD) if data is None else np.frombuffer(data, _WORD, int(begins[-1]))
        named = {
            TEXT: _numbers_of(_whole(rows["texts"]), lambda text: names.string(text.encode(_BYTES))),
            ADDRESS: _numbers_of(_whole(rows["addresses"]), names.address),
        }
        return cls(rows["rows"].to_numpy(), words, begins.astype(np.int64), named)

    def part(self, form: str, layout: str, chosen: Array) -> Part:
        """The part of some rows, which have the same form and layout."""
        kinds, value_names, metrics = _read_layout(layout)
        width, counts, begins = len(kinds) + len(value_names), self.counts[chosen], self.begins[chosen]
        owners, places = _ranges(begins, counts)
        keys, values = (np.empty((len(owners), each), np.int64) for each in (len(kinds), len(value_names)))
        for column in (*keys.T, *values.T):
            column[:] = self.words[places]
            places += counts[owners]
        for kind, (numbers, firsts) in self.named.items():
            at = _columns_of(kinds, kind)
            if at:
                own = keys[:, at]
                keys[:, at] = numbers[np.where(own >= 0, own + firsts[chosen][owners, None], -1)]
        behind = begins + width * counts
        lengths = (self.begins[chosen + 1] - behind) // 2
        of_row, places = _ranges(behind, lengths)
        buckets = self.words[places] + ((np.cumsum(counts) - counts)[of_row] << OWNER_SHIFT)
        histograms = np.stack((buckets, self.words[places + lengths[of_row]]))
        return Part(form, kinds, keys, value_names, values, metrics, histograms)


def _whole(column: Any) -> Any:
    return column.combine_chunks()


def _coded(column: Any) -> tuple[Array, list[str]]:
    """The number of each text, and the texts."""
    encoded = column.dictionary_encode()
    return encoded.indices.to_numpy().astype(np.int64), encoded.dictionary.to_pylist()


def _ranges(begins: Array, lengths: Array) -> tuple[Array, Array]:
    """Of ranges one after the other, each item's range and the item: int64 (n,)."""
    owners = np.repeat(np.arange(len(lengths)), lengths)
    return owners, np.arange(len(owners)) + (begins + lengths - np.cumsum(lengths))[owners]


def _numbers_of(lists: Any, number_of: Callable[[str], int]) -> tuple[Array, Array]:
    """The numbers of all texts of some lists, and last -1; and where each list begins."""
    codes, texts = _coded(lists.flatten())
    lengths = lists.value_lengths().to_numpy().astype(np.int64)
    return np.append(np.array([*map(number_of, texts)], np.int64)[codes], -1), np.cumsum(lengths) - lengths


def _read_layout(layout: str) -> tuple[dict[str, str], tuple[str, ...], tuple[str, ...]]:
    keys, values, metrics = layout.split(";")
    pairs: Sequence[tuple[str, str, str]] = [key.partition(":") for key in keys.split(",")]
    return {name: kind for name, _, kind in pairs}, _names(values), _names(metrics)


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split(",")) if text else ()
