"""`ReportCounts`: the counts of a run, from which all reports are made.

`add` takes batches. `merge` adds two counts: the result does not depend on how the rows were split. The interval of the
timeline grows only when the timeline becomes too large (`INTERVALS`, `TIMELINE_LIMIT`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from kafkatap.dissector.dtypes import ORPHAN_RESPONSE, OUTCOMES
from kafkatap.dissector.results import EXCHANGE_TOPIC
from kafkatap.kernels.arrays import distinct_values

from ..batch import Array, Batch
from . import tally, traffic
from .count_forms import OTHER, CountForm, CountStore, FormCounts, Numbers, kinds_of, numbers_by_kind
from .count_table import EMPTY, MAX, SUM, CountTable
from .histogram import NOTED, Histograms, keys_of

SECOND = 1_000_000_000
#: Possible intervals of the timeline, ns, unless the user chose one. Each is a multiple of the one before.
INTERVALS = tuple(s * SECOND for s in (1, 5, 10, 60, 300, 600, 3600, 86400))
#: The first interval of `fine` counts, ns: a short capture still has enough columns in a heat map.
FINE = SECOND // 10
#: The timeline takes the next interval when its histograms have more rows than this.
TIMELINE_LIMIT = 200_000
#: Exchanges of a batch for which there is room at first: a power of two.
_ROOM = 1024
_NO_TOPICS = np.zeros(0, EXCHANGE_TOPIC)
_UNLIMITED = 2**63

GROUPS = CountForm(
    "groups", kinds_of(tally.GROUP_KEY), tally.GROUP_VALUES,
    {"client_id": OTHER, "software": -1, "software_version": -1, "client_ip": -1, "client_port": 0},
    tally.METRICS, weights=len(OUTCOMES), further={"broker_ip": -1, "broker_port": 0, "api_version": -1},
)  # fmt: skip
TOPICS = CountForm(
    "topics", kinds_of(tally.TOPIC_KEY), tally.GROUP_VALUES, {"topic": OTHER, "topic_id": -1}, tally.METRICS,
    weights=len(OUTCOMES),
)  # fmt: skip
#: Times are bounded by TIMELINE_LIMIT instead.
_TIMELINE = CountForm("timeline", kinds_of(tally.TIMELINE_KEY), tally.TIMELINE_VALUES, {}, tally.METRICS)
ERRORS = CountForm(
    "errors", kinds_of(tally.ERROR_KEY), tally.ERROR_VALUES,
    {"client_id": OTHER, "topic": -1, "topic_id": -1, "name": -1, "broker_ip": -1, "broker_port": 0},
)  # fmt: skip
#: In the order of `tally.TallyTables`.
_FORMS = (GROUPS, TOPICS, _TIMELINE, ERRORS)
#: Rows of `traffic` with which its intervals become longer, as long as there are enough of them.
_TRAFFIC_ROWS, _TRAFFIC_INTERVALS = 100_000, 300


class ReportCounts:
    """Counts of a run: of all exchanges that are added.

    `by_topic`: count topics too (then `results` must hold all rows). `interval`: ns of the timeline's intervals; None:
    as long as the timeline needs, and at first FINE with `fine`. `by_connection`: count each connection, by the
    client's address and port. `fine`: count what charts need (`traffic`), too.
    """

    def __init__(
        self,
        *,
        by_topic: bool = False,
        interval: int | None = None,
        by_connection: bool = False,
        fine: bool = False,
    ) -> None:
        self.by_topic, self.by_connection, self.fine = by_topic, by_connection, fine
        self.traffic_interval = FINE
        self.interval = interval or (FINE if fine else INTERVALS[0])
        self.fixed_interval = interval is not None
        noted = {"groups": NOTED, "topics": NOTED if by_topic else 0, "timeline": NOTED}
        self._store = CountStore(
            FormCounts(form, 16 if form in (TOPICS, traffic.FORM) else 256, noted.get(form.name, 0))
            for form in (*_FORMS, traffic.FORM)
        )
        self._group_of: Array = np.empty(_ROOM, np.int32)
        self._interval_of: Array = np.empty(_ROOM, np.int32)
        self._places: Array = np.empty(2 * _ROOM, np.int32)
        self._probe: Array = np.zeros(16, np.int64)
        self._stamps: Array
        self._memo: Array
        self._state: Array
        self._add_batch: Callable[..., int] | None  # the kernel with the tables of now
        self._forget_rows()

    @property
    def groups(self) -> CountTable:
        return self._store["groups"].table

    @property
    def histograms(self) -> Histograms:
        """Those of groups."""
        return self._store["groups"].histograms

    @property
    def topics(self) -> CountTable:
        return self._store["topics"].table

    @property
    def topic_histograms(self) -> Histograms:
        return self._store["topics"].histograms

    @property
    def timeline(self) -> CountTable:
        return self._store["timeline"].table

    @property
    def timeline_histograms(self) -> Histograms:
        return self._store["timeline"].histograms

    @property
    def errors(self) -> CountTable:
        return self._store["errors"].table

    @property
    def traffic(self) -> FormCounts:
        """The counts of `traffic.FORM`, by intervals of `traffic_interval` ns."""
        return self._store[traffic.FORM.name]

    def counts_of(self, form: CountForm) -> FormCounts:
        """The counts of GROUPS, TOPICS or ERRORS."""
        return self._store[form.name]

    def add_intervals(self, groups: FormCounts, intervals: Array, errors: FormCounts, interval: int) -> None:
        """Add counts of GROUPS and ERRORS, which may have other keys before their own. `intervals`: int64 (groups,),
        the number of the interval in which each row of `groups` begins. `interval`: its length, ns."""
        self._lengthen(interval, interval)
        for form, counts in ((GROUPS, groups), (ERRORS, errors)):
            own = list(counts.form.keys)[-len(form.keys) :]
            assert own == list(form.keys), "only other keys come before those of the form"
            self._store[form.name].merge(counts.table.key_rows()[:, -len(own) :], counts)
        keys, values = groups.keys(), groups.values()
        has_broker_time = keys["long_poll"] == 0
        columns = {
            **{name: values[name] for name in tally.TIMELINE_VALUES if name in values},
            "requests": np.sum([values[name] for name in OUTCOMES[:ORPHAN_RESPONSE]], axis=0),
            "bytes": values["request_bytes"] + values["response_bytes"],
            "broker_max": np.where(has_broker_time, values["broker_max"], EMPTY[MAX]),
        }
        owners, bucket, times = groups.buckets("broker")
        chosen = has_broker_time[owners]
        self._store["timeline"].add_rows(
            np.stack((intervals // (self.interval // interval), keys["api_key"]), axis=1),
            np.stack([columns[name] for name in tally.TIMELINE_VALUES], axis=1),
            keys_of(owners[chosen], tally.M_BROKER, bucket[chosen]), times[chosen],
        )  # fmt: skip
        traffic.add_groups(self.traffic, groups, intervals // (self.traffic_interval // interval))
        self._keep_limits()

    def add(self, batch: Batch) -> None:
        """Add a batch. The caller may reuse its arrays."""
        exchanges = batch.exchanges
        if len(exchanges) == 0:
            return
        if len(exchanges) > len(self._group_of):
            self._make_room(len(exchanges))
        results, topics = batch.counted_results, _NO_TOPICS if batch.topics is None else batch.topics
        while True:
            add_batch = self._add_batch
            if add_batch is None:
                add_batch = self._bind()
            if add_batch(exchanges, results, topics, self.interval, self.by_topic) == tally.ADDED:
                break
            self._grow()
        if self.fine:
            traffic.add_batch(self.traffic, batch, self.traffic_interval)
            self._coarsen_traffic()
        if not self.fixed_interval:
            self._coarsen()

    def move_topics(self, other: FormCounts, place: int) -> None:
        """Move the counts by topic to others, of `by_place(TOPICS)`."""
        self._store["topics"].move_to(other, place)
        self._stamps.fill(0)

    def add_topics(self, keys: Array, topics: FormCounts) -> None:
        """Add counts by topic, whose keys have become `keys`."""
        self._store["topics"].merge(keys, topics)
        self._add_batch = None

    def _make_room(self, exchanges: int) -> None:
        """Make room for batches of so many exchanges."""
        room = 1 << (exchanges - 1).bit_length()
        self._group_of, self._interval_of = np.empty(room, np.int32), np.empty(room, np.int32)
        self._places = np.empty(2 * room, np.int32)
        self._add_batch = None

    def _grow(self) -> None:
        """Make more space in all tables that may be full."""
        for counts in self._store.forms.values():
            counts.table.reserve(64)
            counts.histograms.reserve(1024)
        missing = self.topics.capacity - len(self._stamps)
        if missing > 0:
            self._stamps = np.concatenate((self._stamps, np.zeros(missing, np.int64)))
        self._add_batch = None

    def _bind(self) -> Callable[..., int]:
        groups, topics, timeline, errors = (
            tally.Counted(*each.table.arrays, each.histograms.noted, each.histograms.used)
            for each in (self._store[form.name] for form in _FORMS)
        )
        tables = tally.TallyTables(
            groups, topics, timeline, errors, self._stamps, self._memo, self._group_of, self._interval_of,
            self._places, self._probe, self._state,
        )  # fmt: skip
        bound = self._add_batch = tally.add_batch.bound(tables)
        return bound

    def _forget_rows(self) -> None:
        """Forget what is noted by numbers of rows, as they are others now."""
        self._stamps = np.zeros(0, np.int64)
        self._memo = np.full(tally.MEMO, -1, np.int32)
        self._state = np.zeros(1, tally.TALLY_STATE)
        self._state["by_connection"] = self.by_connection
        self._add_batch = None

    @property
    def rows(self) -> int:
        """The rows of the largest table."""
        return max(len(self.groups), len(self.topics), len(self.errors))

    def total(self, name: str) -> int:
        """The sum of one of GROUP_VALUES over all groups."""
        return int(self.groups.value_rows()[:, list(tally.GROUP_VALUES).index(name)].sum())

    def finish(self) -> None:
        """Merge the noted values of histograms."""
        for counts in self._store.forms.values():
            counts.histograms.merge_noted()
        if not self.fixed_interval:
            self._coarsen()

    def seal(self) -> None:
        """`finish`, and release the memory that only `add` needs. Afterwards only `merge` is possible."""
        self.finish()
        for counts in self._store.forms.values():
            counts.histograms.seal()
        self._add_batch = None

    def _coarsen(self) -> None:
        while len(self.timeline_histograms) > TIMELINE_LIMIT:
            longer = [i for i in INTERVALS if i > self.interval]
            if not longer:
                return
            self._set_interval(longer[0])

    def _coarsen_traffic(self) -> None:
        while len(self.traffic) > _TRAFFIC_ROWS and self.traffic_interval < INTERVALS[-1]:
            times = self.traffic.table.key_rows()[:, 0]
            if np.ptp(times) < _TRAFFIC_INTERVALS or len(distinct_values(times)) < _TRAFFIC_INTERVALS:
                return
            self._set_traffic_interval(next(i for i in INTERVALS if i > self.traffic_interval))

    def _set_interval(self, interval: int) -> None:
        """Roll up the timeline to a multiple of its interval."""
        self._store.rekey("timeline", _times(self._store["timeline"], interval // self.interval))
        self.interval = interval
        self._add_batch = None

    def _set_traffic_interval(self, interval: int) -> None:
        self._store.rekey(traffic.FORM.name, _times(self.traffic, interval // self.traffic_interval))
        self.traffic_interval = interval

    def merge(self, other: ReportCounts, numbers: Numbers | None = None) -> None:
        """Add other counts with the same options. `numbers`: the number here of each number there; None: the same."""
        other.finish()
        self._lengthen(other.interval, other.traffic_interval)
        self._store.merge(other._store, numbers, {
            "timeline": _times(other._store["timeline"], self.interval // other.interval, numbers),
            "traffic": _times(other.traffic, self.traffic_interval // other.traffic_interval, numbers),
        })  # fmt: skip
        self._keep_limits()

    def _lengthen(self, interval: int, traffic_interval: int) -> None:
        """Make room for counts with intervals of at least these lengths, ns."""
        self._add_batch = None
        if self.interval < interval:
            self._set_interval(interval)
        if self.traffic_interval < traffic_interval:
            self._set_traffic_interval(traffic_interval)

    def _keep_limits(self) -> None:
        """Keep the limits of the timeline and of traffic."""
        self._coarsen_traffic()
        # The other histograms are merged when they are read. Merging all of them here would cost too much.
        self.timeline_histograms.merge_noted()
        if not self.fixed_interval:
            self._coarsen()

    def subtract(self, other: ReportCounts) -> None:
        """Subtract the counts of exchanges without a response, except their first and last times. The caller adds
        other counts of the same exchanges."""
        other.finish()
        for table in (other.groups, other.topics, other.timeline, other.traffic.table):
            table.value_rows()[:, table.ops == SUM] *= -1
        self.merge(other)

    def renumber(self, strings: Array, addresses: Array) -> None:
        """Change the numbers of strings and addresses: int64, the new number of each old one."""
        self.finish()
        self._store.renumber(numbers_by_kind(strings, addresses))
        self._forget_rows()

    def limit(self, rows: int, other: Callable[[], int], buckets: int = _UNLIMITED) -> None:
        """Add up the small rows of tables with more than `rows` rows as `(other)`.

        `other` returns the number of that string. `buckets`: of histograms; with more of them there are fewer rows.
        """
        for form in (GROUPS, TOPICS, ERRORS, traffic.FORM):
            counts = self._store[form.name]
            most = rows if len(counts.histograms) <= buckets else min(rows, len(counts) // 2)
            most = max(most, 2 * _TRAFFIC_ROWS) if form is traffic.FORM else most
            if len(counts) > most:
                self.finish()
                self._store.forms[form.name] = counts.without_small_rows(most, other())
                self._forget_rows()

    def names_used(self) -> tuple[Array, Array]:
        """The numbers of strings and of addresses in the keys, ascending: int64 (n,) each."""
        self.finish()
        return self._store.names_used()

    def __getstate__(self) -> dict[str, Any]:
        """For other processes."""
        self.finish()
        return {name: getattr(self, name) for name in _STATE}

    def __setstate__(self, state: dict[str, Any]) -> None:
        ReportCounts.__init__(self, by_topic=state["by_topic"], by_connection=state["by_connection"])
        self.__dict__.update(state)


#: What goes to other processes.
_STATE = ("by_topic", "by_connection", "fine", "interval", "traffic_interval", "fixed_interval", "_store")


def _times(counts: FormCounts, multiple: int, numbers: Numbers | None = None) -> Array:
    """The keys of counts by intervals that are so many times as long. `numbers`: as of `ReportCounts.merge`."""
    keys = counts.table.key_rows().copy() if numbers is None else counts.keys_with(numbers)
    keys[:, 0] //= multiple
    return keys
