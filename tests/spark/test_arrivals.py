"""Which captures a stream reads, and when: each complete one once, in bounded batches."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kafkatap.captures.storage import File

pytest.importorskip("pyspark")

from pyspark.sql.streaming.datasource import ReadAllAvailable

from kafkatap.spark.arrival_log import Arrival, ArrivalLog
from kafkatap.spark.arrival_source import Arrivals
from kafkatap.spark.arrivals import complete, first_part, ripe, series

SECOND = 10**9
#: The time of the first packet of `capture(0)`, s.
START = 1_795_233_600


def test_a_file_is_complete_when_the_next_is_begun_or_nothing_comes() -> None:
    files = [
        File("/a/one-0001.pcap", 5, 100 * SECOND),
        File("/a/one-0002.pcap", 5, 200 * SECOND),
        File("/a/two-0001.pcap", 5, 150 * SECOND),
        File("/b/one-0001.pcap", 5, 199 * SECOND),
    ]
    assert series("/a/one-0001.pcap") == series("/a/one-0002.pcap") != series("/a/two-0001.pcap")
    assert complete(files, 60, 205) == [files[0]]
    assert complete(files, 60, 215) == [files[0], files[2]]
    assert complete(files, 60, 259) == [files[0], files[2], files[3]]
    assert complete(files, 60, 260) == [files[0], files[2], files[3], files[1]]


def arrival(first: int, modified: int, size: int = 10) -> Arrival:
    """Times in s."""
    return Arrival(f"{first}.pcap", size, modified * SECOND, first, first * SECOND, first)


def test_captures_are_held_back_so_that_late_ones_come_in_order() -> None:
    one, two, late = arrival(100, 110), arrival(300, 310), arrival(200, 330)
    assert ripe([two, one], 0, 311) == [one, two]
    assert ripe([two, one], 30, 139) == []
    assert ripe([two, one], 30, 140) == [one]
    assert ripe([two, late], 30, 339) == []
    assert ripe([two, late], 30, 340) == [late, two]  # though it changed later than the one that is due


def test_a_batch_is_bounded() -> None:
    captures = [arrival(n, n, size) for n, size in enumerate((50, 60, 10, 10, 10), 1)]
    assert first_part(captures, None, 1 << 30) == captures
    assert first_part(captures, 2, 1 << 30) == captures[:2]
    assert first_part(captures, None, 40) == captures[:1]  # one that is too large is read alone
    assert first_part(captures, None, 110) == captures[:2]
    assert first_part(captures[2:], None, 29) == captures[2:4]
    assert first_part([], 1, 1) == []


def test_a_batch_without_a_size_has_tasks_for_all_cores() -> None:
    """A compressed capture is one task. Small ones share a task, and a large one that is not compressed is several."""

    def captures(ending: str, size: int) -> list[Arrival]:
        return [replace(arrival(n, n, size), path=f"{n}{ending}") for n in range(99)]

    whole = captures(".pcap.zst", 900)
    assert first_part(whole, None, 1_000, 0, 100) == whole[:1]
    assert first_part(whole, None, 1_000, 4, 100) == whole[:4]
    assert first_part(whole, 3, 1_000, 4, 100) == whole[:3]
    assert first_part(whole, None, 5_000, 4, 100) == whole[:5]
    assert len(first_part(captures(".pcap.gz", 1 << 20), None, 0, 2, 16 << 20)) == 11  # each is 3 MiB when it is read
    assert len(first_part(captures(".pcap", 64 << 20), None, 0, 8, 16 << 20)) == 2


def capture(start: float, packets: int = 1) -> bytes:
    """A pcap whose first packet was captured `start` s after START."""
    head = bytes.fromhex("d4c3b2a1 0200 0400 00000000 00000000 ffff0000 01000000")
    times = [int((START + start + n) * 1_000_000) for n in range(packets)]
    records = [b"".join(v.to_bytes(4, "little") for v in (*divmod(t, 1_000_000), 60, 60)) + bytes(60) for t in times]
    return head + b"".join(records)


def put(path: Path, data: bytes, age: float = 30) -> Path:
    """A file that was last written `age` seconds ago."""
    path.write_bytes(data)
    then = time.time() - age
    os.utime(path, (then, then))
    return path


def batches(arrivals: Arrivals, start: int = 0, limit: Any = None) -> Iterator[list[str]]:
    """The names of the captures of each batch, as Spark asks for them."""
    offset = {"batches": start}
    while (end := arrivals.latestOffset(offset, limit or arrivals.getDefaultReadLimit())) != offset:
        assert end == {"batches": offset["batches"] + 1}
        (partition,) = arrivals.partitions(offset, end)
        ((number,),) = arrivals.read(partition)
        yield [Path(c.path).name for c in arrivals.log.plan(number) or ()]
        arrivals.commit(offset)
        offset = end


def source(folder: Path, **options: Any) -> Arrivals:
    """A reader that knows only what the checkpoint has, as after a restart."""
    return Arrivals((str(folder),), str(folder.parent / "checkpoint"), **{"quiet": 8.0, **options})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "captures"
    made.mkdir()
    return made


def test_captures_arrive_once_in_order_of_their_packets(folder: Path) -> None:
    put(folder / "a-2.pcap", capture(200), 40)
    put(folder / "a-1.pcap", capture(100), 30)
    put(folder / "notes.txt", capture(50))
    put(folder / "a-3.pcap", capture(300), 0)  # is still written
    assert list(batches(source(folder))) == [["a-1.pcap", "a-2.pcap"]]
    put(folder / "a-3.pcap", capture(300, 2), 10)
    (folder / "a-2.pcap").unlink()
    assert list(batches(source(folder), 1)) == [["a-3.pcap"]]
    assert list(batches(source(folder), 2)) == []


def test_a_capture_that_grows_after_it_was_read_is_reported_once(folder: Path) -> None:
    path = put(folder / "a-1.pcap", capture(100))
    os.utime(path, (1_000_000_000, 1_000_000_000))
    reader = source(folder)
    assert list(batches(reader)) == [["a-1.pcap"]]
    put(path, capture(100))  # only its time is another
    assert list(batches(reader, 1)) == []
    put(path, capture(100, 3), 20)
    assert list(batches(reader, 1)) == [["a-1.pcap"]]
    assert [c.grown for c in reader.log.plan(1) or ()] == [True]
    put(path, capture(100, 4), 10)
    assert list(batches(source(folder), 2)) == []


def test_a_renamed_or_copied_capture_is_known(folder: Path) -> None:
    first = put(folder / "a-1.pcap", capture(100))
    reader = source(folder)
    assert list(batches(reader)) == [["a-1.pcap"]]
    first.rename(folder / "b-1.pcap")
    put(folder / "copy.pcap", capture(100))
    put(folder / "twice-1.pcap", capture(200))
    put(folder / "twice-2.pcap", capture(200))
    for again in (reader, source(folder)):
        assert [len(names) for names in batches(again, 1)] == [1]
        assert list(batches(again, 2)) == []


def test_another_capture_of_the_same_name_is_read(folder: Path) -> None:
    """As where a program rotates among a few names."""
    put(folder / "ring0", capture(100), 50)
    assert list(batches(source(folder))) == [["ring0"]]
    put(folder / "ring0", capture(900), 20)
    assert list(batches(source(folder), 1)) == [["ring0"]]


def test_a_backlog_is_many_batches(folder: Path) -> None:
    for n in range(5):
        put(folder / f"a-{n}.pcap", capture(100 * n, 1 + (n == 0)), 500 - n)
    one_at_a_time = [[f"a-{n}.pcap"] for n in range(5)]
    reader = source(folder, files=1)
    reader.prepareForTriggerAvailableNow()
    put(folder / "a-9.pcap", capture(5_000))  # comes after the query began
    assert list(batches(reader)) == one_at_a_time
    assert list(batches(source(folder, files=1), 5)) == [["a-9.pcap"]]


@pytest.mark.parametrize(("size", "wanted"), [(250, [2, 2, 1]), (1, [1, 1, 1, 1, 1]), (1 << 30, [5])])
def test_a_bound_on_bytes(folder: Path, size: int, wanted: list[int]) -> None:
    for n in range(5):
        put(folder / f"a-{n}.pcap", capture(100 * n), 500 - n)
    assert len(capture(0)) == 100
    assert [len(names) for names in batches(source(folder, size=size))] == wanted


def test_a_trigger_without_a_limit(folder: Path) -> None:
    for n in range(3):
        put(folder / f"a-{n}.pcap", capture(100 * n), 500 - n)
    assert len(list(batches(source(folder, files=1), limit=ReadAllAvailable()))) == 1


def test_a_batch_that_was_planned_is_the_same_after_a_restart(folder: Path) -> None:
    """Also if Spark had not noted it, and a capture is gone or came meanwhile."""
    first = put(folder / "a-1.pcap", capture(100))
    put(folder / "a-2.pcap", capture(200))
    assert next(batches(source(folder))) == ["a-1.pcap", "a-2.pcap"]
    first.unlink()
    put(folder / "a-0.pcap", capture(50))
    again = source(folder)
    again.prepareForTriggerAvailableNow()
    assert list(batches(again)) == [["a-1.pcap", "a-2.pcap"], ["a-0.pcap"]]


def test_a_capture_that_cannot_be_read_is_planned_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The batch reports why. One that vanished after it was listed is not planned."""
    from kafkatap.spark import arrivals

    read_range = arrivals.read_range

    def refuse(path: str, *where: int) -> bytes:
        if "locked" in path:
            raise PermissionError(13, "Permission denied", path)
        if "gone" in path:
            raise FileNotFoundError(2, "No such file or directory", path)
        return read_range(path, *where)

    monkeypatch.setattr(arrivals, "read_range", refuse)
    for name in ("locked-1.pcap", "gone-1.pcap", "a-1.pcap"):
        put(folder / name, capture(100 + len(name)))
    assert [sorted(names) for names in batches(source(folder))] == [["a-1.pcap", "locked-1.pcap"]]
    assert list(batches(source(folder), 1)) == []


def test_a_capture_that_was_gone_may_come_again(folder: Path) -> None:
    first = put(folder / "a-1.pcap", capture(100))
    reader = source(folder)
    assert list(batches(reader)) == [["a-1.pcap"]]
    first.rename(folder / "b-1.pcap")
    assert list(batches(reader, 1)) == []
    ArrivalLog(reader.checkpoint).write_gone(0, [c.capture for c in reader.log.plan(0) or ()])
    assert list(batches(reader, 1)) == [["b-1.pcap"]]
    assert list(batches(source(folder), 2)) == []


def test_plans_are_folded(tmp_path: Path) -> None:
    """What was read is still known, in few files; a batch may be read again soon after."""
    count = 300
    log = ArrivalLog(str(tmp_path))
    for n in range(count):
        log.write_plan(n, [arrival(2 * n + 1, n), arrival(2 * n + 2, n)])
        log.fold(n + 1)
    names = [path.name for path in (tmp_path / "kafkatap").rglob("*.*")]
    assert len(names) < 50
    assert log.plan(count - 1) == [arrival(2 * count - 1, count - 1), arrival(2 * count, count - 1)]
    for known in (log, ArrivalLog(str(tmp_path))):
        known.load()
        assert known.captures().tolist() == list(range(1, 2 * count + 1))
        assert all(known.knows_capture(n) for n in range(1, 2 * count + 1))
        assert not known.knows_capture(0)
        assert not known.knows_capture(2 * count + 1)
        assert known.earlier("17.pcap") == (10, 17, False)
        assert known.earlier("none.pcap") is None
    sizes = sum(path.stat().st_size for path in (tmp_path / "kafkatap" / "read").iterdir())
    assert sizes < 2 * count * 70
