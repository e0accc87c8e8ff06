"""Merge the rows of connections that several splits share: with Spark, or with Arrow.

Each row counts the packets of one split.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kafkatap.reports.tables import TABLES, arrow_schema

from .folders import Folder

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

_FIRST, _LAST, _RTT, _KNOWN = "connection_first", "connection_last", "handshake_rtt_ns", "orientation_known"
_ENDS = ("client_ip", "client_port", "broker_ip", "broker_port")
#: Columns of the latest row: it includes what earlier rows had, and later requests may name no client.
_LATEST = ("client_id", "client_software", "client_software_version", "sasl_mechanism")
_NAMES = tuple(column.name for column in TABLES["connections"])
_SUMS = tuple(n for n in _NAMES if n not in {"connection", "protocol", _FIRST, _LAST, _RTT, _KNOWN, *_ENDS, *_LATEST})


def merged_connections(rows: DataFrame) -> DataFrame:
    """One row for each connection."""
    from pyspark.sql import functions as F  # noqa: N812

    latest = F.struct(_KNOWN, _LAST)
    last_known = F.when(F.col("protocol") != "unknown", F.col(_LAST))
    types = dict(rows.dtypes)
    made = [
        F.min(_FIRST).alias(_FIRST),
        F.max(_LAST).alias(_LAST),
        F.max(_RTT).alias(_RTT),
        F.max(_KNOWN).alias(_KNOWN),
        F.coalesce(F.max_by("protocol", last_known), F.lit("unknown")).alias("protocol"),
        *(F.max_by(name, latest).alias(name) for name in _ENDS),
        *(F.max_by(name, _LAST).alias(name) for name in _LATEST),
        *(F.sum(name).cast(types[name]).alias(name) for name in _SUMS),
    ]
    return rows.groupBy("connection").agg(*made).select(*_NAMES)


def merged_rows(tables: Sequence[pa.Table]) -> pa.Table:
    """One row for each connection."""
    import pyarrow as pa

    found: dict[int, dict[str, Any]] = {}
    whole = pa.concat_tables(tables)
    # Times become numbers: Python's datetime has no nanoseconds.
    for name in (_FIRST, _LAST):
        whole = whole.set_column(whole.schema.get_field_index(name), name, whole[name].cast("int64"))
    for row in sorted(whole.to_pylist(), key=lambda row: row[_LAST]):
        before = found.setdefault(row["connection"], row)
        if before is not row:
            _add(before, row)
    schema = tables[0].schema
    columns = {name: [row[name] for row in found.values()] for name in schema.names}
    arrays = [
        pa.array(columns[f.name], pa.int64()).cast(f.type)
        if f.name in (_FIRST, _LAST)
        else pa.array(columns[f.name], f.type)
        for f in schema
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def _add(row: dict[str, Any], later: dict[str, Any]) -> None:
    for name in _SUMS:
        row[name] += later[name]
    for name in _LATEST:
        row[name] = later[name]
    if later[_KNOWN] or not row[_KNOWN]:
        row.update({name: later[name] for name in _ENDS})
    row[_KNOWN] = row[_KNOWN] or later[_KNOWN]
    row[_FIRST] = min(row[_FIRST], later[_FIRST])
    row[_LAST] = max(row[_LAST], later[_LAST])
    if later[_RTT] is not None:
        row[_RTT] = later[_RTT]
    if later["protocol"] != "unknown":
        row["protocol"] = later["protocol"]


def read_connections(out: str, names: Sequence[str]) -> pa.Table:
    """The rows of some files of the table `connections`, with its declared schema."""
    import io

    import pyarrow as pa
    import pyarrow.parquet as pq

    folder = Folder(out)
    schema = arrow_schema(TABLES["connections"])
    found = [pq.read_table(io.BytesIO(folder.read(name) or b"")).cast(schema) for name in names]
    return pa.concat_tables([schema.empty_table(), *found])
