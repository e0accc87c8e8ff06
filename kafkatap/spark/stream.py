"""Captures as they arrive: tables that grow batch by batch, and in the end hold the rows of a job over all of them.

`start_stream` follows a folder with Structured Streaming. Each batch of complete files is read as a job reads captures;
what is open at its end (`carry.Carry`: connections, sums) lies in the checkpoint as the state of that batch, and the
next one goes on from it. A batch that was cut off is read again from the state before it, and its files have names of
their own, so they replace what it had published: nothing is lost or doubled, whenever who is killed.

`finish_stream` ends what is still open, names topics whose names came late, and writes the reports.

Captures are numbered, and put in order, as they arrive. Those of one broker arrive in order of time; where several
brokers' captures of the same connection arrive in different batches, it is read in the order of arrival.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSource, InputPartition

from kafkatap.reports.batch import Context, uuid_text
from kafkatap.reports.tables import TABLES, files_table, ledger_table

from .captures import Captures, Proved
from .job_result import JobResult
from .output.connection_parts import merged_rows, read_connections
from .output.folders import Folder
from .output.publish import Publication, Staging, Written, open_publication
from .output.report_files import write_report
from .output.summing import report_of, sum_rows
from .source import Options, PcapStream
from .splits.carry import Carry

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.types import StructType

    from kafkatap.dissector.layouts.overlay import Definitions

#: Smaller than a job's: what is open at the end of a split is looked for in all of it.
STREAM_SPLIT_SIZE = 16 << 20
_STATES = "kafkatap"
#: The batch of `finish_stream`.
_FINAL = 999_999_999


@dataclass(frozen=True, slots=True)
class Following:
    """How a stream reads captures and where it writes; the same for all its batches."""

    out: str
    checkpoint: str
    split_size: int = STREAM_SPLIT_SIZE
    records: bool = False
    ports: tuple[int, ...] = ()
    definitions: Definitions | None = None
    strict: bool = False


def start_stream(
    spark: SparkSession,
    captures: str | Sequence[str],
    following: Following,
    *,
    quiet: float = 60,
    files: int | None = None,
    told: Callable[[JobResult], None] = lambda result: None,
    **trigger: Any,
) -> StreamingQuery:
    """Follow folders or globs; end with `query.stop()`, go on with the same checkpoint. Not through Spark Connect.

    `quiet`: s after which a file that nobody writes to counts as complete, if no newer one tells; `files`: most of them
    in a batch; `told` gets what each batch did; `trigger`: as of `DataStreamWriter.trigger`, e.g. availableNow=True.
    """
    spark.dataSource.register(ArrivedCaptures)
    patterns = [captures] if isinstance(captures, str) else list(captures)
    reader = spark.readStream.format("pcap-arrivals").option("quiet", str(quiet)).option("paths", json.dumps(patterns))
    if files is not None:
        reader = reader.option("maxFilesPerTrigger", str(files))
    writer = reader.load().writeStream.foreachBatch(partial(_take_batch, following, told))
    writer = writer.option("checkpointLocation", following.checkpoint).queryName("kafkatap")
    return (writer.trigger(**trigger) if trigger else writer).start()


def run_stream(
    spark: SparkSession,
    captures: Sequence[str],
    following: Following,
    *,
    quiet: float = 60,
    forever: bool = False,
    finish: bool = False,
    by: str = "api",
) -> JobResult:
    """Read the captures that have come since the checkpoint was last used, or, with `forever`, all that ever come; with
    `finish` end what is open then. What this did, the report with `finish` alone."""
    results: list[JobResult] = []
    query = start_stream(
        spark, captures, following, quiet=quiet, told=results.append, **({} if forever else {"availableNow": True})
    )  # fmt: skip
    try:
        query.awaitTermination()
    finally:
        query.stop()
    if finish:
        results.append(finish_stream(spark, following, by))
    rows: dict[str, int] = {}
    for result in results:
        for name, count in result.tables.items():
            rows[name] = count if name in ("files", "ledger") else rows.get(name, 0) + count
    return JobResult(
        rows, sum(r.bytes_read for r in results), sum(r.bytes_shuffled for r in results),
        sum(r.files_written for r in results), results[-1].damage if results else [],
        results[-1].report if results else None, list(dict.fromkeys(note for r in results for note in r.notes)),
    )  # fmt: skip


def _take_batch(following: Following, told: Callable[[JobResult], None], frame: DataFrame, number: int) -> None:
    paths = [row["path"] for row in frame.collect()]
    told(advance(frame.sparkSession, paths, number, following))


class ArrivedCaptures(DataSource):
    """The data source "pcap-arrivals": a row for each capture that is complete."""

    @classmethod
    def name(cls) -> str:
        return "pcap-arrivals"

    def schema(self) -> str:
        return "path string, size long"

    def streamReader(self, schema: StructType) -> _Arrivals:  # noqa: N802
        return _Arrivals(Options.of(self.options))


class _Arrived(InputPartition):
    def __init__(self, files: list[tuple[str, int]]) -> None:
        self.files = files


class _Arrivals(PcapStream):
    """The same offsets as of packets; of a capture that was read, what it grows by is left out."""

    def __init__(self, options: Options) -> None:
        self._options = options

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return [_Arrived([(path, size) for path, size in end.items() if path not in start])]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, _Arrived)
        yield from partition.files


# ---------------------------------------------------------------- batches


def advance(spark: SparkSession, paths: Sequence[str], number: int, following: Following) -> JobResult:
    """Read one batch of captures, from the state of the batch before it, and publish its rows."""
    before = _state_before(following, number)
    new = [path for path in paths if path not in before.done]
    with (
        _Opened(spark, new, before, following, more=True) as read,
        open_publication(following.out, prefix=f"batch-{number:09d}") as publication,
    ):
        proved, written, after, context = _read_batch(read, publication.staging, before)
        _keep(following, number, replace(after, done=(*before.done, *new)))
        return _publish(read, proved, publication, written, context, following)


def finish_stream(spark: SparkSession, following: Following, by: str = "api") -> JobResult:
    """All captures have come: end what is open, and write the reports. The stream has to be stopped. It may go on
    later, and be finished again; connections that were open are cut in two then."""
    before = _state_before(following, _FINAL)
    with (
        _Opened(spark, [], before, following, more=False) as read,
        open_publication(following.out, prefix=f"batch-{_FINAL}") as publication,
    ):
        proved, written, after, context = _read_batch(read, publication.staging, before)
        written += _named(publication.staging, after.topic_names)
        connections = _all_connections(publication.staging, written)
        report = report_of(
            spark.createDataFrame(after.counts), connections, files_table(context), ledger_table(context), by=by,
            not_captured=after.not_captured, definitions=following.definitions, topic_names=after.topic_names,
        )  # fmt: skip
        written += write_report(publication.staging, report)
        result = _publish(read, proved, publication, written, context, following)
        return replace(result, report=report)


class _Opened:
    """Captures that give back what executors keep for them."""

    def __init__(
        self, spark: SparkSession, paths: Sequence[str], before: Carry, following: Following, more: bool
    ) -> None:
        self._read = Captures(
            spark, tuple(paths), following.split_size, following.ports, following.definitions, following.strict,
            records=following.records, carry=before, following=more,
        )  # fmt: skip

    def __enter__(self) -> Captures:
        return self._read

    def __exit__(self, *_: object) -> None:
        self._read.close()


def _read_batch(read: Captures, staging: Staging, before: Carry) -> tuple[Proved, list[Written], Carry, Context]:
    """What a batch gives, written to `staging`; what it leaves; and what all batches together are."""
    proved = read.prove(staging, counting=True)
    done = list(proved.done.values())
    written = [file for d in done for file in d.written]
    plan = proved.plan
    flows = dict(before.flows) if read.following else {}
    for key in plan.tasks[0].primed if plan.carry is not None else []:
        flows.pop(key, None)
    for d in done:
        flows.update(d.carried)
    open_now = pa.array([flow.now[1].connection for flow in flows.values()], pa.int64())
    parts = [t for t in (before.connections, *(d.connections for d in done)) if t is not None and t.num_rows]
    left = None
    if parts:
        whole = pa.concat_tables(parts)
        stays = pc.is_in(whole["connection"], open_now)
        left = whole.filter(stays)
        over = whole.filter(pc.invert(stays))
        if over.num_rows:
            written += staging.write("connections", merged_rows([over]), len(read.places) + 1)
    context = read.context_of(proved, before)
    written += [*staging.write("files", files_table(context)), *staging.write("ledger", ledger_table(context))]
    ledger = {section: dict(parts) for section, parts in context.ledger.items()}
    after = Carry(
        plan.packets, before.splits + len(read.places) + 1, plan.listeners, dict(plan.topic_names), flows,
        list(context.files), ledger, context.first, context.last, context.not_captured, left,
        _added(read.spark, before, proved),
    )  # fmt: skip
    return proved, written, after, context


def _added(spark: SparkSession, before: Carry, proved: Proved) -> pa.Table:
    rows = proved.counts()
    if before.counts is not None and before.counts.num_rows:
        rows = rows.union(spark.createDataFrame(before.counts).select(*rows.columns))
    return sum_rows(rows).toArrow()


def _publish(
    read: Captures,
    proved: Proved,
    publication: Publication,
    written: list[Written],
    context: Context,
    following: Following,
) -> JobResult:
    names = [name for name in TABLES if name != "records" or following.records]
    published = publication.publish(written, names, adding=True)
    return JobResult(
        published.rows, 2 * read.bytes_read, read.bytes_shuffled(proved), published.files,
        [f"{info.path}: {info.damage}" for info in context.files if info.damage], None, read.notes_of(proved),
    )  # fmt: skip


# ---------------------------------------------------------------- states


def _state_before(following: Following, number: int) -> Carry:
    """The state that a batch begins with; an empty one for the first."""
    folder = Folder(following.checkpoint)
    earlier = [name for name in sorted(folder.sizes(_STATES)) if _number(name) < number]
    if not earlier:
        return Carry()
    carry: Carry = pickle.loads(folder.read(earlier[-1]) or b"")
    return carry


def _keep(following: Following, number: int, carry: Carry) -> None:
    """Keep the state that a batch leaves, and the one before it: Spark may ask for the same batch again."""
    folder = Folder(following.checkpoint)
    folder.make()
    folder.write(f"{_STATES}/state-{number:09d}", pickle.dumps(carry))
    for name in sorted(folder.sizes(_STATES)):
        if _number(name) < number - 1:
            folder.delete(name)


def _number(name: str) -> int:
    return int(name.rpartition("-")[2])


# ---------------------------------------------------------------- the end


def _all_connections(staging: Staging, written: Sequence[Written]) -> pa.Table:
    """Those that were published, and those that will be."""
    mine = {w.name for w in written}
    names = [n for n in Folder(staging.out).sizes("connections") if n.endswith(".parquet") and n not in mine]
    return read_connections(staging.out, names + [w.staged for w in written if w.table == "connections"])


def _named(staging: Staging, names: Mapping[bytes, bytes]) -> list[Written]:
    """Files with rows whose topic had no name when they were written, and has one now: written once more."""
    import io

    import pyarrow.parquet as pq

    folder = Folder(staging.out)
    known = {uuid_text(key) or "": name.decode("utf-8", "replace") for key, name in names.items()}
    ids = pa.array(list(known), pa.string())
    again = []
    for table in ("exchanges", "results", "records"):
        for name in folder.sizes(table):
            if not name.endswith(".parquet"):
                continue
            rows = pq.read_table(io.BytesIO(folder.read(name) or b""))
            better = _with_names(table, rows, known, ids)
            if better is not None:
                again.append(staging.rewrite(name, better))
    return again


def _with_names(table: str, rows: pa.Table, known: Mapping[str, str], ids: pa.Array) -> pa.Table | None:
    if table == "exchanges":
        lists = rows["topics"].combine_chunks()
        told = lists.flatten()
        if not pc.any(pc.is_in(told, ids)).as_py():
            return None
        texts = pa.array([known.get(text, text) for text in told.to_pylist()], pa.string())
        made = pa.ListArray.from_arrays(lists.offsets, texts, type=lists.type)
        return rows.set_column(rows.schema.get_field_index("topics"), rows.schema.field("topics"), made)
    nameless = pc.and_(pc.is_null(rows["topic"]), pc.is_in(rows["topic_id"], ids))
    if not pc.any(nameless).as_py():
        return None
    texts = pa.array([known.get(text or "") for text in rows["topic_id"].to_pylist()], pa.string())
    made = pc.if_else(nameless, texts, rows["topic"])
    return rows.set_column(rows.schema.get_field_index("topic"), rows.schema.field("topic"), made)
