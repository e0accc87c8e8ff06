"""`read_batch`: captures, read from the checkpoint of the batch before, and the checkpoint that they leave.

A capture that comes too late (`checkpoint.late_since`) is decoded on its own: its connections are neither joined with
those of the checkpoint nor left open.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from kafkatap.reports.batch import Array, FileInfo
from kafkatap.reports.sections.twin_findings import twins_in

from ..captures.capture_points import SLACK_NS
from ..captures.storage import File
from ..parquet.twin_column import SetTwins
from ..splits.capture_ledgers import Ledger, sum_ledgers
from ..splits.checkpoint import Checkpoint, FlowSpan, OpenFlow, Sums, added_spans, late_since, still_needed
from ..splits.run_options import RunOptions
from ..splits.split_counts import SplitCounts, TotalCounts
from ..splits.surveys import Surveys
from ..splits.two_passes import context_of, report_of
from .arrival_log import Arrival
from .captures import Captures, notes_of
from .output.publication import Publication
from .output.run_tables import clusters_of, files_rows, ledger_rows
from .output.writing import Written

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kafkatap.reports.model import Report

    from .cluster.shared_folders import SharedFolders
    from .path_pattern import PathPattern

GROWN = "bytes were added to it after it was read, and these are not read"
LATE = "it came after later packets of its connections had been read, so it was decoded on its own"


@dataclass(frozen=True, slots=True)
class BatchOptions:
    """How batches are read: as of `Captures`. `pattern`: as of `files_rows`."""

    split_size: int
    reading: RunOptions = field(default_factory=RunOptions)
    strict: bool = False
    pattern: PathPattern | None = None


@dataclass(frozen=True, slots=True)
class ReadBatch:
    """`checkpoint`: what the next batch starts from. `written`: the files with its rows. `files`, `ledgers` by capture:
    of this batch alone. `notes`: sentences about its captures. `options`: with which they were counted; `rounds`: as of
    `Proved`. `open`: the rows of connections that are open, without counts."""

    checkpoint: Checkpoint
    written: list[Written]
    files: list[FileInfo]
    ledgers: Mapping[int, Ledger]
    notes: list[str]
    bytes_read: int
    options: RunOptions
    rounds: int
    open: SplitCounts


def read_batch(
    spark: SparkSession | None,
    arrivals: Sequence[Arrival],
    before: Checkpoint,
    options: BatchOptions,
    publication: Publication,
    keep_open: bool = True,
    folders: SharedFolders | None = None,
) -> ReadBatch:
    """Read captures and write their rows. `keep_open`: more captures will come. `folders`: what executors have to share
    with the driver."""

    def captures(some: Sequence[Arrival], start: Checkpoint, keep_open: bool) -> Captures:
        return Captures(
            spark, [], options.split_size, options.reading, options.strict, checkpoint=start, keep_open=keep_open,
            listed=[File(a.path, a.size, a.modified) for a in some], folders=folders,
        )  # fmt: skip

    grown = [a for a in arrivals if a.grown]
    arrivals = [a for a in arrivals if not a.grown]
    read = captures(arrivals, before, keep_open)
    late = late_captures(read.surveys, before)
    publication.clusters = clusters_of(publication.out, read.surveys.files(), options.pattern)
    if late:
        read = captures([a for a in arrivals if a.path not in late], before, keep_open)
    batch = decoded(read, publication)
    if late:
        sums = batch.checkpoint.sums
        alone = replace(
            batch.checkpoint, flows={}, spans={}, points=(), datagrams=(), captures=(),
            sums=Sums(first=sums.first, last=sums.last),
        )  # fmt: skip
        too_late = captures([a for a in arrivals if a.path in late], alone, False)
        apart = decoded(too_late, replace(publication, run=f"{publication.run}-late"))
        batch = _with_late(batch, apart, read)
    identities = {a.path: a.capture for a in arrivals}  # also of captures that are gone
    files = [info._replace(capture=identities[info.path]) for info in batch.files]
    files += [FileInfo(a.path, "", 1, 0, 0, damage=GROWN, capture=a.capture) for a in grown]
    rows = files_rows(files, publication, options.pattern)
    written = [*publication.write("files", rows), *publication.write("ledger", ledger_rows(batch.ledgers))]
    return replace(batch, files=files, written=batch.written + written)


def late_captures(surveys: Surveys, before: Checkpoint) -> set[str]:
    """The paths of the captures that come too late."""
    found = set()
    for survey in surveys.surveys:
        times = [time for file in survey.files for time in (file.report.first, file.report.last) if time is not None]
        if not times:
            continue
        span = min(times), max(times)
        seen = {k: FlowSpan(f.first, f.last, *span) for k, f in survey.flows.items() if k in before.spans}
        until = late_since(seen, before.spans)
        if until is not None:  # of several captures that are read as one, those that begin before
            begins = [(file.head_time, file.report.path) for file in survey.files]
            found |= {path for first, path in begins if first is not None and first + SLACK_NS < until}
    return found


def decoded(read: Captures, publication: Publication, by: str = "topic", since: int | None = None) -> ReadBatch:
    """Captures that go on from a checkpoint, with rows of all tables but `files` and `ledger`. `by`: as of a report.
    `since`: connections that ended before are not in the sums for it."""
    before = read.checkpoint
    assert before is not None
    proved, total, options = read.counted(publication.writer, by)
    plan = proved.plan
    flows = dict(before.flows) if read.keep_open else {}
    for key in plan.tasks[0].primed if plan.resumed is not None else []:
        flows.pop(key, None)
    for result in proved.results:
        flows.update(result.open_flows)
    twins = {**options.read.twins, **before.twins}
    ended = total.end_connections({key for flow in flows.values() for key in flow.connections}, since)
    written = [*proved.written, *publication.write_connections(ended, total.names, read.capture_index)]
    written = publication.edited(written, SetTwins({**twins_in(total.sections), **twins}))
    context = proved.context(read.file_infos)
    unnamed = before.unnamed - before.topic_names.keys()  # the others have their names since the last batch
    known = [*before.captures, *((f.first_packet, f.packets, f.capture) for f in context.files)]
    sums = Sums(context.ledger, context.first, context.last, context.not_captured)
    points, infos = plan.points.of_file, read.surveys.by_file()
    files = _file_times(read.surveys, points, infos)
    spans = {key: added_spans([*before.spans.get(key, ()), *_spans(read.surveys, files, key)]) for key in flows}
    _note_points(flows, spans)
    after = Checkpoint(
        plan.packets, plan.listeners, dict(plan.topic_names), flows, spans, plan.points.read or before.points,
        still_needed(known, flows.values()), plan.datagrams,
        unnamed.union(*(result.unnamed for result in proved.results)),
        frozenset().union(*(result.amid_sasl for result in proved.results)),
        _added(before.sums, sums, total.as_split()),
        {key: twins[key] for flow in flows.values() for key in flow.connections if key in twins},
    )  # fmt: skip
    ledgers = proved.ledgers(known[-1][2] if known else 0)
    return ReadBatch(
        after, written, list(context.files), ledgers, notes_of(plan), 2 * read.bytes_read, options, proved.rounds,
        total.open_connections(),
    )  # fmt: skip


def report_on(after: Checkpoint, files: Sequence[FileInfo], options: RunOptions, by: str) -> Report:
    """The report on the sums in a checkpoint. `files`: those of the sums; `options`: with which they were counted."""
    sums, total = after.sums, TotalCounts(options)
    if sums.counts is not None:
        total.add(sums.counts)
    total.name_topics((after.topic_names,))
    return report_of(total, context_of(sums.ledger, files, sums.first, sums.last, sums.not_captured), options, by)


def _note_points(flows: Mapping[bytes, OpenFlow], spans: Mapping[bytes, Sequence[FlowSpan]]) -> None:
    """Note in the packets of open flows where they were captured, if that was at one point."""
    for key, flow in flows.items():
        if flow.progress is None and spans[key]:
            flow.seam.packets["point"] = spans[key][-1].point


def _file_times(surveys: Surveys, points: Mapping[int, int], infos: Mapping[int, FileInfo]) -> list[Array]:
    """Of each split, int64 (n, 5) of its files with packets: first and last time in the split, those of the whole file,
    and the point."""
    found = []
    for survey, numbers in zip(surveys.surveys, surveys.file_numbers, strict=True):
        rows = []
        for number, file in zip(numbers, survey.files, strict=False):
            first, last, whole = file.report.first, file.report.last, infos[number]
            if first is not None and last is not None:
                rows.append((first, last, whole.first or first, whole.last or last, points[number]))
        found.append(np.array(rows, np.int64).reshape(-1, 5))
    return found


def _spans(surveys: Surveys, files: Sequence[Array], key: bytes) -> list[FlowSpan]:
    """When a flow had packets, a span for each capture: of a flow, only the first and the last packet of captures that
    are read as one are known. Captures of one point without a gap between them have one span."""
    found = []
    for survey, times in zip(surveys.surveys, files, strict=True):
        if key in survey.flows and len(times):
            flow = survey.flows[key]
            first, last = np.maximum(times[:, 0], flow.first), np.minimum(times[:, 1], flow.last)
            rows = np.column_stack((first, last, times[:, 2:]))[first <= last]
            rows = rows[np.lexsort(rows.T[::-1])]
            latest = np.maximum.accumulate(rows[:, 3])
            is_apart = (rows[1:, 2] > latest[:-1] + SLACK_NS) | (np.ptp(times[:, 4]) != 0)
            for part in np.split(rows, np.flatnonzero(is_apart) + 1):
                if len(part):
                    low, high = part.min(axis=0).tolist(), part.max(axis=0).tolist()
                    found.append(FlowSpan(low[0], high[1], low[2], high[3], low[4]))
    return found


def _added(before: Sums, sums: Sums, counts: SplitCounts | None) -> Sums:
    """The sums of a stream and of one batch more. `counts`: of both."""
    return Sums(
        sum_ledgers([before.ledger, sums.ledger]),
        min((t for t in (before.first, sums.first) if t is not None), default=None),
        max((t for t in (before.last, sums.last) if t is not None), default=None),
        before.not_captured + sums.not_captured,
        counts,
    )


def _with_late(batch: ReadBatch, late: ReadBatch, read: Captures) -> ReadBatch:
    """A batch with the captures that came too late, which were decoded after it."""
    kept, sums = batch.checkpoint, late.checkpoint.sums
    total = TotalCounts(replace(read.options, by_topic=True))
    for counts in (kept.sums.counts, sums.counts):
        if counts is not None:
            total.add(counts)
    after = replace(
        late.checkpoint, flows=kept.flows, spans=kept.spans, points=kept.points, captures=kept.captures,
        datagrams=kept.datagrams, twins=kept.twins, sums=_added(kept.sums, sums, total.as_split()),
    )  # fmt: skip
    files = [info._replace(damage=LATE if info.damage is None else f"{info.damage}; {LATE}") for info in late.files]
    ledgers = {
        capture: sum_ledgers(some.ledgers[capture] for some in (batch, late) if capture in some.ledgers)
        for capture in batch.ledgers.keys() | late.ledgers.keys()
    }
    return replace(
        late, checkpoint=after, written=batch.written + late.written, files=batch.files + files, ledgers=ledgers,
        notes=[*batch.notes, *late.notes], bytes_read=batch.bytes_read + late.bytes_read,
    )  # fmt: skip
