"""`ReportCounts`: the counts of a run, from which all reports are made.

`add` takes batches. `merge` adds two counts: the result does not depend on how the rows were split. The interval of the
timeline grows only when the timeline becomes too large (`INTERVALS`, `TIMELINE_LIMIT`).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from kafkatap.dissector.results import EXCHANGE_TOPIC
from kafkatap.kernels.arrays import distinct_values

from ..batch import ADDRESS_COLUMNS, STRING_COLUMNS, Array, Batch
from . import tally
from .count_table import SUM, CountTable
from .histogram import NOTED, OWNER_SHIFT, Histograms

SECOND = 1_000_000_000
#: Possible intervals of the timeline, ns, unless the user chose one. Each is a multiple of the one before.
INTERVALS = tuple(s * SECOND for s in (1, 5, 10, 60, 300, 600, 3600, 86400))
#: The first interval of `fine` counts, ns: a short capture still has enough columns in a heat map.
FINE = SECOND // 10
#: The timeline takes the next interval when its histograms have more rows than this.
TIMELINE_LIMIT = 200_000
#: Exchanges of a batch for which there is room at first: a power of two.
_ROOM = 1024
_NO_TOPICS, _NOTHING = np.zeros(0, EXCHANGE_TOPIC), np.zeros(1, np.int64)


class ReportCounts:
    """Counts of a run: of all exchanges that are added.

    `by_topic`: count topics too (then `results` must hold all rows). `interval`: ns of the timeline's intervals; None:
    as long as the timeline needs, and at first FINE with `fine`. `by_connection`: count each connection, by the
    client's address and port.
    """

    def __init__(
        self,
        *,
        by_topic: bool = False,
        interval: int | None = None,
        by_connection: bool = False,
        fine: bool = False,
    ) -> None:
        self.by_topic, self.by_connection = by_topic, by_connection
        self.interval = interval or (FINE if fine else INTERVALS[0])
        self.fixed_interval = interval is not None
        self.groups = CountTable(len(tally.GROUP_KEY), list(tally.GROUP_VALUES.values()))
        self.histograms = Histograms()
        self.topics = CountTable(len(tally.TOPIC_KEY), list(tally.GROUP_VALUES.values()), 16)
        self.topic_histograms = Histograms(NOTED if by_topic else 0)
        self.timeline = CountTable(2, list(tally.TIMELINE_VALUES.values()))
        self.timeline_histograms = Histograms()
        self.errors = CountTable(len(tally.ERROR_KEY), list(tally.ERROR_VALUES.values()))
        self._stamps: Array = np.zeros(0, np.int64)
        self._memo: Array = np.full(tally.MEMO, -1, np.int32)
        self._group_of: Array = np.empty(_ROOM, np.int32)
        self._interval_of: Array = np.empty(_ROOM, np.int32)
        self._places: Array = np.empty(2 * _ROOM, np.int32)
        self._probe: Array = np.zeros(16, np.int64)
        self._state: Array = np.zeros(1, tally.TALLY_STATE)
        self._state["by_connection"] = by_connection
        self._add_batch: Callable[..., int] | None = None  # the kernel with the tables of now

    def add(self, batch: Batch) -> None:
        """Add a batch. The caller may reuse its arrays."""
        exchanges = batch.exchanges
        if len(exchanges) == 0:
            return
        if len(exchanges) > len(self._group_of):
            self._make_room(len(exchanges))
        topics = _NO_TOPICS if batch.topics is None else batch.topics
        while True:
            add_batch = self._add_batch
            if add_batch is None:
                add_batch = self._bind()
            if add_batch(exchanges, batch.results, topics, self.interval, self.by_topic) == tally.ADDED:
                break
            self._grow()
        if not self.fixed_interval:
            self._coarsen()

    def _make_room(self, exchanges: int) -> None:
        """Make room for batches of so many exchanges."""
        room = 1 << (exchanges - 1).bit_length()
        self._group_of, self._interval_of = np.empty(room, np.int32), np.empty(room, np.int32)
        self._places = np.empty(2 * room, np.int32)
        self._add_batch = None

    def _grow(self) -> None:
        """Make more space in all tables that may be full."""
        for table, histograms in self._counted():
            table.reserve(64)
            if histograms is not None:
                histograms.reserve(1024)
        missing = self.topics.capacity - len(self._stamps)
        if missing > 0:
            self._stamps = np.concatenate((self._stamps, np.zeros(missing, np.int64)))
        self._add_batch = None

    def _counted(self) -> tuple[tuple[CountTable, Histograms | None], ...]:
        """All tables with their histograms."""
        return (
            (self.groups, self.histograms), (self.topics, self.topic_histograms),
            (self.timeline, self.timeline_histograms), (self.errors, None),
        )  # fmt: skip

    def _bind(self) -> Callable[..., int]:
        groups, topics, timeline, errors = (
            tally.Counted(
                table.keys, table.values, table.slots, table.used,
                *((_NOTHING[:0], _NOTHING) if counts is None else (counts.noted, counts.used)),
            )
            for table, counts in self._counted()
        )  # fmt: skip
        tables = tally.TallyTables(
            groups, topics, timeline, errors, self._stamps, self._memo, self._group_of, self._interval_of,
            self._places, self._probe, self._state,
        )  # fmt: skip
        bound = self._add_batch = tally.add_batch.bound(tables)
        return bound

    @property
    def rows(self) -> int:
        """The rows of the largest table."""
        return max(len(self.groups), len(self.topics), len(self.errors))

    def total(self, name: str) -> int:
        """The sum of one of GROUP_VALUES over all groups."""
        return int(self.groups.value_rows()[:, list(tally.GROUP_VALUES).index(name)].sum())

    def finish(self) -> None:
        """Merge the noted values of histograms."""
        for histograms in (self.histograms, self.topic_histograms, self.timeline_histograms):
            histograms.merge_noted()
        if not self.fixed_interval:
            self._coarsen()

    def seal(self) -> None:
        """`finish`, and release the memory that only `add` needs. Afterwards only `merge` is possible."""
        self.finish()
        for histograms in (self.histograms, self.topic_histograms, self.timeline_histograms):
            histograms.seal()
        self._add_batch = None

    def _coarsen(self) -> None:
        while len(self.timeline_histograms) > TIMELINE_LIMIT:
            longer = [i for i in INTERVALS if i > self.interval]
            if not longer:
                return
            self._set_interval(longer[0])

    def _set_interval(self, interval: int) -> None:
        """Roll up the timeline to a multiple of its interval."""
        old, old_histograms = self.timeline, self.timeline_histograms
        old_histograms.merge_noted()
        keys = old.key_rows().copy()
        keys[:, 0] //= interval // self.interval
        self.interval = interval
        self.timeline = CountTable(2, [int(op) for op in old.ops])
        self.timeline_histograms = Histograms()
        self._add_batch = None
        _merge_owned(self.timeline, self.timeline_histograms, keys, old.value_rows(), old_histograms)

    def merge(self, other: ReportCounts) -> None:
        """Add other counts. Both have the same options, and the same numbers mean the same names (`renumber`)."""
        self._add_batch = None
        other.finish()
        if self.interval < other.interval:
            self._set_interval(other.interval)
        factor = self.interval // other.interval
        times = other.timeline.key_rows().copy()
        times[:, 0] //= factor
        for mine, counts, theirs, keys, histograms in (
            (self.groups, self.histograms, other.groups, other.groups.key_rows(), other.histograms),
            (self.topics, self.topic_histograms, other.topics, other.topics.key_rows(), other.topic_histograms),
            (self.timeline, self.timeline_histograms, other.timeline, times, other.timeline_histograms),
        ):
            _merge_owned(mine, counts, keys, theirs.value_rows(), histograms)
        self.errors.merge(other.errors)
        # The other histograms are merged when they are read. Merging all of them here would cost too much.
        self.timeline_histograms.merge_noted()
        if not self.fixed_interval:
            self._coarsen()

    def subtract(self, other: ReportCounts) -> None:
        """Subtract the counts of exchanges without a response, except their first and last times. The caller adds
        other counts of the same exchanges."""
        other.finish()
        for table in (other.groups, other.topics, other.timeline):
            table.value_rows()[:, table.ops == SUM] *= -1
        self.merge(other)

    def renumber(self, strings: Array, addresses: Array) -> ReportCounts:
        """The same counts with other numbers. `strings`, `addresses`: int64, the new number of each old one."""
        numbers = {True: np.append(strings, -1), False: np.append(addresses, -1)}

        def change(names: tuple[str, ...], keys: Array, _: Array) -> None:
            for column, name in enumerate(names):
                if name in STRING_COLUMNS or name in ADDRESS_COLUMNS:
                    keys[:, column] = numbers[name in STRING_COLUMNS][keys[:, column]]

        return self.rekeyed(change)

    def rekeyed(self, change: Callable[[tuple[str, ...], Array, Array], None]) -> ReportCounts:
        """The same counts under other keys. Rows with equal new keys are added up.

        `change` is called once for each table, with the names of its key columns, a copy of its keys to change in place
        (int64 (rows, columns)), and its values."""
        self.finish()
        result = ReportCounts(by_topic=self.by_topic, interval=self.interval, by_connection=self.by_connection)
        result.fixed_interval = self.fixed_interval
        for mine, histograms, names, table, counts in (
            (result.groups, result.histograms, tally.GROUP_KEY, self.groups, self.histograms),
            (result.topics, result.topic_histograms, tally.TOPIC_KEY, self.topics, self.topic_histograms),
            (result.timeline, result.timeline_histograms, tally.TIMELINE_KEY, self.timeline, self.timeline_histograms),
            (result.errors, None, tally.ERROR_KEY, self.errors, None),
        ):
            keys, values = table.key_rows().copy(), table.value_rows()
            change(names, keys, values)
            if histograms is None or counts is None:
                mine.add(keys, values)
            else:
                _merge_owned(mine, histograms, keys, values, counts)
        return result

    def names_used(self) -> tuple[Array, Array]:
        """The numbers of strings and of addresses in the keys, ascending: int64 (n,) each."""
        self.finish()
        found: dict[bool, list[Array]] = {True: [], False: []}
        for names, table in (
            (tally.GROUP_KEY, self.groups), (tally.TOPIC_KEY, self.topics), (tally.ERROR_KEY, self.errors),
        ):  # fmt: skip
            for column, name in enumerate(names):
                if name in STRING_COLUMNS or name in ADDRESS_COLUMNS:
                    found[name in STRING_COLUMNS].append(distinct_values(table.key_rows()[:, column]))
        strings, addresses = (distinct_values(np.concatenate(found[which])) for which in (True, False))
        return strings[strings >= 0], addresses[addresses >= 0]


def _merge_owned(table: CountTable, histograms: Histograms, keys: Array, values: Array, added: Histograms) -> None:
    """Add rows, and the histograms that they own, to `table` and `histograms`."""
    table.add(keys, values)
    owners = table.find(keys)
    added.merge_noted()
    if len(added):
        low = added.keys & ((1 << OWNER_SHIFT) - 1)
        histograms.add((owners[added.keys >> OWNER_SHIFT] << OWNER_SHIFT) | low, added.counts)
