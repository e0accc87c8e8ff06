"""`kafkatap report`: read captures, count, and write the report."""

from __future__ import annotations

import argparse
import gc
import os
from contextlib import ExitStack
from typing import TYPE_CHECKING

from kafkatap.kernels import store

from ...captures.pipes import is_pipe
from ...complaints import complain, name_of, reason_of
from ...engine import engine_for
from ...installation import install_command
from ...run import Run
from ...selection import selection_of
from ..console import advice_on, interrupts, no_kafka, progress, readable_captures, refuse
from ..exit_codes import DAMAGED, DONE, INTERRUPTED, WRONG
from ..values import chosen_definitions
from .jobs import JobsRun, choose_jobs, run_with_jobs

if TYPE_CHECKING:
    from ...parquet.table_writer import TableWriter


def run(options: argparse.Namespace) -> int:
    """Run the command; return its exit code."""
    with ExitStack() as files:
        return _run(options, files)


def _run(options: argparse.Namespace, files: ExitStack) -> int:
    """The same. `files`: closes output files."""
    store.verbose = options.verbose > 0
    try:
        definitions = chosen_definitions(options)
        selection = selection_of(options, definitions)
        options.captures = readable_captures(options.captures)
        _check_outputs(options)
    except (ValueError, OSError) as error:
        return refuse(error)
    jobs = choose_jobs(options)
    by_topic, tables = options.by == "topic", bool(options.parquet)
    engine = engine_for(selection, by_topic or tables, options.port or (), definitions, tables, options.max_frame)
    run: Run | JobsRun
    if tables:
        # Its default keeps 40 MB more. It is read when pyarrow is imported.
        os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    with interrupts() as stop, progress(options) as show:
        run = Run(options.captures, engine, watch=lambda done: show(done) or bool(stop))
        try:
            writer = None
            if jobs == 1:
                writer = _table_writer(options.parquet, run, files) if tables else None
                run.start()  # it reads the first block while the rest is imported
            from .reporting import ReportCounts, build_report, has_requests, print_report

            if not gc.isenabled():  # `kafkatap.__main__` turned it off while modules were imported
                gc.freeze()
                gc.enable()
            counts = ReportCounts(by_topic=by_topic, interval=options.interval)
            several = run_with_jobs(options, jobs, selection, definitions, run.watch, files) if jobs > 1 else None
            if several is not None:
                run, counts = several, several.counts or counts
            else:
                if tables and writer is None:
                    writer = _table_writer(options.parquet, run, files)
                for batch in selection.apply(run.batches() if writer is None else writer.batches(), engine):
                    counts.add(batch)
                    if writer is not None:
                        writer.add(batch)
        except OSError as error:
            complain(reason_of(error))
            return WRONG
    if several is not None and run.interrupted:
        complain("interrupted: there is no report, as --jobs makes it at the end")
        return INTERRUPTED
    for file in run.damaged:
        if not (run.interrupted and is_pipe(file.path)):
            complain(f"{name_of(file.path)}: {file.damage}{advice_on(file)}")
    if run.files and all(f.fatal for f in run.files):
        return INTERRUPTED if run.interrupted else WRONG
    context = run.context() if writer is None else writer.context()
    result = build_report(counts, context, by=options.by, curves=bool(options.plots), selected=selection.text)
    found = any(context.ledger["requests"].values())
    if not found:
        complain(no_kafka(context))
    elif not has_requests(result):
        complain(f"no request matches {selection.text}")
    try:
        print_report(options, result)
        if options.csv or options.plots:
            from .files import write_files

            write_files(options, result)
        rows = writer if several is None else several.tables
        if rows is not None and not run.is_cut_short:
            from .files import complain_written

            complain_written(rows.publish(context), options.parquet)
    except OSError as error:
        complain(reason_of(error))
        return WRONG
    except KeyboardInterrupt:
        complain("interrupted: not all files were written")
        return INTERRUPTED
    if run.interrupted:
        unwritten = "; no tables were written" if writer is not None and run.is_cut_short else ""
        complain(f"interrupted: the report covers only what was read before{unwritten}")
        return INTERRUPTED
    return DONE if found and not run.damaged else DAMAGED


def _check_outputs(options: argparse.Namespace) -> None:
    """Check the outputs before the run, so that a long run does not fail at its end."""
    if options.plots:
        from importlib.util import find_spec

        if find_spec("matplotlib") is None:
            raise ValueError(f"--plots needs matplotlib ({install_command('plots')})")
    for name in ("csv", "plots", "parquet"):
        folder = getattr(options, name)
        if folder == "":
            raise ValueError(f"--{name} needs the name of a directory")
        if folder is not None:
            if os.path.exists(folder) and not os.path.isdir(folder):
                raise ValueError(f"{folder} is not a directory")
            os.makedirs(folder, exist_ok=True)


def _table_writer(folder: str, run: Run, files: ExitStack) -> TableWriter:
    from pathlib import Path

    from ...parquet.table_writer import TableWriter

    return files.enter_context(TableWriter(Path(folder), run))
