"""Sections over facts that Spark counts are those of one process."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from kafkatap.engine.limits import Limits
from kafkatap.engine.read_options import ReadOptions
from kafkatap.spark.captures import Captures
from kafkatap.splits.run_options import RunOptions
from tests.support.captures import read_bytes, unpacked
from tests.ways.recordings import LOST, recording
from tests.ways.reports import assert_same, made, one_engine, over_splits
from tests.ways.ways import OPTIONS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize("name", ["advice", LOST])
def test_sections_of_spark(spark: SparkSession, tmp_path: Path, name: str) -> None:
    """As in the table of `tests/ways`."""
    paths = recording(name, tmp_path)
    size = sum(path.stat().st_size for path in paths) // 3
    report = Captures(spark, [str(path) for path in paths], size, OPTIONS).report()
    assert_same(made(report), one_engine(paths, OPTIONS))


@pytest.mark.parametrize("name", ["open-transaction", "slow-follower"])
def test_first_lines_of_splits(samples: Path, tmp_path: Path, name: str) -> None:
    """Small input is searched for all signatures, whatever reads it."""
    path = unpacked(samples / "advice", name, tmp_path)
    wanted = one_engine([path])
    assert_same(over_splits([path], 3), wanted)
    assert name.replace("-", "_") in {row["finding"] for row in wanted["reports"]["summary"]}


@pytest.mark.parametrize("by", ["client", "topic"])
def test_limits_of_names(samples: Path, tmp_path: Path, by: str) -> None:
    """Without Spark. Tasks and the sum of their counts keep them; names beyond are "(other)", topic ids as well."""
    path = tmp_path / "capture.pcap"
    path.write_bytes(read_bytes(samples / "apache-4.3.pcap.zst"))
    size = path.stat().st_size // 3
    report = Captures(None, [str(path)], size, RunOptions(ReadOptions(limits=Limits(names=100)))).report(by)
    whole = Captures(None, [str(path)], size).report(by)
    few, all_of_them = report.table("latency"), whole.table("latency")
    assert len(few.rows) <= 100 < len(all_of_them.rows)
    count = [column.name for column in few.columns].index("count")
    if by == "client":  # a request may name several topics
        assert sum(row[count] for row in few.rows) == sum(row[count] for row in all_of_them.rows)
    assert any("(other)" in map(str, row) for row in few.rows)
