"""Findings are the same in one process and in several, and however exchanges are gathered."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkatap.reports.section_parts import section_counts
from kafkatap.splits.run_options import RunOptions
from tests.splits.local_report import count_with_jobs
from tests.splits.test_jobs import unpacked
from tests.splits.test_sections import as_json
from tests.support.section_runs import section_tables

FOLDER = Path(__file__).resolve().parents[2] / "samples" / "advice"


def read(path: Path, parts: int) -> list[str]:
    reading = RunOptions(wanted=("advice",))
    size = -(-path.stat().st_size // parts)
    found = count_with_jobs([str(path)], parts, reading, split_size=size)
    assert found.sections is not None
    return as_json(found.counts, found.context, found.sections).splitlines()


NAMES = (
    "nagle", "advertised", "one-connection", "single-records", "receive-buffer", "black-hole-producer", "fetch-wait",
    "request-timeout", "expelled-poll", "expelled-session", "open-transaction", "reconnects", "slow-follower",
    "hot-leader", "lagging-group", "refused-produce", "idle-dropped", "dying", "advertised-moved", "connection-limit",
    "held-rebalance",
    "position-reset",
)  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_any_number_of_processes(name: str, tmp_path: Path) -> None:
    path = unpacked(FOLDER, name, tmp_path)
    whole = read(path, 1)
    assert any('"finding": ' in line for line in whole)
    assert read(path, 3) == whole


@pytest.mark.parametrize("name", NAMES)
def test_any_gathering(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = FOLDER / f"{name}.pcap.zst"
    expected = section_tables([path], "advice")["advice"].rows
    monkeypatch.setattr(section_counts, "_EXCHANGES", 7)
    assert list(section_tables([path], "advice")["advice"].rows) == list(expected)
