"""An executor that is killed in the middle of a job changes nothing in what the job writes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from kafkatap.partitions import to_microseconds
from kafkatap.reports.tables import TABLES
from tests.spark.join_support import compared, differences, local
from tests.support.captures import read_bytes
from tests.support.spark_clusters import spark_home

ROOT = Path(__file__).parents[2]


def test_an_executor_is_killed(java: None, samples: Path, tmp_path: Path) -> None:
    import pyarrow.dataset as ds

    capture = tmp_path / "capture.pcap"
    capture.write_bytes(read_bytes(samples / "apache-2.8.pcap.zst"))
    spark_home(tmp_path / "home")
    told = tmp_path / "told"
    with told.open("wb") as file:
        subprocess.run(
            [sys.executable, "-m", "tests.spark.worker_killed", capture, tmp_path / "out"],
            env={**os.environ, "SPARK_HOME": str(tmp_path / "home")}, cwd=ROOT, stdout=file, stderr=file, timeout=300,
            check=False,
        )  # fmt: skip
    last = told.read_text().splitlines()[-1:]
    assert last, "nothing was told"
    answer = json.loads(last[0])
    assert answer["killed"], "no executor was killed while the job ran"
    published = {
        name: ds.dataset(str(tmp_path / "out" / name), format="parquet").to_table(
            columns=[c.name for c in TABLES[name]]
        )
        for name in TABLES
        if name != "records"
    }
    wanted = {name: to_microseconds(table) for name, table in local(capture).items()}
    assert not differences(compared(published), compared(wanted))
