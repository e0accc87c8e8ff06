"""The job of `kafkatap spark`: captures in, folders of Parquet and the reports out.

Executors write the rows of tables where they decode them; what comes back are names of files, proofs, and the parts of
connections and counts that splits share.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from kafkatap.reports.tables import TABLES, files_table, ledger_table

from ..captures.splits import SPLIT_SIZE
from .captures import Captures, DamagedCaptureError
from .job_result import DamagedInput, JobResult, Watch, ignore
from .output.connection_parts import merged_rows, read_connections
from .output.publish import Publication, open_publication
from .output.report_files import write_report
from .output.summing import report_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kafkatap.dissector.layouts.overlay import Definitions
    from kafkatap.reports.model import Report

#: Seconds between two looks at how far a stage is.
LOOK_EVERY = 0.5


def run_job(
    spark: SparkSession,
    captures: str | Sequence[str],
    out: str,
    *,
    split_size: int = SPLIT_SIZE,
    records: bool = False,
    ports: tuple[int, ...] = (),
    definitions: Definitions | None = None,
    strict: bool = False,
    by: str = "api",
    watch: Watch = ignore,
) -> JobResult:
    """Write the tables of captures (paths, folders, globs, URIs) to `out`, and their reports.

    Nothing in `out` changes before all is written. DamagedInput where `strict` and a capture is damaged;
    FileNotFoundError, UnreadableCaptureError, InUse as they are raised further down.
    """
    begin = _Stages(spark, watch)
    read = Captures(
        spark, captures, split_size, ports, definitions, strict, begin, records=records, by_topic=by == "topic"
    )  # fmt: skip
    try:
        with open_publication(out) as publication:
            return _published(read, publication, records, by, definitions, watch)
    except DamagedCaptureError as error:
        raise DamagedInput(str(error)) from None
    finally:
        read.close()


def _published(
    read: Captures, publication: Publication, records: bool, by: str, definitions: Definitions | None, watch: Watch
) -> JobResult:
    staging = publication.staging
    planned = read.prove(staging, counting=True)
    context = read.context_of(planned)
    written = [file for done in planned.done.values() for file in done.written]
    shared = [done.connections for done in planned.done.values() if done.connections.num_rows]
    if shared:
        written += staging.write("connections", merged_rows(shared), len(read.places))
    files, ledger = files_table(context), ledger_table(context)
    written += [*staging.write("files", files), *staging.write("ledger", ledger)]
    connections = read_connections(staging.out, [w.staged for w in written if w.table == "connections"])
    report: Report = report_of(
        planned.counts(), connections, files, ledger, by=by,
        not_captured=context.not_captured, definitions=definitions,
        topic_names=planned.plan.topic_names,
    )  # fmt: skip
    written += write_report(staging, report)
    names = [name for name in TABLES if name != "records" or records]
    watch("publish", 0, len(written))
    published = publication.publish(written, names, watch=lambda done, total: watch("publish", done, total))
    return JobResult(
        published.rows, 2 * read.bytes_read, read.bytes_shuffled(planned), published.files,
        [f"{info.path}: {info.damage}" for info in context.files if info.damage], report, read.notes_of(planned),
    )  # fmt: skip


class _Stages:
    """Tells a `Watch` how far Spark is with the tasks of a stage, where the session can say it (Connect cannot)."""

    def __init__(self, spark: SparkSession, watch: Watch) -> None:
        self._spark = spark
        self._watch = watch

    def __call__(self, stage: str, count: int) -> Callable[[], None]:
        self._watch(stage, 0, count)
        over = threading.Event()
        context = getattr(self._spark, "_sc", None)
        thread = None
        if context is not None and self._watch is not ignore:
            group = f"kafkatap {stage}"
            context.setJobGroup(group, group)
            thread = threading.Thread(target=self._follow, args=(context, group, stage, count, over), daemon=True)
            thread.start()

        def done() -> None:
            over.set()
            if thread is not None:
                thread.join()
            self._watch(stage, count, count)

        return done

    def _follow(self, context: Any, group: str, stage: str, count: int, over: threading.Event) -> None:
        tracker = context.statusTracker()
        while not over.wait(LOOK_EVERY):
            finished = 0
            for job in tracker.getJobIdsForGroup(group):
                info = tracker.getJobInfo(job)
                for number in info.stageIds if info is not None else ():
                    told = tracker.getStageInfo(number)
                    if told is not None and told.numTasks == count:
                        finished = max(finished, told.numCompletedTasks)
            self._watch(stage, min(finished, count - 1), count)
