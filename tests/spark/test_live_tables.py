"""What a live capture wrote as Parquet is read by Spark, with the run as a column."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

import kafkatap
from kafkatap.live.export.parquet_files import ParquetLog
from tests.live.logged import log
from tests.live.support import SECOND


def test_spark_reads_the_tables_of_live_captures(spark: SparkSession, samples: Path, tmp_path: Path) -> None:
    path = samples / "apache-4.3.pcap.zst"
    runs = []
    for _ in range(2):
        parquet = ParquetLog(tmp_path, rotate=20 * SECOND)
        log(path, parquet)
        runs.append(parquet.run)
    tables = {name: spark.read.parquet(str(tmp_path / name)) for name in ("exchanges", "results", "connections")}
    joined = tables["exchanges"].join(tables["results"], ["run", "exchange"]).groupBy("run").count().collect()
    wanted = kafkatap.analyze(path)
    key = wanted.exchanges["exchange"][0].as_py()
    assert {row["run"]: row["count"] for row in joined} == dict.fromkeys(runs, len(wanted.results))
    rows = tables["exchanges"].filter(f"exchange = {key}")
    times = rows.selectExpr("unix_micros(request_first) t").distinct().collect()
    assert [row["t"] for row in times] == [wanted.exchanges["request_first"][0].value // 1000]
    assert tables["connections"].count() == 2 * len(wanted.connections)
