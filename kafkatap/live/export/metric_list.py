"""Every metric that `kafkatap live` exports, declared once: name, kind, labels, help, and the counts behind it.

`metrics` fills the counts. `prometheus_server` and `otlp_exporter` write them. docs/live-metrics.md lists the same
names and labels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ..broker_health import RTTS, VALUES
from ..latency_buckets import BUCKET_BOUNDS

COUNTER, GAUGE, HISTOGRAM = "counter", "gauge", "histogram"
#: Outcomes of requests, as label values and as columns of `calls`.
OUTCOMES = ("answered", "no_reply_expected", "in_flight", "unanswered", "response_lost")
#: Sections of the ledger.
LEDGER = {
    "packets": "Packets by what they are.",
    "payload bytes": "TCP payload by where it ended, counted when its connection is over.",
    "requests": "Requests by where they ended.",
    "responses": "Responses by where they ended.",
}
#: What `Sink.unwritten` counts.
UNWRITTEN = {"packet_bytes": "Bytes of packets that --write-pcap", "rows": "Rows of tables that --parquet"}
#: The tables of counts behind metrics, with the labels of their rows.
TABLES: dict[str, tuple[str, ...]] = {
    "calls": ("api", "broker"),
    "broker": ("api", "broker", "long_poll"),
    "total": ("api", "broker", "long_poll"),
    "clients": ("client_id",),
    "topics": ("topic",),
    "errors": ("api", "error"),
    "connections": ("broker",),
    "handshakes": ("broker",),
}
#: The columns of a histogram's table: a count for each bucket, and the sum of all values, ns.
HISTOGRAM_COLUMNS = (*(f"up_to_{bound}" for bound in BUCKET_BOUNDS), "above", "sum")


@dataclass(frozen=True, slots=True)
class Metric:
    """`name` as Prometheus has it; counters end in `_total`.

    `table`: one of TABLES, if the counts are there. `columns`: of a counter the column of that table, by the values of
    the labels that the table does not have. `scale`: how many units of the column make one of the metric.
    """

    name: str
    kind: str
    help: str
    labels: tuple[str, ...] = ()
    table: str = ""
    columns: Mapping[tuple[str, ...], str] = field(default_factory=dict)
    scale: float = 1

    @property
    def unit(self) -> str:
        """`seconds`, `bytes`, or "" for a plain number."""
        words = self.name.removesuffix("_total").split("_")
        return words[-1] if words[-1] in ("seconds", "bytes") else ""


class Point(NamedTuple):
    """One series of a metric: its label values in the order of the metric's labels, and its value in base units.

    Of a histogram, `value` is the sum, and `counts` has the number of values in each bucket alone: one more than
    BUCKET_BOUNDS. `since`: ns since the epoch, at or before the first thing counted; 0 if that is unknown.
    """

    labels: tuple[str, ...]
    value: float
    since: int = 0
    counts: Sequence[int] = ()


class Family(NamedTuple):
    """A metric with its series."""

    metric: Metric
    points: Sequence[Point]


def ledger_metric(section: str) -> str:
    """A section of the ledger as a part of a metric's name."""
    return section.replace(" ", "_")


def _counter(name: str, table: str, column: str, text: str, scale: float = 1) -> Metric:
    return Metric(f"kafkatap_{name}_total", COUNTER, text, TABLES[table], table, {(): column}, scale)


def _by(label: str, name: str, table: str, columns: Mapping[str, str], text: str) -> Metric:
    """A counter with one more label, whose values are in different columns."""
    each: dict[tuple[str, ...], str] = {(value,): column for value, column in columns.items()}
    return Metric(f"kafkatap_{name}_total", COUNTER, text, (*TABLES[table], label), table, each)


def _histogram(name: str, table: str, text: str) -> Metric:
    text = f"{text} Bounds are within 0.8 %."
    return Metric(f"kafkatap_{name}_seconds", HISTOGRAM, text, TABLES[table], table)


def _count(name: str, text: str, *labels: str) -> Metric:
    return Metric(f"kafkatap_{name}_total", COUNTER, text, labels)


def _gauge(name: str, text: str, *labels: str) -> Metric:
    return Metric(f"kafkatap_{name}", GAUGE, text, labels)


def _by_sender(what: str) -> dict[str, str]:
    return {"client": f"client_{what}", "broker": f"broker_{what}"}


METRICS: tuple[Metric, ...] = (
    _by("outcome", "requests", "calls", {name: name for name in OUTCOMES}, "Requests by outcome."),
    _histogram("broker_time", "broker",
               "Time from a request's last byte to the response's first byte, without throttle and head-of-line wait. "
               "long_poll: a Fetch that waited out its max_wait_ms."),
    _histogram("total_time", "total",
               "Time from a request's first byte to the response's last byte. "
               "long_poll: a Fetch that waited out its max_wait_ms."),
    _counter("hol_wait_seconds", "calls", "hol_wait_ns",
             "Head-of-line wait: time that requests waited behind earlier ones of their connection.", 1e9),
    _counter("request_bytes", "calls", "request_bytes", "Size of the requests."),
    _counter("response_bytes", "calls", "response_bytes", "Size of the responses."),
    _counter("failed_exchanges", "calls", "failed_exchanges", "Exchanges whose response has an error code."),
    _counter("error_codes", "errors", "count", "Error codes other than 0, at any level of the responses."),
    _counter("client_requests", "clients", "requests", "Requests by client_id."),
    _counter("client_request_bytes", "clients", "request_bytes", "Size of the requests by client_id."),
    _counter("client_response_bytes", "clients", "response_bytes", "Size of the responses by client_id."),
    _counter("client_error_codes", "clients", "error_codes", "Error codes by client_id, at any level."),
    _counter("throttled_responses", "clients", "throttled", "Responses with a throttle_time_ms above 0."),
    _counter("throttle_time_seconds", "clients", "throttle_time_ms", "Sum of throttle_time_ms in the responses.", 1e3),
    _counter("throttle_wait_seconds", "clients", "throttle_wait_ns",
             "Throttle wait: what clients really waited on the wire because of throttling.", 1e9),
    _counter("topic_requests", "topics", "requests",
             "Produce, Fetch and ShareFetch requests by topic. A request for several topics counts for each."),
    _counter("topic_produce_bytes", "topics", "produce_bytes",
             "Size of the Produce requests for a topic. A request for several topics counts for each."),
    _counter("topic_fetch_bytes", "topics", "fetch_bytes",
             "Size of the responses to Fetch and ShareFetch for a topic. One for several topics counts for each."),
    _counter("topic_error_codes", "topics", "error_codes", "Error codes of a topic or its partitions."),
    _counter("connections_opened", "connections", "opened", "Connections whose handshake was answered."),
    _counter("connections_refused", "connections", "refused",
             "Connections that a RST or an ICMP message refused: no process listens there, or a firewall rejects."),
    _counter("connections_unanswered", "connections", "unanswered",
             "Connections whose SYN got no answer for a second."),
    _by("by", "connections_reset", "connections", {"client": "reset_by_client", "broker": "reset_by_broker"},
        "Connections that a RST ended, by who sent it."),
    _by("by", "retransmitted_packets", "connections", _by_sender("retransmitted"),
        "Retransmitted packets, by who sent them."),
    _by("by", "zero_window_packets", "connections", _by_sender("zero_windows"),
        "Packets with a receive window of zero, by who sent them."),
    _histogram("handshake_rtt", "handshakes", "Round trip of TCP handshakes: SYN to the ACK of the SYN-ACK."),
    _count("events", "Events, such as brokers that stop, hang or return, by kind.", "event"),
    _count("captured_packets", "Packets that were analysed."),
    _count("payload_bytes", "TCP payload on the wire."),
    _count("dropped_packets", "Packets that the kernel dropped because they were not read in time."),
    *(_count(f"unwritten_{name}", f"{text} could not write: the disk was full, away or too slow.")
      for name, text in UNWRITTEN.items()),
    *(_count(f"ledger_{ledger_metric(section)}", text, "place") for section, text in LEDGER.items()),
    *(_gauge(f"ledger_open_{ledger_metric(section)}", f"{section.capitalize()} without a place in the ledger so far.")
      for section in LEDGER),
    _gauge("detail_level", "How much is decoded: 1 for the current level, 0 for the others.", "level"),
    _gauge("open_connections", "Open TCP connections."),
    _gauge("waiting_requests", "Requests without a response so far."),
    _gauge("longest_wait_seconds",
           "How long the oldest request of a broker waits for its response, without the time for which the broker may "
           "hold it for data, for other members or because of a quota.", "broker"),
    _gauge("events_late_seconds",
           "How much later events may come, because it takes too much processor time to look for them."),
    _gauge("encrypted_ratio", "The share of the TCP payload that is TLS and was not decrypted, 0 to 1."),
    _gauge("decrypted_ratio", "The share of the TCP payload that is TLS and was decrypted, 0 to 1."),
    _gauge("last_second_timestamp_seconds", "When counts were last added, seconds since the epoch."),
    _gauge("last_packet_timestamp_seconds", "When the latest packet came, seconds since the epoch."),
    _gauge("interface_info", "The interfaces that are captured; always 1.", "interface"),
    _gauge("build_info", "The versions of kafkatap and Python; always 1.", "version", "python"),
)  # fmt: skip


def table_columns(table: str) -> tuple[str, ...]:
    """The columns of a table that metrics read."""
    if any(metric.kind == HISTOGRAM for metric in METRICS if metric.table == table):
        return HISTOGRAM_COLUMNS
    return tuple(column for metric in METRICS if metric.table == table for column in metric.columns.values())


#: How the columns of `broker_health` are called in the tables `connections` and `handshakes`.
HEALTH_COLUMNS = {
    "connections": {column: column for column in VALUES},
    "handshakes": dict(zip(HISTOGRAM_COLUMNS, (*RTTS, "rtt_ns"), strict=True)),
}
