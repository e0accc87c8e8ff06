"""`Edit`: a change to rows of committed files. A file that has such rows is replaced by one with the changed rows.

    changed = change_file(folder, table, path, edits, run)

Files are read and written in small parts. First only the columns that the edits look at are read.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from .delta_schema import in_schema
from .folders import Folder, naming
from .parquet_file import ParquetFile
from .writing import OTHER_DATES, Written, closed, files_of_run

if TYPE_CHECKING:
    import pyarrow as pa

Array = np.ndarray[Any, Any]
#: Rows that are read at once.
_ROWS = 65_536
#: The name of a file of a run. `compact` and other programs give others.
_OF_RUN = re.compile(r"part-\d{8}T\d{6}-")


@dataclass(frozen=True, slots=True)
class ActiveFile:
    """A committed file of a table. `path`: below the table. `least`, `most`: the range of its captures; None:
    unknown. `runs`: the range of its run numbers; (None, None): it has none, or they are unknown."""

    path: str
    size: int
    date: str | None
    least: int | None
    most: int | None
    runs: tuple[int | None, int | None] = (None, None)

    @property
    def may_have_runs(self) -> bool:
        """Whether it can have rows with a run number. Files that runs write have the range of these."""
        return self.runs[0] is not None or not _OF_RUN.match(self.path.rpartition("/")[2])


class Edit(Protocol):
    """A change to rows."""

    def columns(self, table: str) -> Sequence[str]:
        """The columns that it depends on; none: it never changes rows of this table."""

    def may_change(self, file: ActiveFile) -> bool:
        """Whether the file can have rows that change."""

    def apply(self, table: str, rows: pa.Table) -> pa.Table | None:
        """The changed rows, which have at least its columns. None: no row changes."""


@dataclass(frozen=True, slots=True)
class RemoveCaptures:
    """Removes the rows of captures. `captures`: their identities, int64, ascending. `since`: a date, before which they
    have no rows; None: unknown."""

    captures: Array
    since: str | None = None

    def columns(self, table: str) -> Sequence[str]:
        return ("capture",)

    def may_change(self, file: ActiveFile) -> bool:
        if self.since is not None and file.date is not None and OTHER_DATES < file.date < self.since:
            return False
        if file.least is None or file.most is None:
            return len(self.captures) > 0
        begin = np.searchsorted(self.captures, file.least)
        return bool(np.searchsorted(self.captures, file.most, side="right") > begin)

    def apply(self, table: str, rows: pa.Table) -> pa.Table | None:
        import pyarrow as pa

        kept = ~np.isin(rows["capture"].to_numpy(), self.captures)
        return None if kept.all() else rows.filter(pa.array(kept))


@dataclass(frozen=True, slots=True)
class RemoveRuns:
    """Removes the rows of runs. `numbers`: those of the runs, int64, ascending."""

    numbers: Array

    def columns(self, table: str) -> Sequence[str]:
        return ("run_number",) if len(self.numbers) else ()

    def may_change(self, file: ActiveFile) -> bool:
        least, most = file.runs
        if least is None or most is None:
            return file.may_have_runs
        return bool(np.searchsorted(self.numbers, most, side="right") > np.searchsorted(self.numbers, least))

    def apply(self, table: str, rows: pa.Table) -> pa.Table | None:
        import pyarrow as pa

        kept = ~np.isin(rows["run_number"].fill_null(-1).to_numpy(), self.numbers)
        return None if kept.all() else rows.filter(pa.array(kept))


@dataclass(frozen=True, slots=True)
class ChangedFile:
    """What becomes of a file. `removed`: rows that are gone; `replacement`: the file with the others, if any are left.

    A file without changes has neither.
    """

    removed: int = 0
    replacement: Written | None = None

    @property
    def is_changed(self) -> bool:
        return self.removed > 0 or self.replacement is not None


def change_file(
    folder: Folder, table: str, file: ActiveFile, edits: Sequence[Edit], run: str, schema: pa.Schema
) -> ChangedFile:
    """Apply edits to a committed file of `folder`, which stays. `schema`: that of the table's files. A column that the
    file lacks is null in its replacement."""
    import pyarrow as pa

    edits = [edit for edit in edits if edit.columns(table) and edit.may_change(file)]
    if not edits:
        return ChangedFile()
    columns = sorted({name for edit in edits for name in edit.columns(table)})
    before = after = 0
    is_changed = False
    for rows in rows_of(folder, table, file, pa.schema([schema.field(name) for name in columns])):
        changed = _applied(edits, table, rows)
        is_changed |= changed is not None
        before += rows.num_rows
        after += (rows if changed is None else changed).num_rows
    if not is_changed or not after:
        return ChangedFile(before - after)
    name = f"{files_of_run(run)}edit-{uuid.uuid4().hex[:12]}.parquet"
    path = f"{table}/{name}" if file.date is None else f"{table}/date={file.date}/{name}"
    new = ParquetFile(folder.like([f"{table}/{file.path}"]), path, schema)
    try:
        for rows in rows_of(folder, table, file, schema):
            changed = _applied(edits, table, rows)
            new.write(rows if changed is None else changed)
    except BaseException:
        new.abort()
        raise
    return ChangedFile(before - after, closed(new, table, file.date))


def _applied(edits: Sequence[Edit], table: str, rows: pa.Table) -> pa.Table | None:
    found = None
    for edit in edits:
        changed = edit.apply(table, rows if found is None else found)
        found = found if changed is None else changed
    return found


def rows_of(folder: Folder, table: str, file: ActiveFile, schema: pa.Schema, count: int = _ROWS) -> Iterator[pa.Table]:
    """The rows of a committed file, `count` at once, with the columns of a schema."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    name = f"{table}/{file.path}"
    with naming(f"{folder.path}/{name}"), folder.open_input(name) as stream:
        reader = pq.ParquetFile(stream)
        for batch in reader.iter_batches(count, columns=schema.names):
            yield in_schema(pa.Table.from_batches([batch]), schema)
