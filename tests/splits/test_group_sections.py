"""The section `groups` is the same for any gathering, any number of processes, and live."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkatap.reports.section_parts import section_counts
from tests.live import test_sections as live
from tests.splits import test_sections
from tests.splits.test_jobs import unpacked
from tests.splits.test_sections import one_process, same, several


@pytest.mark.parametrize("name", ["groups", "rebalances"])
def test_groups(samples: Path, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(test_sections, "WANTED", ("groups",))
    path = unpacked(samples / "questions", name, tmp_path)
    whole = one_process(path)
    same(several(path, 3), whole)
    monkeypatch.setattr(section_counts, "_EXCHANGES", 1)
    same(one_process(path), whole)


def test_live(samples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "WANTED", ("groups",))
    live.test_a_monitor_has_the_sections_of_a_report(samples, tmp_path, "questions/rebalances", live.MemoryLimits())
    live.test_a_monitor_has_the_sections_of_a_report(samples, tmp_path, "apache-4.3", live.MemoryLimits())
