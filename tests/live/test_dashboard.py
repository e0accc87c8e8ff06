"""The dashboard and the alert rules against a real Prometheus that scraped a real exporter."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from kafkatap.live.export.metric_list import Family
from kafkatap.live.export.prometheus_server import serve
from kafkatap.live.latency_buckets import BUCKET_BOUNDS
from kafkatap.live.status import Status
from kafkatap.reports.build import build_report
from kafkatap.reports.findings import ERROR, Finding

from .metered import Metered
from .prometheus_server import Prometheus, missing, prometheus

DOCS = Path(__file__).resolve().parents[2] / "docs" / "live"
ALERTS = DOCS / "alerts.yml"
DASHBOARD = json.loads((DOCS / "grafana-dashboard.json").read_text())
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
EXPRESSIONS = [target["expr"] for panel in PANELS for target in panel["targets"]]
WITHOUT = missing()
needs_prometheus = pytest.mark.skipif(WITHOUT is not None, reason=WITHOUT or "")
#: What Grafana puts in the place of its variables.
VARIABLES = {"$__rate_interval": "1m", "$__range": "1h", "$instance": ".*", "$broker": ".*"}
SELECTOR = re.compile(r"\b((?:kafkatap|process)_\w+)(\{[^}]*\})?")


def filled(expression: str) -> str:
    for name, value in VARIABLES.items():
        expression = expression.replace(name, value)
    assert "$" not in expression
    return expression


class Troubled(Metered):
    """As if a broker hung, an event was told, and a disk was full."""

    @property
    def status(self) -> Status:
        return replace(
            self.monitor.status, longest_waits={"10.0.0.1:9092": 4_000_000_000},
            unwritten={"packet_bytes": 4096, "rows": 7},
        )  # fmt: skip

    def families(self) -> dict[str, Family]:
        return {family.metric.name: family for family in self.metrics.families(self.status)}


@dataclass(frozen=True)
class Scraped:
    server: Prometheus
    metered: Metered


@pytest.fixture(scope="module")
def scraped(samples: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scraped]:
    """A Prometheus that scraped metrics of the first half of a capture, and then those of all of it."""
    if WITHOUT:
        pytest.skip(WITHOUT)
    metered = Troubled(samples / "apache-4.3.pcap.zst")
    metered.metrics.add_event(Finding("broker_hung", ERROR, "hang", "broker 1 hangs"))
    steps = metered.steps()
    while metered.source.taken < 3000:
        next(steps)
    server = serve(metered.metrics, metered, ("127.0.0.1", 0))
    try:
        host, port = server.address
        with prometheus(tmp_path_factory.mktemp("prometheus"), f"{host}:{port}", ALERTS) as scraping:
            half = metered.families()["kafkatap_captured_packets_total"].points[0].value
            scraping.until("kafkatap_captured_packets_total", half)
            for _ in steps:
                pass
            assert half < metered.monitor.engine.packets
            scraping.until("kafkatap_captured_packets_total", metered.monitor.engine.packets)
            yield Scraped(scraping, metered)
    finally:
        server.close()


def test_every_series_comes_through(scraped):
    """What Prometheus stored is what was counted: names, labels, numbers."""
    for name, family in scraped.metered.families().items():
        if not name.startswith("kafkatap_") or family.metric.kind == "histogram":
            continue
        got = {
            tuple(labels[key] for key in family.metric.labels): value for labels, value in scraped.server.query(name)
        }
        assert got == pytest.approx({p.labels: p.value for p in family.points}), name


def test_types_and_help_come_through(scraped):
    told = scraped.server.get("metadata")
    for name, family in scraped.metered.families().items():
        if family.points:
            assert [(m["type"], m["help"]) for m in told[name.removesuffix("_total")]] == [
                (family.metric.kind, family.metric.help)
            ]


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_every_query_of_the_dashboard_has_an_answer(scraped, expression):
    assert scraped.server.query(filled(expression))


def alert_rules(scraped: Scraped) -> list[dict[str, Any]]:
    return [rule for group in scraped.server.get("rules")["groups"] for rule in group["rules"]]


def test_alert_rules_can_be_evaluated(scraped):
    rules = alert_rules(scraped)
    assert len(rules) == ALERTS.read_text().count("- alert:") > 5
    for rule in rules:
        scraped.server.query(rule["query"])
        assert rule["health"] in ("ok", "unknown")  # unknown: not evaluated so far
        assert not rule.get("lastError")


def test_alert_rules_and_queries_name_what_exists(scraped):
    """Each selector alone, with its labels, finds series."""
    selectors = {
        name + labels
        for expression in (*map(filled, EXPRESSIONS), *(rule["query"] for rule in alert_rules(scraped)))
        for name, labels in SELECTOR.findall(expression)
    }
    assert len(selectors) > 40
    for selector in selectors:
        assert scraped.server.query(selector), selector


@pytest.mark.parametrize("part", [0.5, 0.9, 0.99])
@pytest.mark.parametrize("time", ["broker", "total"])
def test_quantiles_are_those_of_the_report(scraped, time, part):
    """To the width of a bucket, which is all that they can tell."""
    table = build_report(scraped.metered.monitor.windows.start, scraped.metered.monitor.context()).table("latency")
    names = [column.name for column in table.columns]
    rows = [dict(zip(names, row, strict=True)) for row in table.rows]
    found = {
        (labels["api"], labels["long_poll"] == "true"): value
        for labels, value in scraped.server.query(
            f"histogram_quantile({part}, sum by (le, api, long_poll) (kafkatap_{time}_time_seconds_bucket))"
        )
    }
    answered = [row for row in rows if row["answered"]]
    assert len(found) == len(answered) > 10
    for row in answered:
        exact = row[f"{time}_p{part * 100:g}_ns"] / 1e9
        value = found[row["api"].removesuffix(" (long poll)"), row["long_poll"]]
        low, high = next((a, b) for a, b in pairwise((0.0, *BUCKET_BOUNDS)) if a < value <= b)
        assert low * 0.992 <= exact <= high * 1.008, row["api"]


def test_the_dashboard_is_one():
    """What can be told without Grafana: identifiers once, no panel on another one, variables that exist."""
    identifiers = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(identifiers)) == len(identifiers)
    cells = set()
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        mine = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not mine & cells
        assert max(x for x, _ in mine) < 24
        cells |= mine
    variables = {variable["name"] for variable in DASHBOARD["templating"]["list"]}
    used = set(re.findall(r"\$\{?(\w+)", json.dumps(DASHBOARD)))
    assert used - {"__rate_interval", "__range", "__all"} == variables
    for panel in PANELS:
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])


def took(api: str, buckets: dict[str, str]) -> dict[str, str]:
    """The series of a histogram of broker time."""
    which = f'api="{api}", broker="b", long_poll="false"'
    name = "kafkatap_broker_time_seconds"
    series = {f'{name}_bucket{{{which}, le="{le}"}}': values for le, values in buckets.items()}
    return {**series, f"{name}_count{{{which}}}": buckets["+Inf"]}


#: Counters that make an alert fire, and what it then says of them; "value+step x times", a sample a minute.
FIRES = {
    "KafkaSlow": (
        {
            **took("Produce", {"0.5": "0+60x40", "1.0": "0+90x40", "+Inf": "0+90x40"}),
            **took("JoinGroup", {"10.0": "0+0x40", "+Inf": "0+90x40"}),
        },
        {"api": "Produce", "broker": "b"},
    ),
    "KafkaFailedExchanges": (
        {
            'kafkatap_failed_exchanges_total{api="Produce", broker="b"}': "0+60x40",
            'kafkatap_requests_total{api="Produce", broker="b", outcome="answered"}': "0+600x40",
            'kafkatap_failed_exchanges_total{api="Fetch", broker="b"}': "0+6x40",
            'kafkatap_requests_total{api="Fetch", broker="b", outcome="answered"}': "0+600x40",
        },
        {"api": "Produce", "broker": "b"},
    ),
    "KafkaWrongCredentials": (
        {
            'kafkatap_error_codes_total{api="SaslAuthenticate", error="SASL_AUTHENTICATION_FAILED"}': "0+60x40",
            'kafkatap_error_codes_total{api="Fetch", error="NOT_LEADER_OR_FOLLOWER"}': "0+60x40",
        },
        {},
    ),
    "KafkaHangs": (
        {
            'kafkatap_longest_wait_seconds{broker="b"}': "0x20 20x20",
            'kafkatap_longest_wait_seconds{broker="c"}': "3x40",
        },
        {"broker": "b"},
    ),
    "KafkaUnanswered": (
        {
            'kafkatap_requests_total{api="Produce", broker="b", outcome="answered"}': "0+600x40",
            'kafkatap_requests_total{api="Produce", broker="b", outcome="unanswered"}': "0+60x40",
        },
        {"broker": "b"},
    ),
    "KafkaUnreachable": (
        {
            'kafkatap_connections_refused_total{broker="b"}': "0+60x40",
            'kafkatap_connections_unanswered_total{broker="b"}': "0+0x40",
            'kafkatap_connections_refused_total{broker="well"}': "0+0x40",
            'kafkatap_connections_unanswered_total{broker="well"}': "0+1x40",
        },
        {"broker": "b"},
    ),
    "KafkaConnectionStorm": (
        {
            'kafkatap_connections_opened_total{broker="b"}': "0+6000x40",
            'kafkatap_connections_opened_total{broker="well"}': "0+600x40",
        },
        {"broker": "b"},
    ),
    "KafkaThrottled": (
        {
            'kafkatap_throttle_wait_seconds_total{client_id="greedy"}': "0+30x40",
            'kafkatap_throttle_wait_seconds_total{client_id="modest"}': "0+0x40",
        },
        {"client_id": "greedy"},
    ),
    "KafkatapDropsPackets": (
        {"kafkatap_captured_packets_total": "0+990x40", "kafkatap_dropped_packets_total": "0+10x40"},
        {},
    ),
    "KafkatapLessDetail": (
        {'kafkatap_detail_level{level="headers only"}': "1x40", 'kafkatap_detail_level{level="paused"}': "0x40"},
        {"level": "headers only"},
    ),
    "KafkatapSeesNothing": (
        {"kafkatap_build_info": "1x40", 'kafkatap_requests_total{api="Fetch", outcome="answered"}': "7x40"},
        {},
    ),
    "KafkatapStuck": ({"kafkatap_last_second_timestamp_seconds": "0x40"}, {}),
    "KafkatapNotWritten": (
        {"kafkatap_unwritten_packet_bytes_total": "0+4096x40", "kafkatap_unwritten_rows_total": "7x40"}, {},
    ),
}  # fmt: skip


WHERE = {"job": "kafkatap", "instance": "host:9464"}


def braces(labels: dict[str, str]) -> str:
    return "{" + ", ".join(f'{name}="{value}"' for name, value in labels.items()) + "}"


def located(selector: str) -> str:
    """A series of that name and labels, as scraped from somewhere."""
    name, _, labels = selector.partition("{")
    return name + braces(WHERE)[:-1] + (f", {labels}" if labels else "}")


def severity_of(alert: str) -> str:
    found = re.search(rf"- alert: {alert}\n.*?severity: (\w+)", ALERTS.read_text(), re.DOTALL)
    assert found
    return found[1]


@needs_prometheus
def test_each_alert_fires_where_it_should(tmp_path: Path) -> None:
    """By promtool's own evaluation, and only for the series that deserve it."""
    assert set(FIRES) == set(re.findall(r"- alert: (\w+)", ALERTS.read_text()))
    tests = []
    for alert, (series, labels) in FIRES.items():
        fired = {"alertname": alert, "alertstate": "firing", "severity": severity_of(alert), **WHERE, **labels}
        expected = {
            "expr": f'ALERTS{{alertname="{alert}"}}',
            "eval_time": "30m",
            "exp_samples": [{"labels": "ALERTS" + braces(fired), "value": 1}],
        }
        given = [{"series": located(selector), "values": values} for selector, values in series.items()]
        tests.append({"interval": "1m", "input_series": given, "promql_expr_test": [expected]})
    case = tmp_path / "alerts_test.yml"
    case.write_text(json.dumps({"rule_files": [str(ALERTS)], "evaluation_interval": "1m", "tests": tests}))
    ran = subprocess.run(["promtool", "test", "rules", case], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stdout + ran.stderr


@needs_prometheus
def test_promtool_finds_nothing_wrong_with_the_rules() -> None:
    ran = subprocess.run(["promtool", "check", "rules", ALERTS], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr
    assert "SUCCESS: 13 rules found" in ran.stdout
