"""`ParquetFile`: one Parquet file that is being written, and the Delta statistics of its columns."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from .folders import Folder, naming

if TYPE_CHECKING:
    import pyarrow as pa

#: Rows of a row group, and bytes of these rows in memory.
GROUP_ROWS, GROUP_BYTES = 65_536, 32 << 20
#: Columns of numbers and of texts that the statistics have, beside all times.
_NUMBERS = ("capture", "run_number", "broker_port", "api_key", "error_code")
_TEXTS = ("client_id", "client_ip", "broker_ip", "topic")
#: Characters of a text in the statistics, as Delta Lake has them. A longer one that is the largest gets the largest
#: character after them.
_LONGEST, _LARGEST = 32, "\U0010ffff"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class FileStats:
    """Bytes and rows of a closed file. `json`: its statistics, as in a Delta log."""

    size: int
    rows: int
    json: str


class ParquetFile:
    """`name`: below `folder`. Its rows gather to row groups, so that they can come in any parts. OSErrors name the
    file."""

    def __init__(self, folder: Folder, name: str, schema: pa.Schema) -> None:
        import pyarrow.parquet as pq

        self.name = name
        self.waiting = 0  # bytes of rows that are in no row group yet
        self._folder, self._schema = folder, schema
        self._path = f"{folder.path.partition('?')[0].rstrip('/')}/{name}"
        self._rows: list[pa.Table] = []
        self._count = 0
        self._groups: list[Any] = []
        with naming(self._path):
            self._stream = folder.open_output(name)
            self._writer = pq.ParquetWriter(
                self._stream, schema, compression="zstd", use_dictionary=_texts(schema), metadata_collector=self._groups
            )

    @property
    def size(self) -> int:
        """Bytes so far."""
        return int(self._stream.tell())

    def write(self, rows: pa.Table) -> None:
        """Add rows."""
        self._rows.append(rows)
        self._count += rows.num_rows
        self.waiting += rows.nbytes
        if self._count >= GROUP_ROWS or self.waiting >= GROUP_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write the rows that wait as row groups."""
        import pyarrow as pa

        if self._count:
            with naming(self._path):
                self._writer.write_table(pa.concat_tables(self._rows), row_group_size=2 * GROUP_ROWS)
            self._rows, self._count, self.waiting = [], 0, 0

    def close(self) -> FileStats:
        """Write the rest of the file."""
        self.flush()
        with naming(self._path):
            self._writer.close()
            size = self.size
            self._stream.close()
        [metadata] = self._groups
        return FileStats(size, metadata.num_rows, json.dumps(_stats(metadata, self._schema)))

    def abort(self) -> None:
        """Delete the file."""
        self._rows = []
        for end in (self._writer.close, self._stream.close, lambda: self._folder.delete(self.name)):
            with suppress(Exception):  # the first error is the one that counts
                end()
        self._writer.is_open = False  # otherwise it is closed once more when it is deleted, and complains


def _texts(schema: pa.Schema) -> list[str]:
    """The columns of texts and their lists: their values repeat. Numbers are smaller, and written sooner, without a
    dictionary."""
    import pyarrow as pa

    plain = [f.name for f in schema if pa.types.is_string(f.type)]
    lists = [f for f in schema if pa.types.is_list(f.type) and pa.types.is_string(f.type.value_type)]
    return [*plain, *(f"{f.name}.list.element" for f in lists)]


def stat_columns(schema: pa.Schema) -> list[str]:
    """The columns whose smallest and largest values the Delta log has, so that queries skip files. A time without a
    zone is of a column that is not declared."""
    import pyarrow as pa

    names = {*_NUMBERS, *_TEXTS}
    return [f.name for f in schema if f.name in names or (pa.types.is_timestamp(f.type) and f.type.tz)]


def _stats(metadata: Any, schema: pa.Schema) -> dict[str, Any]:
    """The statistics of a file from those of its row groups."""
    places = {metadata.schema.column(i).path: i for i in range(metadata.num_columns)}
    least: dict[str, Any] = {}
    most: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for name in stat_columns(schema):
        groups = [metadata.row_group(g).column(places[name]).statistics for g in range(metadata.num_row_groups)]
        if any(group is None for group in groups):
            continue
        nulls[name] = sum(group.null_count for group in groups)
        with_values = [group for group in groups if group.num_values]
        if not with_values or not all(group.has_min_max for group in with_values):  # none for very long texts
            continue
        low, high = min(g.min_raw for g in with_values), max(g.max_raw for g in with_values)
        if name in _TEXTS:
            texts = low.decode(errors="ignore")[:_LONGEST], high.decode()
            least[name] = texts[0]
            most[name] = texts[1] if len(texts[1]) <= _LONGEST else texts[1][:_LONGEST] + _LARGEST
        else:
            convert = int if name in _NUMBERS else _time
            least[name], most[name] = convert(low), convert(high)
    return {"numRecords": metadata.num_rows, "minValues": least, "maxValues": most, "nullCount": nulls}


def _time(microseconds: int) -> str:
    time = _EPOCH + timedelta(microseconds=microseconds)
    return time.isoformat(timespec="microseconds").replace("+00:00", "Z")
