"""The files that `kafkatap report` also writes: CSV, plots and tables."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

from kafkatap.reports.model import Report

from ...complaints import complain


def write_files(options: argparse.Namespace, result: Report) -> None:
    """Write what --csv and --plots name. OSError if a file cannot be written."""
    if options.csv:
        from kafkatap.reports.rendering.table_files import write_csv

        complain_written(write_csv(result, Path(options.csv), options.overwrite), options.csv)
    if options.plots:
        from kafkatap.reports.rendering.plots import write_plots

        complain_written(write_plots(result, Path(options.plots), options.utc, options.overwrite), options.plots)


def write_sections(options: argparse.Namespace, result: Report) -> None:
    """Write the tables of the chosen sections as Parquet. OSError if a file cannot be written."""
    from kafkatap.reports.rendering.table_files import write_parquet

    folder = Path(options.parquet) / "sections"
    complain_written(write_parquet(result.tables, folder, options.overwrite), str(folder))


def use_small_pool() -> None:
    """Have Arrow take memory from the system: its own pool keeps 40 MB more. Call it before pyarrow is imported."""
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")


def complain_written(written: Sequence[Path], folder: str) -> None:
    """Say which files were written."""
    names = ", ".join(path.name for path in written)
    complain(f"wrote {names} to {folder}" if written else f"wrote no plot to {folder}: there is no data to plot")
