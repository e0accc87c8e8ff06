"""Whom the report blames for slow clients of long recordings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

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
    """Or behind earlier requests that were throttled: that is head-of-line wait, and the first lines say what they
    waited for."""
    table = analyze(corpus / "captures" / capture).report().table("clients")
    names = [c.name for c in table.columns]
    rows = [dict(zip(names, row, strict=True)) for row in table.rows]
    waited = {
        row["client_id"]: row["throttle_wait_sum_ns"] + row["hol_throttle_wait_sum_ns"]
        for row in rows if row["verdict"] in ("throttled", "head-of-line")
    }  # fmt: skip
    assert all(waited[client] > 0.4 * time for client, time in _times(rows, throttled).items())
    assert {"ok", "broker"} & {row["verdict"] for row in rows if row["client_id"] not in throttled}


def _times(rows: list[dict[str, Any]], clients: set[str]) -> dict[str, int]:
    """The time that the shares of clients are of."""
    return {row["client_id"]: row["total_sum_ns"] for row in rows if row["client_id"] in clients}


def test_the_wait_behind_a_throttled_request_is_the_quota_s(corpus: Path) -> None:
    """Two thirds of the client's time are head-of-line wait, nearly all of it because of its quota."""
    table = analyze(corpus / "captures" / "apache-2.8.pcap.zst").report().table("clients")
    names = [c.name for c in table.columns]
    [row] = [dict(zip(names, row, strict=True)) for row in table.rows if row[0] == "greedy-28"]
    assert (row["verdict"], row["evidence"]) == ("head-of-line", "HOL 68 %, throttle 30 %")
    assert row["hol_throttle_wait_sum_ns"] > 0.97 * row["hol_share"] * row["total_sum_ns"]
    assert row["hol_throttle_wait_sum_ns"] > 2 * row["throttle_wait_sum_ns"]
