"""The recipes for Delta tables (docs/recipes.md) print the truth, whatever else is in the tables' folders."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from pyarrow import dataset

from kafkatap import analyze
from kafkatap.spark.output.compaction import compact
from kafkatap.spark.output.delta import open_table
from tests.test_recipes import DELTA, ON_SPARK, printed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CAPTURES = ("apache-4.3.pcap.zst", "apache-2.8.pcap.zst")


def truth(captures: list[str]) -> str:
    """What each recipe prints over these captures."""
    groups = analyze(captures).exchanges.group_by("api_name").aggregate([([], "count_all"), ("request_bytes", "sum")])
    rows = groups.sort_by([("count_all", "descending"), ("api_name", "ascending")]).slice(0, 4).to_pylist()
    return "".join(f"{row['api_name']} {row['count_all']} {row['request_bytes_sum']}\n" for row in rows)


def slowest_clients(captures: list[str]) -> dict[tuple[str, str], tuple[int, float]]:
    """Answered Produce requests and the p99 of their broker time, in ms, by hour and client."""
    found: dict[tuple[str, str], list[int]] = {}
    for row in analyze(captures).exchanges.to_pylist():
        if row["api_name"] == "Produce" and row["outcome"] == "answered":
            key = row["request_first"].strftime("%Y-%m-%d %H:00"), row["client_id"]
            found.setdefault(key, []).append(row["broker_ns"])
    return {key: (len(times), sorted(times)[-(-99 * len(times) // 100) - 1] / 1e6) for key, times in found.items()}


def check_percentiles(text: str, wanted: dict[tuple[str, str], tuple[int, float]]) -> None:
    """The slowest clients, with percentiles of histograms: at most 1.6 % above the exact ones."""
    lines = [line.split() for line in text.splitlines()]
    assert len(lines) == 4
    assert {line[2] for line in lines} == {client for _, client in sorted(wanted, key=lambda key: -wanted[key][1])[:4]}
    for day, hour, client, answered, p99 in lines:
        count, exact = wanted[f"{day} {hour}", client]
        assert count == int(answered)
        assert exact - 0.06 <= float(p99) <= exact * 1.016 + 0.06


def rows_of_glob(out: Path) -> int:
    """The rows of exchanges that `**/*.parquet` reads."""
    paths = [str(path) for path in out.glob("exchanges/**/*.parquet") if not path.name.startswith("part-cut")]
    return dataset.dataset(paths).count_rows()


def leave_files(out: Path) -> None:
    """What a run leaves that is killed before it commits: whole files, and one that ends in the middle."""
    paths = [
        out / "exchanges" / file for file in open_table(str(out), "exchanges").get_add_actions()["path"].to_pylist()
    ]
    for n, path in enumerate(paths):
        shutil.copy(path, path.with_name(f"part-killed-{n:05d}.parquet"))
    cut = paths[0].with_name("part-cut-00000.parquet")
    cut.write_bytes(paths[0].read_bytes()[: paths[0].stat().st_size // 2])


def states(spark: SparkSession, captures: list[str], out: Path) -> Iterator[str]:
    """Write and change the tables; yields after each change."""
    from kafkatap.spark.job import run_job

    run_job(spark, captures, str(out), split_size=0)
    yield "one run"
    run_job(spark, captures, str(out), split_size=0)
    yield "a second run"
    leave_files(out)
    yield "a killed run"
    assert any(table.after < table.before for table in compact(str(out))), "nothing was compacted"
    yield "a compaction"
    list(compact(str(out), retention_hours=0))
    yield "a compaction that deletes files"


def test_recipes_after_each_change(spark: SparkSession, samples: Path, tmp_path: Path) -> None:
    captures = [str(samples / name) for name in CAPTURES]
    wanted, rows = truth(captures), analyze(captures).exchanges.num_rows
    recipes = [block for block in DELTA if block.language == "python"]
    assert len(recipes) == 5
    assert [block.output for block in ON_SPARK] == [wanted]  # as the page shows it
    slowest = slowest_clients(captures)
    without_clusters = "".join("None {} {}\n".format(*line.split()[:2]) for line in wanted.splitlines())
    globbed = {}
    for state in states(spark, captures, tmp_path / "lake"):
        globbed[state] = rows_of_glob(tmp_path / "lake")
        for block in recipes:
            if "histogram" in block.code:
                check_percentiles(printed(block, tmp_path), slowest)
                continue
            answer = without_clusters if "SELECT cluster" in block.code else wanted
            assert printed(block, tmp_path) == answer, f"{state}: {block.line}"
    assert globbed == {
        "one run": rows,
        "a second run": 2 * rows,
        "a killed run": 3 * rows,
        "a compaction": 4 * rows,
        "a compaction that deletes files": rows,
    }
