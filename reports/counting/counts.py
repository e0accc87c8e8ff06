"""`ReportCounts`: the counts of a run, from which all reports are made.

`add` takes batches. Small batches are gathered first, so that a kernel call covers about a thousand rows. `merge` adds
two counts: the result does not depend on how the rows were split. The interval of the timeline grows only when the
timeline becomes too large (`INTERVALS`, `TIMELINE_LIMIT`).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from kafkatap.dissector.dtypes import EXCHANGE, NO_REPLY_EXPECTED, RESPONSE_LOST, RESULT, UNANSWERED
from kafkatap.kernels.arrays import as_bytes, taken

from ..batch import ADDRESS_COLUMNS, STRING_COLUMNS, Array, Batch, as_results, rows_of
from . import tally
from .count_table import SUM, CountTable
from .histogram import NOTED, OWNER_SHIFT, Histograms

SECOND = 1_000_000_000
#: Possible intervals of the timeline, ns, unless the user chose one. Each is a multiple of the one before.
INTERVALS = tuple(s * SECOND for s in (1, 5, 10, 60, 300, 600, 3600, 86400))
#: The timeline takes the next interval when its histograms have more rows than this.
TIMELINE_LIMIT = 200_000
#: Batches smaller than this are gathered.
GATHER = 1024


class ReportCounts:
    """Counts of a run: of all exchanges that are added.

    `by_topic`: count topics too (then `results` must hold all rows). `interval`: ns of the timeline's intervals; None:
    as long as the timeline needs.
    """

    def __init__(self, *, by_topic: bool = False, interval: int | None = None) -> None:
        self.by_topic = by_topic
        self.interval = interval or INTERVALS[0]
        self.fixed_interval = interval is not None
        self.groups = CountTable(len(tally.GROUP_KEY), list(tally.GROUP_VALUES.values()))
        self.histograms = Histograms()
        self.topics = CountTable(len(tally.TOPIC_KEY), list(tally.GROUP_VALUES.values()), 16)
        self.topic_histograms = Histograms(NOTED if by_topic else 0)
        self.timeline = CountTable(2, list(tally.TIMELINE_VALUES.values()))
        self.timeline_histograms = Histograms()
        self.errors = CountTable(len(tally.ERROR_KEY), list(tally.ERROR_VALUES.values()))
        self._probe = np.zeros(16, np.int64)
        self._group_of = np.empty(GATHER, np.int32)
        self._interval_of = np.empty(GATHER, np.int32)
        self._stamps = np.zeros(0, np.int64)
        self._gathered: Array = np.zeros(GATHER * EXCHANGE.itemsize, np.uint8)
        self._rows = 0
        self._results: list[Array] = []

    def add(self, batch: Batch) -> None:
        """Add a batch. The caller may reuse its arrays."""
        exchanges, results = batch.exchanges, batch.results
        if self.by_topic and batch.topics is not None:
            results = _with_requested_topics(exchanges, results, batch.topics)
        if len(exchanges) >= GATHER:
            self._add(exchanges, results)
            return
        if self._rows + len(exchanges) > GATHER:
            self._flush()
        # As bytes: numpy copies records field by field.
        size = EXCHANGE.itemsize
        self._gathered[self._rows * size : (self._rows + len(exchanges)) * size] = exchanges.view(np.uint8)
        self._rows += len(exchanges)
        if len(results):
            self._results.append(results.view(np.uint8).copy())

    def finish(self) -> None:
        """Count what was gathered."""
        self._flush()
        for histograms in (self.histograms, self.topic_histograms, self.timeline_histograms):
            histograms.merge_noted()
        if not self.fixed_interval:
            self._coarsen()

    def seal(self) -> None:
        """`finish`, and release the memory that only `add` needs. Afterwards only `merge` is possible."""
        self.finish()
        for histograms in (self.histograms, self.topic_histograms, self.timeline_histograms):
            histograms.seal()
        self._gathered = self._gathered[:0].copy()

    def _flush(self) -> None:
        rows, self._rows = self._rows, 0
        results, self._results = self._results, []
        if rows:
            exchanges = self._gathered[: rows * EXCHANGE.itemsize].view(EXCHANGE)
            self._add(exchanges, np.concatenate(results).view(RESULT) if results else np.zeros(0, RESULT))

    def _add(self, exchanges: Array, results: Array) -> None:
        if len(exchanges) == 0:
            return
        if len(self._group_of) < len(exchanges):
            self._group_of = np.empty(len(exchanges), np.int32)
            self._interval_of = np.empty(len(exchanges), np.int32)
        self._add_exchanges(exchanges)
        if len(results):
            exchange_of = rows_of(exchanges["exchange"], results["exchange"])
            self._add_errors(exchanges, results, exchange_of)
            if self.by_topic:
                self._add_topics(exchanges, results, exchange_of)
        if not self.fixed_interval:
            self._coarsen()

    def _add_exchanges(self, exchanges: Array) -> None:
        done = 0
        while done < len(exchanges):
            self.groups.reserve(64)
            self.histograms.reserve(1024)
            self.timeline.reserve(64)
            self.timeline_histograms.reserve(1024)
            g, h, t, b = self.groups, self.histograms, self.timeline, self.timeline_histograms
            done = tally.add_exchanges(
                exchanges, done, self.interval, self._group_of, self._interval_of, self._probe,
                g.keys, g.values, g.slots, g.used, h.noted, h.used,
                t.keys, t.values, t.slots, t.used, b.noted, b.used,
            )  # fmt: skip

    def _add_errors(self, exchanges: Array, results: Array, exchange_of: Array) -> None:
        done = 0
        while done < len(results):
            self.errors.reserve(64)
            e = self.errors
            done = tally.add_errors(
                exchanges, results, exchange_of, done, self._group_of, self._interval_of, self._probe,
                self.groups.values, self.timeline.values, e.keys, e.values, e.slots, e.used,
            )  # fmt: skip

    def _add_topics(self, exchanges: Array, results: Array, exchange_of: Array) -> None:
        done = 0
        while done < len(results):
            self.topics.reserve(64)
            self.topic_histograms.reserve(1024)
            k, h = self.topics, self.topic_histograms
            if len(self._stamps) < k.capacity:
                self._stamps = np.concatenate((self._stamps, np.zeros(k.capacity - len(self._stamps), np.int64)))
            done = tally.add_topics(
                exchanges, results, exchange_of, done, self._probe,
                k.keys, k.values, k.slots, k.used, self._stamps, h.noted, h.used,
            )  # fmt: skip

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
        _merge_owned(self.timeline, self.timeline_histograms, keys, old.value_rows(), old_histograms)

    def merge(self, other: ReportCounts) -> None:
        """Add other counts. Both have the same options, and the same numbers mean the same names (`renumber`)."""
        if self._rows:
            self.finish()
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
        result = ReportCounts(by_topic=self.by_topic, interval=self.interval)
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
                    found[name in STRING_COLUMNS].append(np.unique(table.key_rows()[:, column]))
        strings, addresses = (np.unique(np.concatenate(found[which])) for which in (True, False))
        return strings[strings >= 0], addresses[addresses >= 0]


def _with_requested_topics(exchanges: Array, results: Array, topics: Array) -> Array:
    """RESULT rows, plus one row for each topic of a request without a response."""
    alone = exchanges["exchange"][np.isin(exchanges["outcome"], (NO_REPLY_EXPECTED, UNANSWERED, RESPONSE_LOST))]
    requested = np.flatnonzero(np.isin(topics["exchange"], alone)) if len(alone) else alone
    if not len(requested):
        return results
    rows = as_results(taken(topics, requested))
    rows["topic_id"][rows["topic"] >= 0] = -1  # a topic with a name counts by name, as in responses
    return np.concatenate((as_bytes(results), as_bytes(rows))).view(RESULT)


def _merge_owned(table: CountTable, histograms: Histograms, keys: Array, values: Array, added: Histograms) -> None:
    """Add rows, and the histograms that they own, to `table` and `histograms`."""
    table.add(keys, values)
    owners = table.find(keys)
    added.merge_noted()
    if len(added):
        low = added.keys & ((1 << OWNER_SHIFT) - 1)
        histograms.add((owners[added.keys >> OWNER_SHIFT] << OWNER_SHIFT) | low, added.counts)
