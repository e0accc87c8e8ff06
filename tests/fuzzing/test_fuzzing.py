"""A short run of every target. `python benchmarks/fuzz.py` runs them for longer.

KAFKATAP_FUZZ multiplies the number of inputs (1 unless set).
"""

from __future__ import annotations

import os

import pytest

from kafkatap.kernels.decorator import kernel_mode

from .target import examine
from .targets import TARGETS

ROUNDS = int(os.environ.get("KAFKATAP_FUZZ", "1"))
#: Inputs of each target: so many take about a second.
INPUTS = {
    "captures": 60, "layers": 60, "streams": 25, "framing": 50, "several": 15, "splits": 5, "machine": 400,
    "records": 300, "filters": 800, "definitions": 200, "commands": 15, "compare": 8, "lakes": 4,
    "request logs": 1_000, "tls records": 60, "key logs": 200, "trimming": 60,
    "hosts": 300,
}  # fmt: skip

#: Half a second for each input: the short run has a quarter of them.
SHORT = INPUTS | {"tls records": 15}


@pytest.mark.parametrize("name", INPUTS)
def test_nothing_is_found(name: str) -> None:
    _check(name, "short", SHORT[name])


@pytest.mark.long
@pytest.mark.parametrize("name", INPUTS)
def test_nothing_is_found_for_long(name: str) -> None:
    _check(name, "long", 15 * INPUTS[name])


def _check(name: str, seed: str, inputs: int) -> None:
    if kernel_mode() == "python":
        inputs = inputs // 30 + 1
    target = TARGETS[name]
    target.check(target.input("warm-up"))  # loads kernels and libraries, which takes time and memory
    for number in range(inputs * ROUNDS):
        finding = examine(target, target.input(f"{seed} {number}"))
        assert finding is None, f"input {seed} {number}: {finding.text}"
