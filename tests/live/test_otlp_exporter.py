"""What a collector gets is what was counted; one that fails is told of once, and harms nothing."""

from __future__ import annotations

import argparse
import gzip
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import Queue
from threading import Thread

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from kafkatap.commands.values import parse_collector
from kafkatap.installation import install_command
from kafkatap.live.export.metric_list import HISTOGRAM
from kafkatap.live.export.otlp_exporter import UNITS, export
from kafkatap.live.latency_buckets import BUCKET_BOUNDS

from .metered import Metered
from .support import SECOND

OFTEN = SECOND // 20


class Collector(ThreadingHTTPServer):
    """Decodes what comes; answers with `status`."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.status = 200
        self.got: Queue[tuple[str, dict[str, str], ExportMetricsServiceRequest]] = Queue()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        self.server.got.put(
            (self.path, {k.lower(): v for k, v in self.headers.items()}, ExportMetricsServiceRequest.FromString(body))
        )
        self.send_response(self.server.status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def listening() -> Iterator[Collector]:
    collector = Collector()
    thread = Thread(target=collector.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield collector
    finally:
        collector.shutdown()
        collector.server_close()
        thread.join()


@pytest.fixture
def collector() -> Iterator[Collector]:
    with listening() as it:
        yield it


@pytest.fixture(scope="module")
def seen(samples: Path) -> Metered:
    return Metered(samples / "apache-4.3.pcap.zst").run()


@pytest.fixture
def told() -> list[str]:
    return []


def sent(seen: Metered, url: str | None, told: list[str], interval: int = 3600 * SECOND) -> None:
    """Send what there is once, at the end."""
    export(seen.metrics, seen.monitor, url, interval, told.append).close()


def test_a_collector_gets_what_was_counted(seen, collector, told):
    sent(seen, parse_collector(collector.url), told)
    path, headers, message = collector.got.get(timeout=10)
    assert (path, headers["content-type"], told) == ("/v1/metrics", "application/x-protobuf", [])
    (resource,) = message.resource_metrics
    (scope,) = resource.scope_metrics
    assert scope.scope.name == "kafkatap"
    got = {metric.name: metric for metric in scope.metrics}
    families = {f.metric.name: f for f in seen.metrics.families(seen.monitor.status) if f.points}
    assert set(got) == set(families)
    for name, family in families.items():
        metric = got[name]
        kind = metric.WhichOneof("data")
        data = getattr(metric, kind)
        assert (metric.description, metric.unit) == (family.metric.help, UNITS[family.metric.unit])
        points = {tuple(a.value.string_value for a in p.attributes): p for p in data.data_points}
        assert [tuple(a.key for a in p.attributes) for p in data.data_points] == [family.metric.labels] * len(points)
        assert set(points) == {p.labels for p in family.points}
        if name.startswith("process_"):
            continue
        for point in family.points:
            there = points[point.labels]
            assert there.time_unix_nano > there.start_time_unix_nano == point.since
            if family.metric.kind == HISTOGRAM:
                assert tuple(there.explicit_bounds) == BUCKET_BOUNDS
                assert list(there.bucket_counts) == list(point.counts)
                assert (there.count, there.sum) == (sum(point.counts), point.value)
                assert not there.HasField("min")
            else:
                assert (there.as_double or there.as_int) == point.value
        if family.metric.kind != "gauge":
            assert data.aggregation_temporality == 2  # cumulative
        assert kind == {"counter": "sum"}.get(family.metric.kind, family.metric.kind)


def test_the_environment_is_heeded(seen, collector, told, monkeypatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url + "/base")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "api-key=of-a-test")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=staging,host.name=named")
    sent(seen, None, told)
    path, headers, message = collector.got.get(timeout=10)
    assert path == "/base/v1/metrics"
    assert headers["api-key"] == "of-a-test"
    assert headers["content-encoding"] == "gzip"
    attributes = {a.key: a.value.string_value for a in message.resource_metrics[0].resource.attributes}
    assert attributes["service.name"] == "kafkatap"
    assert attributes["deployment.environment"] == "staging"
    assert attributes["host.name"] == "named"


def test_it_is_sent_again_and_again_until_the_end(seen, collector, told):
    exporter = export(seen.metrics, seen.monitor, parse_collector(collector.url), OFTEN, told.append)
    for _ in range(3):
        collector.got.get(timeout=10)
    exporter.close()
    while not collector.got.empty():
        collector.got.get()
    assert told == []


def test_a_collector_that_fails_is_told_of_once_and_when_it_works_again(seen, collector, told, capfd):
    collector.status = 400
    exporter = export(seen.metrics, seen.monitor, parse_collector(collector.url), OFTEN, told.append)
    for _ in range(4):
        collector.got.get(timeout=10)
    assert len(told) == 1
    assert "400" in told[0]
    collector.status = 200
    while len(told) < 2:
        collector.got.get(timeout=10)
    exporter.close()
    assert told[1:] == [f"metrics are sent to 127.0.0.1:{collector.server_port} again"]
    assert capfd.readouterr() == ("", "")


def test_a_collector_that_is_not_there_harms_nothing(seen, told, capfd, monkeypatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    with listening() as gone:
        url = parse_collector(gone.url.replace("//", "//user:password@"))
    sent(seen, url, told)
    assert len(told) == 1
    assert told[0].startswith(f"metrics cannot be sent to 127.0.0.1:{gone.server_port}, still trying: ")
    assert "password" not in told[0]
    assert "\n" not in told[0]
    assert len(told[0]) < 300
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("auto", "auto"),
        ("http://collector:4318", "http://collector:4318/v1/metrics"),
        ("http://[::1]:4318/", "http://[::1]:4318/v1/metrics"),
        ("https://host/otlp/v1/metrics", "https://host/otlp/v1/metrics"),
    ],
)
def test_urls(text, url):
    assert parse_collector(text) == url


@pytest.mark.parametrize(
    "text", ["", "collector:4317", "grpc://collector:4317", "http://", "http://host:0", "http://[::1"]
)
def test_no_urls(text):
    with pytest.raises(argparse.ArgumentTypeError, match="is not a URL of a collector"):
        parse_collector(text)


def test_without_the_library_it_says_what_to_install():
    """In a process of its own, in which opentelemetry cannot be imported."""
    code = (
        "import sys; sys.modules['opentelemetry'] = None\n"
        "from kafkatap.live.export.otlp_exporter import export\n"
        "try: export(None, None)\n"
        "except OSError as error: print(error)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=os.environ, timeout=60)
    assert ran.stdout == f"OTLP needs opentelemetry ({install_command('otlp')})\n"
