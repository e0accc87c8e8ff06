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


def test_the_wait_behind_a_throttled_request_is_the_quota_s(corpus: Path) -> None:
    """Two thirds of the client's time are head-of-line wait, nearly all of it because of its quota."""
    table = analyze(corpus / "captures" / "apache-2.8.pcap.zst").report().table("clients")
    names = [c.name for c in table.columns]
    [row] = [dict(zip(names, row, strict=True)) for row in table.rows if row[0] == "greedy-28"]
    shares = [row[f"{name}_share"] for name in ("broker", "hol", "throttle", "transfer", "client")]
    assert abs(sum(shares) - 1) < 1e-9
    assert 0.97 < shares[2] < 0.99
    assert (row["verdict"], row["evidence"]) == ("throttled", "throttle 98 %, broker 2 %")
    assert row["hol_throttle_wait_sum_ns"] > 2 * row["throttle_wait_sum_ns"]
