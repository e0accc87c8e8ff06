"""`lake_report`: the report of a lake, from its rollup and the tables `files` and `ledger`. It needs no Java.

A rollup has the counts of each capture and UTC hour. So a report is of whole hours, and of clients, brokers and APIs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from kafkatap.dissector.dtypes import OUTCOMES
from kafkatap.dissector.programs.loading import load_programs
from kafkatap.reports.batch import endpoint
from kafkatap.reports.build import build_report
from kafkatap.reports.counting.connection_counts import ConnectionCounts
from kafkatap.reports.counting.counts import ReportCounts
from kafkatap.reports.counting.hour_counts import HOUR, HourCounts
from kafkatap.reports.findings import NOTE, Finding
from kafkatap.reports.name_table import NameTable
from kafkatap.reports.rollup_tables import FORMS, ROLLUP_TABLES, add_rollup
from kafkatap.reports.sections.summary import NOT_CHECKED
from kafkatap.reports.units import iso

from ..splits.capture_ledgers import sum_ledgers
from ..splits.two_passes import context_of
from .lake_options import NAME
from .output.delta import is_delta, naming_table, open_table, read_table, row_counts
from .output.folders import Folder
from .output.run_tables import file_infos

if TYPE_CHECKING:
    import re

    import pyarrow as pa

    from kafkatap.reports.batch import Context, FileInfo
    from kafkatap.reports.model import Report

    from ..engine.selection import Selection

Array = np.ndarray[Any, Any]
#: Rows that are read at once: a row has five histograms.
_ROWS = 8_192
_UNCHECKED = Finding(
    NOT_CHECKED, NOTE, "not checked",
    "outages, restarts, settings and what else messages say: a rollup has counts by hour; `kafkatap report` over the "
    "captures looks for them",
)  # fmt: skip


class LakeQuery(NamedTuple):
    """What a report is of. `begin`, `end`: hours since the epoch, None: no limit. `clients`: matches client_ids and
    addresses. `selection`: decides on brokers, and has the text of all options. `apis`: keys."""

    selection: Selection
    begin: int | None = None
    end: int | None = None
    clients: re.Pattern[str] | None = None
    apis: frozenset[int] | None = None


def is_lake(path: str) -> bool:
    """Whether a folder, local or in a store, is a lake. OSError if the store cannot be read."""
    return bool(Folder(path).sizes_of([NAME]))


def hours_of(selection: Selection) -> tuple[int | None, int | None]:
    """The window of a selection, as hours since the epoch. ValueError if it is not of whole hours."""
    found = []
    for moment in selection.window or (None, None):
        if moment is not None and not moment.is_absolute:
            raise ValueError(f"{moment.text} has no date, and a lake has many days: give both, as 2026-11-21T08:00Z")
        at = None if moment is None else moment.at(0)
        if at is not None and at % HOUR:
            raise ValueError(
                f"{iso(at)[:16]} UTC is no whole hour, and the counts of a lake are by hour; for less than an hour, "
                f"run `kafkatap report` over its captures"
            )
        found.append(None if at is None else at // HOUR)
    return found[0], found[1]


def lake_report(
    out: str,
    query: LakeQuery,
    *,
    by: str = "api",
    sections: Sequence[str] | None = None,
    curves: bool = False,
    options: tuple[tuple[str, str], ...] = (),
) -> Report:
    """The report of the rollup, as of `build_report`. FileNotFoundError if the lake has none; OSError if it cannot be
    read; ValueError if `by` needs what a rollup lacks."""
    if by in ("topic", "connection"):
        raise ValueError(f"a rollup has no rows by {by}; read the tables exchanges and results (docs/recipes.md)")
    missing = [table for table in FORMS if not is_delta(out, table)]
    if missing:
        raise FileNotFoundError(
            f"{out}: there is no {' and no '.join(missing)}: deleted, or an earlier version of kafkatap made this "
            f"lake; run its captures again (`kafkatap spark`)"
        )
    names, total, connections = NameTable(), ReportCounts(), ConnectionCounts()
    sources = [np.zeros((0, 5), np.int64)]
    for table in FORMS:
        for rows in _rows(out, table, query):
            counts = HourCounts(most_rows=None, names=names)
            add_rollup(table, rows, counts)
            total.merge(counts.report_counts())
            connections.merge(counts.connection_counts())
            sources.append(counts.sources())
    captured = np.unique(np.concatenate(sources), axis=0)
    chosen = set(captured[:, -1].tolist())
    files = [info for info in file_infos(read_table(out, "files")) if info.capture in chosen or not query.selection]
    context = _context(out, files, query)._replace(
        strings=names.strings, addresses=names.addresses, topic_names=names.topic_names, counted=connections,
        known_versions=load_programs("summary").known_versions, options=options,
    )  # fmt: skip
    report = build_report(
        total, context, by=by, selected=query.selection.text, sections=sections, curves=curves, unchecked=_UNCHECKED
    )
    notes = _notes(out, total, captured, files, query)
    return report.replace(warnings=(*notes, *report.warnings))


def _rows(out: str, table: str, query: LakeQuery) -> Iterator[pa.Table]:
    """The rows of a table that the query selects, in parts."""
    import pyarrow as pa
    import pyarrow.compute as pc

    dataset = open_table(out, table).to_pyarrow_dataset()
    date, hour = pc.field("date"), pc.field("hour")
    wanted = pc.scalar(True)
    if query.begin is not None:
        wanted &= (date >= _day(query.begin)) & (hour >= _time(query.begin))
    if query.end is not None:
        wanted &= (date <= _day(query.end)) & (hour < _time(query.end))
    names = [c.name for c in ROLLUP_TABLES[table] if c.name in dataset.schema.names]
    if query.apis is not None and "api_key" in names:
        wanted &= pc.field("api_key").isin(pa.array(sorted(query.apis), pa.int16()))
    batches = dataset.to_batches([*names, "capture"], wanted, _ROWS, batch_readahead=1, fragment_readahead=1)
    while True:
        with naming_table(out, table):
            batch = next(batches, None)
        if batch is None:
            return
        rows = _of_brokers(_of_clients(pa.Table.from_batches([batch]), query), query)
        if rows.num_rows:
            yield rows


def _day(hour: int) -> pa.Scalar:
    """The day of an hour, as of the column `date`."""
    import pyarrow as pa

    return pa.scalar(hour // 24, pa.date32())


def _time(hour: int) -> pa.Scalar:
    """An hour, as of the column `hour`."""
    import pyarrow as pa

    return pa.scalar(hour * (HOUR // 1000), pa.timestamp("us", "UTC"))


def _of_clients(rows: pa.Table, query: LakeQuery) -> pa.Table:
    if query.clients is None or not rows.num_rows:
        return rows
    found = np.zeros(rows.num_rows, bool)
    for name in ("client_id", "client_ip"):
        if name in rows.column_names:
            found |= _where(rows, (name,), lambda text: text is not None and bool(query.clients.match(text)))
    return rows.filter(found)


def _of_brokers(rows: pa.Table, query: LakeQuery) -> pa.Table:
    if not query.selection.brokers or "broker_ip" not in rows.column_names or not rows.num_rows:
        return rows
    has = query.selection.has_broker
    return rows.filter(_where(rows, ("broker_ip", "broker_port"), lambda ip, port: has(endpoint(ip, port))))


def _where(rows: pa.Table, names: tuple[str, ...], holds: Any) -> Array:
    """Where a condition on some columns holds: bool (n,). It is asked once for each distinct value."""
    import pyarrow as pa

    texts = rows.select(names).append_column("row", pa.array(np.arange(rows.num_rows)))
    found = np.zeros(rows.num_rows, bool)
    for values in texts.group_by(list(names)).aggregate([("row", "list")]).to_pylist():
        found[values["row_list"]] = holds(*(values[name] for name in names))
    return found


def _context(out: str, files: list[FileInfo], query: LakeQuery) -> Context:
    """Ledger, files and times of captures, within the hours of the query."""
    captures = {info.capture for info in files}
    rows = read_table(out, "ledger").to_pylist()
    ledger = sum_ledgers({r["section"]: {r["part"]: r["count"]}} for r in rows if r["capture"] in captures)
    for parts in ledger.values():
        if parts.get("unfinished", 0) < 0:  # begun in captures that are not among these
            parts["total"] -= parts.pop("unfinished")
    first = min((info.first for info in files if info.first is not None), default=None)
    last = max((info.last for info in files if info.last is not None), default=None)
    if query.begin is not None and first is not None:
        first = max(first, query.begin * HOUR)
    if query.end is not None and last is not None:
        last = min(last, query.end * HOUR)
    return context_of(ledger, files, first, last, 0)


def _notes(out: str, report: ReportCounts, captured: Array, files: list[FileInfo], query: LakeQuery) -> Iterator[str]:
    """What a reader has to know of these counts. `captured`: as of `HourCounts.sources`."""
    if not query.selection:
        counted = sum(map(report.total, OUTCOMES))
        there = row_counts(out, "exchanges")
        if there is not None and counted != there:
            yield (
                f"the rollup has {counted:,} of {there:,} exchanges: a run was killed, or an earlier version of "
                f"kafkatap made the others; run their captures again (`kafkatap lake verify` names them)"
            )
        failed, errors = report.total("error_codes"), int(report.errors.value_rows()[:, 0].sum())
        if failed != errors:
            yield (
                f"rollup_errors has {errors:,} of {failed:,} error codes: a run was killed; run its captures again "
                f"(`kafkatap lake verify` names them)"
            )
    for one, two in _overlaps(captured, files):
        yield (
            f"{one} and {two} have the same connections at the same time: what both captured counts twice here; "
            f"`kafkatap lake verify` says how much"
        )


def _overlaps(captured: Array, files: list[FileInfo]) -> Iterator[tuple[str, str]]:
    """Pairs of captures of the same time that have exchanges of the same client and broker in the same hour: for each
    capture the first such pair. `captured`: as of `HourCounts.sources`, in order."""
    known = {info.capture: info for info in files if info.first is not None and info.last is not None}
    same = np.flatnonzero((captured[1:, :-1] == captured[:-1, :-1]).all(axis=1))
    told: set[int] = set()
    for one, two in {(int(captured[i, -1]), int(captured[i + 1, -1])) for i in same.tolist()}:
        a, b = known.get(one), known.get(two)
        if a is None or b is None or one in told or two in told:
            continue
        if min(a.last or 0, b.last or 0) > max(a.first or 0, b.first or 0):
            told |= {one, two}
            yield a.path, b.path
