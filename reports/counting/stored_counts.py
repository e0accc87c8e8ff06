"""Counts as rows of a table that only kafkatap reads, and back: a row has the counts of one form.

    rows = stored_table(parts, names)               # parts of any FormCounts, and of events
    for part in parts_of(rows, forms, names): ...   # one part for each form: rows with the same keys are not added up

A layout says which columns a part has, so that rows of an earlier version are read by name.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from kafkatap.dissector.dtypes import LIST_STRING
from kafkatap.kernels.arrays import groups_of

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


def stored_table(parts: Iterable[Part], names: Names) -> pa.Table:
    """A row of COLUMNS for each part that has rows. `names`: the meaning of the numbers in keys."""
    import pyarrow as pa

    from ..tables import arrow_schema

    rows: list[tuple[Any, ...]] = []
    for part in parts:
        if len(part.keys):
            keys, texts = _own_numbers(part, TEXT, part.keys)
            keys, addresses = _own_numbers(part, ADDRESS, keys)
            numbers = b"".join(a.astype(_WORD).tobytes() for a in (keys.T, part.values.T, part.histograms))
            rows.append((
                part.form, part.layout, len(keys), numbers,
                [(names.strings[n] or b"").decode(_BYTES) for n in texts.tolist()],
                [names.addresses[n] for n in addresses.tolist()],
            ))  # fmt: skip
    schema = arrow_schema(COLUMNS)
    columns = zip(*rows, strict=True) if rows else [()] * len(schema)
    return pa.Table.from_arrays([pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema=schema)


def _own_numbers(part: Part, kind: str, keys: Array) -> tuple[Array, Array]:
    """The keys with numbers from 0 on for the names of a kind, and the numbers that these had."""
    at = [number for number, its_kind in enumerate(part.kinds.values()) if its_kind == kind]
    if not at:
        return keys, np.zeros(0, np.int64)
    found, places = np.unique(keys[:, at], return_inverse=True)
    missing = int(np.searchsorted(found, 0))  # -1: none
    keys = keys.copy()
    keys[:, at] = np.maximum(places.reshape(-1, len(at)) - missing, -1)
    return keys, found[missing:]


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
            at = [number for number, its_kind in enumerate(kinds.values()) if its_kind == kind]
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
