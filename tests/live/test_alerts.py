"""The alerts over scenes of a cluster, by promtool: each fires in its time, and no other does.

A scene is a model: what the metrics of one kafkatap show of a broker, before, during and after a fault of some minutes.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping
from itertools import accumulate
from pathlib import Path

import pytest

from kafkatap.live.export.metric_list import METRICS

ALERTS = Path(__file__).resolve().parents[2] / "docs" / "live" / "alerts.yml"
#: Seconds between two samples, when the fault begins, and how long a scene lasts.
STEP, BEGIN, LENGTH = 15, 900, 3_600
WHERE = {"job": "kafkatap", "instance": "host:9464"}
BROKER = {"broker": "10.0.0.1:9092"}
PRODUCE = {"api": "Produce", **BROKER}
Series = tuple[str, tuple[tuple[str, str], ...]]


def series(name: str, **labels: str) -> Series:
    return f"kafkatap_{name}", tuple(labels.items())


REQUESTS = series("requests_total", **PRODUCE, outcome="answered")
UNANSWERED = series("requests_total", **PRODUCE, outcome="unanswered")
FAST = series("broker_time_seconds_bucket", **PRODUCE, long_poll="false", le="0.01")
ALL = series("broker_time_seconds_bucket", **PRODUCE, long_poll="false", le="+Inf")
COUNT = series("broker_time_seconds_count", **PRODUCE, long_poll="false")
FAILED = series("failed_exchanges_total", **PRODUCE)
OPENED = series("connections_opened_total", **BROKER)
REFUSED = series("connections_refused_total", **BROKER)
SILENT = series("connections_unanswered_total", **BROKER)
WAIT = series("longest_wait_seconds", **BROKER)
THROTTLE = series("throttle_wait_seconds_total", client_id="app")
#: What counters grow by in a second while nothing is wrong.
CALM: Mapping[Series, float] = {
    REQUESTS: 30, UNANSWERED: 0, FAST: 30, ALL: 30, COUNT: 30, FAILED: 0, OPENED: 0.2, REFUSED: 0, SILENT: 0,
    THROTTLE: 0, series("captured_packets_total"): 200, series("dropped_packets_total"): 0,
}  # fmt: skip
NO_REQUESTS: Mapping[Series, float] = {REQUESTS: 0, FAST: 0, ALL: 0, COUNT: 0}
#: By scene: how long the fault lasts, the counters in it, whether requests wait, and by alert when it must fire at the
#: latest and until when it may fire: seconds after the fault began, and after it ended.
SCENES: Mapping[str, tuple[int, Mapping[Series, float], bool, Mapping[str, tuple[int, int]]]] = {
    "calm": (600, {}, False, {}),
    "kill": (240, {**NO_REQUESTS, REFUSED: 5, OPENED: 0}, False, {"KafkaUnreachable": (120, 180)}),
    "hang": (60, {**NO_REQUESTS, OPENED: 0.2}, True, {"KafkaHangs": (45, 30)}),
    "block": (
        240, {**NO_REQUESTS, SILENT: 2, OPENED: 0}, True, {"KafkaHangs": (45, 30), "KafkaUnreachable": (120, 180)},
    ),
    # Clients still reach the broker; the other brokers wait for it, and connect in vain.
    "partition": (300, {SILENT: 1}, True, {"KafkaHangs": (45, 30), "KafkaUnreachable": (120, 180)}),
    "throttling": (1_200, {THROTTLE: 0.8}, False, {"KafkaThrottled": (780, 330)}),
    "storm": (300, {OPENED: 400}, False, {"KafkaConnectionStorm": (120, 180)}),
}  # fmt: skip


def notation(one: Series) -> str:
    name, labels = one
    return name + "{" + ", ".join(f"{key}={json.dumps(value)}" for key, value in (WHERE | dict(labels)).items()) + "}"


def scene(name: str) -> dict[str, object]:
    """A scene as a test of promtool: its series, and which alerts fire when."""
    lasts, changed, waits, alerts = SCENES[name]
    times = range(0, LENGTH + 1, STEP)
    is_fault = [BEGIN < at <= BEGIN + lasts for at in times]
    sums = {
        notation(each): list(accumulate(STEP * (changed.get(each, rate) if fault else rate) for fault in is_fault))
        for each, rate in CALM.items()
    }
    given = [{"series": each, "values": " ".join(f"{n:.12g}" for n in values)} for each, values in sums.items()]
    # A scrape without a series ends it at once: the sample is stale.
    waited = [str(at - BEGIN) if waits and fault else "stale" for at, fault in zip(times, is_fault, strict=True)]
    given += [
        {"series": notation(WAIT), "values": " ".join(waited)},
        {"series": notation(series("build_info")), "values": f"1x{len(times)}"},
        {"series": notation(series("last_second_timestamp_seconds")), "values": f"0+{STEP}x{len(times)}"},
        {"series": notation(series("detail_level", level="full")), "values": f"1x{len(times)}"},
    ]
    tests = []
    for at in times:
        must = {alert for alert, (soon, _) in alerts.items() if BEGIN + soon <= at <= BEGIN + lasts}
        may = {alert for alert, (_, late) in alerts.items() if BEGIN < at <= BEGIN + lasts + late}
        if must == may:  # else it is about to fire, or to end
            firing = 'sort(count by (alertname) (ALERTS{alertstate="firing"}))'
            samples = [{"labels": f'{{alertname="{alert}"}}', "value": 1} for alert in sorted(must)]
            tests.append({"expr": firing, "eval_time": f"{at}s", "exp_samples": samples})
    return {"name": name, "interval": f"{STEP}s", "input_series": given, "promql_expr_test": tests}


@pytest.mark.skipif(shutil.which("promtool") is None, reason="needs promtool (Debian: apt-get install prometheus)")
@pytest.mark.parametrize("name", SCENES)
def test_each_alert_fires_in_its_time_and_no_other(name: str, tmp_path: Path) -> None:
    rules = {"rule_files": [str(ALERTS)], "evaluation_interval": f"{STEP}s", "tests": [scene(name)]}
    case = tmp_path / "scene.yml"
    case.write_text(json.dumps(rules))
    ran = subprocess.run(["promtool", "test", "rules", case], capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, (ran.stdout + ran.stderr)[:4_000]


def test_the_model_has_real_series() -> None:
    labels = {metric.name: set(metric.labels) for metric in METRICS}
    for name, found in (*CALM, WAIT):
        base = name.removesuffix("_bucket").removesuffix("_count")
        assert {label for label, _ in found} - {"le"} == labels[base], name
