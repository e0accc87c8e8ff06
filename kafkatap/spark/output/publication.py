"""Publish the rows of a run: Delta tables below OUT, or plain Parquet in a folder of its own.

    with open_publication(out) as publication:
        with publication.writer.open(split) as files:     # on executors
            files.write("exchanges", rows)
        publication.publish(files.written, ("exchanges", "files"), captures=[...])

Delta: each table gets one commit, which removes the rows of the captures that the run has read and adds its own. All
changes are prepared before the first commit. `files` comes last, so its commit means that the run is complete. If a
run is killed between two commits, the next run over the same captures replaces what it committed. Runs need no lock.

Parquet: nothing of another run may be in the folder, and `_SUCCESS` is written last.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from kafkatap.reports.batch import Array, Names
from kafkatap.reports.tables import TABLES, connections_table

from ...parquet.row_names import named
from . import delta
from .delta import TableChanges, Transaction
from .edits import Edit, RemoveCaptures
from .folders import Folder
from .late_names import NameTopics
from .stores import delta_location
from .writing import CaptureIndex, TableWriter, Written, files_of_run

if TYPE_CHECKING:
    import pyarrow as pa

DELTA, PARQUET = FORMATS = ("delta", "parquet")
SUCCESS = "_SUCCESS"
Watch = Callable[[int, int], None]


class FolderInUse(OSError):
    """The folder has something that this run must not mix with."""


@dataclass(frozen=True, slots=True)
class Published:
    """What a run published. `rows`: of this run; `replaced`: rows of earlier runs that it removed; `versions`: of the
    tables that it changed; all by table."""

    files: int
    bytes: int
    rows: dict[str, int]
    replaced: dict[str, int]
    versions: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class Publication:
    """An output folder that a run writes to (see `open_publication`)."""

    out: str
    run: str
    format: str = DELTA
    _is_published: bool = False
    _is_visible: bool = False  # readers may see files of the run

    @property
    def writer(self) -> TableWriter:
        """Writes the rows of tables, on any machine."""
        return TableWriter(self.out, self.run)

    def write(self, table: str, rows: pa.Table) -> list[Written]:
        """Write rows that have a column `capture`."""
        with self.writer.open("driver") as files:
            files.write(table, rows)
        return files.written

    def write_connections(self, rows: Array, names: Names, captures: CaptureIndex) -> list[Written]:
        """Write CONNECTION_ROW of connections that splits share."""
        with self.writer.with_captures(captures).open("driver") as files:
            if len(rows):
                first_packets, rows = rows["first_packet"], rows.copy()
                files.write("connections", connections_table(rows, named([rows], names)), first_packets)
        return files.written

    def publish(
        self,
        written: Sequence[Written],
        tables: Sequence[str],
        captures: Iterable[int],
        *,
        transaction: Transaction | None = None,
        unchanged: Mapping[str, int] | None = None,
        topic_names: Mapping[bytes, bytes] | None = None,
        watch: Watch = lambda done, total: None,
    ) -> Published:
        """Publish the files that tasks wrote. `written`: those of the attempts that counted, and no others.

        `tables`: the tables of the run, with rows or without. `captures`: rows of these are replaced. `transaction`:
        tables that have it already do not change. `unchanged`: versions of tables that have no rows of `captures`, so
        that their files need not be searched. `topic_names`: names by topic id, for rows of earlier runs.
        `watch(done, total)` is called with numbers of tables. OSError, before any change, if a file is not as it was
        written.
        """
        assert not self._is_published, "a run publishes once"
        folder = Folder(self.out)
        _check_files(folder, written)
        self._is_published = True
        ordered = sorted(tables, key=lambda table: table == "files")
        rows = {table: sum(w.rows for w in written if w.table == table) for table in ordered}
        if self.format == PARQUET:
            kept = self._finish(folder, written, ordered)
            watch(len(ordered), len(ordered))
            return Published(len(kept), sum(w.size for w in kept), rows, {})
        edits: list[Edit] = [RemoveCaptures(np.unique(np.array(list(captures), np.int64)))]
        if topic_names:
            edits.append(NameTopics.of(topic_names))
        changes = [
            TableChanges(
                self.out,
                table,
                self.run,
                [w for w in written if w.table == table],
                edits,
                transaction,
                (unchanged or {}).get(table),
            )
            for table in ordered
        ]
        self._commit(changes, watch)
        kept = [file for change in changes for file in change.kept]
        if transaction is None:  # streams publish often, and leave this to --compact
            delete_leftovers(folder, self.run, ordered, {w.name for w in kept})
        removed = {change.table: change.removed for change in changes}
        versions = {change.table: change.version for change in changes if change.version is not None}
        return Published(len(kept), sum(w.size for w in kept), rows, removed, versions)

    def _commit(self, changes: Sequence[TableChanges], watch: Watch) -> None:
        for change in changes:
            with delta.naming_table(self.out, change.table):
                change.prepare()
        self._is_visible = True
        for done, change in enumerate(changes):
            watch(done, len(changes))
            with delta.naming_table(self.out, change.table):
                change.commit()
        watch(len(changes), len(changes))

    def _finish(self, folder: Folder, written: Sequence[Written], tables: Sequence[str]) -> list[Written]:
        """Make plain Parquet complete: a file without rows for each table without files, no leftovers, and _SUCCESS."""
        kept = list(written)
        for table in sorted(set(tables) - {w.table for w in written}):
            with self.writer.open("empty") as files:
                files.write_empty(table, delta.file_schema(table))
            kept += files.written
        delete_leftovers(folder, self.run, tables, {w.name for w in kept})
        self._is_visible = True
        folder.write(SUCCESS, b"")
        return kept


def new_run() -> str:
    """A name for a run. Names sort by time."""
    return f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{uuid.uuid4().hex[:6]}"


@contextmanager
def open_publication(out: str, format: str = DELTA, run: str | None = None) -> Iterator[Publication]:
    """An output folder for a run. It is made if it does not exist. An exception deletes the files of the run that are
    not committed.

    FolderInUse (an OSError) if its tables are of the other format or, for Parquet, of another run; OSError if it is
    not writable.
    """
    check_folder(out, format)
    publication = Publication(out, run or new_run(), format)
    try:
        yield publication
    except BaseException:
        if not publication._is_visible:
            with suppress(OSError):
                delete_leftovers(Folder(out), publication.run, TABLES, set())
        raise


def check_folder(out: str, format: str = DELTA) -> None:
    """Make an output folder, and check that a run may write tables of this format to it. Errors: see above."""
    folder = Folder(out)
    folder.make()
    is_parquet = bool(folder.sizes_of([SUCCESS]))
    if format == DELTA:
        if is_parquet:
            raise FolderInUse(f"{out} has the tables of a run with --format parquet; Delta tables need another folder")
        delta_location(out)
        return
    for table in TABLES:
        if any("/_delta_log/" in name for name in folder.sizes(table)):
            raise FolderInUse(f"{out} has Delta tables; --format parquet needs a folder of its own")
        if folder.sizes(table):
            what = "the tables of another run" if is_parquet else "files of a run that is not complete"
            raise FolderInUse(f"{out} has {what}; --format parquet needs a folder of its own (or use --format delta)")


def delete_leftovers(folder: Folder, run: str, tables: Iterable[str], kept: Container[str]) -> None:
    """Delete the files of a run that are not in `kept` (names below the folder): those of attempts that failed."""
    start = files_of_run(run)
    for table in tables:
        names = [name for name in folder.sizes(table) if name.rpartition("/")[2].startswith(start)]
        folder.delete_all([name for name in names if name not in kept])


def _check_files(folder: Folder, written: Sequence[Written]) -> None:
    """OSError if a file is not as it was written."""
    there = folder.sizes_of([w.name for w in written])
    lost = [w for w in written if there.get(w.name) != w.size]
    if lost:
        raise OSError(
            f"{folder.path}: {len(lost)} of the {len(written)} files that were written are not there "
            f"({lost[0].name}); executors and driver must see the same folder (a local one must be shared)"
        )
