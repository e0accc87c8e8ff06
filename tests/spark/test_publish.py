"""What a run publishes is there in whole or not at all, whenever it is killed; others' partitions stay."""

from __future__ import annotations

import json
import pickle
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kafkatap.partitions import MOST, OTHER, partition_name
from kafkatap.spark.output import locks
from kafkatap.spark.output.folders import Folder
from kafkatap.spark.output.locks import InUse
from kafkatap.spark.output.publish import Published, Staging, Written, finish_earlier, open_publication
from tests.spark.rows import HOUR, HOUR_4, TABLES_MADE, connections, exchanges, made, results_of, write_run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parents[2]


def run(out: Path, tag: int, hours: tuple[int, ...] = (0, 1), splits: int = 2) -> Published:
    with open_publication(str(out)) as publication:
        return publication.publish(write_run(publication.staging, tag, hours, splits), TABLES_MADE)


def read(out: Path, table: str) -> Any:
    """A table as pyarrow reads it back."""
    import pyarrow.dataset as ds

    return ds.dataset(str(out / table), partitioning="hive").to_table()


def tags(out: Path) -> dict[int, set[int]]:
    """Whose exchanges there are, by hour."""
    found: dict[int, set[int]] = {}
    for row in read(out, "exchanges").to_pylist():
        found.setdefault(row["hour"], set()).add(row["connection"])
    return found


def visible(out: Path) -> set[str]:
    return {str(p.relative_to(out)) for p in out.rglob("*") if p.is_file() and p.name != "_lock"}


# ---------------------------------------------------------------- what is written


def test_rows_come_back_with_hour_and_broker(tmp_path: Path) -> None:
    table = exchanges(0, 1, 20, 0, broker="fd00::1")
    with open_publication(str(tmp_path)) as publication:
        written = publication.staging.write("exchanges", table, 12)
        assert [Path(w.name).name for w in written] == ["split-00012-0.parquet"] * 3
        assert sum(w.rows for w in written) == 4
        published = publication.publish(written, ["exchanges"])
    assert (published.files, published.rows, published.replaced) == (3, {"exchanges": 4}, 0)
    back = read(tmp_path, "exchanges")
    assert back.drop_columns(["date", "hour", "broker"]).column_names == table.column_names
    rows = sorted(back.to_pylist(), key=lambda row: row["exchange"])
    assert [(r["date"], r["hour"], r["broker"]) for r in rows] == [
        ("2026-11-21", 4, "[fd00::1]:9092"), ("2026-11-21", 5, "[fd00::1]:9092"),
        ("2026-11-22", 0, "[fd00::1]:9092"), ("2026-11-21", 4, "[fd00::1]:9092"),
    ]  # fmt: skip
    # Times to the microsecond, durations whole.
    assert str(back.schema.field("request_first").type) == "timestamp[us, tz=UTC]"
    assert rows[0]["request_first"] == datetime(2026, 11, 21, 4, 0, 0, 123456, UTC)
    assert rows[0]["broker_ns"] == 123_456_789


def test_pandas_reads_the_folders(tmp_path: Path) -> None:
    import pandas as pd

    run(tmp_path, 7, (0, 1))
    frame = pd.read_parquet(tmp_path / "results")
    assert sorted(zip(frame["hour"].astype(int), frame["error_code"], strict=True)) == [(4, 7), (4, 7), (5, 7), (5, 7)]


def test_spark_reads_the_folders(spark: SparkSession, tmp_path: Path) -> None:
    run(tmp_path, 7, (0, 25))
    frame = spark.read.parquet(str(tmp_path / "exchanges"))
    kinds = dict(frame.dtypes)
    assert (kinds["date"], kinds["hour"], kinds["broker"]) == ("date", "int", "string")
    assert (kinds["request_first"], kinds["broker_ns"]) == ("timestamp", "bigint")
    found = frame.where("date = date'2026-11-22'").select("hour", "broker", "request_first").distinct().collect()
    assert [tuple(row) for row in found] == [(5, "10.0.0.1:9092", datetime(2026, 11, 22, 5, 0, 0, 123456))]
    for table in TABLES_MADE:
        assert spark.read.parquet(str(tmp_path / table)).count() == read(tmp_path, table).num_rows


def test_results_lie_with_their_exchanges(tmp_path: Path) -> None:
    table = exchanges(0, 3)
    results, times, brokers = results_of(table)
    staging = Staging(str(tmp_path), "r")
    written = staging.write("results", results, 0, 0, times, brokers)
    assert [w.partition for w in written] == [w.partition for w in staging.write("exchanges", table, 0)]


def test_orphans_lie_at_the_time_of_their_response(tmp_path: Path) -> None:
    orphan = made("exchanges", [{"response_first": HOUR_4 + 2 * HOUR, "broker_ip": "", "broker_port": 1}])
    [written] = Staging(str(tmp_path), "r").write("exchanges", orphan, 0)
    assert written.partition == "date=2026-11-21/hour=06/broker=%3F%3A1"


def test_connections_to_what_is_no_broker_share_a_folder(tmp_path: Path) -> None:
    import pyarrow as pa

    foreign = [connections(0, broker=f"10.9.0.{n}", protocol="foreign") for n in range(9)]
    table = pa.concat_tables([connections(0), *foreign])
    written = Staging(str(tmp_path), "r").write("connections", table, 0)
    assert sorted(w.partition.rpartition("=")[2] for w in written) == ["10.0.0.1%3A9092", OTHER]


def test_a_hostile_capture_makes_no_file_for_each_row(tmp_path: Path) -> None:
    table = exchanges(*range(3 * MOST), *[1] * 10)
    written = Staging(str(tmp_path), "r").write("exchanges", table, 0)
    assert len(written) == MOST + 1
    assert sum(w.rows for w in written) == table.num_rows
    assert partition_name(0, "10.0.0.1:9092") in {w.partition for w in written}


def test_no_rows_are_a_table_that_can_be_read(tmp_path: Path) -> None:
    with open_publication(str(tmp_path)) as publication:
        publication.publish([], ["exchanges", "results"])
    assert read(tmp_path, "exchanges").num_rows == 0
    run(tmp_path, 1)
    for _ in range(2):  # nothing takes the place of nothing
        with open_publication(str(tmp_path)) as publication:
            written = publication.staging.write("exchanges", exchanges(0, 1), 0)
            publication.publish(written, ["exchanges", "results"])
        assert read(tmp_path, "results").num_rows == 0
        assert (tmp_path / "results" / "_SUCCESS").exists()


def test_a_staging_goes_to_other_processes(tmp_path: Path) -> None:
    staging = pickle.loads(pickle.dumps(Staging(str(tmp_path), "r")))
    written = pickle.loads(pickle.dumps(staging.write("exchanges", exchanges(0), 0)))
    assert (tmp_path / written[0].staged).stat().st_size == written[0].bytes


# ---------------------------------------------------------------- what is published


def test_a_run_again_gives_the_same_and_other_hours_are_added(tmp_path: Path) -> None:
    assert run(tmp_path, 1, (0, 1)).replaced == 0
    once = visible(tmp_path)
    assert run(tmp_path, 2, (0, 1)).replaced == 5  # both hours of exchanges and results, one of connections
    assert visible(tmp_path) == once
    assert tags(tmp_path) == {4: {2}, 5: {2}}
    assert run(tmp_path, 3, (7,)).replaced == 0
    assert tags(tmp_path) == {4: {2}, 5: {2}, 11: {3}}
    assert json.loads((tmp_path / "report.json").read_text()) == {"run": 3}


def test_fewer_splits_leave_no_file_of_the_run_before(tmp_path: Path) -> None:
    run(tmp_path, 1, (0, 1), splits=3)
    run(tmp_path, 2, (1,), splits=1)
    assert tags(tmp_path) == {4: {1}, 5: {2}}
    assert len([n for n in visible(tmp_path) if n.startswith("exchanges/") and "hour=05" in n]) == 1


def test_a_partition_is_the_run_s_in_all_of_its_tables(tmp_path: Path) -> None:
    """Else rows of two runs would be joined by numbers that mean nothing across runs."""
    run(tmp_path, 1, (0,))
    with open_publication(str(tmp_path)) as publication:
        publication.publish(publication.staging.write("exchanges", exchanges(0, tag=2), 0), TABLES_MADE)
    assert read(tmp_path, "results").num_rows == 0
    assert read(tmp_path, "connections").num_rows == 0


def test_tables_that_a_run_does_not_make_stay(tmp_path: Path) -> None:
    run(tmp_path, 1, (0,))
    with open_publication(str(tmp_path)) as publication:
        publication.publish(publication.staging.write("exchanges", exchanges(0, tag=2), 0), ["exchanges"])
    assert read(tmp_path, "results")["error_code"].to_pylist() == [1, 1]


def test_runs_that_add(tmp_path: Path) -> None:
    for batch in (0, 1, 1):  # the second comes twice, as after a kill
        with open_publication(str(tmp_path), prefix=f"batch-{batch}") as publication:
            written = publication.staging.write("exchanges", exchanges(0, tag=batch), 0)
            publication.publish(written, ["exchanges", "results"], adding=True)
    assert sorted(read(tmp_path, "exchanges")["connection"].to_pylist()) == [0, 1]
    assert read(tmp_path, "results").num_rows == 0


def test_attempts_that_did_not_count_are_not_published(tmp_path: Path) -> None:
    with open_publication(str(tmp_path)) as publication:
        publication.staging.write("exchanges", exchanges(0, 1, 2, tag=1), 0)
        counted = publication.staging.write("exchanges", exchanges(0, tag=2), 0)
        publication.publish(counted, ["exchanges"])
    assert tags(tmp_path) == {4: {2}}
    assert not list(tmp_path.glob("_temporary-*"))


def test_a_run_that_fails_changes_nothing(tmp_path: Path) -> None:
    run(tmp_path, 1)
    before = visible(tmp_path)

    def fail(written: list[Written]) -> None:
        raise RuntimeError(len(written))

    with pytest.raises(RuntimeError), open_publication(str(tmp_path)) as publication:
        fail(write_run(publication.staging, 2))
    assert visible(tmp_path) == before


def test_files_that_the_driver_does_not_see_are_not_published(tmp_path: Path) -> None:
    run(tmp_path, 1)
    before = visible(tmp_path)
    with open_publication(str(tmp_path)) as publication:
        written = write_run(publication.staging, 2)
        Path(tmp_path, written[3].staged).unlink()
        with pytest.raises(OSError, match=r"1 of the \d+ files .* must see the same folder"):
            publication.publish(written, TABLES_MADE)
    assert visible(tmp_path) == before


# ---------------------------------------------------------------- killed, and two at once


@pytest.mark.parametrize("store", ["renames", "deletes", "copies"])
def test_killed_at_any_change_to_a_file(tmp_path: Path, store: str) -> None:
    run(tmp_path / "first", 1, (0, 1))
    shutil.copytree(tmp_path / "first", tmp_path / "staged")
    written = write_run(Staging(str(tmp_path / "staged"), "second"), 2, (1, 2), splits=1)
    (tmp_path / "written.pickle").write_bytes(pickle.dumps(written))
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.killed", tmp_path, store],
        capture_output=True, text=True, cwd=ROOT, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    deaths = json.loads(done.stdout)
    assert len(deaths) > 100
    before = _seen(tmp_path / "first")
    with open_publication(str(tmp_path / "staged"), "unused"):
        pass  # deletes what was staged
    with open_publication(str(tmp_path / "staged"), "second") as publication:
        publication.publish(write_run(publication.staging, 2, (1, 2), splits=1), TABLES_MADE)
    after = _seen(tmp_path / "staged")
    assert before != after
    ends = []
    for n, midway, killed, finished in deaths:
        for table in TABLES_MADE:
            files = {name: what for name, what in killed.items() if name.startswith(f"{table}/")}
            if f"{table}/_SUCCESS" in files:
                assert files in [
                    {name: what for name, what in whole.items() if name.startswith(f"{table}/")}
                    for whole in (before, after)
                ], (n, midway, table)
        assert finished in (before, after), (n, midway)
        ends.append(finished == after)
    assert ends[0] is False  # killed before its journal was written: as if it had never been
    assert ends[-1] is True


def _seen(out: Path) -> dict[str, str]:
    from tests.spark.killed import seen

    return seen(out)


def test_a_run_killed_while_it_writes_is_forgotten(tmp_path: Path) -> None:
    run(tmp_path, 1)
    before = visible(tmp_path)
    code = (
        "import os, sys\nfrom kafkatap.spark.output.publish import open_publication\n"
        "from tests.spark.rows import write_run\n"
        "with open_publication(sys.argv[1]) as p:\n    write_run(p.staging, 2)\n    os._exit(3)"
    )
    done = subprocess.run([sys.executable, "-c", code, tmp_path], cwd=ROOT, timeout=60, check=False)
    assert done.returncode == 3
    assert list(tmp_path.glob("_temporary-*/exchanges"))
    with open_publication(str(tmp_path)):
        assert visible(tmp_path) == before


def test_a_second_run_at_the_same_time_is_refused(tmp_path: Path) -> None:
    with open_publication(str(tmp_path), "one") as publication:
        with (
            pytest.raises(InUse, match=r"is being written by run one, process \d+ on"),
            open_publication(str(tmp_path), "two"),
        ):
            pass
        publication.publish(write_run(publication.staging, 1), TABLES_MADE)
    run(tmp_path, 2)
    assert tags(tmp_path) == {4: {2}, 5: {2}}


def remote(tmp_path: Path) -> Folder:
    """A folder that is locked as an object store's is."""
    folder = Folder(str(tmp_path))
    folder.local = None
    return folder


def test_a_lease_is_refused_until_it_is_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = remote(tmp_path)
    with locks.locked(folder, "one") as check:
        with (
            pytest.raises(InUse, match=r"run one, .*; if that run was killed, wait \d+ s, or delete"),
            locks.locked(folder, "2"),
        ):
            pass
        check()
        monkeypatch.setattr(locks, "STALE_S", -1)
        with locks.locked(folder, "two") as mine:
            mine()
            with pytest.raises(InUse, match="run two"):
                check()
    assert not (tmp_path / "_lock").exists()


def test_a_lease_is_renewed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    monkeypatch.setattr(locks, "RENEWED_S", 0.01)
    with locks.locked(remote(tmp_path), "one"):
        first = (tmp_path / "_lock").stat().st_mtime_ns
        end = time.monotonic() + 20
        while (tmp_path / "_lock").stat().st_mtime_ns == first and time.monotonic() < end:
            time.sleep(0.01)
        assert (tmp_path / "_lock").stat().st_mtime_ns > first


def test_changes_over_a_network_are_made_many_at_once_and_the_first_error_is_told(tmp_path: Path) -> None:
    folder = remote(tmp_path)
    folder.renames = False
    folder.write("f", b"x")
    folder.each(lambda name: folder.move("f", name), [(f"f{n}",) for n in range(99)])
    assert len(folder.sizes("")) == 100
    with pytest.raises(FileNotFoundError):
        folder.each(folder.move, [("f1", "g"), ("none", "h")])


def test_uris_and_paths_are_the_same(tmp_path: Path) -> None:
    uri = f"file://{tmp_path}/deep/er"
    with open_publication(uri) as publication:
        publication.publish(write_run(publication.staging, 1), TABLES_MADE)
    assert tags(tmp_path / "deep" / "er") == {4: {1}, 5: {1}}


@pytest.mark.parametrize("out", ["/proc/none", "/dev/null/x", "nowhere://bucket/x"])
def test_what_cannot_be_written_is_said(out: str) -> None:
    with pytest.raises(OSError, match=out.rpartition("/")[0]), open_publication(out):
        pass


def test_a_publication_that_cannot_be_finished_says_so(tmp_path: Path) -> None:
    journal = {"tables": ["exchanges"], "moves": [["_temporary-x/a", "exchanges/a", 1]], "deletes": []}
    (tmp_path / "_temporary-x").mkdir()
    (tmp_path / "_temporary-x" / "_journal.json").write_text(json.dumps(journal))
    with pytest.raises(OSError, match="exchanges/a should be published and does not exist any more"):
        finish_earlier(Folder(str(tmp_path)))


def test_a_file_knows_its_table_and_partition() -> None:
    partition = partition_name(497_000, "a:1")
    assert partition == "date=2026-09-12/hour=08/broker=a%3A1"
    written = Written(f"exchanges/{partition}/f", "s", 1, 1)
    assert (written.table, written.partition) == ("exchanges", partition)
    assert (Written("files/files.parquet", "s", 1, 1).partition, Written("report.json", "s", 0, 1).table) == ("", "")
