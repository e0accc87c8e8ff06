"""Times and findings of lossy paths beside what scripts, clients and kernels noted (samples/losses)."""

from __future__ import annotations

import json
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from kafkatap import analyze
from tests.cli.running import kafkatap

FOLDER = Path(__file__).resolve().parents[1] / "samples" / "losses"
MS, SECOND = 1_000_000, 1_000_000_000


def truth(name: str) -> dict[str, Any]:
    made: dict[str, Any] = json.loads((FOLDER / f"{name}.truth.json").read_text())
    return made


@cache
def analysis(name: str) -> Any:
    return analyze(FOLDER / f"{name}.pcap.zst")


def exchanges(name: str, client: str) -> list[dict[str, Any]]:
    """The exchanges of a client; their times in ns since the epoch."""
    rows = [row for row in analysis(name).exchanges.to_pylist() if row["client_id"] == client]
    times = ("request_first", "request_last", "response_first", "response_last")
    return [row | {at: row[at].value for at in times if row[at] is not None} for row in rows]


def summed(rows: list[dict[str, Any]], name: str) -> int:
    return sum(row[name] or 0 for row in rows)


@cache
def findings(name: str) -> dict[str, dict[str, Any]]:
    """The findings of a report that follow from no other one, by their kind."""
    found = json.loads(kafkatap("report", "--json", FOLDER / f"{name}.pcap.zst").out)["reports"]["summary"]
    return {row["finding"]: row for row in found if row["cause"] is None}


def test_responses_behind_a_lost_one_are_the_networks() -> None:
    """The client's log has the times at which records were acknowledged late. The broker worked on none of them."""
    late = {round(at, 1) for at, _ in truth("held")["slow"]}
    rows = [
        row for row in exchanges("held", "web")
        if (row["total_ns"] or 0) >= 150 * MS and round(row["response_last"] / SECOND, 1) in late
    ]  # fmt: skip
    assert len(rows) >= len(late) > 1
    for row in rows:
        assert row["loss_ns"] + row["hol_loss_wait_ns"] >= 0.95 * row["total_ns"], row
        assert row["broker_ns"] <= 0.05 * row["total_ns"]


def test_a_mute_behind_a_loss_is_throttle_wait() -> None:
    """The broker acknowledges a retransmission at once, and mutes the connection for seconds."""
    rows = exchanges("held", "loader")
    rows = [row for row in rows if row["total_ns"] is not None]
    muted = [row for row in rows if row["request_last"] - row["request_first"] >= SECOND]
    assert muted
    for row in muted:
        assert row["loss_ns"] < 10 * MS
        assert row["throttle_wait_ns"] + row["receiver_ns"] >= row["request_last"] - row["request_first"] - 10 * MS
    assert max(row["loss_ns"] or 0 for row in rows) < 500 * MS


def test_requests_behind_lost_segments_wait_for_the_network() -> None:
    rows = exchanges("narrow", "bulk")
    behind, lost = summed(rows, "hol_wait_ns"), summed(rows, "hol_loss_wait_ns")
    assert lost > 0.7 * behind > SECOND
    assert "one_connection" not in findings("narrow")
    assert "10.91.0.100" in findings("narrow")["lossy_host"]["text"]


def test_a_kernel_that_holds_data_back_is_no_program_that_pauses() -> None:
    """The kernel had data to send all the time."""
    assert truth("narrow")["unsent_bytes"] > 0
    rows = exchanges("narrow", "bulk")
    assert summed(rows, "sender_ns") < 0.01 * summed(rows, "total_ns")


def test_a_host_that_acknowledges_nothing_is_cut_off() -> None:
    """Until both ends have sent again, the silence lasts longer than the hole."""
    cut, expected = findings("hole")["hosts_cut_off"], truth("hole")
    begin, end = expected["steps"].values()
    assert datetime.fromisoformat(cut["begin"]).timestamp() == pytest.approx(begin, abs=0.05)
    assert datetime.fromisoformat(cut["end"]).timestamp() > end
    assert cut["numbers"]["silence_ns"] == pytest.approx(expected["longest_s"]["p19"] * SECOND, rel=0.02)
    assert cut["numbers"]["connections"] == 2
    assert "10.91.0.100 acknowledged nothing" in cut["text"]
    assert set(findings("hole")) == {"hosts_cut_off"}
