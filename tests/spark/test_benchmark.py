"""What benchmarks/bench_spark.py reads from Spark's own figures."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_job_is_told_by_its_stages(
    spark: SparkSession, samples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    bench = importlib.import_module("bench_spark")
    job = bench.spark_job("local[2]", 64 << 20)  # takes the session that is there
    done = job(str(samples / "apache-0.8.2.pcap.zst"), str(tmp_path))
    assert done.exchanges > 1_000
    assert 0 < done.survey < done.seconds
    assert 0 < done.decode < done.seconds
    assert done.spark_bytes > 0
    assert done.seams == 0  # one file that cannot be split
    again = job(str(samples / "apache-0.8.2.pcap.zst"), str(tmp_path))
    assert again.spark_bytes < 2 * done.spark_bytes  # only what belongs to this job
    del sys.modules["bench_spark"]
