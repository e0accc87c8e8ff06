"""OUT/report.json and OUT/report.txt: the reports of a run, published with its tables."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from kafkatap.reports.rendering.json_report import write_json
from kafkatap.reports.rendering.text import write_text

from ...installation import own_version

if TYPE_CHECKING:
    from kafkatap.reports.model import Report

    from .publish import Staging, Written

NAMES = ("report.json", "report.txt")


def write_report(staging: Staging, report: Report) -> list[Written]:
    """Write both files, with all rows of each table. Times are UTC, as in the names of partitions."""
    as_json, as_text = io.StringIO(), io.StringIO()
    write_json(report, as_json, own_version())
    write_text(report, as_text, top=0, utc=True, color=False)
    return [staging.write_text(name, made.getvalue()) for name, made in zip(NAMES, (as_json, as_text), strict=True)]
