"""The tables of a live capture as Parquet: a file of each table every minute or so.

Files are DIR/TABLE/run=20261121T174501Z/part-000001.parquet. Readers show `run` as a column; packet numbers are
unique within a run. The columns are those of `kafkatap report --parquet`, with times in microseconds, the finest that
Spark reads from Parquet. Names are looked up when a few thousand rows are there, or when the file is finished. A topic
id without a known name then stays an id. The ledger has what is new since the last file: the sums over a run are its
ledger.

A thread writes the files, so the capture waits for no disk: rows for which there is no room in memory are lost, and
counted. A file has a hidden name until it is complete. A run locks a file of its own. If a run was killed, that file is
unlocked, and the next run removes its hidden files.
"""

from __future__ import annotations

import fcntl
import os
import re
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
import pyarrow.parquet as pq

from kafkatap.dissector.dtypes import ERROR_COUNT, EXCHANGE, RESULT
from kafkatap.dissector.results import EXCHANGE_TOPIC
from kafkatap.kernels.arrays import joined
from kafkatap.reports import tables
from kafkatap.reports.batch import Array, Batch, Context, error_counts
from kafkatap.reports.connection_columns import CONNECTION_ROW
from kafkatap.reports.twins import note_twins

from ...parquet.parquet_files import repeating_columns
from ...parquet.partitions import to_microseconds
from ...parquet.row_names import named
from ..background import Background
from ..disk_budget import DiskBudget
from ..sink import Elapsed, Sink

if TYPE_CHECKING:
    from kafkatap.reports.counting.counts import ReportCounts

    from ...engine.engine import Engine

SECOND = 1_000_000_000
ROTATE = 60 * SECOND
ROWS = 200_000
#: Rows kept in memory. When there are more, they are written as a row group of the file.
GATHERED = 1 << 15
#: Bytes of tables that may wait for the disk.
ROOM = 64 << 20
LIMIT = 10 << 30
#: In the order in which files appear: the rows that refer to others come later.
_TABLES = ("results", "connections", "exchanges", "ledger")
_RUNNING = ".running"
#: Complete files. Those of one run and number belong together.
_COMPLETE = re.compile(rf"(?:{'|'.join(_TABLES)})/run=([^/]+)/part-(\d+)\.parquet")


class ParquetLog(Sink):
    """Writes to `folder`, which is created if it is missing. A file is complete after `rotate` ns or `rows` exchanges.
    `limit`, `age`: bytes of all complete files, and ns since they were completed, over all runs: the oldest are
    removed. `notify` gets lines for the user. OSError if files cannot be created in the folder."""

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        rotate: int = ROTATE,
        rows: int = ROWS,
        limit: int = LIMIT,
        age: int | None = None,
        notify: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.folder = Path(folder)
        self._rotate, self._rows, self._notify = rotate, rows, notify
        self._files = _Files(self.folder, limit, age, notify)
        self._disk = Background("kafkatap-tables", ROOM)
        self._elapsed = Elapsed()
        self._until: int | None = None  # when the files are complete, by `_elapsed`
        self._exchanges: list[Array] = []
        self._results: list[Array] = []
        self._topics: list[Array] = []
        self._connections: list[Array] = []
        self._gathered = 0
        self._filed = 0  # exchanges in the present file
        self._without_room = 0  # rows
        self._ledger: dict[tuple[str, str], int] = {}
        # Import now what tables need (pyarrow looks for pandas too), not while packets wait.
        tables.exchanges_table(np.zeros(0, EXCHANGE), np.zeros(0, ERROR_COUNT), [np.zeros(0, RESULT)], Context())

    @property
    def run(self) -> str:
        """The name of this run, as in the names of its folders."""
        return self._files.run

    @property
    def written(self) -> Mapping[str, int]:
        """Rows in complete files, by table."""
        return self._files.written

    @property
    def lost(self) -> int:
        """Rows that could not be written."""
        return self._files.lost + self._without_room

    def unwritten(self) -> Mapping[str, int]:
        return {"rows": self.lost}

    def settle(self) -> None:
        """Wait until the disk has what was handed over so far."""
        self._disk.settle()

    def add_batch(self, batch: Batch, engine: Engine) -> None:
        self._exchanges.append(batch.exchanges)
        self._results.append(batch.results)
        self._gathered += len(batch.exchanges) + len(batch.results)
        if batch.topics is not None:
            self._topics.append(batch.topics)
            self._gathered += len(batch.topics)
        self._write_if_many(engine)

    def add_connections(self, rows: Array, engine: Engine) -> None:
        self._connections.append(rows)
        self._gathered += len(rows)
        self._write_if_many(engine)

    def end_second(self, now: int, counts: ReportCounts, engine: Engine) -> None:
        now = self._elapsed.at(now)
        if self._until is None:
            self._until = now + self._rotate
        if now >= self._until:
            self._until = now + self._rotate
            self._finish(engine)

    def resolve_names(self, engine: Engine) -> None:
        self._write(engine)

    def reopen(self, engine: Engine) -> None:
        self._until = None
        self._finish(engine)

    def close(self, engine: Engine) -> None:
        self._finish(engine)
        self._disk.add(self._files.close)
        if not self._disk.close():
            self._notify(f"{self.folder}: the disk does not answer: the last rows of tables are missing")
        if self.lost:
            self._notify(f"{self.folder}: {self.lost:,} rows of tables could not be written")

    def _write_if_many(self, engine: Engine) -> None:
        if self._gathered >= GATHERED:
            self._write(engine)
        if self._filed >= self._rows:
            self._finish(engine)

    def _write(self, engine: Engine) -> None:
        """Hand over the rows in memory, with names."""
        if not self._gathered:
            return
        exchanges, connections = joined(self._exchanges, EXCHANGE), joined(self._connections, CONNECTION_ROW)
        results, topics = joined(self._results, RESULT), joined(self._topics, EXCHANGE_TOPIC)
        for rows in (self._exchanges, self._connections, self._results, self._topics):
            rows.clear()
        self._gathered = 0
        note_twins(connections)
        context = named((exchanges, connections, results, topics), engine)
        made = {
            "results": tables.results_table(results, exchanges, context),
            "connections": tables.connections_table(connections, context),
            "exchanges": tables.exchanges_table(exchanges, error_counts(results), (topics, results), context),
        }
        if self._disk.add(partial(self._files.append, made), sum(table.nbytes for table in made.values())):
            self._filed += len(exchanges)
            return
        if not self._without_room:
            self._notify(f"{self.folder}: the disk is slower than rows arrive: some rows of tables are lost")
        self._without_room += sum(map(len, made.values()))

    def _finish(self, engine: Engine) -> None:
        """Complete the files: they become visible, and the next rows begin new ones."""
        self._write(engine)
        self._filed = 0
        self._disk.add(partial(self._files.publish, tables.ledger_table(self._ledger_since(engine))))

    def _ledger_since(self, engine: Engine) -> Context:
        """The engine's ledger less the counts that were written already."""
        since: dict[str, dict[str, int]] = {}
        for section, parts in engine.ledger().items():
            for part, count in parts.items():
                before = self._ledger.get((section, part), 0)
                self._ledger[section, part] = count
                if count != before:
                    since.setdefault(section, {})[part] = count - before
        return Context(ledger=since)


class _Files:
    """The files of a run. Only the constructor is for the capture's thread."""

    def __init__(self, folder: Path, limit: int, age: int | None, notify: Callable[[str], None]) -> None:
        self.written = dict.fromkeys(_TABLES, 0)  # rows in complete files
        self.lost = 0  # rows that could not be written
        self._folder, self._notify = folder, notify
        folder.mkdir(parents=True, exist_ok=True)
        _remove_leftovers(folder)
        self.run, self._lock = _claim_run(folder)
        self._budget = DiskBudget(folder, _COMPLETE, limit, age, notify, deep=3)
        self._parts: dict[str, _Part] = {}
        self._number = 1
        self._failed = False

    def append(self, made: Mapping[str, Any]) -> None:
        """Write tables to the present files."""
        for name, table in made.items():
            self._append(name, table)

    def _append(self, name: str, table: Any) -> None:
        if not len(table):
            return
        try:
            part = self._parts.get(name)
            if part is None:
                path = self._folder / name / f"run={self.run}" / f"part-{self._number:06}.parquet"
                part = self._parts[name] = _Part(path, to_microseconds(table.schema.empty_table()).schema)
            part.write(to_microseconds(table))
        except OSError as error:
            self._fail(name, error, len(table))

    def publish(self, ledger: Any) -> None:
        """Complete the files, with the rows of the ledger."""
        self._append("ledger", ledger)
        self._budget.room(sum(part.size for part in self._parts.values()))
        done: list[_Part] = []
        for name in _TABLES:
            part = self._parts.get(name)
            if part is None:
                continue
            try:
                part.publish()
            except OSError as error:
                self._fail(name, error, 0)
            else:
                self.written[name] += part.rows
                done.append(self._parts.pop(name))
        if done:
            self._budget.add([part.path for part in done], sum(part.size for part in done))
        self._budget.expire()
        self._number += 1

    def close(self) -> None:
        """End the run."""
        with suppress(OSError):
            os.unlink(self._lock.name)
        self._lock.close()

    def _fail(self, name: str, error: OSError, rows: int) -> None:
        """Remove a file that cannot be written. The next rows begin another one."""
        part = self._parts.pop(name, None)
        if part is not None:
            rows += part.rows
            part.abandon()
        self.lost += rows
        if not self._failed:
            why = error.strerror or str(error)
            self._notify(f"{self._folder / name}: {why}: rows of tables are lost; the capture continues")
        self._failed = True


class _Part:
    """One Parquet file while it is written. All failures are OSErrors."""

    def __init__(self, path: Path, schema: Any) -> None:
        self.rows = self.size = 0  # size: bytes
        self.path = path
        self._hidden = path.with_name(f".{path.name}")
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = open(self._hidden, "wb", opener=_private)  # noqa: SIM115
        try:
            self._writer = pq.ParquetWriter(
                self._file, schema, compression="zstd", use_dictionary=repeating_columns(schema)
            )
        except BaseException:
            self._file.close()
            raise

    def write(self, table: Any) -> None:
        self._writer.write_table(table)
        self.rows += len(table)
        self.size = self._file.tell()

    def publish(self) -> None:
        self._writer.close()
        self._file.flush()
        self.size = self._file.tell()
        os.rename(self._hidden, self.path)
        self._file.close()

    def abandon(self) -> None:
        for step in (self._writer.close, self._file.close, self._hidden.unlink):
            with suppress(OSError):  # the reason for this call may persist
                step()


def _private(path: str, flags: int) -> int:
    """Open a file that only its user can read: it has what clients and brokers sent."""
    return os.open(path, flags, 0o600)


def _claim_run(folder: Path) -> tuple[str, BinaryIO]:
    """The name of a run that begins now, and a file that is locked while it runs."""
    began = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    run, number = began, 1
    while True:
        place = folder / "ledger" / f"run={run}"
        try:
            place.mkdir(parents=True)
        except FileExistsError:
            number += 1
            run = f"{began}-{number}"
            continue
        lock = open(place / _RUNNING, "wb")  # noqa: SIM115
        fcntl.flock(lock, fcntl.LOCK_EX)
        return run, lock


def _remove_leftovers(folder: Path) -> None:
    """Remove the hidden files of runs that were killed, as far as possible."""
    for path in (folder / "ledger").glob(f"run=*/{_RUNNING}"):
        with suppress(OSError), open(path, "rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # OSError: it still runs
            for name in _TABLES:
                for part in (folder / name / path.parent.name).glob(".part-*"):
                    part.unlink()
            path.unlink()
            path.parent.rmdir()  # only if it is empty
