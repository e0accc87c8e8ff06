"""Live counts as metrics, for Prometheus and OpenTelemetry.

`Metrics` is a sink. Once a second it adds the new counts to tables of its own, by slots of `label_slots` instead of
names. So memory is bounded, and no series goes backwards when the monitor forgets names or resets its counts.
`families` reads these tables and the monitor's status; any thread may call it.

The few buckets of a histogram are sums of the fine ones in `reports.counting.histogram`. A value within 0.8 % of a
bound may be counted on its other side.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from threading import Lock
from typing import TYPE_CHECKING

import numpy as np

from kafkatap.dissector.dtypes import FETCHES
from kafkatap.dissector.kafka.error_codes import error_name
from kafkatap.reports.batch import Array, Context, endpoint
from kafkatap.reports.counting import tally
from kafkatap.reports.counting.count_table import MIN, SUM, CountTable
from kafkatap.reports.counting.histogram import BUCKETS, middle
from kafkatap.reports.counting.rollup import api_label, group_columns, value_columns

from ..broker_health import COUNTS, VALUES
from ..latency_buckets import BUCKET_BOUNDS
from ..sink import Sink, names_of
from .label_slots import BROKERS, Labels, label
from .metric_list import (
    HEALTH_COLUMNS,
    HISTOGRAM,
    HISTOGRAM_COLUMNS,
    METRICS,
    OUTCOMES,
    TABLES,
    Family,
    Metric,
    Point,
    table_columns,
)
from .status_metrics import LedgerCounters, ledger_points, process_families, status_points

if TYPE_CHECKING:
    from kafkatap.reports.counting.counts import ReportCounts
    from kafkatap.reports.findings import Finding

    from ...engine.engine import Engine
    from ..status import Status

SECOND = 1_000_000_000
#: Seconds after which the bytes of open connections are counted anew: a look at all of them takes milliseconds.
_PLACES_SECONDS = 5
PRODUCE = 0
#: Label values with series of their own, at most: clients and topics (each), APIs, errors.
TOP, APIS, ERRORS = 50, 150, 150
#: Outcomes whose series begin with the first such request. Those of the others begin with a label's first request, so
#: that `rate` sees the first one.
_RARE = ("no_reply_expected", "response_lost")


class _Table:
    """Counts by slots of labels. The last column, `first`, is when the first exchange that counts there began, ns."""

    def __init__(self, dimensions: tuple[str, ...], columns: tuple[str, ...]) -> None:
        self.dimensions = dimensions
        self.columns = (*columns, "first")
        self._ops = [SUM] * len(columns) + [MIN]
        self._counts = CountTable(len(dimensions), self._ops, 16)
        self._shown = np.zeros((0, len(columns)), np.int64)

    def add(self, slots: Mapping[str, Array], values: Mapping[str, Array]) -> None:
        """Add rows: int64 (n,) for each dimension and each column."""
        keys = np.column_stack([slots[name] for name in self.dimensions])
        self._counts.add(keys, np.column_stack([values[name] for name in self.columns]))

    def drop(self, dimension: str, slot: int) -> None:
        """Remove the counts of a slot other than 0."""
        if not slot or dimension not in self.dimensions:
            return
        old = self._counts
        kept = old.key_rows()[:, self.dimensions.index(dimension)] != slot
        if not kept.all():
            self._counts = CountTable(len(self.dimensions), self._ops, max(16, int(kept.sum())))
            self._counts.add(old.key_rows()[kept], old.value_rows()[kept])
            self._shown = self._shown[kept[: len(self._shown)]]

    def rows(self) -> tuple[Array, Array]:
        """A copy of the keys and values: int64 (rows, dimensions) and (rows, columns). No sum is less than in the copy
        before: after a provisional row was revoked, a sum stays until it has caught up."""
        keys, values = self._counts.key_rows().copy(), self._counts.value_rows().copy()
        sums = values[:, :-1]
        before = len(self._shown)
        np.maximum(sums[:before], self._shown, out=sums[:before])
        self._shown = sums.copy()
        return keys, values


class Metrics(Sink):
    """`top`: how many clients and how many topics have series of their own. The rest is "other"."""

    def __init__(self, top: int = TOP) -> None:
        self._lock = Lock()
        self._labels = {
            "api": Labels(APIS), "broker": Labels(BROKERS), "client_id": Labels(top), "topic": Labels(top),
            "error": Labels(ERRORS),
        }  # fmt: skip
        self._tables = {name: _Table(labels, table_columns(name)) for name, labels in TABLES.items()}
        self._health: Mapping[str, Array] = {}  # of the second that is added next
        self._ledger = LedgerCounters()
        self._events: dict[str, int] = {}
        self._started = time.time_ns()

    def add_event(self, finding: Finding) -> None:
        with self._lock:
            self._events[finding.id] = self._events.get(finding.id, 0) + 1

    def add_health(self, rows: Mapping[str, Array]) -> None:
        self._health = rows

    def end_second(self, now: int, counts: ReportCounts, engine: Engine) -> None:
        """Add the counts of one second."""
        names = names_of(engine)
        has_places = now // SECOND % _PLACES_SECONDS == 0
        ledger = engine.ledger(with_open=has_places)
        if not has_places:
            ledger["payload bytes"] = {"total": ledger["payload bytes"]["total"]}
        with self._lock:
            freed = self._add_groups(now, counts, names)
            freed["topic"] = self._add_topics(counts, names)
            freed["error"] = self._add_errors(counts)
            for dimension, slot in freed.items():
                for table in self._tables.values():
                    table.drop(dimension, slot)
            self._ledger.add(ledger)

    def close(self, engine: Engine) -> None:
        with self._lock:
            self._ledger.add(engine.ledger())

    def _add_groups(self, now: int, counts: ReportCounts, names: Context) -> dict[str, int]:
        keys, values = _columns(counts.groups, tally.GROUP_KEY, tally.GROUP_VALUES)
        weights = values["requests"] + values["orphan_response"]

        def broker(code: int) -> str:
            return endpoint(names.address(code >> 32), code & 0xFFFFFFFF)

        freed: dict[str, int] = {}
        slots = {"long_poll": keys["long_poll"]}
        codes = keys["broker_ip"] << 32 | keys["broker_port"]
        slots["broker"], freed["broker"] = self._slots("broker", codes, broker, weights, self._health)
        for dimension, codes, text in (
            ("api", keys["api_key"], _api),
            ("client_id", keys["client_id"], lambda n: label(names.text(n))),
        ):
            slots[dimension], freed[dimension] = self._slots(dimension, codes, text, weights)
        self._add_health(int(values["first"].min(initial=now)))
        self._tables["calls"].add(slots, values)
        self._tables["clients"].add(slots, values)
        answered = np.flatnonzero(values["answered"])
        for name, metric in (("broker", tally.M_BROKER), ("total", tally.M_TOTAL)):
            owner, bucket, count = counts.histograms.of(metric)
            rows = np.zeros((len(weights), len(BUCKET_BOUNDS) + 1), np.int64)
            np.add.at(rows, (owner, _coarse()[bucket]), count)
            columns = dict(zip(HISTOGRAM_COLUMNS, (*rows.T, values[f"{name}_ns"]), strict=True))
            columns["first"] = values["first"]
            self._tables[name].add(_selected(slots, answered), _selected(columns, answered))
        return freed

    def _add_topics(self, counts: ReportCounts, names: Context) -> int:
        """Add only topics with records or errors: a Metadata request may name all topics of a cluster."""
        keys, values = _columns(counts.topics, tally.TOPIC_KEY, tally.GROUP_VALUES)
        produce, fetch = keys["api_key"] == PRODUCE, np.isin(keys["api_key"], FETCHES)
        values["requests"] = values["requests"] * (produce | fetch)
        values["produce_bytes"] = values["request_bytes"] * produce
        values["fetch_bytes"] = values["response_bytes"] * fetch
        busy = np.flatnonzero(values["requests"] + values["error_codes"])
        keys, values = _selected(keys, busy), _selected(values, busy)
        codes = np.where(keys["topic"] >= 0, keys["topic"], -2 - keys["topic_id"])
        slots, freed = self._slots(
            "topic", codes, lambda n: label(names.topic(n, -2 - n)), values["requests"] + values["error_codes"]
        )
        self._tables["topics"].add({"topic": slots}, values)
        return freed

    def _add_errors(self, counts: ReportCounts) -> int:
        keys, values = _columns(counts.errors, tally.ERROR_KEY, tally.ERROR_VALUES)
        slots, freed = self._slots("error", keys["error_code"], error_name, values["count"])
        distinct, of = np.unique(keys["api_key"], return_inverse=True)
        api = np.array([self._labels["api"].slot(_api(n)) for n in distinct.tolist()], np.int64)
        self._tables["errors"].add({"api": api[of], "error": slots}, values)
        return freed

    def _add_health(self, first: int) -> None:
        """Add the connections of brokers. Their labels were admitted with those of the requests."""
        rows = np.array(list(self._health.values()), np.int64).reshape(-1, len(VALUES))
        values = dict(zip(VALUES, rows.T, strict=True))
        slots = np.array([self._labels["broker"].slot(label(name)) for name in self._health], np.int64)
        for name, columns in HEALTH_COLUMNS.items():
            chosen = {column: values[source] for column, source in columns.items()}
            self._tables[name].add({"broker": slots}, {**chosen, "first": np.full(len(slots), first, np.int64)})
        self._health = {}

    def _slots(
        self, dimension: str, codes: Array, text: Callable[[int], str], weights: Array, more: Mapping[str, Array] = {}
    ) -> tuple[Array, int]:
        """The slot of each row's label, int64 (n,), and the slot that is freed. `text` names a code and is called once
        for each. `more`: other names to admit with these."""
        distinct, of = np.unique(codes, return_inverse=True)
        texts = [text(n) for n in distinct.tolist()]
        sums = np.bincount(of, weights, len(texts))
        others = {label(name): int(row[: len(COUNTS)].sum()) for name, row in more.items()}
        others = {name: weight for name, weight in others.items() if name not in texts}
        every = np.concatenate((sums, np.fromiter(others.values(), np.float64, len(others))))
        slots, freed = self._labels[dimension].admit([*texts, *others], every)
        return slots[of], freed

    def families(self, status: Status) -> list[Family]:
        """All metrics with their series now. `status`: the monitor's."""
        with self._lock:
            copies = {name: table.rows() for name, table in self._tables.items()}
            texts = {name: list(labels.texts) for name, labels in self._labels.items()}
            ledger = self._ledger.sums()
            events = [Point((kind,), count, self._started) for kind, count in sorted(self._events.items())]
        texts["long_poll"] = ["false", "true"]
        named = {name: _Named(table, *copies[name], texts) for name, table in self._tables.items()}
        single = {**status_points(status, self._started), **ledger_points(ledger, self._started)}
        single["kafkatap_events_total"] = events
        return [
            *(Family(m, _points(m, named[m.table]) if m.table else single[m.name]) for m in METRICS),
            *process_families(self._started),
        ]


def _columns(
    table: CountTable, key_names: Sequence[str], value_names: Iterable[str]
) -> tuple[dict[str, Array], dict[str, Array]]:
    """Keys and values by name: int64 (rows,) each; `requests` with them where there are outcomes."""
    keys = group_columns(table, key_names)
    values = value_columns(table, value_names)
    if "answered" in values:
        values["requests"] = sum((values[name] for name in OUTCOMES), np.zeros(len(table), np.int64))
    return keys, values


def _selected(columns: Mapping[str, Array], rows: Array) -> dict[str, Array]:
    """Some rows of columns."""
    return {name: column[rows] for name, column in columns.items()}


def _api(api_key: int) -> str:
    return label(api_label(api_key))


@cache
def _coarse() -> Array:
    """The bucket of BUCKET_BOUNDS for each fine one: int64 (BUCKETS,)."""
    bounds = (np.array(BUCKET_BOUNDS) * SECOND).astype(np.int64)
    return np.searchsorted(bounds, middle(np.arange(BUCKETS)), side="left")


class _Named:
    """A table's rows as lists, with names for slots: `labels` (a tuple each), `first`, and `columns` by name."""

    def __init__(self, table: _Table, keys: Array, values: Array, texts: Mapping[str, Sequence[str]]) -> None:
        names = [[texts[name][n] for n in keys[:, i].tolist()] for i, name in enumerate(table.dimensions)]
        self.labels = list(zip(*names, strict=True))
        self.columns = dict(zip(table.columns, values.T.tolist(), strict=True))
        self.first: list[int] = self.columns["first"]


def _points(metric: Metric, table: _Named) -> list[Point]:
    """The series of a metric whose counts are in a table."""
    if metric.kind == HISTOGRAM:
        *buckets, sums = (table.columns[name] for name in HISTOGRAM_COLUMNS)
        rows = zip(table.labels, sums, table.first, *buckets, strict=True)
        return [Point(labels, total / SECOND, first, counts) for labels, total, first, *counts in rows]
    return [
        Point((*labels, *more), number / metric.scale, first)
        for more, column in metric.columns.items()
        for labels, number, first in zip(table.labels, table.columns[column], table.first, strict=True)
        if number or column not in _RARE
    ]
