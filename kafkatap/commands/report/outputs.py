"""The checks of what `kafkatap report` is to write. They import nothing that only some reports need."""

from __future__ import annotations

import argparse
import os
from collections.abc import Collection
from functools import cache

from ...installation import install_command
from ...output_file import check_file, check_folder, check_not_read
from ...replaceable import HTML
from ..values import check_section_options, other_inputs


def check_outputs(options: argparse.Namespace) -> None:
    """Check the outputs before the run, so that a long run does not fail at its end. ValueError or OSError if one
    cannot be made."""
    check_section_options(options)
    if options.follow and options.jobs is not None and options.jobs > 1:
        raise ValueError("--jobs reads captures that are complete; --follow reads those that still grow")
    if options.plots or options.html is not None:
        from importlib.util import find_spec

        if find_spec("matplotlib") is None:
            name = "plots" if options.plots else "html"
            raise ValueError(f"--{name} needs matplotlib ({install_command('plots')})")
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
