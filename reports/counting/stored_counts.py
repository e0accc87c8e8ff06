"""Counts as rows of a table that only kafkatap reads, and back: a row has the counts of one form.

    rows = stored_table(parts, names)               # parts of any FormCounts, and of events
    for part in parts_of(rows, names): ...          # one part for each form: rows with the same keys are not added up

A layout says which columns a part has, so that rows of an earlier version are read by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from kafkatap.dissector.dtypes import LIST_STRING
from kafkatap.kernels.arrays import groups_of

from ..batch import Array, Names
from ..table_columns import TableColumn
from .count_forms import ADDRESS, TEXT
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


def stored_table(parts: Iterable[Part], names: Names) -> pa.Table:
    """A row of COLUMNS for each part that has rows. `names`: the meaning of the numbers in keys."""
    import pyarrow as pa

    from ..tables import arrow_schema

    rows: list[tuple[Any, ...]] = []
    for part in parts:
        if len(part.keys):
            keys, texts = _own_numbers(part, TEXT, part.keys)
            keys, addresses = _own_numbers(part, ADDRESS, keys)
            numbers = b"".join(a.astype("<i8").tobytes() for a in (keys.T, part.values.T, part.histograms))
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


def parts_of(rows: pa.Table, names: NameTable) -> Iterator[Part]:
    """The parts of rows of COLUMNS, one for all rows of a form and a layout. `names`: gets what keys refer to."""
    rows = rows.combine_chunks()
    for [_, _], chosen in groups_of(*(_codes(rows[name]) for name in ("form", "layout"))):
        some = rows.take(chosen)
        yield _part(some, names)


def _codes(column: Any) -> Array:
    encoded = column.combine_chunks().dictionary_encode()
    found: Array = encoded.indices.to_numpy().astype(np.int64)
    return found


def _part(rows: pa.Table, names: NameTable) -> Part:
    """The part of rows of the same form and layout."""
    kinds, value_names, metrics = _read_layout(rows["layout"][0].as_py())
    counts = rows["rows"].to_numpy()
    keys, values, histograms = [], [], []
    for count, numbers in zip(counts.tolist(), rows["numbers"].to_pylist(), strict=True):
        found, width = np.frombuffer(numbers, "<i8"), len(kinds) + len(value_names)
        columns = found[: width * count].reshape(width, count)
        keys.append(columns[: len(kinds)])
        values.append(columns[len(kinds) :])
        histograms.append(found[width * count :].reshape(2, -1))
    begins = np.cumsum(counts) - counts
    all_keys = np.concatenate(keys, axis=1).T.astype(np.int64)
    owners = np.repeat(begins, [each.shape[1] for each in histograms])
    buckets = np.concatenate(histograms, axis=1).astype(np.int64)
    if buckets.size:
        from .histogram import OWNER_SHIFT

        buckets[0] += owners << OWNER_SHIFT
    for kind, column, number_of in (
        (TEXT, "texts", lambda text: names.string(text.encode(_BYTES))),
        (ADDRESS, "addresses", names.address),
    ):
        at = [number for number, its_kind in enumerate(kinds.values()) if its_kind == kind]
        if at:
            numbers, offsets = _numbers_of(rows[column], number_of)
            first = np.repeat(offsets, counts)[:, None]
            there = all_keys[:, at]
            all_keys[:, at] = np.where(there >= 0, numbers[np.where(there >= 0, there + first, -1)], -1)
    return Part(
        rows["form"][0].as_py(), kinds, all_keys, value_names, np.concatenate(values, axis=1).T.astype(np.int64),
        metrics, buckets,
    )  # fmt: skip


def _numbers_of(lists: Any, number_of: Any) -> tuple[Array, Array]:
    """The numbers of all texts of some lists, and last -1; and where each list begins."""
    lists = lists.combine_chunks()
    encoded = lists.flatten().dictionary_encode()
    known = np.array([*map(number_of, encoded.dictionary.to_pylist()), -1], np.int64)
    indices = encoded.indices.to_numpy().astype(np.int64)
    lengths = lists.value_lengths().to_numpy().astype(np.int64)
    return np.append(known[indices], -1), np.cumsum(lengths) - lengths


def _read_layout(layout: str) -> tuple[dict[str, str], tuple[str, ...], tuple[str, ...]]:
    keys, values, metrics = layout.split(";")
    pairs: Sequence[tuple[str, str, str]] = [key.partition(":") for key in keys.split(",")]
    return {name: kind for name, _, kind in pairs}, _names(values), _names(metrics)


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split(",")) if text else ()
