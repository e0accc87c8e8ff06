"""The command line of kafkatap: commands, options and their help. Nothing heavy is imported to show them."""

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
  2    wrong call, or nothing readable
  130  interrupted (what was read until then is reported)
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
  kafkatap apis                         all APIs: what Kafka 4.0 removed, what is newest
  kafkatap apis Fetch Produce           version by version: since when, and what changed
  kafkatap apis --release 3.9           what that release speaks
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
  kafkatap report --from +30s --to +60s --client 'billing-*' ring/*.pcap.gz
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
  2    wrong call, nothing readable, or the job failed: nothing is published
  130  interrupted: nothing is published
"""

_EXAMPLES = (
    """\
examples:
  kafkatap report capture.pcap          latency, throttling, errors, clients, timeline
  kafkatap show capture.pcap            every request and response, a line each
  kafkatap records capture.pcap         every record that was produced or fetched
  kafkatap live -i eth0                 the same while it happens, on a broker's host
  kafkatap spark captures/ --out DIR    tables and reports of terabytes of captures, from a cluster
  kafkatap apis                         Kafka's APIs and versions, and the releases that speak them
  kafkatap report --help                all options of the report
  kafkatap completion bash              completion for this shell

"""
    + EXIT_CODES
)


#: What the latency is broken down by.
BREAKDOWNS = ("api", "client", "broker", "version", "topic")
BY_HELP = "break the latency down further (default: by API alone)"
TOP_HELP = "rows of each table as text; 0 for all (default: 12)"
#: --progress of a command that writes it as lines: True and False are those of a terminal.
LINES = "lines"


def add_definitions(group: argparse._ArgumentGroup) -> None:
    """The option --definitions, for every command that decodes or names messages (see `chosen_definitions`)."""
    group.add_argument(
        "--definitions", metavar="DIR",
        help="read a newer Kafka: a folder of its own message definitions (.json), laid over the built-in ones",
    )  # fmt: skip


class _Version(argparse.Action):
    """Looks the version up only when it is asked for."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        print(f"kafkatap {own_version()}")
        parser.exit()


class _Filter(argparse.Action):
    """An expression, read later. `help` instead shows what can be compared."""

    def __call__(self, parser: argparse.ArgumentParser, space: argparse.Namespace, value: object, *_: object) -> None:
        if value == "help":
            from kafkatap.reports.expressions.names import help_text

            print(help_text())
            parser.exit()
        setattr(space, self.dest, value)


def build_parser() -> argparse.ArgumentParser:
    """The parser of `kafkatap`. After parsing, `command` is "report", "show", "spark", "completion" ..., or None.

    Of `report`: captures [str]; by; filter (str or None); start, end (When or None); client, topic, broker [str] or
    None; api [[str]] or None (see `api_keys`); top; utc; json; csv, plots, parquet (str or None); interval (ns or
    None); port [int] or None; progress; color ("auto", "always", "never"); verbose.
    """
    from .live_options import LIVE_EXAMPLES, add_live  # here: it builds on this module

    parser = argparse.ArgumentParser(
        prog="kafkatap",
        description="See what Kafka clients and brokers really say to each other, from packet captures.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="show the version and end")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands", parser_class=Command)
    _add_report(commands.add_parser(
        "report", help="latency, throttling, errors, clients and a timeline of a capture",
        description="Report what the Kafka traffic of one or many captures adds up to.",
        epilog=_REPORT_EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter,
    ))  # fmt: skip
    _add_show(commands.add_parser(
        "show", help="every message in order of time: one line each, or whole",
        description="Show the requests and responses of one or many captures in order of time.",
        epilog=_SHOW_EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter,
    ))  # fmt: skip
    _add_records(commands.add_parser(
        "records", help="the records that were produced and fetched: keys, values, headers",
        description="Show the records in Produce requests and Fetch responses, which may be confidential.",
        epilog=_RECORDS_EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter,
    ))  # fmt: skip
    add_live(commands.add_parser(
        "live", help="what happens now on network interfaces: a screen, metrics, recordings",
        description="Watch the Kafka traffic of network interfaces while it happens.",
        epilog=LIVE_EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter,
    ))  # fmt: skip
    _add_spark(commands.add_parser(
        "spark", help="tables and reports of many captures, by a Spark job",
        description="Decode captures on Spark, write the tables as folders of Parquet, and report what they add up to. "
        "To run it again overwrites what it wrote; a run that fails leaves the tables as they were.",
        epilog=_SPARK_EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter,
    ))  # fmt: skip
    _add_apis(commands.add_parser(
        "apis", help="what is known of Kafka's protocol: APIs, versions, releases",
        description="List Kafka's APIs, their versions and the releases that speak them; of APIs that are named, what "
        "each version changed.",
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
    what = report.add_argument_group("what is reported")
    what.add_argument("--by", choices=BREAKDOWNS, default="api", help=BY_HELP)
    add_selection(what)
    what.add_argument("--interval", type=parse_duration, metavar="DURATION",
                      help="length of the timeline's intervals, of which the busiest are shown (see --top): 100ms, 5m "
                           "(default: what fits a screen)")  # fmt: skip
    add_reading(what)
    add_max_frame(what)
    how = report.add_argument_group("how it is shown")
    how.add_argument("--top", type=parse_count, default=12, metavar="N", help=TOP_HELP)
    add_appearance(how)
    how.add_argument("-v", "--verbose", action="count", default=0, help="say more about what is being done")
    also = report.add_argument_group("other forms")
    also.add_argument("--json", action="store_true", help="the whole report as JSON on standard output")
    also.add_argument("--csv", metavar="DIR", help="each report as a CSV file in DIR as well")
    also.add_argument("--plots", metavar="DIR", help="plots as SVG and PNG in DIR as well (needs matplotlib)")
    also.add_argument("--parquet", metavar="DIR", help="the tables behind the reports as Parquet files in DIR as well")


def _add_show(show: argparse.ArgumentParser) -> None:
    add_captures(show)
    what = show.add_argument_group("what is shown")
    add_selection(what)
    what.add_argument("--only", choices=("requests", "responses"), help="only one side of the exchanges")
    what.add_argument("-n", "--number", type=parse_count, metavar="N", help="only the first N messages")
    what.add_argument("--tail", type=parse_count, metavar="N", help="only the last N messages")
    add_reading(what)
    add_max_frame(what)
    what.add_argument("--stream", action="store_true",
                      help="read once and show each message as it comes (as pipes are read); "
                      "topics are named only once their names were seen")  # fmt: skip
    how = show.add_argument_group("how it is shown")
    how.add_argument("-v", "--verbose", action="count", default=0,
                     help="each message whole: all fields, with their places in the frame")  # fmt: skip
    how.add_argument("-x", "--hex", action="store_true", help="each message's bytes as well")
    how.add_argument("--json", action="store_true", help="one JSON object a line, the body included")
    how.add_argument("--brief", action="store_true", help="with --json: leave the body out")
    how.add_argument(
        "--records",
        action="store_true",
        help="also the records that are in messages: keys, values and headers, which may be confidential",
    )
    how.add_argument(
        "--show-secrets",
        action="store_true",
        help="also passwords, tokens and keys (SASL, SCRAM, delegation tokens, confidential settings)",
    )
    add_appearance(how)


def _add_records(records: argparse.ArgumentParser) -> None:
    add_captures(records)
    what = records.add_argument_group("what is shown")
    add_selection(what)
    what.add_argument("-n", "--number", type=parse_count, metavar="N", help="only the first N records")
    add_reading(what)
    add_max_frame(what)
    how = records.add_argument_group("how it is shown")
    how.add_argument("--values", choices=("auto", "utf8", "json", "hex", "base64", "none"), default="auto",
                     help="keys and values as JSON, text or bytes, whatever they are (auto); as this; or not at all "
                     "(none)")  # fmt: skip
    how.add_argument(
        "--max-bytes",
        type=parse_count,
        metavar="N",
        help="at most N bytes of each key and value (default: 256 on lines for people, all with --json)",
    )
    add_appearance(how)
    how.add_argument("-v", "--verbose", action="count", default=0, help="say more about what is being done")
    instead = records.add_argument_group("other forms").add_mutually_exclusive_group()
    instead.add_argument("--json", action="store_true", help="one JSON object a line")
    instead.add_argument(
        "--parquet",
        metavar="FILE_OR_DIR",
        help="a Parquet file, with all columns and whole values, and nothing on standard output",
    )


def _add_spark(spark: argparse.ArgumentParser) -> None:
    spark.add_argument(
        "captures", nargs="+", metavar="CAPTURES",
        help="files, folders and globs (in quotes: * ? [...] **), local or s3://, gs://, hdfs://; pcap or pcapng, "
        "also .gz and .zst",
    )  # fmt: skip
    what = spark.add_argument_group("what is made")
    what.add_argument("--out", required=True, metavar="DIR",
                      help="where the tables go, one folder each, by date, hour and broker; local or s3://, gs://, "
                      "hdfs://; partitions that are not of these captures stay")  # fmt: skip
    what.add_argument("--records", action="store_true",
                      help="also the records that were produced and fetched, which may be confidential")  # fmt: skip
    what.add_argument("--by", choices=BREAKDOWNS, default="api", help=BY_HELP)
    what.add_argument("--strict", action="store_true",
                      help="publish nothing if a capture is damaged (default: what could be read of it)")  # fmt: skip
    add_selection(what)
    add_reading(what)
    arriving = spark.add_argument_group("captures that keep arriving")
    arriving.add_argument("--checkpoint", metavar="DIR",
                          help="remember in DIR what was read and what is open: read the captures that came since, "
                          "add their rows, and end; run it again for more")  # fmt: skip
    arriving.add_argument("--follow", action="store_true",
                          help="with --checkpoint: do not end, but wait for more until Ctrl-C")  # fmt: skip
    arriving.add_argument("--finish", action="store_true",
                          help="with --checkpoint: no more will come; end what is open, and report on all")  # fmt: skip
    arriving.add_argument("--quiet", type=parse_duration, default=60_000_000_000, metavar="TIME",
                          help="with --checkpoint: the newest capture of a series is complete when nothing was written "
                          "to it for so long (default: 60s)")  # fmt: skip
    where = spark.add_argument_group("where it runs")
    where.add_argument("--master", metavar="URL",
                       help="local[*] (all cores of this machine, the default), spark://HOST:PORT, yarn, "
                       "k8s://..., or sc://HOST:PORT for Spark Connect")  # fmt: skip
    where.add_argument("--split-size", type=parse_size, default=64 << 20, metavar="SIZE",
                       help="cut captures into tasks of this size, unless compressed (default: 64m)")  # fmt: skip
    where.add_argument("--archive", metavar="FILE",
                       help="what python -m kafkatap.spark.pack made, for executors that lack kafkatap")  # fmt: skip
    where.add_argument("--conf", action="append", type=parse_setting, metavar="KEY=VALUE",
                       help="a setting of Spark, such as spark.executor.memory=4g; may be repeated")  # fmt: skip
    where.add_argument("--log", metavar="FILE", help="what Spark itself has to say, in FILE (default: nowhere)")
    how = spark.add_argument_group("how it is shown")
    how.add_argument("--top", type=parse_count, default=12, metavar="N", help=TOP_HELP)
    add_appearance(how)
    how.add_argument("--progress", action="store_const", const=LINES,
                     help="progress on standard error as lines, also where that is no terminal")  # fmt: skip
    how.add_argument("-v", "--verbose", action="count", default=0, help="say more about what is being done")
    how.add_argument("--json", action="store_true", help="the whole report as JSON on standard output")


def _add_apis(apis: argparse.ArgumentParser) -> None:
    apis.add_argument("apis", nargs="*", metavar="NAME", help="these APIs version by version, by name or key")
    what = apis.add_argument_group("what is listed")
    what.add_argument("--release", metavar="X.Y", help="only what this release of Kafka speaks, such as 4.0")
    add_definitions(what)
    how = apis.add_argument_group("how it is shown")
    add_color(how)
    how.add_argument("--json", action="store_true", help="all of it as one JSON object")


def add_captures(command: argparse.ArgumentParser) -> None:
    """The captures, the same for every command that reads them."""
    command.add_argument(
        "captures", nargs="+", metavar="CAPTURE",
        help="pcap or pcapng files, also .gz and .zst; folders and globs of them; pipes (- for standard input); many "
        "are put in the order of their packets",
    )  # fmt: skip


def add_selection(group: argparse._ArgumentGroup, times: bool = True) -> None:
    """Which part of the traffic is asked for, the same for every command. `times`: a span of time too."""
    group.add_argument("-f", "--filter", metavar="EXPRESSION", action=_Filter,
                       help="only exchanges for which this holds: 'api == Fetch and latency > 50ms'; "
                       "--filter help tells what can be compared")  # fmt: skip
    if times:
        group.add_argument("--from", dest="start", type=parse_when, metavar="TIME",
                           help="only what began at TIME or later: ISO 8601, seconds since the epoch, or +10s "
                           "(after the first packet)")  # fmt: skip
        group.add_argument("--to", dest="end", type=parse_when, metavar="TIME", help="only what began before TIME")
    group.add_argument("--client", action="append", metavar="NAME",
                       help="only this client_id or client address; wildcards * and ?; may be repeated")  # fmt: skip
    group.add_argument("--topic", action="append", metavar="NAME",
                       help="only what was about this topic (name or id); wildcards; may be repeated")  # fmt: skip
    group.add_argument("--broker", action="append", metavar="ADDRESS[:PORT]", type=parse_broker,
                       help="only this broker; :PORT for a port on any address; may be repeated")  # fmt: skip
    group.add_argument("--api", action="append", type=parse_apis, metavar="NAMES",
                       help="only these APIs, by name or key: Fetch,Produce or 0,1; may be repeated")  # fmt: skip


def add_reading(group: argparse._ArgumentGroup) -> None:
    """How captures are read, the same for every command."""
    group.add_argument("--port", action="append", type=parse_port, metavar="PORT",
                       help="a hint that brokers listen on PORT; Kafka is found on any port without it")  # fmt: skip
    add_definitions(group)


def add_max_frame(group: argparse._ArgumentGroup) -> None:
    """How large a message may be to be decoded whole."""
    group.add_argument("--max-frame", type=parse_frame_size, metavar="SIZE",
                       help="decode messages up to SIZE whole, and of larger ones only the first 64 KiB "
                       "(default: 100m, the largest that brokers accept)")  # fmt: skip


def add_appearance(group: argparse._ArgumentGroup) -> None:
    """What a terminal shows, the same for every command."""
    group.add_argument("--utc", action="store_true", help="show times in UTC instead of local time")
    add_color(group)
    group.add_argument("--no-progress", dest="progress", action="store_false", help="no progress bar on standard error")


def add_color(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--color", choices=("auto", "always", "never"), default="auto",
                       help="colours: on a terminal (auto; NO_COLOR is honoured), always, or never")  # fmt: skip


def completion_script(shell: str) -> str:
    """The completion script of a shell (bash, zsh or fish), by shtab."""
    import shtab

    parser = build_parser()
    for command in parser._subparsers._group_actions[0].choices.values():  # type: ignore[union-attr]
        for action in command._actions:
            if action.dest in ("captures", "archive", "log", "write_pcap"):
                action.complete = shtab.FILE
            elif action.dest in ("csv", "plots", "parquet", "definitions", "out", "write_parquet"):
                action.complete = shtab.DIRECTORY
    return str(shtab.complete(parser, shell=shell))
