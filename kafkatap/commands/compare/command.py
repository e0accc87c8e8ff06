"""`kafkatap compare`: read both sides, compare them, print what has changed."""

from __future__ import annotations

import argparse
import gc
from collections.abc import Mapping
from typing import TYPE_CHECKING

from kafkatap.kernels import store

from ...captures.pipes import is_pipe
from ...complaints import complain, name_of, reason_of
from ...engine.engine import engine_for
from ...engine.selection import Selection, selection_of
from ...output_file import check_file, check_not_read
from ...replaceable import HTML
from ...run import Run, Watch
from ..console import (
    advice_on,
    interrupts,
    no_kafka,
    note_key_log,
    notes,
    nothing_matches,
    progress,
    readable_captures,
    refuse,
)
from ..exit_codes import DONE, INTERRUPTED, WRONG
from ..kept_options import kept_options
from ..lakes import check_no_cluster, chosen_lake
from ..values import chosen_key_log, other_inputs, read_options
from .output import finish

if TYPE_CHECKING:
    from kafkatap.reports.comparison.leaves import Side
    from kafkatap.reports.literals import Moment

    from ...engine.read_options import ReadOptions


def run(options: argparse.Namespace) -> int:
    """Run the command; return its exit code."""
    store.verbose = options.verbose > 0
    lake = chosen_lake(options.captures)
    if lake is not None:
        from .lake import run_on_lake

        return run_on_lake(options, lake)
    try:
        check_no_spans(options)
        check_no_cluster(options)
        reading = read_options(options)
        selection = selection_of(options, reading.definitions)
        split = _split(options)
        sides = _captures(options)
        reading = reading._replace(key_log=chosen_key_log(options))
        if options.html is not None:
            captures = [capture for side in sides for capture in side]
            check_not_read("--html", options.html, other_inputs(options))
            check_file("--html", options.html, HTML, captures, options.overwrite)
    except (ValueError, OSError) as error:
        return refuse(error)
    if not gc.isenabled():
        gc.freeze()
        gc.enable()
    from ...comparison.reading import EmptySideError

    found: list[Side] = []
    runs: list[Run] = []
    try:
        options.captures = [capture for side in sides for capture in side]
        with interrupts() as stop, progress(options) as show:
            for captures in sides:
                before = sum(file.bytes for one in runs for file in one.files)

                def watch(done: int, before: int = before) -> bool:
                    return show(before + done) or bool(stop)

                one, made = _read(options, captures, selection, split, reading, watch)
                runs.append(one)
                found += made
                if one.interrupted:
                    complain("interrupted: there is no comparison, as both sides have to be read whole")
                    return INTERRUPTED
    except EmptySideError as error:
        return refuse(error)
    except OSError as error:
        complain(reason_of(error))
        return WRONG
    return _finish(options, selection, sides, runs, found)


def _split(options: argparse.Namespace) -> Moment | None:
    """The moment of --split; ValueError if the captures do not fit."""
    count = len(options.captures)
    if options.split is None:
        if count != 2:
            raise ValueError(
                f"compare needs two captures, before and after, not {count}: name a folder or quote a glob for several "
                "files of a side; --split TIME compares the parts of one"
            )
        return None
    if count != 1:
        raise ValueError("--split compares the parts of one capture: name one file or folder, or quote a glob")
    from kafkatap.reports.literals import read_moment

    return read_moment(options.split, options.utc)


def _captures(options: argparse.Namespace) -> list[list[str]]:
    if options.captures.count("-") > 1:
        raise ValueError("standard input (-) can be read only once")
    return [readable_captures([named], "compare", notes(options)) for named in options.captures]


def _read(
    options: argparse.Namespace, captures: list[str], selection: Selection, split: Moment | None,
    reading: ReadOptions, watch: Watch,
) -> tuple[Run, list[Side]]:  # fmt: skip
    """Read the captures of a side, or with `split` of both."""
    from kafkatap.reports.section_parts.registry import EVENT_SECTIONS, needs_of
    from kafkatap.reports.twins import may_be_twins, twin_keys

    def read(twins: Mapping[int, int] = {}) -> tuple[Run, list[Side]]:
        engine = engine_for(
            selection, reading._replace(twins=twins), all_results=True, **needs_of(EVENT_SECTIONS)._asdict()
        )
        run = Run(captures, engine, watch=watch)
        run.start()
        from ...comparison.reading import read_sides

        return run, read_sides(run, selection, split, options.utc)

    run, sides = read()
    if selection.expression is None and not run.interrupted and not any(map(is_pipe, captures)):
        rows = sides[0].context.connections
        twins = twin_keys(rows[may_be_twins(rows)])
        if twins:
            run, sides = read(twins)
    kept = kept_options(options)
    return run, [side._replace(context=side.context._replace(options=kept)) for side in sides]


def _finish(
    options: argparse.Namespace, selection: Selection, captures: list[list[str]], runs: list[Run], sides: list[Side]
) -> int:
    """Complain, compare, print; return the exit code."""
    damaged = [file for one in runs for file in one.damaged]
    for file in damaged:
        complain(f"{name_of(file.path)}: {file.damage}{advice_on(file, 'in the comparison')}")
    if any(one.files and all(file.fatal for file in one.files) for one in runs):
        return WRONG
    for one, side in zip(runs, sides, strict=False):
        note_key_log(options, one.files, one.engine.key_log, side.context)
    has_kafka = True
    for side in sides:
        if not any(side.context.ledger["requests"].values()):
            complain(no_kafka(side.context))
            has_kafka = False
    for name, side in zip(("before", "after"), sides, strict=True):
        if has_kafka and not len(side.counts.forms["exchanges"]):
            if not selection.text:
                complain(f"no request is on the side {name}")
                has_kafka = False
            elif (
                nothing_matches(f"request on the side {name}", selection.text, options.html is not None, options)
                != DONE
            ):
                return WRONG
    from ...comparison.compared import split_texts

    texts = [selection.text, selection.text] if options.split is None else split_texts(selection.text, options.split)
    is_whole = has_kafka and not damaged
    return finish(options, sides, (texts[0], texts[1]), (captures[0], captures[-1]), has_damage=not is_whole)


def check_no_spans(options: argparse.Namespace) -> None:
    """ValueError if spans of a lake are given for captures."""
    if options.before is not None or options.after is not None:
        raise ValueError(
            "--before and --after are spans of one folder of `kafkatap spark`; captures are compared as "
            "`kafkatap compare BEFORE AFTER`, or with --split or --from and --to"
        )
