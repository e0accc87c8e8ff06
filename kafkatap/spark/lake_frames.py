"""`exchanges_once`: the exchanges of a lake as a DataFrame, each once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..captures.storage import absolute
from .lake_points import IN_PART, WHOLE_OUTCOMES
from .output.delta import open_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def exchanges_once(spark: SparkSession, lake: str) -> DataFrame:
    """The rows of the table `exchanges` below `lake`, of each exchange the one that `kafkatap report` counts.

    An exchange that several captures have is that of an answered row before one that lacks its response, or a part of
    it; then that of the capture with the most clients of the broker. OSError if there is no such table. Spark needs no
    package of Delta for it. For SQL: `exchanges_once(spark, "tables").createOrReplaceTempView("exchanges_once")`.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    table = open_table(absolute(lake), "exchanges")
    rows = spark.read.option("basePath", table.table_uri).option("mergeSchema", "true").parquet(*table.file_uris())
    of_capture = rows.groupBy("capture").agg(f.count("*").alias("all"))
    ranks = rows.groupBy("broker_ip", "capture").agg(
        f.countDistinct("client_ip").alias("clients"), f.count("*").alias("mine")
    )
    ranks = ranks.join(of_capture, "capture").withColumn("share", f.col("mine") / f.col("all"))
    lacks = f.when(~f.col("outcome").isin(*WHOLE_OUTCOMES), 2).when(f.col("response_status") == IN_PART, 1)
    best = Window.partitionBy("exchange").orderBy(lacks.otherwise(0), f.desc("clients"), f.desc("share"), "capture")
    ranked = rows.join(ranks.select("broker_ip", "capture", "clients", "share"), ["broker_ip", "capture"], "left")
    chosen = ranked.withColumn("place", f.row_number().over(best)).where("place = 1")
    return chosen.select(*rows.columns)
