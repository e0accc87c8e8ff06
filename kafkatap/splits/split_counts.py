"""The counts of one split for a report, and their sum over all splits.

    found = count_split(run, reader, options, interval, watch)      # in a process of its own
    total.add(found)                                                # in the order of the splits

Numbers of strings and addresses differ from process to process, so a split's counts come with the names in them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from kafkatap.dissector.strings import OTHER
from kafkatap.kernels.arrays import joined
from kafkatap.reports.batch import ADDRESS_COLUMNS, STRING_COLUMNS, Array, Batch
from kafkatap.reports.connection_columns import CONNECTION_ROW
from kafkatap.reports.counting.connection_counts import ConnectionCounts
from kafkatap.reports.counting.count_rows import NameTable
from kafkatap.reports.counting.counts import ReportCounts
from kafkatap.reports.counting.small_rows import add_up_small_rows

from ..engine import Engine
from ..limits import Limits
from .decode import Outcome, SplitRun
from .merged_connections import merged_connections
from .split_sections import (
    SectionsOfSplit,
    SplitSections,
    add_split,
    columns_of,
    distinct,
    numbers_here,
    renumber_rows,
    total_sections,
)
from .task_rows import ReadOptions

if TYPE_CHECKING:
    from ..captures.pack_reader import PackReader
    from .local_tables import Part, SplitRows


@dataclass(frozen=True, slots=True)
class SplitCounts:
    """`connections`: counts of those that no other split has; `shared`: CONNECTION_ROW of the others. `strings`,
    `addresses`: those in the counts and rows, by their numbers there. `parts`: the rows of its tables, if wanted.
    `sections`: those over facts, if wanted."""

    outcome: Outcome
    counts: ReportCounts
    connections: ConnectionCounts
    shared: Array
    strings: dict[int, bytes | None]
    addresses: dict[int, str]
    parts: Sequence[Part]
    sections: SplitSections | None = None


class CountsOfSplit:
    """What the exchanges of a split add to a report: `counts`, and those of `sections`, within the limit of names."""

    def __init__(self, options: ReadOptions, engine: Engine, interval: int | None = None) -> None:
        self._engine = engine
        self.counts = ReportCounts(
            by_topic=options.by_topic, interval=interval, by_connection=options.by_connection, fine=options.fine
        )
        self.sections = SectionsOfSplit(options, engine)

    def add(self, batch: Batch) -> None:
        """Add a batch of selected exchanges."""
        self.counts.add(batch)
        self.counts = self._engine.bounded(self.counts)
        self.sections.add(batch)


def count_split(
    run: SplitRun,
    reader: PackReader,
    options: ReadOptions,
    interval: int | None,
    watch: Callable[[], None],
    tables: SplitRows | None = None,
) -> SplitCounts:
    """Decode a split and count its exchanges. `interval`: as of `ReportCounts`. `watch` is called once a batch.
    `tables` gets the rows."""
    engine, counted = run.engine, CountsOfSplit(options, run.engine, interval)
    for batch in options.selection.apply(run.batches(reader), engine):
        counted.add(batch)
        if tables is not None:
            tables.add(batch, engine)
        watch()
    counts = counted.counts
    counts.seal()
    rows = engine.connections
    is_shared = run.are_shared(rows["connection"])
    connections, shared = ConnectionCounts(), rows[is_shared]
    connections.add(rows[~is_shared])
    parts = [] if tables is None else tables.finish(rows[~is_shared], engine)
    used = zip(counts.names_used(), connections.names_used(), strict=True)
    strings, addresses = (
        distinct([*numbers, *columns_of(shared, names)])
        for numbers, names in zip(used, (STRING_COLUMNS, ADDRESS_COLUMNS), strict=True)
    )
    return SplitCounts(
        run.outcome, counts, connections, shared,
        {number: engine.strings[number] for number in strings},
        {number: engine.addresses[number] for number in addresses},
        parts, counted.sections.finish(rows[~is_shared]),
    )  # fmt: skip


class TotalCounts:
    """The sum of the counts of splits. `names`: the meaning of the numbers in it, and in `shared`, the CONNECTION_ROW
    of connections that splits share: one for each connection after `connections`."""

    def __init__(
        self,
        by_topic: bool,
        interval: int | None,
        limits: Limits | None = None,
        sections: tuple[str, ...] = (),
        fine: bool = False,
    ) -> None:
        self._limit = (limits or Limits()).names
        self.counts = ReportCounts(by_topic=by_topic, interval=interval, fine=fine)
        self.names = NameTable()
        self._connections = ConnectionCounts()
        self.shared = np.zeros(0, CONNECTION_ROW)
        self._shared: list[Array] = []
        #: The counts of sections over facts, if wanted.
        self.sections = total_sections(sections, self.names, limits) if sections else None

    def add(self, found: SplitCounts) -> None:
        """Add the counts of the next split."""
        strings = numbers_here(found.strings, self.names.string)
        addresses = numbers_here(found.addresses, self.names.address)
        self.counts.merge(found.counts.renumber(strings, addresses))
        self.counts = add_up_small_rows(self.counts, self._limit, lambda: self.names.string(OTHER))
        self._connections.merge(found.connections, strings, addresses)
        renumber_rows(found.shared, strings, addresses)
        self._shared.append(found.shared)
        if self.sections is not None and found.sections is not None:
            add_split(self.sections, found.sections, self.names)

    def connections(self) -> ConnectionCounts:
        """The counts of all connections. One that splits share counts once. Call it after the last `add`."""
        self.shared = merged_connections(joined(self._shared, CONNECTION_ROW))
        self._connections.add(self.shared)
        if self.sections is not None:
            self.sections.add_connections(self.shared)
        self._shared = []
        return self._connections
