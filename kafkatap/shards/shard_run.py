"""`count_with_shards`: the counts of captures for a report, and their tables, by several engines of this machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from itertools import permutations

import numpy as np

from kafkatap.kernels.arrays import shared_zeros
from kafkatap.reports.batch import Context
from kafkatap.reports.counting.counts import ReportCounts
from kafkatap.reports.section_parts.section_counts import SectionCounts
from kafkatap.reports.sections.twin_findings import twins_in

from ..captures.capture_bytes import CaptureBytes
from ..captures.capture_reader import BLOCK_SIZE, FileReport
from ..captures.pipes import is_pipe
from ..parquet.twin_column import SetTwins
from ..splits.capture_ledgers import sum_ledgers
from ..splits.run_options import RunOptions
from ..splits.split_counts import CountsOfSplit, TotalCounts
from ..splits.two_passes import context_of, report_context
from .blocks import SharedBlocks
from .local_tables import LocalTables
from .shard import ShardResult, ShardTask, engine_of_shard, part_of_limits
from .workers import Interrupted, Workers

#: Blocks are as many times larger as there are engines, up to this: each engine finds as much in a block as one does.
_LARGEST = 8


class OneEngineNeeded(Exception):
    """One engine has to read all of the captures. The message says why."""


@dataclass(frozen=True, slots=True)
class Counted:
    """The counts of a run, the facts that its report needs beside them, and reports on the captures. `sections`: the
    counts of sections over facts, if wanted. `interrupted`: `watch` ended the run."""

    counts: ReportCounts
    context: Context
    files: Sequence[FileReport]
    sections: SectionCounts | None
    interrupted: bool


def count_with_shards(
    captures: Sequence[str],
    shards: int,
    options: RunOptions,
    *,
    interval: int | None = None,
    watch: Callable[[int], bool] = lambda done: False,
    tables: LocalTables | None = None,
) -> Counted:
    """Count the selected exchanges of captures with `shards` engines, in as many processes.

    One capture is read once, also from a pipe. Of several, each engine reads the files. `interval`: ns of the
    timeline's intervals, if one is set. `watch` gets the bytes read so far; True ends the run (of several captures by
    `workers.Interrupted`, as engines have not read them equally far). `tables`, of as many workers, gets the rows.
    WorkerEnded if a process ends before its work is done; OSError if a file cannot be read or
    written; OneEngineNeeded.
    """
    condition = options.selection.condition()
    if condition is not None and condition.names_topics:
        raise OneEngineNeeded("topics are selected, and some connections tell the names that others have only ids of")
    stopped = shared_zeros(1, np.int64)
    with ExitStack() as stack:
        blocks = None
        if len(captures) == 1:
            source = CaptureBytes(captures[0])
            stack.callback(source.close)
            pipe = None
            if is_pipe(captures[0]):
                with suppress(OSError):  # it was interrupted while it opened
                    pipe = source.fileno()
            blocks = SharedBlocks(source, shards, BLOCK_SIZE * min(shards, _LARGEST), pipe)
            stack.callback(blocks.close)
        task = ShardTask(part_of_limits(options, shards), tuple(captures), shards, interval, blocks, tables, stopped)
        stack.callback(task.forget)

        def look(done: int) -> bool:
            if watch(done) and not stopped[0]:
                stopped[0] = 1
                if blocks is not None:
                    blocks.stop()
            return False

        # Loads kernels, programs and sections, which the workers inherit.
        keyless = replace(options, read=options.read._replace(key_log=None))
        CountsOfSplit(keyless, engine_of_shard(keyless, tables is not None), interval)
        workers = stack.enter_context(Workers(shards, look))
        if blocks is not None:
            blocks.feed()
        found = workers.run(task, range(shards))
    if stopped[0] and len(captures) > 1:
        raise Interrupted
    if any(result.has_points for result in found):
        raise OneEngineNeeded("packets were captured at several places, and have to be put in order")
    can_begin_anew = not (len(captures) == 1 and is_pipe(captures[0]))
    if can_begin_anew and _is_elsewhere([one.sessions for one in found]):
        raise OneEngineNeeded("connections resume TLS sessions of others, which have their secrets")
    if can_begin_anew and _is_elsewhere([one.brokers for one in found]):
        raise OneEngineNeeded("single requests go to brokers that other connections show")
    return _sum(found, options, interval, tables, bool(stopped[0]))


def _is_elsewhere(found: Sequence[tuple[frozenset[int], frozenset[int]]]) -> bool:
    """Whether some engine misses what another one has. `found`: by engine, what it has and what it misses."""
    return any(there & missing for (there, _), (_, missing) in permutations(found, 2))


def _sum(
    found: Sequence[ShardResult], options: RunOptions, interval: int | None, tables: LocalTables | None,
    interrupted: bool,
) -> Counted:  # fmt: skip
    """What all engines found."""
    total = TotalCounts(options, interval)
    for result in found:
        total.add(result.counts)
    total.name_topics(result.names for result in found)
    rows = total.end_connections()
    one = found[0]
    for number, report in enumerate(one.reports):
        report.duplicates = sum(result.reports[number].duplicates for result in found)
    files = [
        info._replace(duplicates=sum(result.files[number].duplicates for result in found))
        for number, info in enumerate(one.files)
    ]
    context = context_of(
        sum_ledgers(result.ledger for result in found), files, one.first, one.last,
        sum(result.not_captured for result in found),
    )  # fmt: skip
    context = report_context(total, context, options)._replace(interrupted=interrupted)
    if tables is not None:
        written, twins = [part for result in found for part in result.written], SetTwins(twins_in(total.sections))
        tables.take(written, rows, total.names, twins)
    return Counted(total.report, context, one.reports, total.sections, interrupted)
