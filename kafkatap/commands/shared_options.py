"""Options that several commands share. Nothing heavy is imported to show them."""

from __future__ import annotations

import argparse

from .values import (
    parse_apis,
    parse_broker,
    parse_connection,
    parse_duration,
    parse_frame_size,
    parse_lateness,
    parse_limit,
    parse_number,
    parse_port,
    parse_rate,
    parse_release,
    parse_sections,
    parse_size,
    parse_when,
    parse_width,
    parse_window,
    read_zones,
)

EXIT_CODES = """\
exit codes:
  0    done, also if nothing matches, or if packets are missing in a capture: the report counts gaps and drops
  1    done, but a capture is damaged or cut short, a record batch cannot be read, or no Kafka was found
  2    wrong options, nothing readable, or nothing that matches for a file that was asked for
  130  interrupted (the output covers what was read until then)
"""

#: What the latency is broken down by.
BREAKDOWNS = ("api", "client", "broker", "connection", "version", "topic")
BY_HELP = "break down latency by API, and also by this (default: by API only)"


def add_captures(command: argparse.ArgumentParser, also: str = "") -> None:
    """The captures, for every command that reads them. `also`: what else the command takes."""
    command.add_argument(
        "captures", nargs="+", metavar="CAPTURE",
        help="pcap or pcapng files, also .gz and .zst; folders and globs; pipes (- for standard input). Packets of "
        f"several captures are sorted by time{also}",
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


class _Sections(argparse.Action):
    """Names of sections. The value `help` lists the sections with their questions."""

    def __call__(self, parser: argparse.ArgumentParser, space: argparse.Namespace, value: object, *_: object) -> None:
        if value == ["help"]:
            from kafkatap.reports.section_parts.registry import section_list

            print(section_list(), end="")
            parser.exit()
        setattr(space, self.dest, value)


class _Sort(argparse.Action):
    """A column. The value `help` lists the columns of all tables."""

    def __call__(self, parser: argparse.ArgumentParser, space: argparse.Namespace, value: object, *_: object) -> None:
        if value == "help":
            from kafkatap.reports.rendering.sorting import sort_help

            print(sort_help(), end="")
            parser.exit()
        setattr(space, self.dest, value)


def add_sections(group: argparse._ArgumentGroup) -> None:
    """The sections of a report."""
    group.add_argument("--sections", type=parse_sections, action=_Sections, metavar="NAMES",
                       help="report only these sections, such as clients,topics (help: list them, with the questions "
                       "that they answer; all: every section; default: a short report)")  # fmt: skip


def add_section_options(command: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    """The options of single sections."""
    group = command.add_argument_group("options of single sections")
    add_release(group, "upgrade: ")
    group.add_argument("--late", type=parse_lateness, metavar="DURATION",
                       help="timeouts: a response is late after DURATION, such as 5s: of a request that waited for "
                       "less when the capture ended, it may still come (default: 30s; at least 1s)")  # fmt: skip
    group.add_argument("--quota", type=parse_rate, metavar="BYTES/s",
                       help="throttle: when would this quota throttle each client? Such as 20000 or 1m/s")  # fmt: skip
    group.add_argument("--window", type=parse_window, metavar="NUMxTIME",
                       help="throttle: the windows of byte rates, quota.window.num times quota.window.size.seconds "
                       "(default: 11x1s, as Kafka)")  # fmt: skip
    group.add_argument("--zones", type=read_zones, metavar="FILE",
                       help="zones: a file with a network and its zone in each line, such as '10.1.0.0/16 "
                       "eu-west-1a', or one of --hosts with zones as labels; without it the racks of brokers and "
                       "consumers count")  # fmt: skip
    return group


def add_request_log(group: argparse._ArgumentGroup) -> None:
    """The request logs of brokers, for the section `broker-times`."""
    group.add_argument("--request-log", action="append", metavar="FILE",
                       help="broker-times: the log of kafka.request.logger at DEBUG of a captured broker, for the "
                       "broker's own times beside ours; also .gz and .zst, globs; may be repeated. Adds the section to "
                       "the usual ones")  # fmt: skip


def add_release(group: argparse._ArgumentGroup, section: str = "") -> None:
    """The release of Kafka for the section `upgrade`."""
    group.add_argument("--release", type=parse_release, metavar="RELEASE",
                       help=f"{section}the release of Kafka that brokers are to have, such as 4.3 "
                       "(default: 4.0)")  # fmt: skip


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
                       help="only this client_id, client address, or name of it (--hosts); * and ? are wildcards: "
                       "'billing-*'; may be repeated")  # fmt: skip
    group.add_argument("--connection", action="append", metavar="ADDRESS:PORT", type=parse_connection,
                       help="follow this connection: only exchanges of the client with this address and port; may be "
                       "repeated")  # fmt: skip
    group.add_argument("--topic", action="append", metavar="NAME",
                       help="only exchanges on this topic (name or id); * and ? are wildcards: 'orders.*'; may be "
                       "repeated")  # fmt: skip
    group.add_argument("--broker", action="append", metavar="ADDRESS[:PORT]", type=parse_broker,
                       help="only this broker: 10.0.0.1, 10.0.0.1:9092, or :9092 for a port on any address; may be "
                       "repeated")  # fmt: skip
    group.add_argument("--api", action="append", type=parse_apis, metavar="NAMES",
                       help="only these APIs, by name or key: Fetch,Produce or 0,1; may be repeated")  # fmt: skip
    _add_group(group)


def add_cluster(group: argparse._ArgumentGroup) -> None:
    """The option --cluster, for commands that read a lake too."""
    group.add_argument("--cluster", metavar="NAME", help="of a folder of `kafkatap spark`: only the captures of this "
                       "cluster, as --path-pattern named it; * and ? are wildcards")  # fmt: skip


def _add_group(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--group", action="append", metavar="NAME",
                       help="only exchanges that name this consumer group; with --sections groups alone: only this "
                       "group, with its lag, which is from requests that name no group; may be repeated")  # fmt: skip


def add_definitions(group: argparse._ArgumentGroup) -> None:
    """The option --definitions, for every command that decodes or names messages (see `chosen_definitions`)."""
    group.add_argument(
        "--definitions", action="append", metavar="PATH",
        help="add the messages of a newer Kafka or of a vendor: PATH is a folder with message definitions (.json), "
        "such as Kafka's sources, a kafka-clients .jar, or a .json file; may be repeated: the last one that defines "
        "a message wins",
    )  # fmt: skip


def add_key_logs(group: argparse._ArgumentGroup) -> None:
    """The option --keylog, for every command that decodes (see `chosen_key_log`)."""
    group.add_argument(
        "--keylog", action="append", metavar="FILE",
        help="decrypt TLS connections with the secrets in FILE, which clients and brokers write where SSLKEYLOGFILE or "
        "a setting says so; also .gz and .zst, globs; may be repeated. The variable itself is not read: --keylog "
        "\"$SSLKEYLOGFILE\". Secrets in a pcapng are used without this option",
    )  # fmt: skip


def add_hosts(group: argparse._ArgumentGroup) -> None:
    """The option --hosts, for every command that shows addresses (see `chosen_hosts`)."""
    group.add_argument("--hosts", action="append", metavar="FILE",
                       help="names of addresses: a hosts file, `kubectl get pods,svc,nodes -A -o json`, `aws ec2 "
                       "describe-network-interfaces`, or CSV (address or network, name, labels, from, to); globs; may "
                       "be repeated. For tables, --client, and filters such as 'client_host ~ \"^payments\"'"
                       )  # fmt: skip


def add_reading(group: argparse._ArgumentGroup) -> None:
    """How captures are read."""
    group.add_argument("--port", action="append", type=parse_port, metavar="PORT",
                       help="hint that brokers listen on PORT; Kafka is found on any port without it")  # fmt: skip
    add_definitions(group)
    add_key_logs(group)
    add_hosts(group)


def add_limits(command: argparse.ArgumentParser, live: bool = False) -> argparse._ArgumentGroup:
    """How much is kept in memory (see `limits_of`). `live`: the defaults of live capture."""
    group = command.add_argument_group(
        "limits", "What is kept at most. What is given up beyond that is in the report's ledger."
    )
    group.add_argument("--max-frame", type=parse_frame_size, metavar="SIZE",
                       help="decode messages up to SIZE whole, and only the first 64 KiB of larger ones "
                       "(default: 100m, the largest that brokers accept)")  # fmt: skip
    group.add_argument("--max-held", type=parse_size, metavar="SIZE",
                       help="memory for messages that are not complete yet, and a 32nd of it for data behind gaps "
                       "(default: 1g)")  # fmt: skip
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


def add_pager(group: argparse._ArgumentGroup) -> None:
    """Whether long output goes to a pager (`pager`)."""
    group.add_argument("--no-pager", dest="pager", action="store_false",
                       help="print long output to the terminal itself, and not through KAFKATAP_PAGER, PAGER or less "
                       "-FRX")  # fmt: skip


def add_color(group: argparse._ArgumentGroup) -> None:
    """When output has colours."""
    group.add_argument("--color", choices=("auto", "always", "never"), default="auto",
                       help="use colours on a terminal (auto; NO_COLOR turns them off), always, or never")  # fmt: skip


def add_verbose(group: argparse._ArgumentGroup) -> None:
    """How much a command says about its run."""
    group.add_argument("-v", "--verbose", action="count", default=0, help="write more about the run to standard error")


def add_ledger(group: argparse._ArgumentGroup, also: str = "") -> None:
    """The whole ledger. `also`: what else is printed."""
    group.add_argument("--ledger", action="store_true", help=f"print every part of the ledger{also}")


def add_number(
    group: argparse._ArgumentGroup, what: str = "rows of each table as text", default: int | None = 12, usual: str = ""
) -> None:
    """How many rows or messages are printed: `what`. `usual`: the default in words, if it is no number."""
    group.add_argument("-n", "--number", type=parse_number, default=default, metavar="N",
                       help=f"at most N {what}; all: no limit (default: {usual or default or 'all'})")  # fmt: skip


def add_overwrite(group: argparse._ArgumentGroup) -> None:
    """The option to replace files of others."""
    group.add_argument("--overwrite", action="store_true",
                       help="replace files of the same kind, also if kafkatap did not write them")  # fmt: skip


def add_output(group: argparse._ArgumentGroup, metavar: str, what: str, is_needed: bool = True) -> None:
    """The one output of a command that has one: `what`."""
    group.add_argument("-o", "--output", required=is_needed, metavar=metavar, help=what)


def add_sort(group: argparse._ArgumentGroup) -> None:
    """The order of rows (see `reports.rendering.sorting`)."""
    group.add_argument("--sort", metavar="COLUMN", action=_Sort,
                       help="sort the tables that have COLUMN by it, the largest first: its heading, such as 'broker "
                       "p99', or its name in JSON, where the unit may be left out: total_p99, requests (help: list "
                       "all)")  # fmt: skip


def add_width(group: argparse._ArgumentGroup) -> None:
    """The width of text."""
    group.add_argument("--width", type=parse_width, metavar="N",
                       help="fit text to N columns: leave out columns and cut texts; 0: show everything (default: the "
                       "width of the terminal, else COLUMNS, else 120)")  # fmt: skip
