"""Broker time as packets tell it agrees with the broker's own clock (docs/accuracy.md)."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from kafkatap import analyze

ROOT = Path(__file__).resolve().parent.parent


def test_broker_time_is_the_broker_s_own(corpus: Path) -> None:
    captures = corpus / "captures"
    analysis = analyze(captures / "apache-4.3-broker1.pcap.zst")
    log = captures / "apache-4.3-broker1.request.log.zst"
    report = analysis.report(sections=["broker-times"], request_log=log)
    wire, unqueued, broker = report.table("broker_time_differences").rows
    assert [row[1] for row in (wire, unqueued, broker)] == [14_391] * 3
    assert broker[2] < 0.3e6  # type: ignore[operator]
    assert broker[3] < 5e6 < unqueued[3] < 8e6 < wire[3]  # type: ignore[operator]
    assert broker[5] < 85e6 < unqueued[5] < 100e6 < wire[5]  # type: ignore[operator]
    for name, _, p50, mean, p90, p99 in (wire, unqueued, broker):
        line = f"| {name} | {p50 / 1e6:.2f} | {mean / 1e6:.1f} | {p90 / 1e6:.1f} | {p99 / 1e6:.0f} |"  # type: ignore[operator]
        assert line in (ROOT / "docs" / "accuracy.md").read_text()
    table = analysis.request_log(log)
    answered = table.to_pandas().query("outcome == 'answered'")
    assert int(np.abs(answered.broker_ns - answered.log_total_ns).mean()) == broker[3]
    reasons = {(row[0], row[1]): row[2] for row in report.table("request_log_unmatched").rows}
    assert ("capture", "not in the log") not in reasons
    assert ("log", "not found in its connection") not in reasons
    assert reasons["log", "its connection is encrypted (TLS)"] == 526
