"""The data source "pcap": its rows are the packets that one reader finds, however files are cut, whenever they come."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kafkatap.captures.capture_reader import CaptureReader
from kafkatap.captures.storage import File
from tests.support.captures import RAW, Interface, PcapRecords, pcap_bytes, pcapng_bytes, read_bytes, write_capture
from tests.test_splits import carriers, linked_baits, made_packets

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytest.importorskip("pyspark")

from kafkatap.spark.source import SCHEMA, complete, parse_size, register, series

Row = tuple[Any, ...]


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    register(spark)
    return spark


def rows_of(path: Path | str) -> list[Row]:
    """What `CaptureReader` finds, as rows of the source without `ts`."""
    reader = CaptureReader(str(path))
    rows = []
    while reader.fill():
        for p in reader.packets[reader.position : reader.count]:
            data = reader.buffer[p["at"] : p["at"] + p["captured"]].tobytes()
            offset = int(p["at"]) + reader.base
            numbers = (int(p[name]) for name in ("link_type", "captured", "original"))
            rows.append((str(path), offset, int(p["ts"]), *numbers, data))
        reader.position = reader.count
    reader.close()
    return rows


def collected(frame: DataFrame) -> list[Row]:
    """A frame's rows in the order of files and offsets; `ts` is `ts_ns` to the microsecond."""
    table = frame.toArrow()
    columns = {name: table[name].to_pylist() for name in SCHEMA.names if name != "ts"}
    assert table["ts"].cast("int64").to_pylist() == [ns // 1_000 for ns in columns["ts_ns"]]
    return sorted(
        (f, o, t, k, c, w, bytes(b)) for f, o, t, k, c, w, b in zip(*columns.values(), strict=True)
    )  # fmt: skip


def load(session: SparkSession, path: Any, **options: Any) -> DataFrame:
    return session.read.format("pcap").options(**options).load(path)


def test_rows_are_the_packets_whatever_the_split(session: SparkSession, tmp_path: Path) -> None:
    packets = made_packets(2_500)
    write_capture(tmp_path / "a.pcap", pcap_bytes(packets, nanoseconds=True, order=">"))
    write_capture(tmp_path / "b.pcapng", pcapng_bytes(packets[:1_000], [Interface(RAW, 9)]))
    write_capture(tmp_path / "c.pcap.gz", pcap_bytes(packets[1_000:1_500]))
    write_capture(tmp_path / "empty.pcap", b"")
    write_capture(tmp_path / "bait.pcap", pcap_bytes(carriers(pcap_bytes(made_packets(150)))))
    expected = sorted(row for path in tmp_path.iterdir() for row in rows_of(path))
    for size, least in (("0", 5), ("120k", 15)):
        frame = load(session, str(tmp_path), splitSize=size)
        assert collected(frame) == expected
        assert frame.rdd.getNumPartitions() >= least


def test_a_sample_by_uri_and_by_list(session: SparkSession, samples: Path, tmp_path: Path) -> None:
    path = write_capture(tmp_path / "2.8.pcap", read_bytes(samples / "apache-2.8.pcap.zst"))
    expected = [row[1:] for row in rows_of(path)]
    for named in (path.as_uri(), [str(path)], f"{tmp_path}/*.pcap"):
        assert [row[1:] for row in collected(load(session, named, splitSize="300k"))] == expected


def test_a_boundary_of_which_nobody_can_be_sure_is_none(session: SparkSession, tmp_path: Path) -> None:
    path = write_capture(tmp_path / "linked.pcap", linked_baits(made_packets(1_500)))
    assert collected(load(session, str(path), splitSize=60_000)) == rows_of(path)


def test_damage(session: SparkSession, tmp_path: Path) -> None:
    """What comes before it, and of later splits what there is; or an error that names file and place."""
    data = bytearray(pcap_bytes(made_packets(2_500)))
    whole = rows_of(write_capture(tmp_path / "a.pcap", bytes(data)))
    at = next(start for start in PcapRecords(bytes(data)).starts if start > 500_000)
    data[at : at + 100] = b"\xff" * 100
    path = write_capture(tmp_path / "a.pcap", bytes(data))
    before = rows_of(path)
    assert before == whole[: len(before)]
    assert collected(load(session, str(path), splitSize=0)) == before
    found = collected(load(session, str(path), splitSize=100_000))
    assert found[: len(before)] == before
    assert set(found) < set(whole)
    assert found[-1] == whole[-1]
    with pytest.raises(Exception, match=r"a\.pcap: damaged.* at byte"):
        load(session, str(path), splitSize=100_000, mode="failfast").toArrow()


def test_interfaces_that_later_splits_cannot_know_are_an_error(session: SparkSession, tmp_path: Path) -> None:
    sections = [pcapng_bytes(made_packets(900), [Interface(tsresol=n)]) for n in (6, 9)]
    path = write_capture(tmp_path / "two.pcapng", b"".join(sections))
    with pytest.raises(Exception, match="interfaces are described in the middle of the capture"):
        load(session, str(path), splitSize=150_000).toArrow()
    assert collected(load(session, str(path), splitSize=0)) == rows_of(path)


def test_columns_that_are_asked_for(session: SparkSession, tmp_path: Path) -> None:
    path = write_capture(tmp_path / "a.pcap", pcap_bytes(made_packets(100)))
    frame = session.read.format("pcap").schema("captured int, ts timestamp").load(str(path))
    assert [f.captured for f in frame.collect()] == [row[4] for row in rows_of(path)]
    with pytest.raises(Exception, match="there is no column size int32; there are: file string, offset bigint"):
        session.read.format("pcap").schema("size int").load(str(path)).collect()


def test_refusals(session: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(Exception, match=r"none\*: no file matches"):
        load(session, f"{tmp_path}/none*").collect()
    with pytest.raises(Exception, match="not 'many'"):
        load(session, str(tmp_path), splitSize="many").collect()
    with pytest.raises(Exception, match="may be permissive or failfast"):
        load(session, str(tmp_path), mode="odd").collect()


def test_sizes() -> None:
    assert [parse_size(t) for t in ("0", "123", "64m", "1 GiB", "2KB")] == [0, 123, 64 << 20, 1 << 30, 2_048]
    for text in ("", "m", "-1", "1.5m", "1x"):
        with pytest.raises(ValueError, match="a size is"):
            parse_size(text)


# ---------------------------------------------------------------- streams


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


class Stream:
    """A stream of packets into Parquet, run until all that is there was taken, and again."""

    def __init__(self, session: SparkSession, folder: Path, work: Path, **options: Any) -> None:
        self.session, self.folder, self.work = session, folder, work
        self.options = {"quiet": "0", "splitSize": "60k"} | options

    def run(self) -> list[Row]:
        frame = self.session.readStream.format("pcap").options(**self.options).load(str(self.folder))
        writer = frame.writeStream.format("parquet").option("checkpointLocation", str(self.work / "checkpoint"))
        query = writer.trigger(availableNow=True).start(str(self.work / "out"))
        query.awaitTermination(120)
        assert not query.isActive
        return collected(self.session.read.schema(SCHEMA).parquet(str(self.work / "out")))


@pytest.fixture
def arriving(tmp_path: Path) -> Path:
    folder = tmp_path / "arriving"
    folder.mkdir()
    return folder


def put(path: Path, data: bytes, age: float) -> Path:
    """A file that was last written `age` seconds ago."""
    path.write_bytes(data)
    then = time.time() - age
    os.utime(path, (then, then))
    return path


def test_captures_that_arrive_are_read_once(session: SparkSession, arriving: Path, tmp_path: Path) -> None:
    parts = [pcap_bytes(made_packets(300, seed=n)) for n in range(4)]
    stream = Stream(session, arriving, tmp_path)
    first = put(arriving / "a-1.pcap", parts[0], 30)
    put(arriving / "notes.txt", b"no capture", 30)
    assert stream.run() == rows_of(first)
    put(arriving / "a-2.pcap", parts[1], 20)
    put(arriving / "a-3.pcap", parts[2], 10)
    expected = sorted(row for path in arriving.glob("*.pcap") for row in rows_of(path))
    assert stream.run() == expected
    first.unlink()  # old captures are removed sooner or later
    put(arriving / "a-4.pcap", parts[3], 5)
    assert stream.run() == sorted(expected + rows_of(arriving / "a-4.pcap"))


def test_a_file_that_is_still_written_waits(session: SparkSession, arriving: Path, tmp_path: Path) -> None:
    stream = Stream(session, arriving, tmp_path, quiet="3600")
    data = pcap_bytes(made_packets(300))
    done = put(arriving / "a-1.pcap", data, 5)
    put(arriving / "a-2.pcap", data[:1_000], 0)
    assert stream.run() == rows_of(done)


def test_a_file_that_grows_after_all(session: SparkSession, arriving: Path, tmp_path: Path) -> None:
    """Also in the middle of a packet: none is lost, none comes twice."""
    data = pcap_bytes(made_packets(600))
    stream = Stream(session, arriving, tmp_path)
    for length in (10, 5_000, 200_001, len(data)):
        path = put(arriving / "a.pcap", data[:length], 5)
        assert stream.run() == rows_of(path)
    assert len(rows_of(path)) == 600


def test_so_many_files_a_batch(session: SparkSession, arriving: Path, tmp_path: Path) -> None:
    for n in range(3):
        put(arriving / f"a-{n}.pcap", pcap_bytes(made_packets(20, seed=n)), 50 - n)
    seen: list[set[str]] = []

    def note(batch: DataFrame, number: int) -> None:
        seen.append({row.file for row in batch.select("file").distinct().collect()})

    frame = session.readStream.format("pcap").options(quiet="0", maxFilesPerTrigger="1").load(str(arriving))
    query = frame.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint")).foreachBatch(note).start()
    query.processAllAvailable()
    query.stop()
    assert [name for batch in seen for name in sorted(batch)] == [f"{arriving}/a-{n}.pcap" for n in range(3)]
