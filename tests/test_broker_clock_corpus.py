"""Broker time as packets tell it agrees with the broker's own clock (docs/accuracy.md)."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks.check_broker_clock import differences, joined


def test_broker_time_is_the_broker_s_own(corpus: Path) -> None:
    captures = corpus / "captures"
    frame = joined(captures / "apache-4.3-broker1.pcap.zst", captures / "apache-4.3-broker1.request.log.zst")
    assert len(frame) > 14_000
    wire, unqueued, broker = differences(frame).values()
    assert np.median(broker) < 0.3e6
    assert broker.mean() < 5e6 < unqueued.mean() < 8e6 < wire.mean()
    assert np.percentile(broker, 99) < 85e6 < np.percentile(unqueued, 99) < 100e6 < np.percentile(wire, 99)
