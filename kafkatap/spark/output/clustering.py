"""`cluster`: sort the rows of a Delta table by client, broker and time, so that a query for one client skips files and
row groups.

The rows of each date are sorted by themselves. First only the keys are read, which gives the place of each row. Then
rows go into buckets of consecutive places, in a temporary folder if there are several. Each bucket is sorted in memory.
"""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kafkatap.kernels.arrays import groups_of
from kafkatap.reports.rollup_tables import FORMS
from kafkatap.reports.section_parts.stored import STORED_TABLE

from .delta import active_files, commit_replacement
from .delta_schema import kept_schema
from .edits import ActiveFile, rows_of
from .folders import Folder
from .parquet_file import ParquetFile
from .writing import Written, closed

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable

Array = np.ndarray[Any, Any]
#: The columns by which rows are sorted.
KEYS: Mapping[str, tuple[str, ...]] = {
    "exchanges": ("client_id", "broker_ip", "broker_port", "request_first"),
    "connections": ("client_id", "broker_ip", "broker_port", "connection_first"),
    "records": ("client_id", "topic", "message_first"),
    **dict.fromkeys(FORMS, ("client_id", "broker_ip", "broker_port", "hour")),
    STORED_TABLE: ("form", "hour"),
}
#: Bytes of the files of a bucket, and the most buckets: each has an open file.
_BUCKET, _MOST_BUCKETS = 16 << 20, 200
#: Rows that are read at once.
_ROWS = 131_072
_START = "sorted-"


def cluster(out: str, table: str, delta: DeltaTable, target_size: int) -> None:
    """Sort the files that runs wrote to a table of KEYS, and join small ones, up to `target_size` bytes each.

    OSError, and no change, if another run replaces one of the files meanwhile.
    """
    by_date: dict[str | None, list[ActiveFile]] = {}
    for file in active_files(delta):
        is_sorted = file.path.rpartition("/")[2].startswith(_START)
        if not is_sorted or file.size < target_size // 2:
            by_date.setdefault(file.date, []).append(file)
    folder, schema = Folder(out), kept_schema(table, delta)
    for date, files in sorted(by_date.items(), key=lambda item: item[0] or ""):
        is_alone = len(files) == 1
        if is_alone and (files[0].size <= _BUCKET or files[0].path.rpartition("/")[2].startswith(_START)):
            continue
        like = folder.like([f"{table}/{file.path}" for file in files])
        written = _sorted_files(like, table, date, files, schema, target_size)
        try:
            commit_replacement(out, table, files, written)
        except BaseException:
            with suppress(OSError):
                like.delete_all([one.name for one in written])
            raise


def _sorted_files(
    folder: Folder, table: str, date: str | None, files: Sequence[ActiveFile], schema: pa.Schema, target_size: int
) -> list[Written]:
    written: list[Written] = []
    new: ParquetFile | None = None
    try:
        for rows in _sorted_rows(folder, table, files, schema):
            if new is None:
                name = f"{_START}{uuid.uuid4().hex}.parquet"
                path = f"{table}/{name}" if date is None else f"{table}/date={date}/{name}"
                new = ParquetFile(folder, path, schema)
            new.write(rows)
            if new.size >= target_size:
                written.append(closed(new, table, date))
                new = None
        if new is not None:
            written.append(closed(new, table, date))
    except BaseException:
        if new is not None:
            new.abort()
        with suppress(OSError):
            folder.delete_all([one.name for one in written])
        raise
    return written


def _sorted_rows(folder: Folder, table: str, files: Sequence[ActiveFile], schema: pa.Schema) -> Iterator[pa.Table]:
    """The rows of files in order, in parts of a bucket or less."""
    import pyarrow as pa
    import pyarrow.ipc as ipc

    places = _places(folder, table, files, schema)
    count = min(-(-sum(file.size for file in files) // _BUCKET), _MOST_BUCKETS, max(len(places), 1))
    length = -(-len(places) // count)
    at, whole = 0, []
    with ExitStack() as stack:
        spilled = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kafkatap-"))) if count > 1 else None
        buckets: dict[int, Any] = {}
        for rows in _joined(rows for file in files for rows in rows_of(folder, table, file, schema, _ROWS)):
            mine = places[at : at + rows.num_rows]
            at += rows.num_rows
            placed = rows.append_column("", pa.array(mine))
            if spilled is None:
                whole.append(placed)
                continue
            for [bucket], chosen in groups_of(mine // length):
                if bucket not in buckets:
                    options = ipc.IpcWriteOptions(compression="lz4")
                    sink = stack.enter_context(pa.OSFile(str(spilled / str(bucket)), "wb"))
                    buckets[bucket] = stack.enter_context(ipc.new_stream(sink, placed.schema, options=options))
                buckets[bucket].write_table(placed.take(pa.array(chosen)))
        if spilled is None:
            yield from _in_order(pa.concat_tables(whole))
            return
        for bucket in sorted(buckets):
            buckets[bucket].close()
            with pa.OSFile(str(spilled / str(bucket))) as source, ipc.open_stream(source) as reader:
                rows = reader.read_all()
            (spilled / str(bucket)).unlink()
            yield from _in_order(rows)


def _joined(parts: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """The same rows in parts of about _ROWS: many small ones are slow."""
    import pyarrow as pa

    waiting: list[pa.Table] = []
    for part in parts:
        waiting.append(part)
        if sum(one.num_rows for one in waiting) >= _ROWS:
            yield pa.concat_tables(waiting).combine_chunks()
            waiting = []
    if waiting:
        yield pa.concat_tables(waiting).combine_chunks()


def _in_order(placed: pa.Table) -> Iterator[pa.Table]:
    """Rows by their place, the last column, without it."""
    import pyarrow as pa

    last = placed.num_columns - 1
    order = np.argsort(placed.column(last).to_numpy())
    rows = placed.remove_column(last)
    for begin in range(0, len(order), _ROWS):
        yield rows.take(pa.array(order[begin : begin + _ROWS]))


def _places(folder: Folder, table: str, files: Sequence[ActiveFile], schema: pa.Schema) -> Array:
    """The place of each row of files in the sorted rows: int64 (n,)."""
    import pyarrow as pa

    names = [name for name in KEYS[table] if name in schema.names]
    keys_schema = pa.schema([schema.field(name) for name in names])
    keys = pa.concat_tables(rows for file in files for rows in rows_of(folder, table, file, keys_schema, _ROWS))
    order = np.lexsort([_ranks(keys[name]) for name in reversed(names)])
    places = np.empty(len(order), np.int64)
    places[order] = np.arange(len(order))
    return places


def _ranks(values: pa.ChunkedArray) -> Array:
    """Numbers that sort as the values do, null first."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not pa.types.is_string(values.type):
        numbers: Array = values.cast("int64").fill_null(np.iinfo(np.int64).min).to_numpy()
        return numbers
    coded = values.combine_chunks().dictionary_encode()
    order = pc.array_sort_indices(coded.dictionary).to_numpy()
    ranks = np.empty(len(order) + 1, np.int64)
    ranks[order] = np.arange(len(order))
    ranks[-1] = -1  # of null
    found: Array = ranks[coded.indices.fill_null(-1).to_numpy()]
    return found
