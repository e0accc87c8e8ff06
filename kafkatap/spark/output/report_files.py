"""OUT/report.json and OUT/report.txt: the reports of the last run."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from kafkatap.reports.rendering.json_report import write_json
from kafkatap.reports.rendering.text import write_text

from ...installation import own_version
from .folders import Folder

if TYPE_CHECKING:
    from kafkatap.reports.model import Report

NAMES = ("report.json", "report.txt")


def write_report(out: str, report: Report, is_private: bool = False) -> None:
    """Write both files, with all rows of each table. Times are UTC, as in the column `date`. `is_private`: as of
    `Folder`."""
    as_json, as_text = io.StringIO(), io.StringIO()
    write_json(report, as_json, own_version())
    write_text(report, as_text, top=0, utc=True, color=False, whole_ledger=True)
    folder = Folder(out, is_private)
    for name, made in zip(NAMES, (as_json, as_text), strict=True):
        folder.write(name, made.getvalue().encode())
