"""Rows for files that others read: the UTC day that a row belongs to, times in microseconds, and lists and structs
whose parts can be null."""

from __future__ import annotations

from typing import Any

import numpy as np

from kafkatap.dissector.dtypes import NO_TIME

Array = np.ndarray[Any, Any]

DAY_NS = 86_400_000_000_000


def exchange_days(exchanges: Any) -> Array:
    """The day of each exchange, int64 days since the epoch: of the first byte of its request, or else of its
    response."""
    import pyarrow.compute as pc

    return days(pc.coalesce(exchanges["request_first"], exchanges["response_first"]))


def exchange_begins(exchanges: Array) -> Array:
    """The time of the day of `exchange_days`, from EXCHANGE rows: int64 (n,), NO_TIME for none."""
    first = exchanges["request_first"]
    found: Array = np.where(first != NO_TIME, first, exchanges["response_first"])
    return found


def days(times: Any) -> Array:
    """The day of each time, int64 days since the epoch. `times`: an Arrow column in ns; null is 0."""
    import pyarrow.compute as pc

    found: Array = pc.fill_null(times.cast("int64"), 0).to_numpy() // DAY_NS
    return found


def date_of(day: int) -> str:
    """A day as YYYY-MM-DD."""
    return str(np.datetime64(day, "D"))


def to_microseconds(table: Any) -> Any:
    """The same rows with all times in microseconds, the only unit that Spark reads."""

    return table.cast(in_microseconds(table.schema), safe=False)


def in_microseconds(schema: Any) -> Any:
    """The same schema with all times in microseconds."""
    import pyarrow as pa

    us = pa.timestamp("us", "UTC")
    return pa.schema([f.with_type(us) if pa.types.is_timestamp(f.type) else f for f in schema])


def nullable_inside(schema: Any) -> Any:
    """The same schema with the parts of lists and structs nullable: Delta Lake of Spark refuses to change a table
    otherwise."""
    import pyarrow as pa

    return pa.schema([field.with_type(_nullable_inside(field.type)) for field in schema])


def _nullable_inside(type_: Any) -> Any:
    import pyarrow as pa

    def free(field: Any) -> Any:
        return field.with_type(_nullable_inside(field.type)).with_nullable(True)

    if pa.types.is_list(type_):
        return pa.list_(free(type_.value_field))
    if pa.types.is_struct(type_):
        return pa.struct([free(field) for field in type_])
    return type_
