"""The section `connections` of a Spark job over splits is that of one process, measures included."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from kafkatap.spark.captures import Captures
from kafkatap.splits.run_options import RunOptions
from tests.reports.test_connections_section import QUESTIONS, read
from tests.support.captures import read_bytes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize("name", ["tcp", "storms"])
def test_connections_of_spark(spark: SparkSession, tmp_path: Path, name: str) -> None:
    path = tmp_path / "capture.pcap"
    path.write_bytes(read_bytes(QUESTIONS / f"{name}.pcap.zst"))
    options = RunOptions(wanted=("connections",))
    report = Captures(spark, [str(path)], path.stat().st_size // 4, options).report()
    one = read(QUESTIONS / f"{name}.pcap.zst").report
    for table in ("connections", "slow_connections"):
        assert sorted(map(str, report.table(table).rows)) == sorted(map(str, one.table(table).rows))
