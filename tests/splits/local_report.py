"""`count_with_jobs`: the counts of captures for a report, and their tables, from splits. Spark runs the same passes.

Each process takes splits of the captures. Counts and rows are those of one process that reads everything. Rows of
exchanges and results are in the order of the splits that have them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafkatap.captures.capture_reader import FileReport
from kafkatap.captures.storage import File
from kafkatap.engine.engine import Engine
from kafkatap.reports.batch import Context
from kafkatap.reports.counting.counts import ReportCounts
from kafkatap.shards.workers import Workers
from kafkatap.splits.capture_ledgers import sum_ledgers
from kafkatap.splits.plan import Corrections, Plan
from kafkatap.splits.run_options import RunOptions
from kafkatap.splits.two_passes import Begin, TwoPasses, quiet, report_context

if TYPE_CHECKING:
    from kafkatap.reports.section_parts.section_counts import SectionCounts
    from kafkatap.shards.local_tables import LocalTables
    from kafkatap.splits.executor import Executor

#: The least bytes of a split.
_SMALLEST = 16 << 20
#: Splits for each process.
SPLITS_A_JOB = 1


class CapturedTwice(Exception):
    """Connections were captured at both ends. One process puts their packets in order while it reads all captures, and
    splits cannot do the same. The message says how many."""


@dataclass(frozen=True, slots=True)
class Counted:
    """The counts of a run, the facts that its report needs beside them, and reports on the captures. `rounds`: how
    often splits were decoded. `sections`: the counts of sections over facts, if wanted."""

    counts: ReportCounts
    context: Context
    files: Sequence[FileReport]
    rounds: int
    sections: SectionCounts | None = None


def count_with_jobs(
    paths: Sequence[str],
    jobs: int,
    options: RunOptions,
    *,
    interval: int | None = None,
    watch: Callable[[int], bool] = lambda done: False,
    split_size: int | None = None,
    tables: LocalTables | None = None,
) -> Counted:
    """Count the selected exchanges of files with `jobs` processes.

    `interval`: ns of the timeline's intervals, if one is set. `watch` gets the bytes read so far; True ends the run
    (`workers.Interrupted`). `split_size`: bytes of a split (None: as many splits as fit the jobs). `tables`, of as
    many workers, gets the rows. WorkerEnded if a process ends before its work is done; OSError if a file cannot be read
    or written; CapturedTwice.
    """
    files = [File(path, _size(path), 0) for path in paths]
    size = split_size or max(-(-sum(file.size for file in files) // (jobs * SPLITS_A_JOB)), _SMALLEST)
    engine = Engine(options.read._replace(key_log=None))  # loads kernels and programs, which the workers inherit
    with Workers(jobs, watch) as workers:
        return _LocalReading(files, size, options, workers, tables is not None).counted(engine, interval, tables)


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        raise
    except OSError:  # its reader reports it
        return 0


@dataclass
class _LocalReading(TwoPasses):
    """Files, read by workers."""

    listed: Sequence[File]
    split_size: int
    options: RunOptions
    executor: Executor
    with_rows: bool
    begin: Begin = quiet
    checkpoint: None = None
    keep_open: bool = False

    @property
    def files(self) -> Sequence[File]:
        return self.listed

    def _choose_size(self) -> int:
        return self.split_size

    @property
    def _needs_names(self) -> bool:
        """Whether splits have to know the names of topic ids that other splits show. A report names them at its end."""
        condition = self.options.selection.condition()
        return self.with_rows or (condition is not None and condition.names_topics)

    def _plan(self, corrections: Corrections) -> Plan:
        plan = super()._plan(corrections)
        if plan.both_ends:
            count = len(plan.both_ends)
            many = "1 connection was" if count == 1 else f"{count:,} connections were"
            raise CapturedTwice(f"{many} captured at both ends")
        return plan

    def counted(self, empty: Engine, interval: int | None, tables: LocalTables | None) -> Counted:
        """Survey, decode and count. `empty`: an engine that has read nothing."""
        options = self.resolved
        proved = self.prove(options, self._needs_names, counting=True, interval=interval, sink=tables)
        total = proved.total(options, interval)
        ended = total.end_connections()
        context = report_context(total, proved.context(self.file_infos), options)
        context = context._replace(ledger=sum_ledgers([empty.ledger(), context.ledger]))
        if tables is not None:
            tables.take(proved.written, ended, total.names)
        reports = [report for report, _ in self.surveys.reports().values()]
        return Counted(total.report, context, reports, proved.rounds, total.sections)
