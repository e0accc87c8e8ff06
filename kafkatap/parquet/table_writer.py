"""`TableWriter`: the tables of a run as Parquet files, written while the run goes on, in bounded memory.

Rows gather to row groups. A thread makes tables of a group and writes them, while the run reads on. A topic id can get
its name later, from a Metadata response further on. A group with an id that has no name yet waits in a temporary file,
and with it all groups behind it, so that rows keep their order. At the end all groups are written.

Rows of connections leave the engine as connections end. They wait in a temporary file, too: only at the end it is known
which connections are seen twice.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Self

from kafkatap.kernels.arrays import joined
from kafkatap.reports import tables
from kafkatap.reports.batch import Array, Batch, Context
from kafkatap.reports.connection_columns import CONNECTION_ROW
from kafkatap.reports.counting.connection_counts import ConnectionCounts
from kafkatap.reports.sections.twin_findings import twins_in

from ..output_file import naming
from .packed_tables import packed, unpacked
from .parquet_files import ParquetFiles
from .row_groups import GATHERED_BYTES, GatheredRows, RowGroup, RowGroupQueue
from .row_names import named
from .twin_column import SetTwins

if TYPE_CHECKING:
    import pyarrow as pa

    from kafkatap.reports.section_parts.section_counts import SectionCounts

    from ..run import Run

TABLES = ("exchanges", "results", "connections", "files", "ledger")


class TableWriter:
    """Writes exchanges, results, connections, files and ledger of one run to `folder`.

    As a context manager it removes unfinished files. OSError if they cannot be created. After a later OSError it drops
    further rows, and `publish` raises it.
    """

    def __init__(self, folder: Path, run: Run, gathered_bytes: int = GATHERED_BYTES, overwrite: bool = False) -> None:
        self._run, self._folder = run, folder
        self._gathered_bytes = gathered_bytes
        self._files = ParquetFiles(folder, TABLES, overwrite)
        self._queue = RowGroupQueue(folder)
        self._gathered = GatheredRows(gathered_bytes)
        self._connections: list[Array] = []
        self._connection_bytes = 0
        self._waiting: list[int] = []  # bytes of each part of the rows of connections in the file
        self._file: IO[bytes] | None = None
        #: What counts the connections that are seen twice.
        self.sections: SectionCounts | None = None
        self._counted = ConnectionCounts()
        self._thread = ThreadPoolExecutor(1, "kafkatap-tables")
        self._written: Future[None] | None = None
        self._failure: OSError | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._thread.shutdown(cancel_futures=True)
        self._queue.close()
        if self._file is not None:
            self._file.close()
        self._files.discard()

    def batches(self) -> Iterator[Batch]:
        """The batches of the run. Between them, the rows of ended connections move from the engine to files."""
        for batches in self._run.steps():
            yield from batches
            self._take_connections()

    def add(self, batch: Batch) -> None:
        """Add exchanges and their results."""
        if self._failure is not None:
            return
        if self._gathered.add(batch):
            self._try(self._end_group)

    def context(self, is_over: bool = True) -> Context:
        """The run's context, with counts of connections instead of their rows. `is_over`: as for `Engine.context`."""
        self._take_connections()
        context, counted = self._run.context(is_over), self._counted
        if not is_over:
            counted = counted.copy()
            counted.add(context.connections)
        return context._replace(counted=counted)

    def publish(self, context: Context) -> list[Path]:
        """Write the rest, and give the files their names. Return their paths. OSError if rows could not be written."""
        self._try(lambda: self._finish(context))
        if self._failure is not None:
            raise self._failure
        return self._files.publish()

    def _finish(self, context: Context) -> None:
        self._end_group()
        while self._queue:
            self._write(self._queue.take())
        self._end_connections()
        self._wait()
        self._files.write("files", tables.files_table(context))
        self._files.write("ledger", tables.ledger_table(context))

    def _try(self, step: Callable[[], None]) -> None:
        """Note an OSError, unless an earlier one is noted."""
        if self._failure is None:
            try:
                step()
            except OSError as error:
                self._failure = error

    def _end_group(self) -> None:
        """Write the rows in memory as a row group, or let it wait. Write groups that have waited for names."""
        group, names = self._gathered.take(), self._run.engine.topic_names
        while self._queue.is_first_named(names):
            self._write(self._queue.take())
        unnamed = group.topics_without_names(names)
        if self._queue or unnamed:
            self._queue.put(group, unnamed)
        else:
            self._write(group)

    def _write(self, group: RowGroup) -> None:
        context = named(group.arrays, self._run.engine)
        self._start(lambda: self._write_group(group, context))

    def _write_group(self, group: RowGroup, context: Context) -> None:
        self._files.write("exchanges", group.exchanges_table(context))
        self._files.write("results", group.results_table(context))

    def _take_connections(self) -> None:
        rows = self._run.engine.take_connections()
        if not len(rows):
            return
        self._counted.add(rows)
        if self._failure is None:
            self._connections.append(rows)
            self._connection_bytes += rows.nbytes
            if self._connection_bytes >= self._gathered_bytes:
                self._try(self._spill_connections)

    def _table_of_connections(self) -> pa.Table:
        """The rows in memory."""
        rows = joined(self._connections, CONNECTION_ROW)
        self._connections.clear()
        self._connection_bytes = 0
        return tables.connections_table(rows, named([rows], self._run.engine))

    def _spill_connections(self) -> None:
        data = packed(self._table_of_connections())
        with naming(str(self._folder)):
            if self._file is None:
                self._file = tempfile.TemporaryFile(dir=self._folder, prefix=".kafkatap-")  # noqa: SIM115
            self._file.write(data)
        self._waiting.append(len(data))

    def _end_connections(self) -> None:
        """Write all rows of connections."""
        twins, schema = SetTwins(twins_in(self.sections)), tables.arrow_schema(tables.TABLES["connections"])
        self._wait()
        if self._file is not None:
            self._file.seek(0)
            for size in self._waiting:
                rows = unpacked(self._file.read(size), schema)
                self._files.write("connections", twins.applied("connections", rows))
        self._files.write("connections", twins.applied("connections", self._table_of_connections()))

    def _start(self, write: Callable[[], None]) -> None:
        """Let the thread write, once it has written what it got before."""
        self._wait()
        self._written = self._thread.submit(write)

    def _wait(self) -> None:
        if self._written is not None:
            self._written.result()
            self._written = None
