"""`ColumnSpec`: the one declaration of a column of rows, and of the table that is made of them.

The dtype of the rows, the types of Arrow, Parquet and Spark, the names in filter expressions, the rows of the documents
and the merging of rows come from it. A column of numbers that mean something else (strings, addresses, words) says so
by its kind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal

import numpy as np

from .declarations import record_dtype

Array = np.ndarray[Any, Any]
#: Rows of one dtype to bool (n,).
Mask = Callable[[Array], Array]

#: What the numbers of a column are. Some say the unit, too: nanoseconds, milliseconds, bytes.
NUMBER, BYTES, NS, MS = "number", "bytes", "ns", "ms"
#: Nanoseconds since the epoch; 0 or 1; the number of a string, of a topic's id, of an address; that of one of `words`;
#: a number that has a name elsewhere.
TIME, FLAG, STRING, TOPIC_ID, ADDRESS, WORD, NAMED = "time", "flag", "string", "topic id", "address", "word", "named"

#: Types of tables, as the documents spell them.
TIME_TYPE = "timestamp[ns, UTC]"
_TYPES = {
    TIME: TIME_TYPE, FLAG: "bool", **dict.fromkeys((STRING, TOPIC_ID, ADDRESS, WORD, NAMED), "string"),
    "i1": "int8", "i2": "int16", "i4": "int32", "i8": "int64",
}  # fmt: skip


Rule = Literal["sum", "least", "greatest", "first", "latest", "never"]


class Merge:
    """How the rows of one thing become one: the value of the `first` or `latest` row, or a value of all rows.

    `among`: the rows that count; None: those in which the column is known. If there is none, the latest row counts.
    `order`: for `greatest`, the values from the least to the greatest, if that is not the order of numbers.
    """

    __slots__ = ("among", "order", "rule")

    def __init__(self, rule: Rule, among: Mask | None = None, order: tuple[int, ...] = ()) -> None:
        self.rule, self.among, self.order = rule, among, order


def every_row(rows: Array) -> Array:
    return np.ones(len(rows), bool)


SUM, LEAST, GREATEST, FIRST, LATEST = (
    Merge("sum"), Merge("least"), Merge("greatest"), Merge("first"), Merge("latest"),
)  # fmt: skip
#: The value of the latest row, known or not.
OF_LATEST = Merge("latest", every_row)
#: No two rows are of one thing.
NEVER = Merge("never")


class ColumnSpec:
    """A column. `dtype`: that of the rows; "" if only the table has it. `kind`: one of those above, or, for such a
    column, also a type of tables. `merge`: each column has to say it. `doc`: its meaning, as in the documents.

    `null`: this number, and lower ones, are null in the table. `known`: the rows in which it is not null, if that
    depends on other columns. `fill`: the number in rows that are made of nulls, if it is not `null`. `words`: of a
    WORD. `row`: its name in rows (`field`), if the table has another. `in_table`: False for a column that only rows
    have. It is no named tuple, because making the class of one takes longer than all the columns.
    """

    __slots__ = ("doc", "dtype", "field", "fill", "in_table", "kind", "known", "merge", "name", "null", "words")

    def __init__(
        self,
        name: str,
        kind: str,
        dtype: str,
        merge: Merge,
        doc: str,
        null: int | None = None,
        known: Mask | None = None,
        fill: int = 0,
        words: tuple[str, ...] = (),
        row: str = "",
        in_table: bool = True,
    ) -> None:
        self.name, self.kind, self.dtype, self.merge, self.doc = name, kind, dtype, merge, doc
        self.null, self.known, self.fill, self.words, self.in_table = null, known, fill, words, in_table
        self.field = row or name

    @property
    def type(self) -> str:
        """Its type in the table."""
        return _TYPES.get(self.kind) or _TYPES.get(self.dtype) or self.kind

    @property
    def nullable(self) -> bool:
        return self.null is not None or self.known is not None

    @property
    def missing(self) -> int:
        """The number in rows that stands for null."""
        return self.fill if self.null is None else self.null

    def nulls(self, rows: Array) -> Array | None:
        """The rows in which it is null: bool (n,), or None if it never is."""
        low = None if self.null is None else rows[self.field] <= self.null
        if self.known is None:
            return low
        unknown: Array = ~self.known(rows)
        return unknown if low is None else unknown | low


def dtype_of(columns: Iterable[ColumnSpec]) -> np.dtype[Any]:
    """The dtype of rows with these columns: the widest first, so that there is no room between them."""
    fields = [(column.field, column.dtype) for column in columns if column.dtype]
    return record_dtype(*sorted(fields, key=lambda field: -int(field[1][1:])))


def fields_of(columns: Iterable[ColumnSpec], *kinds: str) -> tuple[str, ...]:
    """The names in rows of the columns of some kinds."""
    return tuple(column.field for column in columns if column.kind in kinds)
