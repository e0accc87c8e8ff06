"""Connections that are seen twice, in the tables of a job: the driver knows them when tasks have written their rows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kafkatap import analyze
from tests.reports.test_twins import both, column, nat, proxied, sample

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize("split_size", [0, 200_000])
def test_a_job_has_the_twins(split_size: int, spark: SparkSession, tmp_path: Path) -> None:
    from deltalake import DeltaTable

    from kafkatap.spark.job import run_job

    path = both(tmp_path, sample(), nat(sample()), proxied(sample()))
    wanted = column(analyze(path).connections)
    report = run_job(spark, [str(path)], str(tmp_path / "out"), split_size=split_size).report
    table = DeltaTable(str(tmp_path / "out" / "connections")).to_pyarrow_table()
    assert column(table) == wanted
    assert len(wanted) > 10
    assert table.num_rows == analyze(path).connections.num_rows
    assert "seen_twice" in {row["finding"] for row in report.table("summary").named_rows()}
    files = {file.name for file in (tmp_path / "out" / "connections").rglob("*.parquet")}
    assert files == {Path(name).name for name in DeltaTable(str(tmp_path / "out" / "connections")).file_uris()}
