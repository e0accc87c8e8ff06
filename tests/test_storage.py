"""Files by path, folder, glob and URI: the same names whichever way a store is reached."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kafkatap.captures.capture_reader import CaptureReader
from kafkatap.captures.storage import absolute, expand, find, is_uri, open_input, size_of, without_credentials
from tests.support.captures import Packet, pcap_bytes, write_capture

FILES = (
    "a.pcap", "b.pcapng", "trace", "trace1", ".hidden.pcap", "_SUCCESS", "notes.txt", "_tmp/half.pcap", "day1/c.pcap",
    "day1/.c.pcap.crc", "day1/deep/d.pcap", "day2/c.pcap.gz", "odd [1]/e.pcap", "day2/f?.pcap",
)  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number, name in enumerate(FILES):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(bytes(number))
    return tmp_path


@pytest.mark.parametrize("scheme", ["", "file://"])
@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("", ["a.pcap", "b.pcapng", "trace", "trace1"]),
        ("day1", ["day1/c.pcap"]),
        ("day1/", ["day1/c.pcap"]),
        ("a.pcap", ["a.pcap"]),
        (".hidden.pcap", [".hidden.pcap"]),
        ("notes.txt", ["notes.txt"]),
        ("*.pcap", ["a.pcap"]),
        ("trace?", ["trace1"]),
        ("[ab].pcap*", ["a.pcap", "b.pcapng"]),
        ("[!a].pcap*", ["b.pcapng"]),
        ("day*/*", ["day1/c.pcap", "day2/c.pcap.gz", "day2/f?.pcap"]),
        ("*/*.pcap", ["day1/c.pcap", "day2/f?.pcap", "odd [1]/e.pcap"]),
        ("**/*.pcap", ["a.pcap", "day1/c.pcap", "day1/deep/d.pcap", "day2/f?.pcap", "odd [1]/e.pcap"]),
        ("day1/**/d.pcap", ["day1/deep/d.pcap"]),
        ("_tmp/*", ["_tmp/half.pcap"]),
        ("odd [1]/e.pcap", ["odd [1]/e.pcap"]),
        ("day2/f?.pcap", ["day2/f?.pcap"]),
    ],
)  # fmt: skip
def test_patterns(folder: Path, scheme: str, pattern: str, expected: list[str]) -> None:
    root = f"{scheme}{folder}/"
    assert expand(root + pattern) == sorted(root + name for name in expected)


def test_absolute_paths_and_patterns(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder / "day1")
    for relative in ("*.pcap", "../**/d.pcap", "./c.pcap", "../odd [1]/e.pcap"):
        named = absolute(relative)
        assert named.startswith(f"{folder}/")
        assert expand(named) == [str((folder / "day1" / path).resolve()) for path in expand(relative)]
        assert absolute(named) == named
    assert absolute("s3://bucket/x?region=a") == "s3://bucket/x?region=a"


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_a_pattern_that_matches_nothing_is_named(folder: Path, scheme: str) -> None:
    for name, why in (("*.cap", "no file matches"), ("none", "there is no such file"), ("odd*/x*", "no file matches")):
        with pytest.raises(FileNotFoundError) as caught:
            expand([f"{scheme}{folder}/a.pcap", f"{scheme}{folder}/{name}"])
        assert str(caught.value).startswith(f"{scheme}{folder}/{name}: {why}")


def test_an_empty_folder_matches_nothing(tmp_path: Path) -> None:
    (tmp_path / "_SUCCESS").touch()
    with pytest.raises(FileNotFoundError, match="the folder has no captures"):
        expand(str(tmp_path))


def test_each_file_once_and_in_order(folder: Path) -> None:
    found = find([f"{folder}/trace*", str(folder), f"{folder}/day1"])
    assert [f.path for f in found] == [
        f"{folder}/{n}" for n in ("a.pcap", "b.pcapng", "day1/c.pcap", "trace", "trace1")
    ]
    assert [f.size for f in found] == [FILES.index(f.path.removeprefix(f"{folder}/")) for f in found]
    assert all(f.modified == Path(f.path).stat().st_mtime_ns for f in found)
    there = find(folder.as_uri())
    assert [(f.size, f.modified) for f in there] == [(f.size, f.modified) for f in find(str(folder))]


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_reading(tmp_path: Path, scheme: str) -> None:
    path = f"{scheme}{tmp_path}/x y.pcap"
    (tmp_path / "x y.pcap").write_bytes(bytes(range(100)))
    assert size_of(path) == 100
    file = open_input(path)
    view = bytearray(40)
    assert file.seek(80) == 80
    assert file.readinto(view) == 20
    assert view[:20] == bytes(range(80, 100))
    assert file.tell() == 100
    assert file.readinto(view) == 0
    file.close()
    for missing in (size_of, open_input):
        with pytest.raises(FileNotFoundError, match="no-such"):
            missing(f"{scheme}{tmp_path}/no-such")


@pytest.mark.parametrize("ending", ["", ".gz", ".zst"])
def test_a_capture_by_uri(tmp_path: Path, ending: str) -> None:
    path = write_capture(tmp_path / f"a.pcap{ending}", pcap_bytes([Packet(10**18, bytes(99))] * 5))
    here, there = CaptureReader(str(path)), CaptureReader(path.as_uri())
    for reader in (here, there):
        while reader.fill():
            reader.position = reader.count
        reader.close()
    assert there.report.packets == 5
    assert there.report.bytes == here.report.bytes
    assert there.report.kind == here.report.kind


def test_an_unknown_store() -> None:
    with pytest.raises(OSError, match="nowhere://host"):
        expand("nowhere://host/a.pcap")
    assert not is_uri("C:/captures")
    assert not is_uri("a.pcap")


def test_local_paths_need_no_pyarrow(tmp_path: Path) -> None:
    (tmp_path / "a.pcap").touch()
    imports = "import sys; from kafkatap.captures.storage import expand"
    code = f"{imports}; expand({str(tmp_path)!r}); print('pyarrow' in sys.modules)"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert answer.stdout == "False\n"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("s3://key:secret@bucket/x.pcap?region=eu", "s3://bucket/x.pcap?region=eu"),
        ("s3://bucket/a@b.pcap", "s3://bucket/a@b.pcap"),
        ("/data/x@y.pcap: no", "/data/x@y.pcap: no"),
        ("cannot read hdfs://user@host:9000/x and s3a://k:s@b/y", "cannot read hdfs://host:9000/x and s3a://b/y"),
    ],
)
def test_credentials_are_not_shown(text: str, shown: str) -> None:
    assert without_credentials(text) == shown
