"""The library: `analyze(captures)` gives the tables of a run as Arrow."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from kafkatap.reports.batch import Context

if TYPE_CHECKING:
    import pyarrow as pa

    from kafkatap.dissector.inspection import Inspector
    from kafkatap.dissector.overlay import Definitions
    from kafkatap.reports.model import Report

Path = str | os.PathLike[str]


class UnreadableCaptureError(Exception):
    """No capture of an analysis could be read at all; the message says which and why."""


class Analysis:
    """The tables of some captures, read when first asked for. Each is a `pyarrow.Table` (`.to_pandas()` for pandas).

    exchanges    a request with its response, or one without the other
    results      what each response said of a topic-partition, group or resource, with its error code
    connections  TCP connections: round trip, bytes, retransmissions, holes, client software
    files        the captures: format, packets, drops, damage
    ledger       every packet, payload byte, request and response in one named place
    records      the records of Produce requests and Fetch responses (`record_tables` gives them piece by piece)

    Columns are described in docs/tables.md. `connections`, `files` and `ledger` alone cost less than the first two.
    """

    def __init__(
        self,
        captures: Iterable[Path],
        ports: Iterable[int] = (),
        block_size: int | None = None,
        definitions: Definitions | None = None,
    ) -> None:
        self.captures = tuple(os.fspath(c) for c in captures)
        self._ports = tuple(ports)
        self._block_size = block_size
        self._definitions = definitions

    @property
    def exchanges(self) -> pa.Table:
        return self._decoded[0]

    @property
    def results(self) -> pa.Table:
        return self._decoded[1]

    @cached_property
    def connections(self) -> pa.Table:
        from kafkatap.reports.tables import connections_table

        return connections_table(self.context.connections, self.context)

    @cached_property
    def files(self) -> pa.Table:
        from kafkatap.reports.tables import files_table

        return files_table(self.context)

    @cached_property
    def ledger(self) -> pa.Table:
        from kafkatap.reports.tables import ledger_table

        return ledger_table(self.context)

    @cached_property
    def records(self) -> pa.Table:
        import pyarrow as pa

        from kafkatap.dissector.program import load_programs
        from kafkatap.dissector.records import RecordCollector
        from kafkatap.reports.record_table import empty_table, numbered_table, with_topics

        from .records import chunks_of
        from .survey import named_topics

        collector = RecordCollector(load_programs("records", self._definitions))
        run = self._run(all_results=False, inspectors=[collector])
        tables = [numbered_table(chunk) for chunk in chunks_of(run, collector)]
        self._check(run)
        if not tables:
            return empty_table()
        return with_topics(pa.concat_tables(tables), collector.topics, named_topics(run.engine))

    def record_tables(self) -> Iterator[pa.Table]:
        """The table `records` in pieces, so that a large capture needs no large memory. Captures that are files are
        read twice, so that topic ids have names; of pipes those that were told before their records are."""
        from .records import RecordReader

        reader = RecordReader(self.captures, self._engine, self._definitions)
        yield from reader.tables()
        self._check(reader.run)

    @cached_property
    def context(self) -> Context:
        """Names, connections, files and ledger: all that does not need the bodies of messages."""
        if "_whole" in self.__dict__:
            whole: Context = self._whole[2]
            return whole
        run = self._run(all_results=False)
        for _ in run.batches():
            pass
        self._check(run)
        context: Context = run.context()
        return context

    def report(self, by: str = "api") -> Report:
        """The reports of `kafkatap report` as tables of plain rows. `by`: api, client, broker, version or topic."""
        from kafkatap.reports.build import build_report
        from kafkatap.reports.counts import ReportCounts

        run = self._run(all_results=by == "topic")
        counts = ReportCounts(names=run.engine, by_topic=by == "topic")
        for batch in run.batches():
            counts.add(batch)
        self._check(run)
        return build_report(counts, run.context(), by=by)

    @cached_property
    def _whole(self) -> tuple[Any, Any, Context]:
        from kafkatap.dissector.rows import EXCHANGE, RESULT

        from .running import joined, topics_asked

        run = self._run(all_results=True)
        exchanges, results = [], []
        for batch in run.batches():
            exchanges.append(batch.exchanges)
            results.append(batch.results)
        self._check(run)
        rows = joined(results, RESULT)
        return joined(exchanges, EXCHANGE), (rows, joined([topics_asked(run.engine), rows], RESULT)), run.context()

    @cached_property
    def _decoded(self) -> tuple[pa.Table, pa.Table]:
        from kafkatap.reports.tables import exchanges_table, results_table

        exchanges, (results, topics), context = self._whole
        self.__dict__.setdefault("context", context)  # so that no other table reads the captures again
        return exchanges_table(exchanges, error_counts(results), topics, context), results_table(results, context)

    def _engine(self, **options: Any) -> Any:
        from .engine import Engine

        return Engine(ports=self._ports, definitions=self._definitions, **options)

    def _run(self, all_results: bool, inspectors: Sequence[Inspector] = ()) -> Any:
        from .running import Run
        from .sources import BLOCK_SIZE

        engine = self._engine(all_results=all_results, inspectors=inspectors)
        return Run(self.captures, engine, block_size=self._block_size or BLOCK_SIZE)

    def _check(self, run: Any) -> None:
        unreadable = [f for f in run.files if f.fatal]
        if unreadable and len(unreadable) == len(run.files):
            raise UnreadableCaptureError("; ".join(f"{f.path}: {f.damage}" for f in unreadable))


def error_counts(results: Any) -> Any:
    """ERROR_COUNT rows: how often each non-zero code stands in each exchange's response, ascending by both."""
    from kafkatap.dissector.rows import ERROR_COUNT

    failed = results[results["error_code"] != 0]
    key = failed["exchange"] * 65_536 + (failed["error_code"].astype(np.int64) + 32_768)
    distinct, counts = np.unique(key, return_counts=True)
    rows = np.zeros(len(distinct), ERROR_COUNT)
    rows["exchange"] = distinct >> 16
    rows["code"] = (distinct & 65_535) - 32_768
    rows["count"] = counts
    return rows


def analyze(captures: Path | Iterable[Path], *, ports: Iterable[int] = (), definitions: Path | None = None) -> Analysis:
    """Analyze one capture or many (pcap or pcapng, also .gz and .zst), put in order of time by their packets.

    Nothing is read before a table is asked for. `ports`: hints that brokers listen there; Kafka is found without them.
    `definitions`: a folder of a newer Kafka's own message definitions (.json), laid over the built-in ones; read at
    once, ValueError where it holds none, or a malformed one.
    OSError where a file cannot be opened, `UnreadableCaptureError` where none is a capture.
    """
    if isinstance(captures, (str, os.PathLike)):
        captures = [captures]
    if definitions is None:
        return Analysis(captures, ports)
    from .engine import open_definitions

    return Analysis(captures, ports, definitions=open_definitions(definitions))
