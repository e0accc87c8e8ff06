"""Sections over facts that Spark counts are those of one process."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from kafkatap import analyze
from kafkatap.engine.limits import Limits
from kafkatap.engine.read_options import ReadOptions
from kafkatap.reports.model import Report
from kafkatap.reports.section_parts.registry import OVER_FACTS
from kafkatap.spark.captures import Captures
from kafkatap.spark.stream import StreamOptions, finish_stream
from kafkatap.splits.run_options import RunOptions
from tests.live.test_sections import offline, without_commands
from tests.spark.test_stream import Stream, first_time, usual
from tests.splits.join_support import packets_at_random, rotate
from tests.support.captures import read_bytes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize("name", ["apache-4.3", "apache-2.8"])
def test_sections_of_spark(spark: SparkSession, samples: Path, tmp_path: Path, name: str) -> None:
    path = tmp_path / "capture.pcap"
    path.write_bytes(read_bytes(samples / f"{name}.pcap.zst"))
    size = path.stat().st_size // 3
    options = RunOptions(wanted=tuple(OVER_FACTS))
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


#: What their findings rest on: connections over several splits, and many names with the same counts.
RECORDINGS = ("events/firewall", "events/stop", "advice/black-hole", "questions/timeouts")


@pytest.mark.parametrize("name", RECORDINGS)
def test_sections_of_splits(samples: Path, tmp_path: Path, name: str) -> None:
    """Without Spark. Connections that splits share count with all that is known of them."""
    path = tmp_path / "capture.pcap"
    path.write_bytes(read_bytes(samples / f"{name}.pcap.zst"))
    options = RunOptions(wanted=tuple(OVER_FACTS))
    report = Captures(None, [str(path)], path.stat().st_size // 3, options).report()
    wanted = offline(path, is_counted=True)
    for table in report.tables:
        assert without_commands(table) == wanted[table.name], table.name


@pytest.mark.parametrize("name", RECORDINGS)
def test_findings_of_a_stream(samples: Path, tmp_path: Path, name: str) -> None:
    """Batches leave what events and advice are made of to the next ones."""
    path = tmp_path / "capture.pcap"
    path.write_bytes(read_bytes(samples / f"{name}.pcap.zst"))
    paths = sorted(rotate(path, tmp_path / "captures", packets_at_random(path, 4, 7)), key=first_time)
    size = path.stat().st_size // 3
    stream = Stream(StreamOptions(str(tmp_path / "out"), str(tmp_path / "checkpoint"), split_size=size))
    for some in (paths[:1], paths[1:3], paths[3:]):
        stream.read(some)
    report, wanted = finish_stream(None, stream.options).report, analyze(paths).report()
    assert report is not None
    assert wanted["summary"].rows
    assert [without_commands(usual(table)) for table in report.tables] == [
        without_commands(usual(table)) for table in wanted.tables
    ]
