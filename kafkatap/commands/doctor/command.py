"""`kafkatap doctor`: examine captures, print what was found, and an exit code by it."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from kafkatap.kernels import store

from ...complaints import complain, reason_of
from ...doctor.observed import read_captures
from ...installation import own_version
from ..console import advice_on, discard_output, interrupts, note_key_log, notes, progress, readable_captures, refuse
from ..exit_codes import BREAKS, DONE, INTERRUPTED, WRONG
from ..kept_options import kept_options
from ..values import chosen_key_log, read_options

if TYPE_CHECKING:
    from kafkatap.reports.model import Report


def run(options: argparse.Namespace) -> int:
    """Run the command; return its exit code."""
    from ...doctor.diagnosis import diagnose, has_problems

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

            write_json(report, sys.stdout, own_version())
        else:
            from kafkatap.reports.rendering.text import write_lines

            from ...doctor.diagnosis_text import diagnosis_lines

            color = None if options.color == "auto" else options.color == "always"
            write_lines(
                lambda width: diagnosis_lines(
                    report, width, utc=options.utc, verbose=options.verbose > 0, top=options.top
                ),
                sys.stdout, color=color, width=options.width,
            )  # fmt: skip
        sys.stdout.flush()
    except BrokenPipeError:
        discard_output()
