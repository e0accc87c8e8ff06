"""Parquet files are written while a capture is read: the same rows in the same order as the tables of the library, and
no file that looks complete unless it is."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import kafkatap.commands.report.command as report_command
import kafkatap.run as run_module
from kafkatap import output_file
from kafkatap.__main__ import main
from kafkatap.engine.engine import Engine
from kafkatap.engine.selection import EVERYTHING, Selection
from kafkatap.library import Analysis
from kafkatap.parquet import parquet_files
from kafkatap.parquet.parquet_files import ParquetFiles
from kafkatap.parquet.row_groups import RowGroupQueue
from kafkatap.parquet.table_writer import TableWriter
from kafkatap.run import Run
from tests.cli.running import KAFKATAP, ROOT, environment
from tests.support.captures import pcap_bytes, read_bytes
from tests.support.record_talk import NAMELESS_ID, ORDERS, ORDERS_ID, fetch, produce, write_talk
from tests.support.records import Record, batch
from tests.support.tcp import encode
from tests.wire.kafkatalk import METADATA, KafkaTalk

TABLES = ("exchanges", "results", "connections", "files", "ledger")
SAMPLE = "apache-4.3.pcap.zst"
#: The folder before a run.
OLDER = {f"{name}.parquet": b"PAR1, written_by_kafkatap" for name in TABLES}


def write_tables(
    paths: Sequence[Path],
    folder: Path,
    gathered_bytes: int,
    selection: Selection = EVERYTHING,
    block_size: int = 50_000,
) -> None:
    """Write the tables of captures as `kafkatap report --parquet` does."""
    options = selection.engine_options
    engine = Engine(all_results=True, inspectors=options.inspectors, apis=options.apis, measures=True)
    run = Run(list(map(str, paths)), engine, block_size=block_size)
    folder.mkdir(exist_ok=True)
    with TableWriter(folder, run, gathered_bytes) as writer:
        for rows in selection.apply(writer.batches(), engine):
            writer.add(rows)
        writer.publish(writer.context())


def assert_same_tables(
    folder: Path, paths: Sequence[Path], selection: Selection = EVERYTHING, block_size: int = 50_000
) -> dict[str, pa.Table]:
    """Check that the files in `folder` have the rows of the library's tables, and no other file is there."""
    assert sorted(os.listdir(folder)) == sorted(f"{name}.parquet" for name in TABLES)
    whole = Analysis(paths, selection=selection, block_size=block_size)
    found = {name: pq.read_table(folder / f"{name}.parquet") for name in TABLES}
    for name, table in found.items():
        table.validate(full=True)
        assert table.schema.equals(getattr(whole, name).schema), name
        assert table.equals(getattr(whole, name)), name
    return found


@pytest.fixture
def older(tmp_path: Path) -> Path:
    """A folder with the files of an earlier run."""
    folder = tmp_path / "tables"
    folder.mkdir()
    for name, data in OLDER.items():
        (folder / name).write_bytes(data)
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


# ---------------------------------------------------------------- the same rows


@pytest.mark.parametrize("gathered_bytes", [1, 30_000, 1 << 20])
def test_rows_are_those_of_the_library(
    samples: Path, tmp_path: Path, gathered_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet_files, "GROUP_ROWS", 100)
    path = samples / SAMPLE
    write_tables([path], tmp_path / "t", gathered_bytes)
    assert_same_tables(tmp_path / "t", [path])
    groups = pq.read_metadata(tmp_path / "t" / "exchanges.parquet").num_row_groups
    assert groups > 4 if gathered_bytes < 1 << 20 else groups == 1


def test_several_captures_and_a_selection(samples: Path, tmp_path: Path) -> None:
    paths = [samples / SAMPLE, samples / "live-4.3.pcap.zst"]
    write_tables(paths, tmp_path / "all", 20_000)
    assert_same_tables(tmp_path / "all", paths)
    selection = Selection.of(filter="api == Fetch or error")
    write_tables(paths, tmp_path / "some", 20_000, selection)
    assert_same_tables(tmp_path / "some", paths, selection)


def test_a_capture_without_kafka(tmp_path: Path) -> None:
    """All files are there, with their columns."""
    path = tmp_path / "empty.pcap"
    path.write_bytes(pcap_bytes([]))
    write_tables([path], tmp_path / "t", 1)
    found = assert_same_tables(tmp_path / "t", [path])
    assert found["exchanges"].num_rows == 0


def test_a_file_name_that_is_not_unicode(tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"caf\xe9.pcap")
    path.write_bytes(pcap_bytes([]))
    write_tables([path], tmp_path / "t", 1)
    assert pq.read_table(tmp_path / "t" / "files.parquet")["path"].to_pylist() == [f"{tmp_path}/caf\\udce9.pcap"]


# ---------------------------------------------------------------- names that come later


def late_talk(repeat: int, *, is_named: bool = True) -> KafkaTalk:
    """Fetches by topic id, then the Metadata response with the name, then more of both."""
    talk = KafkaTalk(client_id="reader")
    talk.tcp.open()
    field = batch([Record(b"key", b"value", 1_704_067_200_000)])
    for number in range(repeat):
        fetch(talk, 10 * number, 13, field)
        produce(talk, 10 * number + 1, 8, field)
    if is_named:
        asked = talk.request(METADATA, 10, 1_000_000)
        talk.respond(asked, Topics=[{"Name": ORDERS, "TopicId": ORDERS_ID}])
    for number in range(repeat, 2 * repeat):
        fetch(talk, 10 * number, 13, field)
        produce(talk, 10 * number + 1, 8, field)
    fetch(talk, 20 * repeat, 13, field, topic_id=NAMELESS_ID)
    for number in range(2 * repeat, 3 * repeat):
        produce(talk, 10 * number + 1, 8, field)
    talk.tcp.close()
    return talk


@pytest.fixture
def waiting(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many row groups waited for names, after each change."""
    lengths: list[int] = []

    def counted(do: Any) -> Any:
        def do_and_count(self: RowGroupQueue, *args: Any) -> Any:
            result = do(self, *args)
            lengths.append(len(self))
            return result

        return do_and_count

    monkeypatch.setattr(RowGroupQueue, "put", counted(RowGroupQueue.put))
    monkeypatch.setattr(RowGroupQueue, "take", counted(RowGroupQueue.take))
    return lengths


def test_rows_before_the_name_have_it(tmp_path: Path, waiting: list[int]) -> None:
    path = tmp_path / "late.pcap"
    path.write_bytes(pcap_bytes(encode(late_talk(200).segments), nanoseconds=True))
    write_tables([path], tmp_path / "t", 2_000, block_size=5_000)
    found = assert_same_tables(tmp_path / "t", [path], block_size=5_000)
    named = set(found["results"]["topic"].to_pylist())
    assert ORDERS in named
    assert set(found["results"]["topic_id"].drop_null().to_pylist()) == {
        "AAECAwQFBgcICQoLDA0ODw",
        "EBESExQVFhcYGRobHB0eHw",
    }
    assert max(waiting) > 10, "row groups waited for the name"
    assert waiting.count(0) == 2, "and were written when it came; those with the nameless topic at the end"
    assert waiting[-1] == 0


def test_a_name_that_never_comes(tmp_path: Path, waiting: list[int]) -> None:
    path = tmp_path / "never.pcap"
    path.write_bytes(pcap_bytes(encode(late_talk(100, is_named=False).segments), nanoseconds=True))
    write_tables([path], tmp_path / "t", 2_000, block_size=5_000)
    found = assert_same_tables(tmp_path / "t", [path], block_size=5_000)
    by_id = pc.and_(pc.is_null(found["results"]["topic"]), pc.is_valid(found["results"]["topic_id"]))
    assert pc.sum(by_id).as_py() == 201
    assert waiting.count(0) == 1


def test_records_wait_for_nothing(tmp_path: Path, waiting: list[int]) -> None:
    write_talk(tmp_path / "talk.pcap")
    write_tables([tmp_path / "talk.pcap"], tmp_path / "t", 1)
    assert_same_tables(tmp_path / "t", [tmp_path / "talk.pcap"])
    assert waiting


# ---------------------------------------------------------------- complete files, or none


def test_files_appear_together(tmp_path: Path) -> None:
    table = pa.table({"x": [1, 2, 3]})
    (tmp_path / "a.parquet").write_bytes(OLDER["exchanges.parquet"])
    with ParquetFiles(tmp_path, "ab") as files:
        files.write("a", table)
        files.write("b", table)
        assert contents(tmp_path)["a.parquet"] == OLDER["exchanges.parquet"]
        with pytest.raises(OSError, match=r"another run of kafkatap writes this file: .*a\.parquet"):
            ParquetFiles(tmp_path, "a")
        assert [path.name for path in files.publish()] == ["a.parquet", "b.parquet"]
    assert sorted(os.listdir(tmp_path)) == ["a.parquet", "b.parquet"]
    with ParquetFiles(tmp_path, "a") as files:  # not published
        files.write("a", table.slice(1))
    assert sorted(os.listdir(tmp_path)) == ["a.parquet", "b.parquet"]
    assert pq.read_table(tmp_path / "a.parquet").equals(table)


def test_a_file_system_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def flock(file: Any, operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(output_file.fcntl, "flock", flock)
    with ParquetFiles(tmp_path, "a") as files:
        files.write("a", pa.table({"x": [1]}))
        files.publish()
    assert pq.read_table(tmp_path / "a.parquet").num_rows == 1


def test_a_killed_run_leaves_no_complete_file(older: Path) -> None:
    (older / ".exchanges.parquet.part").write_bytes(b"what a killed run left")
    with ParquetFiles(older, ["exchanges"]) as files:
        files.write("exchanges", pa.table({"x": [1]}))
        files.publish()
    assert pq.read_table(older / "exchanges.parquet").num_rows == 1
    assert sorted(os.listdir(older)) == sorted(OLDER)


def press(monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    """Press Ctrl-C while the third part of a capture is dissected."""
    dissect, parts = Engine.dissect, []

    def dissect_and_press(self: Engine, part: Any) -> Any:
        parts.append(part)
        if len(parts) == 3:
            for _ in range(times):
                signal.raise_signal(signal.SIGINT)
        yield from dissect(self, part)

    monkeypatch.setattr(Engine, "dissect", dissect_and_press)
    monkeypatch.setattr(report_command, "Run", partial(run_module.Run, block_size=100_000))
    monkeypatch.setattr(TableWriter.__init__, "__defaults__", (10_000, False))


@pytest.mark.parametrize("times", [1, 2])
def test_interrupted(
    samples: Path, older: Path, times: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    press(monkeypatch, times)
    assert main(["report", str(samples / SAMPLE), "--parquet", str(older)]) == 130
    assert contents(older) == OLDER
    said = "kafkatap: interrupted: the report covers only what was read before; no tables were written\n"
    assert capsys.readouterr().err == (said if times == 1 else "")


def test_interrupted_records(
    samples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    press(monkeypatch, 1)
    assert main(["records", str(samples / SAMPLE), "-o", str(tmp_path / "r.parquet")]) == 130
    assert os.listdir(tmp_path) == []
    assert capsys.readouterr().err == "kafkatap: interrupted: no file was written\n"


def on_pipe(folder: Path, data: bytes, number: int) -> tuple[int, str]:
    """Run a report of a pipe that has sent `data`; send the signal. Return the exit code and standard error."""
    process = subprocess.Popen(
        [*KAFKATAP, "report", "-", "--parquet", str(folder)], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE, cwd=ROOT, env=environment(),
    )  # fmt: skip
    assert process.stdin is not None
    process.stdin.write(data)
    process.stdin.flush()
    time.sleep(1.5)
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    return process.returncode, err.decode()


def test_ctrl_c_ends_a_pipe(samples: Path, older: Path) -> None:
    """It is how a user ends one, so the tables are those of what came."""
    code, err = on_pipe(older, read_bytes(samples / SAMPLE)[:200_000], signal.SIGINT)
    assert code == 130
    assert "wrote exchanges.parquet" in err
    assert pq.read_table(older / "exchanges.parquet").num_rows > 100
    assert sorted(os.listdir(older)) == sorted(OLDER)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_killed(samples: Path, older: Path, number: int) -> None:
    code, _ = on_pipe(older, read_bytes(samples / SAMPLE)[:200_000], number)
    assert code == -number
    assert {name: data for name, data in contents(older).items() if not name.startswith(".")} == OLDER


def test_a_write_that_fails(
    samples: Path, older: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The report is complete; the files of the earlier run are as they were."""
    write, tables = ParquetFiles.write, []

    def write_or_fail(self: ParquetFiles, name: str, table: pa.Table) -> None:
        tables.append(name)
        if len(tables) == 4:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(older / "results.parquet"))
        write(self, name, table)

    monkeypatch.setattr(ParquetFiles, "write", write_or_fail)
    monkeypatch.setattr(TableWriter.__init__, "__defaults__", (10_000, False))
    assert main(["report", str(samples / SAMPLE), "--parquet", str(older)]) == 2
    out, err = capsys.readouterr()
    assert "requests" in out
    assert err == f"kafkatap: {older}/results.parquet: no space left on device\n"
    assert contents(older) == OLDER
    assert len(tables) == 4


def test_a_folder_that_another_run_writes_to(samples: Path, older: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The second run says so at once."""
    with ParquetFiles(older, ["results"]):
        assert main(["report", str(samples / SAMPLE), "--parquet", str(older)]) == 2
    out, err = capsys.readouterr()
    assert (out, err) == ("", f"kafkatap: {older}/results.parquet: another run of kafkatap writes this file\n")
    assert contents(older) == OLDER


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("mount") is None, reason="mounts a small file system")
@pytest.mark.parametrize("is_named", [True, False])
def test_a_full_disk(tmp_path: Path, is_named: bool, capsys: pytest.CaptureFixture[str]) -> None:
    """It is full of tables, or already of the rows that wait for names."""
    path, folder = tmp_path / "many.pcap", tmp_path / "full"
    path.write_bytes(pcap_bytes(encode(late_talk(2_000, is_named=is_named).segments), nanoseconds=True))
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k", "none", str(folder)], check=False)
    if mounted.returncode != 0:
        pytest.skip("cannot mount here")
    try:
        assert main(["report", str(path), "--parquet", str(folder)]) == 2
        assert "no space left on device" in capsys.readouterr().err
        assert os.listdir(folder) == []
    finally:
        subprocess.run(["umount", str(folder)], check=True)
