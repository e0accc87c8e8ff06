"""`read_batch`: captures, read from the checkpoint of the batch before, and the checkpoint that they leave.

A capture that comes too late (`checkpoint.late_since`) is decoded on its own: its connections are neither joined with
those of the checkpoint nor left open.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafkatap.reports.batch import Context, FileInfo
from kafkatap.reports.counting.connection_rows import sum_connection_rows
from kafkatap.reports.counting.count_rows import NameTable

from ..captures.capture_points import SLACK_NS
from ..captures.storage import File
from ..splits.checkpoint import Checkpoint, Ledger, OpenFlow, Span, Sums, added_spans, late_since, still_needed
from ..splits.decode import sum_ledgers
from ..splits.merged_connections import merged_rows
from ..splits.split_sections import NamedConnections, SplitSections, sum_sections
from ..splits.summing import counts_of_connections, sum_rows
from ..splits.surveys import Surveys
from ..splits.task_rows import ReadOptions
from .arrival_log import Arrival
from .captures import Captures, ProvedPlan
from .output.publication import Publication
from .output.run_tables import files_rows, ledger_rows
from .output.writing import Written

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from .cluster.shared_folders import SharedFolders

GROWN = "bytes were added to it after it was read, and these are not read"
LATE = "it came after later packets of its connections had been read, so it was decoded on its own"


@dataclass(frozen=True, slots=True)
class BatchOptions:
    """How batches are read: as of `Captures`."""

    split_size: int
    reading: ReadOptions = field(default_factory=ReadOptions)
    strict: bool = False


@dataclass(frozen=True, slots=True)
class ReadBatch:
    """`checkpoint`: what the next batch starts from. `written`: the files with its rows. `files`, `ledgers` by capture:
    of this batch alone. `notes`: sentences about its captures."""

    checkpoint: Checkpoint
    written: list[Written]
    files: list[FileInfo]
    ledgers: Mapping[int, Ledger]
    notes: list[str]
    bytes_read: int


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
    if late:
        read = captures([a for a in arrivals if a.path not in late], before, keep_open)
    batch = _decoded(read, publication)
    if late:
        alone = replace(
            batch.checkpoint, flows={}, spans={}, captures=(), connections=None,
            sums=_without_open(batch.checkpoint.sums),
        )  # fmt: skip
        too_late = captures([a for a in arrivals if a.path in late], alone, False)
        batch = _with_late(batch, _decoded(too_late, replace(publication, run=f"{publication.run}-late")))
    identities = {a.path: a.capture for a in arrivals}  # also of captures that are gone
    files = [info._replace(capture=identities[info.path]) for info in batch.files]
    files += [FileInfo(a.path, "", 1, 0, 0, damage=GROWN, capture=a.capture) for a in grown]
    written = [*publication.write("files", files_rows(files)), *publication.write("ledger", ledger_rows(batch.ledgers))]
    return replace(batch, files=files, written=batch.written + written)


def late_captures(surveys: Surveys, before: Checkpoint) -> set[str]:
    """The paths of the captures that come too late."""
    found = set()
    for survey in surveys.surveys:
        seen = {key: (flow.first, flow.last) for key, flow in survey.flows.items() if key in before.spans}
        until = late_since(seen, before.spans)
        if until is not None:  # of several captures that are read as one, those that begin before
            begins = [(file.head_time, file.report.path) for file in survey.files]
            found |= {path for first, path in begins if first is not None and first + SLACK_NS < until}
    return found


def _decoded(read: Captures, publication: Publication) -> ReadBatch:
    before = read.checkpoint
    assert before is not None
    proved = read.prove(publication.writer, counting=True, by_topic=True)
    results, plan = list(proved.results.values()), proved.plan
    flows = dict(before.flows) if read.keep_open else {}
    for key in plan.tasks[0].primed if plan.resumed is not None else []:
        flows.pop(key, None)
    for result in results:
        flows.update(result.open_flows)
    still_open, ended = _parted(proved, before, {flow.state.history.facts.key for flow in flows.values()})
    written = [file for result in results for file in result.written]
    written += publication.write("connections", ended) if ended.num_rows else []
    context = read.context_of(proved)
    complete = [r.connections for r in results if r.connections is not None]
    unnamed = before.unnamed - before.topic_names.keys()  # the others have their names since the last batch
    known = [*before.captures, *((f.first_packet, f.packets, f.capture) for f in context.files)]
    after = Checkpoint(
        plan.packets, plan.listeners, dict(plan.topic_names), flows,
        {key: added_spans([*before.spans.get(key, ()), *_spans(read.surveys, key)]) for key in flows},
        still_needed(known, flows.values()), still_open, unnamed.union(*(result.unnamed for result in results)),
        replace(
            _added(before.sums, context, proved.counts(), [ended, *complete]),
            sections=_added_sections(before.sums.sections, proved, read.options, flows.values()),
        ),
    )  # fmt: skip
    ledgers = proved.ledgers(known[-1][2] if known else 0)
    return ReadBatch(after, written, list(context.files), ledgers, proved.notes, 2 * read.bytes_read)


def _without_open(sums: Sums) -> Sums:
    """Sums without the connections that are open."""
    if sums.sections is None:
        return sums
    return replace(sums, sections=sums.sections._replace(shared=None))


def _parted(proved: ProvedPlan, before: Checkpoint, keys: set[int]) -> tuple[pa.Table, pa.Table]:
    """The rows of connections that several splits or batches share: those that are open, and those that ended."""
    earlier = [before.connections] if before.connections is not None else []
    rows = merged_rows([*earlier, proved.shared_connections()])
    is_open = pc.is_in(rows["connection"], pa.array(keys, pa.int64()))
    return rows.filter(is_open), rows.filter(pc.invert(is_open))


def _spans(surveys: Surveys, key: bytes) -> list[Span]:
    """When a flow had packets, a span for each capture: of a flow, only the first and the last packet of captures that
    are read as one are known."""
    found = []
    for survey in surveys.surveys:
        if key in survey.flows:
            flow = survey.flows[key]
            for file in survey.files:
                if file.report.first is not None and file.report.last is not None:
                    found.append((max(flow.first, file.report.first), min(flow.last, file.report.last)))
    return [(first, last) for first, last in found if first <= last]


def _added(sums: Sums, context: Context, counts: pa.Table, connections: Sequence[pa.Table]) -> Sums:
    """The sums of a stream with those of one batch, whose ended connections are `connections`."""
    counted = [counts_of_connections(rows) for rows in connections]
    return Sums(
        sum_ledgers([sums.ledger, context.ledger]),
        min((t for t in (sums.first, context.first) if t is not None), default=None),
        max((t for t in (sums.last, context.last) if t is not None), default=None),
        sums.not_captured + context.not_captured,
        sum_rows([counts] if sums.counts is None else [sums.counts, counts]),
        sum_connection_rows(counted if sums.connections is None else [sums.connections, *counted]),
    )


def _added_sections(
    before: SplitSections | None, proved: ProvedPlan, options: ReadOptions, flows: Iterable[OpenFlow]
) -> SplitSections | None:
    """The counts of sections of a stream with those of one batch. `flows`: those that stay open."""
    if not options.sections:
        return None
    names = NameTable()
    parts = [*([] if before is None else [before]), *proved.sections()]
    total, rows = sum_sections(options.sections, parts, names, options.limits)
    is_open = np.isin(rows["connection"], np.array([f.state.history.facts.key for f in flows], np.int64))
    total.add_connections(rows[~is_open])
    return SplitSections.of(total, names, NamedConnections.of(rows[is_open], names))


def _with_late(batch: ReadBatch, late: ReadBatch) -> ReadBatch:
    """A batch with the captures that came too late, which were decoded after it."""
    kept, sums = batch.checkpoint, late.checkpoint.sums
    if sums.sections is not None and kept.sums.sections is not None:
        sums = replace(sums, sections=sums.sections._replace(shared=kept.sums.sections.shared))
    after = replace(
        late.checkpoint, flows=kept.flows, spans=kept.spans, captures=kept.captures, connections=kept.connections,
        sums=sums,
    )  # fmt: skip
    files = [info._replace(damage=LATE if info.damage is None else f"{info.damage}; {LATE}") for info in late.files]
    ledgers = {
        capture: sum_ledgers(some.ledgers[capture] for some in (batch, late) if capture in some.ledgers)
        for capture in batch.ledgers.keys() | late.ledgers.keys()
    }
    return ReadBatch(
        after, batch.written + late.written, batch.files + files, ledgers, [*batch.notes, *late.notes],
        batch.bytes_read + late.bytes_read,
    )  # fmt: skip
