"""`SparkExecutor`: an `Executor` whose tasks run on a Spark session, as functions of Arrow batches (`mapInArrow`).

Inputs are in rows of a DataFrame, compressed, with a partition for each task. So a task gets its own inputs, usually
one, and no others; small ones share a task. All work goes through DataFrames, so that it runs through Spark Connect
too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from ..captures.packs import shared_tasks
from ..splits.executor import Task
from ..splits.task_rows import SCHEMA, dump, input_rows, inputs_of, load, result_batch, results_of
from .cluster.executors import checked, setup_error

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from ..splits.tasks import DecodeTask
    from .cluster.shared_folders import SharedFolders


@dataclass(frozen=True, slots=True)
class _Shipped:
    """A task, as of `dump`. `name`: of the task, or of the table that is wanted of it."""

    task: bytes = field(repr=False)
    name: str

    @classmethod
    def of(cls, task: Task, name: str) -> Self:
        return cls(dump(task), name)


class ResultsOf(_Shipped):
    """Yields one result for each input."""

    __slots__ = ()

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task = load(self.task)
        for number, mine in inputs_of(batches):
            yield result_batch(number, task(load(mine)))


class RowsOf(_Shipped):
    """Yields the rows of one table of each input of a `DecodeTask`, times in microseconds."""

    __slots__ = ()

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _, mine in inputs_of(batches):
            yield from self.rows(mine)

    def rows(self, mine: bytes) -> Iterator[pa.RecordBatch]:
        """The rows of one input, as of `dump`."""
        from ..parquet.partitions import to_microseconds

        task: DecodeTask = load(self.task)
        for rows in task.rows(load(mine), self.name):
            yield from to_microseconds(rows).to_batches()


@dataclass
class SparkExecutor:
    """`folders`: what executors have to share with the driver. `task_bytes`: inputs that are smaller in all share a
    task, one after the other; 0: each has its own. `bytes_received`: of results, so far."""

    spark: SparkSession
    folders: SharedFolders | None = None
    task_bytes: int = 0
    bytes_received: int = 0

    def run(self, task: Task, inputs: Sequence[Any]) -> list[Any]:
        """As of `Executor`. SetupError if an executor cannot run it."""
        if not inputs:
            return []
        try:
            groups = self._tasks(inputs)
            with _a_partition_each(self.spark, len(groups)):  # Spark Connect plans when it runs
                rows = self._rows(ResultsOf.of(task, task.name), inputs, groups, SCHEMA).toArrow()
        except Exception as error:
            raise setup_error(error) or error from None
        self.bytes_received += rows.nbytes
        results = results_of(rows)
        return [results[number] for number in range(len(inputs))]

    def rows(self, function: ResultsOf | RowsOf, inputs: Sequence[Any], schema: Any) -> DataFrame:
        """The rows that a function yields for some inputs. Each task has a partition; through Spark Connect, only in
        `run`."""
        groups = self._tasks(inputs)
        with _a_partition_each(self.spark, len(groups)):
            return self._rows(function, inputs, groups, schema)

    def _tasks(self, inputs: Sequence[Any]) -> list[range]:
        """The inputs of each task, by number."""
        return shared_tasks([mine.weight for mine in inputs], self.task_bytes)

    def _rows(
        self, function: ResultsOf | RowsOf, inputs: Sequence[Any], groups: Sequence[range], schema: Any
    ) -> DataFrame:
        task = checked(function, self.folders)
        task.__name__ = f"kafkatap_{function.name}"  # `explain()` prints it
        return self.spark.createDataFrame(input_rows(inputs, groups)).mapInArrow(task, schema)


#: Settings of Spark with which each row of an Arrow table gets a partition. By default, there are as many as cores.
_ROW_SETTINGS = {
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1",
    "spark.sql.execution.arrow.localRelationThreshold": "0",
}


@contextmanager
def _a_partition_each(spark: SparkSession, rows: int) -> Iterator[None]:
    """DataFrames of as many rows that are made or run meanwhile have a partition for each row."""
    settings = {**_ROW_SETTINGS, "spark.sql.leafNodeDefaultParallelism": str(max(rows, 1))}
    before = {name: spark.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            if old is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, old)
