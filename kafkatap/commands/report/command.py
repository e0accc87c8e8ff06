"""`kafkatap report`: read captures, count, and write the report."""

from __future__ import annotations

import argparse
import gc
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from kafkatap.kernels import store
from kafkatap.reports.section_parts.registry import counted_sections, needs_of

from ...captures.pipes import is_pipe
from ...captures.storage import stored_bytes
from ...complaints import complain, name_of, reason_of
from ...engine.engine import engine_for
from ...engine.selection import Selection, selection_of
from ...run import Follow, Run, Watch
from ..console import (
    SIGNALS_OF_FOLLOW,
    advice_on,
    following,
    interrupts,
    no_kafka,
    note_key_log,
    notes,
    nothing_matches,
    progress,
    readable_captures,
    refuse,
)
from ..exit_codes import DAMAGED, DONE, INTERRUPTED, WRONG
from ..kept_options import kept_options
from ..lakes import check_no_cluster, chosen_lake
from ..values import chosen_key_log, read_options, section_options
from .jobs import JobsRun, choose_jobs, run_with_jobs
from .outputs import as_printed, check_outputs, choose_sections, has_curves

if TYPE_CHECKING:
    from kafkatap.reports.batch import Context
    from kafkatap.reports.counting.counts import ReportCounts
    from kafkatap.reports.model import Report
    from kafkatap.reports.section_parts.section_counts import SectionCounts

    from ...engine.read_options import ReadOptions
    from ...engine.tls.key_log import KeyLog
    from ...parquet.table_writer import TableWriter
    from ...request_log.log_join import LogJoin
    from ...shards.local_tables import LocalTables


class Read(NamedTuple):
    """The captures as they were read. `tables`: their rows, if wanted. `context`: returns what the counts mean.
    `sections`: the counts of sections over facts, if wanted. `first`: how they were read before, with the rows."""

    run: Run | JobsRun
    counts: ReportCounts
    tables: TableWriter | LocalTables | None
    context: Callable[[], Context]
    sections: SectionCounts | None = None
    first: Read | None = None


def run(options: argparse.Namespace, judge: Callable[[Report], int | None] = lambda report: None) -> int:
    """Run the command; return its exit code. `judge`: returns the exit code of a complete run if the report decides."""
    store.verbose = options.verbose > 0
    lake = chosen_lake(options.captures)
    if lake is not None:
        from .lake import run_on_lake

        return run_on_lake(options, lake, judge)
    try:
        check_no_cluster(options)
        reading = read_options(options)
        selection = selection_of(options, reading.definitions)
        follow = following(options)
        choose_sections(options)
        if follow is None:
            options.captures = readable_captures(options.captures, note=notes(options))
        reading = reading._replace(key_log=chosen_key_log(options, is_growing=follow is not None))
        check_outputs(options)
        log_join = _read_request_logs(options)
    except (ValueError, OSError) as error:
        return refuse(error)
    with ExitStack() as files:
        try:
            with interrupts(SIGNALS_OF_FOLLOW if follow else ()) as stop, progress(options) as show:

                def watch(done: int) -> bool:
                    return show(done) or bool(stop)

                jobs = choose_jobs(options)

                def read_as(reading: ReadOptions, with_tables: bool) -> Read | None:
                    read = None
                    if jobs > 1:
                        read = _read_with_jobs(options, jobs, selection, reading, watch, files, with_tables)
                    if read is None and not (jobs > 1 and stop):
                        read = _read_here(options, selection, reading, watch, files, follow, log_join, with_tables)
                    return read

                read = read_as(reading, options.parquet is not None)
                if read is not None and log_join is None and not read.run.interrupted and _can_read_again(options):
                    read = _counted_once(read, selection, lambda twins: read_as(reading._replace(twins=twins), False))
        except OSError as error:
            complain(reason_of(error))
            return WRONG
        if read is None:
            complain("interrupted: there is no report, as each process reads the captures itself")
            return INTERRUPTED
        return _report(options, selection, read, judge, log_join)


def _can_read_again(options: argparse.Namespace) -> bool:
    return not options.follow and not any(map(is_pipe, options.captures))


def _counted_once(read: Read, selection: Selection, read_again: Callable[[Mapping[int, int]], Read | None]) -> Read:
    """What was read; if connections count twice, what is read again without their twins. `read_again` gets these."""
    from kafkatap.reports.sections.twin_findings import counted_twice

    twins = counted_twice(read.sections, read.counts, read.context, lambda context: selection.shown(context.first))
    again = read_again(twins) if twins else None
    return read if again is None or again.run.interrupted else again._replace(first=read)


def _read_request_logs(options: argparse.Namespace) -> LogJoin | None:
    """The request logs of --request-log, ready to be joined. ValueError or OSError if they cannot be."""
    if not options.request_log:
        return None
    for name in ("jobs", "follow"):
        if getattr(options, name) not in (None, False, 1):
            raise ValueError(f"--request-log needs one process that reads complete captures: leave --{name} out")
    options.jobs = 1
    from ...request_log.log_files import read_logs
    from ...request_log.log_join import LogJoin

    return LogJoin(read_logs(options.request_log), by_client=options.by == "client")


def _read_with_jobs(
    options: argparse.Namespace,
    jobs: int,
    selection: Selection,
    reading: ReadOptions,
    watch: Watch,
    files: ExitStack,
    with_tables: bool,
) -> Read | None:
    """Read the captures with several processes; None if one has to, or the user ended it. `files` closes output
    files."""
    from ...shards.workers import Interrupted

    _collect_garbage()
    try:
        run = run_with_jobs(options, jobs, selection, reading, watch, files, with_tables)
    except Interrupted:
        return None
    if run is None:
        return None
    found = run.found
    return Read(run, found.counts, run.tables, lambda: found.context, found.sections)


def _read_here(
    options: argparse.Namespace,
    selection: Selection,
    reading: ReadOptions,
    watch: Watch,
    files: ExitStack,
    follow: Follow | None = None,
    log_join: LogJoin | None = None,
    has_tables: bool = False,
) -> Read:
    """Read the captures in this process. `files` closes output files. `log_join`: gets the exchanges."""
    by_topic = options.by == "topic"
    counted = counted_sections(options.sections, None if follow else stored_bytes(options.captures))
    engine = engine_for(
        selection, reading, all_results=by_topic or has_tables, tables=has_tables,
        **needs_of(counted, has_tables)._asdict(),
    )  # fmt: skip
    run = Run(options.captures, engine, watch=watch, follow=follow)
    writer = _table_writer(options, run, files) if has_tables else None
    run.start()  # it reads the first block while the rest is imported
    from .reporting import ReportCounts

    _collect_garbage()
    counts = ReportCounts(
        by_topic=by_topic,
        interval=None if follow else options.interval,
        by_connection=options.by == "connection",
        fine=has_curves(options),
    )
    sections = None
    if log_join is not None and options.sections is None:
        counted = ("broker-times", *counted)
    if counted:
        sections = engine.section_counts(counted, learning=selection.learning)
        engine.on_connections(sections.add_connections)
        if writer is not None:
            writer.sections = sections
        if log_join is not None:
            engine.on_connections(log_join.also(sections.add_connections))
    context = run.context if writer is None else writer.context
    reports = None
    with ExitStack() as screen:
        if follow is not None:
            from .following import IntervalReports

            reports = IntervalReports(options, counts, partial(context, is_over=False), selection, sections)
            screen.callback(reports.close)
            run.watch = reports.beside(watch)
        for batch in selection.apply(run.batches() if writer is None else writer.batches(), engine, sections):
            counts.add(batch)
            if sections is not None:
                sections.add(batch)
            if log_join is not None:
                log_join.add(batch)
            engine.limit(counts)
            if writer is not None:
                writer.add(batch)
    return Read(run, counts, writer, context, sections)


def _collect_garbage() -> None:
    """Turn the collector on: `kafkatap.__main__` turned it off while modules were imported."""
    if not gc.isenabled():
        gc.freeze()
        gc.enable()


def _report(
    options: argparse.Namespace,
    selection: Selection,
    read: Read,
    judge: Callable[[Report], int | None],
    log_join: LogJoin | None = None,
) -> int:
    """Print the report, write its files, and return the exit code."""
    from .reporting import as_ordered, build_report, has_requests, write_outputs

    run = read.run
    for file in run.damaged:
        if not (run.interrupted and is_pipe(file.path)):
            complain(f"{name_of(file.path)}: {file.damage}{advice_on(file)}")
    if run.files and all(f.fatal for f in run.files):
        return INTERRUPTED if run.interrupted else WRONG
    context = read.context()._replace(options=kept_options(options))
    note_key_log(options, run.files, key_log_of(run), context)
    report = build_report(
        read.counts, context, by=options.by, curves=has_curves(options), selected=selection.shown(context.first),
        sections=options.sections, over_facts=read.sections,
        options=section_options(options) | ({} if log_join is None else {"request_log": log_join}),
    )  # fmt: skip
    whole = as_ordered(options, report)
    report = as_printed(options, whole)
    found = any(context.ledger["requests"].values())
    if not found:
        complain(no_kafka(context))
    elif not has_requests(report):
        has_output = not run.interrupted and any((options.html, options.csv, options.plots, options.parquet))
        if nothing_matches("request", selection.text, has_output, options) != DONE:
            return WRONG
    try:
        write_outputs(options, report, whole, run.files)
        rows = read.first or read
        if rows.tables is not None and not run.is_cut_short:
            from .files import complain_written

            complain_written(rows.tables.publish(rows.context()), options.parquet)
            if (options.sections is not None or options.request_log) and not options.is_all_on_page:
                from .files import write_sections

                write_sections(options, report)
    except OSError as error:
        complain(reason_of(error))
        return WRONG
    except KeyboardInterrupt:
        complain("interrupted: not all files were written")
        return INTERRUPTED
    if run.interrupted and options.follow and not context.interrupted:
        return INTERRUPTED  # the usual end
    if run.interrupted:
        unwritten = "; no tables were written" if rows.tables is not None and run.is_cut_short else ""
        complain(f"interrupted: the report covers only what was read before{unwritten}")
        return INTERRUPTED
    code = judge(report)
    if code is not None:
        return code
    return DONE if found and not run.damaged else DAMAGED


def key_log_of(run: Run | JobsRun) -> KeyLog | None:
    """The key log of a run in this process."""
    return run.key_log if isinstance(run, JobsRun) else run.engine.key_log


def _table_writer(options: argparse.Namespace, run: Run, files: ExitStack) -> TableWriter:
    from pathlib import Path

    from ...parquet.table_writer import TableWriter
    from .files import use_small_pool

    use_small_pool()
    return files.enter_context(TableWriter(Path(options.parquet), run, overwrite=options.overwrite))
