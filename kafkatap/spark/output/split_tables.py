"""The rows of one decoded split: yielded to Spark, or written to files by the executor that decoded them.

Exchanges become Arrow tables a row group at a time. The survey supplies the names of topic ids, so no row is touched
twice. Records are spilled to a temporary file until all exchanges of the split are finished.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from kafkatap.dissector.inspection import Inspector
from kafkatap.dissector.records.record_inspector import RecordCollector
from kafkatap.reports import tables
from kafkatap.reports.batch import Batch
from kafkatap.reports.counting.count_rows import rows_of_counts

from ...parquet.row_groups import GatheredRows, RowGroup
from ...partitions import to_microseconds
from ...splits.checkpoint import OpenFlow
from ...splits.decode import Outcome, SplitRun
from ...splits.open_flows import open_flows
from ...splits.packed_rows import packed
from ...splits.split_counts import CountsOfSplit
from ...splits.split_sections import SplitSections
from ...splits.task_rows import ReadOptions
from .writing import CaptureIndex, TableWriter, Written, with_capture

if TYPE_CHECKING:
    import pyarrow as pa

    from ...captures.pack_reader import PackReader

Array = np.ndarray[Any, Any]
#: Rows gather to this many bytes before they become Arrow tables.
_GATHERED_BYTES = 16 << 20


@dataclass(slots=True)
class SplitResult:
    """The result of decoding a split.

    `written`: its files. `connections`: rows of its connections, and `shared`: rows of those that other splits share.
    `counts`: rows of counts, `packed`. `open_flows`: the flows that stay open at its end. `sections`: the counts of
    sections over facts, if wanted.
    """

    outcome: Outcome
    written: list[Written] = field(default_factory=list)
    connections: pa.Table | None = None
    shared: pa.Table | None = None
    counts: bytes | None = None
    open_flows: dict[bytes, OpenFlow] = field(default_factory=dict)
    sections: SplitSections | None = None
    unnamed: set[bytes] = field(default_factory=set)


class SplitTables:
    """Makes the table rows of one split."""

    def __init__(
        self,
        options: ReadOptions,
        table: str | None,
        is_writing: bool = False,
    ) -> None:
        from kafkatap.dissector.programs.loading import load_programs

        self._options = options
        self._table = table
        self._unnamed: set[bytes] = set()
        self._collector: RecordCollector | None = None
        if table == "records" or (is_writing and options.records):
            self._collector = RecordCollector(load_programs("records", options.definitions))
        self._counted: CountsOfSplit | None = None
        self.inspectors: list[Inspector] = [] if self._collector is None else [self._collector]

    # The four ways to run a split.

    def rows(self, run: SplitRun, reader: PackReader | None) -> Iterator[pa.RecordBatch]:
        """The rows of the one table that is wanted, times in microseconds."""
        for name, table in self._made(run, reader, {self._table or ""}):
            if name == self._table:
                yield from to_microseconds(table).to_batches()

    def write(
        self, run: SplitRun, reader: PackReader | None, writer: TableWriter, captures: CaptureIndex
    ) -> SplitResult:
        """Write the rows of all tables, and count for reports."""
        self._counted = counted = CountsOfSplit(self._options, run.engine)
        result = SplitResult(run.outcome)
        with writer.open(run.task.split, captures) as files:
            for name, table in self._made(run, reader, {"exchanges", "results", "connections"}):
                if name == "connections":
                    first_packets = run.engine.connections["first_packet"]
                    table = with_capture(table, captures.captures_of(first_packets))
                    result.shared, result.connections = run.split_shared(table)
                    table = result.connections
                files.write(name, table)
        result.written, result.unnamed = files.written, self._unnamed
        _add_counts(result, counted, run)
        result.open_flows = _open_flows(run)
        return result

    def count(self, run: SplitRun, reader: PackReader | None) -> SplitResult:
        """Count for reports."""
        counted = CountsOfSplit(self._options, run.engine)
        for batch in self._selected(run, reader):
            counted.add(batch)
        result = self._with_connections(run)
        _add_counts(result, counted, run)
        return result

    def prove(self, run: SplitRun, reader: PackReader | None) -> SplitResult:
        """Only prove the plan."""
        for _ in run.batches(reader):
            pass
        return self._with_connections(run)

    @staticmethod
    def _with_connections(run: SplitRun) -> SplitResult:
        context = run.context()
        rows = tables.connections_table(context.connections, context)
        shared, own = run.split_shared(rows)
        return SplitResult(run.outcome, connections=own, shared=shared)

    # ------------------------------------------------------------

    def _selected(self, run: SplitRun, reader: PackReader | None) -> Iterator[Batch]:
        """The batches of a run with the selected exchanges. The engine knows all topic names from the plan."""
        return self._options.selection.apply(run.batches(reader), run.engine)

    def _made(self, run: SplitRun, reader: PackReader | None, wanted: set[str]) -> Iterator[tuple[str, pa.Table]]:
        """(table name, some rows): exchanges before their results, then connections, then records. Counts on the way,
        if wanted."""
        with tempfile.TemporaryFile(prefix="kafkatap-") as file:
            records = _SpilledRecords(file, self._collector, run) if self._collector is not None else None
            gathered = GatheredRows(_GATHERED_BYTES)
            for batch in self._selected(run, reader):
                if self._counted is not None:
                    self._counted.add(batch)
                is_full = gathered.add(batch)
                if records is not None:
                    records.spill()
                if is_full:
                    yield from self._tables(run, gathered.take(), wanted, records)
            yield from self._tables(run, gathered.take(), wanted, records)
            context = run.context()
            if "connections" in wanted:
                yield "connections", tables.connections_table(context.connections, context)
            if records is not None:
                records.spill()
                for table in records.tables():
                    yield "records", table

    def _tables(
        self, run: SplitRun, group: RowGroup, wanted: set[str], records: _SpilledRecords | None
    ) -> Iterator[tuple[str, pa.Table]]:
        if records is not None:
            records.keep(group.exchanges)
        if not len(group.exchanges) or not wanted & {"exchanges", "results"}:
            return
        context = run.context()
        if "exchanges" in wanted:
            unnamed = group.topics_without_names(context.topic_names)
            self._unnamed |= {context.strings[number] or b"" for number in unnamed}
            yield "exchanges", group.exchanges_table(context)
        if "results" in wanted:
            yield "results", group.results_table(context)


def _add_counts(result: SplitResult, counted: CountsOfSplit, run: SplitRun) -> None:
    """Add what a split counted to its result."""
    rows = run.engine.connections
    is_shared = run.are_shared(rows["connection"])
    result.counts = packed(rows_of_counts(counted.counts, run.engine))
    result.sections = counted.sections.finish(rows[~is_shared], rows[is_shared])


def _open_flows(run: SplitRun) -> dict[bytes, OpenFlow]:
    """The flows that stay open at the end of a run, each with the packets that restore its state."""
    if not run.open_flows:
        return {}
    return open_flows(run, run.packets_of_open_flows())


class _SpilledRecords:
    """Records in a temporary file, until it is clear which of their exchanges the split has."""

    def __init__(self, file: Any, collector: RecordCollector, run: SplitRun) -> None:
        import pyarrow as pa

        from kafkatap.reports.record_table import records_table

        self._file = file
        self._collector = collector
        self._run = run
        self._make = records_table
        self._ipc = pa.ipc
        self._writer: Any = None
        self._exchanges: list[Array] = []
        self._names: dict[bytes, str] = {}

    def spill(self) -> None:
        """Write the records that the collector holds."""
        if not self._names:
            self._names = {key: name.decode("utf-8", "replace") for key, name in self._run.topic_names.items()}
        for chunk in self._collector.chunks():
            table = self._make(chunk, self._names, self._run.engine.strings)
            if self._writer is None:
                self._writer = self._ipc.new_stream(self._file, table.schema)
            self._writer.write_table(table)

    def keep(self, exchanges: Array) -> None:
        """Keep the records of these exchanges."""
        self._exchanges.append(exchanges["key"].copy())

    def tables(self) -> Iterator[pa.Table]:
        """The records that are kept."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if self._writer is None:
            return
        self._writer.close()
        self._file.seek(0)
        kept = pa.array(np.concatenate(self._exchanges) if self._exchanges else np.zeros(0, np.int64))
        for batch in self._ipc.open_stream(self._file):
            table = pa.Table.from_batches([batch])
            table = table.filter(pc.is_in(table["exchange"], kept))
            if table.num_rows:
                yield table
