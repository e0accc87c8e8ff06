"""Whom the report blames for slow clients of long recordings."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkatap import analyze


@pytest.mark.parametrize(
    ("capture", "throttled"),
    [
        ("apache-2.8.pcap.zst", {"greedy-28", "rdkc-28"}),
        ("apache-0.10.2.pcap.zst", {"greedy-010", "perf-010"}),
        ("apache-4.3-broker1.pcap.zst", {"greedy-producer", "greedy-consumer"}),
    ],
)
def test_clients_that_wait_for_their_quota(corpus: Path, capture: str, throttled: set[str]) -> None:
    """Also where most of that wait is behind earlier requests that were throttled."""
    table = analyze(corpus / "captures" / capture).report().table("clients")
    names = [c.name for c in table.columns]
    client, verdict = names.index("client_id"), names.index("verdict")
    assert throttled <= {row[client] for row in table.rows if row[verdict] == "throttled"}
    assert "broker" in {row[verdict] for row in table.rows}
