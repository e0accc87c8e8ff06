"""The options of `kafkatap spark`."""

from __future__ import annotations

import argparse

from ..shared_options import (
    BREAKDOWNS,
    BY_HELP,
    add_appearance,
    add_ledger,
    add_limits,
    add_number,
    add_output,
    add_reading,
    add_section_options,
    add_sections,
    add_selection,
    add_verbose,
)
from ..values import parse_duration, parse_setting, parse_size, parse_split_size

#: The value of --progress: progress as lines. True and False are those of a terminal.
LINES = "lines"

#: How tables are written.

DESCRIPTION = (
    "Decode captures on Spark, write Delta tables, and print the report. A second run over the same captures replaces "
    "their rows. A run that fails leaves the tables unchanged."
)
EXAMPLES = """\
examples:
  kafkatap spark captures/ -o tables
  kafkatap spark 'captures/2026-11-*/*.pcap.zst' -o tables --records
  kafkatap spark 's3://captures/broker-*/**/*.pcapng' -o s3://tables/kafka --master spark://head:7077
  kafkatap spark captures/ -o tables --json | jq .reports.latency
  spark-submit --master yarn "$(python -m kafkatap.spark --path)" hdfs:///captures -o hdfs:///tables

exit codes:
  0    done
  1    done, but a capture is damaged or cut short, or no Kafka was found
  2    wrong options, nothing readable, or the job failed
  4    done, but a capture was left out, as the tables have a better version of it
  130  interrupted (Ctrl-C)
  143  terminated (SIGTERM)

With codes 2, 130 and 143 nothing is published, unless the job was already committing its tables. The next run over the
same captures completes them.
"""
#: What -h shows.
OFTEN = ("--output", "--master", "--sections", "--by", "--filter", "--records", "--checkpoint", "--follow", "--json")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options to the command's parser."""
    parser.add_argument(
        "captures", nargs="+", metavar="CAPTURES",
        help="files, folders and globs (in quotes: * ? [...] **), local or s3a://, gs://, hdfs://; pcap or pcapng, "
        "also .gz and .zst",
    )  # fmt: skip
    what = parser.add_argument_group("input and tables")
    add_output(what, "DIR", "folder of the tables; local or s3a://, gs://, abfss://, hdfs://. The rows of these "
               "captures from earlier runs are replaced, and all other rows stay")  # fmt: skip
    what.add_argument("--records", action="store_true",
                      help="also write the records that were produced and fetched, which may be "
                      "confidential")  # fmt: skip
    what.add_argument("--replace", action="store_true",
                      help="also replace rows that were made with other options, such as another filter, and remember "
                      "the options of this run (default: refuse to)")  # fmt: skip
    what.add_argument("--path-pattern", metavar="PATTERN",
                      help="find cluster, site and host of a capture in its path, for columns of the table files, such "
                      "as '{cluster}/{host}/*'; * stands for any part of a folder or name")  # fmt: skip
    what.add_argument("--table", metavar="SCHEMA",
                      help="also name the tables in a schema of Spark's catalog, such as spark_catalog.kafka; the "
                      "session needs Delta's package")  # fmt: skip
    what.add_argument("--by", choices=BREAKDOWNS, default="api", help=BY_HELP)
    what.add_argument("--strict", action="store_true",
                      help="publish nothing if a capture is damaged (default: publish what could be read)")  # fmt: skip
    add_sections(what)
    add_selection(what)
    add_reading(what)
    _add_arriving(parser.add_argument_group("captures that keep arriving"))
    where = parser.add_argument_group("where it runs")
    where.add_argument("--master", metavar="URL",
                       help="local[*] (all cores of this machine, the default), spark://HOST:PORT, yarn, "
                       "k8s://..., or sc://HOST:PORT for Spark Connect")  # fmt: skip
    where.add_argument("--split-size", type=parse_split_size, metavar="SIZE",
                       help="size of the splits: larger captures are cut, smaller ones of a series are read together; "
                       "0 keeps files whole (default: 64m to 1g, about four splits for each core)")  # fmt: skip
    where.add_argument("--archive", metavar="FILE",
                       help="the archive of python -m kafkatap.spark.pack, for executors that lack "
                       "kafkatap")  # fmt: skip
    where.add_argument("--conf", action="append", type=parse_setting, metavar="KEY=VALUE",
                       help="add a setting of Spark, such as spark.executor.memory=4g; may be repeated")  # fmt: skip
    where.add_argument("--log", metavar="FILE", help="write Spark's own log to FILE (default: nowhere)")
    how = parser.add_argument_group("output")
    add_number(how)
    add_appearance(how)
    how.add_argument("--progress", action="store_const", const=LINES,
                     help="write progress as lines to standard error, even if it is not a terminal")  # fmt: skip
    add_ledger(how)
    add_verbose(how)
    how.add_argument("--json", action="store_true", help="write the whole report as JSON to standard output")
    add_section_options(parser)
    add_limits(parser)


def _add_arriving(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--checkpoint", metavar="DIR",
                       help="keep in DIR the captures that were read, and open connections. Each run reads the "
                       "captures that arrived since the last run, adds their rows, and ends")  # fmt: skip
    group.add_argument("--follow", action="store_true",
                       help="with --checkpoint: wait for more captures until Ctrl-C")  # fmt: skip
    group.add_argument("--finish", action="store_true",
                       help="with --checkpoint: no more captures will come; read all that are there, end open "
                       "connections, and report on all captures")  # fmt: skip
    group.add_argument("--quiet", type=parse_duration, default=60_000_000_000, metavar="DURATION",
                       help="with --checkpoint: the newest capture of a series is complete when it has not changed "
                       "for DURATION (default: 60s)")  # fmt: skip
    group.add_argument("--lateness", type=parse_duration, default=0, metavar="DURATION",
                       help="with --checkpoint: hold complete captures back for DURATION, so that captures that come "
                       "late are read in order (default: do not hold)")  # fmt: skip
    group.add_argument("--batch-size", type=parse_size, metavar="SIZE",
                       help="with --checkpoint: read at most SIZE of captures at once; a larger one is read alone "
                       "(default: 1g, or as many captures as keep all cores busy)")  # fmt: skip
