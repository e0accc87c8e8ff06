"""The reports beside the tables: OUT/report.json and report.txt of the last run, and OUT/reports/RUN.json of each job.

The report of a job stays as long as the table `files` has a capture of the job.
"""

from __future__ import annotations

import io

from kafkatap.reports.model import Report
from kafkatap.reports.rendering.json_report import write_json
from kafkatap.reports.rendering.text import write_text

from ...installation import own_version
from .delta import read_table
from .folders import Folder

NAMES = ("report.json", "report.txt")
#: The folder with the reports of jobs.
REPORTS = "reports"


def write_report(out: str, report: Report, is_private: bool = False, run: str | None = None) -> None:
    """Write the files, with all rows of each table. Times are UTC, as in the column `date`. `is_private`: as of
    `Folder`. `run`: of a job, whose report is kept beside those of others."""
    as_json, as_text = io.StringIO(), io.StringIO()
    write_json(report, as_json, own_version())
    write_text(report, as_text, top=0, utc=True, color=False, width=0, whole_ledger=True)
    folder = Folder(out, is_private)
    for name, made in zip(NAMES, (as_json, as_text), strict=True):
        folder.write(name, made.getvalue().encode())
    if run is not None:
        folder.write(f"{REPORTS}/{run}.json", as_json.getvalue().encode())


def delete_old_reports(out: str) -> None:
    """Delete the reports of jobs whose captures are all replaced or forgotten."""
    folder = Folder(out)
    there = list(folder.sizes(REPORTS))  # before the table is read: a run that ends meanwhile keeps its report
    runs = set(read_table(out, "files", ["run"])["run"].to_pylist()) if there else set()
    folder.delete_all(name for name in there if name.rpartition("/")[2].removesuffix(".json") not in runs)
