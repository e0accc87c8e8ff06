"""Metrics for Prometheus: an HTTP server that answers scrapes, in threads of its own.

A scrape shows the counts up to the last whole second. The capture waits only while rows are copied.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import accumulate
from socketserver import TCPServer, ThreadingMixIn
from threading import BoundedSemaphore, Thread, Timer
from typing import TYPE_CHECKING, Any, Protocol
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from ...complaints import reason_of
from ...installation import install_command
from ..latency_buckets import BUCKET_BOUNDS
from .metric_list import COUNTER, HISTOGRAM, Family

if TYPE_CHECKING:
    from prometheus_client import Metric

    from ..status import Status
    from .metrics import Metrics

#: Seconds after which a client is disconnected whose request has not come, or which has not read the answer.
PATIENCE = 10
#: Scrapes at a time; further ones are disconnected.
AT_ONCE = 4
_BOUNDS = (*map(str, BUCKET_BOUNDS), "+Inf")


class Watched(Protocol):
    """A monitor, as far as it is used here."""

    @property
    def status(self) -> Status: ...


class Server:
    """`address`: the (host, port) at which it listens, with the real port if 0 was requested."""

    def __init__(self, metrics: Metrics, monitor: Watched, address: tuple[str, int]) -> None:
        try:
            from prometheus_client import CollectorRegistry, make_wsgi_app
        except ModuleNotFoundError:
            raise OSError(f"metrics need prometheus_client ({install_command('live')})") from None
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_Collector(metrics, monitor))
        host, port = address
        try:
            family, _, _, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            self._http = _HTTPServer(family, where)
        except OSError as error:
            shown = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
            raise OSError(f"cannot serve metrics at {shown}: {reason_of(error)}") from None
        self._http.set_app(_with_name(_with_head(make_wsgi_app(registry))))
        self.address = self._http.server_name, self._http.server_port
        self._thread = Thread(target=self._http.serve_forever, args=(0.1,), name="prometheus", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


def serve(metrics: Metrics, monitor: Watched, address: tuple[str, int]) -> Server:
    """Answer scrapes at (host, port) until the server is closed. OSError, with a line to show, if it cannot."""
    return Server(metrics, monitor, address)


class _Collector:
    def __init__(self, metrics: Metrics, monitor: Watched) -> None:
        self._metrics = metrics
        self._monitor = monitor

    def collect(self) -> Iterator[Metric]:
        for family in self._metrics.families(self._monitor.status):
            yield exposed(family)


def exposed(family: Family) -> Metric:
    """A family in the form of the client library."""
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

    metric = family.metric
    name, text, labels = metric.name, metric.help, metric.labels
    if metric.kind == HISTOGRAM:
        histogram = HistogramMetricFamily(name, text, labels=labels)
        for point in family.points:
            histogram.add_metric(point.labels, _cumulative(point.counts), point.value)
        return histogram
    made = (CounterMetricFamily if metric.kind == COUNTER else GaugeMetricFamily)(name, text, labels=labels)
    for point in family.points:
        made.add_metric(point.labels, point.value)
    return made


def _cumulative(counts: Sequence[int]) -> list[tuple[str, float]]:
    """Cumulative counts by bucket, as Prometheus has them."""
    return list(zip(_BOUNDS, accumulate(counts), strict=True))


def _with_name(app: Any) -> Any:
    """The same application; it tells nobody the versions of Python and of its server."""

    def answer(environ: Any, start: Any) -> Any:
        return app(environ, lambda status, headers, *rest: start(status, [*headers, ("Server", "kafkatap")], *rest))

    return answer


def _with_head(app: Any) -> Any:
    """The same application; it answers HEAD too, as probes ask: as GET, without the body."""

    def answer(environ: Any, start: Any) -> Any:
        if environ["REQUEST_METHOD"] != "HEAD":
            return app(environ, start)
        given: list[Any] = []
        body = app({**environ, "REQUEST_METHOD": "GET"}, lambda *head: given.extend(head))
        status, headers = given[:2]
        start(status, [*headers, ("Content-Length", str(sum(map(len, body))))])
        return []

    return answer


class _Handler(WSGIRequestHandler):
    """One scrape. Its time is bounded as a whole: a client may send, or read, a byte at a time."""

    timeout = PATIENCE
    server_version, sys_version = "kafkatap", ""

    def setup(self) -> None:
        super().setup()
        self._timer = Timer(PATIENCE, self._give_up)
        self._timer.daemon = True
        self._timer.start()

    def finish(self) -> None:
        self._timer.cancel()
        super().finish()

    def _give_up(self) -> None:
        with suppress(OSError):
            self.request.shutdown(socket.SHUT_RDWR)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: standard error is for the lines of live capture."""


class _HTTPServer(ThreadingMixIn, WSGIServer):
    """A thread for each scrape, AT_ONCE at most."""

    daemon_threads = True

    def __init__(self, family: int, address: Any) -> None:
        self.address_family = family
        self._free = BoundedSemaphore(AT_ONCE)
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        TCPServer.server_bind(self)  # HTTPServer's method also looks up a name in the DNS
        host, self.server_port = self.server_address[:2]
        self.server_name = str(host)
        self.setup_environ()

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that disconnect or are too slow."""
