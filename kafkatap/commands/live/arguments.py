"""The options of `kafkatap live`."""

from __future__ import annotations

import argparse

from ...live.recording.kept_names import FOLDER as KEPT_FOLDER
from ..shared_options import (
    BREAKDOWNS,
    BY_HELP,
    add_color,
    add_ledger,
    add_limits,
    add_number,
    add_reading,
    add_section_options,
    add_sections,
    add_selection,
    add_verbose,
)
from ..values import (
    parse_collector,
    parse_count,
    parse_duration,
    parse_jobs,
    parse_listen,
    parse_pause,
    parse_percent,
    parse_size,
)

DESCRIPTION = "Watch the Kafka traffic of network interfaces while it happens."
EXAMPLES = """\
examples:
  kafkatap live                                   all interfaces, a screen like top's
  kafkatap live -i eth0 port 9092                 one interface, with a capture filter as in tcpdump
  kafkatap live -i eth0 --plain --interval 10s    a log line every ten seconds
  kafkatap live --log-format json >> kafka.log    the same for programs, with events and notices on standard error
  kafkatap live --prometheus :9464                metrics on http://127.0.0.1:9464/metrics
  kafkatap live --write-pcap slow.pcap --on 'error or latency > 1s and not long_poll'
  kafkatap live --parquet tables --duration 1h
  kafkatap live --jobs 4 -i eth0                  more traffic than one core can decode
  kafkatap live --keep 30m                        the last half hour of packets, for kafkatap collect

Press ? on the screen to see its keys. SIGUSR1 restarts the counts.
SIGINT (Ctrl-C), SIGTERM, and SIGHUP from a terminal end the capture and print the report. Without a terminal, SIGHUP
begins new files.

exit codes:
  0    done
  2    wrong options, or capturing is not possible
"""
#: What -h shows.
OFTEN = (
    "--interface",
    "--sections",
    "--filter",
    "--client",
    "--plain",
    "--interval",
    "--prometheus",
    "--write-pcap",
    "--on",
    "--parquet",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options to the command's parser."""
    parser.add_argument("expression", nargs="*", metavar="FILTER",
                      help="capture filter in tcpdump's syntax (default: TCP, also in tunnels and IP fragments); other "
                      "packets are not read")  # fmt: skip
    where = parser.add_argument_group("packets")
    where.add_argument("-i", "--interface", action="append", metavar="IFACE",
                       help="network interface, or any (the default) for all; may be repeated")  # fmt: skip
    where.add_argument("-D", "--list-interfaces", action="store_true", help="list the interfaces and exit")
    where.add_argument("--buffer-size", type=parse_size, default=256 << 20, metavar="SIZE",
                       help="size of the kernel's packet buffer (default: 256m)")  # fmt: skip
    where.add_argument("--jobs", type=parse_jobs, default=1, metavar="N",
                       help="share out the connections to N engines, for more traffic than one core can decode (auto: "
                       "one for each core)")  # fmt: skip
    where.add_argument("--promiscuous", action="store_true",
                       help="also capture packets for other hosts, as on a mirror port")  # fmt: skip
    where.add_argument("--scapy", action="store_true",
                       help="capture through scapy, which is slow (default where there is no AF_PACKET)")  # fmt: skip
    what = parser.add_argument_group("selection")
    add_sections(what)
    add_selection(what, times=False)
    what.add_argument("--local-brokers-only", action="store_true",
                      help="only brokers at an address of this host: --broker with each of them, also of those that it "
                      "gets later")  # fmt: skip
    what.add_argument("--no-topics", dest="topics", action="store_false",
                      help="decode only failed results, not topics: half the work")  # fmt: skip
    what.add_argument("--headers-only", action="store_true",
                      help="read the first 256 bytes of each message: requests, responses, times and sizes, but few "
                      "error codes")  # fmt: skip
    add_reading(what)
    how = parser.add_argument_group("output")
    how.add_argument("--plain", action="store_true",
                     help="write one line per interval instead of the screen (default without a terminal)")  # fmt: skip
    how.add_argument("--interval", type=parse_duration, default=10_000_000_000, metavar="DURATION",
                     help="time between the lines of --plain (default: 10s)")  # fmt: skip
    how.add_argument("--log-format", choices=("text", "json"), default="text",
                     help="lines as text (the default), or each a JSON object, also those on standard error; without "
                     "a report at the end, unless --json")  # fmt: skip
    how.add_argument("--duration", type=parse_duration, metavar="DURATION", help="end after DURATION")
    how.add_argument(
        "--by",
        choices=[by for by in BREAKDOWNS if by != "connection"],
        default="api",
        help="in the report at the end: " + BY_HELP,
    )
    add_number(how)
    how.add_argument("--no-report", dest="report", action="store_false", help="print no report at the end")
    how.add_argument("--json", action="store_true",
                     help="write the report at the end as JSON to standard output; lines go to standard "
                     "error")  # fmt: skip
    how.add_argument("--utc", action="store_true", help="show and read times in UTC instead of local time")
    add_color(how)
    add_ledger(how)
    add_verbose(how)
    _add_outputs(parser.add_argument_group("other output"))
    add_section_options(parser)
    manners = add_limits(parser, live=True)
    manners.add_argument("--max-cpu", type=parse_percent, metavar="PERCENT",
                         help="use at most PERCENT of one core: above that, decode less and report it (default: 33 for "
                         "each of --jobs, or more if packets would be lost otherwise; 0: no limit)")  # fmt: skip
    manners.add_argument("--user", metavar="NAME",
                         help="the user that root becomes when the sockets are open (default: who called sudo, or "
                         "else nobody, if that user may use the files that are written and read; root: no "
                         "change)")  # fmt: skip
    manners.add_argument("--nice", type=int, metavar="N",
                         help="add N to the niceness, 0 for none (default: 5, where the system permits to take it back "
                         "while packets wait)")  # fmt: skip


def _add_outputs(also: argparse._ArgumentGroup) -> None:
    also.add_argument("--prometheus", type=parse_listen, metavar="[HOST]:PORT",
                      help="serve metrics at this address; HOST is 127.0.0.1 by default")  # fmt: skip
    also.add_argument("--otlp", type=parse_collector, metavar="URL",
                      help="send metrics to an OpenTelemetry collector (OTLP over HTTP): http://localhost:4318; "
                      "auto: use the variables OTEL_EXPORTER_OTLP_*")  # fmt: skip
    also.add_argument("--otlp-interval", type=parse_duration, default=15_000_000_000, metavar="DURATION",
                      help="time between two messages of --otlp (default: 15s)")  # fmt: skip
    also.add_argument("--series", type=parse_count, default=50, metavar="N",
                      help="number of clients and of topics with their own metrics; all others count as other "
                      "(default: 50)")  # fmt: skip
    also.add_argument("--parquet", metavar="DIR",
                      help="write the tables behind the report as Parquet to DIR, a file every --rotate")  # fmt: skip
    also.add_argument("--rotate", type=parse_duration, default=60_000_000_000, metavar="DURATION",
                      help="time span of a file of --parquet (default: 60s)")  # fmt: skip
    also.add_argument("--write-pcap", metavar="FILE",
                      help="write packets to FILE (.pcapng for several kinds of interfaces), older ones to FILE-TIME; "
                      "with --on only those around incidents, one file each")  # fmt: skip
    also.add_argument("--on", metavar="EXPRESSION",
                      help="with --write-pcap: exchanges that match are incidents, such as 'error or latency > 1s and "
                      "not long_poll'")  # fmt: skip
    also.add_argument("--on-events", action="store_true",
                      help="with --write-pcap: events are incidents, such as a broker that stops or hangs, or "
                      "a storm of connections")  # fmt: skip
    also.add_argument("--keep", type=parse_duration, metavar="DURATION",
                      help="keep the packets of the last DURATION on disk, without tokens of SASL, for kafkatap "
                      "collect")  # fmt: skip
    also.add_argument("--keep-dir", metavar="DIR", default=KEPT_FOLDER,
                      help="with --keep: the folder, which only its owner may enter (default: "
                      f"{KEPT_FOLDER})")  # fmt: skip
    also.add_argument("--keep-limit", type=parse_size, default=4 << 30, metavar="SIZE",
                      help="with --keep: maximum size of all its files, over all runs: the oldest are removed "
                      "(default: 4g)")  # fmt: skip
    also.add_argument("--keep-headers", action="store_true",
                      help="with --keep: only headers, and the first 256 bytes behind that of TCP: requests, "
                      "responses, times and sizes, but few error codes")  # fmt: skip
    also.add_argument("--keep-secrets", action="store_true",
                      help="with --keep: whole packets of all connections, with tokens of SASL")  # fmt: skip
    also.add_argument("--ring-size", type=parse_size, default=64 << 20, metavar="SIZE",
                      help="memory for packets: those that wait for the disk, and with --on those before an incident "
                      "(default: 64m; --keep has as much of its own)")  # fmt: skip
    also.add_argument("--after", type=parse_duration, default=5_000_000_000, metavar="DURATION",
                      help="with --on: keep writing for DURATION after an incident (default: 5s)")  # fmt: skip
    also.add_argument("--cool-down", type=parse_pause, default=60_000_000_000, metavar="DURATION",
                      help="with --on: after an incident, ignore the same API with the same error or outcome for "
                      "DURATION, 0 for none (default: 1m)")  # fmt: skip
    also.add_argument("--write-limit", type=parse_size, metavar="SIZE",
                      help="maximum total size of the files of --write-pcap, and of those of --parquet, over all "
                      "runs: the oldest are removed (default: 1g of packets, 10g of tables)")  # fmt: skip
    also.add_argument("--write-age", type=parse_duration, metavar="DURATION",
                      help="remove files of --write-pcap and --parquet that are older than DURATION, such as "
                      "7d")  # fmt: skip
