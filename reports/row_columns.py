"""Columns of rows (`ColumnSpec`) as Arrow arrays: one way for each kind of column."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from kafkatap.kernels.column_spec import ADDRESS, FLAG, NAMED, STRING, TOPIC_ID, WORD, ColumnSpec

from .arrow_arrays import arrow_indices, arrow_numbers, arrow_texts
from .tls_names import name_of

if TYPE_CHECKING:
    import pyarrow as pa

Array = np.ndarray[Any, Any]


class Decoded(Protocol):
    """The texts of numbers (`tables.Texts`)."""

    def string(self, numbers: Array) -> Any: ...
    def address(self, numbers: Array, or_null: bool = False) -> Any: ...
    def topic_id(self, numbers: Array) -> Any: ...


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
