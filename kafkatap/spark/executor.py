"""`SparkExecutor`: an `Executor` whose tasks run on a Spark session, as functions of Arrow batches (`mapInArrow`).

Each task gets its number, and works on one input, or on several small ones in turn. The inputs themselves are part of
the function, compressed. All work goes through DataFrames, so that it runs through Spark Connect too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from ..captures.packs import shared_tasks
from ..splits.executor import Task
from ..splits.task_rows import SCHEMA, dump, load, numbers_of, result_batch, results_of
from .cluster.executors import checked, setup_error

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from ..splits.tasks import DecodeTask
    from .cluster.shared_folders import SharedFolders


@dataclass(frozen=True, slots=True)
class _Shipped:
    """A task and its inputs, as of `dump`. `name`: of the task, or of the table that is wanted of it."""

    task: bytes = field(repr=False)
    inputs: tuple[bytes, ...] = field(repr=False)
    name: str

    @classmethod
    def of(cls, task: Task, inputs: Sequence[Any], name: str) -> Self:
        return cls(dump(task), tuple(map(dump, inputs)), name)


class ResultsOf(_Shipped):
    """Yields one result for each input."""

    __slots__ = ()

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task = load(self.task)
        for number in numbers_of(batches):
            yield result_batch(number, task(load(self.inputs[number])))


class RowsOf(_Shipped):
    """Yields the rows of one table of each input of a `DecodeTask`, times in microseconds."""

    __slots__ = ()

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in numbers_of(batches):
            yield from self.rows(number)

    def rows(self, number: int) -> Iterator[pa.RecordBatch]:
        """The rows of one input."""
        from ..parquet.partitions import to_microseconds

        task: DecodeTask = load(self.task)
        for rows in task.rows(load(self.inputs[number]), self.name):
            yield from to_microseconds(rows).to_batches()


@dataclass(frozen=True, slots=True)
class _InTurn:
    """Runs a function for all inputs of a task. Each task gets its number in `tasks`, the inputs of each."""

    function: ResultsOf | RowsOf
    tasks: tuple[range, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for number in numbers_of(batches):
            inputs = pa.record_batch({"id": pa.array(self.tasks[number], pa.int64())})
            yield from self.function(iter([inputs]))


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
        try:
            function = ResultsOf.of(task, inputs, task.name)
            rows = self.rows(function, SCHEMA, [mine.weight for mine in inputs]).toArrow()
        except Exception as error:
            raise setup_error(error) or error from None
        self.bytes_received += rows.nbytes
        results = results_of(rows)
        return [results[number] for number in range(len(inputs))]

    def rows(self, function: ResultsOf | RowsOf, schema: Any, weights: Sequence[int]) -> DataFrame:
        """The rows that a function yields. `weights`: bytes of its inputs; a partition has those that share a task."""
        tasks = tuple(shared_tasks(weights, self.task_bytes))
        task = checked(_InTurn(function, tasks), self.folders)
        task.__name__ = f"kafkatap_{function.name}"  # `explain()` prints it
        count = len(tasks)
        return self.spark.range(0, count, 1, max(count, 1)).mapInArrow(task, schema)
