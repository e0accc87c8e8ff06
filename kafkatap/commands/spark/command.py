"""`kafkatap spark`: a job over many captures, from options to tables, reports and a summary.

Options are checked before Spark starts, because a session takes seconds.
"""

from __future__ import annotations

import argparse
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from kafkatap.kernels import store
from kafkatap.reports.units import safe, size

from ...captures.pipes import STANDARD_INPUT
from ...captures.storage import File, absolute, find
from ...complaints import complain
from ...engine.selection import Selection, selection_of
from ...installation import install_command, own_version
from ...library import UnreadableCaptureError
from ...spark.catalog import Catalog
from ...spark.cluster.interrupts import Terminated, interruptible
from ...spark.cluster.java import SetupError
from ...spark.cluster.store_access import take_settings
from ...spark.job_result import DamagedInput, JobResult, Watch, rows_text
from ...spark.lake_options import check_options
from ...spark.output.delta import check_tables, require_deltalake
from ...spark.output.publication import check_folder
from ...spark.path_pattern import PathPattern
from ...spark.stages import watching
from ...splits.secrets import read_key_logs
from ..console import refuse
from ..exit_codes import DAMAGED, DONE, INTERRUPTED, LEFT_OUT, TERMINATED, WRONG
from ..kept_options import kept_options
from ..values import check_section_options, read_options, section_options
from .arguments import LINES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ...engine.read_options import ReadOptions
    from ...splits.run_options import RunOptions


def run(options: argparse.Namespace) -> int:
    """Carry out `kafkatap spark`; return its exit code."""
    store.verbose = options.verbose > 0
    try:
        take_settings(dict(options.conf or ()))
        reading = read_options(options)
        selection = selection_of(options, reading.definitions)
        captures = _check(options)
        if options.keylog:
            reading = reading._replace(key_log=read_key_logs(options.keylog))
        run = _run_options(options, selection, reading)
        check_options(absolute(options.output), run, captures, options.replace)
        result = _run(options, run)
        _write(options, result)
    except Terminated:
        complain("terminated")
        return TERMINATED
    except KeyboardInterrupt:
        complain("interrupted")
        return INTERRUPTED
    except BrokenPipeError:
        raise
    except (ValueError, OSError) as error:
        return refuse(error)
    except (SetupError, DamagedInput, UnreadableCaptureError) as error:
        return _refuse_lines(str(error))
    except Exception as error:
        if not _is_spark_s(error):
            raise
        from ...spark.cluster.failures import explain

        return _refuse_lines(explain(error))
    return _conclude(options, result, selection)


def _check(options: argparse.Namespace) -> list[File]:
    """Check the options before Spark starts. Return the captures; none with a checkpoint, where they can come later."""
    if find_spec("pyspark") is None:
        raise SetupError(f"Spark needs pyspark for {sys.executable}: {install_command('spark')}")
    require_deltalake()
    check_section_options(options)
    if options.checkpoint is not None and (options.sections is not None or options.by == "connection"):
        raise ValueError("--sections and --by connection report on the captures of one run, without --checkpoint")
    if options.checkpoint is None and (options.follow or options.finish):
        raise ValueError("--follow and --finish need --checkpoint DIR")
    if options.follow and options.finish:
        raise ValueError("--follow waits for more captures, and --finish ends without; use one of them")
    if options.checkpoint is not None and (options.master or "").startswith("sc://"):
        raise ValueError("--checkpoint does not work with Spark Connect (run it where Spark runs)")
    if STANDARD_INPUT in options.captures:
        raise ValueError("standard input (-) cannot be split into tasks (save it to a file first)")
    found = find(options.captures) if options.checkpoint is None else []
    if options.verbose and options.checkpoint is None:
        complain(f"{len(found):,} captures")
    if options.table is not None:
        Catalog(options.table)
    if options.path_pattern is not None:
        PathPattern(options.path_pattern).check(absolute(file.path) for file in found)
    check_folder(options.output, is_private=bool(options.keylog))
    check_tables(options.output)
    return [file._replace(path=absolute(file.path)) for file in found]


def _run_options(options: argparse.Namespace, selection: Selection, reading: ReadOptions) -> RunOptions:
    from ...splits.run_options import RunOptions

    return RunOptions(
        reading, options.records, selection=selection,
        wanted=None if options.sections is None else tuple(options.sections), section_options=section_options(options),
        kept=tuple(dict.fromkeys((*kept_options(options), ("utc", "")))),  # its reports have no other times
    )  # fmt: skip


def _run(options: argparse.Namespace, run: RunOptions) -> JobResult:
    from pyspark.sql import SparkSession

    from ...spark.cluster.session import open_session

    running = SparkSession.getActiveSession()
    opened: list[SparkSession] = [] if running is None else [running]
    bars = options.progress is True and sys.stderr.isatty()
    settings = dict(options.conf or ())
    if run.read.key_log is not None:
        settings.setdefault("spark.io.encryption.enabled", "true")  # inputs of tasks may lie in its temporary files

    def work() -> JobResult:
        if running is None:
            if (options.master or "local").startswith("local"):
                store.prepare()  # here, where it says so, and not in the first task
            opened.append(
                open_session(options.master, config=settings, archive=options.archive, log=options.log, for_jobs=True)
            )
        catalog = None if options.table is None else Catalog(options.table)
        if catalog is not None:
            catalog.check(opened[0])
            catalog.add(opened[0], options.output)  # before the job, so that it may refuse
        with watching(options.progress == LINES, bars) as watch:
            result = _job(opened[0], options, run, watch)
        if catalog is not None:
            catalog.add(opened[0], options.output)
        return result

    try:
        return interruptible(lambda: next(iter(opened), None), work)
    finally:
        if running is None and opened:
            opened[0].stop()


def _job(session: SparkSession, options: argparse.Namespace, run: RunOptions, watch: Watch) -> JobResult:
    from ...spark.job import run_job

    if options.checkpoint is not None:
        return _follow(session, options, run)
    return run_job(
        session, options.captures, options.output, split_size=options.split_size, options=run, strict=options.strict,
        by=options.by, replace_rows=options.replace, path_pattern=options.path_pattern, watch=watch,
    )  # fmt: skip


def _follow(session: SparkSession, options: argparse.Namespace, run: RunOptions) -> JobResult:
    from ...spark.stream import STREAM_SPLIT_SIZE, StreamOptions, run_stream

    split_size = min(options.split_size or STREAM_SPLIT_SIZE, STREAM_SPLIT_SIZE)
    out, checkpoint = absolute(options.output), absolute(options.checkpoint)
    stream = StreamOptions(out, checkpoint, split_size, run, options.strict, options.replace, options.path_pattern)
    captures = [absolute(pattern) for pattern in options.captures]
    return run_stream(
        session, captures, stream, forever=options.follow, finish=options.finish, by=options.by,
        on_batch=_say, quiet=options.quiet / 1e9, lateness=options.lateness / 1e9, batch_size=options.batch_size,
    )  # fmt: skip


def _say(result: JobResult) -> None:
    """Print damage and notes of a batch, or of a job."""
    for sentence in [*result.damage, *result.notes]:
        complain(sentence)


def _write(options: argparse.Namespace, result: JobResult) -> None:
    """Print the report."""
    if result.report is None:
        return
    if options.json:
        from kafkatap.reports.rendering.json_report import write_json

        write_json(result.report, sys.stdout, own_version())
    else:
        from kafkatap.reports.rendering.text import write_text

        color = None if options.color == "auto" else options.color == "always"
        write_text(
            result.report, sys.stdout, top=options.number, utc=options.utc, color=color, whole_ledger=options.ledger
        )
    sys.stdout.flush()


def _conclude(options: argparse.Namespace, result: JobResult, selection: Selection) -> int:
    """Print damage, notes and a summary. Return the exit code."""
    _say(result)
    for line in summary(result, options.output):
        complain(line)
    found = result.has_kafka or options.checkpoint is not None
    if not found:
        complain("no Kafka found in these captures (if its connections started before them, try --port)")
    elif selection and not result.tables.get("exchanges", 0) and options.checkpoint is None:
        complain(f"no request matches {selection.text}")
    if result.is_left_out:
        return LEFT_OUT
    return DONE if found and not result.damage and not result.is_damaged else DAMAGED


def summary(result: JobResult, out: str) -> list[str]:
    """A summary of a job, in two lines."""
    rounds = "" if result.rounds == 1 else f", {result.rounds} rounds of decoding"
    return [
        f"read {size(result.bytes_read)} in two passes, shuffled {size(result.bytes_shuffled)}, "
        f"{size(result.bytes_to_driver)} of results to the driver{rounds}",
        f"wrote {rows_text(result.tables)} to {out} ({result.files_written:,} files)",
    ]


def _refuse_lines(text: str) -> int:
    """Print an error: the first line is the reason, and other lines are advice."""
    reason, *advice = text.splitlines() or ["the job failed, and Spark reports no reason"]
    complain(reason)
    for line in advice:
        print(safe(line), file=sys.stderr)
    return WRONG


def _is_spark_s(error: Any) -> bool:
    return type(error).__module__.partition(".")[0] in ("pyspark", "py4j")
