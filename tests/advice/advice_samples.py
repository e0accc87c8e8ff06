"""The recordings of samples/advice, their truth, and the findings of the section `advice` on them."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from kafkatap.reports.findings import Finding
from kafkatap.reports.sections.advice import findings
from tests.support.section_runs import section_input

FOLDER = Path(__file__).resolve().parents[2] / "samples" / "advice"
SECOND = 1_000_000_000


@cache
def found(name: str) -> tuple[Finding, ...]:
    """The findings on a recording, with what only `--sections advice` reads."""
    return tuple(findings(section_input(FOLDER / f"{name}.pcap.zst", "advice")))


def of(name: str, signature: str) -> list[Finding]:
    """The findings of one signature on a recording."""
    return [finding for finding in found(name) if finding.id == signature]


def truth(name: str) -> dict[str, Any]:
    """The truth beside a recording."""
    made: dict[str, Any] = json.loads((FOLDER / f"{name}.truth.json").read_text())
    return made


def lines(name: str, suffix: str) -> list[tuple[int, str]]:
    """The lines of a log beside a recording: time in ms, text."""
    rows = (line.split("\t", 1) for line in (FOLDER / f"{name}.{suffix}").read_text().splitlines())
    return [(int(at), text) for at, text in rows]
