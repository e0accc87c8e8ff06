"""Several engines write the rows that one writes, or no files at all."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from kafkatap.engine.selection import EVERYTHING, Selection
from kafkatap.library import Analysis
from kafkatap.parquet import row_groups
from kafkatap.reports.literals import read_moment
from kafkatap.reports.tables import TABLES as COLUMNS
from kafkatap.reports.tables import arrow_schema
from kafkatap.shards.local_tables import LocalTables
from kafkatap.shards.shard_run import OneEngineNeeded
from kafkatap.shards.workers import WorkerEnded
from kafkatap.splits.run_options import RunOptions
from tests.cli.running import KAFKATAP, environment, kafkatap
from tests.shards.processes import children_of, until
from tests.shards.test_jobs import COUNTS
from tests.splits.join_support import compared, cut_evenly, differences, join
from tests.splits.join_talks import ONE_ENGINE, TALKS
from tests.support.captures import PcapRecords, pcap_bytes, read_bytes, unpacked
from tests.support.tcp import encode
from tests.test_parquet import late_talk
from tests.ways.reports import Whole, assert_same, in_shards, one_engine

SAMPLES = ("apache-4.3", "apache-2.8", "apache-0.10.2", "apache-0.8.2", "live-4.3", "live-4.4")

TABLES = ("exchanges", "results", "connections", "files", "ledger")


def write(paths: Sequence[Path], folder: Path, shards: int, selection: Selection = EVERYTHING) -> Whole:
    """Write the tables with engines that share connections. Returns the report."""
    folder.mkdir(exist_ok=True)
    with LocalTables(folder, shards) as files:
        return in_shards(paths, shards, RunOptions(selection=selection), tables=files)


def one_process(paths: Sequence[Path], selection: Selection = EVERYTHING) -> dict[str, pa.Table]:
    found = Analysis(paths, selection=selection)
    return {name: getattr(found, name) for name in TABLES}


def tables_in(folder: Path) -> dict[str, pa.Table]:
    """The tables of a folder, in which no other file is."""
    assert sorted(os.listdir(folder)) == sorted(f"{name}.parquet" for name in TABLES)
    found = {name: pq.read_table(folder / f"{name}.parquet") for name in TABLES}
    for name, table in found.items():
        table.validate(full=True)
        assert table.schema.equals(arrow_schema(COLUMNS[name])), name
    return found


def check(
    paths: Sequence[Path], folder: Path, counts: Iterable[int] = (3,), selection: Selection = EVERYTHING
) -> dict[str, pa.Table]:  # fmt: skip
    """Compare the tables and the report of so many engines with those of one; return these tables."""
    wanted, report = one_process(paths, selection), one_engine(paths, RunOptions(selection=selection))
    for count in counts:
        assert_same(write(paths, folder / str(count), count, selection), report)
        lines = differences(compared(tables_in(folder / str(count))), compared(wanted))
        assert not lines, "\n".join(lines)
    return wanted


@pytest.mark.parametrize("name", SAMPLES)
def test_samples(samples: Path, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_groups.GatheredRows.__init__, "__defaults__", (20_000,))
    check([unpacked(samples, name, tmp_path)], tmp_path, (1, 3))


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("name", [name for name in TALKS if name != ONE_ENGINE])
def test_traffic_that_is_hard_to_cut(tmp_path: Path, name: str, count: int) -> None:
    path = tmp_path / "talk.pcap"
    path.write_bytes(pcap_bytes(encode(TALKS[name]()), nanoseconds=True))
    check([path], tmp_path, (count,))


@pytest.mark.parametrize("is_named", [True, False])
def test_names_that_come_later(tmp_path: Path, is_named: bool) -> None:
    """Another engine, or a split in the midst, shows the name of topics that others have by their ids."""
    path = tmp_path / "late.pcap"
    path.write_bytes(pcap_bytes(encode(late_talk(200, is_named=is_named).segments), nanoseconds=True))
    wanted = check([path], tmp_path, (2, 3))
    assert not differences(compared(join(cut_evenly(path, 5)).tables), compared(wanted))
    topics, ids = (wanted["results"][name] for name in ("topic", "topic_id"))
    assert pc.sum(pc.and_(pc.is_null(topics), pc.is_valid(ids))).as_py() == (1 if is_named else 401)


@pytest.mark.parametrize("name", ["apache-2.8", "apache-4.3-broker1-s128"])
def test_a_recording(corpus: Path, tmp_path: Path, name: str) -> None:
    path = tmp_path / f"{name}.pcap"
    path.write_bytes(read_bytes(corpus / "captures" / f"{name}.pcap.zst"))
    check([path], tmp_path, (3,))


@pytest.mark.parametrize(
    "options",
    [
        {"filter": "broker_time > 1ms and api != Fetch"},
        {"apis": ("Produce", "Fetch"), "clients": ("*a*",)},
        {"start": "+1s", "end": "+3s"},
    ],
)
def test_selections(samples: Path, tmp_path: Path, options: dict[str, Any]) -> None:
    times = {name: read_moment(options[name]) for name in ("start", "end") if name in options}
    check([unpacked(samples, "apache-4.3", tmp_path)], tmp_path, (3,), Selection.of(**{**options, **times}))


def test_lost_packets(samples: Path, tmp_path: Path) -> None:
    data, _ = PcapRecords(unpacked(samples, "apache-2.8", tmp_path)).drop(0.02, burst=2, seed=5)
    path = tmp_path / "lossy.pcap"
    path.write_bytes(data)
    check([path], tmp_path)


def test_damage_and_several_captures(samples: Path, tmp_path: Path) -> None:
    first, second = (unpacked(samples, name, tmp_path) for name in ("apache-4.3", "apache-2.8"))
    data = second.read_bytes()
    second.write_bytes(data[: PcapRecords(data).starts[-400] - 7])
    check([first, second], tmp_path)
    empty = tmp_path / "empty.pcap"
    empty.write_bytes(data[:24])
    (tmp_path / "none").mkdir()
    assert not check([empty], tmp_path / "none", (2,))["exchanges"].num_rows


# ---------------------------------------------------------------- complete files, or none


def older(folder: Path) -> dict[str, bytes]:
    """Make a folder with the files of an earlier run; return its contents."""
    folder.mkdir()
    for name in TABLES:
        (folder / f"{name}.parquet").write_bytes(b"older")
    return contents(folder)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_worker_that_is_killed(samples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = older(tmp_path / "out")
    spill = LocalTables.spill

    def killed(self: LocalTables, worker: int, name: str, table: Any) -> Any:
        if name == "connections":
            os.kill(os.getpid(), signal.SIGKILL)
        return spill(self, worker, name, table)

    monkeypatch.setattr(LocalTables, "spill", killed)
    with pytest.raises(WorkerEnded):
        write([unpacked(samples, "apache-4.3", tmp_path)], tmp_path / "out", 2)
    assert contents(tmp_path / "out") == before


def test_a_full_disk(samples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = older(tmp_path / "out")

    def full(*args: Any) -> Any:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(tmp_path / "out"))

    monkeypatch.setattr(LocalTables, "spill", full)
    with pytest.raises(OSError, match=f"No space left on device: '{tmp_path}/out'"):
        write([unpacked(samples, "apache-4.3", tmp_path)], tmp_path / "out", 2)
    assert contents(tmp_path / "out") == before


def test_connections_captured_at_both_ends(samples: Path, tmp_path: Path) -> None:
    """One process reads the captures then, and writes the same tables."""
    records = PcapRecords(unpacked(samples, "apache-2.8", tmp_path))
    paths = [tmp_path / "one.pcap", tmp_path / "two.pcap"]
    half = len(records) // 2
    paths[0].write_bytes(records.slice(0, half))
    paths[1].write_bytes(records.slice(half - 200, len(records)))
    with pytest.raises(OneEngineNeeded):
        write(paths, tmp_path / "none", 2)
    assert contents(tmp_path / "none") == {}
    found = kafkatap("report", "--jobs", "2", "--parquet", tmp_path / "out", *paths)
    assert found.code == 0
    assert "one process reads this input" in found.err
    assert not differences(compared(tables_in(tmp_path / "out")), compared(one_process(paths)))


def test_the_command(samples: Path, tmp_path: Path) -> None:
    paths = [unpacked(samples, name, tmp_path) for name in ("apache-4.3", "apache-2.8")]
    one, two = (
        kafkatap("report", "--json", "--jobs", jobs, "--parquet", tmp_path / jobs, *paths) for jobs in ("1", "2")
    )
    assert (two.code, two.out) == (0, one.out)
    assert "wrote exchanges.parquet, results.parquet, connections.parquet, files.parquet, ledger.parquet" in two.err
    assert not differences(*(compared(tables_in(tmp_path / jobs)) for jobs in ("2", "1")))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_run_that_is_ended(samples: Path, tmp_path: Path, number: int) -> None:
    assert kafkatap("report", "--parquet", tmp_path / "out", samples / "live-4.3.pcap.zst").code == 0
    before = contents(tmp_path / "out")
    path = unpacked(samples, "live-4.4", tmp_path)
    command = [*KAFKATAP, "report", "--jobs", "2", "--overwrite", "--parquet", tmp_path / "out", path]
    slow = environment() | {"NUMBA_DISABLE_JIT": "1"}
    with subprocess.Popen(command, env=slow, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        until(lambda: len(children_of(process.pid)) == 2, 60)
        process.send_signal(number)
        process.wait(60)
    found = contents(tmp_path / "out")
    assert {name: data for name, data in found.items() if not name.startswith(".")} == before
    if number == signal.SIGINT:
        assert found == before
