"""Versions of one capture in a lake: its rows are there once."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import zstandard

from kafkatap import analyze
from kafkatap.spark.job import run_job
from kafkatap.spark.lake_options import OtherOptions
from kafkatap.spark.output.delta import read_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def rows(out: Path) -> list[int]:
    keys: list[int] = read_table(str(out), "exchanges", ["exchange"])["exchange"].to_pylist()
    return sorted(keys)


def test_a_capture_that_grows_and_is_compressed(spark: SparkSession, samples: Path, tmp_path: Path) -> None:
    whole = zstandard.ZstdDecompressor().stream_reader((samples / "apache-0.8.2.pcap.zst").read_bytes()).read()
    path, out = tmp_path / "captures" / "broker.pcap", tmp_path / "out"
    path.parent.mkdir()
    path.write_bytes(whole[: len(whole) // 2])
    run_job(spark, str(path), str(out))
    part = rows(out)
    path.write_bytes(whole)
    run_job(spark, str(path), str(out))
    wanted = sorted(analyze(path).exchanges["exchange"].to_pylist())
    assert len(part) < len(wanted)
    assert rows(out) == wanted
    packed = path.with_name("broker.pcap.zst")
    packed.write_bytes(zstandard.compress(whole))
    path.unlink()
    run_job(spark, str(packed.parent), str(out))
    assert rows(out) == wanted
    renamed = packed.with_name("other.pcap.gz")
    renamed.write_bytes(gzip.compress(whole))
    packed.unlink()
    run_job(spark, str(renamed.parent), str(out))
    assert rows(out) == wanted
    assert read_table(str(out), "files", ["path"])["path"].to_pylist() == [str(renamed)]


def test_a_version_with_fewer_packets_is_refused(spark: SparkSession, samples: Path, tmp_path: Path) -> None:
    whole = zstandard.ZstdDecompressor().stream_reader((samples / "apache-0.8.2.pcap.zst").read_bytes()).read()
    path, out = tmp_path / "broker.pcap", tmp_path / "out"
    shutil.copy(samples / "apache-0.8.2.pcap.zst", tmp_path / "broker.pcap.zst")
    run_job(spark, str(tmp_path / "broker.pcap.zst"), str(out))
    before = rows(out)
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(OtherOptions, match=r"has 2,320 packets of this capture, from .*broker\.pcap\.zst"):
        run_job(spark, str(path), str(out))
    assert rows(out) == before
    run_job(spark, str(path), str(out), replace_rows=True)
    assert 0 < len(rows(out)) < len(before)


def test_another_capture_of_the_same_name_stays(spark: SparkSession, samples: Path, tmp_path: Path) -> None:
    """A ring of files uses names again."""
    path, out = tmp_path / "ring.pcap.zst", tmp_path / "out"
    wanted: list[int] = []
    for name in ("apache-0.8.2", "apache-2.8"):
        shutil.copy(samples / f"{name}.pcap.zst", path)
        wanted += analyze(path).exchanges["exchange"].to_pylist()
        run_job(spark, str(path), str(out))
    assert rows(out) == sorted(wanted)
