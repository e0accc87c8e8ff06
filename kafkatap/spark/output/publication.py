"""Publish the rows of a run: Delta tables below OUT.

    with open_publication(out) as publication:
        with publication.writer.open(split) as files:     # on executors
            files.write("exchanges", rows)
        publication.publish(files.written, ("exchanges", "files"), captures=[...])

Each table gets one commit, which removes the rows of the captures that the run has read and adds its own. All
changes are prepared before the first commit. `files` comes last, so its commit means that the run is complete. If a
run is killed between two commits, the next run over the same captures replaces what it committed. Runs need no lock.
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
from kafkatap.reports.tables import connections_table

from ...parquet.late_names import NameTopics
from ...parquet.row_names import named
from . import delta
from .delta import Outrun, TableChanges, Transaction
from .delta_schema import LAKE_TABLES
from .edits import ActiveFile, Edit, RemoveCaptures, RemoveRuns, change_file
from .folders import Folder
from .stores import delta_location
from .writing import TableWriter, Written, files_of_run

if TYPE_CHECKING:
    import pyarrow as pa

    from ...splits.capture_ledgers import CaptureIndex

#: Other programs write it last beside plain Parquet files.
SUCCESS = "_SUCCESS"
Watch = Callable[[int, int], None]


class FolderInUse(OSError):
    """The folder has something that this run must not mix with."""


@dataclass(frozen=True, slots=True)
class Published:
    """What a run published. `rows`: of this run; `replaced`: rows of earlier runs that it removed; `versions`: of the
    tables that it changed and nobody else did (`TableChanges.is_own`); all by table."""

    files: int
    bytes: int
    rows: dict[str, int]
    replaced: dict[str, int]
    versions: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class Publication:
    """An output folder that a run writes to (see `open_publication`). `is_private`: as of `Folder`. `begun`: when the
    run began, ns since the epoch. `number`, `clusters`, `only`: as of `TableWriter`."""

    out: str
    run: str
    is_private: bool = False
    begun: int = field(default_factory=time.time_ns)
    number: int | None = None
    clusters: Mapping[int, str | None] = field(default_factory=dict)
    only: str | None = None
    _is_published: bool = False
    _is_visible: bool = False  # readers may see files of the run

    @property
    def writer(self) -> TableWriter:
        """Writes the rows of tables, on any machine."""
        return TableWriter(
            self.out, self.run, is_private=self.is_private, number=self.number, clusters=self.clusters, only=self.only
        )  # fmt: skip

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
                context = named([rows], names)
                files.write("connections", connections_table(rows, context), first_packets)
                files.count("connections", rows, context)
        return files.written

    def edited(self, written: Sequence[Written], edit: Edit) -> list[Written]:
        """Files that no reader sees yet, with an edit of their rows."""
        import pyarrow.parquet as pq

        folder, found = Folder(self.out, self.is_private), []
        for one in written:
            if edit.columns(one.table):
                with folder.open_input(one.name) as stream:
                    schema = pq.read_schema(stream)
                file = ActiveFile(one.path, one.size, one.date, None, None)
                changed = change_file(folder, one.table, file, [edit], self.run, schema).replacement
                if changed is not None:
                    folder.delete(one.name)
                    one = changed
            found.append(one)
        return found

    def publish(
        self,
        written: Sequence[Written],
        tables: Sequence[str],
        captures: Iterable[int],
        *,
        transaction: Transaction | None = None,
        after: int | None = None,
        replaced: Iterable[int] = (),
        unchanged: Mapping[str, int] | None = None,
        search: bool = False,
        since: str | None = None,
        topic_names: Mapping[bytes, bytes] | None = None,
        watch: Watch = lambda done, total: None,
    ) -> Published:
        """Publish the files that tasks wrote. `written`: those of the attempts that counted, and no others.

        `tables`: the tables of the run, with rows or without. `captures`, `replaced`: rows of these captures, and of
        runs with these numbers, are replaced. `transaction`: tables that have it already do not change. `after`: the
        version before it; Outrun, before any change, if the first table has another one. `unchanged`: versions of
        tables that have no rows of `captures`, so that their files need not be searched, unless `search`. `since`: a
        date, before which no table has rows of `captures`. `topic_names`: names by topic id, for rows of earlier runs.
        `watch(done, total)` is called with numbers of tables. OSError, before any change, if a file is not as it was
        written.
        """
        assert not self._is_published, "a run publishes once"
        folder = Folder(self.out, self.is_private)
        _check_files(folder, written)
        self._is_published = True
        ordered = sorted(tables, key=lambda table: table == "files")
        for table in ordered:  # deltalake would make it with other rights
            folder.make(table)
        rows = {table: sum(w.rows for w in written if w.table == table) for table in ordered}
        edits: list[Edit] = [RemoveCaptures(np.unique(np.array(list(captures), np.int64)), since)]
        if numbers := sorted(replaced):
            edits.append(RemoveRuns(np.array(numbers, np.int64)))
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
                search,
                after if table == ordered[0] else None,
            )
            for table in ordered
        ]
        self._commit(changes, watch)
        kept = [file for change in changes for file in change.kept]
        if transaction is None:  # streams publish often, and leave this to `compact`
            delete_leftovers(folder, self.run, ordered, {w.name for w in kept})
        removed = {change.table: change.removed for change in changes}
        versions = {
            change.table: change.version for change in changes if change.version is not None and change.is_own
        }  # fmt: skip
        return Published(len(kept), sum(w.size for w in kept), rows, removed, versions)

    def _commit(self, changes: Sequence[TableChanges], watch: Watch) -> None:
        for change in changes:
            with delta.naming_table(self.out, change.table):
                change.prepare()
        self._is_visible = True
        for done, change in enumerate(changes):
            watch(done, len(changes))
            with delta.naming_table(self.out, change.table):
                try:
                    change.commit()
                except Outrun:
                    self._is_visible = False
                    raise
        watch(len(changes), len(changes))


def new_run() -> str:
    """A name for a run. Names sort by time."""
    return f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{uuid.uuid4().hex[:6]}"


@contextmanager
def open_publication(out: str, run: str | None = None, is_private: bool = False) -> Iterator[Publication]:
    """An output folder for a run. It is made if it does not exist. An exception deletes the files of the run that are
    not committed. OSError if it is not writable, or if it has files that Delta tables must not mix with (FolderInUse).
    """
    check_folder(out, is_private)
    publication = Publication(out, run or new_run(), is_private)
    try:
        yield publication
    except BaseException:
        if not publication._is_visible:
            with suppress(OSError):
                delete_leftovers(Folder(out), publication.run, LAKE_TABLES, set())
        raise


def check_folder(out: str, is_private: bool = False) -> None:
    """Make an output folder, and check that a run may write tables to it. Errors: see above."""
    folder = Folder(out, is_private)
    folder.make()
    if folder.sizes_of([SUCCESS]):
        raise FolderInUse(f"{out} has files of another program ({SUCCESS}); Delta tables need a folder of their own")
    delta_location(out)


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
