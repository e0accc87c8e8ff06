"""`LocalTables`: the tables of a run by several processes, as the files of one process.

    with LocalTables(folder, 4) as tables, Workers(4) as workers:
        with tables.open(part, place) as files:     # in a worker, for each part of the run: a shard
            files.write("exchanges", rows)
        ...
        tables.take(parts, shared, names)           # in the process that started it: the parts in their order
        tables.publish(context)

Each worker makes Arrow tables of its rows, a row group at a time, and keeps them in an unnamed file in the
folder. At the end they become Parquet files, part by part. Whatever ends a run, its unnamed files go with it.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, ClassVar, Self

from kafkatap.reports import tables
from kafkatap.reports.batch import Array, Context, Names

from ..output_file import naming
from ..parquet.late_names import NameTopics
from ..parquet.packed_tables import packed, unpacked
from ..parquet.parquet_files import ParquetFiles
from ..parquet.row_groups import GATHERED_BYTES
from ..parquet.row_names import named
from ..parquet.table_writer import TABLES
from ..parquet.twin_column import NO_TWINS, SetTwins
from ..splits.executor import HERE, Place

if TYPE_CHECKING:
    import pyarrow as pa

_NUMBERS = count()
#: The tables that are open in this process, by their numbers.
_OPEN: dict[int, LocalTables] = {}


@dataclass(frozen=True, slots=True)
class Part:
    """Some rows of a table: their place in the file of a worker."""

    table: str
    worker: int
    place: int
    size: int


class LocalTables:
    """Exchanges, results, connections, files and ledger of a run in `folder`. It has to exist before its workers.

    As a context manager it removes unfinished files. OSErrors name the folder or a file. A process that was forked from
    this one can unpickle it.
    """

    group_bytes: ClassVar[int] = GATHERED_BYTES

    def __init__(self, folder: Path, workers: int, overwrite: bool = False) -> None:
        import pyarrow.compute
        import pyarrow.ipc  # noqa: F401  # workers inherit both

        self._number = next(_NUMBERS)
        _OPEN[self._number] = self
        self._folder = folder
        self._files = ParquetFiles(folder, TABLES, overwrite)
        self._spilled: list[IO[bytes]] = []
        self._parts: list[Part] = []
        self._shared: pa.Table | None = None
        self._names, self._twins = NameTopics({}), NO_TWINS
        try:
            with naming(str(folder)):
                for _ in range(workers):
                    self._spilled.append(tempfile.TemporaryFile(dir=folder, prefix=".kafkatap-"))  # noqa: SIM115
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Remove unfinished files."""
        _OPEN.pop(self._number, None)
        for file in self._spilled:
            file.close()
        self._spilled.clear()
        self._files.discard()

    def __reduce__(self) -> tuple[Any, ...]:
        return _opened, (self._number,)

    def open(self, split: int, place: Place = HERE) -> _SplitFiles:
        """As of `RowSink`."""
        return _SplitFiles(self, place.worker)

    def spill(self, worker: int, name: str, table: pa.Table) -> Part:
        """Keep rows of a table."""
        data, file = packed(table), self._spilled[worker]
        with naming(str(self._folder)):
            place = file.seek(0, os.SEEK_END)
            file.write(data)
            file.flush()
        return Part(name, worker, place, len(data))

    def take(self, parts: Iterable[Part], shared: Array, names: Names, twins: SetTwins = NO_TWINS) -> None:
        """The rows of all splits, in their order. `shared`: CONNECTION_ROW of connections that splits share, merged;
        `names`: the meaning of the numbers in it. `twins`: the connections that are seen twice."""
        self._parts, self._twins = list(parts), twins
        self._names = NameTopics.of(
            {names.strings[n] or b"": names.strings[m] or b"" for n, m in names.topic_names.items()}
        )
        rows = shared.copy()
        self._shared = tables.connections_table(rows, named([rows], names))

    def publish(self, context: Context) -> list[Path]:
        """Write the files, and give them their names. Return their paths."""
        assert self._shared is not None, "`take` comes first"
        schemas = {name: tables.arrow_schema(tables.TABLES[name]) for name in TABLES}
        for name, schema in schemas.items():
            self._files.write(name, schema.empty_table())
        for part in self._parts:
            with naming(str(self._folder)):
                data = os.pread(self._spilled[part.worker].fileno(), part.size, part.place)
            rows = unpacked(data, schemas[part.table])
            if self._names.names and self._names.columns(part.table):
                rows = self._names.apply(part.table, rows) or rows
            self._files.write(part.table, self._twins.applied(part.table, rows))
        self._files.write("connections", self._twins.applied("connections", self._shared))
        self._files.write("files", tables.files_table(context))
        self._files.write("ledger", tables.ledger_table(context))
        return self._files.publish()


class _SplitFiles:
    """The rows of one split. `written`: where they are."""

    keeper = None

    def __init__(self, tables: LocalTables, worker: int) -> None:
        self.written: list[Part] = []
        self._tables = tables
        self._worker = worker

    def write(self, table: str, rows: pa.Table, first_packets: Array | None = None) -> None:
        """As of `RowFiles`."""
        if rows.num_rows:
            self.written.append(self._tables.spill(self._worker, table, rows))

    def count(self, table: str, rows: Array, context: Context, results: Array | None = None) -> None:
        """As of `RowFiles`: there are no tables of counts."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing has to be closed."""


def _opened(number: int) -> LocalTables:
    """The tables of a number, in a process that was forked after they were made."""
    return _OPEN[number]
