"""A driver with a session of plain Spark: `python source_driver.py MASTER CAPTURE`. It prints its results as JSON."""

from __future__ import annotations

import json
import sys
from typing import Any

from pyspark.sql import SparkSession

from kafkatap.spark import register
from kafkatap.spark.cluster.failures import explain

SETTING = "spark.sql.python.filterPushdown.enabled"
#: Options that are wrong.
WRONG = ({"table": "packets"}, {"filter": "api = Fetch"})


def failure(spark: Any, capture: str, options: dict[str, str]) -> str:
    """What `explain` says of options that are wrong."""
    try:
        spark.read.format("kafkatap").options(**({"path": capture} | options)).load().count()
    except Exception as error:
        return explain(error)
    return "it worked"


def main(master: str, capture: str) -> dict[str, Any]:
    builder: Any = SparkSession.builder
    spark = (builder.remote if master.startswith("sc:") else builder.master)(master).getOrCreate()
    register(spark)
    frame = spark.read.format("kafkatap").option("splitSize", "100k").load(capture)
    frame.createOrReplaceTempView("exchanges")
    query = "SELECT count(*) FROM exchanges WHERE api_name = 'Produce' AND broker_ns > 0"
    counts = []
    for value in (None, "true", "false"):  # also changed after `register` and `load`
        if value is not None:
            spark.conf.set(SETTING, value)
        counts.append((spark.conf.get(SETTING), frame.count(), spark.sql(query).collect()[0][0]))
    failures = [failure(spark, capture, options) for options in WRONG]
    spark.stop()
    return {"counts": counts, "failures": failures}


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
