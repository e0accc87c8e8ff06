"""The tables that Spark gives are those of the local engine, row by row, times to the microsecond."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from kafkatap.parquet.partitions import to_microseconds
from kafkatap.reports.tables import TABLES
from tests.splits.join_support import compared, differences, local, packets_at_random, published, rotate
from tests.splits.join_talks import TALKS, busy, pipelined
from tests.splits.test_packs import rotated
from tests.support.captures import PcapRecords, pcap_bytes, read_bytes, write_capture
from tests.support.tcp import Segment, encode, merge

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def check(spark: SparkSession, paths: list[str], split_size: int, out: Path) -> list[str]:
    """Compare the tables that a job writes, from splits of this size; return its notes."""
    from kafkatap.spark.job import run_job
    from kafkatap.splits.run_options import RunOptions

    result = run_job(spark, paths, str(out), split_size=split_size, options=RunOptions(records=True))
    compare_tables(out, paths)
    assert len(list((out / "exchanges").rglob("*.parquet"))) > len(paths)
    return result.notes


def compare_tables(out: Path, paths: list[str]) -> None:
    """Compare the tables in a folder with those of the local engine."""
    _compare(published(out), paths)


def _compare(found: dict[str, pa.Table], paths: list[str]) -> None:
    wanted = {name: to_microseconds(table) for name, table in local(paths, records=True).items()}
    lines = differences(compared(found), compared(wanted))
    assert not lines, "\n".join(lines)


def test_a_sample_in_files_and_splits(spark: SparkSession, samples: Path, tmp_path: Path) -> None:
    """Rotated files of which some are compressed, the others cut into splits; names whose order is not that of time."""
    path = tmp_path / "sample.pcap"
    path.write_bytes(read_bytes(samples / "live-4.3.pcap.zst"))
    files = [Path(name) for name in rotate(path, tmp_path / "files", packets_at_random(path, 4, 3), 4)]
    for number, name in ((1, ".gz"), (3, ".zst")):
        write_capture(files[number].with_suffix(f".pcap{name}"), files[number].read_bytes())
        files[number].unlink()
    assert check(spark, sorted(str(f) for f in (tmp_path / "files").iterdir()), 150_000, tmp_path / "out") == []


def test_hundreds_of_small_files(spark: SparkSession, samples: Path, tmp_path: Path) -> None:
    """Two rotations of the same time, whose names are one series at first sight, some of them compressed: they become
    two packs. The ledger has rows for each file."""
    from kafkatap.captures.identity import capture_head
    from kafkatap.spark.job import run_job
    from kafkatap.spark.output.delta import read_table
    from kafkatap.splits.run_options import RunOptions

    path, other, folder = tmp_path / "sample.pcap", tmp_path / "talk.pcap", tmp_path / "files"
    path.write_bytes(read_bytes(samples / "live-4.3.pcap.zst"))
    seconds, fraction = struct.unpack("<2I", PcapRecords(path).record(0)[:8])
    segments = pipelined(400, time_ns=seconds * 10**9 + fraction * 1_000, step_ns=1_000_000)
    other.write_bytes(pcap_bytes(encode(segments)))
    rotated(path, folder, packets_at_random(path, 199, 3), name="live-{:04d}-1.pcap")
    rotated(other, folder, packets_at_random(other, 99, 4), name="live-{:04d}-2.pcap.gz")
    for name in ("live-0300-1.pcap", "live-0301-1.pcap.zst"):
        (folder / name).write_bytes(b"")
    files = sorted(str(file) for file in folder.iterdir())
    result = run_job(spark, [str(folder)], str(tmp_path / "out"), options=RunOptions(records=True))
    compare_tables(tmp_path / "out", files)
    assert len(files) > 290
    assert len(list((tmp_path / "out" / "exchanges").rglob("*.parquet"))) <= 3
    assert len(result.damage) == 2
    ledger = read_table(str(tmp_path / "out"), "ledger")
    read = {capture_head(file).identity for file in files if Path(file).stat().st_size}
    assert set(ledger["capture"].to_pylist()) == read


def test_dataframes_of_a_pcapng_in_splits(spark: SparkSession, samples: Path) -> None:
    from kafkatap.spark.captures import Captures

    path = samples / "apache-4.3-two-interfaces.pcapng"
    captures = Captures(spark, str(path), path.stat().st_size // 3)
    _compare({name: captures.table(name).toArrow() for name in TABLES}, [str(path)])
    assert len(captures.places) == 4
    assert captures.notes == []


def test_traffic_that_is_hard_to_cut(spark: SparkSession, tmp_path: Path) -> None:
    """One pass that takes no corrections and one that does; connections through all splits."""
    names = ("4-tuple used again", "TLS", "foreign", "throttled, broker waits", "topic ids", "names of clients")
    segments: list[Segment] = merge(*(TALKS[name]() for name in names), pipelined(client=("10.7.7.7", 42_000)), busy(2))
    path = tmp_path / "hard.pcap"
    path.write_bytes(pcap_bytes(encode(segments), nanoseconds=True))
    assert check(spark, [str(path)], path.stat().st_size // 5, tmp_path / "out") == []


@pytest.mark.parametrize("name", ["diverse"])
def test_a_recording(spark: SparkSession, corpus: Path, tmp_path: Path, name: str) -> None:
    path = tmp_path / f"{name}.pcap"
    found = next(p for p in sorted((corpus / "captures").glob(f"{name}.pcap*")))
    path.write_bytes(read_bytes(found))
    assert check(spark, [str(path)], path.stat().st_size // 4, tmp_path / "out") == []
