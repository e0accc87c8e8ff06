"""Captures as they arrive: tables that grow batch by batch. In the end they hold the rows of one job over all captures.

`start_stream` follows folders with Structured Streaming. `arrivals` plans the batches, and `stream_batch` reads one as
a job does. Its open flows and sums, and the files with its rows, are saved (`stream_state`) before they are published.
The next batch resumes from there. So nothing is lost or doubled if a process is killed.

`finish_stream` ends what is still open, adds topic names that came late, and writes the reports.

Captures are read in order of their first packets, as far as they have arrived. If captures of the same connection from
several points arrive in different batches, they are read in the order of arrival, and what is a copy counts as one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc

from kafkatap.reports.batch import FileInfo

from ..captures.packs import SPLITS_A_CORE
from ..captures.storage import absolute, exists
from ..splits.capture_ledgers import sum_ledgers
from ..splits.run_options import RunOptions
from .arrival_log import Arrival, ArrivalLog
from .arrivals import BATCH_SIZE, ArrivalPlanner
from .cluster.interrupts import STOPPED
from .cluster.job_stages import figures_of
from .cluster.session import cores_of
from .cluster.shared_folders import shared_folders
from .cluster.store_access import adopt, with_settings
from .job_result import JobResult, has_kafka
from .lake_options import check_options, remember
from .output.delta import read_table
from .output.delta_schema import tables_of_run
from .output.folders import Folder
from .output.publication import open_publication
from .output.report_files import write_report
from .output.run_tables import file_infos
from .path_pattern import PathPattern
from .stream_batch import BatchOptions, read_batch, report_on
from .stream_state import Commit, StateFolder, StreamState, batch_number, finished_number

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


#: Smaller than a job's splits: each split is searched for the packets of its open flows.
STREAM_SPLIT_SIZE = 16 << 20
#: How often `run_stream` looks for captures, s.
POLL = 2
#: Whether this Spark has streams of data sources in Python with limits, which a query needs.
HAS_QUERIES = find_spec("pyspark.sql.streaming.datasource") is not None
OnBatch = Callable[[JobResult], None]


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """How a stream reads captures and where it writes: `out` and `checkpoint` are folders. `replace_rows`: `out` may
    have rows that were made with other options. `path_pattern`: where clusters, sites and hosts are in paths; a wrong
    one is a ValueError (`PathPattern`), and of captures that it does not match, these are null."""

    out: str
    checkpoint: str
    split_size: int = STREAM_SPLIT_SIZE
    reading: RunOptions = field(default_factory=RunOptions)
    strict: bool = False
    replace_rows: bool = False
    path_pattern: str | None = None

    @property
    def pattern(self) -> PathPattern | None:
        return None if self.path_pattern is None else PathPattern(self.path_pattern)

    @property
    def states(self) -> StateFolder:
        """The states in the checkpoint."""
        return StateFolder(absolute(self.checkpoint), self.reading.is_decrypting)

    def __post_init__(self) -> None:
        self.pattern  # noqa: B018  # raises


def start_stream(
    spark: SparkSession,
    captures: str | Sequence[str],
    options: StreamOptions,
    *,
    on_batch: OnBatch = lambda result: None,
    quiet: float = 60,
    lateness: float = 0,
    files: int | None = None,
    batch_size: int | None = None,
    **trigger: Any,
) -> StreamingQuery:
    """Follow folders or globs. `query.stop()` ends it; the same checkpoint resumes it. Not through Spark Connect.

    `on_batch` gets the result of each batch. `quiet`: s without a change after which a capture is complete, unless a
    newer one of its series exists. `lateness`: s for which complete captures are held back, so that those that come
    late are read in order. `files`, `batch_size`: at most so many captures and bytes in a batch; one capture may be
    larger. `batch_size` None: BATCH_SIZE, and more if the captures have fewer than SPLITS_A_CORE tasks for each core.
    `trigger`: as of `DataStreamWriter.trigger`. OtherOptions if `out` has rows of other options.
    """
    if not HAS_QUERIES:
        raise ImportError("queries of Structured Streaming need Spark 4.2 or later; run_stream and the command do not")
    from .arrival_source import ArrivedCaptures

    adopt(spark)
    _prepare(options)
    spark.dataSource.register(with_settings(ArrivedCaptures))
    patterns = [captures] if isinstance(captures, str) else captures
    source = {
        "paths": json.dumps([absolute(pattern) for pattern in patterns]), "checkpoint": absolute(options.checkpoint),
        "quiet": str(quiet), "lateness": str(lateness), "splitSize": str(options.split_size),
    }  # fmt: skip
    if batch_size is not None:
        source["batchSize"] = str(batch_size)
    else:
        source["tasks"] = str(SPLITS_A_CORE * (cores_of(spark) or 1))
    if files is not None:
        source["files"] = str(files)
    batches = spark.readStream.format(ArrivedCaptures.name()).options(**source).load()
    writer = batches.writeStream.foreachBatch(partial(_read_planned, options, on_batch)).queryName("kafkatap")
    writer = writer.option("checkpointLocation", absolute(options.checkpoint))
    return (writer.trigger(**trigger) if trigger else writer).start()


def run_stream(
    spark: SparkSession,
    captures: Sequence[str],
    options: StreamOptions,
    *,
    forever: bool = False,
    finish: bool = False,
    by: str = "api",
    on_batch: OnBatch = lambda result: None,
    **arriving: Any,
) -> JobResult:
    """Read the captures that have arrived since the last run. `forever`: wait for more. `finish`: no more will come, so
    none is waited for; end what is open, and report.

    `on_batch` gets the result of each batch, and `arriving` is as of `start_stream`. Returns the sum of all batches,
    without their damage and notes.
    """
    adopt(spark)
    total = JobResult({}, 0, 0, 0, has_kafka=False)

    def add(result: JobResult) -> None:
        nonlocal total
        rows = {name: total.tables.get(name, 0) + count for name, count in result.tables.items()}
        total = replace(
            total, tables={**total.tables, **rows}, bytes_read=total.bytes_read + result.bytes_read,
            files_written=total.files_written + result.files_written, report=result.report,
            has_kafka=total.has_kafka or result.has_kafka, is_damaged=total.is_damaged or bool(result.damage),
        )  # fmt: skip
        on_batch(result)

    if finish:
        arriving |= {"quiet": 0, "lateness": 0}
    if not HAS_QUERIES:
        _read_batches(spark, captures, options, forever, add, **arriving)
        if finish:
            add(finish_stream(spark, options, by))
        return total
    trigger = {"processingTime": f"{POLL} seconds"} if forever else {"availableNow": True}
    query = start_stream(spark, captures, options, on_batch=add, **arriving, **trigger)
    try:
        query.awaitTermination()
    finally:
        query.stop()
    figures = figures_of(spark.sparkContext, str(query.runId))  # Spark runs the jobs of a query in this group
    total = replace(total, bytes_shuffled=figures.bytes_shuffled, bytes_to_driver=figures.bytes_to_driver)
    if finish:
        add(finish_stream(spark, options, by))
    return total


def _prepare(options: StreamOptions) -> None:
    """Check the lake's options, and make the folder of the checkpoint before Spark does."""
    check_options(absolute(options.out), options.reading, [], options.replace_rows)
    Folder(absolute(options.checkpoint), options.reading.is_decrypting).make()


def _read_batches(
    spark: SparkSession,
    captures: Sequence[str],
    options: StreamOptions,
    forever: bool,
    on_batch: OnBatch,
    *,
    batch_size: int | None = None,
    **arriving: Any,
) -> None:
    """Do as a query of `start_stream`, without one. `forever`: until `interruptible` is stopped. `arriving`: as of
    `ArrivalPlanner`."""
    _prepare(options)
    planner = ArrivalPlanner(
        tuple(map(absolute, captures)), absolute(options.checkpoint), size=batch_size or BATCH_SIZE,
        tasks=0 if batch_size else SPLITS_A_CORE * (cores_of(spark) or 1), split_size=options.split_size, **arriving,
    )  # fmt: skip
    if not forever:
        planner.hold()
    batch, last = options.states.batches, options.states.last()
    if last is not None and last.number == batch_number(batch - 1) and last.open_tables(options.out):
        batch -= 1
    while not STOPPED.is_set():
        if planner.has_batch(batch):
            on_batch(advance(spark, planner.log.plan(batch) or (), batch, options))
            batch += 1
            planner.log.fold(batch)
        elif not forever:
            return
        else:
            STOPPED.wait(POLL)
    raise KeyboardInterrupt


def _read_planned(options: StreamOptions, on_batch: OnBatch, frame: DataFrame, number: int) -> None:
    for row in frame.collect():
        captures = ArrivalLog(absolute(options.checkpoint)).plan(row["batch"])
        assert captures is not None, f"there is no plan of batch {row['batch']}"
        on_batch(advance(frame.sparkSession, captures, row["batch"], options))


# ---------------------------------------------------------------- batches


def advance(spark: SparkSession | None, captures: Sequence[Arrival], batch: int, options: StreamOptions) -> JobResult:
    """Read the captures of a batch, counted from 0, and publish its rows. `spark` None: in this process."""
    states = options.states
    number = batch_number(batch)
    if states.latest > number + 1:
        raise ValueError(f"{options.checkpoint}: later batches were read without this query; use a new checkpoint")
    state = states.read(number)
    if state is not None and state.can_publish(options.out):
        return _publish(state, state.open_tables(options.out), options)
    state = _read(spark, captures, states.last(number) or StreamState(), number, options)
    states.save(state)
    return _publish(state, state.commit.tables, options)


def finish_stream(spark: SparkSession | None, options: StreamOptions, by: str = "api") -> JobResult:
    """End what is open, and write the reports. Stop the stream first.

    It may be started and finished again later. Connections that were open become two connections then.
    """
    adopt(spark)
    states = options.states
    number = finished_number(states.latest)
    state = states.read(number)
    if state is None or not state.can_publish(options.out):
        before = states.last(number) or StreamState()
        _publish(before, before.open_tables(options.out), options)
        state = _read(spark, [], before, number, options, keep_open=False)
        states.save(state)
    result = _publish(state, state.open_tables(options.out), options)
    reading = replace(options.reading, by_topic=True)
    report = report_on(state.checkpoint, _files(options), reading, by)
    write_report(options.out, report, options.reading.is_decrypting)
    return replace(result, report=report)


def _read(
    spark: SparkSession | None,
    captures: Sequence[Arrival],
    last: StreamState,
    number: int,
    options: StreamOptions,
    keep_open: bool = True,
) -> StreamState:
    """The state after a batch, whose rows are written but not published."""
    reading = BatchOptions(options.split_size, options.reading, options.strict, options.pattern)
    private = options.reading.is_decrypting
    with (
        open_publication(options.out, is_private=private) as publication,
        shared_folders([], options.out) as folders,
    ):
        batch = read_batch(spark, captures, last.checkpoint, reading, publication, keep_open, folders)
    names = tables_of_run(options.reading.records)
    damage = tuple(f"{info.path}: {info.damage}" for info in batch.files if info.damage)
    commit = Commit(
        batch.written, names, tuple(info.capture for info in batch.files), _gone(batch.files), damage,
        tuple(batch.notes), batch.bytes_read, has_kafka(sum_ledgers(batch.ledgers.values())),
    )  # fmt: skip
    return StreamState(number, last.stream, batch.checkpoint, commit)


def _gone(files: Sequence[FileInfo]) -> tuple[int, ...]:
    """The captures that are not there any more: they may have another name now."""
    return tuple(info.capture for info in files if info.damage and not info.packets and not exists(info.path))


def _publish(state: StreamState, tables: Sequence[str], options: StreamOptions) -> JobResult:
    """Publish the rows of a batch. `tables`: those that do not have them yet."""
    commit, after = state.commit, state.checkpoint
    files = 0
    if tables:
        states, log = options.states, ArrivalLog(absolute(options.checkpoint))
        log.write_gone(state.number // 2, commit.gone)
        log.load()
        remember(options.out, options.reading)
        with open_publication(options.out, is_private=options.reading.is_decrypting) as publication:
            published = publication.publish(
                [file for file in commit.written if file.table in tables], tables, commit.captures,
                transaction=(state.stream, state.number),
                unchanged=states.versions(), search=log.was_gone(commit.captures),
                topic_names={key: after.topic_names[key] for key in after.unnamed if key in after.topic_names},
            )  # fmt: skip
        states.save_versions(published.versions, tables)
        files = published.files
    rows = {table: sum(w.rows for w in commit.written if w.table == table) for table in commit.tables}
    return JobResult(rows, commit.bytes_read, 0, files, list(commit.damage), None, list(commit.notes), commit.has_kafka)


# ---------------------------------------------------------------- report


def _files(options: StreamOptions) -> list[FileInfo]:
    """The captures that the stream read, of the table `files`."""
    log = ArrivalLog(absolute(options.checkpoint))
    log.load()
    files = read_table(options.out, "files")
    return file_infos(files.filter(pc.is_in(files["capture"], pc.cast(log.captures(), "int64"))))
