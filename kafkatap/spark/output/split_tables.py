"""A decoded split as rows of tables: given to Spark, or written where they were decoded.

Rows are gathered and made into Arrow tables some ten thousand at a time. What names need (topics' ids) is known before,
from the survey, so no row has to be looked at twice. Records are kept in a file of the executor until it is known which
exchanges are this split's.
"""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from kafkatap.dissector.dtypes import EXCHANGE, RESULT
from kafkatap.dissector.inspection import Inspector
from kafkatap.dissector.records.record_inspector import RecordCollector
from kafkatap.reports import tables
from kafkatap.reports.batch import Batch, as_results
from kafkatap.reports.counting.count_rows import rows_of_counts
from kafkatap.reports.counting.counts import ReportCounts

from ...analysis import error_counts
from ...running import joined
from ..splits.decode import SplitRun
from ..splits.split_engine import NOTHING
from .partitions import broker_names, exchange_times, to_microseconds

if TYPE_CHECKING:
    import pyarrow as pa

    from ...captures.splits import SplitReader
    from ..splits.carry import CarriedFlow
    from ..tasks import Place, Reading
    from .publish import Staging, Written

Array = np.ndarray[Any, Any]
#: Exchanges that are made into tables at a time.
GATHER = 50_000


class TableRows:
    """Makes the rows of one split's tables."""

    def __init__(
        self, reading: Reading, table: str | None, staging: Staging | None, place: Place | None, received: int
    ) -> None:
        from kafkatap.dissector.programs.loading import load_programs

        self.reading = reading
        self.table = table
        self.staging = staging
        self.place = place
        self.received = received
        self._collector: RecordCollector | None = None
        if table == "records" or (staging is not None and reading.records):
            self._collector = RecordCollector(load_programs("records", reading.definitions))
        self.inspectors: list[Inspector] = [] if self._collector is None else [self._collector]

    def of_table(self, run: SplitRun, reader: SplitReader | None) -> Iterator[pa.RecordBatch]:
        """The rows of the one table that is wanted, times in microseconds."""
        for name, table in self.made(run, reader, {self.table or ""}):
            if name == self.table:
                yield from to_microseconds(table).to_batches()

    def made(
        self, run: SplitRun | _Counted, reader: SplitReader | None, wanted: set[str]
    ) -> Iterator[tuple[str, pa.Table]]:
        """(name, some rows), of exchanges before their results; then connections, then records."""
        with tempfile.TemporaryFile(prefix="kafkatap-") as file:
            records = _Kept(file, self._collector, run) if self._collector is not None else None
            exchanges: list[Batch] = []
            for batch in run.batches(reader):
                exchanges.append(batch)
                if records is not None:
                    records.take()
                if sum(len(b.exchanges) for b in exchanges) >= GATHER:
                    yield from self._tables(run, exchanges, wanted, records)
                    exchanges = []
            yield from self._tables(run, exchanges, wanted, records)
            context = run.context()
            if "connections" in wanted:
                yield "connections", tables.connections_table(context.connections, context)
            if records is not None:
                records.take()
                for table in records.tables():
                    yield "records", table

    def _tables(
        self, run: SplitRun | _Counted, batches: list[Batch], wanted: set[str], records: _Kept | None
    ) -> Iterator[tuple[str, pa.Table]]:
        if not batches:
            return
        exchanges = joined([b.exchanges for b in batches], EXCHANGE)
        if records is not None:
            records.emitted(exchanges)
        if not wanted & {"exchanges", "results"}:
            return
        results = joined([b.results for b in batches], RESULT)
        context = run.context()
        if "exchanges" in wanted:
            asked = joined([as_results(b.topics) for b in batches if b.topics is not None], RESULT)
            about = joined([asked, results], RESULT)
            yield "exchanges", tables.exchanges_table(exchanges, error_counts(results), about, context)
        if "results" in wanted:
            yield "results", tables.results_table(results, context)


class _Kept:
    """Records in a file, until it is known whose they are."""

    def __init__(self, file: Any, collector: RecordCollector, run: SplitRun | _Counted) -> None:
        import pyarrow as pa

        from kafkatap.reports.record_table import records_table

        self._file = file
        self._collector = collector
        self._run = run
        self._make = records_table
        self._ipc = pa.ipc
        self._writer: Any = None
        self._mine: list[Array] = []
        self._names: dict[bytes, str] = {}

    def take(self) -> None:
        """Write what the collector has gathered."""
        if not self._names:
            self._names = {key: name.decode("utf-8", "replace") for key, name in self._run.topic_names.items()}
        for chunk in self._collector.chunks():
            table = self._make(chunk, self._names, self._run.engine.strings)
            if self._writer is None:
                self._writer = self._ipc.new_stream(self._file, table.schema)
            self._writer.write_table(table)

    def emitted(self, exchanges: Array) -> None:
        self._mine.append(exchanges["exchange"].copy())

    def tables(self) -> Iterator[pa.Table]:
        """What belongs to exchanges of this split."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if self._writer is None:
            return
        self._writer.close()
        self._file.seek(0)
        mine = pa.array(np.concatenate(self._mine) if self._mine else np.zeros(0, np.int64))
        for batch in self._ipc.open_stream(self._file):
            table = pa.Table.from_batches([batch])
            kept = table.filter(pc.is_in(table["exchange"], mine))
            if kept.num_rows:
                yield kept


def checked(rows: TableRows, run: SplitRun, reader: SplitReader | None) -> Iterator[pa.RecordBatch]:
    """A row OUTCOME alone: what proves the plan."""
    for _ in run.batches(reader):
        pass
    yield _told(rows, run, [])


def counted(rows: TableRows, run: SplitRun, reader: SplitReader | None) -> Iterator[pa.RecordBatch]:
    """A row OUTCOME with the split's connections, and a row COUNTS: what reports are made of."""
    counts = ReportCounts(names=run.engine, by_topic=rows.reading.by_topic)
    for batch in run.batches(reader):
        counts.add(batch)
    context = run.context()
    connections = tables.connections_table(context.connections, context)
    yield _told(rows, run, [], connections, counts)


def written(rows: TableRows, run: SplitRun, reader: SplitReader | None) -> Iterator[pa.RecordBatch]:
    """Write the split's rows; give a row OUTCOME, and a row COUNTS."""
    staging = rows.staging
    assert staging is not None
    split = run.task.split
    counts = ReportCounts(names=run.engine, by_topic=rows.reading.by_topic)
    wanted = {"exchanges", "results", "connections"}
    files: list[Written] = []
    where = _Where()
    shared = None
    for part, (name, table) in enumerate(rows.made(_Counted(run, counts), reader, wanted)):
        if name == "connections":
            shared, table = run.parted(table)
        if name == "exchanges":
            where.note(table)
        if name in ("results", "records"):
            files += staging.write(name, table, split, part, *where.of(table))
        else:
            files += staging.write(name, table, split, part)
    yield _told(rows, run, files, shared, counts, _left(run, rows.place))


def _left(run: SplitRun, place: Place | None) -> dict[bytes, CarriedFlow]:
    """The flows that are open at the end, with as many of their packets as it takes to go on."""
    from ..splits.carry import carried_flows

    if not run.left:
        return {}
    own = {} if place is None else place.cut(dict.fromkeys(run.left, NOTHING))
    return carried_flows(run, {key: run.packets_of(key, own) for key in run.left})


def _told(
    made: TableRows,
    run: SplitRun,
    files: list[Written],
    connections: Any = None,
    counts: ReportCounts | None = None,
    left: dict[bytes, CarriedFlow] | None = None,
) -> pa.RecordBatch:
    """What came of a split, as rows of MESSAGE."""
    from ..tasks import COUNTS, OUTCOME, Done, Row, messages

    split = run.task.split
    done = Done(run.outcome, run.engine.first, run.engine.last, files, connections, left or {}, made.received)
    rows: list[Row] = [(split, split, OUTCOME, None, pickle.dumps(done))]
    if counts is not None:
        rows.append((split, split, COUNTS, None, _packed(rows_of_counts(counts, run.engine))))
    return messages(rows)


def _packed(table: pa.Table) -> bytes:
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as stream:
        stream.write_table(table)
    packed: bytes = sink.getvalue().to_pybytes()
    return packed


class _Counted:
    """A SplitRun whose batches are counted as they go by."""

    def __init__(self, run: SplitRun, counts: Any) -> None:
        self._run = run
        self._counts = counts

    def batches(self, reader: SplitReader | None) -> Iterator[Batch]:
        for batch in self._run.batches(reader):
            self._counts.add(batch)
            yield batch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._run, name)


class _Where:
    """The time and broker of each exchange, for the rows of other tables."""

    def __init__(self) -> None:
        self._numbers: list[Array] = []
        self._times: list[Array] = []
        self._brokers: list[Any] = []
        self._whole: tuple[Array, Array, Any] | None = None

    def note(self, exchanges: pa.Table) -> None:
        self._numbers.append(exchanges["exchange"].to_numpy())
        self._times.append(exchange_times(exchanges))
        self._brokers.append(broker_names(exchanges).cast("string"))
        self._whole = None

    def of(self, rows: pa.Table) -> tuple[Array, Any]:
        import pyarrow as pa

        if self._whole is None:
            numbers = np.concatenate(self._numbers)
            order = np.argsort(numbers, kind="stable")
            brokers = pa.chunked_array(self._brokers).combine_chunks().take(pa.array(order))
            self._whole = numbers[order], np.concatenate(self._times)[order], brokers
        numbers, times, brokers = self._whole
        at = np.searchsorted(numbers, rows["exchange"].to_numpy())
        return times[at], brokers.take(pa.array(at))
