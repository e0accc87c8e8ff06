"""`kafkatap report --jobs`: how many processes read the captures, and the run with several."""

from __future__ import annotations

import argparse
import errno
import os
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, cast

from ...captures.pipes import is_pipe
from ...captures.storage import is_uri, stored_bytes
from ...complaints import complain, name_of
from ...usable_cores import usable_cores
from ..values import section_options
from .outputs import has_curves

if TYPE_CHECKING:
    from ...captures.capture_reader import FileReport
    from ...engine.read_options import ReadOptions
    from ...engine.selection import Selection
    from ...engine.tls.key_log import KeyLog
    from ...shards.local_tables import LocalTables
    from ...shards.shard_run import Counted

#: Without --jobs, several processes read captures of more bytes than this, if more than so many cores are usable.
LARGE, FEW_CORES = 4 << 30, 2
#: Errors of a machine that has not enough for so many processes.
_TOO_MANY = (errno.EAGAIN, errno.EMFILE, errno.ENFILE, errno.ENOMEM)


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
    pipes = [path for path in options.captures if is_pipe(path)]
    if pipes and len(options.captures) > 1:
        _explain(options, f"{name_of(pipes[0])} can be read only once; save it to a file first")
        return 1
    if pipes and options.keylog:
        _explain(
            options, f"{name_of(pipes[0])} can be read only once, and connections may resume TLS sessions of others"
        )
        return 1
    return jobs


def _size(path: str) -> int:
    """The bytes of a local file; 0 for anything else, and if it cannot be opened."""
    try:
        return 0 if is_pipe(path) or is_uri(path) else os.stat(path).st_size
    except OSError:
        return 0


class JobsRun:
    """The counts of captures that several processes have read: as a `Run` that is over. `tables`: their rows, if
    wanted. `key_log`: the one that was given."""

    def __init__(self, found: Counted, tables: LocalTables | None, key_log: KeyLog | None) -> None:
        self.found, self.tables, self.key_log = found, tables, key_log
        self.interrupted = found.interrupted
        self.files = found.files

    @property
    def is_cut_short(self) -> bool:
        """As of `Run`."""
        return self.interrupted and not all(is_pipe(file.path) for file in self.files)

    @property
    def damaged(self) -> list[FileReport]:
        """The captures that could not be read completely."""
        return [file for file in self.files if file.damage]


def run_with_jobs(
    options: argparse.Namespace,
    jobs: int,
    selection: Selection,
    reading: ReadOptions,
    watch: Callable[[int], bool],
    files: ExitStack,
    with_tables: bool,
) -> JobsRun | None:
    """Read the captures with `jobs` processes. None if one process has to read them. OSError if it is not possible,
    `workers.Interrupted` if the user ended it. `files`: closes output files."""
    from ...shards.shard_run import OneEngineNeeded, count_with_shards
    from ...shards.workers import WorkerEnded
    from ...splits.run_options import RunOptions

    run = RunOptions(
        reading, by_topic=options.by == "topic", selection=selection, by_connection=options.by == "connection",
        wanted=None if options.sections is None else tuple(options.sections), section_options=section_options(options),
        fine=has_curves(options), input_bytes=stored_bytes(options.captures),
    )  # fmt: skip
    tables, fewer = None, f"try again with --jobs {max(jobs // 2, 1)}"
    try:
        if with_tables:
            from pathlib import Path

            from ...shards.local_tables import LocalTables
            from .files import use_small_pool

            use_small_pool()
            tables = files.enter_context(LocalTables(Path(options.parquet), jobs, options.overwrite))
        found = count_with_shards(options.captures, jobs, run, interval=options.interval, watch=watch, tables=tables)
    except OneEngineNeeded as error:
        if tables is not None:
            tables.close()
        _explain(options, str(error))
        return None
    except WorkerEnded as error:
        raise OSError(f"one of {jobs} processes {error}; {fewer}") from None
    except (OSError, MemoryError) as error:
        if isinstance(error, OSError) and error.errno not in _TOO_MANY:
            raise
        why = os.strerror(errno.ENOMEM if isinstance(error, MemoryError) else cast(int, error.errno))
        raise OSError(f"{why.lower()} for {jobs} processes; {fewer}") from None
    return JobsRun(found, tables, reading.key_log)


def _explain(options: argparse.Namespace, why: str) -> None:
    """Say why one process reads the captures, if the user would wonder."""
    if options.jobs is not None or options.verbose:
        complain(f"one process reads this input: {why}")
