"""The options of `kafkatap doctor`."""

from __future__ import annotations

import argparse

from ..shared_options import TOP_HELP, add_appearance, add_captures, add_limits, add_reading, add_verbose, add_width
from ..values import parse_count

DESCRIPTION = """\
Say how good one or more captures are, and which capture command would do better.

It finds what makes reports incomplete or wrong: cut or dropped packets, gaps, missing directions, copies, clock steps,
encryption, no Kafka at all, and more. Each finding has its evidence, its effect on reports, and a remedy.
"""
EXAMPLES = """\
examples:
  kafkatap doctor capture.pcap
  kafkatap doctor -v ring/*.pcap.gz        # with all tables: gaps by connection, interfaces, the ledger
  tcpdump -c 10000 -w - port 9092 | kafkatap doctor -
  kafkatap doctor --json capture.pcap | jq '.reports.findings'

exit codes:
  0    no problem found (there may be notes)
  3    a problem was found: an error or a warning, also if it is a damaged capture or no Kafka
  2    wrong options, or nothing readable
  130  interrupted (the output covers what was read until then)
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options to the command's parser."""
    add_captures(parser)
    add_reading(parser.add_argument_group("reading"))
    how = parser.add_argument_group("output")
    how.add_argument("--top", type=parse_count, metavar="N", help=TOP_HELP.replace("12", "5; with -v 20"))
    add_width(how)
    add_appearance(how)
    add_verbose(how, "print all tables and the ledger, and write more about the run to standard error")
    how.add_argument("--json", action="store_true", help="write the result as JSON to standard output, as report does")
    add_limits(parser)
