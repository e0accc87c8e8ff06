"""`kafkatap lake`: check, prune and compact the tables that `kafkatap spark` wrote."""

from __future__ import annotations

import argparse

from .exit_codes import BREAKS, DONE, INTERRUPTED, WRONG

DESCRIPTION = """\
Look after the Delta tables of kafkatap spark. It needs no Java, and jobs and streams may write meanwhile.

verify    say what is wrong with the tables: rows of a run that was killed, rows that are there twice, captures that
          overlap, tables that do not balance, connections that are cut between runs, hours without a capture,
          damaged captures
forget    remove all rows of some captures
sections  write the sections groups, events, advice, topics and clients of the report of each day as Delta tables below
          DIR/sections, with the columns date and cluster; from then on, each job keeps them up to date
compact   join small files, and delete files that no table has used for a week
"""
EXAMPLES = """\
examples:
  kafkatap lake verify tables
  kafkatap lake verify tables --json | jq -r 'select(.kind == "gap").text'
  kafkatap lake forget tables broker-7.pcap.zst 'captures/2026-10-*/*'
  kafkatap lake sections tables
  kafkatap lake compact s3://tables/kafka

exit codes:
  0    nothing is wrong, or done
  3    verify found something
  2    wrong options, no tables, or the store cannot be changed
  130  interrupted
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options to the command's parser."""
    parser.add_argument("action", choices=("verify", "forget", "sections", "compact"), help="what to do")
    parser.add_argument(
        "lake", metavar="DIR", help="the folder of the tables; local or s3://, gs://, abfss://, hdfs://"
    )
    parser.add_argument(
        "captures", nargs="*", metavar="CAPTURE",
        help="with forget: paths as in the table files, ends of them, globs (in quotes), or numbers of the column "
        "capture",
    )  # fmt: skip
    parser.add_argument(
        "--json", action="store_true",
        help="with verify: write each finding as a JSON object (kind, text, amount) on a line of standard output",
    )  # fmt: skip


def run(options: argparse.Namespace) -> int:
    """Run the command; return its exit code."""
    from ..complaints import complain
    from ..spark.cluster.java import SetupError
    from ..spark.output.delta import require_deltalake
    from .console import refuse

    try:
        require_deltalake()
        if (options.action == "forget") != bool(options.captures):
            raise ValueError("forget needs the names of captures" if not options.captures else
                             f"{options.action} takes no captures; it looks at the whole lake")  # fmt: skip
        actions = {"verify": _verify, "forget": _forget, "sections": _sections, "compact": _compact}
        return actions[options.action](options)
    except KeyboardInterrupt:
        complain("interrupted")
        return INTERRUPTED
    except BrokenPipeError:
        raise
    except SetupError as error:
        complain(str(error))
        return WRONG
    except (ValueError, OSError) as error:
        return refuse(error)


def _verify(options: argparse.Namespace) -> int:
    import json

    from kafkatap.reports.units import safe

    from ..complaints import complain
    from ..spark.verifying import verify

    count = 0
    for finding in verify(options.lake):
        count += 1
        if options.json:
            print(json.dumps(finding._asdict()))
        else:
            print(f"{finding.kind}: {safe(finding.text)}")
    if not count:
        complain(f"{options.lake}: nothing is wrong")
    return BREAKS if count else DONE


def _forget(options: argparse.Namespace) -> int:
    from ..complaints import complain
    from ..spark.job_result import rows_text
    from ..spark.verifying import forget, named_captures

    captures = named_captures(options.lake, options.captures)
    removed = forget(options.lake, [info.capture for info in captures]).replaced
    for info in captures:
        complain(f"{info.path} is forgotten")
    complain(f"{rows_text(removed)} were removed from {options.lake}")
    return DONE


def _sections(options: argparse.Namespace) -> int:
    from kafkatap.reports.finding_words import counted

    from ..complaints import complain
    from ..spark.section_tables import FOLDER, update_sections

    dates = list(update_sections(options.lake))
    where = f"{options.lake.rstrip('/')}/{FOLDER}"
    complain(f"{where}: {counted(len(dates), 'day')} written" if dates else f"{where}: nothing has changed")
    return DONE


def _compact(options: argparse.Namespace) -> int:
    from ..complaints import complain
    from ..spark.output.compaction import compact

    for done in compact(options.lake):
        joined = f"{_files(done.before)} joined into {done.after:,}"
        if done.after >= done.before:
            joined = f"{_files(done.after)}, nothing to join"
        complain(f"{done.table}: {joined}" + (f", {_files(done.deleted)} deleted" if done.deleted else ""))
    return DONE


def _files(count: int) -> str:
    return f"{count:,} file{'' if count == 1 else 's'}"
