"""Splits that were joined give the tables of the local engine, wherever captures are cut: here without Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from kafkatap.splits import plan_splits
from tests.spark.join_support import (
    assert_same,
    check,
    compared,
    cut_at_packets,
    cut_evenly,
    join,
    local,
    packets_at_random,
    rotate,
)
from tests.spark.join_talks import TALKS
from tests.support.captures import pcap_bytes, read_bytes
from tests.support.tcp import Segment, encode

SAMPLES = ("apache-4.3", "apache-2.8", "apache-0.10.2", "apache-0.8.2", "live-4.3")


def write(path: Path, segments: list[Segment], snap_length: int = 0) -> Path:
    path.write_bytes(pcap_bytes(encode(segments, snap_length=snap_length), nanoseconds=True))
    return path


@pytest.mark.parametrize("name", SAMPLES)
def test_samples_in_splits(samples: Path, tmp_path: Path, name: str) -> None:
    path = tmp_path / "sample.pcap"
    path.write_bytes(read_bytes(samples / f"{name}.pcap.zst"))
    wanted = compared(local(path, records=True))
    joined = join(cut_at_packets(path, packets_at_random(path, 3, 1)), records=True)
    assert_same(joined, wanted)
    assert len(joined.plans[-1].tasks) == 4
    files = rotate(path, tmp_path / "rotated", packets_at_random(path, 4, 2), 2)
    wanted["files"] = compared(local(files))["files"]
    assert_same(join(plan_splits(files, 0), records=True), wanted)


def test_a_pcapng_in_splits(samples: Path) -> None:
    check(cut_evenly(samples / "apache-4.3-two-interfaces.pcapng", 4), records=True)


@pytest.mark.parametrize("name", TALKS)
def test_traffic_that_is_hard_to_cut(tmp_path: Path, name: str) -> None:
    path = write(tmp_path / "talk.pcap", TALKS[name]())
    check(cut_at_packets(path, packets_at_random(path, 5, len(name))), records=True)
    files = rotate(path, tmp_path / "rotated", packets_at_random(path, 2, 7), 3)
    check(plan_splits(files, 0), records=True)
