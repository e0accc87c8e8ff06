"""Sections over facts that Spark counts are those of one process."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from kafkatap import analyze
from kafkatap.reports.model import Report
from kafkatap.reports.questions.registry import OVER_FACTS
from kafkatap.spark.captures import Captures
from kafkatap.splits.task_rows import ReadOptions
from tests.live.test_sections import offline, without_commands
from tests.support.captures import read_bytes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize("name", ["apache-4.3", "apache-2.8"])
def test_sections_of_spark(spark: SparkSession, samples: Path, tmp_path: Path, name: str) -> None:
    path = tmp_path / "capture.pcap"
    path.write_bytes(read_bytes(samples / f"{name}.pcap.zst"))
    size = path.stat().st_size // 3
    options = ReadOptions(wanted=tuple(OVER_FACTS))
    report: Report = Captures(spark, [str(path)], size, options).report()
    wanted = offline(path, is_counted=True)
    assert {table.name for table in report.tables} == set(wanted)
    for table in report.tables:
        assert without_commands(table) == wanted[table.name], table.name


@pytest.mark.parametrize("name", ["open-transaction", "slow-follower"])
def test_first_lines_of_spark(spark: SparkSession, samples: Path, tmp_path: Path, name: str) -> None:
    """Small input is searched for all signatures, whatever reads it."""
    path = tmp_path / "capture.pcap"
    path.write_bytes(read_bytes(samples / "advice" / f"{name}.pcap.zst"))
    report: Report = Captures(spark, [str(path)], path.stat().st_size // 3).report()
    wanted = analyze(path).report().table("summary")
    assert report.table("summary").rows == wanted.rows
    assert name.replace("-", "_") in {row[0] for row in wanted.rows}
