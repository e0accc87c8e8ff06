"""Parquet of a live capture: the rows of the tables, whatever files they come in, and whole files at any time."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from threading import Event

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import kafkatap
from kafkatap.engine.engine import Engine
from kafkatap.live.export import parquet_files
from kafkatap.live.export.parquet_files import GATHERED, ParquetLog
from kafkatap.live.governor import Governor
from kafkatap.live.memory_limits import MemoryLimits
from kafkatap.live.monitor import Monitor
from kafkatap.parquet.partitions import to_microseconds
from kafkatap.reports import units
from kafkatap.reports.batch import Batch

from .logged import log
from .support import SECOND, FileSource

SAMPLE = "apache-4.3.pcap.zst"
KEYS = {"exchanges": ["exchange"], "results": ["exchange"], "connections": ["connection"]}


def table(folder: Path, name: str) -> pa.Table:
    """All rows of a table, without their run, in order."""
    found = pq.read_table(folder / name).drop_columns("run")
    return ordered(found, name).replace_schema_metadata(None)


def ordered(rows: pa.Table, name: str) -> pa.Table:
    """By their number; results of one exchange as they come."""
    keys = [rows[key].to_numpy() for key in KEYS[name]]
    return rows.take(pa.array(np.lexsort([np.arange(len(rows)), *keys]))).combine_chunks()


def wanted(path: Path, name: str) -> pa.Table:
    rows = to_microseconds(getattr(kafkatap.analyze(path), name))
    return ordered(rows, name).replace_schema_metadata(None)


@pytest.mark.parametrize("rotate", [4 * SECOND, 60 * SECOND])
@pytest.mark.parametrize("sample", [SAMPLE, "apache-0.10.2.pcap.zst"])
def test_the_rows_are_those_of_the_tables(samples: Path, tmp_path: Path, sample: str, rotate: int) -> None:
    told: list[str] = []
    parquet = ParquetLog(tmp_path, rotate=rotate, notify=told.append)
    engine = log(samples / sample, parquet)
    assert told == []
    for name in KEYS:
        found = table(tmp_path, name)
        assert found.schema.equals(wanted(samples / sample, name).schema)
        assert without_late_names(found).equals(without_late_names(wanted(samples / sample, name)))
        assert parquet.written[name] == len(found)
    files = list(tmp_path.rglob("*"))
    assert not [f for f in files if f.name.startswith(".")]
    parts = [f for f in files if f.suffix == ".parquet" and f.parent.parent.name == "exchanges"]
    assert len(parts) > 5 if rotate == 4 * SECOND else 1 <= len(parts) <= 2
    assert {f.stat().st_mode & 0o777 for f in files if f.suffix == ".parquet"} == {0o600}
    ledger = pq.read_table(tmp_path / "ledger").group_by(["section", "part"]).aggregate([("count", "sum")]).to_pylist()
    counts = {(row["section"], row["part"]): row["count_sum"] for row in ledger}
    told_by_engine = {(s, p): n for s, parts in engine.ledger().items() for p, n in parts.items() if n}
    assert {k: n for k, n in counts.items() if n} == told_by_engine


def without_late_names(rows: pa.Table) -> pa.Table:
    """Without what depends on when a topic's name was told."""
    return rows.drop_columns([name for name in ("topic", "topics") if name in rows.column_names])


def test_topics_have_names_where_they_were_told_before(samples: Path, tmp_path: Path) -> None:
    log(samples / SAMPLE, ParquetLog(tmp_path))
    for name in ("exchanges", "results"):
        assert table(tmp_path, name).equals(wanted(samples / SAMPLE, name))


@pytest.mark.parametrize("rotate", [SECOND // 2, 60 * SECOND])
def test_rows_keep_their_names_when_names_are_forgotten(samples: Path, tmp_path: Path, rotate: int) -> None:
    """Bounds so tight that the numbers of names change every second."""
    path = samples / "live-4.3.pcap.zst"
    log(path, ParquetLog(tmp_path, rotate=rotate), MemoryLimits(strings=1, text=1, addresses=1))
    for name in KEYS:
        assert without_late_names(table(tmp_path, name)).equals(without_late_names(wanted(path, name)))
    topics = table(tmp_path, "results")["topic"]
    known = wanted(path, "results")["topic"]
    assert pc.all(pc.or_kleene(pc.equal(topics, known), pc.is_null(topics))).as_py()


def test_lean_runs_have_exchanges_too(samples: Path, tmp_path: Path) -> None:
    log(samples / SAMPLE, ParquetLog(tmp_path), all_results=False)
    found, known = table(tmp_path, "exchanges"), wanted(samples / SAMPLE, "exchanges")
    assert found.drop_columns("topics").equals(known.drop_columns("topics"))
    assert set(table(tmp_path, "results")["error_code"].to_pylist()) == {
        code for code in wanted(samples / SAMPLE, "results")["error_code"].to_pylist() if code
    }


def test_pandas_has_the_run_as_a_column(samples: Path, tmp_path: Path) -> None:
    logs = [ParquetLog(tmp_path) for _ in range(2)]
    for parquet in logs:
        log(samples / SAMPLE, parquet)
    assert logs[0].run != logs[1].run
    frame = pd.read_parquet(tmp_path / "exchanges")
    counts = frame["run"].astype(str).value_counts().to_dict()
    assert counts == {parquet.run: len(wanted(samples / SAMPLE, "exchanges")) for parquet in logs}
    assert frame["request_first"].dtype == "datetime64[us, UTC]"


def test_a_file_ends_with_so_many_rows(samples: Path, tmp_path: Path) -> None:
    parquet = ParquetLog(tmp_path, rows=10_000)
    source = FileSource(str(samples / SAMPLE), 100 * SECOND)
    engine = Engine(all_results=True)
    batches: list[Batch] = []
    for buffer, packets, count in source.blocks():
        batches += engine.take(buffer, packets, 0, count)
    source.wait(0)
    for buffer, packets, count in source.blocks():
        batches += engine.take(buffer, packets, 0, count)
    rows = sum(len(b.exchanges) for b in batches)
    most = 0
    for _ in range(30):
        for batch in batches:
            parquet.add_batch(batch, engine)
            parquet.settle()
            most = max(most, parquet._gathered)
    parquet.close(engine)
    files = sorted((tmp_path / "exchanges").rglob("*.parquet"))
    assert 2 < len(files) <= 30 * rows // 10_000 + 1
    assert sum(pq.read_metadata(f).num_rows for f in files) == 30 * rows
    assert most < GATHERED + 1


# ---------------------------------------------------------------- ends that come early

CHILD = """
import sys, time
from tests.live.support import FileSource
from kafkatap.engine.engine import Engine
from kafkatap.live.export import parquet_files

parquet_files.GATHERED = 500
path, out = sys.argv[1:]
parquet = parquet_files.ParquetLog(out, rotate=10_000_000_000)
engine = Engine(all_results=True)
now = 0
while True:
    source = FileSource(path, 2_000_000_000)
    while not source.over:
        source.wait(1)
        for buffer, packets, count in source.blocks():
            for batch in engine.take(buffer, packets, 0, count):
                parquet.add_batch(batch, engine)
        now += 500_000_000
        parquet.end_second(now, None, engine)
        parquet.settle()
        print(parquet.written["exchanges"], flush=True)
"""


def test_a_killed_run_leaves_whole_files_and_the_next_one_tidies(samples: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-c", CHILD, str(samples / SAMPLE), str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]) as child:
        assert child.stdout is not None
        while int(child.stdout.readline()) < 1000 or not hidden_while_stopped(child, tmp_path):
            os.kill(child.pid, signal.SIGCONT)
        running = ParquetLog(tmp_path)  # beside the other one
        os.kill(child.pid, signal.SIGKILL)
        rest = [int(line) for line in child.stdout.read().split("\n")[:-1]]
    hidden = list(tmp_path.rglob(".part-*"))
    frame = pd.read_parquet(tmp_path / "exchanges")
    assert len(frame) >= (rest[-1] if rest else 1000)
    assert sorted(frame["exchange"].unique()) == sorted(frame["exchange"])
    for name in ("results", "connections", "ledger"):
        if (tmp_path / name).exists():
            pd.read_parquet(tmp_path / name)
    log(samples / SAMPLE, running)
    parquet = ParquetLog(tmp_path)
    assert hidden
    assert not [path for path in hidden if path.exists()]
    log(samples / SAMPLE, parquet)
    assert pd.read_parquet(tmp_path / "exchanges")["run"].nunique() == 3


def hidden_while_stopped(child: subprocess.Popen[str], folder: Path) -> bool:
    """Stop a child; whether files are there that it has not finished."""
    assert child.poll() is None
    os.kill(child.pid, signal.SIGSTOP)
    os.waitpid(child.pid, os.WUNTRACED)
    return any(folder.rglob(".part-*"))


def test_files_of_a_run_that_goes_on_are_left_alone(samples: Path, tmp_path: Path) -> None:
    first = ParquetLog(tmp_path)
    source, engine = FileSource(str(samples / SAMPLE), 100 * SECOND), Engine(all_results=True)
    source.wait(0)
    for buffer, packets, count in source.blocks():
        for batch in engine.take(buffer, packets, 0, count):
            first.add_batch(batch, engine)
    first.resolve_names(engine)
    first.settle()
    hidden = set(tmp_path.rglob(".part-*"))
    assert hidden
    log(samples / SAMPLE, ParquetLog(tmp_path))
    assert set(tmp_path.rglob(".part-*")) == hidden
    first.close(engine)
    assert pd.read_parquet(tmp_path / "exchanges")["run"].nunique() == 2


def test_a_full_disk_is_told_once_and_later_files_are_whole(samples: Path, tmp_path: Path) -> None:
    told: list[str] = []
    parquet = ParquetLog(tmp_path, rotate=5 * SECOND, notify=told.append)
    source = FileSource(str(samples / SAMPLE))
    engine = Engine(all_results=True)
    monitor = Monitor(source, engine, sinks=[parquet], clock=source.clock, governor=Governor(None))
    begin = source.now
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)

    def steps(until: int) -> None:
        while not source.over and source.now < begin + until * SECOND:
            source.wait(0.1)
            monitor.step()
            parquet.settle()

    steps(20)
    rows = parquet.written["exchanges"]
    assert rows > 0
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        steps(40)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert parquet.written["exchanges"] == rows
    steps(100)
    monitor.finish()
    assert parquet.written["exchanges"] > rows
    assert len(pd.read_parquet(tmp_path / "exchanges")) == parquet.written["exchanges"]
    assert [("the capture continues" in text, "could not be written" in text) for text in told] == [
        (True, False), (False, True),
    ]  # fmt: skip
    assert not list(tmp_path.rglob(".*"))
    missing = len(wanted(samples / SAMPLE, "exchanges")) - parquet.written["exchanges"]
    assert 0 < missing <= parquet.lost


def test_the_newest_files_are_kept_over_all_runs(samples: Path, tmp_path: Path) -> None:
    """The files of one number go together, and so do folders that are empty then. Nothing else goes, and no link is
    followed."""
    folder, far = tmp_path / "tables", tmp_path / "far" / "run=20251121T174501Z"
    far.mkdir(parents=True)
    (far / "part-000001.parquet").write_bytes(bytes(1 << 20))
    first = ParquetLog(folder, rotate=10 * SECOND)
    log(samples / SAMPLE, first)
    whole = sum(f.stat().st_size for f in folder.rglob("*.parquet"))
    (folder / "exchanges" / far.name).symlink_to(far)
    (folder / "results" / "mine.parquet").write_bytes(bytes(1 << 20))
    told: list[str] = []
    limit = whole * 3 // 4
    for _ in range(3):
        parquet = ParquetLog(folder, rotate=10 * SECOND, limit=limit, notify=told.append)
        log(samples / SAMPLE, parquet)
        files = [f for f in folder.rglob("part-*.parquet") if f.resolve().is_relative_to(folder)]
        assert limit // 2 < sum(f.stat().st_size for f in files) <= limit
    runs = {f.parent.name for f in files}
    assert runs == {f"run={parquet.run}"}
    for table in KEYS:
        assert {p.name for p in (folder / table).iterdir()} - {far.name, "mine.parquet"} == runs
    numbers = {f.name for f in files}
    assert [f.name for f in sorted(folder.glob(f"exchanges/run={parquet.run}/*"))] == sorted(numbers)
    assert told[0] == f"{units.size(limit)} are on disk in {folder}: the oldest files are removed"
    assert len(told) == 3
    assert (far / "part-000001.parquet").exists()
    assert (folder / "results" / "mine.parquet").exists()
    ParquetLog(folder, age=0).close(Engine())
    assert not [f for f in folder.rglob("part-*.parquet") if f.resolve().is_relative_to(folder)]


def test_a_disk_that_waits_stops_nothing(samples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows without room are lost, of all tables alike, and counted."""
    waits, write = Event(), parquet_files._Part.write

    def slow(part: parquet_files._Part, table: pa.Table) -> None:
        waits.wait(30)
        write(part, table)

    monkeypatch.setattr(parquet_files._Part, "write", slow)
    monkeypatch.setattr(parquet_files, "GATHERED", 200)
    monkeypatch.setattr(parquet_files, "ROOM", 300_000)
    told: list[str] = []
    parquet = ParquetLog(tmp_path, notify=told.append)
    source, engine = FileSource(str(samples / SAMPLE)), Engine(all_results=True)
    monitor = Monitor(source, engine, sinks=[parquet], clock=source.clock, governor=Governor(None))
    while not source.over:
        source.wait(0.1)
        monitor.step()
    waits.set()
    monitor.finish()
    exchanges, results = table(tmp_path, "exchanges"), pd.read_parquet(tmp_path / "results")
    assert 0 < len(exchanges) < len(wanted(samples / SAMPLE, "exchanges"))
    assert set(results["exchange"]) <= set(exchanges["exchange"].to_pylist())
    rows = sum(len(wanted(samples / SAMPLE, name)) for name in KEYS)
    assert parquet.lost == rows - sum(parquet.written[name] for name in KEYS)
    assert told == [
        f"{tmp_path}: the disk is slower than rows arrive: some rows of tables are lost",
        f"{tmp_path}: {parquet.lost:,} rows of tables could not be written",
    ]


def test_files_that_are_removed_end_nothing(samples: Path, tmp_path: Path) -> None:
    """Also hidden ones, while they are written: their rows are lost, a line says so, and the next files are whole."""
    told: list[str] = []
    parquet = ParquetLog(tmp_path / "tables", rotate=2 * SECOND, notify=told.append)
    source, engine = FileSource(str(samples / SAMPLE)), Engine(all_results=True)
    monitor = Monitor(source, engine, sinks=[parquet], clock=source.clock, governor=Governor(None))
    removed = False
    while not source.over:
        source.wait(0.1)
        monitor.step()
        parquet.resolve_names(engine)
        parquet.settle()
        if not removed and list((tmp_path / "tables").rglob(".part-*")) and parquet.written["exchanges"]:
            shutil.rmtree(tmp_path / "tables")
            removed = True
    monitor.finish()
    assert removed
    assert "the capture continues" in told[0]
    assert parquet.lost > 0
    assert list((tmp_path / "tables" / "exchanges").rglob("part-*.parquet"))


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="file"):
        ParquetLog(tmp_path / "file" / "tables")
    with pytest.raises(OSError, match="file"):
        ParquetLog(tmp_path / "file")
