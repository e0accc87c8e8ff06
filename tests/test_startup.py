"""Start-up stays lean: what a command does not need, it does not import."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = (
    "numba",
    "llvmlite",
    "numpy",
    "pyarrow",
    "pandas",
    "matplotlib",
    "rich",
    "scapy",
    "dpkt",
    "zstandard",
    "pyspark",
)

CODE = """
import runpy, sys
sys.argv = ["kafkatap", *{arguments!r}]
try:
    runpy.run_module("kafkatap", run_name="__main__", alter_sys=True)
except SystemExit as stop:
    assert not stop.code, stop.code
print("imported:", *sorted(name for name in {heavy!r} if name in sys.modules))
"""


@pytest.mark.parametrize("arguments", [["--help"], ["report", "--help"], ["--version"]])
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    code = CODE.format(arguments=arguments, heavy=HEAVY)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "imported:"


def test_importing_the_package_imports_nothing_heavy() -> None:
    code = f"import sys, kafkatap; print(*[name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "")
