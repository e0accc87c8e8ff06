"""The data source "kafkatap" in sessions of plain Spark, with and without Connect: rows, and wrong options."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kafkatap import analyze
from kafkatap.reports.tables import TABLES
from tests.support.captures import read_bytes
from tests.support.spark_clusters import Place, connect_server

DRIVER = Path(__file__).with_name("source_driver.py")


@pytest.fixture(scope="module")
def capture(samples: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sessions") / "sample.pcap"
    path.write_bytes(read_bytes(samples / "apache-4.3.pcap.zst"))
    return path


def drive(master: str, capture: Path) -> dict[str, Any]:
    """What the driver prints. It and Spark's planner run the Python of these tests, which has kafkatap."""
    plain = {k: v for k, v in os.environ.items() if not k.startswith(("PYSPARK", "SPARK"))}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [sys.executable, DRIVER, master, capture], env=plain | {"PATH": path, "SPARK_LOCAL_IP": "127.0.0.1"},
        cwd=capture.parent, capture_output=True, text=True, timeout=300, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def check(answer: dict[str, Any], capture: Path) -> None:
    wanted = analyze(capture).exchanges.to_pandas()
    produced = int(((wanted.api_name == "Produce") & (wanted.broker_ns > 0)).sum())
    assert answer["counts"] == [[value, len(wanted), produced] for value in ("false", "true", "false")]
    assert answer["failures"] == [
        "there is no table 'packets'; there are " + ", ".join(TABLES),
        "filter: equality is written ==, at character 5 of 'api = Fetch' (docs/filters.md)",
    ]


def test_a_plain_session(java: None, capture: Path) -> None:
    check(drive("local[2]", capture), capture)


def test_a_session_of_spark_connect(java: None, capture: Path, tmp_path: Path) -> None:
    with connect_server(Place(tmp_path / "place", Path(sys.executable)), "local[2]") as url:
        check(drive(url, capture), capture)
