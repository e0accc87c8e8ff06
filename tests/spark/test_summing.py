"""Spark SQL adds up rows of counts as the library does."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from kafkatap.reports.counting.count_rows import KEYS
from kafkatap.splits import summing
from tests.splits.test_summed_reports import run_locally, sorted_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_spark_sql_of_the_docstring(spark: SparkSession, samples: Path) -> None:
    """The statement in the documentation of the rows gives what `sum_rows` gives."""
    run = run_locally(samples / "apache-2.8.pcap.zst")
    rows = spark.createDataFrame(pa.concat_tables(run.parts))
    keys = ", ".join(KEYS)
    sums = "SUM(added) AS added, MIN(lowest) AS lowest, MAX(highest) AS highest"
    summed = spark.sql(f"SELECT {keys}, {sums} FROM {{rows}} GROUP BY {keys}", rows=rows)
    assert sorted_rows(summed.toArrow()) == sorted_rows(summing.sum_rows(run.parts))
