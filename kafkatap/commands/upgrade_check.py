"""`kafkatap upgrade-check`: the report with the section `upgrade` alone, and an exit code by its verdicts."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from .exit_codes import BREAKS
from .shared_options import (
    add_appearance,
    add_captures,
    add_limits,
    add_number,
    add_pager,
    add_reading,
    add_release,
    add_selection,
    add_verbose,
    add_width,
)
from .values import parse_jobs

if TYPE_CHECKING:
    from kafkatap.reports.model import Report

DESCRIPTION = """\
List the clients in one or more captures, and which of them a newer release of Kafka refuses.

Kafka 4.0 removed old versions of APIs (KIP-896). A client breaks if it uses one of them although its broker offers a
newer one: then it knows no newer one. The exit code says whether any client breaks.
"""
EXAMPLES = """\
examples:
  kafkatap upgrade-check capture.pcap
  kafkatap upgrade-check --release 4.3 ring/*.pcap.gz
  kafkatap upgrade-check --client 'billing-*' --json capture.pcap
  kafkatap upgrade-check --jobs 8 huge.pcap || echo 'not yet'

exit codes:
  0    no client breaks, as far as the captures show (some may be unclear: cannot tell)
  3    a client breaks
  1    no client breaks, but a capture is damaged or cut short, or no Kafka was found
  2    wrong options, or nothing readable
  130  interrupted (the output covers what was read until then)
"""
#: What -h shows.
OFTEN = ("--release", "--client", "--filter", "-n", "--jobs", "--json")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options to the command's parser."""
    add_captures(parser)
    what = parser.add_argument_group("selection")
    add_release(what)
    add_selection(what)
    add_reading(what)
    what.add_argument("--jobs", type=parse_jobs, metavar="N", help="read with N processes, as report does")
    how = parser.add_argument_group("output")
    add_number(how, default=0)
    add_width(how)
    add_appearance(how)
    add_pager(how)
    add_verbose(how)
    how.add_argument("--json", action="store_true", help="write the result as JSON to standard output, as report does")
    add_limits(parser)


def run(options: argparse.Namespace) -> int:
    """Run the command; return its exit code."""
    from .report import arguments, command

    parser = argparse.ArgumentParser()
    arguments.add_arguments(parser)
    usual = parser.parse_args(["-"])
    return command.run(argparse.Namespace(**{**vars(usual), "sections": ["upgrade"], **vars(options)}), _exit_code)


def _exit_code(made: Report) -> int | None:
    from kafkatap.reports.sections.upgrade import breaking_clients

    return BREAKS if breaking_clients(made.table("upgrade")) else None
