"""The schema of Delta tables: the declared columns, and what an existing table has instead.

A table gets the columns that it lacks. It keeps those that are not declared: a user's own, or a newer version's. A
column whose type or meaning has changed is an error, because old and new rows cannot share it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kafkatap.reports.rollup_tables import ROLLUP_TABLES
from kafkatap.reports.section_parts.stored import STORED_COLUMNS, STORED_TABLE
from kafkatap.reports.table_columns import Declared, TableColumn
from kafkatap.reports.tables import TABLES, arrow_schema

from ...parquet.partitions import in_microseconds, nullable_inside
from .writing import OF_COUNTS, UNPARTITIONED

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable
    from deltalake.schema import Field

#: The tables of a lake: those of every run, and the counts of their rows by hour.
LAKE_TABLES = (*TABLES, *ROLLUP_TABLES, STORED_TABLE)
#: The number of the schema. Raise it when a column changes its type or meaning, and note the column in CHANGED. New
#: columns do not raise it.
SCHEMA = 2
#: (table, column): the first number of the schema in which it has its present type and meaning, if that is above 1.
#: 2: keys have no time of capture, and a capture is identified by its first packet.
CHANGED: Mapping[tuple[str, str], int] = {
    (table, column): 2
    for table, columns in TABLES.items()
    for column in ("capture", "exchange", "connection")
    if column == "capture" or column in {c.name for c in columns}
}
#: The property of a table that has the number with which it was made, and the metadata of a column that has its number
#: in CHANGED. Without it, the number is 1.
SCHEMA_PROPERTY = "kafkatap.schema"
#: Columns of Delta tables beside the declared ones.
CAPTURE = TableColumn(
    "capture", "int64",
    "identity of the capture in which the row begins: a hash of its first packet. A renamed, copied or compressed "
    "capture keeps it. `files` has the path",
)  # fmt: skip
RUN_NUMBER = TableColumn(
    "run_number", "int64",
    "number of the run that wrote the row, if runs go on from each other. One that is odd: of a connection that was "
    "open at the end of the run before it; the run that goes on writes the row again", True,
)  # fmt: skip
DATE = TableColumn(
    "date", "date32",
    "UTC day of the request's first byte, or of the response's first byte if the request is unknown. Results and "
    "records have the date of their exchange, connections that of their first packet",
)  # fmt: skip
#: Columns that `files` has in Delta tables only.
OF_FILES = (
    TableColumn("captured_bytes", "int64", "captured bytes of its packets", True),
    TableColumn("empty_packets", "int64", "packets without any captured byte, such as those of a hole of zeros", True),
    TableColumn("cluster", "string", "cluster, from the path of the capture, as `--path-pattern` names it", True),
    TableColumn("site", "string", "site, from the path, too", True),
    TableColumn("host", "string", "host, from the path, too", True),
    TableColumn("ingested_at", "timestamp[ns, UTC]", "when the run began that read the capture", True),
    TableColumn("run", "string", "name of that run, as in the log of the table", True),
    TableColumn("version", "string", "version of kafkatap that read the capture", True),
)
#: Features of Delta tables with which files can be read and written as they are.
_FEATURES = frozenset(
    ("appendOnly", "invariants", "checkConstraints", "changeDataFeed", "generatedColumns", "timestampNtz",
     "vacuumProtocolCheck", "v2Checkpoint")
)  # fmt: skip
#: What tables of counts have beside their declared columns.
CLUSTER = TableColumn("cluster", "string", "cluster of the capture, as in `files`", True)
_LINK = re.compile(r"\[([^]]*)\]\([^)]*\)")


def tables_of_run(has_records: bool) -> tuple[str, ...]:
    """The tables of a run."""
    return tuple(name for name in LAKE_TABLES if name != "records" or has_records)


def columns_of(table: str) -> Sequence[Declared]:
    """The declared columns of a table, without those that only Delta tables have."""
    if table == STORED_TABLE:
        return STORED_COLUMNS
    return ROLLUP_TABLES[table] if table in ROLLUP_TABLES else TABLES[table]


def partition_columns(table: str) -> list[str]:
    """The columns by which a table is partitioned: its files do not have them."""
    return [] if table in UNPARTITIONED else [DATE.name]


def _own_columns(table: str) -> tuple[TableColumn, ...]:
    """The columns in the files of a table beside the declared ones."""
    return (CAPTURE, *(OF_FILES if table == "files" else (CLUSTER,) if table in OF_COUNTS else ()), RUN_NUMBER)


def file_schema(table: str) -> pa.Schema:
    """The declared columns in the files of a table."""
    return nullable_inside(in_microseconds(arrow_schema([*columns_of(table), *_own_columns(table)])))


def table_schema(table: str) -> pa.Schema:
    """The declared columns of a Delta table: those of its files, and the partition column. Each has its meaning as
    `comment`, and its number if it is in CHANGED."""
    import pyarrow as pa

    columns = [*columns_of(table), *_own_columns(table), *([DATE] if partition_columns(table) else [])]
    fields = nullable_inside(in_microseconds(arrow_schema(columns)))
    return pa.schema([f.with_metadata(_metadata(table, column)) for f, column in zip(fields, columns, strict=True)])


def _metadata(table: str, column: Declared) -> dict[str, str]:
    number = CHANGED.get((table, column.name))
    mark = {} if number is None else {SCHEMA_PROPERTY: str(number)}
    return {"comment": re.sub(_LINK, r"\1", column.doc), **mark}


def kept_schema(table: str, delta: DeltaTable) -> pa.Schema:
    """The columns in the files of an existing table, declared or not."""
    import pyarrow as pa

    declared = {field.name: field for field in file_schema(table)}
    partitions = partition_columns(table)
    fields = [field for field in pa.schema(delta.schema().to_arrow()) if field.name not in partitions]
    return pa.schema([declared.get(f.name, f).with_nullable(f.nullable).remove_metadata() for f in fields])


def in_schema(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Rows with the columns of a schema. Those that they lack are null."""
    import pyarrow as pa

    names = set(rows.column_names)
    columns = [rows[f.name].cast(f.type) if f.name in names else pa.nulls(rows.num_rows, f.type) for f in schema]
    return pa.Table.from_arrays(columns, schema=schema)


def check_number(out: str, table: str, delta: DeltaTable) -> None:
    """OSError if the number of an existing table is above SCHEMA."""
    number = delta.metadata().configuration.get(SCHEMA_PROPERTY) or "1"
    if not number.isdecimal() or int(number) > SCHEMA:
        raise OSError(
            f"{out}: a newer version of kafkatap made the Delta table {table} (schema {number}, and this version knows "
            f"{SCHEMA}); upgrade kafkatap, or use another --output"
        )


def check_features(out: str, table: str, delta: DeltaTable) -> None:
    """OSError if an existing table has a feature of Delta Lake that this version does not know: files may have rows
    that are deleted, or columns of other names."""
    protocol = delta.protocol()
    features = {*(protocol.reader_features or ()), *(protocol.writer_features or ())} - _FEATURES
    if delta.metadata().configuration.get("delta.columnMapping.mode", "none") != "none":
        features.add("columnMapping")
    if features:
        raise OSError(
            f"{out}: the Delta table {table} has {' and '.join(sorted(features))}, which kafkatap does not support, so "
            f"it is not read or changed; drop the feature (ALTER TABLE ... DROP FEATURE ... TRUNCATE HISTORY), or use "
            f"another --output"
        )


def changed_fields(out: str, table: str, delta: DeltaTable) -> list[Field]:
    """The fields that an existing table gets: those that it lacks, and those that become nullable, also inside of lists
    and structs, or get a comment.

    Fields that it lacks are nullable, because its old rows have null there. So are those that are not declared, because
    new rows have null there. OSError if rows of this version do not fit into the table, whose number `open_table` has
    checked.
    """
    from deltalake.schema import Field, Schema

    has, declared = delta.schema(), Schema.from_arrow(table_schema(table))
    known, ours = ({field.name: field for field in schema.fields} for schema in (has, declared))
    if CAPTURE.name not in known:
        raise _error(out, table, f"is not of kafkatap (it has no column {CAPTURE.name})")
    partitions = delta.metadata().partition_columns
    if partitions != partition_columns(table):
        raise _error(out, table, f"is partitioned by {', '.join(partitions) or 'nothing'}")
    types, wanted = _types(has), _types(declared)
    for name, field in ours.items():
        if name not in known:
            continue
        if types[name] != wanted[name]:  # both without NOT NULL inside
            raise _error(out, table, f"has the column {name} as {types[name]}, and this version as {wanted[name]}")
        old, new = (f.metadata.get(SCHEMA_PROPERTY, "1") for f in (known[name], field))
        if old != new:
            raise _error(
                out, table, f"has the column {name} with its meaning of schema {old}, and this version of schema {new}"
            )
    found = [Field(f.name, f.type, nullable=True, metadata=f.metadata) for f in declared.fields if f.name not in known]
    for name, there in known.items():
        here = ours.get(name)
        can_be_null = here is None or here.nullable  # in rows of this version
        metadata = there.metadata if here is None else {**here.metadata, **there.metadata}
        is_strict = here is not None and there.type != here.type
        if (can_be_null and not there.nullable) or is_strict or metadata != there.metadata:
            type_ = here.type if here is not None else there.type
            found.append(Field(name, type_, nullable=there.nullable or can_be_null, metadata=metadata))
    return found


def strict_fields(delta: DeltaTable) -> list[Field]:
    """The fields of an existing table that are not nullable inside of lists and structs, as they are if they are."""
    import pyarrow as pa
    from deltalake.schema import Field, Schema

    has = delta.schema()
    free = Schema.from_arrow(nullable_inside(pa.schema(has.to_arrow())))
    pairs = zip(has.fields, free.fields, strict=True)
    return [Field(f.name, g.type, nullable=f.nullable, metadata=f.metadata) for f, g in pairs if f.type != g.type]


def _types(schema: Any) -> dict[str, pa.DataType]:
    """The types of a schema of deltalake, nullable inside."""
    import pyarrow as pa

    return {field.name: field.type for field in nullable_inside(pa.schema(schema.to_arrow()))}


def _error(out: str, table: str, reason: str) -> OSError:
    return OSError(f"{out}: the Delta table {table} {reason}; use another --output")
