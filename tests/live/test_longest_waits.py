"""A broker that hangs shows while it hangs: by the clock of the script that stopped it, in lines and in the metric."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kafkatap.engine.engine import Engine
from kafkatap.live.export.status_metrics import status_points
from kafkatap.live.governor import Governor
from kafkatap.live.monitor import Monitor

from .support import SECOND, FileSource
from .test_plain_lines import ended, watched

EVENTS = Path("samples/events")
#: The broker that the script stopped.
THIRD = "10.77.0.3:9092"
#: Of apache-4.3, the last packets of two connections are left out, so their last requests wait.
SAMPLES = sorted(path for path in Path("samples").glob("*.pcap*") if path.name != "apache-4.3.pcap.zst")


def test_the_oldest_request_waits_while_the_broker_hangs() -> None:
    steps = json.loads((EVENTS / "hang.truth.json").read_text())["steps"]
    stopped, resumed = steps["hung"], steps["continued"]
    _, lines, _ = watched(EVENTS / "hang.pcap.zst", SECOND)
    waits = {ended(line): float(line["longest_wait_ms"].replace("-", "0")) / 1e3 for line in lines}
    during = {at: wait for at, wait in waits.items() if stopped + 3 < at < resumed}
    assert during
    for at, wait in during.items():
        assert at - stopped - 2.5 < wait < at - stopped + 2.5
    assert all(wait < 2.5 for at, wait in waits.items() if at < stopped or at > resumed + 5)


def test_the_metric_has_the_broker() -> None:
    source = FileSource(str(EVENTS / "hang.pcap.zst"), SECOND // 10)
    monitor = Monitor(source, Engine(all_results=True), clock=source.clock, governor=Governor(None))
    found: dict[str, float] = {}
    while not source.over:
        source.wait(0.1)
        monitor.step()
        for point in status_points(monitor.status, 0)["kafkatap_longest_wait_seconds"]:
            found[point.labels[0]] = max(point.value, found.get(point.labels[0], 0))
    assert [broker for broker, seconds in found.items() if seconds > 5] == [THIRD]


@pytest.mark.parametrize("path", SAMPLES, ids=str)
def test_brokers_that_answer_let_nothing_wait(path: Path) -> None:
    """Long polls and rebalances are no waits."""
    _, lines, _ = watched(path, SECOND)
    assert all(float(line["longest_wait_ms"].replace("-", "0")) < 3_000 for line in lines)
