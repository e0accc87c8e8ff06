"""Captures that arrive one after the other give, in the end, the rows of a job over all of them: whatever is cut off on
the way, is read twice, comes late, is renamed or deleted, or is killed."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

pytest.importorskip("pyspark")

from pyspark.sql.streaming.datasource import ReadAllAvailable

from kafkatap.__main__ import main
from kafkatap.captures.identity import capture_head
from kafkatap.parquet.late_names import NameTopics
from kafkatap.parquet.partitions import to_microseconds
from kafkatap.reports.advice.catalogue import ON_REQUEST
from kafkatap.reports.batch import uuid_text
from kafkatap.reports.model import ReportTable
from kafkatap.reports.section_parts import registry
from kafkatap.reports.tables import TABLES
from kafkatap.spark import stream
from kafkatap.spark.arrival_log import Arrival, ArrivalLog
from kafkatap.spark.arrival_source import Arrivals
from kafkatap.spark.output.delta import read_table
from kafkatap.spark.stream import StreamOptions, advance, finish_stream, run_stream, start_stream
from kafkatap.spark.stream_batch import GROWN, LATE
from kafkatap.spark.stream_state import StateFolder
from kafkatap.spark.verifying import verify
from kafkatap.splits.run_options import RunOptions
from tests.splits.join_support import compared, differences, local, packets_at_random, published, rotate, unnumbered
from tests.support.captures import PcapRecords, read_bytes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kafkatap.spark.job_result import JobResult

FILES = 4
HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def arrived(samples: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """A sample as rotated files, in the order in which they were written."""
    folder = tmp_path_factory.mktemp("arrived")
    whole = folder / "whole.pcap"
    whole.write_bytes(read_bytes(samples / "apache-2.8.pcap.zst"))
    names = rotate(whole, folder / "rotated", packets_at_random(whole, FILES - 1, 7))
    in_time = sorted(names, key=first_time)
    for n, name in enumerate(in_time):
        os.utime(name, (1_000_000_000 + n, 1_000_000_000 + n))
    return in_time


def first_time(path: str) -> tuple[int, int]:
    head = Path(path).read_bytes()[24:32]
    return int.from_bytes(head[:4], "little"), int.from_bytes(head[4:], "little")


def _options(folder: Path, **more: Any) -> StreamOptions:
    return StreamOptions(
        str(folder / "out"), str(folder / "checkpoint"), split_size=250_000, reading=RunOptions(records=True), **more
    )


def _arrivals(paths: Iterable[str]) -> list[Arrival]:
    return [Arrival(path, os.stat(path).st_size, n, capture_head(path).identity, n, 0) for n, path in enumerate(paths)]


class Stream:
    """Batches that are read in this process, without Spark."""

    def __init__(self, options: StreamOptions) -> None:
        self.options = options
        self.count = 0
        self._log = ArrivalLog(options.checkpoint)

    def read(self, captures: Sequence[str | Arrival]) -> JobResult:
        """Read a batch."""
        planned = [c if isinstance(c, Arrival) else _arrivals([c])[0] for c in captures]
        self._log.write_plan(self.count, planned)
        self.count += 1
        return self.again()

    def again(self) -> JobResult:
        """Read the last batch, as Spark does with one that it does not know to be done."""
        return advance(None, self._log.plan(self.count - 1) or [], self.count - 1, self.options)


def _wanted(paths: Sequence[str]) -> dict[str, pa.Table]:
    return {name: to_microseconds(table) for name, table in local(paths, records=True).items()}


def _assert_same(options: StreamOptions, paths: Sequence[str]) -> None:
    lines = differences(compared(published(options.out)), compared(_wanted(paths)))
    assert not lines, "\n".join(lines)
    wrong = ("unfinished", "double", "rollup", "balance", "cut")
    assert not [finding for finding in verify(options.out) if finding.kind in wrong]


# ---------------------------------------------------------------- batches


def usual(table: ReportTable) -> ReportTable:
    """A table without what only input of a known, small size is searched for."""
    if table.name in ("summary", "advice"):
        left_out = {"not_checked", *(signature.id for signature in ON_REQUEST)}
        table = table.replace(rows=[row for row in table.rows if row[0] not in left_out])
    return table


def test_batches_go_on_from_each_other(arrived: list[str], tmp_path: Path) -> None:
    from kafkatap import analyze

    stream = Stream(_options(tmp_path))
    stream.read(arrived[:1])
    stream.read(arrived[1:3])
    stream.again()
    stream.read(arrived[3:])
    result = finish_stream(None, stream.options)
    _assert_same(stream.options, arrived)
    assert result.report is not None
    local_report = analyze(arrived).report()
    assert [usual(t).rows for t in result.report.tables] == [usual(t).rows for t in local_report.tables]
    assert result.report.heading.rows == local_report.heading.rows
    assert result.report.ledger.rows == local_report.ledger.rows


@pytest.mark.parametrize(
    ("name", "files"), [("diverse.pcap", 20), pytest.param("apache-4.3-broker1.pcap.zst", 100, marks=pytest.mark.long)]
)
def test_the_corpus_in_many_batches(
    corpus: Path, tmp_path: Path, name: str, files: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prints the size of the state and the processor time of each batch, for `pytest -s --long`."""
    from kafkatap import analyze

    monkeypatch.setattr(registry, "SMALL_INPUT", -1)  # as a stream, whose size is unknown
    whole = tmp_path / "whole.pcap"
    whole.write_bytes(read_bytes(corpus / "captures" / name))
    bounds = np.linspace(0, len(PcapRecords(whole)), files + 1).astype(int).tolist()[1:-1]
    paths = sorted(rotate(whole, tmp_path / "captures", bounds), key=first_time)
    stream = Stream(StreamOptions(str(tmp_path / "out"), str(tmp_path / "checkpoint"), split_size=200_000))
    states, rng, done = StateFolder(stream.options.checkpoint), random.Random(5), 0
    while done < len(paths):
        some = paths[done : done + rng.choice([1, 1, 2, 4])]
        start, done = time.process_time(), done + len(some)
        assert not stream.read(some).damage
        print(f"batch {stream.count}: {time.process_time() - start:.2f} s, {list(states.sizes().values())[-1]:,} bytes")
    report = finish_stream(None, stream.options).report
    names = [table for table in TABLES if table != "records"]
    wanted = {table: to_microseconds(rows) for table, rows in local(paths).items()}
    lines = differences(compared(published(stream.options.out, names)), compared(wanted))
    assert not lines, "\n".join(lines)
    assert report is not None
    assert [usual(table).rows for table in report.tables] == [
        usual(table).rows for table in analyze(paths).report().tables
    ]
    _assert_same_rollup(stream.options.out, paths)


def _assert_same_rollup(out: str, paths: list[str]) -> None:
    """The rollup counts the rows of all batches, each once."""
    from kafkatap import analyze
    from kafkatap.engine.selection import Selection
    from kafkatap.spark.lake_query import LakeQuery
    from kafkatap.spark.lake_report import lake_report

    found, wanted = lake_report(out, LakeQuery(Selection())), analyze(paths).report()
    for table in ("latency", "throttle", "error_totals"):
        assert found.table(table).rows == wanted.table(table).rows, table
    assert not [warning for warning in found.warnings if "rollup" in warning]


@pytest.mark.parametrize("by", ["topic", "client"])
def test_reports_by(arrived: list[str], tmp_path: Path, by: str) -> None:
    from kafkatap import analyze

    stream = Stream(_options(tmp_path))
    stream.read(arrived[:2])
    stream.read(arrived[2:])
    report = finish_stream(None, stream.options, by).report
    assert report is not None
    assert report.table("latency").rows == analyze(arrived).report(by=by).table("latency").rows


@pytest.mark.parametrize("place", ["save", "publish"])
def test_a_batch_that_fails_is_read_again(
    arrived: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """Before its state is saved, and before its rows are published."""
    from kafkatap.spark import stream as module

    stream = Stream(_options(tmp_path))
    stream.read(arrived[:2])
    with monkeypatch.context() as patched:
        patched.setattr(*((StateFolder, "save") if place == "save" else (module, "_publish")), _fail)
        with pytest.raises(OSError, match="no room"):
            stream.read(arrived[2:])
    stream.again()
    finish_stream(None, stream.options)
    _assert_same(stream.options, arrived)


def _fail(*_: Any) -> None:
    raise OSError("no room")


@pytest.mark.parametrize("tables", [1, 3])
def test_a_batch_that_is_published_in_part(
    arrived: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tables: int
) -> None:
    """After its first commits. Then its captures are deleted: its rows were written already."""
    from kafkatap.spark.output.delta import TableChanges

    commit, done = TableChanges.commit, list[str]()

    def first_ones(changes: TableChanges) -> None:
        if len(done) == tables:
            raise OSError("no room")
        done.append(changes.table)
        commit(changes)

    folder = tmp_path / "captures"
    folder.mkdir()
    copies = [shutil.copy(path, folder) for path in arrived]
    stream = Stream(_options(tmp_path))
    stream.read(copies[:2])
    with monkeypatch.context() as patched:
        patched.setattr(TableChanges, "commit", first_ones)
        with pytest.raises(OSError, match="no room"):
            stream.read(copies[2:3])
    os.unlink(copies[2])
    stream.again()
    stream.read(copies[3:])
    finish_stream(None, stream.options)
    wanted, found = compared(unnumbered(_wanted(arrived))), compared(unnumbered(published(stream.options.out)))
    assert not differences(found, wanted)


def test_finished_twice_and_resumed(arrived: list[str], tmp_path: Path) -> None:
    """Connections that were open are two then; every exchange is there once."""
    stream = Stream(_options(tmp_path))
    stream.read(arrived[:2])
    for _ in range(2):
        finish_stream(None, stream.options)
    _assert_same(stream.options, arrived[:2])
    stream.read(arrived[2:])
    finish_stream(None, stream.options)
    parts = [_wanted(arrived[:2]), _wanted(arrived[2:])]
    wanted = {name: pa.concat_tables([part[name] for part in parts]) for name in parts[0]}
    found, expected = (compared(unnumbered(tables)) for tables in (published(stream.options.out), wanted))
    for name in ("exchanges", "results", "records"):
        assert found[name] == expected[name]


def test_a_checkpoint_of_another_version(arrived: list[str], tmp_path: Path) -> None:
    stream = Stream(_options(tmp_path))
    stream.read(arrived[:1])
    (state,) = (tmp_path / "checkpoint" / "kafkatap" / "states").iterdir()
    state.write_bytes(b"something else")
    with pytest.raises(ValueError, match="another version"):
        stream.read(arrived[1:2])


# ---------------------------------------------------------------- late, renamed and deleted captures


def _alone_and_the_rest(arrived: list[str], late: int) -> dict[str, pa.Table]:
    """The tables of a job over one capture, and of a job over the others."""
    jobs = [_wanted([arrived[late]]), _wanted([path for n, path in enumerate(arrived) if n != late])]
    return {name: pa.concat_tables([job[name] for job in jobs]) for name in jobs[0]}


@pytest.mark.parametrize("with_another", [False, True])
def test_a_late_capture_is_decoded_on_its_own(arrived: list[str], tmp_path: Path, with_another: bool) -> None:
    stream = Stream(_options(tmp_path))
    stream.read([arrived[0]])
    stream.read([arrived[2]])
    if with_another:
        result = stream.read([arrived[1], arrived[3]])
    else:
        result = stream.read([arrived[1]])
        stream.read([arrived[3]])
    assert result.damage == [f"{arrived[1]}: {LATE}"]
    report = finish_stream(None, stream.options).report
    assert report is not None
    found, wanted = published(stream.options.out), _alone_and_the_rest(arrived, 1)
    wanted["ledger"] = found["ledger"]
    assert not differences(compared(unnumbered(found)), compared(unnumbered(wanted)))
    damage = dict(zip(found["files"]["path"].to_pylist(), found["files"]["damage"].to_pylist(), strict=True))
    assert damage == {path: LATE if path == arrived[1] else None for path in arrived}
    assert any(LATE in warning for warning in report.warnings)


def test_captures_of_both_ends_are_not_late(arrived: list[str], tmp_path: Path) -> None:
    """The same packets again, a bit later, as the broker at the other end captured them."""
    records = PcapRecords(arrived[0])
    again = tmp_path / "other.pcap"
    again.write_bytes(records.header + b"".join(_later(records.record(n), 200) for n in range(len(records))))
    stream = Stream(_options(tmp_path))
    for path in (arrived[0], str(again), arrived[1]):
        assert stream.read([path]).damage == []
    finish_stream(None, stream.options)
    found, wanted = published(stream.options.out), _wanted(arrived[:2])
    for name in ("exchanges", "results", "records"):
        assert compared(unnumbered(found))[name] == compared(unnumbered(wanted))[name]


def _later(record: bytes, us: int) -> bytes:
    seconds, fraction = (int.from_bytes(record[at : at + 4], "little") for at in (0, 4))
    seconds, fraction = divmod(seconds * 1_000_000 + fraction + us, 1_000_000)
    return seconds.to_bytes(4, "little") + fraction.to_bytes(4, "little") + record[8:]


def test_a_capture_that_has_grown(arrived: list[str], tmp_path: Path) -> None:
    """Its rows stay as they are, and the damage is in the table `files`."""
    stream = Stream(_options(tmp_path))
    stream.read(arrived[:2])
    grown = Arrival(arrived[1], 10**6, 7, 78, 7, 0, grown=True)
    assert stream.read([grown, arrived[2]]).damage == [f"{arrived[1]}: {GROWN}"]
    assert stream.read([replace(grown, path=arrived[2], capture=79)]).damage == [f"{arrived[2]}: {GROWN}"]
    finish_stream(None, stream.options)
    found, wanted = published(stream.options.out), _wanted(arrived[:3])
    assert not differences(compared(unnumbered(found)), compared(unnumbered(wanted)))


def test_a_capture_that_is_gone(arrived: list[str], tmp_path: Path) -> None:
    """Deleted after its batch was planned. It has a row in the table `files`, and the stream goes on."""
    gone = [Arrival(str(tmp_path / f"gone-{n}.pcap"), 1_000, 5, 77 + n, 5, 0) for n in range(2)]
    stream = Stream(_options(tmp_path))
    stream.read([arrived[0]])
    for batch, path in (([gone[0]], gone[0].path), ([arrived[1], gone[1]], gone[1].path)):
        (sentence,) = stream.read(batch).damage
        assert sentence.startswith(path)
    stream.read(arrived[2:])
    report = finish_stream(None, stream.options).report
    assert report is not None
    assert report.heading.rows[0][0] == FILES + 2
    found, wanted = published(stream.options.out), _wanted(arrived)
    assert not differences(compared(unnumbered(found)), compared(unnumbered(wanted)))
    rows = read_table(stream.options.out, "files")
    damaged = rows.filter(pc.is_valid(rows["damage"]))
    assert dict(zip(damaged["path"].to_pylist(), damaged["capture"].to_pylist(), strict=True)) == {
        capture.path: capture.capture for capture in gone
    }


def test_a_capture_that_is_renamed_before_it_is_read(arrived: list[str], tmp_path: Path) -> None:
    """It was gone by its old name, so it is read by its new one, and its row in `files` is replaced."""
    folder = tmp_path / "captures"
    source = Arrivals((str(folder),), str(tmp_path / "checkpoint"), quiet=0)
    stream = Stream(_options(tmp_path))
    paths = _put(arrived, folder)

    def next_batch(rename: str | None = None) -> JobResult:
        offset = {"batches": stream.count}
        assert source.latestOffset(offset, ReadAllAvailable()) != offset
        if rename is not None:
            os.rename(rename, folder / "new-name.pcap")
        stream.count += 1
        return stream.again()

    (sentence,) = next_batch(paths[-1]).damage
    assert sentence.startswith(paths[-1])
    assert not next_batch().damage
    finish_stream(None, stream.options)
    files = published(stream.options.out)["files"]
    assert sorted(files["path"].to_pylist()) == sorted([*paths[:-1], str(folder / "new-name.pcap")])
    _assert_same(stream.options, sorted(files["path"].to_pylist(), key=first_time))


# ---------------------------------------------------------------- state


def test_the_state_stays_small(samples: Path, tmp_path: Path) -> None:
    """It has a row for each open connection and for each key of the counts, however many batches there were, and the
    packets of messages that are not complete."""
    whole = tmp_path / "whole.pcap"
    whole.write_bytes(read_bytes(samples / "apache-2.8.pcap.zst"))
    bounds = np.linspace(0, len(PcapRecords(whole)), 17).astype(int).tolist()[1:-1]
    stream = Stream(_options(tmp_path))
    states = StateFolder(stream.options.checkpoint)
    for path in sorted(rotate(whole, tmp_path / "captures", bounds), key=first_time):
        stream.read([path])
        state = states.last()
        assert state is not None
        after, sums = state.checkpoint, state.checkpoint.sums
        assert after.spans.keys() == after.flows.keys()
        assert len(after.captures) <= 2 * len(after.flows)
        assert sums.counts is not None
        assert len(sums.counts.shared) <= 2 * len(after.flows)
        assert states.sizes()[state.number] < after.size + 40_000
    assert len(states.sizes()) == 2
    finish_stream(None, stream.options)
    finished = states.last()
    assert finished is not None
    assert finished.checkpoint.flows == {}
    assert finished.checkpoint.sums.counts is not None
    assert len(finished.checkpoint.sums.counts.shared) == 0


# ---------------------------------------------------------------- queries


def _put(paths: Sequence[str], folder: Path) -> list[str]:
    folder.mkdir(exist_ok=True)
    targets = [folder / Path(path).name for path in paths]
    for path, target in zip(paths, targets, strict=True):
        shutil.copy2(path, target)
    return list(map(str, targets))


def test_a_query_is_stopped_and_started(spark: SparkSession, arrived: list[str], tmp_path: Path) -> None:
    """Captures arrive while it runs. One is renamed meanwhile, and one is deleted after it was read."""
    options, folder = _options(tmp_path), tmp_path / "captures"
    for some in (arrived[:2], arrived[2:]):
        first, *_ = _put(some[:1], folder)
        query = start_stream(spark, str(folder), options, quiet=0, files=2)
        try:
            query.processAllAvailable()
            _put(some[1:], folder)
            query.processAllAvailable()
        finally:
            query.stop()
        assert query.exception() is None
        if some is not arrived[2:]:
            os.rename(first, folder / "renamed.pcap")
            os.unlink(folder / Path(some[1]).name)
    finish_stream(spark, options)
    _assert_same(options, [str(folder / Path(path).name) for path in _put(arrived, folder)])


def test_a_backlog_is_many_batches(spark: SparkSession, samples: Path, tmp_path: Path) -> None:
    """Also where the query only reads what has arrived."""
    whole = tmp_path / "whole.pcap"
    whole.write_bytes(read_bytes(samples / "apache-2.8.pcap.zst"))
    paths = rotate(whole, tmp_path / "captures", packets_at_random(whole, 6, 3))
    options = _options(tmp_path)
    results: list[JobResult] = []
    query = start_stream(
        spark, str(tmp_path / "captures"), options, quiet=0, files=1, on_batch=results.append, availableNow=True
    )
    query.awaitTermination()
    assert query.exception() is None
    assert len(results) == len(paths) == 7
    assert all(result.tables["files"] == 1 for result in results)
    run_stream(spark, [str(tmp_path / "captures")], options, finish=True)
    _assert_same(options, paths)


@pytest.mark.parametrize("has_queries", [True, pytest.param(False, marks=pytest.mark.long)])
def test_a_driver_that_is_killed(
    spark: SparkSession, arrived: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_queries: bool
) -> None:
    """In its second batch, whose state is kept and whose rows are published, before Spark knows that it is done. A
    query goes on from there, or what reads batches where this Spark has no queries."""
    monkeypatch.setattr(stream, "HAS_QUERIES", has_queries)
    options = _options(tmp_path)
    folder = str(Path(arrived[0]).parent)
    output = tmp_path / "output"
    with output.open("wb") as file:  # no pipe: Spark's Java process would hold it for a while longer
        killed = subprocess.run(
            [sys.executable, "-m", "tests.spark.stream_killed", folder, options.out, options.checkpoint],
            timeout=300, stdout=file, stderr=file, check=False, cwd=HERE.parents[1],
        )  # fmt: skip
    assert killed.returncode == -signal.SIGKILL, output.read_text()[-2_000:]
    result = run_stream(spark, [folder], options, finish=True, quiet=3_600, lateness=3_600)
    assert result.report is not None
    _assert_same(options, arrived)


@pytest.mark.parametrize("has_queries", [(True, True), (False, False), (False, True)])
def test_the_command(
    spark: SparkSession,
    arrived: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    has_queries: tuple[bool, bool],
) -> None:
    """Each run reads what came since the last one. A late capture is reported on standard error. With and without
    queries, and after an upgrade of Spark to one that has them."""
    monkeypatch.setattr(stream, "HAS_QUERIES", has_queries[0])
    folder, out = tmp_path / "captures", tmp_path / "out"
    call = ["spark", str(folder), "-o", str(out), "--checkpoint", str(tmp_path / "checkpoint"), "--records"]
    late, *others = _put([arrived[1], arrived[0], arrived[2]], folder)
    os.unlink(late)
    assert main([*call, "--quiet", "1s"]) == 0
    assert published(out)["files"]["path"].to_pylist() == others
    _put([arrived[1]], folder)
    capsys.readouterr()
    monkeypatch.setattr(stream, "HAS_QUERIES", has_queries[1])
    assert main([*call, "--finish", "--lateness", "1h", "--batch-size", "1m"]) == 1
    said = capsys.readouterr()
    assert f"kafkatap: {late}: {LATE}" in said.err.splitlines()
    assert LATE in said.out
    assert sorted(published(out)["files"]["path"].to_pylist()) == sorted([late, *others])


def test_batches_that_were_read_without_the_query(
    spark: SparkSession, arrived: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A query does not go back to where it was."""
    options, folder = _options(tmp_path), tmp_path / "captures"
    for some, has_queries in ((arrived[:1], True), (arrived[1:2], False), (arrived[2:3], False)):
        _put(some, folder)
        monkeypatch.setattr(stream, "HAS_QUERIES", has_queries)
        run_stream(spark, [str(folder)], options, quiet=0)
    before = published(Path(options.out))["exchanges"].num_rows
    monkeypatch.setattr(stream, "HAS_QUERIES", True)
    with pytest.raises(Exception, match="later batches were read without this query"):
        run_stream(spark, [str(folder)], options, quiet=0)
    assert published(Path(options.out))["exchanges"].num_rows == before
    monkeypatch.setattr(stream, "HAS_QUERIES", False)
    _put(arrived[3:], folder)
    run_stream(spark, [str(folder)], options, finish=True)
    _assert_same(options, [str(folder / Path(path).name) for path in arrived])


def test_names_that_come_late() -> None:
    """Rows of a topic that had no name when they were written have it in the end."""
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


def test_topics_that_get_their_names_in_a_later_batch(samples: Path, tmp_path: Path) -> None:
    """A consumer fetches from a topic before a Metadata response names it."""
    whole = tmp_path / "whole.pcap"
    whole.write_bytes(read_bytes(samples / "apache-4.3.pcap.zst"))
    paths = sorted(rotate(whole, tmp_path / "captures", [1_300]), key=first_time)
    stream = Stream(_options(tmp_path))
    states = StateFolder(stream.options.checkpoint)
    stream.read(paths[:1])
    before = states.last()
    assert before is not None
    assert _nameless(stream.options.out) == {uuid_text(key) for key in before.checkpoint.unnamed} != set()
    stream.read(paths[1:])
    assert _nameless(stream.options.out) == set()
    finish_stream(None, stream.options)
    after = states.last()
    assert after is not None
    assert not after.checkpoint.unnamed
    _assert_same(stream.options, paths)


def _nameless(out: str) -> set[str]:
    """The ids of topics that have rows without a name."""
    rows = published(out)["results"]
    return set(rows.filter(pc.is_null(rows["topic"]))["topic_id"].drop_null().to_pylist())


def test_rows_of_other_runs(arrived: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream replaces the rows that another run wrote for its captures, whichever batch they come in, and searches
    tables only after such a run."""
    from kafkatap.spark.output import delta

    searched: list[str] = []
    change_file = delta.change_file

    def counted(folder: Any, table: str, *more: Any) -> Any:
        searched.append(table)
        return change_file(folder, table, *more)

    monkeypatch.setattr(delta, "change_file", counted)
    stream, other = Stream(_options(tmp_path)), Stream(StreamOptions(str(tmp_path / "out"), str(tmp_path / "other")))
    for paths in (arrived[:1], arrived[1:2]):
        stream.read(paths)
    assert not searched
    other.read(arrived[2:])
    finish_stream(None, other.options)
    for paths in (arrived[2:3], arrived[3:]):
        stream.read(paths)
        assert searched
        searched.clear()
    finish_stream(None, stream.options)
    found = published(stream.options.out)
    wanted = _wanted(arrived)
    found["files"] = found["files"].filter(pc.is_in(found["files"]["path"], pa.array(arrived)))
    assert found["exchanges"].num_rows == len(set(found["exchanges"]["exchange"].to_pylist()))
    for name in ("exchanges", "results", "records", "files"):
        assert compared(found)[name] == compared(wanted)[name]


def test_a_folder_that_has_rows_of_captures_to_come(arrived: list[str], tmp_path: Path) -> None:
    """A job has read all captures before the stream begins: each of its batches replaces their rows."""
    options = _options(tmp_path)
    job = Stream(StreamOptions(options.out, str(tmp_path / "job"), reading=options.reading))
    job.read(arrived)
    finish_stream(None, job.options)
    stream = Stream(options)
    for path in arrived:
        stream.read([path])
    finish_stream(None, options)
    _assert_same(options, arrived)
