"""`ShardTask`: the work of one of several engines. Each has the connections of some ends of all captures."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import count
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np

from kafkatap.kernels import store
from kafkatap.reassembly.errors import TruncatedCapture
from kafkatap.reports.batch import Batch, FileInfo
from kafkatap.reports.section_parts.registry import needs_of
from kafkatap.reports.tables import connections_table

from ..captures.capture_reader import CaptureReader, FileReport
from ..engine.engine import Engine, engine_for
from ..engine.limits import Limits
from ..parquet.row_groups import GatheredRows, RowGroup
from ..parquet.row_names import named
from ..run import Run
from ..splits.capture_ledgers import Ledger
from ..splits.executor import HERE, Place
from ..splits.run_options import RunOptions
from ..splits.split_counts import CountsOfSplit, SplitCounts
from .blocks import SharedBlocks, SharedBytes

if TYPE_CHECKING:
    from .local_tables import LocalTables

Array = np.ndarray[Any, Any]
_NUMBERS = count()
#: The tasks of this process, by their numbers.
_TASKS: dict[int, ShardTask] = {}


@dataclass(slots=True)
class ShardResult:
    """What an engine found. `names`: topic names by id. `reports`, `files`: on the captures, as of `Run`; of them, only
    `duplicates` are of this engine alone. `first`, `last`: times of all packets, ns. `written`: what tables made of the
    rows. `has_points`: packets were captured at several places. `sessions`: hashes of the names of sessions of TLS 1.2:
    those that connections of this engine got, and those that they resume without a known secret. `brokers`: keys of the
    ends that are brokers', and of those to which single requests went that would count there."""

    counts: SplitCounts
    ledger: Ledger
    names: dict[bytes, bytes]
    reports: list[FileReport]
    files: list[FileInfo]
    first: int | None
    last: int | None
    not_captured: int
    written: list[Any] = field(default_factory=list)
    has_points: bool = False
    sessions: tuple[frozenset[int], frozenset[int]] = frozenset(), frozenset()
    brokers: tuple[frozenset[int], frozenset[int]] = frozenset(), frozenset()


@dataclass(frozen=True, slots=True)
class ShardTask:
    """Reads `captures` with one of `shards` engines. `options`: with the limits of one engine. `blocks`: the bytes of
    the only capture; None: each engine reads the files. `tables`: get the rows. `stopped`: int64 (1,), not 0 once the
    run shall end.

    A process that was forked after the task was made can unpickle it.
    """

    options: RunOptions
    captures: tuple[str, ...]
    shards: int
    interval: int | None
    blocks: SharedBlocks | None
    tables: LocalTables | None
    stopped: Array
    number: int = field(default_factory=lambda: next(_NUMBERS))
    name: ClassVar[str] = "read"

    def __post_init__(self) -> None:
        _TASKS[self.number] = self

    def __reduce__(self) -> tuple[Any, ...]:
        return _task, (self.number,)

    def forget(self) -> None:
        """Nobody unpickles it any more."""
        _TASKS.pop(self.number, None)

    def __call__(self, mine: int, place: Place = HERE) -> ShardResult:
        store.verbose = False  # the process that started this one says it
        return _Shard(self, mine, place).read()


def _task(number: int) -> ShardTask:
    """The task of a number, in a process that was forked after it was made."""
    return _TASKS[number]


def engine_of_shard(options: RunOptions, has_tables: bool) -> Engine:
    """An engine for the rows that these options want."""
    return engine_for(
        options.selection, options.read, all_results=options.by_topic or has_tables, tables=has_tables,
        **needs_of(options.sections, has_tables)._asdict(),
    )  # fmt: skip


class _Shard:
    def __init__(self, task: ShardTask, shard: int, place: Place) -> None:
        options, self._tables, self._place, self._shard = task.options, task.tables, place, shard
        self._options = options
        self._engine = engine = engine_of_shard(options, task.tables is not None)
        engine.assembly.assembler.share(shard, task.shards)
        self._done = 0
        self._stopped, self._reads_files = task.stopped, task.blocks is None
        self._run = Run(task.captures, engine, self._watch, threaded=False)
        if task.blocks is not None:
            source = task.blocks.opened(shard)
            self._run.open = lambda path, _: _SharedReader(path, source)
        self._counted = CountsOfSplit(options, engine, task.interval)
        engine.on_connections(self._counted.add_connections)

    def _watch(self, done: int) -> bool:
        if self._shard == 0:
            self._place.progress(done - self._done)
            self._done = done
        return bool(self._reads_files and self._stopped[0])  # else all end behind the same block

    def _batches(self) -> Iterator[Batch]:
        for batch in self._options.selection.apply(self._run.batches(), self._engine, self._counted.sections):
            self._counted.add(batch)
            yield batch

    def read(self) -> ShardResult:
        """Read the captures to their end."""
        written: list[Any] = []
        if self._tables is None:
            for _ in self._batches():
                pass
        else:
            written = self._write(self._tables)
        engine, run = self._engine, self._run
        ledger = engine.ledger()
        packets = ledger["packets"]
        packets["total"] = sum(number for part, number in packets.items() if part != "total")
        names = {engine.strings[n] or b"": engine.strings[name] or b"" for n, name in engine.topic_names.items()}
        context = run.context()
        duplicates = engine.assembler.duplicates
        return ShardResult(
            self._counted.finish_alone(), ledger, names, run.files,
            list(context.files), context.first, context.last, context.not_captured, written,
            len(duplicates) > 1 and bool(duplicates.any()), self._sessions(),
            (frozenset(engine.dissector.brokers().tolist()), frozenset(engine.dissector.missed().tolist())),
        )  # fmt: skip

    def _sessions(self) -> tuple[frozenset[int], frozenset[int]]:
        """As of `ShardResult`. All processes hash alike, as they were forked."""
        key_log = self._engine.key_log
        if key_log is None:
            return frozenset(), frozenset()
        return frozenset(map(hash, key_log.issued_sessions())), frozenset(map(hash, key_log.unknown_sessions()))

    def _write(self, tables: LocalTables) -> list[Any]:
        """Write the rows of all tables; return where they are."""
        gathered = GatheredRows(tables.group_bytes)
        with tables.open(self._shard, self._place) as files:

            def write(group: RowGroup) -> None:
                if len(group.exchanges):
                    context = named(group.arrays, self._engine)
                    files.write("exchanges", group.exchanges_table(context))
                    files.write("results", group.results_table(context))

            for batch in self._batches():
                if gathered.add(batch):
                    write(gathered.take())
            write(gathered.take())
            rows = self._engine.connections
            if len(rows):
                files.write("connections", connections_table(rows, named([rows], self._engine)))
        return files.written


def part_of_limits(options: RunOptions, shards: int) -> RunOptions:
    """The options of one of so many engines: together they keep no more than one does."""
    limits = options.read.limits or Limits()
    return replace(options, read=options.read._replace(limits=limits.of_one(shards)))


class _SharedReader(CaptureReader):
    """Reads one capture block by block, for `assemble`. It copies only records that a block cuts. `buffer` stays as it
    is until the next block is read."""

    def __init__(self, path: str, source: SharedBytes) -> None:
        super().__init__(path, source=source)

    def _read_more(self) -> bool:
        rest = self.buffer[self._at : self._end]
        source = cast(SharedBytes, self._source)
        found = source.take(rest)
        if found is None:
            self._over = True
            if len(rest) and not source.is_stopped:
                raise TruncatedCapture("cut short: the last packet is not whole", self._base + self._at)
            return False
        self._base += self._at
        self.buffer, self._at, self._end = found
        self._base -= self._at
        return True

    def _shared(self) -> tuple[Array, Array] | None:
        return cast(SharedBytes, self._source).shared_from(self._at)
