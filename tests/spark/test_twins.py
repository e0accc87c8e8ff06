"""Connections that are seen twice, in the tables of a job: the driver knows them when tasks have written their rows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kafkatap import analyze
from kafkatap.engine.selection import EVERYTHING
from tests.reports.test_twins import both, column, nat, proxied, sample
from tests.support.captures import pcap_bytes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kafkatap.reports.model import Report


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


@pytest.mark.parametrize("split_size", [0, 200_000])
def test_a_lake_counts_them_once(split_size: int, spark: SparkSession, tmp_path: Path) -> None:
    """Its rows are all there; the rollup, the ledger and the reports are those of one side."""
    from deltalake import DeltaTable

    from kafkatap.spark.frames import exchanges_once
    from kafkatap.spark.job import run_job
    from kafkatap.spark.lake_query import LakeQuery
    from kafkatap.spark.lake_report import lake_report
    from kafkatap.spark.verifying import verify

    alone, twice = tmp_path / "alone.pcap", both(tmp_path, sample(), nat(sample()))
    alone.write_bytes(pcap_bytes(sample(), nanoseconds=True))
    outs = [str(tmp_path / path.stem) for path in (alone, twice)]
    jobs = [
        run_job(spark, [str(path)], out, split_size=split_size).report
        for path, out in zip((alone, twice), outs, strict=True)
    ]
    lakes = [lake_report(out, LakeQuery(EVERYTHING)) for out in outs]
    for name in ("latency", "clients", "error_totals", "throttle"):
        assert _counts(jobs[1], name) == _counts(jobs[0], name)
        assert _counts(lakes[1], name) == _counts(lakes[0], name)
    assert [list(verify(out)) for out in outs] == [[], []]
    assert not any("rollup" in line for line in lakes[1].warnings)
    rows = [DeltaTable(f"{out}/exchanges").to_pyarrow_table().num_rows for out in outs]
    assert rows[1] > 1.5 * rows[0]
    once = exchanges_once(spark, outs[1])
    assert once.count() == rows[0]
    assert once.columns == DeltaTable(f"{outs[1]}/exchanges").to_pyarrow_table().column_names


def _counts(report: Report, name: str) -> list[dict[str, object]]:
    rows = report.table(name).named_rows()
    return [{key: value for key, value in row.items() if "packet" not in key} for row in rows]
