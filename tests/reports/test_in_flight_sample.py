"""Requests under way when a real capture ended, and consumers that closed while they polled, beside the broker's log.

The broker's request log goes on after the recording: it has a line for each request that was answered later.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kafkatap import analyze
from kafkatap.library import Analysis
from tests.support.section_runs import QUESTIONS, Row, truth_rows

CAPTURE = QUESTIONS / "in-flight.pcap.zst"
KEYS = QUESTIONS / "in-flight.keys.log"
MS = 1_000_000


@pytest.fixture(scope="module")
def analysis() -> Analysis:
    return analyze(CAPTURE, keylog=KEYS)


@pytest.fixture(scope="module")
def exchanges(analysis: Analysis) -> list[Row]:
    return list(analysis.exchanges.to_pylist())


@pytest.fixture(scope="module")
def log() -> dict[tuple[int, int], dict[str, str]]:
    """The lines of the broker's log by the client's port and the correlation id."""
    return {(int(row["port"]), int(row["correlation_id"])): row for row in truth_rows(QUESTIONS / "in-flight.log.tsv")}


def end_of(analysis: Analysis) -> float:
    """The time of the last packet, ms since the epoch."""
    return float(analysis.files.to_pylist()[0]["last"].timestamp() * 1000)


def test_in_flight_is_what_the_broker_answered_after_the_end(
    analysis: Analysis, exchanges: list[Row], log: dict[tuple[int, int], dict[str, str]]
) -> None:
    """Every request that was read before the end and complete after it, of clients that had not closed; no other."""
    truth = json.loads((QUESTIONS / "in-flight.truth.json").read_text())
    closed = {entry["client"] for entry in truth["closed"]}
    end = end_of(analysis)
    sent = {(row["client_port"], row["correlation_id"]): row for row in exchanges}
    wanted = {
        key for key, line in log.items()
        if float(line["done_ms"]) > end and line["client"] not in closed and key in sent
    }  # fmt: skip
    found = {key for key, row in sent.items() if row["outcome"] == "in_flight"}
    assert found == wanted
    assert {(sent[key]["client_id"], sent[key]["api_name"]) for key in found} >= {
        ("poller", "Fetch"), ("joiner", "JoinGroup"), ("writer", "Produce"),
    }  # fmt: skip
    for key in found:
        waited = end - sent[key]["request_last"].timestamp() * 1000
        assert sent[key]["waited_ns"] / MS == pytest.approx(waited, abs=0.01)


def test_who_closed_and_when(exchanges: list[Row]) -> None:
    """What a closed consumer left unanswered: by the client, within a few ms of its call, plain and with TLS."""
    truth = json.loads((QUESTIONS / "in-flight.truth.json").read_text())
    calls = {entry["client"]: (entry["from_ms"], entry["to_ms"]) for entry in truth["closed"]}
    open_rows = [row for row in exchanges if row["outcome"] == "unanswered"]
    assert {"java-tls", "librd-tls", "python-tls"} <= {row["client_id"] for row in open_rows}
    for row in open_rows:
        first, last = calls[row["client_id"]]
        assert row["closed_by"] == "client"
        closed_at = row["request_last"].timestamp() * 1000 + row["waited_ns"] / MS
        assert first - 10 <= closed_at <= last + 250, row
    assert not [row for row in exchanges if row["outcome"] == "response_lost"]


def test_the_report_says_so(analysis: Analysis, exchanges: list[Row]) -> None:
    report = analysis.report()
    names = [column.name for column in report.heading.columns]
    heading: dict[str, Any] = dict(zip(names, report.heading.rows[0], strict=True))
    assert heading["in_flight"] == sum(row["outcome"] == "in_flight" for row in exchanges)
    assert not [text for text in report.warnings if "never answered" in text]


def test_a_stopped_broker_is_no_flight(samples: Path) -> None:
    """The clients of `timeouts` waited for 1.5 s (their own logs say so), and closed: these are unanswered."""
    rows = analyze(QUESTIONS / "timeouts.pcap.zst").exchanges.to_pylist()
    without = [row for row in rows if row["outcome"] not in ("answered", "no_reply_expected")]
    assert {(row["outcome"], row["closed_by"]) for row in without} == {("unanswered", "client")}
    in_time = [row for row in without if row["waited_ns"] > 1_400 * MS]
    assert in_time
    assert all(row["waited_ns"] < 2_600 * MS for row in in_time)


def test_a_consumer_that_closes_while_it_polls_is_no_timeout_of_the_broker(exchanges: list[Row]) -> None:
    rows = analyze(CAPTURE, keylog=KEYS).report(sections=["timeouts"]).table("timeouts")
    names = [column.name for column in rows.columns]
    made = [dict(zip(names, row, strict=True)) for row in rows.rows]
    unanswered = [row for row in exchanges if row["outcome"] == "unanswered"]
    assert sum(row["requests"] for row in made) == len(unanswered)
    assert {(row["fault"], row["what"].partition(" (")[0]) for row in made} == {
        ("client", "client closed before the response")
    }
