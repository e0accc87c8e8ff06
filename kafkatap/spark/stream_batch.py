"""`read_batch`: captures, read from the checkpoint of the batch before, and the checkpoint that they leave.

A capture that comes too late (`checkpoint.late_since`) is decoded on its own: its connections are neither joined with
those of the checkpoint nor left open.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from kafkatap.reports.batch import Context, FileInfo
from kafkatap.reports.counting.connection_rows import sum_connection_rows
from kafkatap.reports.tables import files_table, ledger_table

from ..captures.merge import SLACK_NS
from .captures import Captures, ProvedPlan
from .output.merged_connections import merged_rows
from .output.publish import Staging, Written
from .output.summing import counts_of_connections, sum_rows
from .splits.checkpoint import Checkpoint, Span, Sums, added_ledgers, added_spans, late_since
from .splits.surveys import Surveys
from .splits.task_rows import ReadOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LATE = "it came after later packets of its connections had been read, so it was decoded on its own"


@dataclass(frozen=True, slots=True)
class BatchOptions:
    """How batches are read: as of `Captures`."""

    split_size: int
    reading: ReadOptions = field(default_factory=ReadOptions)
    strict: bool = False


@dataclass(frozen=True, slots=True)
class ReadBatch:
    """`checkpoint`: what the next batch starts from. `written`: the files with its rows. `files`, `ledger`: of this
    batch alone. `notes`: sentences about its captures."""

    checkpoint: Checkpoint
    written: list[Written]
    files: list[FileInfo]
    ledger: Mapping[str, Mapping[str, int]]
    notes: list[str]
    bytes_read: int


def read_batch(
    spark: SparkSession | None,
    paths: Sequence[str],
    before: Checkpoint,
    options: BatchOptions,
    staging: Staging,
    keep_open: bool = True,
) -> ReadBatch:
    """Read captures and write their rows. `keep_open`: more captures will come."""

    def captures(some: Sequence[str], start: Checkpoint, keep_open: bool) -> Captures:
        return Captures(
            spark, tuple(some), options.split_size, options.reading, options.strict, checkpoint=start,
            keep_open=keep_open,
        )  # fmt: skip

    read = captures(paths, before, keep_open)
    late = late_captures(read.surveys, before)
    if late:
        read = captures([path for path in paths if path not in late], before, keep_open)
    batch = _decoded(read, staging)
    if late:
        alone = replace(batch.checkpoint, flows={}, spans={}, connections=None)
        more = _decoded(captures(sorted(late), alone, False), replace(staging, prefix=f"{staging.prefix}-late"))
        batch = _with_late(batch, more)
    files, ledger = _tables(batch)
    return replace(batch, written=[*batch.written, *staging.write("files", files), *staging.write("ledger", ledger)])


def late_captures(surveys: Surveys, before: Checkpoint) -> set[str]:
    """The captures that come too late."""
    found = set()
    for place, survey in zip(surveys.places, surveys.surveys, strict=True):
        seen = {key: (flow.first, flow.last) for key, flow in survey.flows.items() if key in before.spans}
        until = late_since(seen, before.spans)
        if until is not None and survey.head_time + SLACK_NS < until:
            found.add(place.split.path)
    return found


def _decoded(read: Captures, staging: Staging) -> ReadBatch:
    before = read.checkpoint
    assert before is not None
    proved = read.prove(staging, counting=True)
    results, plan = list(proved.results.values()), proved.plan
    flows = dict(before.flows) if read.keep_open else {}
    for key in plan.tasks[0].primed if plan.resumed is not None else []:
        flows.pop(key, None)
    for result in results:
        flows.update(result.open_flows)
    still_open, ended = _parted(proved, before, {flow.state.history.connection for flow in flows.values()})
    written = [file for result in results for file in result.written]
    written += staging.write("connections", ended, len(read.places) + 1) if ended.num_rows else []
    context = read.context_of(proved)
    complete = [r.connections for r in results if r.connections is not None]
    after = Checkpoint(
        plan.packets, before.splits + len(read.places) + 1, plan.listeners, dict(plan.topic_names), flows,
        {key: added_spans([*before.spans.get(key, ()), *_spans(read.surveys, key)]) for key in flows},
        still_open, before.unnamed,
        _added(before.sums, context, proved.counts(), pa.concat_tables([ended, *complete])),
    )  # fmt: skip
    return ReadBatch(after, written, list(context.files), context.ledger, proved.notes, 2 * read.bytes_read)


def _parted(proved: ProvedPlan, before: Checkpoint, numbers: set[int]) -> tuple[pa.Table, pa.Table]:
    """The rows of connections that several splits or batches share: those that are open, and those that ended."""
    earlier = [before.connections] if before.connections is not None else []
    rows = merged_rows([proved.shared_connections(), *earlier])
    is_open = pc.is_in(rows["connection"], pa.array(numbers, pa.int64()))
    return rows.filter(is_open), rows.filter(pc.invert(is_open))


def _spans(surveys: Surveys, key: bytes) -> list[Span]:
    return [(s.flows[key].first, s.flows[key].last) for s in surveys.surveys if key in s.flows]


def _added(sums: Sums, context: Context, counts: pa.Table, connections: pa.Table) -> Sums:
    """The sums of a stream with those of one batch, whose ended connections are `connections`."""
    counted = counts_of_connections(connections)
    return Sums(
        added_ledgers([sums.ledger, context.ledger]),
        min((t for t in (sums.first, context.first) if t is not None), default=None),
        max((t for t in (sums.last, context.last) if t is not None), default=None),
        sums.not_captured + context.not_captured,
        sum_rows([counts] if sums.counts is None else [sums.counts, counts]),
        sum_connection_rows([counted] if sums.connections is None else [sums.connections, counted]),
    )


def _with_late(batch: ReadBatch, late: ReadBatch) -> ReadBatch:
    """A batch with the captures that came too late, which were decoded after it."""
    kept = batch.checkpoint
    after = replace(late.checkpoint, flows=kept.flows, spans=kept.spans, connections=kept.connections)
    files = [replace(info, damage=LATE if info.damage is None else f"{info.damage}; {LATE}") for info in late.files]
    return ReadBatch(
        after, batch.written + late.written, batch.files + files, added_ledgers([batch.ledger, late.ledger]),
        [*batch.notes, *late.notes], batch.bytes_read + late.bytes_read,
    )  # fmt: skip


def _tables(batch: ReadBatch) -> tuple[pa.Table, pa.Table]:
    context = Context(files=batch.files, ledger=batch.ledger)
    return files_table(context), ledger_table(context)
