"""`run_job`, the work of `kafkatap spark`: it writes captures as tables, and their reports.

Executors write the rows of tables where they decode them. They return file names, proofs, counts, and the rows of
connections that splits share.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from kafkatap.reports.tables import TABLES

from .captures import Captures, DamagedCaptureError
from .cluster.shared_folders import shared_folders
from .job_result import DamagedInput, JobResult, Watch, has_kafka, ignore
from .output.publication import DELTA, Publication, open_publication
from .output.report_files import write_report
from .output.run_tables import files_rows, ledger_rows
from .output.summing import report_of
from .splits.task_rows import ReadOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Seconds between two looks at the progress of a stage.
LOOK_EVERY = 0.5


def run_job(
    spark: SparkSession,
    captures: str | Sequence[str],
    out: str,
    *,
    split_size: int | None = None,
    options: ReadOptions | None = None,
    strict: bool = False,
    by: str = "api",
    format: str = DELTA,
    watch: Watch = ignore,
) -> JobResult:
    """Write the tables and reports of captures (paths, folders, globs, URIs) to `out`.

    No table changes before everything is written. DamagedInput if `strict` and a capture is damaged;
    FileNotFoundError, UnreadableCaptureError and FolderInUse as raised below.
    """
    begin = _Stages(spark, watch)
    try:
        read = Captures(spark, captures, split_size, options or ReadOptions(), strict, begin)
        with open_publication(out, format) as publication, shared_folders(read.paths, out) as read.folders:
            return _published(read, publication, by, watch)
    except DamagedCaptureError as error:
        raise DamagedInput(str(error)) from None


def _published(read: Captures, publication: Publication, by: str, watch: Watch) -> JobResult:
    options = read.options
    proved = read.prove(publication.writer, counting=True, by_topic=by == "topic")
    context = read.context_of(proved)
    written = [file for result in proved.results.values() for file in result.written]
    shared = proved.shared_connections()
    if shared.num_rows:
        written += publication.write("connections", shared)
    files, ledger = files_rows(context.files), ledger_rows(proved.ledgers())
    written += [*publication.write("files", files), *publication.write("ledger", ledger)]
    report = report_of(
        proved.counts(), proved.connections(), files, ledger, by=by, not_captured=context.not_captured,
        definitions=options.definitions, topic_names=proved.plan.topic_names, selected=options.selection.text,
    )  # fmt: skip
    names = [name for name in TABLES if name != "records" or options.records]
    published = publication.publish(
        written, names, {info.capture for info in context.files},
        watch=lambda done, total: watch("publish", done, total),
    )  # fmt: skip
    write_report(publication.out, report)
    return JobResult(
        published.rows, 2 * read.bytes_read, 0, published.files,
        [f"{info.path}: {info.damage}" for info in context.files if info.damage], report, proved.notes,
        has_kafka(context.ledger),
    )  # fmt: skip


class _Stages:
    """Reports the finished tasks of a stage to a `Watch`. A Connect session does not show them."""

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
                    status = tracker.getStageInfo(number)
                    if status is not None and status.numTasks == count:
                        finished = max(finished, status.numCompletedTasks)
            self._watch(stage, min(finished, count - 1), count)
