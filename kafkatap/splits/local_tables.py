"""`LocalTables`: the tables of a run whose splits are decoded by several processes, as the files of one process.

    with LocalTables(folder, 4) as files, Workers(4, task) as workers:
        rows = files.rows(progress.worker)          # in a worker, for each split: `add` batches, then `finish`
        ...
        files.take(parts, shared, names)            # in the process that started it: the splits in their order
        files.publish(context)

Each worker makes Arrow tables of a split's rows, a row group at a time, and keeps them in an unnamed file in the
folder. At the end they become Parquet files, split by split. Whatever ends a run, its unnamed files go with it. Rows of
a split that is decoded again take room in them until then, and nobody reads them.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Self

from kafkatap.reports import tables
from kafkatap.reports.batch import Array, Batch, Context, Names

from ..engine import Engine
from ..parquet.parquet_files import ParquetFiles
from ..parquet.row_groups import GatheredRows
from ..parquet.row_names import named
from ..parquet.table_writer import TABLES
from .packed_rows import packed, unpacked

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Part:
    """Some rows of a table: their place in the file of a worker."""

    table: str
    worker: int
    place: int
    size: int


class LocalTables:
    """Exchanges, results, connections, files and ledger of a run in `folder`. It has to exist before its workers.

    As a context manager it removes unfinished files. OSErrors name the folder or a file.
    """

    def __init__(self, folder: Path, workers: int) -> None:
        import pyarrow.compute
        import pyarrow.ipc  # noqa: F401  # workers inherit both

        self._folder = folder
        self._files = ParquetFiles(folder, TABLES)
        self._spilled: list[IO[bytes]] = []
        self._parts: list[Part] = []
        self._shared: pa.Table | None = None
        try:
            with _naming(folder):
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
        for file in self._spilled:
            file.close()
        self._spilled.clear()
        self._files.discard()

    def rows(self, worker: int) -> SplitRows:
        """The rows of a split that this worker decodes."""
        return SplitRows(self, worker)

    def spill(self, worker: int, name: str, table: pa.Table) -> Part:
        """Keep rows of a table."""
        data, file = packed(table), self._spilled[worker]
        with _naming(self._folder):
            place = file.seek(0, os.SEEK_END)
            file.write(data)
            file.flush()
        return Part(name, worker, place, len(data))

    def take(self, parts: Iterable[Part], shared: Array, names: Names) -> None:
        """The rows of all splits, in their order. `shared`: CONNECTION_ROW of connections that splits share, merged;
        `names`: the meaning of the numbers in it."""
        self._parts = list(parts)
        rows = shared.copy()
        self._shared = tables.connections_table(rows, named([rows], names))

    def publish(self, context: Context) -> list[Path]:
        """Write the files, and give them their names. Return their paths."""
        assert self._shared is not None, "`take` comes first"
        schemas = {name: tables.arrow_schema(tables.TABLES[name]) for name in TABLES}
        for name, schema in schemas.items():
            self._files.write(name, schema.empty_table())
        for part in self._parts:
            with _naming(self._folder):
                data = os.pread(self._spilled[part.worker].fileno(), part.size, part.place)
            self._files.write(part.table, unpacked(data, schemas[part.table]))
        self._files.write("connections", self._shared)
        self._files.write("files", tables.files_table(context))
        self._files.write("ledger", tables.ledger_table(context))
        return self._files.publish()


class SplitRows:
    """The rows of one split. `parts`: where they are."""

    def __init__(self, files: LocalTables, worker: int) -> None:
        self.parts: list[Part] = []
        self._files = files
        self._worker = worker
        self._gathered = GatheredRows()

    def add(self, batch: Batch, engine: Engine) -> None:
        """Add exchanges and their results. The engine knows the names of all topics in them that have one."""
        if self._gathered.add(batch):
            self._end_group(engine)

    def finish(self, connections: Array, engine: Engine) -> list[Part]:
        """Add CONNECTION_ROW of connections that no other split has, after the last batch. Return all parts."""
        self._end_group(engine)
        rows = connections.copy()
        if len(rows):
            self._spill("connections", tables.connections_table(rows, named([rows], engine)))
        return self.parts

    def _end_group(self, engine: Engine) -> None:
        group = self._gathered.take()
        context = named(group.arrays, engine)
        self._spill("exchanges", group.exchanges_table(context))
        self._spill("results", group.results_table(context))

    def _spill(self, name: str, table: pa.Table) -> None:
        if table.num_rows:
            self.parts.append(self._files.spill(self._worker, name, table))


@contextmanager
def _naming(folder: Path) -> Iterator[None]:
    """Raise OSErrors with the folder: unnamed files have no path."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(folder)) from error
