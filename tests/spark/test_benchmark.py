"""What benchmarks/bench_spark.py and simulate_cluster.py measure."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zstandard

from kafkatap import analyze

FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.syspath_prepend(str(FOLDER))
    yield importlib.import_module("bench_spark")
    for name in ("bench_spark", "simulate_cluster"):
        sys.modules.pop(name, None)


def test_processor_time_includes_children_that_ended(bench: Any) -> None:
    burn = "import time\nend = time.process_time() + 0.5\nwhile time.process_time() < end: pass\n"
    child = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {burn!r}])"
    orphan = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {burn!r}, 'pyspark.' + 'daemon'])"
    usage = bench.run([sys.executable, "-c", f"{child}\n{orphan}\n{burn}"], every=0.01)
    assert 0.9 < usage.driver < 1.6
    assert 0.4 < usage.workers < 0.8  # it ran on after its parent
    assert usage.java == 0
    assert usage.all == usage.driver + usage.workers


def test_the_event_log_of_a_job(java: None, bench: Any, tmp_path: Path) -> None:
    job = bench.contenders_of(bench.SAMPLE, ["local[1]"], tmp_path)[bench.LOCAL + 1]
    found = bench.logged(job.command)
    assert (found.jobs, found.tasks, found.shuffled) == (2, 2, 0)
    assert set(found.seconds) == {"survey", "decode"}
    assert 1_000 < found.to_driver < 1_000_000


def test_files_of_a_cut_capture(bench: Any, samples: Path, tmp_path: Path) -> None:
    whole = tmp_path / "whole.pcap"
    compressed = (samples / "apache-0.8.2.pcap.zst").read_bytes()
    whole.write_bytes(zstandard.ZstdDecompressor().decompressobj().decompress(compressed))
    bench.cut(whole, 7, tmp_path / "cut")
    parts = sorted((tmp_path / "cut").iterdir())
    assert len(parts) == 7
    count = sum(analyze(part).files["packets"][0].as_py() for part in parts)
    assert count == analyze(whole).files["packets"][0].as_py()


def test_connections_that_all_go_through_the_capture(bench: Any, tmp_path: Path) -> None:
    path = tmp_path / "skewed.pcap"
    script = [sys.executable, str(FOLDER / "make_traffic.py"), "steady", str(path)]
    subprocess.run([*script, "--count", "10", "--requests", "20", "--heavy", "200000"], check=True)
    found = analyze(path)
    assert found.exchanges.num_rows == 200
    assert found.connections.num_rows == 10
    sizes = found.connections["client_bytes"].to_pylist()
    assert max(sizes) > 0.9 * sum(sizes)


def test_the_simulation_of_a_cluster(bench: Any) -> None:
    simulation = importlib.import_module("simulate_cluster")
    random = simulation.np.random.default_rng(1)
    even = simulation.Cluster(cores=10, dispatch=0.0, network=1e9, spread=0.0)
    assert simulation.stage(20, 3.0, 0.5, 0, even, random) == pytest.approx(7.0)  # two rounds of ten
    assert simulation.stage(20, 3.0, 0.5, 2e9, even, random) == pytest.approx(41.5)  # 2 s to send the input of each
    slow_driver = simulation.Cluster(cores=10, dispatch=1.0, network=1e9, spread=0.0)
    assert simulation.stage(20, 3.0, 0.5, 0, slow_driver, random) == pytest.approx(22.5)
