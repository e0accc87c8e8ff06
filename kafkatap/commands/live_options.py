"""The options of `kafkatap live`."""

from __future__ import annotations

import argparse

from .options import BREAKDOWNS, BY_HELP, TOP_HELP, add_color, add_max_frame, add_reading, add_selection
from .values import parse_collector, parse_count, parse_duration, parse_listen, parse_percent, parse_size

LIVE_EXAMPLES = """\
examples:
  kafkatap live                                   all interfaces, a screen like top's
  kafkatap live -i eth0 port 9092                 one interface, with a filter as tcpdump has them
  kafkatap live -i eth0 --plain --interval 10s    a line every ten seconds, for logs
  kafkatap live --prometheus :9464                metrics on http://127.0.0.1:9464/metrics
  kafkatap live --write-pcap slow.pcap --on 'error or latency > 1s and not long_poll'
  kafkatap live --write-parquet tables --duration 1h

keys on the screen: ? shows them. SIGUSR1 starts the counts anew; SIGINT (Ctrl-C), SIGTERM and SIGHUP end it with a
report.

exit codes:
  0    done
  2    wrong call, or capturing is not possible
"""


def add_live(live: argparse.ArgumentParser) -> None:
    live.add_argument("expression", nargs="*", metavar="FILTER",
                      help="capture filter, as tcpdump has them (default: tcp); packets that it leaves out are not "
                      "looked at")  # fmt: skip
    where = live.add_argument_group("where packets come from")
    where.add_argument("-i", "--interface", action="append", metavar="IFACE",
                       help="network interface; any for all (the default); may be repeated")  # fmt: skip
    where.add_argument("-D", "--list-interfaces", action="store_true", help="list the interfaces and end")
    where.add_argument("--buffer-size", type=parse_size, default=256 << 20, metavar="SIZE",
                       help="memory in which the kernel leaves packets (default: 256m)")  # fmt: skip
    where.add_argument("--promiscuous", action="store_true",
                       help="also packets that are not for this host, as on a mirror port")  # fmt: skip
    where.add_argument("--scapy", action="store_true",
                       help="capture through scapy, slowly (default where there is no AF_PACKET)")  # fmt: skip
    what = live.add_argument_group("what counts")
    add_selection(what, times=False)
    what.add_argument("--no-topics", dest="topics", action="store_false",
                      help="decode of bodies only what failed: half the work")  # fmt: skip
    add_reading(what)
    add_max_frame(what)
    how = live.add_argument_group("how it is shown")
    how.add_argument("--plain", action="store_true",
                     help="a line an interval instead of the screen (default where there is no terminal)")  # fmt: skip
    how.add_argument("--interval", type=parse_duration, default=10_000_000_000, metavar="DURATION",
                     help="of --plain (default: 10s)")  # fmt: skip
    how.add_argument("--duration", type=parse_duration, metavar="DURATION", help="end after so long")
    how.add_argument("--by", choices=BREAKDOWNS, default="api", help="in the report at the end: " + BY_HELP)
    how.add_argument("--top", type=parse_count, default=12, metavar="N", help=TOP_HELP)
    how.add_argument("--no-report", dest="report", action="store_false", help="no report at the end")
    how.add_argument("--json", action="store_true",
                     help="the report at the end as JSON on standard output, lines on standard error")  # fmt: skip
    how.add_argument("--utc", action="store_true", help="show times in UTC instead of local time")
    add_color(how)
    how.add_argument("-v", "--verbose", action="count", default=0, help="say more about what is being done")
    _add_outputs(live.add_argument_group("other forms"))
    manners = live.add_argument_group("manners")
    manners.add_argument("--max-cpu", type=parse_percent, metavar="PERCENT",
                         help="of one core: above it less is decoded, which is said, down to nothing (default: 33, but "
                         "rather more than losing packets; 0: no limit)")  # fmt: skip
    manners.add_argument("--nice", type=int, default=5, metavar="N",
                         help="add N to the niceness, 0 for none (default: 5)")  # fmt: skip


def _add_outputs(also: argparse._ArgumentGroup) -> None:
    also.add_argument("--prometheus", type=parse_listen, metavar="[HOST]:PORT",
                      help="serve metrics there; on loopback unless HOST says otherwise")  # fmt: skip
    also.add_argument("--otlp", type=parse_collector, metavar="URL",
                      help="send metrics to an OpenTelemetry collector (OTLP over HTTP): http://localhost:4318; "
                      "auto: as OTEL_EXPORTER_OTLP_ENDPOINT and its like say")  # fmt: skip
    also.add_argument("--otlp-interval", type=parse_duration, default=15_000_000_000, metavar="DURATION",
                      help="of --otlp (default: 15s)")  # fmt: skip
    also.add_argument("--series", type=parse_count, default=50, metavar="N",
                      help="clients and topics that have metrics of their own, the rest being other "
                      "(default: 50)")  # fmt: skip
    also.add_argument("--write-parquet", metavar="DIR",
                      help="the tables behind the report as Parquet in DIR, a file of each every --rotate")  # fmt: skip
    also.add_argument("--rotate", type=parse_duration, default=60_000_000_000, metavar="DURATION",
                      help="of --write-parquet (default: 60s)")  # fmt: skip
    also.add_argument("--write-pcap", metavar="FILE",
                      help="the packets in FILE (.pcapng for several kinds of interfaces); with --on only those around "
                      "incidents, a file each")  # fmt: skip
    also.add_argument("--on", metavar="EXPRESSION",
                      help="with --write-pcap: what an incident is, such as 'error or latency > 1s and not "
                      "long_poll'")  # fmt: skip
    also.add_argument("--ring-size", type=parse_size, default=64 << 20, metavar="SIZE",
                      help="with --on: packets before an incident, kept in memory (default: 64m)")  # fmt: skip
    also.add_argument("--after", type=parse_duration, default=5_000_000_000, metavar="DURATION",
                      help="with --on: how long to go on writing after an incident (default: 5s)")  # fmt: skip
    also.add_argument("--cool-down", type=parse_duration, default=60_000_000_000, metavar="DURATION",
                      help="with --on: for how long the same API with the same error or outcome, once recorded, begins "
                      "no incident and makes none longer (default: 1m)")  # fmt: skip
    also.add_argument("--write-limit", type=parse_size, default=1 << 30, metavar="SIZE",
                      help="with --write-pcap: keep no more than this in all; with --on the oldest incidents make room "
                      "(default: 1g)")  # fmt: skip
