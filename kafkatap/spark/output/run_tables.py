"""The tables `files` and `ledger` of a run, with the capture of each row."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kafkatap.reports.batch import Context, FileInfo
from kafkatap.reports.table_columns import FILES, LEDGER
from kafkatap.reports.tables import arrow_schema, files_table

from ...captures.identity import missing_identity
from ...installation import own_version
from ...parquet.partitions import DAY_NS, date_of
from ..path_pattern import NAMES, PathPattern
from .delta import is_delta, read_table
from .delta_schema import CAPTURE, OF_FILES, in_schema
from .writing import with_capture

if TYPE_CHECKING:
    import pyarrow as pa

    from .publication import Publication

#: Columns of OF_FILES that a FileInfo has.
_COUNTED = tuple(column.name for column in OF_FILES if column.name in FileInfo._fields)


def files_rows(files: Sequence[FileInfo], publication: Publication, pattern: PathPattern | None) -> pa.Table:
    """The rows of these files. `pattern`: finds clusters, sites and hosts in their paths."""
    import numpy as np
    import pyarrow as pa

    table = with_capture(files_table(Context(files=files)), np.array([f.capture for f in files], np.int64))
    found = [{} if pattern is None else pattern.names_in(file.path) for file in files]
    values = {
        **{name: [getattr(file, name) for file in files] for name in _COUNTED},
        **{name: [names.get(name) for names in found] for name in NAMES},
        "ingested_at": [publication.begun] * len(files),
        "run": [publication.run] * len(files),
        "version": [own_version()] * len(files),
    }
    for field in arrow_schema(OF_FILES):
        table = table.append_column(field, pa.array(values[field.name], field.type))
    return table


def clusters_of(out: str, files: Iterable[FileInfo], pattern: PathPattern | None) -> dict[int, str | None]:
    """The clusters of captures: those of a lake, and of these files. `pattern`: as of `files_rows`."""
    rows = read_table(out, "files", ("capture", "cluster")).to_pylist() if is_delta(out, "files") else []
    found = {row["capture"]: row["cluster"] for row in rows}
    return found | {f.capture: None if pattern is None else pattern.names_in(f.path).get("cluster") for f in files}


def file_infos(rows: pa.Table) -> list[FileInfo]:
    """The files of rows, in the order of their packets."""
    schema = arrow_schema([*FILES, *(column for column in OF_FILES if column.name in _COUNTED), CAPTURE])
    table = in_schema(rows, schema)  # times in ns
    for name in ("first", "last"):
        table = table.set_column(table.schema.get_field_index(name), name, table[name].cast("int64"))
    ordered = sorted(table.to_pylist(), key=lambda row: (row["first_packet"], row["path"]))
    return [_file_info(row) for row in ordered]


def _file_info(row: Mapping[str, Any]) -> FileInfo:
    """A file of a row, which has null where an earlier version of kafkatap did not have the column."""
    return FileInfo(**{name: value for name, value in row.items() if value is not None})._replace(
        link_types=tuple(row["link_types"])
    )


def replaced_captures(files: Iterable[FileInfo]) -> set[int]:
    """The captures whose rows a run over these files replaces. A file that an earlier run could not read is another
    capture there."""
    return {capture for info in files for capture in (info.capture, missing_identity(info.path))}


def first_date(out: str, files: Sequence[FileInfo]) -> str | None:
    """A date, before which `out` has no rows of these files, or of other versions of them. None if all are empty.

    A day is left for packets of other capture points in their rows.
    """
    own = {info.capture for info in files}
    there = file_infos(read_table(out, "files")) if is_delta(out, "files") else []
    times = [info.first for info in (*files, *there) if info.first is not None and info.capture in own]
    return date_of(min(times) // DAY_NS - 1) if times else None


def ledger_rows(ledgers: Mapping[int, Mapping[str, Mapping[str, int]]]) -> pa.Table:
    """The rows of ledgers by capture. Their sum is the ledger of the run."""
    import numpy as np
    import pyarrow as pa

    rows = [
        (section, part, count, capture)
        for capture, ledger in ledgers.items()
        for section, parts in ledger.items()
        for part, count in parts.items()
    ]
    sections, names, counts, captures = zip(*rows, strict=True) if rows else ((), (), (), ())
    table = pa.Table.from_arrays([pa.array(c) for c in (sections, names, counts)], schema=arrow_schema(LEDGER))
    return with_capture(table, np.array(captures, np.int64))
