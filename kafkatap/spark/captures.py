"""`Captures`: captures on a Spark session, as DataFrames. The plan is made once, when a table is first needed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from kafkatap.reports.batch import Context
from kafkatap.reports.sections.twin_findings import counted_twice
from kafkatap.reports.tables import TABLES, arrow_schema, connections_table, files_table, ledger_table
from kafkatap.reports.twins import note_twins

from ..captures.packs import choose_split_size
from ..captures.storage import File, absolute, find
from ..library import UnreadableCaptureError
from ..parquet.partitions import to_microseconds
from ..parquet.row_names import named
from ..splits.checkpoint import Checkpoint
from ..splits.executor import Executor, InProcess
from ..splits.plan import Plan
from ..splits.run_options import RunOptions
from ..splits.split_counts import TotalCounts, merged
from ..splits.surveys import Choice, Surveys
from ..splits.task_rows import DecodeInput
from ..splits.two_passes import Begin, Proved, TwoPasses, quiet, report_context, report_of
from .cluster.session import cores_of
from .cluster.store_access import adopt
from .executor import RowsOf, SparkExecutor
from .output.writing import OF_COUNTS, TableWriter

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from kafkatap.reports.model import Report

    from .cluster.shared_folders import SharedFolders


class DamagedCaptureError(Exception):
    """A capture is damaged, and the caller wants none of those (`strict`). The message names the capture."""


class CountedSplits(NamedTuple):
    """`proved`: the splits. `total`: the sum of their counts, of which connections that splits share have not ended.
    `options`: with which they were counted."""

    proved: Proved
    total: TotalCounts
    options: RunOptions


@dataclass
class Captures(TwoPasses):
    """Captures (paths, folders, globs, URIs) on `spark`. Nothing is read before a table is needed.

    `split_size`: bytes of a split (None: of the total size and the number of cores; 0: whole files). `strict`: raise
    DamagedCaptureError if a capture is damaged. FileNotFoundError if a pattern matches nothing. For streams: `listed`,
    the files, in place of `captures`; `checkpoint` and `keep_open`, what earlier batches left, and whether more will
    come. `folders`: what executors have to share with the driver. `choose`: which captures are left out. `spark` None:
    tasks run in this process. Relative paths are those of this process.
    """

    spark: SparkSession | None
    captures: str | Sequence[str]
    split_size: int | None = None
    options: RunOptions = field(default_factory=RunOptions)
    strict: bool = False
    begin: Begin = quiet
    checkpoint: Checkpoint | None = None
    keep_open: bool = False
    listed: Sequence[File] | None = None
    folders: SharedFolders | None = None
    choose: Choice | None = None

    def __post_init__(self) -> None:
        adopt(self.spark)

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

    @cached_property
    def executor(self) -> Executor:  # type: ignore[override]
        return InProcess() if self.spark is None else SparkExecutor(self.spark, self.folders, self._choose_size())

    @property
    def bytes_received(self) -> int:
        """Bytes of results that tasks sent so far."""
        return self.executor.bytes_received if isinstance(self.executor, SparkExecutor) else 0

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

    def counted(self, writer: TableWriter | None = None, by: str = "api") -> CountedSplits:
        """The counts of all splits for a report. `writer`: write the rows of all tables with it. If connections are
        seen twice, all is decoded again, to count it once."""
        options = replace(
            self.resolved, by_topic=by == "topic", by_connection=by == "connection", for_lake=writer is not None
        )
        before = None if self.checkpoint is None else self.checkpoint.sums.counts
        sink = None if writer is None else writer.with_captures(self.capture_index)
        proved = self.prove(options, counting=True, sink=sink)
        total = proved.total(options, before=before)
        twins = self._counted_twice(proved, total, options)
        if twins:
            options = replace(options, read=options.read._replace(twins=twins))
            once = self.prove(options, counting=True, sink=None if sink is None else replace(sink, counts_only=True))
            proved = once if sink is None else with_counts_of(proved, once, sink)
            total = proved.total(options, before=before)
        return CountedSplits(proved, total, options)

    def _counted_twice(self, proved: Proved, total: TotalCounts, options: RunOptions) -> dict[int, int]:
        """The twins that reports should leave out, if some are in these captures."""
        twins = dict(self.checkpoint.twins) if self.checkpoint is not None else {}
        twins |= counted_twice(
            total.seen_twice(), total.report, lambda: report_context(total, self._context_of(proved), options),
            lambda context: options.selection.shown(context.first),
        )  # fmt: skip
        is_there = bool(twins) and any(counts.has_connections(twins) for counts in proved.counts)
        return twins if is_there else {}

    def _context_of(self, proved: Proved) -> Context:
        return proved.context(self.file_infos)

    @cached_property
    def _planned(self) -> Proved:
        """The plan, proved by a run without rows."""
        return self.prove(self.resolved)

    # ------------------------------------------------------------ tables

    def table(self, name: str) -> DataFrame:
        """One of the tables of `reports.tables` as a DataFrame, times in microseconds."""
        if name not in TABLES:
            raise ValueError(f"there is no table {name!r}; there are {', '.join(TABLES)}")
        assert self.spark is not None
        if name in ("connections", "files", "ledger"):
            return self.spark.createDataFrame(self.small_table(name))
        assert isinstance(self.executor, SparkExecutor)
        return self.executor.rows(*self.rows_of(name), spark_schema(name))

    def rows_of(self, table: str) -> tuple[RowsOf, list[DecodeInput]]:
        """The function that yields the rows of `exchanges`, `results` or `records`, and its inputs."""
        plan = self._planned.plan
        inputs = self.decode_inputs(plan, {task.split for task in plan.tasks})
        return RowsOf.of(self.decode_task(plan, self.resolved), table), inputs

    def small_table(self, name: str) -> pa.Table:
        """`connections`, `files` or `ledger`, which the driver holds, times in microseconds."""
        if name == "connections":
            found = (result.connections for result in self._planned.results)
            rows, names = merged((part for part in found if part is not None), self.resolved.read.hosts)
            note_twins(rows)
            return to_microseconds(connections_table(rows, named([rows], names)))
        return to_microseconds(files_table(self.context) if name == "files" else ledger_table(self.context))

    def report(self, by: str = "api") -> Report:
        """The reports of `kafkatap report`. `by`: api, client, broker, connection, version or topic."""
        proved, total, options = self.counted(by=by)
        total.end_connections()
        return report_of(total, self._context_of(proved), options, by)

    @cached_property
    def context(self) -> Context:
        """Files, ledger and the other facts about the whole input that reports need."""
        return self._context_of(self._planned)

    @property
    def notes(self) -> list[str]:
        """Sentences about these captures."""
        return notes_of(self._planned.plan)

    @property
    def bytes_read(self) -> int:
        """Bytes of all captures."""
        return sum(info.bytes for info in self._surveyed.files())


def with_counts_of(rows: Proved, counts: Proved, writer: TableWriter) -> Proved:
    """Splits with the rows of one run and the counts of another one. The rollup of the first is deleted."""
    found = []
    for mine, other in zip(rows.results, counts.results, strict=True):
        kept = [one for one in mine.written if one.table not in OF_COUNTS]
        writer.delete([one for one in mine.written if one.table in OF_COUNTS])
        found.append(replace(other, written=[*kept, *other.written], unnamed=mine.unnamed))
    return replace(counts, results=found)


def notes_of(plan: Plan) -> list[str]:
    """Sentences about the captures of a plan."""
    count = len(plan.both_ends)
    if not count:
        return []
    return [
        "1 connection was captured at both ends."
        if count == 1
        else f"{count:,} connections were captured at both ends."
    ]


def spark_schema(name: str) -> Any:
    """The Spark schema of a table, from its declaration."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(to_microseconds(arrow_schema(TABLES[name]).empty_table()).schema)
