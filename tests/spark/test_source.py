"""The data source "pcap": its rows are the packets that one reader finds, however files are cut."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kafkatap.captures.capture_reader import CaptureReader
from tests.support.captures import RAW, Interface, PcapRecords, pcap_bytes, pcapng_bytes, read_bytes, write_capture
from tests.test_splits import carriers, linked_baits, made_packets

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytest.importorskip("pyspark")

from kafkatap.spark.source import SCHEMA, parse_size, register

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
