"""The samples for questions that are recorded on loopback: each is documented, and its script still records it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from kafkatap import analyze
from tests.support.kerberos import missing_kdc
from tests.support.recording import cannot_record

FOLDER = Path(__file__).resolve().parent.parent / "samples" / "questions"
SCRIPTS = ("auth", "expulsions", "groups", "patience", "rebalances", "retries", "sasl", "timeouts", "transactions")
LARGEST = 300 * 1024


def files_of(folder: Path, name: str) -> list[Path]:
    """The files of a sample: the capture and its truth."""
    return sorted(path for path in folder.iterdir() if path.name.startswith(f"{name}."))


def test_each_sample_is_small_and_has_truth_and_a_description() -> None:
    readme = (FOLDER / "README.md").read_text()
    for name in SCRIPTS:
        files = files_of(FOLDER, name)
        assert f"{name}.pcap.zst" in {path.name for path in files}
        assert len(files) >= 2, f"{name} has no truth"
        assert f"| `{name}` |" in readme
        assert all(path.stat().st_size < LARGEST for path in files)


@pytest.mark.long
@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_records_its_sample_anew(name: str, tmp_path: Path) -> None:
    if why := cannot_record() or (missing_kdc() if name == "sasl" else ""):
        pytest.skip(why)
    command = [sys.executable, f"samples/questions/make_{name}.py", str(tmp_path)]
    done = subprocess.run(command, cwd=FOLDER.parent.parent, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    assert [path.name for path in files_of(tmp_path, name)] == [path.name for path in files_of(FOLDER, name)]
    for path in files_of(tmp_path, name):
        if path.suffix == ".json":
            assert set(json.loads(path.read_text())) == set(json.loads((FOLDER / path.name).read_text()))
        elif path.suffix != ".zst":
            assert path.read_text().count("\n") > 3
    for path in tmp_path.glob("*.pcap.zst"):
        anew, committed = analyze(path).exchanges, analyze(FOLDER / path.name).exchanges
        assert anew.num_rows > committed.num_rows / 3
        assert set(anew["client_id"].to_pylist()) == set(committed["client_id"].to_pylist())
