"""Ctrl-C and SIGTERM end a Spark job at once, and says nothing of what Spark says of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kafkatap.spark.cluster.interrupts import Terminated, interruptible
from tests.cli.running import KAFKATAP, environment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def slow(batches: Iterator[Any]) -> Iterator[Any]:
    """A task of five minutes."""
    for batch in batches:
        Path(batch.column("file")[0].as_py()).touch()
        time.sleep(300)
        yield batch


@pytest.mark.parametrize(("number", "raised"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, Terminated)])
def test_a_job_ends_and_the_session_goes_on(
    spark: SparkSession, tmp_path: Path, number: int, raised: type[BaseException]
) -> None:
    begun = tmp_path / "begun"

    def interrupt() -> None:
        while not begun.exists():
            time.sleep(0.05)
        os.kill(os.getpid(), number)

    def work() -> None:
        frame = spark.createDataFrame([(str(begun),)], "file string")
        frame.mapInArrow(slow, "file string").collect()

    threading.Thread(target=interrupt, daemon=True).start()
    before, at = signal.getsignal(number), time.monotonic()
    with pytest.raises(raised) as ended:
        interruptible(lambda: spark, work)
    assert ended.type is raised
    assert time.monotonic() - at < 250
    assert signal.getsignal(number) is before
    assert spark.range(3).count() == 3


def test_what_was_done_all_the_same_counts(spark: SparkSession) -> None:
    main = threading.Event()

    def work() -> str:
        os.kill(os.getpid(), signal.SIGINT)
        main.wait(1)  # what cannot be cancelled: the last files are moved
        return "published"

    assert interruptible(lambda: spark, work) == "published"


def test_the_work_removes_its_files_before_the_interrupt_is_raised(tmp_path: Path) -> None:
    file = tmp_path / "file"

    def work() -> None:
        file.touch()
        try:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(1)
            raise OSError("cancelled")
        finally:
            file.unlink()

    with pytest.raises(KeyboardInterrupt):
        interruptible(lambda: None, work)
    assert not file.exists()


def test_errors_come_through(spark: SparkSession) -> None:
    def work() -> None:
        raise FileNotFoundError("x")

    with pytest.raises(FileNotFoundError, match="x"):
        interruptible(lambda: spark, work)


def test_sigterm_leaves_no_files_and_no_processes(java: None, samples: Path, tmp_path: Path) -> None:
    out, captures = tmp_path / "out", tmp_path / "captures"
    captures.mkdir()
    for number in range(40):  # the job takes longer than the signal, however busy the machine is
        (captures / f"{number}.pcap.zst").symlink_to(samples / "apache-4.3.pcap.zst")
    process = subprocess.Popen(
        [*KAFKATAP, "spark", captures, "-o", out, "--master", "local[1]", "--progress", "--split-size", "0"],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path,
        env=environment(PYSPARK_PYTHON=sys.executable), start_new_session=True,
    )  # fmt: skip
    assert process.stderr is not None
    line = ""
    while "survey: 0 of 40 tasks" not in line:
        line = process.stderr.readline()
        assert line, "the job ended before it began"
    process.send_signal(signal.SIGTERM)
    printed, complaints = process.communicate(timeout=100)
    assert (process.returncode, printed) == (143, "")
    assert complaints.splitlines()[-1] == "kafkatap: terminated"
    assert [p for p in out.rglob("*") if p.is_file() and p.name != "_lock"] == []
    end = time.monotonic() + 30
    while time.monotonic() < end and _has_processes(process.pid):
        time.sleep(0.2)
    assert not _has_processes(process.pid)


def _has_processes(group: int) -> bool:
    """Whether a process group still has members."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True
