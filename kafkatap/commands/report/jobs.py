"""`kafkatap report --jobs`: how many processes read the captures, and the run with several."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

from kafkatap.reports.batch import Context

from ...captures.pipes import is_pipe
from ...captures.storage import is_uri
from ...complaints import complain, name_of
from ...usable_cores import usable_cores
from ..values import section_options
from .page import has_curves

if TYPE_CHECKING:
    from kafkatap.reports.counting.counts import ReportCounts

    from ...captures.capture_reader import FileReport
    from ...engine.read_options import ReadOptions
    from ...engine.selection import Selection
    from ...splits.local_report import Counted
    from ...splits.local_tables import LocalTables

#: Without --jobs, several processes read captures of more bytes than this, if more than so many cores are usable.
LARGE, FEW_CORES = 4 << 30, 2


def choose_jobs(options: argparse.Namespace) -> int:
    """The number of processes for a run. It says why if there is only one, though more were asked for."""
    if options.jobs == 1 or (options.follow and options.jobs is None):
        return 1
    if options.follow:
        _explain(options, "it is followed")
        return 1
    if options.jobs is None and sum(map(_size, options.captures)) <= LARGE:
        return 1
    jobs: int = options.jobs or usable_cores()
    if options.jobs is None and jobs <= FEW_CORES:
        return 1
    why = _only_one(options)
    if why is None:
        return jobs
    _explain(options, why)
    return 1


def _size(path: str) -> int:
    """The bytes of a local file; 0 for anything else, and if it cannot be opened."""
    try:
        return 0 if is_pipe(path) or is_uri(path) else os.stat(path).st_size
    except OSError:
        return 0


def _only_one(options: argparse.Namespace) -> str | None:
    """Why only one process can read the captures; None if several can."""
    from ...captures.splits import Split, cut

    for path in options.captures:
        if is_uri(path):
            return f"{path} is in a store; `kafkatap spark` reads stores with many"
        if is_pipe(path):
            return f"{name_of(path)} can be read only once; save it to a file first"
    if len(options.captures) > 1:
        return None
    path = options.captures[0]
    size = _size(path)
    if len(cut(Split(path, size=size), max(size // 2, 1))) > 1:
        return None
    return f"{path} cannot be cut; only uncompressed pcap and pcapng files can"


class JobsRun:
    """The counts of captures that several processes have read: as a `Run` that is over. Nothing is counted if the user
    `interrupted` it. `tables`: their rows, if wanted."""

    def __init__(self, found: Counted | None, tables: LocalTables | None) -> None:
        self.tables = tables
        self.interrupted = found is None
        self.counts: ReportCounts | None = None if found is None else found.counts
        self.files: Sequence[FileReport] = () if found is None else found.files
        self._context = Context() if found is None else found.context
        self.sections = None if found is None else found.sections

    @property
    def is_cut_short(self) -> bool:
        """Whether captures were not read to their end."""
        return self.interrupted

    @property
    def damaged(self) -> list[FileReport]:
        """The captures that could not be read completely."""
        return [file for file in self.files if file.damage]

    def context(self) -> Context:
        """What reports need beside the counts."""
        return self._context


def run_with_jobs(
    options: argparse.Namespace,
    jobs: int,
    selection: Selection,
    reading: ReadOptions,
    watch: Callable[[int], bool],
    files: ExitStack,
) -> JobsRun | None:
    """Read the captures with `jobs` processes. None if one process has to read them. OSError if it is not possible.
    `files`: closes output files."""
    from ...splits.local_report import CapturedTwice, count_with_jobs
    from ...splits.run_options import RunOptions
    from ...splits.workers import Interrupted, WorkerEnded

    run = RunOptions(
        reading, by_topic=options.by == "topic", selection=selection, by_connection=options.by == "connection",
        wanted=None if options.sections is None else tuple(options.sections), section_options=section_options(options),
        fine=has_curves(options),
    )  # fmt: skip
    tables = None
    if options.parquet:
        from pathlib import Path

        from ...splits.local_tables import LocalTables
        from .files import use_small_pool

        use_small_pool()
        tables = files.enter_context(LocalTables(Path(options.parquet), jobs))
    try:
        found = count_with_jobs(options.captures, jobs, run, interval=options.interval, watch=watch, tables=tables)
        return JobsRun(found, tables)
    except Interrupted:
        return JobsRun(None, None)
    except CapturedTwice as error:
        if tables is not None:
            tables.close()
        _explain(options, str(error))
        return None
    except WorkerEnded as error:
        raise OSError(f"one of {jobs} processes {error}; try again with --jobs {max(jobs // 2, 1)}") from None


def _explain(options: argparse.Namespace, why: str) -> None:
    """Say why one process reads the captures, if the user would wonder."""
    if options.jobs is not None or options.verbose:
        complain(f"one process reads this input: {why}")
