"""The checks of what `kafkatap report` is to write, and the page of --html. Nothing that only some reports need is
imported.

Without --sections the page has all sections. What is printed stays the same, so the sections that only the page has
are taken out of it (`as_printed`).
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Collection, Sequence
from functools import cache, partial

from kafkatap.reports.model import Report

from ...captures.capture_reader import FileReport
from ...captures.pipes import is_pipe
from ...complaints import complain
from ...installation import has_arrow, install_command, without_arrow
from ...output_file import check_file, check_folder, check_not_read
from ...replaceable import HTML
from ..values import check_section_options, other_inputs


def check_outputs(options: argparse.Namespace) -> None:
    """Check the outputs before the run, so that a long run does not fail at its end. ValueError or OSError if one
    cannot be made."""
    check_section_options(options)
    if options.follow and options.jobs is not None and options.jobs > 1:
        raise ValueError("--jobs reads captures that are complete; --follow reads those that still grow")
    if options.plots and not has_matplotlib():
        raise ValueError(f"--plots needs matplotlib ({install_command('plots')})")
    if options.parquet and not has_arrow():
        raise ValueError(without_arrow("--parquet needs"))
    if options.html is not None:
        check_not_read("--html", options.html, other_inputs(options))
        check_file("--html", options.html, HTML, options.captures, options.overwrite)
    for name, suffixes in (("csv", (".csv",)), ("plots", (".svg", ".png")), ("parquet", (".parquet",))):
        folder = getattr(options, name)
        if folder is not None:
            names = _plots if name == "plots" else _tables
            check_folder(f"--{name}", folder, suffixes, names, options.overwrite)
            if name == "parquet":
                sections = os.path.join(folder, "sections")
                if options.sections and os.path.isdir(sections):
                    check_folder("--parquet", sections, suffixes, names, options.overwrite)
    if options.sort:
        from kafkatap.reports.rendering.sorting import check_sort

        check_sort(options.sort)


@cache
def _plots() -> Collection[str]:
    """The names of the files of --plots."""
    from kafkatap.reports.rendering.plots import PLOTS

    return frozenset(PLOTS)


@cache
def _tables() -> Collection[str]:
    """The names of the files of --csv and --parquet."""
    from kafkatap.reports.rendering.json_report import REPORTS
    from kafkatap.reports.section_parts.registry import load_sections, section_names
    from kafkatap.reports.sections import broker_times

    from ...parquet.table_writer import TABLES

    sections = (*load_sections(section_names()), broker_times.SECTION)
    return frozenset({"capture", "warnings", *REPORTS, *TABLES}.union(*(section.columns for section in sections)))


def has_matplotlib() -> bool:
    """Whether plots can be drawn."""
    from importlib.util import find_spec

    return find_spec("matplotlib") is not None


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
    from kafkatap.reports.encryption import MUCH
    from kafkatap.reports.model import as_number
    from kafkatap.reports.rendering.json_report import REPORTS
    from kafkatap.reports.section_parts.registry import FIRST, load_sections

    printed = set(REPORTS) - {"error_meanings"}  # of a chosen section
    is_encrypted = as_number(report.heading.named_rows()[0]["encrypted_share"]) >= MUCH
    for section in load_sections(FIRST):
        if section.name != "tls" or is_encrypted:
            printed |= set(section.columns)
    if options.request_log:
        from kafkatap.reports.sections import broker_times

        printed |= set(broker_times.SECTION.columns)
    return report.replace(tables=tuple(table for table in report.tables if table.name in printed))


def write_page(options: argparse.Namespace, report: Report, files: Sequence[FileReport] = ()) -> None:
    """Write what --html names. `files`: reports on the captures, which are read once more for the packets that the page
    shows. OSError if it cannot be written."""
    from kafkatap.reports.model import PageSource

    from ...extract.sequences import read_sequences

    can_read = not options.follow and not any(map(is_pipe, options.captures))
    source = PageSource(tuple(options.captures), partial(read_sequences, files) if can_read else None)
    report.replace(source=source).page(options.html, utc=options.utc, overwrite=options.overwrite)
    without = "" if has_matplotlib() else f", without three charts that need matplotlib ({install_command('plots')})"
    complain(f"wrote {options.html}{without}")
