"""The command line of kafkatap: commands, options and their help. This module imports nothing heavy."""

from __future__ import annotations

import argparse

from ..installation import own_version
from .command_parser import Command
from .values import (
    parse_apis,
    parse_broker,
    parse_count,
    parse_duration,
    parse_frame_size,
    parse_port,
    parse_setting,
    parse_size,
    parse_when,
)

EXIT_CODES = """\
exit codes:
  0    done
  1    done, but something was damaged or lost, or no Kafka was found
  2    wrong options, or nothing readable
  130  interrupted; everything read so far is reported
"""

_SHOW_EXAMPLES = (
    """\
examples:
  kafkatap show capture.pcap | less -S
  kafkatap show -f 'api == Produce and error != NONE' capture.pcap
  kafkatap show -v -n 2 --api Metadata capture.pcap
  kafkatap show -f 'latency > 200ms and topic ~ "^orders"' --from +30s ring/*.pcap.zst
  kafkatap show --json --client billing capture.pcap | jq .body
  tcpdump -w - port 9092 | kafkatap show -

"""
    + EXIT_CODES
)

_APIS_EXAMPLES = """\
examples:
  kafkatap apis                         all APIs, with removed and newest versions
  kafkatap apis Fetch Produce           each version: the release that added it, and its changes
  kafkatap apis --release 3.9           the APIs and versions of one release
  kafkatap apis --json | jq '.apis[] | select(.flexible_from == null) | .name'

"""

_RECORDS_EXAMPLES = (
    """\
examples:
  kafkatap records capture.pcap
  kafkatap records --topic 'orders*' -n 20 --max-bytes 80 capture.pcap
  kafkatap records --json capture.pcap | jq 'select(.value.form == "json").value.data'
  kafkatap records --api Produce --values hex ring/*.pcap.gz
  kafkatap records --parquet records.parquet capture.pcap

"""
    + EXIT_CODES
)

_REPORT_EXAMPLES = (
    """\
examples:
  kafkatap report capture.pcap
  kafkatap report --by client --api Fetch,Produce broker1.pcapng
  kafkatap report --from 15:10 --to 15:11 --client 'billing-*' ring/*.pcap.gz
  tcpdump -w - port 9092 | kafkatap report -
  kafkatap report --json capture.pcap | jq '.reports.errors'

"""
    + EXIT_CODES
)

_SPARK_EXAMPLES = """\
examples:
  kafkatap spark captures/ --out tables
  kafkatap spark 'captures/2026-11-*/*.pcap.zst' --out tables --records
  kafkatap spark 's3://captures/broker-*/**/*.pcapng' --out s3://tables/kafka --master spark://head:7077
  kafkatap spark captures/ --out tables --json | jq .reports.latency
  spark-submit --master yarn "$(python -m kafkatap.spark --path)" hdfs:///captures --out hdfs:///tables

exit codes:
  0    done
  1    done, but something was damaged or lost, or no Kafka was found
  2    wrong options, nothing readable, or the job failed; nothing is published
  130  interrupted; nothing is published
"""

_EXAMPLES = (
    """\
examples:
  kafkatap report capture.pcap          latency, throttling, error codes, clients, timeline
  kafkatap show capture.pcap            every request and response, one on a line
  kafkatap records capture.pcap         every record that was produced or fetched
  kafkatap live -i eth0                 the same while packets arrive, on a broker's host
  kafkatap spark captures/ --out DIR    tables and reports of terabytes of captures, on a cluster
  kafkatap apis                         the APIs and versions of Kafka, and the releases that support them
  kafkatap report --help                all options of the report
  kafkatap completion bash              completion script of a shell

"""
    + EXIT_CODES
)


#: Values of --by.
BREAKDOWNS = ("api", "client", "broker", "version", "topic")
BY_HELP = "latency by API, and also by this (default: by API only)"
TOP_HELP = "print N rows of each table; 0 for all (default: 12)"
#: --progress as lines. True and False mean a progress bar or none.
LINES = "lines"


def add_definitions(group: argparse._ArgumentGroup) -> None:
    """Add --definitions, for every command that decodes or names messages (see `chosen_definitions`)."""
    group.add_argument(
        "--definitions", metavar="DIR",
        help="read a newer Kafka: add the message definitions (.json) in DIR, from Kafka's sources, to the built-in "
             "ones",
    )  # fmt: skip


class _Version(argparse.Action):
    """Read the version only for --version."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        print(f"kafkatap {own_version()}")
        parser.exit()


class _Filter(argparse.Action):
    """Store an expression. `help` prints the names, comparisons and values instead."""

    def __call__(self, parser: argparse.ArgumentParser, space: argparse.Namespace, value: object, *_: object) -> None:
        if value == "help":
            from kafkatap.reports.expressions.names import help_text

            print(help_text())
            parser.exit()
        setattr(space, self.dest, value)


def build_parser() -> argparse.ArgumentParser:
    """The parser of `kafkatap`. After parsing, `command` is "report", "show", "spark", "completion" and so on, or None.

    Options of `report`: captures [str]; by; filter (str or None); start, end (When or None); client, topic and broker
    ([str] or None); api ([[str]] or None, see `api_keys`); top; utc; json; csv, plots, parquet (str or None); interval
    (ns or None); port ([int] or None); progress; color ("auto", "always", "never"); verbose.
    """
    from .live_options import LIVE_EXAMPLES, add_live  # imported here, because it uses this module

    parser = argparse.ArgumentParser(
        prog="kafkatap",
        description="Report latency, throttling, error codes and clients of Kafka traffic, from packet captures.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands", parser_class=Command)
    _add_report(commands.add_parser(
        "report", help="report latency, throttling, error codes, clients and a timeline",
        description="Report latency, throttling, error codes, clients and a timeline of one or more captures.",
        epilog=_REPORT_EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter,
    ))  # fmt: skip
    _add_show(commands.add_parser(
        "show", help="list every message in time order, or print it whole",
        description="List the requests and responses of one or more captures in time order.",
        epilog=_SHOW_EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter,
    ))  # fmt: skip
    _add_records(commands.add_parser(
        "records", help="list the records that were produced and fetched: keys, values, headers",
        description="List the records in Produce requests and Fetch responses. They can be confidential.",
        epilog=_RECORDS_EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter,
    ))  # fmt: skip
    add_live(commands.add_parser(
        "live", help="watch network interfaces: a screen, log lines, metrics, recordings",
        description="Watch the Kafka traffic of network interfaces while packets arrive.",
        epilog=LIVE_EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter,
    ))  # fmt: skip
    _add_spark(commands.add_parser(
        "spark", help="write tables and reports of many captures with a Spark job",
        description="Decode captures on Spark, write the tables as folders of Parquet, and print the report. A "
                    "second run replaces the rows of the first. A run that fails leaves the tables unchanged.",
        epilog=_SPARK_EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter,
    ))  # fmt: skip
    _add_apis(commands.add_parser(
        "apis", help="list the APIs and versions of Kafka's protocol, and its releases",
        description="List the APIs of Kafka, their versions and the releases that support them. With names, list the "
        "changes of each version of these APIs.",
        epilog=_APIS_EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter,
    ))  # fmt: skip
    completion = commands.add_parser(
        "completion", help="print the completion script of a shell",
        description="Print a completion script, for example: kafkatap completion bash > "
        "~/.local/share/bash-completion/completions/kafkatap",
    )  # fmt: skip
    completion.add_argument("shell", choices=("bash", "zsh", "fish"), help="your shell")
    return parser


def _add_report(report: argparse.ArgumentParser) -> None:
    add_captures(report)
    what = report.add_argument_group("selection")
    what.add_argument("--by", choices=BREAKDOWNS, default="api", help=BY_HELP)
    add_selection(what)
    what.add_argument("--interval", type=parse_duration, metavar="DURATION",
                      help="intervals of the timeline, such as 100ms or 5m; --top limits them to the busiest "
                           "(default: as many as fit a screen)")  # fmt: skip
    add_reading(what)
    add_max_frame(what)
    how = report.add_argument_group("output")
    how.add_argument("--top", type=parse_count, default=12, metavar="N", help=TOP_HELP)
    add_appearance(how)
    how.add_argument("-v", "--verbose", action="count", default=0, help="print more details on standard error")
    also = report.add_argument_group("other output")
    also.add_argument("--json", action="store_true", help="print the whole report as JSON")
    also.add_argument("--csv", metavar="DIR", help="also write each table as a CSV file to DIR")
    also.add_argument("--plots", metavar="DIR", help="also write plots as SVG and PNG to DIR (needs matplotlib)")
    also.add_argument(
        "--parquet", metavar="DIR", help="also write exchanges, results and the other tables as Parquet to DIR"
    )


def _add_show(show: argparse.ArgumentParser) -> None:
    add_captures(show)
    what = show.add_argument_group("selection")
    add_selection(what)
    what.add_argument("--only", choices=("requests", "responses"), help="only requests, or only responses")
    what.add_argument("-n", "--number", type=parse_count, metavar="N", help="only the first N messages")
    what.add_argument("--tail", type=parse_count, metavar="N", help="only the last N messages")
    add_reading(what)
    add_max_frame(what)
    what.add_argument("--stream", action="store_true",
                      help="read the captures once and print each message when it is complete, as for pipes; topic ids "
                      "have names only after these were seen")  # fmt: skip
    how = show.add_argument_group("output")
    how.add_argument("-v", "--verbose", action="count", default=0,
                     help="print all fields of each message, with their offsets in the frame")  # fmt: skip
    how.add_argument("-x", "--hex", action="store_true", help="also print the bytes of each message")
    how.add_argument(
        "--json", action="store_true", help="print one JSON object on a line for each message, with its body"
    )
    how.add_argument("--brief", action="store_true", help="with --json: without bodies")
    how.add_argument(
        "--records",
        action="store_true",
        help="also print the records in messages: keys, values and headers, which can be confidential",
    )
    how.add_argument(
        "--show-secrets",
        action="store_true",
        help="also print passwords, tokens and keys (SASL, SCRAM, delegation tokens, confidential settings)",
    )
    add_appearance(how)


def _add_records(records: argparse.ArgumentParser) -> None:
    add_captures(records)
    what = records.add_argument_group("selection")
    add_selection(what)
    what.add_argument("-n", "--number", type=parse_count, metavar="N", help="only the first N records")
    add_reading(what)
    add_max_frame(what)
    how = records.add_argument_group("output")
    how.add_argument("--values", choices=("auto", "utf8", "json", "hex", "base64", "none"), default="auto",
                     help="form of keys and values: JSON, text or bytes, depending on the value (auto), or always this "
                     "form; none leaves them out")  # fmt: skip
    how.add_argument(
        "--max-bytes",
        type=parse_count,
        metavar="N",
        help="print at most N bytes of each key and value (default: 256 as text, all with --json)",
    )
    add_appearance(how)
    how.add_argument("-v", "--verbose", action="count", default=0, help="print more details on standard error")
    instead = records.add_argument_group("other output").add_mutually_exclusive_group()
    instead.add_argument("--json", action="store_true", help="print one JSON object on a line for each record")
    instead.add_argument(
        "--parquet",
        metavar="FILE_OR_DIR",
        help="write a Parquet file with all columns and whole values, and print nothing",
    )


def _add_spark(spark: argparse.ArgumentParser) -> None:
    spark.add_argument(
        "captures", nargs="+", metavar="CAPTURES",
        help="pcap or pcapng files, also .gz and .zst; folders and globs (quoted: * ? [...] **); local, s3://, gs:// "
             "or hdfs://",
    )  # fmt: skip
    what = spark.add_argument_group("input and tables")
    what.add_argument("--out", required=True, metavar="DIR",
                      help="write each table to a folder in DIR, by date, hour and broker; local, s3://, gs:// or "
                           "hdfs://. Partitions of other captures stay")  # fmt: skip
    what.add_argument("--records", action="store_true",
                      help="also write the records that were "
                           "produced and fetched, which can be confidential")  # fmt: skip
    what.add_argument("--by", choices=BREAKDOWNS, default="api", help=BY_HELP)
    what.add_argument("--strict", action="store_true",
                      help="publish nothing if a capture is damaged (default: publish its readable part)")  # fmt: skip
    add_selection(what)
    add_reading(what)
    arriving = spark.add_argument_group("captures that keep arriving")
    arriving.add_argument("--checkpoint", metavar="DIR",
                          help="read only new captures, add their rows, and stop; DIR keeps the list of captures and "
                               "open connections for the next run")  # fmt: skip
    arriving.add_argument("--follow", action="store_true",
                          help="with --checkpoint: wait for more captures until Ctrl-C")  # fmt: skip
    arriving.add_argument("--finish", action="store_true",
                          help="with --checkpoint: end open connections "
                               "and requests, and report on all captures")  # fmt: skip
    arriving.add_argument("--quiet", type=parse_duration, default=60_000_000_000, metavar="TIME",
                          help="with --checkpoint: the newest capture of a series is complete when it has not "
                               "changed for this time (default: 60s)")  # fmt: skip
    where = spark.add_argument_group("where it runs")
    where.add_argument("--master", metavar="URL",
                       help="local[*] (all cores of this machine, the default), spark://HOST:PORT, yarn, "
                       "k8s://..., or sc://HOST:PORT for Spark Connect")  # fmt: skip
    where.add_argument("--split-size", type=parse_size, default=64 << 20, metavar="SIZE",
                       help="cut uncompressed captures into tasks of this size (default: 64m)")  # fmt: skip
    where.add_argument("--archive", metavar="FILE",
                       help="archive from python -m kafkatap.spark.pack, for executors without kafkatap")  # fmt: skip
    where.add_argument("--conf", action="append", type=parse_setting, metavar="KEY=VALUE",
                       help="setting of Spark, such as spark.executor.memory=4g; repeatable")  # fmt: skip
    where.add_argument("--log", metavar="FILE", help="write the log of Spark to FILE (default: no log)")
    how = spark.add_argument_group("output")
    how.add_argument("--top", type=parse_count, default=12, metavar="N", help=TOP_HELP)
    add_appearance(how)
    how.add_argument("--progress", action="store_const", const=LINES,
                     help="print progress as lines on standard error, also without a terminal")  # fmt: skip
    how.add_argument("-v", "--verbose", action="count", default=0, help="print more details on standard error")
    how.add_argument("--json", action="store_true", help="print the whole report as JSON")


def _add_apis(apis: argparse.ArgumentParser) -> None:
    apis.add_argument("apis", nargs="*", metavar="NAME", help="API by name or key; list the changes of each version")
    what = apis.add_argument_group("selection")
    what.add_argument("--release", metavar="X.Y", help="only APIs and versions of this release of Kafka, such as 4.0")
    add_definitions(what)
    how = apis.add_argument_group("output")
    add_color(how)
    how.add_argument("--json", action="store_true", help="print everything as one JSON object")


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
                       help="only this client_id or client address; wildcards * and ?; repeatable")  # fmt: skip
    group.add_argument("--topic", action="append", metavar="NAME",
                       help="only exchanges with this topic (name or id); wildcards * and ?; repeatable")  # fmt: skip
    group.add_argument("--broker", action="append", metavar="ADDRESS[:PORT]", type=parse_broker,
                       help="only this broker; :PORT for a port on any address; repeatable")  # fmt: skip
    group.add_argument("--api", action="append", type=parse_apis, metavar="NAMES",
                       help="only these APIs, by name or key, such as Fetch,Produce or 0,1; repeatable")  # fmt: skip


def add_reading(group: argparse._ArgumentGroup) -> None:
    """Add --port and --definitions, the same for every command."""
    group.add_argument("--port", action="append", type=parse_port, metavar="PORT",
                       help="hint: brokers listen on PORT. Kafka is "
                            "found on any port without it; repeatable")  # fmt: skip
    add_definitions(group)


def add_max_frame(group: argparse._ArgumentGroup) -> None:
    """Add --max-frame."""
    group.add_argument("--max-frame", type=parse_frame_size, metavar="SIZE",
                       help="decode only the first 64 KiB of messages larger than SIZE "
                       "(default: 100m, the largest message that brokers accept)")  # fmt: skip


def add_appearance(group: argparse._ArgumentGroup) -> None:
    """Add options of the terminal, the same for every command."""
    group.add_argument("--utc", action="store_true", help="print times in UTC instead of local time")
    add_color(group)
    group.add_argument("--no-progress", dest="progress", action="store_false", help="no progress bar")


def add_color(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--color", choices=("auto", "always", "never"), default="auto",
                       help="use colours on a terminal (auto; NO_COLOR disables them), always, or never")  # fmt: skip


def completion_script(shell: str) -> str:
    """The completion script of a shell (bash, zsh or fish), made by shtab."""
    import shtab

    parser = build_parser()
    for command in parser._subparsers._group_actions[0].choices.values():  # type: ignore[union-attr]
        for action in command._actions:
            if action.dest in ("captures", "archive", "log", "write_pcap"):
                action.complete = shtab.FILE
            elif action.dest in ("csv", "plots", "parquet", "definitions", "out", "write_parquet"):
                action.complete = shtab.DIRECTORY
    return str(shtab.complete(parser, shell=shell))
