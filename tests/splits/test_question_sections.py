"""Sections over facts of the captures for questions are the same for any gathering and any number of processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkatap.reports.section_parts import section_counts
from tests.splits import test_sections
from tests.splits.test_jobs import unpacked
from tests.splits.test_sections import one_process, same, several

CAPTURES = (
    "transactions",
    "retries",
    "timeouts",
    "auth",
    "sasl",
    "upgrade-4.3",
    "expulsions",
    "elsewhere-groups",
    "patience",
)


@pytest.mark.parametrize("name", CAPTURES)
def test_questions(samples: Path, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(test_sections, "WANTED", ("auth", "groups", "timeouts", "transactions", "upgrade"))
    path = unpacked(samples / "questions", name, tmp_path)
    whole = one_process(path)
    for processes in (2, 4):
        same(several(path, processes), whole)
    monkeypatch.setattr(section_counts, "_EXCHANGES", 1)
    same(one_process(path), whole)
