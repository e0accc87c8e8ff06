"""The options of `kafkatap report`."""

from __future__ import annotations

import argparse

from ..shared_options import (
    BREAKDOWNS,
    BY_HELP,
    EXIT_CODES,
    add_appearance,
    add_captures,
    add_cluster,
    add_follow,
    add_ledger,
    add_limits,
    add_number,
    add_overwrite,
    add_pager,
    add_reading,
    add_request_log,
    add_section_options,
    add_sections,
    add_selection,
    add_sort,
    add_verbose,
    add_width,
)
from ..values import TEXT_ROWS, parse_duration, parse_jobs

DESCRIPTION = "Report latency, throttling, error codes, clients and a timeline of one or more captures."
EXAMPLES = (
    """\
examples:
  kafkatap report capture.pcap
  kafkatap report --by client --api Fetch,Produce broker1.pcapng
  kafkatap report --from +30s --to +60s --client 'billing-*' ring/*.pcap.gz
  kafkatap report --jobs 8 huge.pcap
  kafkatap report --request-log kafka-request.log capture.pcap    # the broker's own times beside ours
  kafkatap report --utc --from 15:10:39.5 --topic orders capture.pcap
  tcpdump -w - port 9092 | kafkatap report -
  kafkatap report --follow --interval 30s ring/       # while tcpdump -C 100 -W 10 -w ring/r port 9092 runs
  kafkatap report --definitions kafka-clients-4.9.0.jar capture.pcap    # a Kafka newer than kafkatap
  kafkatap report --html report.html capture.pcap    # a page: all sections, with charts
  kafkatap report --json capture.pcap | jq '.reports.errors'
  kafkatap report --from 2026-11-21T08:00Z --client 'billing-*' tables    # the folder of `kafkatap spark`

"""
    + EXIT_CODES
)
#: What -h shows.
OFTEN = ("--sections", "--by", "--filter", "--from", "--to", "--client", "-n", "--html", "--json", "--jobs")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options to the command's parser."""
    add_captures(parser, ". Or the folder of `kafkatap spark`, for whole hours of it")
    add_follow(parser, "a report each --interval")
    what = parser.add_argument_group("selection")
    what.add_argument("--by", choices=BREAKDOWNS, default="api", help=BY_HELP)
    add_sections(what)
    add_selection(what)
    add_cluster(what)
    what.add_argument("--interval", type=parse_duration, metavar="DURATION",
                      help="length of the timeline's intervals, such as 100ms or 5m; the busiest are shown, see -n "
                      "(default: the timeline fits a screen). With --follow: the time between two reports (default: "
                      "10s)")  # fmt: skip
    add_reading(what)
    what.add_argument("--jobs", type=parse_jobs, metavar="N",
                      help="share the connections out to N processes; auto: one for each usable core (default: auto "
                      "for more than 4 GiB on more than two cores, else 1)")  # fmt: skip
    how = parser.add_argument_group("output")
    add_number(how, "rows of each table", default=None, usual=f"{TEXT_ROWS} in text, all with --json")
    add_sort(how)
    add_width(how)
    add_appearance(how)
    add_pager(how)
    add_ledger(how)
    add_verbose(how)
    also = parser.add_argument_group("other output")
    also.add_argument("--json", action="store_true", help="write the whole report as JSON to standard output")
    also.add_argument("--html", metavar="FILE",
                      help="also write a page for a browser to FILE: every section (or those of --sections) with "
                      "charts, sortable tables, and the commands that print the packets of a row (needs "
                      "matplotlib)")  # fmt: skip
    also.add_argument("--csv", metavar="DIR", help="also write each report as a CSV file to DIR")
    also.add_argument("--plots", metavar="DIR", help="also write plots as SVG and PNG to DIR (needs matplotlib)")
    also.add_argument("--parquet", metavar="DIR", help="also write the tables behind the reports as Parquet to DIR")
    add_overwrite(also)
    add_request_log(add_section_options(parser))
    add_limits(parser)
