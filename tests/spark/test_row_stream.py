"""`spark.readStream.format("kafkatap")`: each exchange comes once and whole, whatever is killed."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from kafkatap import analyze
from kafkatap.engine.read_options import ReadOptions
from kafkatap.parquet.partitions import to_microseconds
from kafkatap.spark.cluster.failures import OptionError, explain
from kafkatap.spark.row_stream import RowStream, read_rows
from kafkatap.spark.source import KafkatapSource, register
from kafkatap.spark.stream_state import StateFolder
from kafkatap.splits.run_options import RunOptions
from tests.spark.test_stream import FILES, arrived  # noqa: F401  # a fixture

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Killed(BaseException):
    pass


def rows(table: pa.Table) -> list[str]:
    return sorted(map(str, to_microseconds(table.select(table.column_names)).to_pylist()))


def new_stream(folder: Path, location: Path, table: str = "exchanges", **more: Any) -> RowStream:
    given: dict[str, Any] = {
        "quiet": 0, "lateness": 0, "files": 1, "size": 1 << 30, "split_size": 0, "finish": True,
        "reading": RunOptions(ReadOptions(), records=table == "records"),
    }  # fmt: skip
    return RowStream(table, str(location), (str(folder),), **(given | more))


class Query:
    """What Spark does: it logs the end of a batch before it reads it, and that it is done after it has the rows."""

    def __init__(self, make: Callable[[], RowStream], table: str) -> None:
        self.make, self.table = make, table
        self.logged = self.done = 0
        self.found: dict[int, pa.Table] = {}

    def run(self, at: Callable[[str], None] = lambda place: None) -> None:
        """Until there is no batch. `at` is called at each place where a process can be killed."""
        stream = self.make()
        if self.logged == 0:
            stream.first_batch()
        stream.planner.hold()
        while True:
            if self.logged == self.done:
                if not stream.has_batch(self.done):
                    return
                at("planned")
                self.logged += 1
            batch = self.done
            parts = [
                part
                for name in stream.rows_of(batch)
                for part in read_rows(stream.location, name, self.table, self.columns)
            ]
            at("read")
            if parts:
                self.found[batch] = pa.Table.from_batches(parts)  # a sink replaces what it has of a batch
            self.done += 1
            at("done")
            stream.commit(self.done)
            at("committed")

    @property
    def columns(self) -> list[str]:
        return KafkatapSource({"path": "x", "table": self.table}).schema().names

    @property
    def rows(self) -> pa.Table:
        return pa.concat_tables(self.found.values())


@pytest.fixture
def folder(arrived: list[str]) -> Path:  # noqa: F811
    return Path(arrived[0]).parent


@pytest.mark.parametrize("table", ["exchanges", "results", "records", "connections"])
def test_rows_are_those_of_one_batch(folder: Path, tmp_path: Path, table: str) -> None:
    query = Query(lambda: new_stream(folder, tmp_path, table), table)
    query.run()
    assert query.done == FILES + 1  # the last one ends what is open
    wanted = getattr(analyze(str(folder)), table)
    assert rows(query.rows) == rows(wanted)
    query.run()  # nothing comes again
    assert query.done == FILES + 1


@pytest.mark.parametrize("place", ["planned", "read", "done", "committed", "written", "saved"])
@pytest.mark.parametrize("batch", [0, 2, FILES])
def test_killed_and_restarted(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, batch: int
) -> None:
    query, killed = Query(lambda: new_stream(folder, tmp_path), "exchanges"), []

    def at(here: str) -> None:
        if here == place and query.done == batch + (here in ("done", "committed")) and not killed:
            killed.append(here)
            raise Killed

    inner = StateFolder.save

    def save(self: StateFolder, state: Any) -> None:
        at("written")
        inner(self, state)
        at("saved")

    monkeypatch.setattr(StateFolder, "save", save)
    with pytest.raises(Killed):
        query.run(at)
    query.run(at)
    assert query.done == FILES + 1
    assert rows(query.rows) == rows(analyze(str(folder)).exchanges)


def test_rows_that_spark_has_are_deleted(folder: Path, tmp_path: Path) -> None:
    query = Query(lambda: new_stream(folder, tmp_path), "exchanges")
    query.run()
    kept = {Path(name).name for name in new_stream(folder, tmp_path).rows_of(FILES)}
    left = {path.name for path in tmp_path.rglob("*.parquet")}
    assert kept <= left
    assert len(left) <= 2


def test_a_folder_of_another_query(folder: Path, tmp_path: Path) -> None:
    Query(lambda: new_stream(folder, tmp_path), "exchanges").run()
    with pytest.raises(OptionError, match="is of another query; name a new folder"):
        Query(lambda: new_stream(folder, tmp_path), "exchanges").run()


def test_lost_states(folder: Path, tmp_path: Path) -> None:
    stream = new_stream(folder, tmp_path)
    stream.planner.hold()
    assert stream.has_batch(0)
    with pytest.raises(OptionError, match="lacks the state of batch 3; begin a new query"):
        stream.rows_of(3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {},
            "a stream keeps open connections in a folder of its own: option('stateLocation', FOLDER), which the driver "
            "and executors see; beside the query's checkpoint",
        ),
        ({"maxFilesPerTrigger": "0"}, "maxFilesPerTrigger: '0' is not a number of captures"),
        ({"finish": "yes"}, "finish: 'yes' is neither true nor false"),
        ({"quiet": "soon"}, "'soon' is not a duration (such as 500ms, 10s, 5m, 1h)"),
        ({"maxBytesPerTrigger": "much"}, "'much' is not a size (such as 64m, 512k, 1g)"),
    ],
)
def test_wrong_options(tmp_path: Path, options: dict[str, str], message: str) -> None:
    source = KafkatapSource({"path": "x"} | ({"stateLocation": str(tmp_path)} if options else {}) | options)
    with pytest.raises(OptionError) as raised:
        source.streamReader(source.schema())
    assert str(raised.value) == message


def test_a_spark_without_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from kafkatap.spark import source_stream

    monkeypatch.setattr(source_stream, "HAS_LIMITS", False)
    source = KafkatapSource({"path": "x", "stateLocation": str(tmp_path), "maxFilesPerTrigger": "1"})
    with pytest.raises(OptionError, match=r"maxFilesPerTrigger needs Spark 4\.2 or later: this one reads all that has"):
        source.streamReader(source.schema())


def test_secrets_stay_where_batches_are_planned(tmp_path: Path) -> None:
    """Tasks get a reader without the key log's lines."""
    import pickle

    keys = tmp_path / "keys.log"
    keys.write_text("CLIENT_RANDOM " + "ab" * 32 + " " + "cd" * 48 + "\n")
    source = KafkatapSource({"path": "x", "stateLocation": str(tmp_path / "s"), "keylog": str(keys)})
    reader = source.streamReader(source.schema())
    assert reader.stream.reading.is_decrypting
    assert b"cd" * 8 not in pickle.dumps(source.streamReader(source.schema()))


def test_a_query_of_spark(spark: SparkSession, folder: Path, tmp_path: Path) -> None:
    """It is stopped and started again in between, with limits."""
    register(spark)

    def run(folder: Path, **options: str) -> list[int]:
        frame = (
            spark.readStream.format("kafkatap").option("stateLocation", str(tmp_path / "state")).option("quiet", "0s")
            .options(maxFilesPerTrigger="2", **options).load(str(folder))
        )  # fmt: skip
        writer = frame.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.trigger(availableNow=True).start(str(tmp_path / "rows"))
        query.awaitTermination()
        return [progress.numInputRows for progress in query.recentProgress]

    first = tmp_path / "first"
    first.mkdir()
    names = sorted(path.name for path in folder.iterdir())
    for name in names[: FILES - 1]:
        os.link(folder / name, first / name)
    assert len([count for count in run(first) if count]) == 2
    os.link(folder / names[-1], first / names[-1])
    run(first, finish="true")
    read = spark.read.parquet(str(tmp_path / "rows")).toArrow()
    wanted = analyze(str(first)).exchanges
    assert rows(read) == rows(wanted)


def test_errors_of_a_stream_are_one_line(spark: SparkSession, tmp_path: Path) -> None:
    register(spark)
    frame = spark.readStream.format("kafkatap").load(str(tmp_path))
    query = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "c")).start()
    with pytest.raises(Exception, match="Traceback") as raised:
        query.awaitTermination()
    assert explain(raised.value).startswith("a stream keeps open connections in a folder of its own: option(")
