"""From counts to the printed report. `command` imports this module while the first block is read."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from kafkatap.reports.build import build_report
from kafkatap.reports.counting.counts import ReportCounts
from kafkatap.reports.model import Report
from kafkatap.reports.rendering.text import write_text

from ...captures.capture_reader import FileReport
from ...installation import own_version
from ..console import discard_output
from ..values import brief_tables, text_rows

__all__ = ["ReportCounts", "as_ordered", "build_report", "has_requests", "print_report", "write_outputs"]


def has_requests(report: Report) -> bool:
    """Whether the report counts a request."""
    return bool(report.heading.named_rows()[0]["requests"])


def as_ordered(options: argparse.Namespace, report: Report) -> Report:
    """The report with the order of rows that --sort asks for."""
    if not options.sort:
        return report
    from kafkatap.reports.rendering.sorting import sort_report

    return sort_report(report, options.sort)


def write_outputs(
    options: argparse.Namespace, report: Report, page: Report, files: Sequence[FileReport] = ()
) -> None:  # fmt: skip
    """Print the report, and write what --csv, --plots and --html name. `page`: the report of --html. `files`: reports
    on the captures, which the page reads once more. OSError if a file cannot be written."""
    print_report(options, report)
    if options.csv or options.plots:
        from .files import write_files

        write_files(options, report)
    if options.html:
        from .outputs import write_page

        write_page(options, page, files)


def print_report(options: argparse.Namespace, report: Report) -> None:
    """Print the report. If its reader has gone (`| head`), files can still be written."""
    try:
        if options.json and options.follow:
            from kafkatap.reports.rendering.json_report import write_json_line

            write_json_line(report, sys.stdout, own_version(), options.number or 0)
        elif options.json:
            from kafkatap.reports.rendering.json_report import write_json

            write_json(report, sys.stdout, own_version(), options.number or 0)
        else:
            color = None if options.color == "auto" else options.color == "always"
            write_text(
                report, sys.stdout, top=text_rows(options), utc=options.utc, color=color, width=options.width,
                whole_ledger=options.ledger, captures=options.captures, brief=brief_tables(options),
            )  # fmt: skip
        sys.stdout.flush()
    except BrokenPipeError:
        discard_output()
