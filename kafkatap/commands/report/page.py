"""`kafkatap report --html`: the page of a report.

Without --sections the page has all sections. What is printed stays the same, so the sections that only the page has
are taken out of it (`as_printed`).
"""

from __future__ import annotations

import argparse

from kafkatap.reports.model import Report

from ...complaints import complain
from ...installation import own_version
from ...output_file import write_whole


def has_curves(options: argparse.Namespace) -> bool:
    """Whether the report needs what plots are made of."""
    return bool(options.plots or options.html)


def choose_sections(options: argparse.Namespace) -> None:
    """Have the run read all sections if a page needs them. `options.is_all_on_page`: only the page shows them."""
    options.is_all_on_page = bool(options.html) and options.sections is None
    if options.is_all_on_page:
        from kafkatap.reports.section_parts.registry import section_names

        options.sections = section_names()


def as_printed(options: argparse.Namespace, report: Report) -> Report:
    """The report that is printed, and written as files besides the page."""
    if not options.is_all_on_page:
        return report
    from kafkatap.reports.rendering.json_report import REPORTS
    from kafkatap.reports.section_parts.registry import FIRST, load_sections

    printed = set(REPORTS) - {"error_meanings"}  # of a chosen section
    for section in load_sections(FIRST):
        printed |= set(section.columns)
    if options.request_log:
        from kafkatap.reports.sections import broker_times

        printed |= set(broker_times.SECTION.columns)
    return report.replace(tables=tuple(table for table in report.tables if table.name in printed))


def write_page(options: argparse.Namespace, report: Report) -> None:
    """Write what --html names. OSError if it cannot be written."""
    from kafkatap.reports.rendering.html.charts import chart_figures
    from kafkatap.reports.rendering.html.report_page import render_report

    page = render_report(
        report,
        chart_figures(report, options.utc),
        captures=options.captures,
        utc=options.utc,
        version=own_version(),
    )
    write_whole(options.html, page, options.overwrite)
    complain(f"wrote {options.html}")
