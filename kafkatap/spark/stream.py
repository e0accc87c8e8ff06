"""Captures as they arrive: tables that grow batch by batch. In the end they hold the rows of one job over all captures.

`start_stream` follows folders with Structured Streaming. Each batch reads complete captures as a job does. Its open
flows and sums are saved as a `Checkpoint`, and the next batch resumes from there. A batch that was interrupted is read
again from the same checkpoint. Its files have their own names and replace what it published, so nothing is lost or
doubled if a process is killed.

`finish_stream` ends what is still open, adds topic names that came late, and writes the reports.

Captures are numbered and ordered as they arrive. Those of one broker arrive in order of time. If captures of the same
connection from several brokers arrive in different batches, they are read in the order of arrival.
"""

from __future__ import annotations

import json
import pickle
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from kafkatap.reports.batch import Context
from kafkatap.reports.tables import TABLES, files_table, ledger_table

from .arrivals import ArrivedCaptures
from .captures import Captures, ProvedPlan
from .job_result import JobResult, has_kafka
from .output.delta import read_table
from .output.folders import Folder
from .output.merged_connections import merged_rows
from .output.publication import Publication, open_publication
from .output.report_files import write_report
from .output.run_tables import files_rows, ledger_rows
from .output.summing import report_of, sum_rows
from .output.writing import Written
from .splits.checkpoint import Checkpoint
from .splits.task_rows import ReadOptions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

#: Smaller than a job's splits: each split is searched for the packets of its open flows.
STREAM_SPLIT_SIZE = 16 << 20
_STATES = "kafkatap"
#: The number of the batch that `finish_stream` publishes.
_FINAL = 999_999_999


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """How a stream reads captures and where it writes: `out` and `checkpoint` are folders."""

    out: str
    checkpoint: str
    split_size: int = STREAM_SPLIT_SIZE
    reading: ReadOptions = field(default_factory=ReadOptions)
    strict: bool = False


def start_stream(
    spark: SparkSession,
    captures: str | Sequence[str],
    options: StreamOptions,
    *,
    quiet: float = 60,
    files: int | None = None,
    on_batch: Callable[[JobResult], None] = lambda result: None,
    **trigger: Any,
) -> StreamingQuery:
    """Follow folders or globs. `query.stop()` ends it; the same checkpoint resumes it. Not through Spark Connect.

    `quiet`: s without a change after which a capture is complete, unless a newer one of its series exists. `files`: at
    most this many in a batch. `on_batch` gets the result of each batch. `trigger`: as of `DataStreamWriter.trigger`.
    """
    spark.dataSource.register(ArrivedCaptures)
    patterns = [captures] if isinstance(captures, str) else list(captures)
    reader = spark.readStream.format("pcap-arrivals").option("quiet", str(quiet)).option("paths", json.dumps(patterns))
    if files is not None:
        reader = reader.option("maxFilesPerTrigger", str(files))
    writer = reader.load().writeStream.foreachBatch(partial(_read_arrived, options, on_batch))
    writer = writer.option("checkpointLocation", options.checkpoint).queryName("kafkatap")
    return (writer.trigger(**trigger) if trigger else writer).start()


def run_stream(
    spark: SparkSession,
    captures: Sequence[str],
    options: StreamOptions,
    *,
    quiet: float = 60,
    forever: bool = False,
    finish: bool = False,
    by: str = "api",
) -> JobResult:
    """Read the captures that have arrived since the last run. `forever`: wait for more. `finish`: end what is open.

    The result is that of all batches. It has a report only with `finish`.
    """
    results: list[JobResult] = []
    trigger = {} if forever else {"availableNow": True}
    query = start_stream(spark, captures, options, quiet=quiet, on_batch=results.append, **trigger)
    try:
        query.awaitTermination()
    finally:
        query.stop()
    if finish:
        results.append(finish_stream(spark, options, by))
    rows: dict[str, int] = {}
    for result in results:
        for name, count in result.tables.items():
            rows[name] = count if name in ("files", "ledger") else rows.get(name, 0) + count
    return JobResult(
        rows, sum(r.bytes_read for r in results), sum(r.bytes_shuffled for r in results),
        sum(r.files_written for r in results), results[-1].damage if results else [],
        results[-1].report if results else None, list(dict.fromkeys(note for r in results for note in r.notes)),
    )  # fmt: skip


def _read_arrived(options: StreamOptions, on_batch: Callable[[JobResult], None], frame: DataFrame, number: int) -> None:
    paths = [row["path"] for row in frame.collect()]
    on_batch(advance(frame.sparkSession, paths, number, options))


# ---------------------------------------------------------------- batches


def advance(spark: SparkSession, paths: Sequence[str], number: int, options: StreamOptions) -> JobResult:
    """Read one batch of captures from the checkpoint of the batch before it, and publish its rows."""
    before = _checkpoint_before(options, number)
    new = [path for path in paths if path not in before.done]
    read = _captures(spark, new, before, options, keep_open=True)
    with open_publication(options.out) as publication:
        proved, written, after, context = _read_batch(read, publication, before)
        _save(options, number, replace(after, done=(*before.done, *new)))
        return _publish(read, proved, publication, written, context, (_stream_id(options), number))


def finish_stream(spark: SparkSession, options: StreamOptions, by: str = "api") -> JobResult:
    """End what is open, and write the reports. Stop the stream first.

    It may be started and finished again later. Connections that were open become two connections then.
    """
    before = _checkpoint_before(options, _FINAL)
    read = _captures(spark, [], before, options, keep_open=False)
    with open_publication(options.out) as publication:
        proved, written, after, context = _read_batch(read, publication, before)
        transaction = f"{_stream_id(options)}-finish", before.splits
        result = _publish(read, proved, publication, written, context, transaction, after.topic_names)
        connections = read_table(options.out, "connections")
        captures = pa.array([info.capture for info in context.files], pa.int64())
        connections = connections.filter(pc.is_in(connections["capture"], captures))
        counts = after.counts if after.counts is not None else sum_rows([])
        report = report_of(
            counts, connections, files_table(context), ledger_table(context), by=by,
            not_captured=after.not_captured, definitions=options.reading.definitions, topic_names=after.topic_names,
            selected=options.reading.selection.text,
        )  # fmt: skip
        write_report(options.out, report)
        return replace(result, report=report)


def _captures(
    spark: SparkSession, paths: Sequence[str], before: Checkpoint, options: StreamOptions, keep_open: bool
) -> Captures:
    return Captures(
        spark, tuple(paths), options.split_size, options.reading, options.strict, checkpoint=before,
        keep_open=keep_open,
    )  # fmt: skip


def _read_batch(
    read: Captures, publication: Publication, before: Checkpoint
) -> tuple[ProvedPlan, list[Written], Checkpoint, Context]:
    """Write a batch. Return its proved plan, its files, the new checkpoint, and the context of all batches."""
    proved = read.prove(publication.writer, counting=True)
    results = list(proved.results.values())
    written = [file for result in results for file in result.written]
    plan = proved.plan
    flows = dict(before.flows) if read.keep_open else {}
    for key in plan.tasks[0].primed if plan.resumed is not None else []:
        flows.pop(key, None)
    for result in results:
        flows.update(result.open_flows)
    earlier = [before.connections] if before.connections is not None else []
    rows = merged_rows([*earlier, proved.shared_connections()])
    still_open = None
    if rows.num_rows:
        is_open = pc.is_in(
            rows["connection"], pa.array([f.state.history.facts.key for f in flows.values()], pa.int64())
        )
        still_open, ended = rows.filter(is_open), rows.filter(pc.invert(is_open))
        if ended.num_rows:
            written += publication.write("connections", ended)
    context = read.context_of(proved)
    new = context.files[len(before.files) :]
    written += publication.write("files", files_rows(new))
    written += publication.write("ledger", ledger_rows(proved.ledgers()))
    ledger = {section: dict(parts) for section, parts in context.ledger.items()}
    after = Checkpoint(
        plan.packets, before.splits + len(read.places) + 1, plan.listeners, dict(plan.topic_names), flows,
        list(context.files), ledger, context.first, context.last, context.not_captured, still_open,
        sum_rows([proved.counts(), *([before.counts] if before.counts is not None else [])]),
    )  # fmt: skip
    return proved, written, after, context


def _publish(
    read: Captures,
    proved: ProvedPlan,
    publication: Publication,
    written: list[Written],
    context: Context,
    transaction: tuple[str, int],
    topic_names: Mapping[bytes, bytes] | None = None,
) -> JobResult:
    names = [name for name in TABLES if name != "records" or read.options.records]
    new = [info.capture for info in read.file_infos if info.path in set(read.paths)]
    published = publication.publish(written, names, new, transaction=transaction, topic_names=topic_names)
    return JobResult(
        published.rows, 2 * read.bytes_read, 0, published.files,
        [f"{info.path}: {info.damage}" for info in context.files if info.damage], None, proved.notes,
        has_kafka(context.ledger),
    )  # fmt: skip


# ---------------------------------------------------------------- checkpoints


def _checkpoint_before(options: StreamOptions, number: int) -> Checkpoint:
    """The checkpoint that a batch starts from; an empty one for the first batch."""
    folder = Folder(options.checkpoint)
    earlier = [name for name in sorted(folder.sizes(_STATES)) if _number(name) < number]
    if not earlier:
        return Checkpoint()
    checkpoint: Checkpoint = pickle.loads(folder.read(earlier[-1]) or b"")
    return checkpoint


def _save(options: StreamOptions, number: int, checkpoint: Checkpoint) -> None:
    """Save the checkpoint of a batch, and keep the one before it: Spark may run the same batch again."""
    folder = Folder(options.checkpoint)
    folder.make()
    folder.write(f"{_STATES}/state-{number:09d}", pickle.dumps(checkpoint))
    for name in sorted(folder.sizes(_STATES)):
        if _number(name) < number - 1:
            folder.delete(name)


def _stream_id(options: StreamOptions) -> str:
    """The name of a stream in the logs of its tables."""
    folder = Folder(options.checkpoint)
    found = folder.read("kafkatap-stream")
    if found is None:
        folder.make()
        found = uuid.uuid4().hex.encode()
        folder.write("kafkatap-stream", found)
    return found.decode()


def _number(name: str) -> int:
    return int(name.rpartition("-")[2])
