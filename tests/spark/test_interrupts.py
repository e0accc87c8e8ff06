"""Ctrl-C ends a Spark job at once, and says nothing of what Spark says of it."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kafkatap.spark.cluster.interrupts import interruptible

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def slow(batches: Iterator[Any]) -> Iterator[Any]:
    """A task of five minutes."""
    for batch in batches:
        Path(batch.column("file")[0].as_py()).touch()
        time.sleep(300)
        yield batch


def test_a_job_ends_and_the_session_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    begun = tmp_path / "begun"

    def interrupt() -> None:
        while not begun.exists():
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    def work() -> None:
        frame = spark.createDataFrame([(str(begun),)], "file string")
        frame.mapInArrow(slow, "file string").collect()

    threading.Thread(target=interrupt, daemon=True).start()
    before, at = signal.getsignal(signal.SIGINT), time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        interruptible(spark, work)
    assert time.monotonic() - at < 250
    assert signal.getsignal(signal.SIGINT) is before
    assert spark.range(3).count() == 3


def test_what_was_done_all_the_same_counts(spark: SparkSession) -> None:
    main = threading.Event()

    def work() -> str:
        os.kill(os.getpid(), signal.SIGINT)
        main.wait(1)  # what cannot be cancelled: the last files are moved
        return "published"

    assert interruptible(spark, work) == "published"


def test_errors_come_through(spark: SparkSession) -> None:
    def work() -> None:
        raise FileNotFoundError("x")

    with pytest.raises(FileNotFoundError, match="x"):
        interruptible(spark, work)
