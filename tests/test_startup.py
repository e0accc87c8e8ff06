"""Start-up stays lean: what a command does not need, it does not import."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kafkatap.kernels import store

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


#: What a report on a capture does not import, beside HEAVY without numpy and zstandard. Each takes 0.3 ms or more.
NOT_FOR_REPORTS = {
    "argparse's and others'": ("shutil", "bz2", "lzma"),
    "files": ("pathlib", "tempfile", "glob", "zipfile"),
    "processes": ("subprocess", "multiprocessing", "concurrent.futures"),
    "formats": ("json", "csv", "html", "base64"),
    "addresses": ("ipaddress", "urllib.parse"),
    "digests": ("hashlib", "random", "secrets"),
    "numbers": ("decimal", "fractions", "statistics"),
    "packages": ("importlib.metadata", "importlib.resources", "pkg_resources"),
    "classes": ("dataclasses",),
    "sorting": ("heapq",),
    "np.unique's": ("numpy.ma",),
    "kernels that must be compiled": (
        "kafkatap.kernels.cache",
        "kafkatap.kernels.build",
        "kafkatap.kernels.numba_bridge",
    ),
    "layouts that must be compiled": ("kafkatap.dissector.programs.compiler", "kafkatap.dissector.layouts.schema"),
    "single messages": (
        "kafkatap.dissector.tree",
        "kafkatap.dissector.records",
        "kafkatap.selected_messages",
        "kafkatap.show",
    ),
    "filters": ("kafkatap.reports.expressions", "kafkatap.reports.literals"),
    "tables": ("kafkatap.reports.tables", "kafkatap.parquet", "kafkatap.library"),
    "several captures": (
        "kafkatap.captures.merge",
        "kafkatap.captures.merged_captures",
        "kafkatap.captures.splits",
        "kafkatap.splits",
    ),
    "TLS, as the capture has none": ("cryptography", "kafkatap.engine.tls.session", "kafkatap.engine.tls.key_log"),
    "other commands": ("kafkatap.live", "kafkatap.spark", "kafkatap.commands.show", "kafkatap.commands.live"),
}

REPORT = """
import sys
import numpy
before = set(sys.modules)
from kafkatap.__main__ import main
assert main(["report", *sys.argv[1:]]) == 0
print("imported:", *sorted(set(sys.modules) - before))
"""


def imported_by(*arguments: str) -> set[str]:
    """The modules that a report imports."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("NUMBA_", "KAFKATAP_", "COV"))}
    done = subprocess.run(
        [sys.executable, "-c", REPORT, *arguments], capture_output=True, text=True, timeout=60, check=False,
        env=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return set(done.stdout.splitlines()[-1].split()[1:])


@pytest.mark.skipif(store.made_ahead() is None, reason="the kernels of this checkout are not compiled ahead")
def test_a_report_imports_only_what_it_needs(samples: Path) -> None:
    # Without rebalances: what knows groups needs dataclasses.
    imported = imported_by(str(samples / "apache-0.8.2.pcap.zst"))
    assert "kafkatap.reports.build" in imported
    unwanted = {*HEAVY, *(name for names in NOT_FOR_REPORTS.values() for name in names)} - {"numpy", "zstandard"}
    assert imported & unwanted == set()


def test_a_capture_of_tls_imports_no_cipher_without_a_key(samples: Path) -> None:
    """Nor what reads certificates, which are encrypted in TLS 1.3."""
    code = REPORT.replace("== 0", "== 1")  # nothing of it can be read
    done = subprocess.run(
        [sys.executable, "-c", code, str(samples / "tls/libraries.pcap.zst")], capture_output=True, text=True,
        timeout=60, check=True,
    )  # fmt: skip
    imported = set(done.stdout.splitlines()[-1].split()[1:])
    assert "kafkatap.engine.tls.session" in imported
    assert not {"cryptography", "kafkatap.engine.tls.ciphers"} & imported
