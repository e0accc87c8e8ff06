"""Kernels from the store, compiled by numba (with bounds checked) and as plain Python give the same tables."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from kafkatap.kernels.decorator import kernel_mode
from tests.wire.probe import digests

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = [f"samples/{name}.pcap.zst" for name in ("apache-0.8.2", "apache-0.10.2", "apache-2.8", "apache-4.3")]
MODES = {
    "numba": {"KAFKATAP_KERNELS": "numba", "KAFKATAP_BOUNDSCHECK": "1"},
    "python": {"NUMBA_DISABLE_JIT": "1"},
}


@pytest.mark.parametrize(
    ("mode", "packets", "rounds"),
    [
        ("python", 600, 1),
        pytest.param("python", 1_500, 3, marks=pytest.mark.long),
        pytest.param("numba", 1_500, 60, marks=pytest.mark.long),  # compiles every kernel: minutes
    ],
)
def test_the_same_tables(
    mode: str, packets: int, rounds: int, tmp_path: Path, sweep: Callable[[Sequence[Any], int], list[Any]]
) -> None:
    """And no index out of bounds, no overflow that Python warns of, on hostile bytes."""
    if kernel_mode() != "store":
        pytest.skip("compares the modes with the store's kernels, which this run does not use")
    settings, samples = MODES[mode], sweep(SAMPLES, 2)
    done = subprocess.run(
        [sys.executable, "-m", "tests.wire.probe", str(packets), str(rounds), *samples],
        cwd=ROOT, env=os.environ | {"KAFKATAP_CACHE": str(tmp_path), "PYTHONWARNINGS": "error"} | settings,
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3_000:]
    wanted = digests(samples, packets)
    assert json.loads(done.stdout) == wanted
    assert all(int(text.split()[0]) > 100 for text in wanted.values())
