"""Tables of reports for Arrow and pandas, with the columns of JSON.

A column's type depends on its kind alone, never on its values, so tables of several reports can be appended. Durations
are integers, as in docs/tables.md; times are timestamps in UTC. Texts are unescaped. The numbers of findings, whose
names differ, are JSON.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from .plain_values import plain_value

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from .model import Column, ReportTable


def arrow_table(table: ReportTable) -> pa.Table:
    """A table of a report with one column for each of its columns."""
    import pyarrow as pa

    columns = [pa.array(_values(table, i), _type(column)) for i, column in enumerate(table.columns)]
    return pa.Table.from_arrays(columns, [column.name for column in table.columns])


def data_frame(table: ReportTable, **options: Any) -> pd.DataFrame:
    """The same for pandas: integers and flags of pandas' own nullable types, unless `types_mapper` is among the options
    (of `pyarrow.Table.to_pandas`). ImportError with what to install where pandas is missing."""
    try:
        import pandas as pd
    except ImportError as error:
        from kafkatap.installation import install_command

        raise ImportError(
            f"to_pandas() needs pandas ({install_command('pandas')}); to_arrow() works without it"
        ) from error
    import pyarrow as pa

    nullable = {pa.int64(): pd.Int64Dtype(), pa.bool_(): pd.BooleanDtype()}
    return arrow_table(table).to_pandas(**{"types_mapper": nullable.get} | options)


def _values(table: ReportTable, place: int) -> list[Any]:
    column = table.columns[place]
    values = [plain_value(column, row[place]) for row in table.rows]
    if column.kind == "numbers":
        return [None if value is None else json.dumps(value) for value in values]
    return values


def _type(column: Column) -> Any:
    import pyarrow as pa

    versions = pa.list_(pa.struct([("api", pa.string()), ("versions", pa.list_(pa.int16()))]))
    parties = pa.list_(pa.struct([("kind", pa.string()), ("name", pa.string())]))
    types = {
        "numbers": pa.string(), "parties": parties, "packets": pa.list_(pa.int64()),
        "text": pa.string(), "texts": pa.list_(pa.string()), "versions": versions, "share": pa.float64(),
        "number": pa.float64(), "time": pa.timestamp("ns", "UTC"), "flag": pa.bool_(),
    }  # fmt: skip
    return types.get(column.kind, pa.int64())
