"""`cluster`, `site` and `host` of captures, from their paths, in the table `files` of a lake."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from kafkatap.spark.output.delta import open_table, read_table
from kafkatap.spark.path_pattern import PathPattern
from kafkatap.spark.stream import StreamOptions
from tests.spark.test_stream import Stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NEW = ("cluster", "site", "host", "ingested_at", "run")


@pytest.mark.parametrize(("pattern", "path", "names"), [
    ("{cluster}/{site}/{host}/*", "s3://b/prod/fra/broker1/x.pcap", ("prod", "fra", "broker1")),
    ("{cluster}/*/{host}-*.pcap", "/a/prod/2026/broker1-0400.pcap", ("prod", None, "broker1")),
    ("{host}.pcap*", "broker1.pcap.zst", (None, None, "broker1")),
    ("/{host}/*", "/data/broker1/x.pcap", (None, None, "broker1")),
    ("{cluster}/{host}/*", "/x.pcap", (None, None, None)),
    ("{host}.pcap", "/a/broker1xpcap", (None, None, None)),
    ("{host}/x.pcap", "/a/broker1/x.pcap/y", (None, None, None)),
])  # fmt: skip
def test_names_in_paths(pattern: str, path: str, names: tuple[str | None, ...]) -> None:
    found = PathPattern(pattern).names_in(path)
    assert tuple(found.get(name) for name in ("cluster", "site", "host")) == names


@pytest.mark.parametrize(("pattern", "said"), [
    ("{cluster}/{rack}/*", "path pattern: {rack} is none of {cluster}, {site} and {host}"),
    ("*.pcap", "path pattern: '*.pcap' has none of {cluster}, {site} and {host}"),
    ("{host}/{host}", "path pattern: '{host}/{host}' has a name twice"),
])  # fmt: skip
def test_wrong_patterns(pattern: str, said: str) -> None:
    with pytest.raises(ValueError, match="path pattern") as raised:
        PathPattern(pattern)
    assert str(raised.value) == said
    with pytest.raises(ValueError, match="path pattern"):
        StreamOptions("out", "checkpoint", path_pattern=pattern)


def _captures(samples: Path, folder: Path) -> list[str]:
    paths = []
    for place, name in (("prod/fra/broker1", "apache-2.8"), ("test/ams/broker7", "live-4.3")):
        (folder / place).mkdir(parents=True)
        paths.append(str(shutil.copy(samples / f"{name}.pcap.zst", folder / place)))
    return paths


def _rows(out: Path) -> list[dict[str, Any]]:
    return sorted(read_table(str(out), "files", ["path", *NEW]).to_pylist(), key=lambda row: str(row["path"]))


def test_files_of_jobs_have_them(spark: SparkSession, samples: Path, tmp_path: Path) -> None:
    """Rows of captures that are not read again stay."""
    from kafkatap.spark.job import run_job

    paths, out = _captures(samples, tmp_path / "in"), tmp_path / "out"
    before = time.time()
    run_job(spark, paths[:1], str(out))
    (first,) = _rows(out)
    assert (first["cluster"], first["site"], first["host"]) == (None, None, None)
    assert first["ingested_at"].timestamp() >= before - 1
    run_job(spark, paths[1:], str(out), path_pattern="{cluster}/{site}/{host}/*")
    one, two = _rows(out)
    assert one == first
    assert (two["cluster"], two["site"], two["host"]) == ("test", "ams", "broker7")
    assert two["ingested_at"] > first["ingested_at"]
    assert two["run"] != first["run"]
    assert {first["run"], two["run"]} <= {entry.get("run") for entry in open_table(str(out), "files").history()}
    with pytest.raises(ValueError, match="matches the end of no path, such as"):
        run_job(spark, paths, str(out), path_pattern="{cluster}/nowhere/*")
    assert _rows(out) == [one, two]


def test_files_of_streams_have_them(samples: Path, tmp_path: Path) -> None:
    paths = _captures(samples, tmp_path / "in")
    options = StreamOptions(str(tmp_path / "out"), str(tmp_path / "state"), path_pattern="{site}/{host}/*-4.3*")
    stream = Stream(options)
    for path in paths:
        stream.read([path])
    rows = _rows(tmp_path / "out")
    assert [tuple(row[name] for name in NEW[:3]) for row in rows] == [(None, None, None), (None, "ams", "broker7")]
    assert len({row["run"] for row in rows}) == 2
