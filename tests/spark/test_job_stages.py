"""The progress of a job moves while its tasks run, and its figures are Spark's own."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from kafkatap.spark.cluster import job_stages
from kafkatap.spark.cluster.job_stages import Stages

if TYPE_CHECKING:
    import pytest
    from pyspark.sql import SparkSession


def half_a_second(batches: Iterator[Any]) -> Iterator[Any]:
    for batch in batches:
        time.sleep(0.5)
        yield batch


def test_progress_moves_and_jobs_have_names(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_stages, "LOOK_EVERY", 0.1)
    shown: list[tuple[str, int, int, int]] = []
    stages = Stages(spark, lambda *progress: shown.append(progress))
    spark.sparkContext.setJobDescription("mine")
    finished = stages("decode", [100, 200, 300, 400, 500, 600])
    frame = spark.range(0, 6, 1, 6).mapInArrow(half_a_second, "id long")
    frame.toArrow()
    spark.range(0, 2, 1, 2).mapInArrow(half_a_second, "id long").repartition(2).toArrow()  # another, with a shuffle
    finished()
    assert shown[0] == ("decode", 0, 6, 0)
    assert any(0 < done < 6 and total == 6 and read in (100, 300, 600, 1000, 1500) for _, done, total, read in shown)
    figures = stages.figures["decode"]
    assert figures.jobs >= 2
    assert figures.tasks >= 10  # the second frame has a stage of two tasks before its shuffle
    assert shown[-1] == ("decode", figures.tasks, figures.tasks, 2100)
    assert figures.task_s > 4
    assert figures.bytes_shuffled > 0
    assert figures.bytes_to_driver > 1000
    jobs: Any = spark.sparkContext._jsc.sc().statusStore().jobsList(None)  # type: ignore[attr-defined]
    names = [jobs.apply(i).description() for i in range(jobs.size())]
    assert "kafkatap decode: 6 tasks, 2.1 KiB" in [name.get() for name in names if name.isDefined()]
    assert spark.sparkContext.getLocalProperty("spark.job.description") == "mine"
    spark.sparkContext.setJobDescription(None)


def test_no_two_jobs_share_a_group(spark: SparkSession) -> None:
    groups = []
    for _ in range(20):
        finished = Stages(spark, lambda *progress: None)("decode", [1])
        groups.append(spark.sparkContext.getLocalProperty("spark.jobGroup.id"))
        finished()
        del finished  # what follows may have the same place in memory
    assert len(set(groups)) == len(groups)


def test_figures_are_of_one_stage_only(spark: SparkSession) -> None:
    stages = Stages(spark, lambda *progress: None)
    for name, count in (("survey", 2), ("decode", 3)):
        finished = stages(name, [1] * count)
        spark.range(0, count, 1, count).mapInArrow(half_a_second, "id long").toArrow()
        finished()
    assert [(f.jobs, f.tasks, f.bytes_shuffled) for f in stages.figures.values()] == [(1, 2, 0), (1, 3, 0)]
