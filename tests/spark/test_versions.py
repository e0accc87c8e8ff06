"""Versions of one capture in a lake: its rows are there once."""

from __future__ import annotations

import gzip
import re
import shutil
import struct
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import zstandard
from deltalake import DeltaTable

from kafkatap import analyze
from kafkatap.spark.output.delta import read_table
from kafkatap.spark.output.run_tables import file_infos
from kafkatap.spark.stream import StreamOptions, run_stream
from tests.spark.jobs import run_job
from tests.support.captures import PcapRecords

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def rows(out: Path) -> list[int]:
    keys: list[int] = read_table(str(out), "exchanges", ["exchange"])["exchange"].to_pylist()
    return sorted(keys)


def paths(out: Path) -> list[str]:
    found: list[str] = read_table(str(out), "files", ["path"])["path"].to_pylist()
    return sorted(found)


def test_a_capture_that_grows_and_is_compressed(samples: Path, tmp_path: Path) -> None:
    whole = zstandard.ZstdDecompressor().stream_reader((samples / "apache-0.8.2.pcap.zst").read_bytes()).read()
    path, out = tmp_path / "captures" / "broker.pcap", tmp_path / "out"
    path.parent.mkdir()
    path.write_bytes(whole[: len(whole) // 2])
    run_job(str(path), str(out))
    part = rows(out)
    path.write_bytes(whole)
    run_job(str(path), str(out))
    wanted = sorted(analyze(path).exchanges["exchange"].to_pylist())
    assert 0 < len(part) < len(wanted)
    assert rows(out) == wanted
    packed = path.with_name("broker.pcap.zst")
    packed.write_bytes(zstandard.compress(whole))
    path.unlink()
    run_job(str(packed.parent), str(out))
    assert rows(out) == wanted
    renamed = packed.with_name("other.pcap.gz")
    renamed.write_bytes(gzip.compress(whole))
    packed.unlink()
    run_job(str(renamed.parent), str(out))
    assert rows(out) == wanted
    assert paths(out) == [str(renamed)]


def test_a_version_with_fewer_packets_is_left_out(samples: Path, tmp_path: Path) -> None:
    whole = zstandard.ZstdDecompressor().stream_reader((samples / "apache-0.8.2.pcap.zst").read_bytes()).read()
    path, out = tmp_path / "broker.pcap", tmp_path / "out"
    shutil.copy(samples / "apache-0.8.2.pcap.zst", tmp_path / "broker.pcap.zst")
    run_job(str(tmp_path / "broker.pcap.zst"), str(out))
    before = rows(out)
    path.write_bytes(whole[: len(whole) // 2])
    result = run_job(str(path), str(out))
    found = re.search(
        r"broker\.pcap is left out, with ([\d,]+) packets .*: it is .*\.zst, with 2,320 packets", str(result.notes)
    )
    assert found is not None
    assert result.has_kafka
    assert 1_000 < int(found[1].replace(",", "")) < 2_320
    assert rows(out) == before
    assert paths(out) == [str(tmp_path / "broker.pcap.zst")]
    run_job(str(path), str(out), replace_rows=True)
    assert 0 < len(rows(out)) < len(before)


def test_versions_in_one_run(samples: Path, tmp_path: Path) -> None:
    """The whole, a part of it, one with a hole, one of short packets, and another capture; as files of one folder."""
    folder, out = tmp_path / "captures", tmp_path / "out"
    folder.mkdir()
    whole = PcapRecords(samples / "apache-0.8.2.pcap.zst")
    data = whole.data
    hole = bytearray(data)
    hole[len(data) // 3 : len(data) // 2] = bytes(len(data) // 2 - len(data) // 3)
    short = b"".join(short_record(whole.record(n), 128) for n in range(len(whole)))
    (folder / "b-1.pcap").write_bytes(whole.slice(0, len(whole) // 2))
    (folder / "b-2.pcap").write_bytes(whole.header + short)
    (folder / "b-3.pcap.zst").write_bytes(zstandard.compress(data))
    (folder / "b-4.pcap").write_bytes(hole)
    (folder / "b-5.pcap").write_bytes(data)
    shutil.copy(samples / "apache-2.8.pcap.zst", folder / "b-6.pcap.zst")
    result = run_job(str(folder), str(out))
    best = [folder / "b-3.pcap.zst", folder / "b-6.pcap.zst"]
    assert rows(out) == sorted(analyze(best).exchanges["exchange"].to_pylist())
    assert paths(out) == [str(path) for path in best]
    assert sum("is left out" in note for note in result.notes) == 4
    for path in best:
        path.unlink()
    again = run_job(str(folder), str(out))  # what is there is as good as b-5, and better than the others
    assert sum("is left out" in note for note in again.notes) == 3
    assert paths(out) == [str(folder / "b-5.pcap"), str(best[1])]


def short_record(record: bytes, length: int) -> bytes:
    """A record of a pcap (little-endian) with at most so many bytes of its packet."""
    kept = record[16 : 16 + length]
    return record[:8] + struct.pack("<I", len(kept)) + record[12:16] + kept


def test_a_stream_after_captures_were_compressed(spark: SparkSession, samples: Path, tmp_path: Path) -> None:
    """Renamed and compressed in the night, as logrotate does it; and a copy of a part comes."""
    folder = tmp_path / "captures"
    folder.mkdir()
    options = StreamOptions(str(tmp_path / "out"), str(tmp_path / "checkpoint"))
    data = PcapRecords(samples / "apache-0.8.2.pcap.zst").data
    (folder / "b-1.pcap").write_bytes(data)
    run_stream(spark, [str(folder)], options, quiet=0)
    (folder / "b-1.pcap").unlink()
    (folder / "old-1.pcap.zst").write_bytes(zstandard.compress(data))
    (folder / "part.pcap").write_bytes(data[: len(data) // 2])
    shutil.copy(samples / "apache-2.8.pcap.zst", folder)
    run_stream(spark, [str(folder)], options, quiet=0, finish=True)
    one, two = folder / "old-1.pcap.zst", folder / "apache-2.8.pcap.zst"
    assert rows(tmp_path / "out") == sorted(analyze([one, two]).exchanges["exchange"].to_pylist())
    assert len(paths(tmp_path / "out")) == 2


def test_another_capture_of_the_same_name_stays(samples: Path, tmp_path: Path) -> None:
    """A ring of files uses names again."""
    path, out = tmp_path / "ring.pcap.zst", tmp_path / "out"
    wanted: list[int] = []
    for name in ("apache-0.8.2", "apache-2.8"):
        shutil.copy(samples / f"{name}.pcap.zst", path)
        wanted += analyze(path).exchanges["exchange"].to_pylist()
        run_job(str(path), str(out))
    assert rows(out) == sorted(wanted)


@pytest.fixture(scope="module")
def several_blocks(samples: Path) -> bytes:
    """A capture that is read in several blocks."""
    names = ("live-4.3", "apache-0.8.2", "apache-2.8", "apache-0.10.2")
    parts = [PcapRecords(samples / f"{name}.pcap.zst") for name in names]
    return parts[0].header + b"".join(part.slice(0, len(part))[len(part.header) :] for part in parts)


@pytest.mark.parametrize("split_size", [None, 1 << 20])
def test_a_damaged_copy_does_not_replace_a_capture(
    several_blocks: bytes, tmp_path: Path, split_size: int | None
) -> None:
    """A copy with zeros in its last third, and one that ends within a packet but has more of them."""
    good, out = tmp_path / "good.pcap", tmp_path / "out"
    good.write_bytes(several_blocks)
    hole = bytearray(several_blocks)
    hole[-1_000_000:-500_000] = bytes(500_000)
    copies = {"hole": bytes(hole), "cut short": several_blocks + several_blocks[24:2_000]}
    assert run_job(str(good), str(out), split_size=split_size).is_left_out is False
    wanted = rows(out)
    (info,) = file_infos(read_table(str(out), "files"))
    assert info.captured_bytes == len(several_blocks) - 24 - 16 * info.packets
    for name, data in copies.items():
        copy = tmp_path / f"{name}.pcap"
        copy.write_bytes(data)
        result = run_job(str(copy), str(out), split_size=split_size)
        assert (result.is_left_out, len(result.notes), rows(out)) == (True, 1, wanted)
        run_job(str(copy), str(out), split_size=split_size, replace_rows=True)
        assert paths(out) == [str(copy)]
        back = run_job(str(good), str(out))
        assert (back.is_left_out, rows(out), paths(out)) == (False, wanted, [str(good)])
    (tmp_path / "same.pcap.gz").write_bytes(gzip.compress(several_blocks))
    result = run_job([str(good), str(tmp_path / "same.pcap.gz")], str(out))
    assert (result.is_left_out, len(result.notes), rows(out)) == (False, 1, wanted)


def test_what_an_earlier_version_counted_is_not_compared(samples: Path, tmp_path: Path) -> None:
    """It counted the bytes of the first block only."""
    path, out = tmp_path / "broker.pcap", tmp_path / "out"
    records = PcapRecords(samples / "apache-0.8.2.pcap.zst")
    path.write_bytes(records.data)
    run_job(str(path), str(out))
    wanted = rows(out)
    table = DeltaTable(str(out / "files"))
    more = tmp_path / "more.pcap"
    more.write_bytes(records.data + records.record(0))
    for copy, is_left_out in ((more, True), (path, False)):
        table.update(updates={"version": "null", "captured_bytes": "1000"})
        result = run_job(str(copy), str(out))
        assert (result.is_left_out, "--replace" in str(result.notes), rows(out)) == (is_left_out, is_left_out, wanted)
    (info,) = file_infos(read_table(str(out), "files"))
    assert info.captured_bytes == len(records.data) - 24 - 16 * len(records)
