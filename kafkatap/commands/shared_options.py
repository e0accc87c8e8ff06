"""Options that several commands share. Nothing heavy is imported to show them."""

from __future__ import annotations

import argparse

from .values import parse_apis, parse_broker, parse_frame_size, parse_port, parse_when

EXIT_CODES = """\
exit codes:
  0    done
  1    done, but something was damaged or lost, or no Kafka was found
  2    wrong options, or nothing readable
  130  interrupted; everything read so far is reported
"""

#: Values of --by.
BREAKDOWNS = ("api", "client", "broker", "version", "topic")
BY_HELP = "latency by API, and also by this (default: by API only)"
TOP_HELP = "print N rows of each table; 0 for all (default: 12)"


class _Filter(argparse.Action):
    """Store an expression. `help` prints the names, comparisons and values instead."""

    def __call__(self, parser: argparse.ArgumentParser, space: argparse.Namespace, value: object, *_: object) -> None:
        if value == "help":
            from kafkatap.reports.expressions.names import help_text

            print(help_text())
            parser.exit()
        setattr(space, self.dest, value)


def add_captures(command: argparse.ArgumentParser) -> None:
    """Add the captures, the same for every command that reads them."""
    command.add_argument(
        "captures", nargs="+", metavar="CAPTURE",
        help="pcap or pcapng files, also .gz and .zst; folders and globs; pipes (- for standard input). Several are "
             "read in the order of their packets",
    )  # fmt: skip


def add_selection(group: argparse._ArgumentGroup, times: bool = True) -> None:
    """Add the options of the selection, the same for every command. `times`: with --from and --to."""
    group.add_argument("-f", "--filter", metavar="EXPRESSION", action=_Filter,
                       help="only exchanges that match, such as 'api == Fetch and latency > 50ms'; "
                       "--filter help lists names, comparisons and values")  # fmt: skip
    if times:
        group.add_argument("--from", dest="start", type=parse_when, metavar="TIME",
                           help="only exchanges that start at TIME or later: 15:10:39, '2026-11-21 15:10:39', seconds "
                           "since the epoch, or +10s after the first packet")  # fmt: skip
        group.add_argument("--to", dest="end", type=parse_when, metavar="TIME",
                           help="only exchanges that start before TIME")  # fmt: skip
    group.add_argument("--client", action="append", metavar="NAME",
                       help="only this client_id or client address; * and ? are wildcards: 'billing-*'; "
                       "repeatable")  # fmt: skip
    group.add_argument("--topic", action="append", metavar="NAME",
                       help="only exchanges with this topic (name or id); * and ? are wildcards: 'orders.*'; "
                       "repeatable")  # fmt: skip
    group.add_argument("--broker", action="append", metavar="ADDRESS[:PORT]", type=parse_broker,
                       help="only this broker, such as 10.0.0.1:9092; :PORT for a port on any address; "
                       "repeatable")  # fmt: skip
    group.add_argument("--api", action="append", type=parse_apis, metavar="NAMES",
                       help="only these APIs, by name or key, such as Fetch,Produce or 0,1; "
                       "repeatable")  # fmt: skip


def add_definitions(group: argparse._ArgumentGroup) -> None:
    """Add --definitions, for every command that decodes or names messages (see `chosen_definitions`)."""
    group.add_argument(
        "--definitions", metavar="DIR",
        help="read a newer Kafka: add the message definitions (.json) in DIR, from Kafka's sources, to the built-in "
             "ones",
    )  # fmt: skip


def add_reading(group: argparse._ArgumentGroup) -> None:
    """Add --port and --definitions, the same for every command."""
    group.add_argument("--port", action="append", type=parse_port, metavar="PORT",
                       help="hint: brokers listen on PORT. Kafka is "
                            "found on any port without it; "
                       "repeatable")  # fmt: skip
    add_definitions(group)


def add_max_frame(group: argparse._ArgumentGroup) -> None:
    """Add --max-frame."""
    group.add_argument("--max-frame", type=parse_frame_size, metavar="SIZE",
                       help="decode only the first 64 KiB of messages larger than SIZE "
                       "(default: 100m, the largest message that brokers accept)")  # fmt: skip


def add_appearance(group: argparse._ArgumentGroup) -> None:
    """Add options of the terminal, the same for every command."""
    group.add_argument("--utc", action="store_true", help="print and read times in UTC instead of local time")
    add_color(group)
    group.add_argument("--no-progress", dest="progress", action="store_false", help="no progress bar")


def add_color(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--color", choices=("auto", "always", "never"), default="auto",
                       help="use colours on a terminal (auto; NO_COLOR disables them), always, or never")  # fmt: skip
