"""Metrics for OpenTelemetry: the same families as for Prometheus, sent to a collector every few seconds (OTLP/HTTP).

One thread sends one message at a time. If the collector fails, that message is lost. The next one makes up for it,
because all sums are those since the start. A line reports the first failure, and another one the recovery.

This uses the SDK's data classes and its exporter, not its instruments. The exporter reads
OTEL_EXPORTER_OTLP_ENDPOINT, _HEADERS, _TIMEOUT, _COMPRESSION, _CERTIFICATE and the like for metrics.
OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES add attributes of this process.
"""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Callable, Sequence
from threading import Event, Thread
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from kafkatap.reports.units import cut, safe

from ...installation import install_command, own_version
from ..latency_buckets import BUCKET_BOUNDS
from .metric_list import COUNTER, HISTOGRAM, Family

if TYPE_CHECKING:
    from .metrics import Metrics
    from .prometheus_server import Watched

SECOND = 1_000_000_000
#: Seconds for the last message at the end.
FAREWELL = 3
UNITS = {"seconds": "s", "bytes": "By", "": "1"}
_LOGGER = "opentelemetry.exporter.otlp.proto.http.metric_exporter"


class Exporter:
    """Sends messages until it is closed, and one more then."""

    def __init__(
        self,
        metrics: Metrics,
        monitor: Watched,
        endpoint: str | None = None,
        interval: int = 15 * SECOND,
        notify: Callable[[str], None] = print,
    ) -> None:
        try:
            from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        except ModuleNotFoundError:
            raise OSError(f"OTLP needs opentelemetry ({install_command('otlp')})") from None
        self._metrics = metrics
        self._monitor = monitor
        self._where = _host(endpoint) if endpoint else "the collector"
        self._interval = interval / SECOND
        self._notify = notify
        self._failing = False
        self._log = _FirstLogLine()
        logger = logging.getLogger(_LOGGER)
        logger.handlers[:] = [self._log]
        logger.propagate = False  # else Python writes each failure to standard error
        self._exporter = OTLPMetricExporter(endpoint)
        self._resource = _resource()
        self._stop = Event()
        self._thread = Thread(target=self._run, name="otlp", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        self._thread.join(FAREWELL)
        self._exporter.shutdown()
        self._thread.join(1)

    def _run(self) -> None:
        while not self._stop.wait(self._interval):
            self._send()
        if not self._failing:
            self._send()

    def _send(self) -> None:
        self._log.first = ""
        try:
            from opentelemetry.sdk.metrics.export import MetricExportResult

            families = self._metrics.families(self._monitor.status)
            result = self._exporter.export(metrics_data(families, self._resource, time.time_ns()))
            failed = result is not MetricExportResult.SUCCESS
        except Exception as error:  # the capture must continue in any case
            failed, self._log.first = True, str(error)
        if failed and not self._failing:
            self._notify(f"metrics cannot be sent to {self._where}, still trying: {cut(safe(self._log.first), 200)}")
        elif self._failing and not failed:
            self._notify(f"metrics are sent to {self._where} again")
        self._failing = failed


def export(
    metrics: Metrics,
    monitor: Watched,
    endpoint: str | None = None,
    interval: int = 15 * SECOND,
    notify: Callable[[str], None] = print,
) -> Exporter:
    """Send metrics to a collector every `interval` ns until the exporter is closed.

    `endpoint`: the whole URL with its path; None: from the environment, else http://localhost:4318/v1/metrics.
    `notify` gets a line when sending fails and when it works again. OSError if the libraries are missing.
    """
    return Exporter(metrics, monitor, endpoint, interval, notify)


def metrics_data(families: Sequence[Family], resource: Any, now: int) -> Any:
    """Families as the SDK's MetricsData, with cumulative sums. `now`: ns since the epoch."""
    from opentelemetry.sdk.metrics.export import Metric, MetricsData, ResourceMetrics, ScopeMetrics
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope

    scope = InstrumentationScope("kafkatap", own_version())
    metrics = [Metric(f.metric.name, f.metric.help, UNITS[f.metric.unit], _data(f, now)) for f in families if f.points]
    return MetricsData([ResourceMetrics(resource, [ScopeMetrics(scope, metrics, "")], "")])


def _data(family: Family, now: int) -> Any:
    from opentelemetry.sdk.metrics.export import (
        AggregationTemporality,
        Gauge,
        Histogram,
        HistogramDataPoint,
        NumberDataPoint,
        Sum,
    )

    kind = family.metric.kind
    labels = [dict(zip(family.metric.labels, point.labels, strict=True)) for point in family.points]
    if kind == HISTOGRAM:
        values = [
            HistogramDataPoint(each, p.since, now, sum(p.counts), p.value, p.counts, BUCKET_BOUNDS, None, None)
            for each, p in zip(labels, family.points, strict=True)
        ]
        return Histogram(values, AggregationTemporality.CUMULATIVE)
    numbers = [NumberDataPoint(each, p.since, now, p.value) for each, p in zip(labels, family.points, strict=True)]
    if kind == COUNTER:
        return Sum(numbers, AggregationTemporality.CUMULATIVE, is_monotonic=True)
    return Gauge(numbers)


def _resource() -> Any:
    """The sender: this program on this host, with the attributes of the environment."""
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource

    host = socket.gethostname()
    own = {
        "service.name": "kafkatap", "service.version": own_version(), "service.instance.id": host, "host.name": host,
    }  # fmt: skip
    return Resource(own).merge(OTELResourceDetector().detect())


def _host(url: str) -> str:
    """Host and port of a URL, without a password in front of them."""
    return safe(urlsplit(url).netloc.rpartition("@")[2])


class _FirstLogLine(logging.Handler):
    """Keeps the first line that the exporter logs. Later lines have no reason."""

    first = ""

    def emit(self, record: logging.LogRecord) -> None:
        errors = [each for each in record.args or () if isinstance(each, BaseException)]
        self.first = self.first or (_cause(errors[0]) if errors else record.getMessage())


def _cause(error: BaseException) -> str:
    """The innermost reason: requests and urllib3 wrap errors in errors."""
    inner = getattr(error, "reason", None) or next(iter(error.args), None)
    return _cause(inner) if isinstance(inner, BaseException) else str(error)
