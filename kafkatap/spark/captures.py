"""`Captures`: captures on a Spark session, as DataFrames. The plan is made once, when a table is first needed.

All work goes through DataFrames and functions of Arrow batches, so that it runs through Spark Connect too.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from kafkatap.reports.batch import Context
from kafkatap.reports.counting.count_rows import COLUMNS
from kafkatap.reports.tables import TABLES, arrow_schema, files_table, ledger_table

from ..analysis import UnreadableCaptureError
from ..captures.packs import choose_split_size
from ..captures.storage import File, absolute, find
from ..partitions import to_microseconds
from ..splits.checkpoint import Checkpoint
from ..splits.decode import Ledger, sum_ledgers
from ..splits.merged_connections import merged_rows
from ..splits.packed_rows import unpacked
from ..splits.plan import Plan
from ..splits.secrets import needed_lines
from ..splits.split_sections import SplitSections
from ..splits.summing import gather_rows, report_of
from ..splits.survey import SplitSurvey
from ..splits.surveys import Surveys
from ..splits.task_rows import SCHEMA, ReadOptions, SurveyInput, decode_inputs, dump, results_of
from ..splits.two_passes import Begin, TwoPasses, context_of, quiet
from . import tasks
from .cluster.cores import cores_of
from .cluster.executors import checked, setup_error
from .output.split_tables import SplitResult
from .output.writing import CaptureIndex, TableWriter

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from kafkatap.reports.model import Report

    from .cluster.shared_folders import SharedFolders


class DamagedCaptureError(Exception):
    """A capture is damaged, and the caller wants none of those (`strict`). The message names the capture."""


@dataclass
class Captures(TwoPasses):
    """Captures (paths, folders, globs, URIs) on `spark`. Nothing is read before a table is needed.

    `split_size`: bytes of a split (None: of the total size and the number of cores; 0: whole files). `strict`: raise
    DamagedCaptureError if a capture is damaged. FileNotFoundError if a pattern matches nothing. For streams: `listed`,
    the files, in place of `captures`; `checkpoint` and `keep_open`, what earlier batches left, and whether more will
    come. `folders`: what executors have to share with the driver. `spark` None: tasks run in this process. Relative
    paths are those of this process. `bytes_received`: bytes of results that tasks sent so far.
    """

    spark: SparkSession | None
    captures: str | Sequence[str]
    split_size: int | None = None
    options: ReadOptions = field(default_factory=ReadOptions)
    strict: bool = False
    begin: Begin = quiet
    checkpoint: Checkpoint | None = None
    keep_open: bool = False
    listed: Sequence[File] | None = None
    folders: SharedFolders | None = None
    bytes_received: int = 0

    @cached_property
    def files(self) -> list[File]:
        if self.listed is not None:
            return list(self.listed)
        patterns = [self.captures] if isinstance(self.captures, str) else self.captures
        return find([absolute(pattern) for pattern in patterns])

    @property
    def paths(self) -> list[str]:
        return [file.path for file in self.files]

    # ------------------------------------------------------------ tasks

    def _choose_size(self) -> int:
        if self.split_size is not None:
            return self.split_size
        cores = None if self.spark is None else cores_of(self.spark)
        return choose_split_size(sum(file.size for file in self.files), cores)

    def _check(self, found: Surveys) -> None:
        damaged = [f"{info.path}: {info.damage}" for info in found.files() if info.damage]
        if self.strict and damaged:
            raise DamagedCaptureError(damaged[0])
        if self.checkpoint is not None:
            return
        if damaged and not any(survey.packets for survey in found.surveys) and len(damaged) == len(self.files):
            raise UnreadableCaptureError("; ".join(damaged))

    def _survey(self, found: Surveys, splits: list[int]) -> dict[int, SplitSurvey]:
        inputs = tuple(dump(SurveyInput(i, found.places[i])) for i in splits)
        return self._results(tasks.SurveyTask(replace(self.options, key_log=None), inputs))

    def _results(self, task: tasks.SurveyTask | tasks.DecodeTask) -> dict[int, Any]:
        """The results of a task, by split."""
        if self.spark is None:
            return tasks.results_here(task)
        try:
            rows = self._rows(task, SCHEMA).toArrow()
            self.bytes_received += rows.nbytes
            return results_of(rows)
        except Exception as error:
            raise setup_error(error) or error from None

    def _rows(self, task: tasks.SurveyTask | tasks.DecodeTask, schema: Any) -> DataFrame:
        """The rows that a task yields, with a partition for each of its inputs."""
        assert self.spark is not None
        function = checked(task, self.folders)
        function.__name__ = f"kafkatap_{task.name}"  # `explain()` prints it
        count = len(task.inputs)
        return self.spark.range(0, count, 1, max(count, 1)).mapInArrow(function, schema)

    @property
    def _capture_index(self) -> CaptureIndex:
        """The captures in which rows can begin."""
        earlier = self.checkpoint.captures if self.checkpoint is not None else ()
        return CaptureIndex.of([*earlier, *((f.first_packet, f.packets, f.capture) for f in self.file_infos)])

    # ------------------------------------------------------------ plan

    @cached_property
    def _planned(self) -> ProvedPlan:
        """The plan, proved by a run without rows."""
        return self.prove()

    def prove(
        self, writer: TableWriter | None = None, counting: bool = False, by_topic: bool = False,
        by_connection: bool = False,
    ) -> ProvedPlan:  # fmt: skip
        """Run the plan until all its claims hold. Splits that no correction touches run once.

        `writer`: write the rows of all tables with it. `counting`, `by_topic`, `by_connection`: count for
        reports, also by topic or connection.
        """
        options = replace(self.resolved, by_topic=by_topic, by_connection=by_connection)
        captures = self._capture_index

        def decode(plan: Plan, splits: set[int]) -> dict[int, SplitResult]:
            task = self._task(plan, splits, options, writer=writer, captures=captures, counting=counting)
            return self._results(task)

        return ProvedPlan(*self._prove(decode, lambda result: result.outcome))

    def _task(self, plan: Plan, splits: Container[int], options: ReadOptions, **purpose: Any) -> tasks.DecodeTask:
        """The task that decodes these splits."""
        surveys = self.surveys.surveys
        inputs = tuple(dump(mine) for mine in decode_inputs(plan, splits, self.places, self.checkpoint, surveys))
        lines = needed_lines(options.key_log, surveys, self._open_randoms | self.late_randoms)
        options = replace(options, key_log=None)
        return tasks.DecodeTask(options, inputs, dump(plan.topic_names), key_lines=dump(lines), **purpose)

    @property
    def _open_randoms(self) -> set[bytes]:
        """The client randoms of the TLS connections that the checkpoint leaves open."""
        flows = self.checkpoint.flows.values() if self.checkpoint is not None else ()
        known = (history for flow in flows for history in (flow.history, flow.state.history) if history is not None)
        return {history.client_random for history in known} - {b""}

    # ------------------------------------------------------------ tables

    def table(self, name: str) -> DataFrame:
        """One of the tables of `reports.tables` as a DataFrame, times in microseconds."""
        if name not in TABLES:
            raise ValueError(f"there is no table {name!r}; there are {', '.join(TABLES)}")
        if name in ("connections", "files", "ledger"):
            assert self.spark is not None
            return self.spark.createDataFrame(self.small_table(name))
        return self._rows(self.decode_task(name), spark_schema(name))

    def decode_task(self, table: str) -> tasks.DecodeTask:
        """The task that yields the rows of `exchanges`, `results` or `records`."""
        plan = self._planned.plan
        return self._task(plan, {t.split for t in plan.tasks}, self.resolved, table=table)

    def small_table(self, name: str) -> pa.Table:
        """`connections`, `files` or `ledger`, which the driver holds, times in microseconds."""
        if name == "connections":
            return to_microseconds(self._planned.connections())
        return to_microseconds(files_table(self.context) if name == "files" else ledger_table(self.context))

    def report(self, by: str = "api") -> Report:
        """The reports of `kafkatap report`. `by`: api, client, broker, connection, version or topic."""
        proved = self.prove(counting=True, by_topic=by == "topic", by_connection=by == "connection")
        context = self.context_of(proved)
        return report_of(
            proved.counts(), proved.connections(), files_table(context), ledger_table(context), by=by,
            not_captured=context.not_captured, definitions=self.options.definitions,
            topic_names=proved.plan.topic_names, selected=self.options.selection.text,
            wanted=self.options.wanted, section_names=self.resolved.sections, sections=proved.sections(),
            section_options=self.options.section_options, limits=self.options.limits, kept=self.options.kept,
        )  # fmt: skip

    @cached_property
    def context(self) -> Context:
        """Files, ledger and the other facts about the whole input that reports need."""
        return self.context_of(self._planned)

    def context_of(self, planned: ProvedPlan) -> Context:
        """`context` of a proved plan: these captures, without those of the checkpoint."""
        return context_of([result.outcome for result in planned.results.values()], self.file_infos)

    @property
    def notes(self) -> list[str]:
        """Sentences about these captures."""
        return self._planned.notes

    @property
    def bytes_read(self) -> int:
        """Bytes of all captures."""
        return sum(info.bytes for info in self._surveyed.files())


@dataclass(frozen=True, slots=True)
class ProvedPlan:
    """A plan that holds, and the result of each split. `rounds`: how often splits were decoded until it held."""

    plan: Plan
    results: Mapping[int, SplitResult] = field(default_factory=dict)
    rounds: int = 1

    def ledgers(self, latest: int = 0) -> dict[int, Ledger]:
        """The ledgers of captures. `latest`: the capture that gets the counts of packets of earlier batches."""
        found: dict[int, list[Ledger]] = {}
        for result in self.results.values():
            for capture, ledger in result.outcome.ledgers.items():
                found.setdefault(capture or latest, []).append(ledger)
        return {capture: sum_ledgers(ledgers) for capture, ledgers in found.items()}

    def counts(self) -> pa.Table:
        """Rows of counts that add up to those of all splits (`reports.counting.count_rows`)."""
        schema = arrow_schema(COLUMNS)
        counts = (result.counts for result in self.results.values())
        return gather_rows(unpacked(rows, schema) for rows in counts if rows is not None)

    def sections(self) -> list[SplitSections]:
        """The counts of sections over facts, of each split in order."""
        ordered = (self.results[task.split].sections for task in self.plan.tasks)
        return [found for found in ordered if found is not None]

    def shared_connections(self) -> pa.Table:
        """The connections that several splits share, each as one row."""
        ordered = [
            self.results[task.split] for task in self.plan.tasks
        ]  # of rows of the same time, the last one counts
        shared = [result.shared for result in ordered if result.shared is not None]
        return merged_rows(shared or [arrow_schema(TABLES["connections"]).empty_table()])

    def connections(self) -> pa.Table:
        """The rows of all connections."""
        whole = [r.connections for r in self.results.values() if r.connections is not None]
        names = arrow_schema(TABLES["connections"]).names
        return pa.concat_tables([rows.select(names) for rows in (self.shared_connections(), *whole)])

    @property
    def notes(self) -> list[str]:
        """Sentences about the captures."""
        count = len(self.plan.both_ends)
        if not count:
            return []
        if count == 1:
            return ["1 connection was captured at both ends."]
        return [f"{count:,} connections were captured at both ends."]


def spark_schema(name: str) -> Any:
    """The Spark schema of a table, from its declaration."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(to_microseconds(arrow_schema(TABLES[name]).empty_table()).schema)
