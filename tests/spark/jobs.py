"""Jobs in the process of a test. What they write is the same as on Spark (test_equality, test_series)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kafkatap.spark import job
from kafkatap.spark.job_result import JobResult


def run_job(captures: str | Path | Sequence[str | Path], out: str | Path, **options: Any) -> JobResult:
    """`kafkatap.spark.job.run_job` without Spark."""
    named = [captures] if isinstance(captures, str | Path) else captures
    return job.run_job(None, list(map(str, named)), str(out), **options)  # type: ignore[arg-type]
