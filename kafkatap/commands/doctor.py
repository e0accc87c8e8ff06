"""`kafkatap doctor`: examine captures, print what was found, and an exit code by it."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from .exit_codes import BREAKS, DONE, INTERRUPTED, WRONG
from .shared_options import (
    add_appearance,
    add_captures,
    add_ledger,
    add_limits,
    add_number,
    add_pager,
    add_reading,
    add_verbose,
    add_width,
)

if TYPE_CHECKING:
    from kafkatap.reports.model import Report

DESCRIPTION = """\
Say how good one or more captures are, and which capture command would do better.

It finds what makes reports incomplete or wrong: cut or dropped packets, gaps, missing directions, copies, clock steps,
encryption, no Kafka at all, and more. Each finding has its evidence, its effect on reports, and a remedy.
"""
EXAMPLES = """\
examples:
  kafkatap doctor capture.pcap
  kafkatap doctor --ledger ring/*.pcap.gz  # with all tables: gaps by connection, interfaces, the ledger
  tcpdump -c 10000 -w - port 9092 | kafkatap doctor -
  kafkatap doctor --json capture.pcap | jq '.reports.findings'

exit codes:
  0    no problem found (there may be notes)
  3    a problem was found: an error or a warning, also if it is a damaged capture or no Kafka
  2    wrong options, or nothing readable
  130  interrupted (the output covers what was read until then)
"""
#: What -h shows.
OFTEN = ("--ledger", "-n", "--json", "--port", "--keylog")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options to the command's parser."""
    add_captures(parser)
    add_reading(parser.add_argument_group("reading"))
    how = parser.add_argument_group("output")
    add_number(how, default=None, usual="5; with --ledger 20")
    add_width(how)
    add_appearance(how)
    add_pager(how)
    add_ledger(how, ", with all other tables and the remedies of notes")
    add_verbose(how)
    how.add_argument("--json", action="store_true", help="write the result as JSON to standard output, as report does")
    add_limits(parser)


def run(options: argparse.Namespace) -> int:
    """Run the command; return its exit code."""
    from kafkatap.kernels import store

    from ..complaints import complain, reason_of
    from ..doctor.diagnosis import diagnose, has_problems
    from ..doctor.observed import read_captures
    from .console import advice_on, interrupts, note_key_log, notes, progress, readable_captures, refuse
    from .kept_options import kept_options
    from .values import chosen_key_log, read_options

    store.verbose = options.verbose > 0
    try:
        reading = read_options(options)
        captures = readable_captures(options.captures, "doctor", notes(options))
        reading = reading._replace(key_log=chosen_key_log(options))
    except (ValueError, OSError) as error:
        return refuse(error)
    options.captures = captures
    try:
        with interrupts() as stop, progress(options) as show:
            seen = read_captures(captures, reading, lambda done: show(done) or bool(stop))
    except OSError as error:
        complain(reason_of(error))
        return WRONG
    if seen.run.files and all(file.fatal for file in seen.run.files):
        for file in seen.run.files:
            complain(f"{file.path}: {file.damage}{advice_on(file)}")
        return WRONG
    note_key_log(options, seen.run.files, seen.run.engine.key_log, seen.context)
    report = diagnose(seen._replace(context=seen.context._replace(options=kept_options(options))))
    _print(options, report)
    if seen.run.interrupted:
        complain("interrupted: the result covers only what was read before")
        return INTERRUPTED
    return BREAKS if has_problems(report) else DONE


def _print(options: argparse.Namespace, report: Report) -> None:
    """Print the diagnosis. Its reader may go away (`| head`)."""
    try:
        if options.json:
            from kafkatap.reports.rendering.json_report import write_json

            from ..installation import own_version

            write_json(report, sys.stdout, own_version())
        else:
            from kafkatap.reports.rendering.text import write_lines

            from ..doctor.diagnosis_text import diagnosis_lines

            color = None if options.color == "auto" else options.color == "always"
            write_lines(
                lambda width: diagnosis_lines(
                    report, width, utc=options.utc, is_whole=options.ledger, top=options.number
                ),
                sys.stdout, color=color, width=options.width,
            )  # fmt: skip
        sys.stdout.flush()
    except BrokenPipeError:
        from .console import discard_output

        discard_output()
