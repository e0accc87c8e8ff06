"""`lake_side`: a span of a lake as a side of a comparison, from the rows of its tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from kafkatap.dissector.dtypes import EXCHANGE, EXCHANGE_COLUMNS, RESULT
from kafkatap.kernels.arrays import is_among, joined
from kafkatap.reports.batch import Array, Batch, FileInfo
from kafkatap.reports.comparison.leaves import Side
from kafkatap.reports.comparison.quality import has_one_direction
from kafkatap.reports.comparison.side_counts import SideCounts
from kafkatap.reports.comparison.side_events import all_side_events, events_of_side
from kafkatap.reports.connection_columns import COLUMNS, CONNECTION_ROW
from kafkatap.reports.counting.connection_counts import without_twins
from kafkatap.reports.counting.counts import ReportCounts
from kafkatap.reports.counting.hour_counts import HOUR
from kafkatap.reports.findings import Finding
from kafkatap.reports.name_table import NameTable
from kafkatap.reports.section_parts.registry import EVENT_SECTIONS
from kafkatap.reports.section_parts.section import SectionInput
from kafkatap.reports.table_rows import rows_of_table

from ..comparison.reading import EmptySideError
from .lake_points import (
    CONNECTIONS_READ,
    EXCHANGES_READ,
    RESULTS_READ,
    Again,
    begins_of,
    exchanges_again,
    of_day,
    of_exchanges,
    results_of,
)
from .lake_query import LakeQuery, isin, read_rows
from .lake_report import context_of_lake
from .lake_sections import LakeSections
from .output.delta import read_table
from .output.run_tables import file_infos

if TYPE_CHECKING:
    import pyarrow as pa

#: Packets of captures whose results are in memory at once.
_PACKETS = 5_000_000


def lake_side(out: str, query: LakeQuery, text: str) -> Side:
    """The side of the hours of a query. `text`: names it in errors. EmptySideError if no capture is of these hours;
    OSError if the lake cannot be read."""
    names = NameTable()
    files = _of_hours(file_infos(read_table(out, "files")), query)
    if not files:
        raise EmptySideError(f"{out} has no capture of {text}")
    context = context_of_lake(out, files, query)._replace(strings=names.strings, addresses=names.addresses)
    again = {day: rows for day, rows, _ in exchanges_again(out, query, files, names)}
    with_twins = _connections(out, query, files, names)
    rows, counts = without_twins(with_twins), SideCounts()
    twins = np.setdiff1d(with_twins["connection"], rows["connection"])
    for batch in _batches(out, query, files, again, names):
        counts.add(batch.picked(~is_among(batch.exchanges["connection"], twins)) if len(twins) else batch)
        counts.fold(context.text)
    begin, end = query.span
    if not query.chooses_ends:
        counts.add_connections(rows, begin, end, not has_one_direction(rows))
    counts.fold(context.text)
    stored = None if query.chooses_ends else LakeSections.read(out, query, EVENT_SECTIONS, names)
    context = context._replace(connections=rows, topic_names=names.topic_names)
    first, last = context.first or 0, context.last or 0
    events: tuple[Finding, ...] = ()
    if stored is not None:
        events = events_of_side(
            all_side_events(SectionInput(stored.sections, ReportCounts(), context, {})), first, last
        )  # fmt: skip
    return Side(counts, context, first, last, events, query.selection.shown(first) if query.chooses_ends else None)


def _of_hours(files: Sequence[FileInfo], query: LakeQuery) -> list[FileInfo]:
    """The captures with packets of these hours."""
    begin, end = query.span
    found = [f for f in files if f.first is not None and f.last is not None and f.first < end and f.last >= begin]
    return found if query.captures is None else [info for info in found if info.capture in query.captures]


def _groups(files: Sequence[FileInfo]) -> Iterator[list[FileInfo]]:
    """Captures whose results are read at once."""
    group: list[FileInfo] = []
    for info in files:
        group.append(info)
        if sum(each.packets for each in group) >= _PACKETS:
            yield group
            group = []
    if group:
        yield group


def _batches(
    out: str, query: LakeQuery, files: Sequence[FileInfo], again: dict[int, Again], names: NameTable
) -> Iterator[Batch]:
    """The exchanges of the hours of a query, each once, with their results."""
    days = [range((info.first or 0) // (24 * HOUR), (info.last or 0) // (24 * HOUR) + 1) for info in files]
    for day in sorted({day for some in days for day in some}):
        if not query.has_hours(np.arange(day * 24, day * 24 + 24)).any():
            continue
        for group in _groups([info for info, some in zip(files, days, strict=True) if day in some]):
            wanted = of_day(day) & isin("capture", [info.capture for info in group])
            parts = [results_of(rows, names) for rows in read_rows(out, "results", (*RESULTS_READ, "capture"), wanted)]
            results = joined(parts, RESULT)
            for rows in read_rows(out, "exchanges", (*EXCHANGES_READ, "capture"), wanted & query.of_apis()):
                rows = _chosen(query.of_ends(rows), query, again.get(day))
                if rows.num_rows:
                    yield _batch(rows, results, names)


def _chosen(rows: pa.Table, query: LakeQuery, again: Again | None) -> pa.Table:
    """The rows of the hours, without exchanges that are there again."""
    chosen = query.has_hours(begins_of(rows))
    return rows.filter(chosen if again is None else chosen & ~again.has(rows, "exchange"))


def _batch(rows: pa.Table, results: Array, names: NameTable) -> Batch:
    exchanges = rows_of_table(EXCHANGE_COLUMNS, EXCHANGE, rows, names)
    keys, exchanges["exchange"] = exchanges["key"], np.arange(len(exchanges))
    return Batch(exchanges, of_exchanges(results, keys))


def _connections(out: str, query: LakeQuery, files: Sequence[FileInfo], names: NameTable) -> Array:
    """The connections of captures that were open in the hours of a query: CONNECTION_ROW."""
    import pyarrow as pa
    import pyarrow.compute as pc

    wanted = isin("capture", [info.capture for info in files])
    us = pa.timestamp("us", "UTC")
    if query.begin is not None:
        wanted &= pc.field("connection_last") >= pa.scalar(query.begin * (HOUR // 1000), us)
    if query.end is not None:
        wanted &= pc.field("connection_first") < pa.scalar(query.end * (HOUR // 1000), us)
    parts = []
    for rows in read_rows(out, "connections", (*CONNECTIONS_READ, "capture"), wanted):
        rows = query.of_ends(rows)
        parts.append(rows_of_table(COLUMNS, CONNECTION_ROW, rows, names))
    return joined(parts, CONNECTION_ROW)
