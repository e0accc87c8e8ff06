"""The scripts that record samples in network namespaces run, and their captures stay small."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.broker import missing_compiler
from tests.support.namespaces import cannot_build

SAMPLES = Path(__file__).resolve().parents[1] / "samples"
FOLDER = SAMPLES / "questions"
LARGEST = 300_000
#: Files that each script makes.
MADE = {
    "elsewhere": ["elsewhere-groups.pcap.zst", "elsewhere-transactions.pcap.zst", "elsewhere.truth.json"],
    "in_flight": [f"in-flight.{kind}" for kind in ("keys.log", "log.tsv", "pcap.zst", "truth.json")],
    "tcp": ["tcp.pcap.zst", "tcp.ss.json"],
    "storms": ["storms.pcap.zst", "storms.truth.json"],
    "throttle": ["throttle.pcap.zst", "throttle.truth.json"],
    "replication": ["replication.pcap.zst", "replication.truth.json"],
    "zones": ["zones.pcap.zst", "zones.truth.json", "zones.zones.txt"],
    "upgrade": [f"upgrade-{v}.{kind}" for v in ("3.9", "4.3") for kind in ("pcap.zst", "truth.json")],
}


#: Files of samples/account.
ACCOUNT = sorted(
    path.name for path in (SAMPLES / "account").iterdir()
    if path.suffix in (".zst", ".json") and not path.name.startswith(("far", "step"))  # made by hand
)  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("name", [*MADE, "account"])
def test_scripts_record(name: str, tmp_path: Path) -> None:
    if why := cannot_build() or missing_compiler():
        pytest.skip(why)
    folder = SAMPLES / "account" if name == "account" else FOLDER
    command = [sys.executable, str(folder / f"make_{name}.py"), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(MADE.get(name, ACCOUNT))
    assert all(path.stat().st_size > 0 for path in tmp_path.iterdir())


@pytest.mark.parametrize("name", [name for names in MADE.values() for name in names])
def test_files_are_small(name: str) -> None:
    assert 0 < (FOLDER / name).stat().st_size < LARGEST
