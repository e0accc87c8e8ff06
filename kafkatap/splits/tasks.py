"""The two tasks of a split, for every executor: `SurveyTask`, and `DecodeTask` with its `SplitResult`.

A `DecodeTask` yields the rows of tables, or writes them to a sink, or counts for reports, or does several of these.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np

from kafkatap.reports.section_parts.registry import needs_of

from .decode import Outcome, SplitRun
from .executor import HERE, Place
from .kept_counts import CountKeeper
from .open_flows import open_flows
from .secrets import key_log_of
from .split_counts import CountsOfSplit, NamedConnections, SplitCounts, sum_counts
from .survey import SplitSurvey, survey_split
from .task_rows import dump, load

if TYPE_CHECKING:
    import pyarrow as pa

    from kafkatap.dissector.records.record_inspector import RecordCollector
    from kafkatap.reports.batch import Batch, Context

    from ..captures.pack_reader import PackReader
    from ..parquet.row_groups import RowGroup
    from .capture_ledgers import CaptureIndex
    from .checkpoint import OpenFlow
    from .run_options import RunOptions
    from .task_rows import DecodeGroup, DecodeInput, SurveyInput

Array = np.ndarray[Any, Any]
#: As of `RowFiles.count`.
Count = Callable[..., None]
#: Of the time for a byte, the part that its survey takes.
SURVEY_PART = 0.2
#: Bytes of rows that become one table on Spark.
GROUP_BYTES = 16 << 20
_TABLES = frozenset(("exchanges", "results", "connections"))


class RowFiles(Protocol):
    """Where the rows of splits go. `group_bytes`: of rows that are written at once. `written`: what became of them,
    once the context is left."""

    group_bytes: ClassVar[int]

    @property
    def written(self) -> list[Any]: ...
    @property
    def keeper(self) -> CountKeeper | None:
        """What keeps counts by capture and hour; None: nothing does."""

    def write(self, table: str, rows: pa.Table, first_packets: Array | None = None) -> None:
        """Write rows of a table. `first_packets`: of connections, the numbers of their first packets."""

    def count(self, table: str, rows: Array, context: Context, results: Array | None = None) -> None:
        """Count the EXCHANGE rows and their RESULT rows, or the CONNECTION_ROW rows, that were written last.
        `context`: what the numbers in them mean."""


class RowSink(Protocol):
    """Takes the rows of splits, in the processes that decode them."""

    def spill(self, data: bytes) -> str:
        """Keep bytes until the run ends; return their name."""

    def fetch(self, name: str) -> bytes:
        """The bytes of that name."""

    def drop(self, names: Iterable[str]) -> None:
        """Delete what was kept."""

    def open(self, split: int, place: Place = HERE) -> AbstractContextManager[RowFiles]:
        """The files of a split, and of those of its group."""


@dataclass(slots=True)
class SplitResult:
    """The result of decoding a split. `counts`: for reports, if wanted; a name if they were spilled. `connections`:
    rows of all its connections, if neither is wanted. `written`: what a sink made of rows. `open_flows`: the flows
    that stay open at its end. `unnamed`: ids of topics of which rows were written without a name. `amid_sasl`: flows
    that it ended amid SASL."""

    outcome: Outcome
    counts: SplitCounts | str | None = None
    connections: NamedConnections | None = None
    written: list[Any] = field(default_factory=list)
    open_flows: Mapping[bytes, OpenFlow] = field(default_factory=dict)
    unnamed: set[bytes] = field(default_factory=set)
    amid_sasl: set[bytes] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class SurveyTask:
    """Surveys a split."""

    options: RunOptions
    name: ClassVar[str] = "survey"

    def __call__(self, mine: SurveyInput, place: Place = HERE) -> SplitSurvey:
        with closing(mine.source.open()) as reader:
            found = survey_split(mine.split, reader, self.options.read)
        place.progress(int(SURVEY_PART * mine.source.length))
        return found


@dataclass(frozen=True, slots=True)
class DecodeTask:
    """Decodes the splits of a group. `options`: with absolute times and without a key log. `key_lines`: as of
    `needed_lines`. `counting`: count for reports, `interval` as of `ReportCounts`. `sink`: gets the rows of all tables,
    and with `spilling` the counts, too."""

    options: RunOptions
    topic_names: Mapping[bytes, bytes]
    captures: CaptureIndex
    key_lines: bytes | None = field(default=None, repr=False)
    counting: bool = False
    interval: int | None = None
    sink: RowSink | None = None
    spilling: bool = False
    name: ClassVar[str] = "decode"

    def __call__(self, mine: DecodeGroup, place: Place = HERE) -> list[SplitResult]:
        """The results of its splits. The first one has what all of them wrote, and the sum of their counts."""
        if self.sink is None:
            return self._summed(self._decoded(one, None, place) for one in mine.inputs)
        with self.sink.open(mine.inputs[0].task.split, place) as files:
            found = self._summed(self._decoded(one, files, place) for one in mine.inputs)
        found[0].written = files.written
        if self.spilling and isinstance(found[0].counts, SplitCounts):
            found[0].counts = self.sink.spill(dump(found[0].counts))
        return found

    def _decoded(self, mine: DecodeInput, files: RowFiles | None, place: Place) -> SplitResult:
        with _opened(mine) as reader:
            return _Split(self, mine, reader, files is not None, place).decoded(files)

    def _summed(self, results: Iterable[SplitResult]) -> list[SplitResult]:
        """All results, of which the first one has the counts of all."""
        found: list[SplitResult] = []

        def counts() -> Iterator[SplitCounts]:
            for result in results:
                found.append(result)
                if isinstance(result.counts, SplitCounts):
                    yield result.counts
                    result.counts = None

        total = sum_counts(self.options, self.interval, counts())  # this fills `found`
        found[0].counts = total
        return found

    def rows(self, mine: DecodeInput, table: str) -> Iterator[pa.Table]:
        """The rows of one table of a split."""
        with _opened(mine) as reader:
            split = _Split(self, mine, reader, True, HERE, records=table == "records")
            for name, rows, _ in split.tables(frozenset((table,)), GROUP_BYTES):
                if name == table:
                    yield rows


@dataclass(frozen=True, slots=True)
class SumInput:
    """Spilled counts of splits, in their order. `is_last`: their sum goes to the driver."""

    names: tuple[str, ...]
    is_last: bool
    weight: ClassVar[int] = 1 << 40  # each has a task of its own


@dataclass(frozen=True, slots=True)
class SumTask:
    """Adds up counts of splits."""

    options: RunOptions
    sink: RowSink
    interval: int | None = None
    name: ClassVar[str] = "sum"

    def __call__(self, mine: SumInput, place: Place = HERE) -> SplitCounts | str:
        found = sum_counts(self.options, self.interval, (load(self.sink.fetch(name)) for name in mine.names))
        assert found is not None, "there is something to add up"
        return found if mine.is_last else self.sink.spill(dump(found))


def _opened(mine: DecodeInput) -> AbstractContextManager[PackReader | None]:
    """The packets of a split; None if it only continues the flows of a checkpoint."""
    return nullcontext() if mine.source is None else closing(mine.source.open(mine.task.bases))


class _Split:
    """One split that is decoded. `records`: with records too; None: as the options say."""

    def __init__(
        self, task: DecodeTask, mine: DecodeInput, reader: PackReader | None, with_rows: bool, place: Place,
        records: bool | None = None,
    ) -> None:  # fmt: skip
        options = task.options
        needed = options.selection.engine_options
        self._options, self._reader, self._place, self._done = options, reader, place, 0
        self._collector = None
        if with_rows and (options.records if records is None else records):
            from kafkatap.dissector.programs.loading import load_programs
            from kafkatap.dissector.records.record_inspector import RecordCollector

            self._collector = RecordCollector(load_programs("records", options.read.definitions))
        wanted = (options.kept_sections or options.sections) if task.counting else ()
        inspectors = needed.inspectors if self._collector is None else (self._collector, *needed.inspectors)
        self._run = SplitRun(
            mine.task, mine.seams, task.topic_names, options.read._replace(key_log=key_log_of(task.key_lines)),
            all_results=with_rows or options.by_topic or needed.all_results, inspectors=inspectors,
            apis=needed.apis if with_rows or task.counting else frozenset(),
            problems=with_rows or needed.problems, secrets=mine.secrets, captures=task.captures,
            **needs_of(wanted, with_rows or not task.counting)._asdict(),
        )  # fmt: skip
        self._counted = CountsOfSplit(options, self._run.engine, task.interval) if task.counting else None
        self._unnamed: set[bytes] = set()

    def decoded(self, files: RowFiles | None) -> SplitResult:
        """Read the split. `files`: get its rows."""
        run = self._run
        result = SplitResult(run.outcome, amid_sasl=run.amid_sasl)
        if files is None:
            for _ in self._batches():
                pass
        else:
            if self._counted is not None and files.keeper is not None:
                self._counted.keep_with(files.keeper, lambda: run.capture)
            for rows in self.tables(_TABLES, files.group_bytes, files.count):
                files.write(*rows)
            if self._counted is not None:
                self._counted.finish_places()
            result.unnamed = self._unnamed
        if self._counted is not None:
            result.counts = self._counted.finish(run.are_shared)
        elif files is None:
            result.connections = NamedConnections.of(run.engine.connections, run.engine)
        if run.open_flows:
            result.open_flows = open_flows(run)
        return result

    def _batches(self) -> Iterator[Batch]:
        """The batches with the selected exchanges, counted if wanted. The engine knows all topic names of the plan."""
        sections = None if self._counted is None else self._counted.sections
        for batch in self._options.selection.apply(self._run.batches(self._reader), self._run.engine, sections):
            if self._counted is not None:
                self._counted.add(batch)
            yield batch
            if self._reader is not None:
                read, self._done = self._reader.bytes_read - self._done, self._reader.bytes_read
                self._place.progress(int((1 - SURVEY_PART) * read))

    def tables(
        self, wanted: frozenset[str], group_bytes: int, count: Count | None = None
    ) -> Iterator[tuple[str, pa.Table, Array | None]]:
        """(name of a table, some rows, first packets of connections): exchanges before their results, then connections
        that no other split has, then records. `group_bytes`: of rows that become tables at once. `count`: is called
        with the rows of tables (`RowFiles.count`) after these."""
        from kafkatap.reports.tables import connections_table

        from ..parquet.row_groups import GatheredRows
        from ..parquet.row_names import named

        run = self._run
        with tempfile.TemporaryFile(prefix="kafkatap-") as file:
            records = None if self._collector is None else _SpilledRecords(file, self._collector, run)
            gathered = GatheredRows(group_bytes)
            for batch in self._batches():
                is_full = gathered.add(batch)
                if records is not None:
                    records.spill()
                if is_full:
                    yield from self._group(gathered.take(), wanted, records, count)
            yield from self._group(gathered.take(), wanted, records, count)
            if "connections" in wanted:
                rows = run.engine.connections
                rows = rows[~run.are_shared(rows["connection"])]
                if len(rows):
                    context = named([rows], run.engine)
                    yield "connections", connections_table(rows, context), rows["first_packet"]
                    if count is not None:
                        count("connections", rows, context)
            if records is not None:
                records.spill()
                for table in records.tables():
                    yield "records", table, None

    def _group(
        self, group: RowGroup, wanted: frozenset[str], records: _SpilledRecords | None, count: Count | None
    ) -> Iterator[tuple[str, pa.Table, None]]:
        from ..parquet.row_names import named

        if records is not None:
            records.keep(group.exchanges)
        if not len(group.exchanges) or not wanted & {"exchanges", "results"}:
            return
        context = named(group.arrays, self._run.engine)
        if "exchanges" in wanted:
            unnamed = group.topics_without_names(context.topic_names)
            self._unnamed |= {context.strings[number] or b"" for number in unnamed}
            yield "exchanges", group.exchanges_table(context), None
        if "results" in wanted and len(group.results):
            yield "results", group.results_table(context), None
        if count is not None:
            count("exchanges", group.exchanges, context, group.results)


class _SpilledRecords:
    """Records in a temporary file, until it is clear which of their exchanges the split has."""

    def __init__(self, file: Any, collector: RecordCollector, run: SplitRun) -> None:
        import pyarrow as pa

        from kafkatap.reports.record_rows import RecordRows
        from kafkatap.reports.record_table import records_table

        self._file = file
        self._collector = collector
        self._run = run
        self._rows, self._make = RecordRows, records_table
        self._ipc = pa.ipc
        self._writer: Any = None
        self._exchanges: list[Array] = []
        self._names: dict[bytes, str] = {}

    def spill(self) -> None:
        """Write the records that the collector holds."""
        if not self._names:
            self._names = {key: name.decode("utf-8", "replace") for key, name in self._run.topic_names.items()}
        for chunk in self._collector.chunks():
            table = self._make(self._rows(chunk, self._names, self._run.engine.strings))
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
