"""What live capture counted, as metric families for Prometheus and OpenTelemetry.

`Metrics` is a sink: once a second it adds what came new in that second to tables of its own, by slots of `labels`
instead of names, so that they are bounded and nothing in them goes backwards, whatever the monitor forgets or resets.
`families` makes points of these tables and of the monitor's status; it may be called from any thread.

Histograms of few buckets are made of the fine ones of `reports.histogram`: a value next to a bound may fall on its
other side, if it is within 0.8 % of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from kafkatap.dissector.dtypes import FETCHES
from kafkatap.dissector.kafka.error_codes import error_name
from kafkatap.reports.batch import Array, Context, endpoint
from kafkatap.reports.counting import tally
from kafkatap.reports.counting.count_table import MIN, SUM, CountTable
from kafkatap.reports.counting.histogram import BUCKETS, middle
from kafkatap.reports.counting.rollup import api_label, group_columns

from ..broker_health import COUNTS, RTTS, VALUES
from ..screen.breakdown import names_of
from ..sinks import Sink
from .buckets import BOUNDS
from .families import COUNTER, HISTOGRAM, Family, Point, ledger_families, process_families, status_families
from .labels import Labels, label

if TYPE_CHECKING:
    from kafkatap.reports.counting.counts import ReportCounts

    from ...engine import Engine
    from ..monitor import Status

SECOND = 1_000_000_000
PRODUCE = 0
#: Label values of their own, at most: clients and topics (each), brokers, APIs, errors.
TOP, BROKERS, APIS, ERRORS = 50, 100, 150, 150

_OUTCOMES = ("answered", "no_reply_expected", "unanswered", "response_lost")
_LATENCIES = {"broker": tally.M_BROKER, "total": tally.M_TOTAL}
_CALLS = ("api", "broker")


class _Counter(NamedTuple):
    """A counter that is a column of a table, in units of 1 / `scale`: 1e9 for ns."""

    name: str
    table: str
    column: str
    help: str
    scale: float = 1


_COUNTERS = (
    _Counter("kafkatap_request_bytes_total", "calls", "request_bytes", "Size of the requests."),
    _Counter("kafkatap_response_bytes_total", "calls", "response_bytes", "Size of the responses."),
    _Counter("kafkatap_requests_with_errors_total", "calls", "failed_exchanges",
             "Requests whose response has an error code, at any level of it."),
    _Counter("kafkatap_hol_wait_seconds_total", "calls", "hol_wait_ns",
             "Time that requests waited behind earlier ones of their connection.", 1e9),
    _Counter("kafkatap_client_requests_total", "clients", "requests", "Requests by client_id."),
    _Counter("kafkatap_client_request_bytes_total", "clients", "request_bytes", "Size of the requests by client_id."),
    _Counter("kafkatap_client_response_bytes_total", "clients", "response_bytes",
             "Size of the responses by client_id."),
    _Counter("kafkatap_client_errors_total", "clients", "error_codes",
             "Error codes by client_id, at any level of the responses."),
    _Counter("kafkatap_throttled_responses_total", "clients", "throttled",
             "Responses with a throttle_time_ms above zero."),
    _Counter("kafkatap_throttle_time_seconds_total", "clients", "throttle_time_ms",
             "The throttle_time_ms that brokers told, summed.", 1e3),
    _Counter("kafkatap_throttle_wait_seconds_total", "clients", "throttle_wait_ns",
             "What quotas really delayed on the wire: since Kafka 2.0 the request after a throttled response.", 1e9),
    _Counter("kafkatap_topic_requests_total", "topics", "requests",
             "Produce, Fetch and ShareFetch requests by topic; one about several topics counts for each."),
    _Counter("kafkatap_topic_produce_bytes_total", "topics", "produce_bytes",
             "Size of the Produce requests about a topic; one about several topics counts for each."),
    _Counter("kafkatap_topic_fetch_bytes_total", "topics", "fetch_bytes",
             "Size of the responses to Fetch and ShareFetch about a topic; one about several topics counts for each."),
    _Counter("kafkatap_topic_errors_total", "topics", "error_codes",
             "Error codes for a topic or one of its partitions."),
    _Counter("kafkatap_errors_total", "errors", "count", "Error codes other than 0, at any level of the responses."),
)  # fmt: skip

_LATENCY_HELP = {
    "broker": "Time from a request's last byte (or, where later, the previous response of the connection, or the end "
    "of a throttle window) to the response's first byte. long_poll: a Fetch that waited out its max_wait_ms. Bounds "
    "are within 0.8 %.",
    "total": "Time from a request's first byte to the response's last byte. long_poll: a Fetch that waited out its "
    "max_wait_ms. Bounds are within 0.8 %.",
}


#: Counters of connections by broker: name, help, and the columns of `broker_health` by the label `by`, if it has one.
_CONNECTIONS: tuple[tuple[str, str, dict[tuple[str, ...], str]], ...] = (
    ("connections_opened", "Connections whose handshake was answered.", {(): "opened"}),
    ("connections_refused", "Connections that a RST refused: nothing listens there.", {(): "refused"}),
    ("connections_unanswered", "Connections whose SYN nothing answered for a second.", {(): "unanswered"}),
    ("connections_reset", "Connections that a RST ended, by who sent it.",
     {("client",): "reset_by_client", ("broker",): "reset_by_broker"}),
    ("retransmitted_packets", "Packets that were sent again, by who sent them.",
     {("client",): "client_retransmitted", ("broker",): "broker_retransmitted"}),
    ("zero_window_packets", "Packets that say that their sender has no room, by who sent them.",
     {("client",): "client_zero_windows", ("broker",): "broker_zero_windows"}),
)  # fmt: skip
_HANDSHAKE_HELP = "Round trips of handshakes: SYN to the ACK of the SYN-ACK."


class _Table:
    """Counts by slots of some dimensions. The last column is when the first exchange that counts there began, ns."""

    def __init__(self, dimensions: tuple[str, ...], columns: tuple[str, ...]) -> None:
        self.dimensions = dimensions
        self.columns = (*columns, "first")
        self._ops = [SUM] * len(columns) + [MIN]
        self._counts = CountTable(len(dimensions), self._ops, 16)
        self._shown = np.zeros((0, len(columns)), np.int64)

    def add(self, slots: Mapping[str, Array], values: Mapping[str, Array]) -> None:
        """Add rows: by name of dimension and of column, int64 (n,) each."""
        keys = np.column_stack([slots[name] for name in self.dimensions])
        self._counts.add(keys, np.column_stack([values[name] for name in self.columns]))

    def drop(self, dimension: str, slot: int) -> None:
        """Throw away what was counted under a slot other than 0."""
        if not slot or dimension not in self.dimensions:
            return
        old = self._counts
        kept = old.key_rows()[:, self.dimensions.index(dimension)] != slot
        if not kept.all():
            self._counts = CountTable(len(self.dimensions), self._ops, max(16, int(kept.sum())))
            self._counts.add(old.key_rows()[kept], old.value_rows()[kept])
            self._shown = self._shown[kept[: len(self._shown)]]

    def rows(self) -> tuple[Array, Array]:
        """A copy of the keys and values: int64 (rows, dimensions) and (rows, columns). No sum is less than it was in
        the copy before: where an outcome that was foretold did not come, it waits for the next of its kind."""
        keys, values = self._counts.key_rows().copy(), self._counts.value_rows().copy()
        sums = values[:, :-1]
        before = len(self._shown)
        np.maximum(sums[:before], self._shown, out=sums[:before])
        self._shown = sums.copy()
        return keys, values


class Metrics(Sink):
    """`top`: how many clients and how many topics have series of their own; the rest is "other"."""

    def __init__(self, top: int = TOP) -> None:
        self._lock = Lock()
        self._labels = {
            "api": Labels(APIS), "broker": Labels(BROKERS), "client_id": Labels(top), "topic": Labels(top),
            "error": Labels(ERRORS),
        }  # fmt: skip
        asked = {name: tuple(c.column for c in _COUNTERS if c.table == name) for name in {c.table for c in _COUNTERS}}
        self._tables = {
            "calls": _Table(_CALLS, (*_OUTCOMES, *asked["calls"])),
            "clients": _Table(("client_id",), asked["clients"]),
            "topics": _Table(("topic",), asked["topics"]),
            "errors": _Table(("api", "error"), asked["errors"]),
            "connections": _Table(("broker",), VALUES),
            "handshake": _Table(("broker",), (*map(str, BOUNDS), "more", "sum")),
            **{name: _Table((*_CALLS, "long_poll"), (*map(str, BOUNDS), "more", "sum")) for name in _LATENCIES},
        }
        self._health: Mapping[str, Array] = {}  # of the second that is added next
        self._ledger: dict[str, dict[str, int]] = {}
        self._ledger_before: dict[str, dict[str, int]] = {}
        self._started = time.time_ns()

    def health(self, rows: Mapping[str, Array]) -> None:
        self._health = rows

    def second(self, now: int, counts: ReportCounts, engine: Engine) -> None:
        """Add the counts of one second."""
        names = names_of(engine)
        ledger = engine.ledger()
        with self._lock:
            freed = self._add_groups(now, counts, names)
            freed["topic"] = self._add_topics(counts, names)
            freed["error"] = self._add_errors(counts)
            for dimension, slot in freed.items():
                for table in self._tables.values():
                    table.drop(dimension, slot)
            self._add_ledger(ledger)

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
        for name, metric in _LATENCIES.items():
            table = self._tables[name]
            owner, bucket, count = counts.histograms.of(metric)
            rows = np.zeros((len(weights), len(BOUNDS) + 1), np.int64)
            np.add.at(rows, (owner, _coarse()[bucket]), count)
            columns = (*rows.T, values[f"{name}_ns"], values["first"])
            table.add(_taken(slots, answered), _taken(dict(zip(table.columns, columns, strict=True)), answered))
        return freed

    def _add_topics(self, counts: ReportCounts, names: Context) -> int:
        """Only what carries records, or an error: a Metadata request may be about all topics that there are."""
        keys, values = _columns(counts.topics, tally.TOPIC_KEY, tally.GROUP_VALUES)
        produce, fetch = keys["api_key"] == PRODUCE, np.isin(keys["api_key"], FETCHES)
        values["requests"] = values["requests"] * (produce | fetch)
        values["produce_bytes"] = values["request_bytes"] * produce
        values["fetch_bytes"] = values["response_bytes"] * fetch
        busy = np.flatnonzero(values["requests"] + values["error_codes"])
        keys, values = _taken(keys, busy), _taken(values, busy)
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
        """Connections of brokers, whose labels were admitted with those of the requests."""
        values = np.array(list(self._health.values()), np.int64).reshape(-1, len(VALUES))
        slots = np.array([self._labels["broker"].slot(label(name)) for name in self._health], np.int64)
        began = np.full(len(slots), first, np.int64)
        columns = dict(zip(VALUES, values.T, strict=True))
        table = self._tables["connections"]
        table.add({"broker": slots}, {**columns, "first": began})
        table = self._tables["handshake"]
        rtts = (*(columns[name] for name in RTTS), columns["rtt_ns"], began)
        table.add({"broker": slots}, dict(zip(table.columns, rtts, strict=True)))
        self._health = {}

    def _slots(
        self, dimension: str, codes: Array, text: Callable[[int], str], weights: Array, more: Mapping[str, Array] = {}
    ) -> tuple[Array, int]:
        """The slot of each row's label: int64 (n,), and the one that is freed. `text` is asked once for each code.
        `more`: other names to be admitted with these."""
        distinct, of = np.unique(codes, return_inverse=True)
        texts = [text(n) for n in distinct.tolist()]
        sums = np.bincount(of, weights, len(texts))
        others = {label(name): int(row[: len(COUNTS)].sum()) for name, row in more.items()}
        others = {name: weight for name, weight in others.items() if name not in texts}
        every = np.concatenate((sums, np.fromiter(others.values(), np.float64, len(others))))
        slots, freed = self._labels[dimension].admit([*texts, *others], every)
        return slots[of], freed

    def _add_ledger(self, ledger: dict[str, dict[str, int]]) -> None:
        for section, parts in ledger.items():
            before, sums = self._ledger_before.get(section, {}), self._ledger.setdefault(section, {})
            for part, number in parts.items():
                new = number - before.get(part, 0)
                sums[part] = sums.get(part, 0) + (new if new >= 0 else number)  # less: it was begun anew
        self._ledger_before = ledger

    def families(self, status: Status) -> list[Family]:
        """All that is known now. `status`: the monitor's."""
        with self._lock:
            copies = {name: table.rows() for name, table in self._tables.items()}
            texts = {name: list(labels.texts) for name, labels in self._labels.items()}
            ledger = {section: dict(parts) for section, parts in self._ledger.items()}
        texts["long_poll"] = ["false", "true"]
        shown = {name: _Shown(table, *copies[name], texts) for name, table in self._tables.items()}
        return [
            _requests(shown["calls"]),
            *(_latency(name, shown[name]) for name in _LATENCIES),
            *(_counted(counter, shown[counter.table]) for counter in _COUNTERS),
            *_connections(shown["connections"]),
            _histogram("kafkatap_handshake_seconds", _HANDSHAKE_HELP, shown["handshake"]),
            *ledger_families(ledger, self._started),
            *status_families(status, self._started),
            *process_families(self._started),
        ]


def _columns(
    table: CountTable, key_names: Sequence[str], value_names: Iterable[str]
) -> tuple[dict[str, Array], dict[str, Array]]:
    """Keys and values by name: int64 (rows,) each; `requests` with them where there are outcomes."""
    keys = group_columns(table, key_names)
    values = dict(zip(value_names, table.value_rows().T, strict=True))
    if "answered" in values:
        values["requests"] = sum((values[name] for name in _OUTCOMES), np.zeros(len(table), np.int64))
    return keys, values


def _taken(columns: Mapping[str, Array], rows: Array) -> dict[str, Array]:
    return {name: column[rows] for name, column in columns.items()}


def _api(api_key: int) -> str:
    return label(api_label(api_key))


@cache
def _coarse() -> Array:
    """The bucket of BOUNDS for each fine one: int64 (BUCKETS,)."""
    bounds = (np.array(BOUNDS) * SECOND).astype(np.int64)
    return np.searchsorted(bounds, middle(np.arange(BUCKETS)), side="left")


class _Shown:
    """A table's rows as lists: `labels` a tuple each, `first`, and `columns` by name."""

    def __init__(self, table: _Table, keys: Array, values: Array, texts: Mapping[str, Sequence[str]]) -> None:
        self.dimensions = table.dimensions
        shown = [[texts[name][n] for n in keys[:, i].tolist()] for i, name in enumerate(table.dimensions)]
        self.labels = list(zip(*shown, strict=True))
        self.columns = dict(zip(table.columns, values.T.tolist(), strict=True))
        self.first: list[int] = self.columns["first"]


def _requests(calls: _Shown) -> Family:
    """Outcomes that any request may have are there from a label's first one on, so that `rate` sees the first of
    each; the others as they come."""
    points = [
        Point((*labels, outcome), number, first)
        for outcome in _OUTCOMES
        for labels, number, first in zip(calls.labels, calls.columns[outcome], calls.first, strict=True)
        if number or outcome in ("answered", "unanswered")
    ]
    text = "Requests by what came of them."
    return Family("kafkatap_requests_total", COUNTER, text, (*calls.dimensions, "outcome"), points)


def _connections(shown: _Shown) -> Iterator[Family]:
    for name, text, columns in _CONNECTIONS:
        points = [
            Point((*labels, *also), shown.columns[column][row], first)
            for also, column in columns.items()
            for row, (labels, first) in enumerate(zip(shown.labels, shown.first, strict=True))
        ]
        dimensions = (*shown.dimensions, "by") if len(columns) > 1 else shown.dimensions
        yield Family(f"kafkatap_{name}_total", COUNTER, text, dimensions, points)


def _latency(name: str, shown: _Shown) -> Family:
    return _histogram(f"kafkatap_{name}_latency_seconds", _LATENCY_HELP[name], shown)


def _histogram(name: str, text: str, shown: _Shown) -> Family:
    *buckets, sums, _ = shown.columns.values()
    points = [
        Point(labels, total / SECOND, first, counts)
        for labels, total, first, *counts in zip(shown.labels, sums, shown.first, *buckets, strict=True)
    ]
    return Family(name, HISTOGRAM, text, shown.dimensions, points)


def _counted(counter: _Counter, shown: _Shown) -> Family:
    numbers = shown.columns[counter.column]
    if counter.scale != 1:
        numbers = [number / counter.scale for number in numbers]
    points = [Point(*point) for point in zip(shown.labels, numbers, shown.first, strict=True)]
    return Family(counter.name, COUNTER, counter.help, shown.dimensions, points)
