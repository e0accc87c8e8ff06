"""The options of `kafkatap spark`."""

from __future__ import annotations

import argparse

from ..shared_options import BREAKDOWNS, BY_HELP, TOP_HELP, add_appearance, add_reading, add_selection
from ..values import parse_count, parse_duration, parse_setting, parse_size

#: --progress as lines. True and False mean a progress bar or none.
LINES = "lines"

DESCRIPTION = (
    "Decode captures on Spark, write the tables as folders of Parquet, and print the report. A "
    "second run replaces the rows of the first. A run that fails leaves the tables unchanged."
)
EXAMPLES = """\
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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options to the command's parser."""
    parser.add_argument(
        "captures", nargs="+", metavar="CAPTURES",
        help="pcap or pcapng files, also .gz and .zst; folders and globs (quoted: * ? [...] **); local, s3://, gs:// "
             "or hdfs://",
    )  # fmt: skip
    what = parser.add_argument_group("input and tables")
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
    arriving = parser.add_argument_group("captures that keep arriving")
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
    where = parser.add_argument_group("where it runs")
    where.add_argument("--master", metavar="URL",
                       help="local[*] (all cores of this machine, the default), spark://HOST:PORT, yarn, "
                       "k8s://..., or sc://HOST:PORT for Spark Connect")  # fmt: skip
    where.add_argument("--split-size", type=parse_size, default=64 << 20, metavar="SIZE",
                       help="cut uncompressed captures into tasks of this size (default: 64m)")  # fmt: skip
    where.add_argument("--archive", metavar="FILE",
                       help="archive from python -m kafkatap.parser.pack, for executors without kafkatap")  # fmt: skip
    where.add_argument("--conf", action="append", type=parse_setting, metavar="KEY=VALUE",
                       help="setting of Spark, such as parser.executor.memory=4g; repeatable")  # fmt: skip
    where.add_argument("--log", metavar="FILE", help="write the log of Spark to FILE (default: no log)")
    how = parser.add_argument_group("output")
    how.add_argument("--top", type=parse_count, default=12, metavar="N", help=TOP_HELP)
    add_appearance(how)
    how.add_argument("--progress", action="store_const", const=LINES,
                     help="print progress as lines on standard error, also without a terminal")  # fmt: skip
    how.add_argument("-v", "--verbose", action="count", default=0, help="print more details on standard error")
    how.add_argument("--json", action="store_true", help="print the whole report as JSON")
