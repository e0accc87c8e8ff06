"""A capture cut by its snap length, beside the whole one: what it says is true, and what it cannot know is not said."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from kafkatap import analyze
from kafkatap.reports.findings import Finding
from kafkatap.reports.sections.events import findings
from tests.support.section_runs import section_input

CUT, WHOLE = "apache-4.3-broker1-s128.pcap.zst", "apache-4.3-broker1.pcap.zst"


@cache
def clients(path: Path) -> dict[str, dict[str, Any]]:
    table = analyze(path).report().table("clients")
    names = [c.name for c in table.columns]
    rows = [dict(zip(names, row, strict=True)) for row in table.rows]
    return {str(row["client_id"]): row for row in rows}


@pytest.fixture(scope="module")
def both(corpus: Path) -> tuple[Path, Path]:
    return corpus / "captures" / CUT, corpus / "captures" / WHOLE


def test_no_broker_is_blamed_that_the_whole_capture_does_not_blame(both: tuple[Path, Path]) -> None:
    cut, whole = (clients(path) for path in both)
    blamed = {name for name, row in cut.items() if row["verdict"] == "broker"}
    assert len(blamed) > 10
    # Error codes are cut off, too.
    assert blamed <= {name for name, row in whole.items() if row["verdict"] in ("broker", "failing")}


def test_waits_behind_requests_that_are_cut_are_the_brokers_or_a_quotas(both: tuple[Path, Path]) -> None:
    """The quota's share is at least what the cut capture says, and at most that with what it does not know. So is the
    broker's."""
    cut, whole = (clients(path)["greedy-producer"] for path in both)
    said = {name: int(share) for name, share in re.findall(r"([a-z ]+?) (\d+) %", cut["hol_behind"].replace(",", ""))}
    said = {name.strip(): share for name, share in said.items()}
    assert said["broker or throttle"] > 30
    quota = 100 * whole["hol_throttle_wait_sum_ns"] / (whole["hol_share"] * whole["total_sum_ns"])
    assert said["broker"] <= 100 - quota <= said["broker"] + said["broker or throttle"]


def of_events(path: Path) -> list[Finding]:
    return list(findings(section_input(path, "events")))


def test_no_event_is_invented(both: tuple[Path, Path]) -> None:
    """Two programs captured the same packets, so times differ a little. Of a quota, fewer responses are seen."""
    cut, whole = (of_events(path) for path in both)

    def is_known(found: Finding) -> bool:
        return any(
            (f.id, f.parties) == (found.id, found.parties)
            and abs((f.begin or 0) - (found.begin or 0)) < 1_000_000
            and (f.text == found.text or f.id == "quota_began")
            for f in whole
        )

    assert len(cut) > 10
    assert [f.text for f in cut if not is_known(f)] == []
