"""What a run publishes: Delta tables that any number of runs share, or plain Parquet of one run."""

from __future__ import annotations

import json
import os
import pickle
import resource
import subprocess
import sys
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from kafkatap.spark.output import delta, parquet_file, writing
from kafkatap.spark.output.delta import active_files, open_table, read_table
from kafkatap.spark.output.delta_schema import file_schema
from kafkatap.spark.output.publication import open_publication
from kafkatap.spark.output.writing import MOST_DATES, TableWriter, with_capture
from kafkatap.splits.capture_ledgers import CaptureIndex
from tests.cli.running import ROOT
from tests.spark.rows import (
    HOUR,
    HOUR_4,
    PACKETS,
    TABLES_MADE,
    connections,
    exchanges,
    index_of,
    made,
    results_of,
    run,
    seen,
    write_run,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def exchange_rows(out: Path) -> list[tuple[int, ...]]:
    """(capture, key, tag) of the committed exchanges."""
    return seen(out)["exchanges"]


def parquet_files(out: Path) -> set[str]:
    return {str(path.relative_to(out)) for path in out.rglob("*.parquet")}


def committed(out: Path) -> set[str]:
    """The files that tables refer to."""
    return {f"{table}/{file.path}" for table in TABLES_MADE for file in active_files(open_table(str(out), table))}


def failing_run(out: Path) -> None:
    """A run that fails before it publishes."""
    with open_publication(str(out)) as publication:
        write_run(publication, {1: (0,)}, 2)
        raise RuntimeError


# ---------------------------------------------------------------- what tasks write


def test_a_file_has_the_declared_columns_and_the_capture(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    writer = pickle.loads(pickle.dumps(TableWriter(str(tmp_path), "r", number=8)))
    index = pickle.loads(pickle.dumps(index_of([7, 5])))
    table = exchanges(1, (0, 0, 20))
    with writer.with_captures(index).open(12) as files:
        files.write("exchanges", table)
    first, second = sorted(pickle.loads(pickle.dumps(files.written)), key=lambda w: w.path)
    assert (first.table, first.date, first.rows) == ("exchanges", "2026-11-21", 2)
    assert (second.date, second.rows) == ("2026-11-22", 1)
    assert first.path.startswith("date=2026-11-21/part-r-00012-0-")
    assert (tmp_path / first.name).stat().st_size == first.size
    back = pq.read_table(tmp_path / second.name, partitioning=None)
    assert back.column_names == [*table.column_names, "capture", "run_number"]
    assert back["run_number"].to_pylist() == [8]
    assert back.schema == file_schema("exchanges")
    # Times to the microsecond, durations whole.
    row = back.to_pylist()[0]
    assert row["request_first"] == datetime(2026, 11, 22, 0, 0, 0, 123456, UTC)
    assert (row["broker_ns"], row["capture"]) == (123_456_789, 5)
    stats = json.loads(second.stats)
    assert stats["numRecords"] == 1
    assert stats["minValues"] == {
        "client_ip": "x", "broker_ip": "10.0.0.1", "broker_port": 9092, "capture": 5, "run_number": 8,
        "request_first": "2026-11-22T00:00:00.123456Z",
    }  # fmt: skip
    assert stats["maxValues"] == stats["minValues"]
    assert stats["nullCount"]["response_first"] == 1


def test_the_capture_of_a_packet() -> None:
    index = CaptureIndex.of([(11, 5, 30), (1, 10, 10), (11, 0, 20), (16, 1, 40)])
    assert index.captures_of(np.array([1, 10, 11, 15, 16, 99])).tolist() == [10, 10, 30, 30, 40, 40]
    assert CaptureIndex.of([]).captures_of(np.array([1])).tolist() == [0]


def test_rows_belong_to_the_capture_in_which_they_begin(tmp_path: Path) -> None:
    import pyarrow as pa

    both = {"broker_ip": "", "broker_port": 1}
    rows = made("exchanges", [
        {**both, "exchange": 1, "request_packet_first": PACKETS, "response_packet_first": PACKETS + 1,
         "request_first": HOUR_4},
        {**both, "exchange": 2, "response_packet_first": PACKETS + 1, "response_first": HOUR_4 + 20 * HOUR},
    ])  # fmt: skip
    with TableWriter(str(tmp_path), "r", index_of([8, 9])).open(0) as files:
        files.write("exchanges", rows)
        files.write("exchanges", exchanges(1, (30,), key=3))
        files.write("results", results_of(exchanges(0, (0,), key=3)))  # of the exchanges that came last
        files.write("records", made("records", [{"exchange": key} for key in (2, 1, 3)]))
        files.write("connections", connections((20, 0)), np.array([PACKETS + 5, 1]))
        merged = with_capture(connections((0,)), np.array([77]))
        files.write("connections", merged)
    found: dict[str, list[tuple[Any, ...]]] = {}
    for written in files.written:
        table = pa.parquet.read_table(tmp_path / written.name, partitioning=None)
        key = "connection" if written.table == "connections" else "exchange"
        found.setdefault(written.table, []).extend(
            (written.date, *pair) for pair in zip(table[key].to_pylist(), table["capture"].to_pylist(), strict=True)
        )
    places = {1: ("2026-11-21", 1, 8), 2: ("2026-11-22", 2, 9), 3: ("2026-11-22", 3, 9)}
    assert sorted(found["exchanges"]) == sorted(places.values())
    assert found["results"] == [places[3]]
    assert sorted(found["records"]) == sorted(places.values())
    assert sorted(found["connections"]) == [("2026-11-21", 0, 77), ("2026-11-21", 1, 8), ("2026-11-22", 0, 9)]


def test_parts_of_a_split_gather_in_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import pyarrow.parquet as pq

    monkeypatch.setattr(parquet_file, "GROUP_ROWS", 100)
    with TableWriter(str(tmp_path), "r", index_of([1])).open(0) as files:
        for n in range(30):
            files.write("exchanges", exchanges(0, [0] * 9, key=9 * n))
    [written] = files.written
    metadata = pq.read_metadata(tmp_path / written.name)
    assert (metadata.num_rows, metadata.num_row_groups) == (270, 3)
    assert json.loads(written.stats)["numRecords"] == 270


def test_large_files_are_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_file, "GROUP_ROWS", 10)
    monkeypatch.setattr(writing, "FILE_SIZE", 10_000)
    with TableWriter(str(tmp_path), "r", index_of([1])).open(0) as files:
        for n in range(20):
            files.write("exchanges", exchanges(0, [0] * 10, key=10 * n))
    assert len(files.written) > 3
    assert all(w.size > 10_000 for w in files.written[:-1])
    assert sum(w.rows for w in files.written) == 200


def test_a_hostile_capture_makes_no_file_for_each_row(tmp_path: Path) -> None:
    with TableWriter(str(tmp_path), "r", index_of([1])).open(0) as files:
        files.write("exchanges", exchanges(0, range(0, 24 * 3 * MOST_DATES, 24)))
    assert sum(w.rows for w in files.written) == 3 * MOST_DATES
    assert len({w.date for w in files.written}) == MOST_DATES + 1
    assert "1970-01-01" in {w.date for w in files.written}


def test_an_attempt_that_fails_leaves_no_file(tmp_path: Path) -> None:
    def attempt() -> None:
        with TableWriter(str(tmp_path), "r", index_of([1])).open(0) as files:
            files.write("exchanges", exchanges(0, (0, 30)))
            raise RuntimeError

    with pytest.raises(RuntimeError):
        attempt()
    assert not parquet_files(tmp_path)


def test_executors_need_no_deltalake(tmp_path: Path) -> None:
    code = (
        "import sys\nimport kafkatap.spark.executor, kafkatap.spark.output.publication\n"
        "from tests.spark.rows import index_of, exchanges\n"
        "from kafkatap.spark.output.writing import TableWriter\n"
        "with TableWriter(sys.argv[1], 'r', index_of([1])).open(0) as files:\n"
        "    files.write('exchanges', exchanges(0, (0,)))\n"
        "sys.exit('deltalake' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code, tmp_path], cwd=ROOT, check=False).returncode == 0


# ---------------------------------------------------------------- what errors say


def test_a_folder_without_permission_is_named(tmp_path: Path) -> None:
    run(tmp_path / "first", {1: (0,)})
    tmp_path.chmod(0o555)
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    try:
        with pytest.raises(PermissionError, match=f"Permission denied: '{tmp_path}"):
            run(tmp_path, {1: (0,)})
    finally:
        os.seteuid(user)


def test_a_full_disk_is_named(tmp_path: Path) -> None:
    """A limit of the size of files is as good."""
    with open_publication(str(tmp_path)) as publication:
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
        try:
            with pytest.raises(OSError, match=r"File too large: '.*/exchanges/date=2026-11-21/part-.*\.parquet'"):
                write_run(publication, {1: (0,)})
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not parquet_files(tmp_path)


@pytest.mark.parametrize("out", ["/proc/none", "/dev/null/x", "nowhere://bucket/x"])
def test_what_cannot_be_written_is_said(out: str) -> None:
    with pytest.raises(OSError, match=out.rpartition("/")[0]), open_publication(out):
        pass


def test_files_that_the_driver_does_not_see_are_not_published(tmp_path: Path) -> None:
    run(tmp_path, {1: (0,)}, 1)
    before = seen(tmp_path)
    with open_publication(str(tmp_path)) as publication:
        written = write_run(publication, {1: (0,)}, 2)
        (tmp_path / written[3].name).unlink()
        with pytest.raises(OSError, match=r"1 of the \d+ files .* must see the same folder"):
            publication.publish(written, TABLES_MADE, [1])
    assert seen(tmp_path) == before


def test_a_table_of_another_program_is_refused(tmp_path: Path) -> None:
    import pyarrow as pa
    from deltalake import write_deltalake

    write_deltalake(tmp_path / "exchanges", pa.table({"exchange": [1], "date": [date(2026, 11, 21)]}))
    with pytest.raises(OSError, match="the Delta table exchanges is not of kafkatap"):
        run(tmp_path, {1: (0,)})


# ---------------------------------------------------------------- runs that share a folder


def test_captures_of_the_same_hour_in_two_runs(tmp_path: Path) -> None:
    run(tmp_path, {1: (0, 1), 2: (1,)}, 1)
    done = run(tmp_path, {3: (1, 1), 4: (1,)}, 2)
    assert done.replaced == dict.fromkeys(sorted(TABLES_MADE, key=lambda t: t == "files"), 0)
    both = [(1, 100, 1), (1, 101, 1), (2, 200, 1), (3, 300, 2), (3, 301, 2), (4, 400, 2)]
    assert exchange_rows(tmp_path) == both
    # The first run again: the same rows.
    done = run(tmp_path, {1: (0, 1), 2: (1,)}, 1)
    assert (done.rows["exchanges"], done.replaced["exchanges"]) == (3, 3)
    found = seen(tmp_path)
    assert found["exchanges"] == found["results"] == both
    assert found["files"] == [(n, f"capture-{n}") for n in (1, 2, 3, 4)]
    assert found["ledger"] == [(1, 1), (2, 1), (3, 2), (4, 2)]
    assert committed(tmp_path) < parquet_files(tmp_path)  # old files stay for those who read them


def test_runs_that_share_captures(tmp_path: Path) -> None:
    run(tmp_path, {1: (0,), 2: (0, 1), 3: (1,)}, 1)
    done = run(tmp_path, {2: (0,), 3: (1, 1), 4: (2,)}, 2)  # with a selection that keeps fewer rows of 2, say
    assert done.replaced["exchanges"] == 3
    assert exchange_rows(tmp_path) == [(1, 100, 1), (2, 200, 2), (3, 300, 2), (3, 301, 2), (4, 400, 2)]


def test_rows_of_several_captures_in_a_file(tmp_path: Path) -> None:
    """As compaction or a pack of small captures leaves them."""
    from kafkatap.spark.output.compaction import compact

    run(tmp_path, dict.fromkeys(range(1, 6), (0, 1)), 1)
    list(compact(str(tmp_path)))
    assert len(active_files(open_table(str(tmp_path), "exchanges"))) == 1
    before = committed(tmp_path)
    done = run(tmp_path, {3: (0,)}, 2)
    assert done.replaced == {"exchanges": 2, "results": 2, "connections": 1, "ledger": 1, "files": 1}
    whole = [(c, 100 * c + n, 1) for c in (1, 2, 4, 5) for n in (0, 1)]
    assert exchange_rows(tmp_path) == sorted([*whole, (3, 300, 2)])
    assert not before & committed(tmp_path)
    # A capture within the range of a file, and not in it: the file stays as it is.
    before = committed(tmp_path)
    index = index_of([4, 3])
    assert (index.captures < 5).all()
    run(tmp_path, {1000: (0,)}, 3)
    assert before < committed(tmp_path)


def test_large_files_are_rewritten_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from kafkatap.spark.output import edits

    with open_publication(str(tmp_path)) as publication:
        with publication.writer.with_captures(CaptureIndex.of([(n + 1, 1, n % 3) for n in range(PACKETS)])).open(
            0
        ) as files:
            files.write("exchanges", exchanges(0, [0] * PACKETS))
        publication.publish(files.written, ["exchanges"], [0, 1, 2])
    monkeypatch.setattr(edits, "_ROWS", 64)
    with open_publication(str(tmp_path)) as publication:
        publication.publish([], ["exchanges"], [1])
    rows = read_table(str(tmp_path), "exchanges")
    assert rows["exchange"].to_pylist() == [n for n in range(PACKETS) if n % 3 != 1]
    assert rows.schema.remove_metadata() == file_schema("exchanges")


def test_a_run_without_rows_removes_those_of_its_captures(tmp_path: Path) -> None:
    run(tmp_path, {1: (0,), 2: (0,)}, 1)
    run(tmp_path, {2: ()}, 2)  # a selection that matches nothing
    assert exchange_rows(tmp_path) == [(1, 100, 1)]
    run(tmp_path / "other", {2: ()}, 2)
    assert exchange_rows(tmp_path / "other") == []


def test_tables_that_a_run_does_not_make_stay(tmp_path: Path) -> None:
    run(tmp_path, {1: (0,)}, 1)
    with open_publication(str(tmp_path)) as publication:
        written = [w for w in write_run(publication, {1: (0,)}, 2) if w.table == "exchanges"]
        publication.publish(written, ["exchanges"], [1])
    found = seen(tmp_path)
    assert (found["exchanges"], found["results"]) == ([(1, 100, 2)], [(1, 100, 1)])


def test_attempts_that_did_not_count_are_not_published(tmp_path: Path) -> None:
    with open_publication(str(tmp_path)) as publication:
        write_run(publication, {1: (0, 1, 30)}, 1)
        publication.publish(write_run(publication, {1: (0,)}, 2), TABLES_MADE, [1])
    assert exchange_rows(tmp_path) == [(1, 100, 2)]
    assert parquet_files(tmp_path) == committed(tmp_path)  # their files are deleted


def test_a_run_that_fails_changes_nothing(tmp_path: Path) -> None:
    run(tmp_path, {1: (0,)}, 1)
    before = parquet_files(tmp_path)
    with pytest.raises(RuntimeError):
        failing_run(tmp_path)
    assert parquet_files(tmp_path) == before
    assert exchange_rows(tmp_path) == [(1, 100, 1)]


def test_an_error_after_the_commits_keeps_the_rows(tmp_path: Path) -> None:
    """As when the report cannot be written."""

    def run_and_fail() -> None:
        with open_publication(str(tmp_path)) as publication:
            publication.publish(write_run(publication, {1: (0, 1)}), TABLES_MADE, [1])
            raise OSError

    with pytest.raises(OSError):  # noqa: PT011
        run_and_fail()
    assert len(parquet_files(tmp_path)) == len(TABLES_MADE)
    assert exchange_rows(tmp_path) == [(1, 100, 0), (1, 101, 0)]


def test_an_error_between_two_commits_keeps_the_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = delta.TableChanges.commit

    def fail_at_results(self: delta.TableChanges) -> None:
        if self.table == "results":
            raise OSError("the store is gone")
        commit(self)

    with monkeypatch.context() as patched:
        patched.setattr(delta.TableChanges, "commit", fail_at_results)
        with pytest.raises(OSError, match="results: the store is gone"):
            run(tmp_path, {1: (0,)}, 1)
    assert exchange_rows(tmp_path) == [(1, 100, 1)]
    run(tmp_path, {1: (0,)}, 2)
    assert seen(tmp_path)["results"] == exchange_rows(tmp_path) == [(1, 100, 2)]


def test_the_log_names_the_run(tmp_path: Path) -> None:
    with open_publication(str(tmp_path), run="run-7") as publication:
        publication.publish(write_run(publication, {1: (0,)}), TABLES_MADE, [1])
    for table in TABLES_MADE:
        assert open_table(str(tmp_path), table).history(1)[0]["run"] == "run-7"


def test_uris_and_paths_are_the_same(tmp_path: Path) -> None:
    run(f"file://{tmp_path}/deep/er", {1: (0,)}, 1)
    run(tmp_path / "deep" / "er", {2: (0,)}, 2)
    assert exchange_rows(tmp_path / "deep" / "er") == [(1, 100, 1), (2, 200, 2)]


# ---------------------------------------------------------------- killed, and several at once

_KILLED = """
import os, sys
from kafkatap.spark.output.delta import TableChanges
from tests.spark.rows import run
left = int(sys.argv[2])
commit = TableChanges.commit
def dying(self):
    global left
    if not left:
        os._exit(3)
    left -= 1
    commit(self)
TableChanges.commit = dying
run(sys.argv[1], {2: (0, 1), 3: (2,)}, 2)
"""


@pytest.mark.parametrize("commits", range(len(TABLES_MADE)))
def test_killed_between_two_commits_and_run_again(tmp_path: Path, commits: int) -> None:
    run(tmp_path, {1: (0,), 2: (0,)}, 1)
    before = seen(tmp_path)
    done = subprocess.run([sys.executable, "-c", _KILLED, tmp_path, str(commits)], cwd=ROOT, timeout=60, check=False)
    assert done.returncode == 3
    left = seen(tmp_path)
    changed = [table for table in TABLES_MADE if left[table] != before[table]]
    assert changed == list(TABLES_MADE[:commits])
    assert "files" not in changed  # it is last: a run without it is not complete
    run(tmp_path, {2: (0, 1), 3: (2,)}, 2)
    assert exchange_rows(tmp_path) == [(1, 100, 1), (2, 200, 2), (2, 201, 2), (3, 300, 2)]
    run(tmp_path / "other", {1: (0,), 2: (0,)}, 1)
    run(tmp_path / "other", {2: (0, 1), 3: (2,)}, 2)
    assert seen(tmp_path) == seen(tmp_path / "other")


def test_a_commit_of_another_run_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its rows of the same capture are replaced, although they were not there when the changes were prepared."""
    commit = delta.TableChanges._commit
    others: list[str] = []

    def meanwhile(self: delta.TableChanges) -> None:
        if self.run != "other" and self.table not in others:
            others.append(self.table)
            with open_publication(str(tmp_path), run="other") as publication:
                written = [w for w in write_run(publication, {2: (0, 5), 9: (0,)}, 7) if w.table == self.table]
                publication.publish(written, [self.table], [2, 9])
        commit(self)

    run(tmp_path, {1: (0,), 2: (0,)}, 1)
    monkeypatch.setattr(delta.TableChanges, "_commit", meanwhile)
    done = run(tmp_path, {2: (1,), 3: (0,)}, 2)
    assert others == list(TABLES_MADE)
    assert exchange_rows(tmp_path) == [(1, 100, 1), (2, 200, 2), (3, 300, 2), (9, 900, 7)]
    assert seen(tmp_path)["results"] == exchange_rows(tmp_path)
    assert done.replaced["exchanges"] == 2


def test_runs_at_the_same_time(tmp_path: Path) -> None:
    code = "import sys\nfrom tests.spark.rows import run\nn = int(sys.argv[2])\n"
    code += "for _ in range(2):\n    run(sys.argv[1], {0: (0,), n: (0, 30)}, n)\n"
    runs = [subprocess.Popen([sys.executable, "-c", code, tmp_path, str(n)], cwd=ROOT) for n in (1, 2, 3, 4)]
    assert [process.wait(120) for process in runs] == [0] * 4
    found = seen(tmp_path)
    for table in ("exchanges", "results"):
        assert [row for row in found[table] if row[0]] == [(n, 100 * n + i, n) for n in (1, 2, 3, 4) for i in (0, 1)]
        [(_, key, tag)] = [row for row in found[table] if not row[0]]
        assert (key, tag in (1, 2, 3, 4)) == (0, True)
    assert [capture for capture, _ in found["files"]] == [0, 1, 2, 3, 4]


# ---------------------------------------------------------------- streams


def test_a_batch_is_committed_once(tmp_path: Path) -> None:
    run(tmp_path, {1: (0,)}, 1, transaction=("stream", 0))
    run(tmp_path, {1: (0, 1)}, 2, transaction=("stream", 0))  # read again after a kill
    assert exchange_rows(tmp_path) == [(1, 100, 1)]
    run(tmp_path, {2: (0,)}, 3, transaction=("stream", 1))
    run(tmp_path, {3: (0,)}, 4, transaction=("other", 0))
    assert exchange_rows(tmp_path) == [(1, 100, 1), (2, 200, 3), (3, 300, 4)]


def test_a_batch_that_was_committed_to_some_tables(tmp_path: Path) -> None:
    with open_publication(str(tmp_path)) as publication:
        written = [w for w in write_run(publication, {1: (0,)}, 1) if w.table == "exchanges"]
        publication.publish(written, ["exchanges"], [1], transaction=("stream", 5))
    run(tmp_path, {1: (0,)}, 2, transaction=("stream", 5))
    found = seen(tmp_path)
    assert (found["exchanges"], found["results"]) == ([(1, 100, 1)], [(1, 100, 2)])


def test_names_that_come_late(tmp_path: Path) -> None:
    from kafkatap.reports.batch import uuid_text

    raw = bytes(range(16))
    known = uuid_text(raw)
    rows = made("exchanges", [
        {"exchange": n, "request_first": HOUR_4, "request_packet_first": 1 + n * PACKETS, "topics": topics}
        for n, topics in enumerate([[known, "a"], ["b"]])
    ])  # fmt: skip
    results = made("results", [{"exchange": 0, "topic_id": known}, {"exchange": 1, "topic_id": "other"}])
    for split in (0, 1):
        with open_publication(str(tmp_path)) as publication:
            with publication.writer.with_captures(index_of([1, 2])).open(split) as files:
                files.write("exchanges", rows.slice(split, 1))
                files.write("results", results.slice(split, 1))
            publication.publish(files.written, ["exchanges", "results"], [split + 1])
    before = {f.path for f in active_files(open_table(str(tmp_path), "exchanges"))}
    with open_publication(str(tmp_path)) as publication:
        publication.publish([], ["exchanges", "results"], [], topic_names={raw: b"orders"})
    assert sorted(read_table(str(tmp_path), "exchanges")["topics"].to_pylist()) == [["b"], ["orders", "a"]]
    named = read_table(str(tmp_path), "results").sort_by("exchange")
    assert named["topic"].to_pylist() == ["orders", None]
    assert named["capture"].to_pylist() == [1, 2]
    after = {f.path for f in active_files(open_table(str(tmp_path), "exchanges"))}
    assert len(before & after) == 1  # a file without such rows stays


# ---------------------------------------------------------------- readers


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tables")
    run(folder, {1: (0, 1), 2: (0, 30)}, 1)
    run(folder, {2: (0, 30), 3: (2,)}, 2)
    return folder


#: The committed exchanges of `out`.
WANTED = [(1, 100, 1), (1, 101, 1), (2, 200, 2), (2, 201, 2), (3, 300, 2)]
COLUMNS = ("capture", "exchange", "correlation_id")


def test_pyarrow_reads_the_tables(out: Path) -> None:
    import pyarrow.compute as pc

    dataset = open_table(str(out), "exchanges").to_pyarrow_dataset()
    assert sorted(zip(*(dataset.to_table()[name].to_pylist() for name in COLUMNS), strict=True)) == WANTED
    late = dataset.to_table(filter=pc.field("request_first") > pc.scalar(datetime(2026, 11, 21, 5, tzinfo=UTC)))
    assert sorted(late["exchange"].to_pylist()) == [101, 201, 300]
    assert dataset.to_table(filter=pc.field("date") == date(2026, 11, 22))["exchange"].to_pylist() == [201]


def test_pandas_reads_the_tables(out: Path) -> None:
    frame = open_table(str(out), "exchanges").to_pandas()
    assert sorted(frame[list(COLUMNS)].itertuples(index=False, name=None)) == WANTED


def test_polars_reads_the_tables(out: Path) -> None:
    import polars

    frame = polars.scan_delta(str(out / "exchanges"))
    assert sorted(frame.select(COLUMNS).collect().rows()) == WANTED
    late = frame.filter(polars.col("request_first") > datetime(2026, 11, 21, 5, tzinfo=UTC)).collect()
    assert sorted(late["exchange"].to_list()) == [101, 201, 300]
    assert polars.read_delta(str(out / "files"))["capture"].sort().to_list() == [1, 2, 3]


def test_duckdb_reads_the_tables(out: Path) -> None:
    import duckdb

    with duckdb.connect() as database:
        database.register("exchanges", open_table(str(out), "exchanges").to_pyarrow_dataset())
        database.register("results", open_table(str(out), "results").to_pyarrow_dataset())
        found = database.execute(
            "select capture, exchange, correlation_id from exchanges join results using (exchange, capture, date)"
            " order by 1, 2"
        ).fetchall()
    assert found == WANTED


def test_spark_reads_the_tables(spark: SparkSession, out: Path) -> None:
    """Without Delta's package: the files that a table refers to."""
    table = open_table(str(out), "exchanges")
    frame = spark.read.option("basePath", table.table_uri).parquet(*table.file_uris())
    kinds = dict(frame.dtypes)
    assert (kinds["date"], kinds["capture"], kinds["request_first"], kinds["broker_ns"]) == (
        "date", "bigint", "timestamp", "bigint",
    )  # fmt: skip
    assert sorted(tuple(row) for row in frame.select(*COLUMNS).collect()) == WANTED
    found = frame.where("date = date'2026-11-22'").select("exchange", "request_first").collect()
    assert [tuple(row) for row in found] == [(201, datetime(2026, 11, 22, 10, 0, 0, 123456))]


# ---------------------------------------------------------------- compaction


def test_compaction_keeps_the_rows(tmp_path: Path) -> None:
    from kafkatap.spark.output.compaction import compact

    for n in range(1, 6):
        run(tmp_path, {n: (0, 30)}, n)
    run(tmp_path, {1: (0,)}, 6)
    before = {table: sorted(map(repr, read_table(str(tmp_path), table).to_pylist())) for table in TABLES_MADE}
    stale = parquet_files(tmp_path) - committed(tmp_path)
    done = {c.table: (c.before, c.after, c.deleted) for c in compact(str(tmp_path))}
    assert done == {
        "exchanges": (9, 2, 0), "results": (9, 2, 0), "connections": (5, 1, 0), "files": (5, 1, 0),
        "ledger": (5, 1, 0),
    }  # fmt: skip
    assert {table: sorted(map(repr, read_table(str(tmp_path), table).to_pylist())) for table in TABLES_MADE} == before
    assert read_table(str(tmp_path), "exchanges").schema.remove_metadata() == file_schema("exchanges")
    assert stale < parquet_files(tmp_path)  # younger than a week
    (tmp_path / "exchanges" / "date=2026-11-21" / "part-left-by-a-failed-attempt.parquet").touch()
    deleted = sum(c.deleted for c in compact(str(tmp_path), retention_hours=0))
    assert deleted > len(stale)
    assert parquet_files(tmp_path) == committed(tmp_path)
    assert {table: sorted(map(repr, read_table(str(tmp_path), table).to_pylist())) for table in TABLES_MADE} == before


def test_nothing_to_compact(tmp_path: Path) -> None:
    from kafkatap.spark.output.compaction import compact

    with pytest.raises(FileNotFoundError, match="there are no Delta tables"):
        list(compact(str(tmp_path)))


# ---------------------------------------------------------------- plain Parquet
