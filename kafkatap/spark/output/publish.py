"""Publish the tables of a run as folders of Parquet files: written hidden, visible once all of them are complete.

    with open_publication(out) as publication:
        # on executors:
        written += publication.staging.write("exchanges", table, split, part)
        # on the driver, at the end:
        publication.publish(written, tables=("exchanges", ...))

Tables are in OUT/TABLE/date=2026-11-21/hour=04/broker=10.0.0.1%3A9092/split-00012-0.parquet, by the UTC hour and the
broker; `files` and `ledger` are one file each. Times are microseconds, because Spark reads no nanoseconds from Parquet.
Durations are nanoseconds, as everywhere.

A run writes to OUT/_temporary-RUN. To publish, it writes a journal there, which lists the files to move and to delete.
Then it executes the journal; each step may be repeated. A run that is killed before its journal changes no table. After
that, the next run that opens OUT finishes the journal. A table's folder has `_SUCCESS` while the table is complete: it
is deleted first and written last.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...partitions import (
    OTHER,
    as_ns,
    broker_names,
    cut,
    exchange_times,
    kafka_brokers,
    partition_name,
    to_microseconds,
)
from .folders import Folder
from .locks import locked

#: Tables that are cut by hour and broker, and those that are one file.
PARTITIONED = ("exchanges", "results", "connections", "records")
SINGLE = ("files", "ledger")
SUCCESS = "_SUCCESS"
HIDDEN = "_temporary-"
JOURNAL = "_journal.json"


@dataclass(frozen=True, slots=True)
class Written:
    """A file of a run. `name`: its name in OUT once it is published; `staged`: its name until then."""

    name: str
    staged: str
    rows: int
    bytes: int

    @property
    def table(self) -> str:
        return self.name.partition("/")[0] if "/" in self.name else ""

    @property
    def partition(self) -> str:
        """date=…/hour=…/broker=…, or "" if the table has no partitions."""
        return self.name.partition("/")[2].rpartition("/")[0]


@dataclass(frozen=True, slots=True)
class Published:
    """What a run published. `replaced`: partitions, of any table, in which it deleted files of an earlier run."""

    files: int
    bytes: int
    rows: dict[str, int]
    replaced: int


@dataclass(frozen=True, slots=True)
class Staging:
    """The hidden folder of a run. It can be sent to other processes and machines.

    `prefix` starts the names of its files. Runs that add to tables need different prefixes.
    """

    out: str
    run: str
    prefix: str = "split"

    def write(
        self, table_name: str, table: Any, split: int = 0, part: int = 0, times: Any = None, brokers: Any = None
    ) -> list[Written]:
        """Write rows of a table (pyarrow, of the schemas in reports/tables.py), one file for each partition.

        `times` (int64, ns) and `brokers` (strings, as of `endpoint`) place the rows of `results` and `records` with
        their exchanges. `split` and `part` number the files.
        """
        if table_name in SINGLE:
            return [self._write(f"{table_name}/{table_name}.parquet", table)]
        if not table.num_rows:
            return []
        if table_name == "exchanges":
            times, brokers = exchange_times(table), broker_names(table)
        elif table_name == "connections":
            times, brokers = as_ns(table["connection_first"]), kafka_brokers(table)
        file = f"{self.prefix}-{split:05d}-{part}.parquet"
        return [
            self._write(f"{table_name}/{partition}/{file}", rows)
            for partition, rows in cut(table, np.asarray(times), brokers)
        ]

    def write_text(self, name: str, text: str) -> Written:
        """Write a file of OUT itself, such as report.json."""
        data = text.encode()
        staged = self._staged(name)
        Folder(self.out).write(staged, data)
        return Written(name, staged, 0, len(data))

    def rewrite(self, name: str, table: Any) -> Written:
        """Write new rows for a published file, which they replace."""
        return self._write(name, table)

    def write_empty(self, table_name: str, partition: str) -> Written:
        """Write a file without rows, so that an empty table can be read."""
        from kafkatap.reports.tables import TABLES, arrow_schema

        empty = arrow_schema(TABLES[table_name]).empty_table()
        return self._write(f"{table_name}/{partition}/{self.prefix}-empty.parquet", empty)

    @property
    def folder(self) -> str:
        return HIDDEN + self.run

    def _staged(self, name: str) -> str:
        """A name that no other attempt of the same task uses."""
        return f"{self.folder}/{name}.{uuid.uuid4().hex[:12]}"

    def _write(self, name: str, table: Any) -> Written:
        import pyarrow.parquet as pq

        staged = self._staged(name)
        with Folder(self.out).open_output(staged) as stream:
            pq.write_table(to_microseconds(table), stream, compression="zstd")
            size = stream.tell()
        return Written(name, staged, table.num_rows, size)


@dataclass(slots=True)
class Publication:
    """An output folder that a run has locked (see `open_publication`)."""

    staging: Staging
    _folder: Folder
    _check: Callable[[], None]

    def publish(
        self,
        written: Sequence[Written],
        tables: Sequence[str],
        *,
        adding: bool = False,
        watch: Callable[[int, int], None] = lambda done, total: None,
    ) -> Published:
        """Publish the files that tasks wrote. `written`: those of the attempts that counted, and no others.

        `tables`: the tables of the run, with rows or without. A partition in which the run has rows of any table is
        replaced in all `tables`; other partitions stay. With `adding`, files of other prefixes stay too.
        `watch(done, total)` is called with numbers of files. OSError, before any change, if a file is not as it was
        written.
        """
        folder, staging = self._folder, self.staging
        there = folder.sizes(staging.folder)
        lost = [w for w in written if there.get(w.staged) != w.bytes]
        if lost:
            raise OSError(
                f"{folder.path}: {len(lost)} of the {len(written)} files that were written are not there "
                f"({lost[0].staged}); executors and driver must see the same folder (a local one must be shared)"
            )
        partitions = {w.partition for w in written} - {""}
        found = {t: self._present(t, partitions, adding) for t in tables if t in PARTITIONED}
        old = {name for names in found.values() for name in names if self._is_replaced(name, partitions, adding)}
        before = {name.rpartition("/")[0] for name in old}
        whole = [*written, *self._empty(written, found, old, min(partitions, default=partition_name(0, OTHER)), adding)]
        self._check()
        moves = [(w.staged, w.name, w.bytes) for w in whole]
        journal = _Journal(list(tables), moves, sorted(old - {w.name for w in whole}))
        folder.write(f"{staging.folder}/{JOURNAL}", journal.text().encode())
        journal.execute(folder, there | {w.staged: w.bytes for w in whole}, watch)
        _forget(folder, staging.folder)
        rows = {t: sum(w.rows for w in written if w.table == t) for t in tables}
        return Published(len(whole), sum(w.bytes for w in whole), rows, len(before))

    def _present(self, table: str, partitions: set[str], adding: bool) -> set[str]:
        """The files of a table; with `adding` only those of these partitions, because the others may be many."""
        if not adding:
            return set(self._folder.sizes(table))
        return {name for p in partitions for name in self._folder.sizes(f"{table}/{p}")}

    def _is_replaced(self, name: str, partitions: set[str], adding: bool) -> bool:
        head, _, file = name.rpartition("/")
        ours = not adding or file.startswith(f"{self.staging.prefix}-")
        return ours and head.partition("/")[2] in partitions

    def _empty(
        self, written: Sequence[Written], found: dict[str, set[str]], old: set[str], partition: str, adding: bool
    ) -> Iterator[Written]:
        """Write a file without rows for each table that would be empty."""
        filled = {w.table for w in written}
        for table, names in found.items():
            left = {name for name in names - old if name.endswith(".parquet")}
            if (
                table not in filled
                and not left
                and not (adding and self._folder.read(f"{table}/{SUCCESS}") is not None)
            ):
                yield self.staging.write_empty(table, partition)


def new_run() -> str:
    """A name for a run. Names sort by time."""
    return f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{uuid.uuid4().hex[:6]}"


@contextmanager
def open_publication(out: str, run: str | None = None, prefix: str = "split") -> Iterator[Publication]:
    """Lock an output folder for a run: make it, finish the journal of an earlier run, and delete hidden files that
    earlier runs left. At the end, files that were not published are deleted.

    InUse (an OSError) if another run has the folder; OSError if it is not writable.
    """
    staging = Staging(out, run or new_run(), prefix)
    folder = Folder(out)
    folder.make()
    with locked(folder, staging.run) as check:
        finish_earlier(folder)
        try:
            yield Publication(staging, folder, check)
        finally:
            if folder.read(f"{staging.folder}/{JOURNAL}") is None:
                folder.delete_folder(staging.folder)


def is_half_published(out: str) -> bool:
    """Whether a run was interrupted while it published: its tables are incomplete until the next run."""
    folder = Folder(out)
    hidden = [name for name in folder.folders() if name.startswith(HIDDEN)]
    return any(folder.sizes_of([f"{name}/{JOURNAL}" for name in hidden]))


def finish_earlier(folder: Folder) -> None:
    """Execute the journals of earlier runs and delete their hidden folders. The caller has locked OUT."""
    for name in folder.folders():
        if name.startswith(HIDDEN):
            text = folder.read(f"{name}/{JOURNAL}")
            if text is not None:
                _Journal.parse(text.decode()).execute(folder, folder.sizes(name))
            _forget(folder, name)


def _forget(folder: Folder, hidden: str) -> None:
    """Delete a run's hidden folder. The journal goes first, because it refers to the other files."""
    folder.delete(f"{hidden}/{JOURNAL}")
    folder.delete_folder(hidden)


@dataclass(frozen=True, slots=True)
class _Journal:
    """The steps that publish a run. `moves`: (from, to, bytes)."""

    tables: list[str]
    moves: list[tuple[str, str, int]]
    deletes: list[str] = field(default_factory=list)

    def text(self) -> str:
        return json.dumps({"tables": self.tables, "moves": self.moves, "deletes": self.deletes})

    @staticmethod
    def parse(text: str) -> _Journal:
        parsed = json.loads(text)
        return _Journal(parsed["tables"], [(s, n, b) for s, n, b in parsed["moves"]], parsed["deletes"])

    def execute(
        self,
        folder: Folder,
        staged: dict[str, int],
        watch: Callable[[int, int], None] = lambda done, total: None,
    ) -> None:
        """Execute the steps that are left. `staged`: bytes of the files in the hidden folder."""
        gone = {name: size for source, name, size in self.moves if source not in staged}
        there = folder.sizes_of(list(gone))
        lost = [name for name, size in gone.items() if there.get(name) != size]
        if lost:
            raise OSError(f"{folder.path}: {lost[0]} should be published and does not exist any more")
        done = 0

        def move(source: str, name: str) -> None:
            nonlocal done
            folder.move(source, name)
            done += 1
            watch(done, len(self.moves))

        for table in self.tables:
            folder.delete(f"{table}/{SUCCESS}")
        folder.each(folder.delete, [(name,) for name in self.deletes])
        folder.each(move, [(source, name) for source, name, _ in self.moves if source in staged])
        for table in self.tables:
            folder.write(f"{table}/{SUCCESS}", b"")
