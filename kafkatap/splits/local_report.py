"""`count_with_jobs`: the counts of captures for a report, and their tables, by several processes of this machine.

Each process takes splits of the captures. Counts and rows are those of one process that reads everything. Rows of
exchanges and results are in the order of the splits that have them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from kafkatap.reports.batch import Context
from kafkatap.reports.counting.counts import ReportCounts
from kafkatap.reports.questions.registry import needs_of

from ..captures.capture_reader import FileReport
from ..captures.storage import File
from ..engine import Engine
from .decode import SplitRun, sum_ledgers
from .plan import Plan
from .secrets import key_log_of, needed_lines
from .split_counts import SplitCounts, TotalCounts, count_split
from .survey import SplitSurvey, survey_split
from .surveys import Surveys
from .task_rows import DecodeInput, ReadOptions, SurveyInput, decode_inputs
from .two_passes import Begin, TwoPasses, context_of, quiet, with_duplicates
from .workers import Progress, Workers

if TYPE_CHECKING:
    from kafkatap.reports.questions.section_counts import SectionCounts

    from .local_tables import LocalTables

#: The least bytes of a split.
_SMALLEST = 16 << 20
#: Splits for each process.
SPLITS_A_JOB = 1
#: Of the time for a byte, the part that its survey takes.
_SURVEY_PART = 0.2


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
    options: ReadOptions,
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
    engine = Engine(definitions=options.definitions)  # loads kernels and programs, which the workers inherit
    with Workers(jobs, _Task(options, interval, tables)) as workers:
        return _LocalReading(files, size, options, workers, watch, tables).counted(engine, interval)


def needs_names(options: ReadOptions, tables: LocalTables | None) -> bool:
    """Whether splits have to know the names of topic ids that other splits show. A report names them at its end."""
    condition = options.selection.condition()
    return tables is not None or (condition is not None and condition.names_topics)


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        raise
    except OSError:  # its reader reports it
        return 0


# ---------------------------------------------------------------- in a worker


@dataclass(frozen=True, slots=True)
class _Decode:
    """A split to decode. `options`: with absolute times and without a key log. `key_lines`: as of `needed_lines`."""

    split: DecodeInput
    options: ReadOptions
    topic_names: dict[bytes, bytes]
    key_lines: bytes | None = field(default=None, repr=False)


class _Task:
    """The work of a worker."""

    def __init__(self, options: ReadOptions, interval: int | None, tables: LocalTables | None) -> None:
        self._options = options
        self._interval = interval
        self._tables = tables
        self._needs_names = needs_names(options, tables)

    def __call__(self, mine: SurveyInput | _Decode, progress: Progress) -> Any:
        return self._survey(mine, progress) if isinstance(mine, SurveyInput) else self._count(mine, progress)

    def _survey(self, mine: SurveyInput, progress: Progress) -> SplitSurvey:
        reader = mine.source.open()
        try:
            options = self._options
            found = survey_split(
                mine.split,
                reader,
                ports=options.ports,
                definitions=options.definitions,
                light=not self._needs_names,
                limits=options.limits,
                counts_records=options.key_log is not None,
            )
        finally:
            reader.close()
        progress.add(int(_SURVEY_PART * mine.source.length))
        return found

    def _count(self, mine: _Decode, progress: Progress) -> SplitCounts:
        options, source = mine.options, mine.split.source
        assert source is not None, "there is no checkpoint"
        needed, with_rows = options.selection.engine_options, self._tables is not None
        run = SplitRun(
            mine.split.task, mine.split.seams, mine.topic_names,
            all_results=with_rows or options.by_topic or needed.all_results, inspectors=needed.inspectors,
            ports=options.ports, definitions=options.definitions, apis=needed.apis,
            problems=with_rows or needed.problems, max_frame=options.max_frame, limits=options.limits,
            secrets=mine.split.secrets, key_log=key_log_of(mine.key_lines), late=options.late,
            **needs_of(options.sections)._asdict(),
        )  # fmt: skip
        reader = source.open(mine.split.task.bases)
        done = 0

        def watch() -> None:
            nonlocal done
            progress.add(int((1 - _SURVEY_PART) * (reader.bytes_read - done)))
            done = reader.bytes_read

        try:
            rows = None if self._tables is None else self._tables.rows(progress.worker)
            return count_split(run, reader, options, self._interval, watch, rows)
        finally:
            reader.close()


# ---------------------------------------------------------------- in the process that started them


@dataclass
class _LocalReading(TwoPasses):
    """Files, read by workers."""

    listed: Sequence[File]
    split_size: int
    options: ReadOptions
    workers: Workers
    watch: Callable[[int], bool]
    tables: LocalTables | None
    begin: Begin = quiet
    checkpoint: None = None
    keep_open: bool = False

    @property
    def files(self) -> Sequence[File]:
        return self.listed

    def _choose_size(self) -> int:
        return self.split_size

    def _survey(self, found: Surveys, splits: list[int]) -> dict[int, SplitSurvey]:
        inputs = [SurveyInput(i, found.places[i]) for i in splits]
        return {splits[i]: survey for i, survey in self.workers.run(inputs, self.watch)}

    def counted(self, empty: Engine, interval: int | None) -> Counted:
        """Survey, decode and count. `empty`: an engine that has read nothing."""
        surveys = self.surveys.surveys
        options = self.resolved
        key_log, options = options.key_log, replace(options, key_log=None)

        def decode(plan: Plan, splits: set[int]) -> dict[int, SplitCounts]:
            if plan.both_ends:
                count = len(plan.both_ends)
                many = "1 connection was" if count == 1 else f"{count:,} connections were"
                raise CapturedTwice(f"{many} captured at both ends")
            inputs = decode_inputs(plan, splits, self.places, surveys=surveys)
            lines = needed_lines(key_log, surveys, self.late_randoms)
            chosen = [_Decode(mine, options, plan.topic_names, lines) for mine in inputs]
            found = dict(self.workers.run(chosen, self.watch))
            return {mine.split.task.split: found[i] for i, mine in enumerate(chosen)}

        named = needs_names(options, self.tables)
        plan, results, rounds = self._prove(decode, lambda result: result.outcome, needs_names=named)
        ordered = [results[task.split] for task in plan.tasks]
        total = TotalCounts(options.by_topic, interval, options.limits, options.sections, options.fine)
        for result in ordered:
            total.add(result)
        for names in (plan.topic_names, *(result.outcome.names for result in ordered)):
            for topic_id, name in names.items():
                total.names.name_topic(topic_id, name)
        files = with_duplicates(self.file_infos, [result.outcome for result in ordered])
        context = context_of([result.outcome for result in ordered], files)
        context = context._replace(
            ledger=sum_ledgers([empty.ledger(), context.ledger]),
            strings=total.names.strings, addresses=total.names.addresses, topic_names=total.names.topic_names,
            known_versions=empty.dissector.programs.known_versions, counted=total.connections(),
        )  # fmt: skip
        if self.tables is not None:
            self.tables.take([part for result in ordered for part in result.parts], total.shared, total.names)
        reports = [report for report, _ in self.surveys.reports()]
        return Counted(total.counts, context, reports, rounds, total.sections)
