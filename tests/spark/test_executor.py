"""Each task gets its own inputs, as one row, and a partition for each row."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kafkatap.spark.executor import _a_partition_each
from kafkatap.splits.task_rows import input_rows, inputs_of, load

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize("size", [10, 100_000])
def test_each_task_has_a_partition(spark: SparkSession, size: int) -> None:
    from pyspark.sql.functions import spark_partition_id

    names = ["spark.sql.leafNodeDefaultParallelism", "spark.sql.execution.arrow.maxRecordsPerBatch"]
    before = [spark.conf.get(name, None) for name in names]
    rows = input_rows([bytes([n]) * size for n in range(40)], [range(n, n + 2) for n in range(0, 40, 2)])
    with _a_partition_each(spark, rows.num_rows):
        frame = spark.createDataFrame(rows)
    assert [spark.conf.get(name, None) for name in names] == before
    assert sorted(row[0] for row in frame.select(spark_partition_id()).collect()) == [*range(20)]


def test_inputs_are_those_that_were_dumped() -> None:
    inputs = [{"split": 1}, None, b"x" * 1000, "last"]
    tasks = [range(1), range(1, 3), range(3, 4)]
    found = list(inputs_of(input_rows(inputs, tasks).to_batches(max_chunksize=2)))
    assert [(number, load(mine)) for number, mine in found] == list(enumerate(inputs))
