"""Captures by path, folder and glob, in the commands and in the library; very many of them; pipes of every kind."""

from __future__ import annotations

import cProfile
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from kafkatap import analyze
from kafkatap.captures.merged_captures import PIPE_PACKETS
from kafkatap.captures.paths import find_captures
from kafkatap.captures.pipes import is_pipe
from kafkatap.engine.engine import Engine
from kafkatap.run import Run
from tests.cli.running import environment, kafkatap
from tests.support.captures import pcap_bytes, read_bytes
from tests.support.tcp import encode
from tests.wire.kafkatalk import small_talk

PACKETS = encode(small_talk(8, mss=60).segments)


@pytest.fixture
def folder(samples: Path, tmp_path: Path) -> Path:
    """Three captures, one of which is damaged, and what lies beside captures."""
    for name in ("apache-2.8.pcap.zst", "apache-0.8.2.pcap.zst", "apache-2.8.exchanges.tsv", "README.md"):
        shutil.copy(samples / name, tmp_path)
    (tmp_path / "ring12").write_bytes(pcap_bytes(PACKETS))
    (tmp_path / "cut.pcap.gz").write_bytes(b"\x1f\x8b")
    (tmp_path / "table.tsv.zst").write_bytes((samples / "apache-4.3.pcap.zst").read_bytes()[:4] + b"no")
    (tmp_path / "notes").write_text("no capture\n")
    (tmp_path / ".hidden.pcap").write_bytes(pcap_bytes(PACKETS))
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "deep.pcap").write_bytes(pcap_bytes(PACKETS))
    return tmp_path


CAPTURES = ["apache-0.8.2.pcap.zst", "apache-2.8.pcap.zst", "cut.pcap.gz", "ring12"]


def names(paths: list[str]) -> list[str]:
    return [Path(path).name for path in paths]


def test_a_folder_means_its_captures(folder: Path) -> None:
    assert names(find_captures([str(folder)])) == CAPTURES
    assert names(find_captures([str(folder / "ring12"), str(folder)])) == ["ring12", *CAPTURES[:3]]


def test_globs_are_expanded_unless_a_file_has_that_name(folder: Path) -> None:
    assert names(find_captures([str(folder / "*.zst")])) == [*CAPTURES[:2], "table.tsv.zst"]
    assert names(find_captures([str(folder / "**/*.pcap")])) == ["deep.pcap"]
    (folder / "a[1].pcap").write_bytes(b"")
    assert names(find_captures([str(folder / "a[1].pcap")])) == ["a[1].pcap"]


def test_what_is_not_there(folder: Path) -> None:
    assert find_captures(["nothing.pcap", "-"]) == ["nothing.pcap", "-"]
    (folder / "empty").mkdir()
    for path, said in (("*.cap", "no file matches"), ("empty", "there is no capture in this folder")):
        with pytest.raises(FileNotFoundError, match=said):
            find_captures([str(folder / path)])
        with pytest.raises(FileNotFoundError, match=said):
            analyze(folder / path)


@pytest.mark.parametrize("command", ["report", "show --brief", "records"])
@pytest.mark.parametrize("named", [".", "*[2t]", "cut.pcap.gz * --no-progress"])
def test_every_command_takes_folders_and_globs(folder: Path, command: str, named: str) -> None:
    if "*" in named:
        for name in ("README.md", "notes", "table.tsv.zst", "apache-2.8.exchanges.tsv"):
            (folder / name).unlink()
    done = kafkatap(*command.split(), "--json", *named.split(), cwd=folder)
    paths = [name for name in CAPTURES if named[0] != "*" or name[-1] in "2t"]
    wanted = kafkatap(*command.split(), "--json", *paths, cwd=folder)
    assert (done.code, done.err) == (
        wanted.code,
        wanted.err if named != "." else wanted.err.replace(" cut.pcap", " ./cut.pcap"),
    )
    assert done.out.replace("./", "") == wanted.out != ""


def test_the_library_too(folder: Path) -> None:
    (folder / "cut.pcap.gz").unlink()
    assert names(list(analyze(folder).captures)) == [*CAPTURES[:2], "ring12"]
    assert analyze([folder / "ring*"]).exchanges.equals(analyze(folder / "ring12").exchanges)


def test_many_files_take_time_in_proportion(tmp_path: Path) -> None:
    """Ten times as many files take ten times as many calls of functions, also those that overlap."""
    shift = PACKETS[-1].time_ns - PACKETS[0].time_ns

    def calls(count: int) -> int:
        paths = []
        for number in range(count):
            path = tmp_path / f"{number}.pcap"
            if not path.exists():
                by = number * shift // 2
                path.write_bytes(pcap_bytes([p.__class__(p.time_ns + by, p.data) for p in PACKETS[:4]]))
            paths.append(str(path))
        run = Run(paths, Engine(), threaded=False)
        profile = cProfile.Profile()
        profile.enable()
        for _ in run.batches():
            pass
        profile.disable()
        assert len(run.files) == count
        return sum(entry.callcount for entry in profile.getstats())

    calls(20)
    assert calls(1_500) < 12 * calls(150)


@contextmanager
def pipe_of(data: bytes, path: Path) -> Iterator[Path]:
    """A named pipe that `data` is written into."""
    os.mkfifo(path)

    def write() -> None:
        with suppress(BrokenPipeError):
            path.write_bytes(data)

    writer = threading.Thread(target=write)
    writer.start()
    yield path
    writer.join(10)
    assert not writer.is_alive()
    path.unlink()


SAMPLE = "apache-2.8.pcap.zst"


@pytest.mark.parametrize("command", ["report", "show", "records", "show --brief"])
def test_every_command_reads_what_a_shell_pipes(command: str, samples: Path) -> None:
    """`<(command)`, compressed and not, says what `-` says."""
    wanted = kafkatap(*command.split(), "--json", "-", stdin=read_bytes(samples / SAMPLE))
    assert wanted.code == 0
    for source in (f"cat {samples / SAMPLE}", f"zstd -dc {samples / SAMPLE}"):
        if source.startswith("zstd") and shutil.which("zstd") is None:
            continue
        line = f"exec {sys.executable} -m kafkatap {command} --json <({source})"
        done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, env=environment(), check=False)
        assert (done.returncode, done.stderr) == (0, "")
        if command != "report":
            assert done.stdout == wanted.out
            continue
        ours, theirs = json.loads(done.stdout), json.loads(wanted.out)
        assert ours["reports"]["latency"] == theirs["reports"]["latency"]


def test_tables_and_iterators_of_a_named_pipe(samples: Path, tmp_path: Path) -> None:
    data, whole = (samples / SAMPLE).read_bytes(), analyze(samples / SAMPLE)
    with pipe_of(data, tmp_path / "1.pcap") as path:
        piped = analyze(path)
        assert piped.exchanges.equals(whole.exchanges)
        assert piped.results.equals(whole.results)
        assert piped.connections.equals(whole.connections)
        with pytest.raises(ValueError, match="only once"):
            piped.report()
    with pipe_of(data, tmp_path / "2.pcap") as path:
        piped = analyze(path)
        told = sorted(piped.messages(body=False), key=lambda m: (m["exchange"], m["direction"]))
        wanted = sorted(whole.messages(body=False), key=lambda m: (m["exchange"], m["direction"]))
        assert [m["exchange"] for m in told] == [m["exchange"] for m in wanted]
        assert piped.ledger.equals(whole.ledger)
    with pipe_of(data, tmp_path / "3.pcap") as path:
        assert [m["api_name"] for m in analyze(path, filter="api == Metadata").messages()].count("Metadata") > 2
    with pipe_of(data, tmp_path / "4.pcap") as path:
        assert sum(t.num_rows for t in analyze(path).record_tables()) == whole.records.num_rows
    with pipe_of(data, tmp_path / "5.pcap") as path:
        assert analyze(path).report().table("latency").rows == whole.report().table("latency").rows


def test_a_pipe_beside_captures_that_overlap_it(tmp_path: Path) -> None:
    """All packets are read, and none has the number of another."""
    shifted = [p.__class__(p.time_ns + 1_000, p.data) for p in PACKETS]
    (tmp_path / "file.pcap").write_bytes(pcap_bytes(PACKETS, nanoseconds=True))
    with pipe_of(pcap_bytes(shifted, nanoseconds=True), tmp_path / "pipe") as path:
        assert is_pipe(str(path))
        files = analyze([path, tmp_path / "file.pcap"]).files.to_pylist()
    assert [f["packets"] for f in files] == [len(PACKETS)] * 2
    assert sorted(f["first_packet"] for f in files) == [1, 1 + len(PACKETS)]
    with pipe_of(pcap_bytes(PACKETS, nanoseconds=True), tmp_path / "pipe") as path:
        (tmp_path / "file.pcap").write_bytes(pcap_bytes(shifted, nanoseconds=True))
        files = analyze([path, tmp_path / "file.pcap"]).files.to_pylist()
    assert sorted(f["first_packet"] for f in files) == [1, 1 + PIPE_PACKETS]
