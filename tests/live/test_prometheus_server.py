"""The exporter: what it writes is what was counted, in a format that others read; it harms nobody."""

from __future__ import annotations

import argparse
import math
import re
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from kafkatap.commands.values import parse_listen
from kafkatap.complaints import reason_of
from kafkatap.live.export import prometheus_server
from kafkatap.live.export.label_slots import label
from kafkatap.live.export.metric_list import COUNTER, HISTOGRAM, Family, Metric, Point
from kafkatap.live.export.prometheus_server import AT_ONCE, Server, exposed, serve
from kafkatap.live.latency_buckets import BUCKET_BOUNDS

from .metered import Metered
from .prometheus_server import missing

OPENMETRICS = "application/openmetrics-text; version=1.0.0"
WITHOUT = missing()


@pytest.fixture(scope="module")
def seen(samples: Path) -> Metered:
    return Metered(samples / "apache-4.3.pcap.zst").run()


@pytest.fixture
def server(seen: Metered) -> Iterator[Server]:
    server = serve(seen.metrics, seen.monitor, ("127.0.0.1", 0))
    yield server
    server.close()


def scrape(server: Server, accept: str = "text/plain") -> str:
    host, port = server.address
    shown = f"[{host}]" if ":" in host else host
    with urlopen(Request(f"http://{shown}:{port}/metrics", headers={"Accept": accept}), timeout=30) as answer:
        return answer.read().decode()


@pytest.mark.parametrize("accept", ["text/plain", OPENMETRICS])
def test_what_it_says_is_what_was_counted(seen, server, accept):
    parse = parse_openmetrics if accept == OPENMETRICS else parse_text
    got = {(s.name, frozenset(s.labels.items())): s.value for m in parse(scrape(server, accept)) for s in m.samples}
    wanted = 0
    for name, family in seen.families().items():
        if name.startswith("process_"):
            continue
        for point in family.points:
            labels = dict(zip(family.metric.labels, point.labels, strict=True))
            if family.metric.kind != HISTOGRAM:
                assert got[name, frozenset(labels.items())] == point.value
                wanted += 1
                continue
            running = 0
            for bound, count in zip((*BUCKET_BOUNDS, math.inf), point.counts, strict=True):
                running += count
                le = "+Inf" if bound == math.inf else str(bound)
                assert got[f"{name}_bucket", frozenset({**labels, "le": le}.items())] == running
            assert got[f"{name}_count", frozenset(labels.items())] == running
            assert got[f"{name}_sum", frozenset(labels.items())] == point.value
            wanted += len(point.counts) + 2
    assert wanted == sum(not name.startswith("process_") for name, _ in got) > 1000


def test_head_is_get_without_the_body(server: Server) -> None:
    """As probes ask. Another method is refused."""
    host, port = server.address
    with closing(HTTPConnection(host, port, timeout=30)) as asked:
        answers = {}
        for method in ("GET", "HEAD", "POST"):
            asked.request(method, "/metrics")
            answer = asked.getresponse()
            head = answer.status, answer.headers["Content-Type"], int(answer.headers["Content-Length"]) > 10_000
            answers[method] = *head, len(answer.read()) > 10_000
    assert answers["GET"] == (200, answers["GET"][1], True, True)
    assert answers["HEAD"] == (*answers["GET"][:3], False)
    assert answers["POST"][0] == 405


@pytest.mark.skipif(WITHOUT is not None, reason=WITHOUT or "")
def test_promtool_finds_nothing_to_say(server):
    ran = subprocess.run(
        ["promtool", "check", "metrics"], input=scrape(server), capture_output=True, text=True, timeout=60
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


HOSTILE = ['a"b', "back\\slash", "line\nfeed", "\x1b[2J", "Grün", "\u202eright to left", "{}", 'x",y="1', "💥", ""]


def test_hostile_labels_come_through_as_they_are_shown():
    metric = Metric("kafkatap_x_total", COUNTER, "Help\nwith \\.", ("client_id",))
    family = Family(metric, [Point((label(t),), 1) for t in HOSTILE])

    class Collector:
        def collect(self):
            yield exposed(family)

    from prometheus_client import CollectorRegistry, generate_latest

    registry = CollectorRegistry(auto_describe=False)
    registry.register(Collector())
    text = generate_latest(registry).decode()
    assert all(c.isprintable() or c == "\n" for c in text)
    (parsed,) = parse_text(text)
    assert [s.labels["client_id"] for s in parsed.samples] == [label(t) for t in HOSTILE]


def test_the_next_scrape_tells_of_the_next_second(samples):
    metered = Metered(samples / "apache-4.3.pcap.zst")
    steps = metered.steps()
    server = serve(metered.metrics, metered.monitor, ("127.0.0.1", 0))
    try:
        before = -1.0
        for _ in range(3):
            while (now := packets(scrape(server))) == before:
                next(steps)
            assert now > before
            before = now
    finally:
        server.close()
        metered.source.close()


def packets(text: str) -> float:
    found = re.search(r"^kafkatap_captured_packets_total (\S+)$", text, re.MULTILINE)
    assert found
    return float(found[1])


def test_it_serves_ipv6(seen):
    if not has_ipv6():
        pytest.skip("this host has no IPv6 loopback")
    server = serve(seen.metrics, seen.monitor, parse_listen("[::1]:0"))
    try:
        assert server.address[0] == "::1"
        assert packets(scrape(server)) > 0
    finally:
        server.close()


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


def test_a_port_in_use_is_told_in_a_line(seen, server):
    where = f"127.0.0.1:{server.address[1]}"
    with pytest.raises(OSError, match="in use") as caught:
        serve(seen.metrics, seen.monitor, server.address)
    assert reason_of(caught.value) == f"cannot serve metrics at {where}: address already in use"


def test_a_host_that_is_none_is_told_in_a_line(seen):
    with pytest.raises(OSError, match=r"cannot serve metrics at no-such-host\.invalid:9464: ") as caught:
        serve(seen.metrics, seen.monitor, ("no-such-host.invalid", 9464))
    assert "\n" not in reason_of(caught.value)


def test_a_closed_server_leaves_its_port(seen):
    server = serve(seen.metrics, seen.monitor, ("127.0.0.1", 0))
    packets(scrape(server))
    server.close()
    again = serve(seen.metrics, seen.monitor, server.address)
    again.close()
    assert not [t for t in threading.enumerate() if t.name == "prometheus"]


def test_who_says_nothing_takes_no_more_than_a_place(seen, server, capfd):
    """Connections beyond AT_ONCE are closed at once; when the others hang up, scrapes work again."""
    silent = [socket.create_connection(server.address) for _ in range(AT_ONCE)]
    try:
        with socket.create_connection(server.address) as late:
            late.settimeout(30)
            assert late.recv(1) == b""
    finally:
        for each in silent:
            each.close()
    for _ in range(1000):
        try:
            assert packets(scrape(server)) > 0
            break
        except OSError:  # a thread has not seen yet that its client is gone
            continue
    else:
        pytest.fail("no scrape was answered again")
    assert capfd.readouterr() == ("", "")


def test_who_sends_a_byte_at_a_time_is_ended(seen, monkeypatch, capfd):
    """However slowly: the whole request has a deadline, so scrapes are answered again. No answer names versions."""
    monkeypatch.setattr(prometheus_server, "PATIENCE", 0.5)
    server = serve(seen.metrics, seen.monitor, ("127.0.0.1", 0))
    slow = [socket.create_connection(server.address) for _ in range(AT_ONCE)]
    try:
        began, ended = time.monotonic(), set()
        while len(ended) < AT_ONCE and time.monotonic() - began < 30:
            for each in set(slow) - ended:
                each.settimeout(0.05)
                try:
                    each.sendall(b"G")
                    if not each.recv(1):
                        ended.add(each)
                except TimeoutError:
                    continue
                except OSError:
                    ended.add(each)
        assert len(ended) == AT_ONCE
        with urlopen(f"http://127.0.0.1:{server.address[1]}/metrics", timeout=30) as answer:
            assert answer.headers["Server"] == "kafkatap"
    finally:
        for each in slow:
            each.close()
        server.close()
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    "sent", [b"\x00" * 100, b"GET\r\n\r\n", b"GET /metrics HTTP/1.0\r\nContent-Length: -5\r\n\r\n", b"A" * 70000, b""]
)
def test_who_sends_nonsense_is_nobodys_concern(server, sent, capfd):
    with socket.create_connection(server.address) as client:
        client.sendall(sent)
        client.shutdown(socket.SHUT_WR)
    assert packets(scrape(server)) > 0
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("text", "address"),
    [
        (":9464", ("127.0.0.1", 9464)),
        ("9464", ("127.0.0.1", 9464)),
        ("0.0.0.0:9464", ("0.0.0.0", 9464)),
        ("[::1]:9464", ("::1", 9464)),
        ("[::]:9464", ("::", 9464)),
        ("localhost:9464", ("localhost", 9464)),
    ],
)
def test_addresses_to_listen_on(text, address):
    assert parse_listen(text) == address


@pytest.mark.parametrize("text", ["", ":", "host", "host:", "::1:9464", ":65536", "1.2.3.4:x", "[::1]", "http://h:1"])
def test_no_addresses_to_listen_on(text):
    with pytest.raises(argparse.ArgumentTypeError, match="is not an address to listen on"):
        parse_listen(text)
