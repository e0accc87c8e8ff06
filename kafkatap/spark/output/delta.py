"""Delta tables below OUT: what they have, and commits that add and remove files. Only the driver needs deltalake.

A commit to one table is atomic. `prepare` finds the changes to a table, and writes the files that take the place of
others. `commit` commits them. If another run commits to the table in between, the changes are prepared again; work on
files that are still there is kept.
"""

from __future__ import annotations

import random
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from ...captures.storage import is_uri
from ...captures.stores import reason_of_store
from ...installation import install_command
from ..cluster.java import SetupError
from .delta_schema import (
    LAKE_TABLES,
    SCHEMA,
    SCHEMA_PROPERTY,
    changed_fields,
    check_features,
    check_number,
    file_schema,
    in_schema,
    kept_schema,
    partition_columns,
    strict_fields,
    table_schema,
)
from .edits import ActiveFile, ChangedFile, Edit, RemoveCaptures, change_file
from .folders import Folder
from .parquet_file import stat_columns
from .stores import delta_location
from .writing import Written

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable
    from deltalake.schema import Field

#: The property of a table that names the columns of its statistics.
_STATS = "delta.dataSkippingStatsColumns"
#: Characters of an error of deltalake in a line of ours.
_LONGEST = 160
#: Files that are read at once.
_THREADS = {"local": 2}
_THREADS_OF_STORES = 8
#: Attempts to commit, if other runs commit to the same table all the time.
_ATTEMPTS = 100
#: (application, version): a table accepts each only once.
Transaction = tuple[str, int]


def require_deltalake() -> None:
    """SetupError if deltalake is not installed."""
    if find_spec("deltalake") is None:
        raise SetupError(f"Delta tables need deltalake for {sys.executable}: {install_command('spark')}")


@contextmanager
def naming_table(out: str, table: str) -> Iterator[None]:
    """Raise errors of deltalake and of Parquet files as OSErrors that name the table."""
    import pyarrow as pa
    from deltalake.exceptions import DeltaError

    try:
        yield
    except (DeltaError, pa.ArrowInvalid, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        text = " ".join(re.sub(r"\x1b\[\d*m|↳", "", str(error)).split())
        text = re.split(r" 0: ", text)[0]  # without a trace of deltalake's own
        if gone := re.search(r"Object at location (\S+) not found", text):
            raise FileNotFoundError(
                f"{out}/{table}: the file {gone[1].rpartition('/')[2]} is gone; run the captures again "
                f"(`kafkatap lake verify` says which tables lack files)"
            ) from error
        if isinstance(error, OSError) and out in text:
            raise
        if is_uri(out) and (reason := reason_of_store(text)):
            raise OSError(f"{out}/{table}: {reason}") from error
        if re.search("json error|parquet|metadata or protocol", text, re.IGNORECASE):
            text = f"its log or a file is damaged; read the captures again into another --output ({text[:_LONGEST]})"
        raise OSError(f"{out}/{table}: {text}") from error


def is_delta(out: str, table: str) -> bool:
    """Whether there is a Delta table."""
    from deltalake import DeltaTable

    uri, options = delta_location(out, table)
    with naming_table(out, table):
        return bool(DeltaTable.is_deltatable(uri, options))


def open_table(out: str, table: str) -> DeltaTable:
    """A Delta table below `out`. OSError if there is none, or if this version does not know its schema or its
    features."""
    from deltalake import DeltaTable
    from deltalake.exceptions import TableNotFoundError

    uri, options = delta_location(out, table)
    with naming_table(out, table):
        try:
            found = DeltaTable(uri, storage_options=options)
        except TableNotFoundError:
            raise FileNotFoundError(f"{out}: there is no Delta table {table}") from None
    check_number(out, table, found)
    check_features(out, table, found)
    return found


def check_tables(out: str) -> None:
    """OSError if rows of this version do not fit into a table below `out`."""
    for table in LAKE_TABLES:
        if is_delta(out, table):
            with naming_table(out, table):
                changed_fields(out, table, open_table(out, table))


def create_table(out: str, table: str, run: str) -> DeltaTable:
    """Open a Delta table below `out`; create it if there is none. It gets the columns that it lacks. OSError if rows of
    this version do not fit into it."""
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    uri, options = delta_location(out, table)
    if not DeltaTable.is_deltatable(uri, options):
        schema = table_schema(table)
        settings: Mapping[str, str | None] = {_STATS: ",".join(stat_columns(schema)), SCHEMA_PROPERTY: str(SCHEMA)}
        try:
            DeltaTable.create(
                uri, schema, "ignore", partition_columns(table), f"kafkatap {table}", configuration=settings,
                storage_options=options, raise_if_key_not_exists=False,
            )  # fmt: skip
        except DeltaError:
            if not DeltaTable.is_deltatable(uri, options):  # another run has created it
                raise
    return _altered(out, table, run, lambda found: changed_fields(out, table, found))


def mend_table(out: str, table: str, run: str) -> DeltaTable:
    """Open a Delta table below `out`. If an earlier version made it, it gets what other programs need, but no
    columns."""
    return _altered(out, table, run, strict_fields)


def _altered(out: str, table: str, run: str, find: Callable[[DeltaTable], list[Field]]) -> DeltaTable:
    """A Delta table after it got the fields that `find` finds, and all columns of statistics."""
    from deltalake import CommitProperties
    from deltalake.exceptions import CommitFailedError

    attempt = 0
    while True:
        fields = find(found := open_table(out, table))
        names = {field.name for field in (*found.schema().fields, *fields)}
        columns = [name for name in found.metadata().configuration.get(_STATS, "").split(",") if name]
        missing = [n for n in stat_columns(table_schema(table)) if n in names and n not in columns]
        if not fields and not missing:
            return found
        properties = CommitProperties({"run": run}, max_commit_retries=0)
        try:
            if fields:
                found.alter.add_columns(fields, commit_properties=properties)
            if missing:
                settings = {_STATS: ",".join([*columns, *missing])}
                found.alter.set_table_properties(settings, commit_properties=properties)
        except CommitFailedError:  # another run was faster, and may have added them
            attempt = _wait(attempt)


def active_files(delta: DeltaTable) -> list[ActiveFile]:
    """The committed files of a table."""
    import pyarrow as pa

    actions = pa.table(delta.get_add_actions(flatten=True))

    def column(name: str) -> list[Any]:
        return actions[name].to_pylist() if name in actions.column_names else [None] * actions.num_rows

    dates = [None if date is None else str(date) for date in column("partition.date")]
    runs = zip(column("min.run_number"), column("max.run_number"), strict=True)
    columns = (column("path"), column("size_bytes"), dates, column("min.capture"), column("max.capture"), runs)
    return [ActiveFile(*values) for values in zip(*columns, strict=True)]


def row_counts(out: str, table: str) -> int | None:
    """The rows of a table, by the statistics of its files: none is read. None if a file has no statistics."""
    import pyarrow as pa

    counts = pa.table(open_table(out, table).get_add_actions(flatten=True))["num_records"].to_pylist()
    return None if None in counts else sum(counts)


def read_table(out: str, table: str, columns: Sequence[str] | None = None) -> pa.Table:
    """The committed rows of a table, without `date` unless it is among `columns`. Declared columns that the table lacks
    are null."""
    import pyarrow as pa

    declared = file_schema(table)
    names = declared.names if columns is None else list(columns)
    dataset = open_table(out, table).to_pyarrow_dataset()
    missing = {*declared.names} - {*dataset.schema.names}
    with naming_table(out, table):
        rows = dataset.to_table(columns=[name for name in names if name not in missing])
    if missing.isdisjoint(names):
        return rows
    fields = [declared.field(n).with_nullable(True) if n in missing else rows.schema.field(n) for n in names]
    return in_schema(rows, pa.schema(fields))


def transaction_version(out: str, table: str, application: str) -> int | None:
    """The last version of an application's transactions that a table has; None if it has none."""
    if not is_delta(out, table):
        return None
    version: int | None = open_table(out, table).transaction_version(application)
    return version


class Outrun(Exception):
    """Another run has changed what this one goes on from."""


@dataclass
class TableChanges:
    """The changes of one run to one table.

    `added`: files of the run. `edits`: changes to rows of other files. `transaction`: if the table has it already,
    nothing changes. `after`: the version of the transaction before it; Outrun if the table has another one.
    `unchanged`: a version of the table in which no file has rows of captures that `edits` remove; they
    are searched there all the same if `search`. `version`: of the table, once the changes are committed; None if they
    were before. `is_own`: nobody else has changed the table since `unchanged`, or it was empty.
    """

    out: str
    table: str
    run: str
    added: Sequence[Written]
    edits: Sequence[Edit]
    transaction: Transaction | None = None
    unchanged: int | None = None
    search: bool = False
    after: int | None = None
    is_done: bool = False
    is_own: bool = False
    version: int | None = None
    _delta: Any = None
    _active: list[ActiveFile] = field(default_factory=list)
    _changed: dict[str, ChangedFile] = field(default_factory=dict)

    def prepare(self) -> None:
        """Read the table as it is now, and write the files that replace others."""
        self._delta = create_table(self.out, self.table, self.run)
        if self.transaction is not None:
            application, version = self.transaction
            latest = self._delta.transaction_version(application)
            self.is_done = latest is not None and latest >= version
            if self.after is not None and latest != (None if self.after < 0 else self.after):
                raise Outrun
        self._active = [] if self.is_done else active_files(self._delta)
        is_empty = self.unchanged is None and not self._active
        self.is_own = is_empty or self._delta.version() == self.unchanged
        open_ = [file for file in self._active if file.path not in self._changed and self._may_change(file)]
        if not open_:
            return
        folder, schema = Folder(self.out), kept_schema(self.table, self._delta)
        with ThreadPoolExecutor(_THREADS.get(folder.system.type_name, _THREADS_OF_STORES)) as pool:
            found = pool.map(lambda f: change_file(folder, self.table, f, self.edits, self.run, schema), open_)
            for file, changed in zip(open_, found, strict=True):
                self._changed[file.path] = changed

    def _may_change(self, file: ActiveFile) -> bool:
        edits = self.edits
        if self.is_own and not self.search:
            edits = [edit for edit in edits if not isinstance(edit, RemoveCaptures)]
        return any(edit.columns(self.table) and edit.may_change(file) for edit in edits)

    @property
    def _pairs(self) -> list[tuple[ActiveFile, ChangedFile]]:
        """The committed files that change."""
        pairs = ((file, self._changed.get(file.path)) for file in self._active)
        return [(file, changed) for file, changed in pairs if changed is not None and changed.is_changed]

    @property
    def removed(self) -> int:
        """Rows that are removed."""
        return sum(changed.removed for _, changed in self._pairs)

    @property
    def kept(self) -> list[Written]:
        """The files that this run wrote and the table refers to."""
        if self.is_done:
            return []
        return [*self.added, *(changed.replacement for _, changed in self._pairs if changed.replacement is not None)]

    def commit(self) -> None:
        """Commit the changes. CommitFailedError if other runs are faster each time."""
        from deltalake.exceptions import CommitFailedError

        attempt = 0
        while not self.is_done:
            try:
                self._commit()
                return
            except CommitFailedError:
                attempt = _wait(attempt)
                self.prepare()

    def _commit(self) -> None:
        from deltalake import CommitProperties, Transaction

        actions = [*map(_add, self.kept), *(_remove(file) for file, _ in self._pairs)]
        self.version = self._delta.version() + bool(actions)  # a commit fails if there is any newer one
        if not actions:
            return
        transactions = None if self.transaction is None else [Transaction(*self.transaction)]
        # Without retries of its own, deltalake fails if there is any newer commit.
        properties = CommitProperties(
            {"run": self.run, "isBlindAppend": False}, max_commit_retries=0, app_transactions=transactions
        )
        self._delta.create_write_transaction(
            actions, "append", self._delta.schema(), partition_columns(self.table), commit_properties=properties
        )


#: What the log of a table says of a commit that leaves the rows as they are.
SAME_ROWS = "kafkatap.sameRows"


def commit_replacement(out: str, table: str, files: Sequence[ActiveFile], written: Sequence[Written]) -> None:
    """Commit files that have the rows of others, which are removed. OSError if one of them is gone already."""
    from deltalake import CommitProperties
    from deltalake.exceptions import CommitFailedError

    attempt = 0
    while True:
        delta = open_table(out, table)
        if not {file.path for file in files} <= {file.path for file in active_files(delta)}:
            raise OSError(f"{out}/{table}: another run has replaced its files meanwhile; repeat the command")
        actions = [*(_add(one, False) for one in written), *(_remove(file, False) for file in files)]
        properties = CommitProperties({"isBlindAppend": False, SAME_ROWS: True}, max_commit_retries=0)
        try:
            delta.create_write_transaction(
                actions, "append", delta.schema(), partition_columns(table), commit_properties=properties
            )
            return
        except CommitFailedError:
            attempt = _wait(attempt)


def _wait(attempt: int) -> int:
    """Wait after an attempt to commit failed, counted from 0; return the number of the next one. Raises the exception
    that is being handled if it was the last one."""
    if attempt == _ATTEMPTS - 1:
        raise
    time.sleep(random.uniform(0, min(0.05 * 2**attempt, 2)))
    return attempt + 1


def _partition_values(date: str | None) -> dict[str, str | None]:
    return {} if date is None else {"date": date}


def _now() -> int:
    return int(time.time() * 1000)


def _add(file: Written, is_change: bool = True) -> Any:
    from deltalake.transaction import AddAction

    return AddAction(file.path, file.size, _partition_values(file.date), _now(), is_change, file.stats)


def _remove(file: ActiveFile, is_change: bool = True) -> Any:
    from deltalake.transaction import RemoveAction

    return RemoveAction(file.path, is_change, _now(), file.size, _partition_values(file.date))
