"""Kernels from the store, compiled by numba (with bounds checked) and as plain Python give the same tables."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkatap.kernels.decorator import kernel_mode
from tests.wire.probe import digests

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = [f"samples/{name}.pcap.zst" for name in ("apache-0.8.2", "apache-0.10.2", "apache-2.8", "apache-4.3")]
PACKETS = 1_500
MODES = {
    "numba": ({"KAFKATAP_KERNELS": "numba", "KAFKATAP_BOUNDSCHECK": "1"}, 60),
    "python": ({"NUMBA_DISABLE_JIT": "1"}, 3),
}


@pytest.fixture(scope="module")
def probes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, subprocess.Popen[str]]]:
    """One process a mode, all at work at the same time; each with a cache folder of its own."""
    started = {}
    for mode, (settings, rounds) in MODES.items():
        environment = os.environ | {"KAFKATAP_CACHE": str(tmp_path_factory.mktemp(mode)), "PYTHONWARNINGS": "error"}
        started[mode] = subprocess.Popen(
            [sys.executable, "-m", "tests.wire.probe", str(PACKETS), str(rounds), *SAMPLES],
            cwd=ROOT, env=environment | settings, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
    yield started
    for process in started.values():
        if process.poll() is None:
            process.kill()
            process.wait(10)


@pytest.mark.parametrize("mode", sorted(MODES))
def test_the_same_tables(mode: str, probes: dict[str, subprocess.Popen[str]]) -> None:
    """And no index out of bounds, no overflow that Python warns of, on hostile bytes."""
    if kernel_mode() != "store":
        pytest.skip("compares the modes with the store's kernels, which this run does not use")
    out, errors = probes[mode].communicate(timeout=180)
    assert probes[mode].returncode == 0, errors[-3_000:]
    wanted = digests(SAMPLES, PACKETS)
    assert json.loads(out) == wanted
    assert all(int(text.split()[0]) > 100 for text in wanted.values())
