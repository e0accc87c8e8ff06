"""Sections of a lake's report as Delta tables, a row for each row of a report of one UTC day and one cluster.

    for date in update_sections(out):       # those that changed since the last time
        ...

They are made of the counts in the lake, as `kafkatap report` over these hours is. Each table keeps the version of the
counts that it was made of, so an update that was killed goes on where it ended, and `is_outdated` can tell.
"""

from __future__ import annotations

import datetime
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from kafkatap.reports.model import ReportTable
from kafkatap.reports.section_parts.registry import load_sections
from kafkatap.reports.section_parts.stored import STORED_TABLE
from kafkatap.reports.sections.clients import COLUMNS as CLIENT_COLUMNS

from ..engine.selection import EVERYTHING
from ..parquet.partitions import to_microseconds
from .lake_query import LakeQuery, read_rows
from .lake_report import lake_report
from .output.compaction import rights_of
from .output.delta import SAME_ROWS, active_files, is_delta, naming_table, open_table, read_table, transaction_version
from .output.stores import delta_location

if TYPE_CHECKING:
    import pyarrow as pa

#: The sections that become tables, and the folder of these in a lake.
SECTIONS = ("groups", "events", "advice", "topics", "clients")
FOLDER = "sections"
#: The application whose transactions have the version of the counts.
_APPLICATION = "kafkatap-sections"
_DAY_HOURS = 24
#: Operations of Delta tables after which they have the same rows.
_SAME_ROWS = ("OPTIMIZE", "VACUUM START", "VACUUM END", "SET TBLPROPERTIES", "ADD COLUMN")


def table_names() -> list[str]:
    """The tables, by the names that they have in reports."""
    return [f"{FOLDER}/{name}" for name in ("clients", *(n for s in load_sections(SECTIONS) for n in s.columns))]


def are_there(out: str) -> bool:
    """Whether a lake has such tables: then each run keeps them up to date."""
    return is_delta(out, f"{FOLDER}/events")


def is_outdated(out: str) -> bool:
    """Whether the counts of a lake have changed since its tables of sections were made."""
    if not are_there(out):
        return False
    return bool(_changed(out, _version_made(out), open_table(out, STORED_TABLE).version()))


def update_sections(out: str) -> Iterator[str]:
    """Write the rows of the dates that changed since the last update, and yield these dates once they are written.
    FileNotFoundError if the lake has no counts of messages; OSError if it cannot be read or written."""
    if not is_delta(out, STORED_TABLE):
        raise FileNotFoundError(
            f"{out}: it has no counts of messages, as an earlier version of kafkatap made it; run its captures again"
        )
    version = open_table(out, STORED_TABLE).version()
    dates = _changed(out, _version_made(out), version)
    if not dates and are_there(out):
        return
    made: dict[str, list[pa.Table]] = defaultdict(list)
    files = read_table(out, "files", ("capture", "cluster")).to_pydict()
    cluster_of = dict(zip(files["capture"], files["cluster"], strict=True))
    for date in dates:
        for name, rows in _rows_of(out, date, cluster_of):
            made[name].append(rows)
    for name in table_names():
        _write(out, name, made.get(name, []), dates, version)
    yield from dates


def _version_made(out: str) -> int | None:
    """The version of the counts of which all tables were made, at least; None: one is missing."""
    found = [transaction_version(out, name, _APPLICATION) for name in table_names()]
    return None if None in found else min(version for version in found if version is not None)


def _changed(out: str, before: int | None, version: int) -> list[str]:
    """The dates of which the counts changed between two versions; before None: all."""
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    uri, options = delta_location(out, STORED_TABLE)

    def files(at: int) -> set[tuple[str, str | None]]:
        return {(file.path, file.date) for file in active_files(DeltaTable(uri, at, options))}

    with naming_table(out, STORED_TABLE):
        try:
            found = set[tuple[str, str | None]]()
            for entry in [] if before is None else open_table(out, STORED_TABLE).history(version - before):
                is_same = entry["operation"] in _SAME_ROWS or SAME_ROWS in entry
                if before is not None and before < entry["version"] <= version and not is_same:
                    found |= files(entry["version"]) ^ files(entry["version"] - 1)
        except DeltaError:  # its log was cleaned
            before = None
        found = files(version) if before is None else found
    return sorted({date for _, date in found if date is not None})


def _rows_of(out: str, date: str, cluster_of: Mapping[int, str | None]) -> Iterator[tuple[str, pa.Table]]:
    """The rows of all tables for a date, by table and cluster. `cluster_of`: that of each capture."""
    wanted = table_names()
    day = (datetime.date.fromisoformat(date) - datetime.date(1970, 1, 1)).days
    query = LakeQuery(EVERYTHING, day * _DAY_HOURS, (day + 1) * _DAY_HOURS)
    for cluster, captures in _clusters(out, query, cluster_of).items():
        report = lake_report(out, query._replace(captures=captures), sections=SECTIONS)
        for table in report.tables:
            if (name := f"{FOLDER}/{table.name}") in wanted:
                yield name, _rows(table, date, cluster)


def _clusters(out: str, query: LakeQuery, cluster_of: Mapping[int, str | None]) -> Mapping[str | None, frozenset[int]]:
    """The captures of each cluster with counts of a query."""
    found: dict[str | None, set[int]] = defaultdict(set)
    for rows in read_rows(out, STORED_TABLE, ("capture",), query.hours()):
        for capture in rows["capture"].unique().to_pylist():
            found[cluster_of.get(capture)].add(capture)
    return {cluster: frozenset(captures) for cluster, captures in found.items()}


def _rows(table: ReportTable, date: str, cluster: str | None) -> pa.Table:
    """Rows of a report with their date and cluster before them."""
    import pyarrow as pa

    rows = to_microseconds(table.to_arrow())
    day = pa.array([datetime.date.fromisoformat(date)] * len(rows), pa.date32())
    return rows.add_column(0, "date", day).add_column(1, "cluster", pa.array([cluster] * len(rows), pa.string()))


def _write(out: str, name: str, parts: Iterable[pa.Table], dates: Iterable[str], version: int) -> None:
    """Replace the rows of some dates in a table."""
    import pyarrow as pa
    from deltalake import CommitProperties, Transaction, write_deltalake

    rows = list(parts)
    table = pa.concat_tables(rows, promote_options="permissive") if rows else _empty(name)
    uri, options = delta_location(out, name)
    listed = ", ".join(f"'{date}'" for date in dates)
    exists = is_delta(out, name)
    with naming_table(out, name), rights_of(out, STORED_TABLE, open_table(out, STORED_TABLE)) as folder:
        folder.make(name)
        write_deltalake(
            uri, table, mode="overwrite", partition_by=["date"], schema_mode="merge" if exists else None,
            predicate=f"date IN ({listed})" if exists else None, storage_options=options,
            commit_properties=CommitProperties(app_transactions=[Transaction(_APPLICATION, version)]),
        )  # fmt: skip


def _empty(name: str) -> pa.Table:
    """No rows, with the columns of a table."""
    columns = {"clients": CLIENT_COLUMNS} | {n: c for s in load_sections(SECTIONS) for n, c in s.columns.items()}
    return _rows(ReportTable("", "", tuple(columns[name.removeprefix(f"{FOLDER}/")]), []), "1970-01-01", None)
