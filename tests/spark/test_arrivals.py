"""Which captures a stream reads, and when: each complete one once."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from kafkatap.captures.storage import File

pytest.importorskip("pyspark")

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxFiles

from kafkatap.spark.arrivals import Arrivals, Offset, complete, series


def test_a_file_is_complete_when_the_next_is_begun_or_nothing_comes() -> None:
    second = 10**9
    files = [
        File("/a/one-0001.pcap", 5, 100 * second),
        File("/a/one-0002.pcap", 5, 200 * second),
        File("/a/two-0001.pcap", 5, 150 * second),
        File("/b/one-0001.pcap", 5, 199 * second),
    ]
    assert series("/a/one-0001.pcap") == series("/a/one-0002.pcap") != series("/a/two-0001.pcap")
    assert complete(files, 60, 205) == [files[0]]
    assert complete(files, 60, 215) == [files[0], files[2]]
    assert complete(files, 60, 259) == [files[0], files[2], files[3]]
    assert complete(files, 60, 260) == [files[0], files[2], files[3], files[1]]


def put(path: Path, size: int, age: float) -> Path:
    """A file that was last written `age` seconds ago."""
    path.write_bytes(bytes(size))
    then = time.time() - age
    os.utime(path, (then, then))
    return path


def new(arrivals: Arrivals, start: Offset, end: Offset) -> list[tuple[str, int]]:
    """The rows of a batch, without the folder."""
    (partition,) = arrivals.partitions(start, end)
    return [(Path(path).name, size) for path, size in arrivals.read(partition)]


def test_captures_arrive_once(tmp_path: Path) -> None:
    """Also what grew after it was read; those that are deleted are forgotten."""
    arrivals = Arrivals((str(tmp_path),), quiet=8)
    start = arrivals.initialOffset()
    assert arrivals.latestOffset(start, ReadAllAvailable()) == {}
    first = put(tmp_path / "a-1.pcap", 10, 30)
    put(tmp_path / "notes.txt", 10, 30)
    put(tmp_path / "a-2.pcap", 10, 0)  # is still written
    end = arrivals.latestOffset(start, ReadAllAvailable())
    assert new(arrivals, start, end) == [("a-1.pcap", 10)]
    put(first, 30, 20)
    assert arrivals.latestOffset(end, ReadAllAvailable()) == end
    put(tmp_path / "a-2.pcap", 25, 10)
    first.unlink()
    later = arrivals.latestOffset(end, ReadAllAvailable())
    assert new(arrivals, end, later) == [("a-2.pcap", 25)]
    assert first.as_posix() not in later


def test_so_many_files_a_batch(tmp_path: Path) -> None:
    for n in range(3):
        put(tmp_path / f"a-{n}.pcap", 10, 500 - n)
    arrivals = Arrivals((str(tmp_path),), files=1)
    limit = arrivals.getDefaultReadLimit()
    assert isinstance(limit, ReadMaxFiles)
    seen = []
    start = arrivals.initialOffset()
    while (end := arrivals.latestOffset(start, limit)) != start:
        seen.append(new(arrivals, start, end))
        start = end
    assert seen == [[("a-0.pcap", 10)], [("a-1.pcap", 10)], [("a-2.pcap", 10)]]
