"""The checks of what `kafkatap report` is to write. They import nothing that only some reports need."""

from __future__ import annotations

import argparse

from ...installation import install_command
from ...output_file import check_file, check_folder, check_not_read
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
        check_file("--html", options.html, options.captures)
        check_not_read("--html", options.html, other_inputs(options))
    for name, suffixes in (("csv", (".csv",)), ("plots", (".svg", ".png")), ("parquet", (".parquet",))):
        folder = getattr(options, name)
        if folder is not None:
            check_folder(f"--{name}", folder, suffixes)
    if options.sort:
        from kafkatap.reports.rendering.sorting import check_sort

        check_sort(options.sort)
