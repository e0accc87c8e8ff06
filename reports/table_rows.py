"""Rows of tables as rows of numbers: what `row_columns` makes Arrow arrays of, and back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from kafkatap.kernels.column_spec import ADDRESS, NAMED, STRING, TOPIC_ID, WORD, ColumnSpec

from .batch import Array, id_of_text

if TYPE_CHECKING:
    import pyarrow as pa

    from .name_table import NameTable


def rows_of_table(columns: Sequence[ColumnSpec], dtype: np.dtype[Any], table: pa.Table, names: NameTable) -> Array:
    """The rows (`dtype`) of a table, whose strings and addresses get numbers of `names`. A null, and each value of a
    column that the table lacks, is the number that stands for null."""
    rows = np.zeros(table.num_rows, dtype)
    there = set(table.column_names)
    for column in columns:
        if not column.dtype:
            continue
        if column.name in there and column.kind != NAMED:
            rows[column.field] = _numbers(column, table[column.name], names)
        else:
            rows[column.field] = column.missing
    return rows


def _numbers(column: ColumnSpec, values: Any, names: NameTable) -> Array:
    if column.kind == STRING:
        return numbers_of_texts(values, names)
    if column.kind == TOPIC_ID:
        return numbers_of_ids(values, names)
    if column.kind == ADDRESS:
        return numbers_by_text(values, names.address)
    if column.kind == WORD:
        known = {word: number for number, word in enumerate(column.words)}
        return numbers_by_text(values, lambda text: known.get(text, column.missing))
    return int64_of(values, column.missing)


def numbers_of_texts(values: Any, names: NameTable) -> Array:
    """The numbers of strings, -1 for null: int64 (n,)."""
    return numbers_by_text(values, lambda text: names.string(None if text is None else text.encode()))


def numbers_of_ids(values: Any, names: NameTable) -> Array:
    """The numbers of topic ids, which are texts here: int64 (n,), -1 for null."""
    return numbers_by_text(values, lambda text: names.string(None if text is None else id_of_text(text)))


def numbers_by_text(values: Any, number_of: Callable[[Any], int | None]) -> Array:
    """The number of each text, for which `number_of` is called once for each distinct one: int64 (n,)."""
    encoded = values.combine_chunks().dictionary_encode()
    texts = [*encoded.dictionary.to_pylist(), None]
    numbers = np.array([number_of(text) or 0 for text in texts], np.int64)
    found: Array = numbers[encoded.indices.fill_null(len(encoded.dictionary)).to_numpy(zero_copy_only=False)]
    return found


def int64_of(values: Any, null: int) -> Array:
    """Numbers, booleans or times (ns): int64 (n,)."""
    import pyarrow as pa

    if pa.types.is_boolean(values.type):
        values = values.cast("int8")
    if pa.types.is_timestamp(values.type):
        values = values.cast(pa.timestamp("ns", "UTC"))
    found: Array = values.cast("int64").fill_null(null).to_numpy()
    return found
