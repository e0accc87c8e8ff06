"""`kafkatap upgrade-check`: the report with the section `upgrade` alone, and an exit code by its verdicts."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from ..exit_codes import BREAKS
from ..report import command as report
from ..report.arguments import add_arguments

if TYPE_CHECKING:
    from kafkatap.reports.model import Report


def run(options: argparse.Namespace) -> int:
    """Run the command; return its exit code."""
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    usual = parser.parse_args(["-"])
    return report.run(argparse.Namespace(**{**vars(usual), "sections": ["upgrade"], **vars(options)}), _exit_code)


def _exit_code(made: Report) -> int | None:
    from kafkatap.reports.sections.upgrade import breaking_clients

    return BREAKS if breaking_clients(made.table("upgrade")) else None
