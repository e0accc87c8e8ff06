"""The scripts of samples/advice that record clients still record their samples, and these stay small."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.namespaces import cannot_build
from tests.support.recording import cannot_record

from .advice_samples import FOLDER

#: By script, its captures with the setting wrong.
SCRIPTS = {
    "fetch_wait": ("fetch-wait",),
    "fetch_sessions": ("fetch-sessions",),
    "request_timeout": ("request-timeout",),
    "expelled": ("expelled-poll", "expelled-session"),
    "dying": ("dying",),
    "held": ("held-rebalance",),
    "open_transaction": ("open-transaction",),
    "lagging_group": ("lagging-group",),
    "position_reset": ("position-reset",),
    "poison_record": ("poison-record",),
    "reconnects": ("reconnects",),
    "idle": ("idle-dropped",),
    "same_address": ("same-address",),
    "followers": ("slow-follower", "hot-leader"),
}
LARGEST = 40_000


def test_each_recording_is_small_and_described() -> None:
    readme = (FOLDER / "README.md").read_text()
    for name in (name for names in SCRIPTS.values() for name in names):
        for path in (FOLDER / f"{name}.pcap.zst", FOLDER / f"{name}-right.pcap.zst"):
            assert path.stat().st_size <= LARGEST
            assert f"`{path.name.removesuffix('.pcap.zst')}`" in readme


@pytest.mark.long
@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_records_its_samples_anew(script: str, tmp_path: Path) -> None:
    if why := cannot_record() or (cannot_build() if script in ("followers", "idle", "same_address") else ""):
        pytest.skip(why)
    command = [sys.executable, f"samples/advice/make_{script}.py", str(tmp_path)]
    done = subprocess.run(command, cwd=FOLDER.parents[1], capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    for name in SCRIPTS[script]:
        for made in (name, f"{name}-right"):
            assert (tmp_path / f"{made}.pcap.zst").stat().st_size > 1000
            assert set(json.loads((tmp_path / f"{made}.truth.json").read_text())) == set(
                json.loads((FOLDER / f"{made}.truth.json").read_text())
            )
