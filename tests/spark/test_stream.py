"""Captures that arrive one after the other give, in the end, the rows of a job over all of them: whatever is cut off on
the way, is read twice, or is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.spark.join_support import compared, differences, local, packets_at_random, published, rotate
from tests.support.captures import read_bytes

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from kafkatap.spark.stream import StreamOptions

FILES = 4
HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def arrived(samples: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """A sample as rotated files, in the order in which they were written."""
    folder = tmp_path_factory.mktemp("arrived")
    whole = folder / "whole.pcap"
    whole.write_bytes(read_bytes(samples / "apache-2.8.pcap.zst"))
    names = rotate(whole, folder / "rotated", packets_at_random(whole, FILES - 1, 7))
    in_time = sorted(names, key=_first_time)
    for n, name in enumerate(in_time):
        os.utime(name, (1_000_000_000 + n, 1_000_000_000 + n))
    return in_time


def _first_time(path: str) -> tuple[int, int]:
    head = Path(path).read_bytes()[24:32]
    return int.from_bytes(head[:4], "little"), int.from_bytes(head[4:], "little")


def _options(folder: Path) -> StreamOptions:
    from kafkatap.spark.splits.task_rows import ReadOptions
    from kafkatap.spark.stream import StreamOptions

    return StreamOptions(
        str(folder / "out"), str(folder / "checkpoint"), split_size=250_000, reading=ReadOptions(records=True)
    )


def _assert_same(options: StreamOptions, arrived: list[str]) -> None:
    from kafkatap.partitions import to_microseconds

    wanted = {name: to_microseconds(table) for name, table in local(arrived, records=True).items()}
    lines = differences(compared(published(options.out)), compared(wanted))
    assert not lines, "\n".join(lines)


def test_batches_go_on_from_each_other(spark: SparkSession, arrived: list[str], tmp_path: Path) -> None:
    from kafkatap import analyze
    from kafkatap.spark.stream import advance, finish_stream

    options = _options(tmp_path)
    advance(spark, arrived[:1], 0, options)
    advance(spark, arrived[1:3], 1, options)
    advance(spark, arrived[1:3], 1, options)  # what Spark does with a batch that it does not know to be done
    advance(spark, arrived[3:], 2, options)
    result = finish_stream(spark, options)
    _assert_same(options, arrived)
    assert result.report is not None
    assert [t.rows for t in result.report.tables] == [t.rows for t in analyze(arrived).report().tables]


def test_a_batch_that_fails_is_read_again(
    spark: SparkSession, arrived: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kafkatap.spark import stream

    options = _options(tmp_path)
    stream.advance(spark, arrived[:2], 0, options)
    for place in ("_save", "_publish"):  # before its state is kept, and before its rows are published
        with monkeypatch.context() as patched:
            patched.setattr(stream, place, _fail)
            with pytest.raises(OSError, match="no room"):
                stream.advance(spark, arrived[2:], 1, options)
    stream.advance(spark, arrived[2:], 1, options)
    stream.finish_stream(spark, options)
    _assert_same(options, arrived)


def _fail(*_: Any) -> None:
    raise OSError("no room")


def test_a_query_is_stopped_and_started(spark: SparkSession, arrived: list[str], tmp_path: Path) -> None:
    from kafkatap.spark.stream import finish_stream, start_stream

    options = _options(tmp_path)
    folder = tmp_path / "captures"
    folder.mkdir()
    for some in (arrived[:2], arrived[2:]):
        for name in some:
            target = folder / Path(name).name
            target.write_bytes(Path(name).read_bytes())
            os.utime(target, (Path(name).stat().st_mtime,) * 2)
        query = start_stream(spark, str(folder), options, quiet=0, files=2)
        try:
            query.processAllAvailable()
        finally:
            query.stop()
        assert query.exception() is None
    finish_stream(spark, options)
    _assert_same(options, [str(folder / Path(name).name) for name in arrived])


def test_a_driver_that_is_killed(spark: SparkSession, arrived: list[str], tmp_path: Path) -> None:
    """In its second batch, whose state is kept and whose rows are published, before Spark knows that it is done."""
    from kafkatap.spark.stream import finish_stream, start_stream

    options = _options(tmp_path)
    folder = str(Path(arrived[0]).parent)
    output = tmp_path / "output"
    with output.open("wb") as file:  # no pipe: Spark's Java process would hold it for a while longer
        killed = subprocess.run(
            [sys.executable, "-m", "tests.spark.stream_killed", folder, options.out, options.checkpoint],
            timeout=300, stdout=file, stderr=file, check=False, cwd=HERE.parents[1],
        )  # fmt: skip
    assert killed.returncode == -signal.SIGKILL, output.read_text()[-2_000:]
    query = start_stream(spark, folder, options, quiet=0, files=2)
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    finish_stream(spark, options)
    _assert_same(options, arrived)


def test_names_that_come_late(tmp_path: Path) -> None:
    """Rows of a topic that had no name when they were written have it in the end."""
    import pyarrow as pa

    from kafkatap.reports.batch import uuid_text
    from kafkatap.spark.output.late_names import NameTopics

    raw, other = (bytes(15) + bytes([n]) for n in (7, 8))
    known, unknown = uuid_text(raw) or "", uuid_text(other) or ""
    names = NameTopics.of({raw: b"orders"})

    def named(table: str, rows: pa.Table, column: str) -> list[Any] | None:
        changed = names.apply(table, rows)
        return None if changed is None else changed[column].to_pylist()

    results = pa.table({"topic": [None, None, "kept", known], "topic_id": [known, unknown, known, known]})
    assert named("results", results, "topic") == ["orders", None, "kept", "orders"]
    assert named("results", results.slice(1, 2), "topic") is None
    exchanges = pa.table({"topics": pa.array([["x"], [known, "a"], [], [unknown]], pa.list_(pa.string()))})
    assert named("exchanges", exchanges, "topics") == [["x"], ["orders", "a"], [], [unknown]]
    assert named("exchanges", exchanges.slice(1), "topics") == [["orders", "a"], [], [unknown]]
    assert named("exchanges", exchanges.slice(2), "topics") is None
