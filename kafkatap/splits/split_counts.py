"""The counts of one split for a report, and their sum over all splits, in every run that has splits.

    counted = CountsOfSplit(options, engine)        # where the split is decoded
    counted.add(batch)
    found = counted.finish(is_shared)               # a SplitCounts, which can go to another process

    total = TotalCounts(options)                    # where all splits are added up
    total.add(found)
    total.end_connections()

Numbers of strings and addresses differ from process to process, so a split's counts come with the names in them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np

from kafkatap.dissector.strings import OTHER
from kafkatap.kernels.arrays import joined, taken
from kafkatap.kernels.column_spec import ColumnSpec
from kafkatap.reports.batch import ADDRESS_COLUMNS, STRING_COLUMNS, Array, Batch, Names
from kafkatap.reports.connection_columns import COLUMNS, CONNECTION_ROW
from kafkatap.reports.counting.connection_counts import ConnectionCounts
from kafkatap.reports.counting.count_forms import ADDRESS, TEXT, Numbers, numbers_by_kind
from kafkatap.reports.counting.counts import ReportCounts
from kafkatap.reports.name_table import NameTable
from kafkatap.reports.section_parts.registry import SEEN_TWICE
from kafkatap.reports.section_parts.section_counts import SectionCounts
from kafkatap.reports.sections.twin_findings import seen_keys

from ..engine.limits import Limits
from .kept_counts import KeptCounts

if TYPE_CHECKING:
    from kafkatap.reports.hosts.host_table import HostTable

    from ..engine.engine import Engine
    from .kept_counts import CountKeeper
    from .run_options import RunOptions

Name = TypeVar("Name")
_MOST = np.iinfo(np.int64).max


class NamedConnections(NamedTuple):
    """CONNECTION_ROW `rows`. `strings`, `addresses`: those in the rows, by their numbers there."""

    rows: Array
    strings: Mapping[int, bytes | None]
    addresses: Mapping[int, str]

    @classmethod
    def of(cls, rows: Array, names: Names) -> NamedConnections:
        """Rows with the names that they refer to."""
        strings, addresses = (_distinct(_columns_of(rows, some)) for some in (STRING_COLUMNS, ADDRESS_COLUMNS))
        return cls(rows, *_named(strings, addresses, names))


def merged(parts: Iterable[NamedConnections], hosts: HostTable | None = None) -> tuple[Array, NameTable]:
    """One CONNECTION_ROW for each connection, and the names in the rows. `parts`: in the order of splits. `hosts`: of
    addresses."""
    names = NameTable(hosts)
    rows = [_renumbered_rows(part.rows, _numbers_here(part.strings, part.addresses, names)) for part in parts]
    return merged_connections(joined(rows, CONNECTION_ROW)), names


@dataclass(frozen=True, slots=True)
class SplitCounts:
    """Counts of exchanges for a report, and for its sections if there are any; `connections`: of those that ended, and
    that no other split has; `shared`: CONNECTION_ROW of the others, which are not counted. `strings`, `addresses`:
    those in all of these, by their numbers there."""

    report: ReportCounts
    connections: ConnectionCounts
    sections: SectionCounts | None
    shared: Array
    strings: Mapping[int, bytes | None]
    addresses: Mapping[int, str]

    @classmethod
    def of(
        cls, report: ReportCounts, connections: ConnectionCounts, sections: SectionCounts | None, shared: Array,
        names: Names,
    ) -> SplitCounts:  # fmt: skip
        """Counts with the names that they refer to."""
        used = [counts.names_used() for counts in (report, connections, sections) if counts is not None]
        strings, addresses = (
            _distinct([*(each[which] for each in used), *_columns_of(shared, columns)])
            for which, columns in enumerate((STRING_COLUMNS, ADDRESS_COLUMNS))
        )
        return cls(report, connections, sections, shared, *_named(strings, addresses, names))

    def has_connections(self, keys: Collection[int]) -> bool:
        """Whether connections with some of these keys are in its captures, among those that may be seen twice."""
        mine = [*([] if self.sections is None else seen_keys(self.sections)), *self.shared["connection"].tolist()]
        return not set(keys).isdisjoint(mine)


class CountsOfSplit:
    """What the exchanges of a split add to a report, within the limit of names. `interval`: as of `ReportCounts`.

    After `keep_with`, the counts of each capture and hour are kept too, but for those of connections.
    """

    def __init__(self, options: RunOptions, engine: Engine, interval: int | None = None) -> None:
        self._options, self._engine = options, engine
        self._report = ReportCounts(
            by_topic=options.by_topic or options.for_lake, interval=interval, by_connection=options.by_connection,
            fine=options.fine,
        )  # fmt: skip
        wanted, learning = options.sections, options.selection.learning
        self.sections = engine.section_counts(wanted, learning=learning) if wanted else None
        self._kept: KeptCounts | None = None

    def keep_with(self, keeper: CountKeeper, capture: Callable[[], int]) -> None:
        """Keep what is added from now on. `capture`: that of the packets of now."""
        self._kept = KeptCounts(self._options, self._engine, keeper, capture, self._report, self.sections)

    def add(self, batch: Batch) -> None:
        """Add a batch of selected exchanges."""
        if self._kept is not None:
            self._kept.add(batch)
            return
        self._report.add(batch)
        self._engine.limit(self._report)
        if self.sections is not None:
            self.sections.add(batch)

    def add_connections(self, rows: Array) -> None:
        """Add connections that ended (CONNECTION_ROW) to the sections, for `finish_alone`."""
        if self.sections is not None:
            self.sections.add_connections(rows)

    def finish_places(self) -> None:
        """Keep the rest."""
        if self._kept is not None:
            self._kept.finish()

    def finish_alone(self) -> SplitCounts:
        """The counts of an engine whose connections no other one has. `add_connections` has got them."""
        rows = np.zeros(0, CONNECTION_ROW)
        return SplitCounts.of(self._report, self._engine.connection_counts, self.sections, rows, self._engine)

    def finish(self, are_shared: Callable[[Array], Array]) -> SplitCounts:
        """The counts. `are_shared`: whether other splits have connections with these keys."""
        rows, connections = self._engine.connections, ConnectionCounts()
        is_shared = are_shared(rows["connection"])
        connections.add(rows[~is_shared])
        if self.sections is not None:
            self.sections.add_connections(rows[~is_shared])
        return SplitCounts.of(self._report, connections, self.sections, rows[is_shared], self._engine)


class TotalCounts:
    """The sum of the counts of splits, which are added in their order. `names`: the meaning of the numbers in it."""

    def __init__(self, options: RunOptions, interval: int | None = None) -> None:
        self.report = ReportCounts(by_topic=options.by_topic, interval=interval, fine=options.fine)
        self.connections = ConnectionCounts()
        self.names = NameTable(options.read.hosts)
        self._limit = (options.read.limits or Limits()).names
        #: The counts of sections over facts, if wanted.
        self.sections = (
            SectionCounts(options.sections, self._limit, self._other, options.selection.learning)
            if options.sections else None
        )  # fmt: skip
        self._shared: list[Array] = []

    def _other(self) -> int:
        return self.names.string(OTHER)

    def add(self, found: SplitCounts) -> None:
        """Add the counts of the next split."""
        numbers = _numbers_here(found.strings, found.addresses, self.names)
        self.report.merge(found.report, numbers)
        self.report.limit(self._limit, self._other)
        self.connections.merge(found.connections, numbers)
        if self.sections is not None and found.sections is not None:
            self.sections.merge(found.sections, numbers)
        self._shared.append(_renumbered_rows(found.shared, numbers))

    def name_topics(self, every: Iterable[Mapping[bytes, bytes]]) -> None:
        """Learn names of topics by their ids."""
        for names in every:
            for topic_id, name in names.items():
                self.names.name_topic(topic_id, name)

    def end_connections(self, still_open: Collection[int] = (), since: int | None = None) -> Array:
        """Count the connections that splits share, each once, after the last `add`. Return them, as CONNECTION_ROW.
        `still_open`: keys of those that stay as they are. `since`: those that ended before are not counted."""
        rows = merged_connections(joined(self._shared, CONNECTION_ROW))
        is_open = np.isin(rows["connection"], np.array(sorted(still_open), np.int64))
        ended, self._shared = rows[~is_open], [rows[is_open]]
        counted = ended if since is None else ended[ended["last"] >= since]
        self.connections.add(counted)
        if self.sections is not None:
            self.sections.add_connections(counted)
        return ended

    def seen_twice(self) -> SectionCounts | None:
        """The counts of connections that may be seen twice, also of those that have not ended."""
        if self.sections is None:
            return None
        found = SectionCounts(SEEN_TWICE, self._limit, self._other)
        for name, counts in found.forms.items():
            counts.add_columns(self.sections.forms[name].keys(), self.sections.forms[name].values())
        found.add_connections(merged_connections(joined(self._shared, CONNECTION_ROW)))
        return found

    def open_connections(self) -> SplitCounts:
        """The connections that are still open, without any counts."""
        shared = joined(self._shared, CONNECTION_ROW)
        return SplitCounts.of(ReportCounts(), ConnectionCounts(), None, shared, self.names)

    def as_split(self) -> SplitCounts:
        """The sum as the counts of one split, with the connections that are still open."""
        shared = joined(self._shared, CONNECTION_ROW)
        return SplitCounts.of(self.report, self.connections, self.sections, shared, self.names)


def sum_counts(options: RunOptions, interval: int | None, counts: Iterable[SplitCounts]) -> SplitCounts | None:
    """The sum of the counts of splits, in their order: the only ones as they are, None of none. Others as of
    `TotalCounts`."""
    rest = iter(counts)
    first = next(rest, None)
    second = next(rest, None)
    if first is None or second is None:
        return first
    total = TotalCounts(options, interval)
    for each in chain((first, second), rest):
        total.add(each)
    return total.as_split()


def _columns_of(rows: Array, names: frozenset[str]) -> list[Array]:
    """The columns of CONNECTION_ROW rows among these."""
    return [rows[name] for name in rows.dtype.names or () if name in names]


def _distinct(numbers: Iterable[Array]) -> list[int]:
    """The numbers of names in some arrays."""
    return [number for number in np.unique(np.concatenate(list(numbers))).tolist() if number >= 0]


def _named(
    strings: Iterable[int], addresses: Iterable[int], names: Names
) -> tuple[dict[int, bytes | None], dict[int, str]]:
    return {n: names.strings[n] for n in strings}, {n: names.addresses[n] for n in addresses}


def _renumbered_rows(rows: Array, numbers: Numbers) -> Array:
    """Copies of CONNECTION_ROW rows with other numbers of strings and addresses."""
    rows = rows.copy()
    for names, kind in ((STRING_COLUMNS, TEXT), (ADDRESS_COLUMNS, ADDRESS)):
        for column in _columns_of(rows, names):
            column[:] = numbers[kind][column]
    return rows


def _numbers_here(strings: Mapping[int, bytes | None], addresses: Mapping[int, str], names: NameTable) -> Numbers:
    """The numbers in `names` by those of a split."""
    return numbers_by_kind(_by_number(strings, names.string), _by_number(addresses, names.address))


def _by_number(names: Mapping[int, Name], number_of: Callable[[Name], int]) -> Array:
    found = np.full(max(names, default=-1) + 1, -1, np.int64)
    for old, name in names.items():
        found[old] = number_of(name)
    return found


def merged_connections(rows: Array) -> Array:
    """One CONNECTION_ROW for each connection. Each of the rows, in order of splits, counts the packets of one split.
    How a column is merged is declared with it (`reports/connection_columns.py`)."""
    if not len(rows):
        return rows
    groups = _Groups(rows)
    rows = taken(rows, groups.order)
    merged: Array = np.zeros(len(groups.starts), rows.dtype)
    for column in COLUMNS:
        merged[column.field] = _merged(column, rows, groups)
    return merged


def _merged(column: ColumnSpec, rows: Array, groups: _Groups) -> Array:
    """A column of the merged rows. `rows`: in the order of `groups`."""
    values, rule, order = rows[column.field], column.merge.rule, column.merge.order
    if rule == "sum":
        return np.add.reduceat(values, groups.starts)
    if rule == "greatest":
        ranks = np.argsort(np.array(order))[values] if order else values
        found = np.maximum.reduceat(ranks, groups.starts)
        return np.array(order)[found] if order else found
    known = _known(column, rows) if column.merge.among is None else column.merge.among(rows)
    if rule == "first":
        return values[groups.first(known)]
    if rule == "latest":
        return values[groups.latest(known)]
    if rule == "least":
        found = np.minimum.reduceat(np.where(known, values, _MOST), groups.starts)
        return np.where(np.logical_or.reduceat(known, groups.starts), found, column.missing)
    raise ValueError(f"rows with the column {column.name} are not merged")


def _known(column: ColumnSpec, rows: Array) -> Array:
    nulls = column.nulls(rows)
    return np.ones(len(rows), bool) if nulls is None else ~nulls


class _Groups:
    """Rows in groups of one connection: `order` makes them adjacent, in order of time. `starts`: the first row of each
    group in that order."""

    def __init__(self, rows: Array) -> None:
        self.order = np.lexsort((rows["last"], rows["connection"]))
        connection = rows["connection"][self.order]
        self.starts = np.flatnonzero(np.concatenate(([True], connection[1:] != connection[:-1])))
        self._lasts = np.concatenate((self.starts[1:], [len(rows)])) - 1
        self._rows = np.arange(len(rows))

    def latest(self, holds: Array) -> Array:
        """The last row of each group for which a condition holds (bool), or else the last row."""
        found = np.maximum.reduceat(np.where(holds, self._rows, -1), self.starts)
        return np.where(found >= 0, found, self._lasts)

    def first(self, holds: Array) -> Array:
        """The first row of each group for which a condition holds (bool), or else the last row."""
        found = np.minimum.reduceat(np.where(holds, self._rows, len(self._rows)), self.starts)
        return np.where(found < len(self._rows), found, self._lasts)
