"""Columns of rows (`ColumnSpec`) as Arrow arrays, and back: one way for each kind of column."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from kafkatap.kernels.column_spec import ADDRESS, FLAG, NAMED, STRING, TOPIC_ID, WORD, ColumnSpec

from .arrow_arrays import arrow_indices, arrow_numbers, arrow_texts
from .tls_names import name_of, number_of

if TYPE_CHECKING:
    import pyarrow as pa

Array = np.ndarray[Any, Any]


class Decoded(Protocol):
    """The texts of numbers (`tables.Texts`)."""

    def string(self, numbers: Array) -> Any: ...
    def address(self, numbers: Array, or_null: bool = False) -> Any: ...
    def topic_id(self, numbers: Array) -> Any: ...


class Numbers(Protocol):
    """The numbers of texts (`counting.count_rows.NameTable`)."""

    def string(self, value: bytes | None) -> int: ...
    def address(self, value: str | None) -> int: ...


def arrow_column(column: ColumnSpec, rows: Array, texts: Decoded, kind: pa.DataType) -> pa.Array:
    """A column of some rows, with its nulls. `kind`: its type."""
    values, missing = rows[column.field], column.nulls(rows)
    if column.kind in (STRING, TOPIC_ID, ADDRESS):
        numbers = values if missing is None else np.where(missing, -1, values)
        if column.kind == ADDRESS:
            return texts.address(numbers, or_null=column.nullable)
        return texts.string(numbers) if column.kind == STRING else texts.topic_id(numbers)
    if column.kind == WORD:
        return words(column.words, values, missing)
    if column.kind == NAMED:
        distinct, inverse = np.unique(values, return_inverse=True)
        return words([name_of(column.field, number) or "" for number in distinct.tolist()], inverse, missing)
    return arrow_numbers(values != 0 if column.kind == FLAG else values, kind, missing)


def words(names: Sequence[str], numbers: Array, missing: Array | None = None) -> Any:
    """The names of numbers as an Arrow array of strings, null where `missing` is true."""
    return arrow_texts(names).take(arrow_indices(numbers, missing))


def row_column(column: ColumnSpec, values: pa.ChunkedArray, names: Numbers) -> Array:
    """The numbers in rows of a column of a table: `arrow_column` made it. Strings are numbered by `names`."""
    if column.type != "string":
        plain: Array = values.cast("int64").fill_null(column.missing).to_numpy()
        return plain
    encoded = values.combine_chunks().dictionary_encode()
    number = _number(column, names)
    numbers = [*map(number, encoded.dictionary.to_pylist()), column.missing]
    found: Array = np.array(numbers)[encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)]
    return found


def _number(column: ColumnSpec, names: Numbers) -> Callable[[str], int]:
    if column.kind == WORD:
        return column.words.index
    if column.kind == NAMED:
        return lambda text: number_of(column.field, text)
    return names.address if column.kind == ADDRESS else lambda text: names.string(text.encode())
