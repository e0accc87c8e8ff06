"""Options that several commands share. Nothing heavy is imported to show them."""

from __future__ import annotations

import argparse

from .values import (
    parse_apis,
    parse_broker,
    parse_duration,
    parse_frame_size,
    parse_limit,
    parse_port,
    parse_size,
    parse_when,
)

EXIT_CODES = """\
exit codes:
  0    done
  1    done, but something was damaged or lost, or no Kafka was found
  2    wrong options, or nothing readable
  130  interrupted (the output covers what was read until then)
"""

#: What the latency is broken down by.
BREAKDOWNS = ("api", "client", "broker", "version", "topic")
BY_HELP = "break down latency by API, and also by this (default: by API only)"
TOP_HELP = "show at most N rows of each table as text; 0 shows all (default: 12)"
VERBOSE_HELP = "write more about the run to standard error"


def add_captures(command: argparse.ArgumentParser) -> None:
    """The captures, for every command that reads them."""
    command.add_argument(
        "captures", nargs="+", metavar="CAPTURE",
        help="pcap or pcapng files, also .gz and .zst; folders and globs; pipes (- for standard input). Packets of "
        "several captures are sorted by time",
    )  # fmt: skip


def add_follow(command: argparse.ArgumentParser, what: str) -> None:
    """Reading captures that are still written. `what` is printed meanwhile."""
    group = command.add_argument_group("captures that grow")
    group.add_argument("--follow", action="store_true",
                       help=f"read files and folders while tcpdump or dumpcap writes them, until Ctrl-C: {what}. Files "
                       "may not exist yet, and may rotate (-C, -G, -W, -b); name the folder, or a quoted "
                       "glob")  # fmt: skip
    group.add_argument("--duration", type=parse_duration, metavar="DURATION",
                       help="with --follow: end after DURATION")  # fmt: skip


class _Filter(argparse.Action):
    """An expression, which the command parses. The value `help` prints what an expression can compare."""

    def __call__(self, parser: argparse.ArgumentParser, space: argparse.Namespace, value: object, *_: object) -> None:
        if value == "help":
            from kafkatap.reports.expressions.names import help_text

            print(help_text())
            parser.exit()
        setattr(space, self.dest, value)


def add_selection(group: argparse._ArgumentGroup, times: bool = True) -> None:
    """The options of a `Selection`. `times`: a time window too."""
    group.add_argument("-f", "--filter", metavar="EXPRESSION", action=_Filter,
                       help="only exchanges that match, such as 'api == Fetch and latency > 50ms'; --filter help lists "
                       "what an expression can compare")  # fmt: skip
    if times:
        group.add_argument("--from", dest="start", type=parse_when, metavar="TIME",
                           help="only exchanges that begin at TIME or later, as reports print it: 15:10:39.5, "
                           "'2026-11-21 15:10:39.5'; or +10s after the first packet, or seconds since the "
                           "epoch")  # fmt: skip
        group.add_argument("--to", dest="end", type=parse_when, metavar="TIME",
                           help="only exchanges that begin before TIME")  # fmt: skip
    group.add_argument("--client", action="append", metavar="NAME",
                       help="only this client_id or client address; * and ? are wildcards: 'billing-*'; may be "
                       "repeated")  # fmt: skip
    group.add_argument("--topic", action="append", metavar="NAME",
                       help="only exchanges on this topic (name or id); * and ? are wildcards: 'orders.*'; may be "
                       "repeated")  # fmt: skip
    group.add_argument("--broker", action="append", metavar="ADDRESS[:PORT]", type=parse_broker,
                       help="only this broker: 10.0.0.1, 10.0.0.1:9092, or :9092 for a port on any address; may be "
                       "repeated")  # fmt: skip
    group.add_argument("--api", action="append", type=parse_apis, metavar="NAMES",
                       help="only these APIs, by name or key: Fetch,Produce or 0,1; may be repeated")  # fmt: skip


def add_definitions(group: argparse._ArgumentGroup) -> None:
    """The option --definitions, for every command that decodes or names messages (see `chosen_definitions`)."""
    group.add_argument(
        "--definitions", action="append", metavar="PATH",
        help="add the messages of a newer Kafka or of a vendor: PATH is a folder with message definitions (.json), "
        "such as Kafka's sources, a kafka-clients .jar, or a .json file; may be repeated: the last one that defines "
        "a message wins",
    )  # fmt: skip


def add_reading(group: argparse._ArgumentGroup) -> None:
    """How captures are read."""
    group.add_argument("--port", action="append", type=parse_port, metavar="PORT",
                       help="hint that brokers listen on PORT; Kafka is found on any port without it")  # fmt: skip
    add_definitions(group)


def add_limits(command: argparse.ArgumentParser, live: bool = False) -> argparse._ArgumentGroup:
    """How much is kept in memory (see `limits_of`). `live`: the defaults of live capture."""
    group = command.add_argument_group(
        "limits", "What is kept at most. What is given up beyond that is in the report's ledger."
    )
    group.add_argument("--max-frame", type=parse_frame_size, metavar="SIZE",
                       help="decode messages up to SIZE whole, and only the first 64 KiB of larger ones "
                       "(default: 100m, the largest that brokers accept)")  # fmt: skip
    group.add_argument("--max-held", type=parse_size, metavar="SIZE",
                       help="memory for messages that are not complete yet, and a 64th of it for data behind gaps "
                       "(default: 2g)")  # fmt: skip
    group.add_argument("--max-connections", type=parse_limit, metavar="N",
                       help="end a silent connection after N others began "
                       f"(default: {100_000 if live else 262_144:,})")  # fmt: skip
    group.add_argument("--max-waiting", type=parse_limit, metavar="N",
                       help="requests that wait for their response; the oldest are given up first "
                       f"(default: {100_000 if live else 1_000_000:,})")  # fmt: skip
    group.add_argument("--max-names", type=parse_limit, metavar="N",
                       help="client ids, topics, addresses and rows of tables; the rest counts as (other) "
                       f"(default: {200_000 if live else 250_000:,})")  # fmt: skip
    return group


def add_appearance(group: argparse._ArgumentGroup) -> None:
    """What a terminal shows."""
    group.add_argument("--utc", action="store_true",
                       help="show and read times in UTC instead of local time")  # fmt: skip
    add_color(group)
    group.add_argument("--no-progress", dest="progress", action="store_false",
                       help="show no progress bar on standard error")  # fmt: skip


def add_color(group: argparse._ArgumentGroup) -> None:
    """When output has colours."""
    group.add_argument("--color", choices=("auto", "always", "never"), default="auto",
                       help="use colours on a terminal (auto; NO_COLOR turns them off), always, or never")  # fmt: skip


def add_verbose(group: argparse._ArgumentGroup) -> None:
    """How much a command says about its run."""
    group.add_argument("-v", "--verbose", action="count", default=0, help=VERBOSE_HELP)
