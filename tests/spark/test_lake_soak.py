"""Whatever jobs, damage, copies, forgetting and compaction do to a lake: a run over all captures gives the rows of one
process. `verify` is silent then, and at no planted fault."""

from __future__ import annotations

import gzip
import random
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kafkatap import analyze
from kafkatap.spark.job import run_job
from kafkatap.spark.neighbours import SharedConnections
from kafkatap.spark.output.compaction import compact
from kafkatap.spark.output.delta import is_delta, read_table
from kafkatap.spark.output.run_tables import file_infos
from kafkatap.spark.verifying import forget, named_captures, verify
from kafkatap.splits.run_options import RunOptions
from tests.support.captures import PcapRecords

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kafkatap.reports.batch import FileInfo

HOURS = 6


@pytest.fixture(scope="module")
def hours(samples: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    records, folder = PcapRecords(samples / "apache-4.3.pcap.zst"), tmp_path_factory.mktemp("hours")
    paths = [folder / f"hour-{n}.pcap" for n in range(HOURS)]
    for n, path in enumerate(paths):
        path.write_bytes(records.slice(len(records) * n // HOURS, len(records) * (n + 1) // HOURS))
    return paths


def found(out: str) -> set[str]:
    return {finding.kind for finding in verify(out)} - {"gap"}


class Lake:
    """A lake to which things happen. `folder`: for damaged copies and others."""

    def __init__(self, spark: SparkSession, hours: list[Path], folder: Path, seed: int) -> None:
        self.spark, self.hours, self.folder, self.random = spark, hours, folder, random.Random(seed)
        self.out = str(folder / "out")

    def run(self, *paths: Path, records: bool = False) -> bool:
        """Whether a run over captures is carried out. If not, nothing changes."""
        try:
            run_job(self.spark, list(map(str, paths)), self.out, options=RunOptions(records=records))
        except SharedConnections:
            return False
        return True

    def some(self) -> None:
        """A run over some hours."""
        chosen = sorted(self.random.sample(self.hours, self.random.randrange(1, HOURS)))
        self.run(*chosen, records=self.random.random() < 0.3)

    def everything(self) -> None:
        assert self.run(*self.hours)
        assert found(self.out) == set()

    def copy(self) -> None:
        """A compressed copy of an hour."""
        path = self.random.choice(self.hours)
        copied = self.folder / f"{path.name}.gz"
        copied.write_bytes(gzip.compress(path.read_bytes()))
        self.run(copied)

    def damaged(self) -> None:
        """A damaged copy of an hour: `verify` sees it, unless a whole one is there."""
        path = self.random.choice(self.hours)
        data = bytearray(path.read_bytes())
        at = self.random.randrange(len(data) // 3, len(data) // 2)
        if self.random.random() < 0.5:
            data[at : at + 20_000] = bytes(20_000)
        else:
            del data[at:]
        copied = self.folder / f"damaged-{self.random.random()}.pcap"
        copied.write_bytes(data)
        is_done = self.run(copied)
        is_there = any(info.path == str(copied) for info in self.files)
        assert not is_there or (is_done and "damage" in found(self.out))

    def forgotten(self) -> None:
        if self.files:
            name = self.random.choice(self.files).path
            forget(self.out, [info.capture for info in named_captures(self.out, [name])])

    def compacted(self) -> None:
        if is_delta(self.out, "files"):
            before = found(self.out)
            list(compact(self.out))
            assert found(self.out) == before

    @property
    def files(self) -> list[FileInfo]:
        return file_infos(read_table(self.out, "files")) if is_delta(self.out, "files") else []


@pytest.mark.parametrize("seed", [1, *(pytest.param(n, marks=pytest.mark.long) for n in range(2, 30))])
def test_a_lake_balances_in_the_end(spark: SparkSession, hours: list[Path], tmp_path: Path, seed: int) -> None:
    lake = Lake(spark, hours, tmp_path, seed)
    for _ in range(5):
        happens = (lake.some, lake.some, lake.everything, lake.copy, lake.damaged, lake.forgotten, lake.compacted)
        lake.random.choice(happens)()
    lake.everything()
    wanted = analyze(list(map(str, hours)))
    for table, columns in (
        ("exchanges", ("exchange", "outcome", "connection")),
        ("results", ("exchange", "error_code", "records")),
        ("connections", ("connection", "packets", "closed_by")),
    ):
        rows, of_table = read_table(lake.out, table), getattr(wanted, table)
        for column in columns:
            assert Counter(rows[column].to_pylist()) == Counter(of_table[column].to_pylist()), (table, column)
