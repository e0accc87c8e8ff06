"""The number of cores of a session's executors."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def cores_of(spark: SparkSession) -> int | None:
    """The cores that run tasks; None if the session does not show them, as through Spark Connect."""
    context = getattr(spark, "_sc", None)
    if context is not None:
        return int(context.defaultParallelism)
    known = spark.conf.get("spark.default.parallelism", None)
    return int(known) if known else None
