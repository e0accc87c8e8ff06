"""The options of `kafkatap compare`."""

from __future__ import annotations

import argparse

from ..shared_options import (
    add_appearance,
    add_cluster,
    add_limits,
    add_number,
    add_overwrite,
    add_pager,
    add_reading,
    add_selection,
    add_verbose,
    add_width,
)
from ..values import parse_percent, parse_when

DESCRIPTION = """\
Compare two captures, before and after a change: what got worse, what got better, what is different, and how sure
that is.

Clients, APIs and brokers are compared with themselves, so a different mix or load is not mistaken for slowness. On two
halves of a steady capture it finds nothing.
"""
EXAMPLES = """\
examples:
  kafkatap compare before.pcap after.pcap
  kafkatap compare monday/ tuesday/
  kafkatap compare 'before-*.pcap.gz' 'after-*.pcap.gz'      # globs in quotes: each side is one word
  kafkatap compare --split 15:10:39 capture.pcap             # one capture, before and after that time
  kafkatap compare --client 'billing-*' --min-change 50% before.pcap after.pcap
  kafkatap compare --html compared.html before.pcap after.pcap
  kafkatap compare tables --before 2026-11-21 --after 2026-11-22      # days of a lake (kafkatap spark)
  kafkatap compare --exit-code before.pcap after.pcap || echo 'do not deploy'

exit codes:
  0    done
  3    with --exit-code: something got worse
  1    done, but a capture is damaged or cut short, or no Kafka was found on a side
  2    wrong options, nothing readable, or nothing that matches for the page that was asked for
  130  interrupted (there is no comparison)
"""
#: What -h shows.
OFTEN = (
    "--split",
    "--before",
    "--after",
    "--filter",
    "--client",
    "--min-change",
    "--exit-code",
    "-n",
    "--html",
    "--json",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options to the command's parser."""
    parser.add_argument(
        "captures", nargs="+", metavar="CAPTURE",
        help="two sides, before and after: each is a pcap or pcapng file (also .gz and .zst), a folder, or a glob in "
        "quotes. With --split one side",
    )  # fmt: skip
    what = parser.add_argument_group("selection")
    what.add_argument("--split", type=parse_when, metavar="TIME",
                      help="compare one capture before and after TIME, as of --from")  # fmt: skip
    spans = "of a folder of `kafkatap spark`: a day, or two whole hours, such as"
    what.add_argument("--before", metavar="SPAN", help=f"the span before {spans} 2026-11-21")
    what.add_argument("--after", metavar="SPAN", help=f"the span after {spans} 2026-11-22T08:00Z/2026-11-22T12:00Z")
    add_selection(what)
    add_cluster(what)
    add_reading(what)
    found = parser.add_argument_group("findings")
    found.add_argument("--min-change", type=parse_percent, default=20.0, metavar="PERCENT",
                       help="report changes of at least PERCENT (default: 20%%)")  # fmt: skip
    found.add_argument("--one-sided", action="store_true",
                       help="also list what was seen on one side only, perhaps by chance")  # fmt: skip
    found.add_argument("--exit-code", action="store_true", help="exit with 3 if something got worse")
    how = parser.add_argument_group("output")
    add_number(how, "findings of each kind as text")
    add_width(how)
    add_appearance(how)
    add_pager(how)
    add_verbose(how)
    how.add_argument("--json", action="store_true", help="write the comparison as JSON to standard output")
    also = parser.add_argument_group("other output")
    also.add_argument("--html", metavar="FILE", help="also write a page for a browser to FILE")
    add_overwrite(also)
    add_limits(parser)
