"""The section over throttling beside Kafka's own numbers (samples/questions/make_throttle.py).

`throttle.truth.json` has the quota of each client, and the throttle time of each request in the broker's log.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kafkatap import analyze
from kafkatap.reports.sections.quotas import rate_of
from kafkatap.reports.units import SECOND
from tests.support.section_runs import section_rows, section_tables

FOLDER = Path(__file__).resolve().parents[2] / "samples" / "questions"
CAPTURE = FOLDER / "throttle.pcap.zst"
CLIENTS = [f"{kind}-{name}" for kind in ("java", "rd") for name in ("10k", "30k", "100k", "reader")]


@pytest.fixture(scope="module")
def truth() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FOLDER / "throttle.truth.json").read_text())
    return found


@pytest.fixture(scope="module")
def exchanges() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = analyze(CAPTURE).exchanges.to_pylist()
    return found


@pytest.fixture(scope="module")
def obedience() -> dict[str, dict[str, Any]]:
    return {row["client_id"]: row for row in section_rows(CAPTURE, "throttle")["throttle_obedience"]}


def test_throttle_times_are_those_of_the_broker(truth: dict[str, Any], obedience: dict[str, dict[str, Any]]) -> None:
    assert sorted(obedience) == sorted(CLIENTS)
    for client, row in obedience.items():
        # The log also counts the last answer of a connection that its client closed before the answer was sent.
        logged = [time for name, _, _, _, time in truth["throttled"] if name == client]
        assert 0 <= len(logged) - row["throttled"] <= 1
        assert 0 <= sum(logged) - row["throttle_time_sum_ms"] <= max(logged) + len(logged)


def test_who_obeys(obedience: dict[str, dict[str, Any]]) -> None:
    """Kafka's Java client waits (KIP-219): a few requests leave with the response. librdkafka does not wait."""
    for client, row in obedience.items():
        if client.startswith("java"):
            assert row["verdict"] == "obeys"
            assert row["early"] <= 0.15 * row["throttled"]
        else:
            assert row["verdict"] == "ignores it"
            assert row["early_bytes"] > 0
    assert obedience["java-reader"]["gap_p50_ns"] >= obedience["java-reader"]["gap_time_p50_ms"] * 1_000_000
    assert obedience["rd-reader"]["gap_p50_ns"] < 5_000_000


def test_when_a_quota_throttles(truth: dict[str, Any], exchanges: list[dict[str, Any]]) -> None:
    """With a client's own quota, the rate is first above it within a window of the first throttled response.

    The response that would exceed a reader's quota is empty: 20 kB of 500 kB are missing. So a reader is looked up with
    a quota that is less by so much.
    """
    for client, quota in truth["quotas"].items():
        (limit,) = quota.values()
        if client.endswith("reader"):
            limit = limit * 95 // 100
        (row,) = (
            row
            for row in section_rows(CAPTURE, "throttle", {"quota": limit, "window": (11, 1)})["quota_rates"]
            if row["client_id"] == client and row["direction"] == ("fetch" if "reader" in client else "produce")
        )
        first = min(
            x["response_first"].timestamp() for x in exchanges if x["client_id"] == client and x["throttle_time_ms"]
        )
        assert row["over_from"] is not None, client
        assert abs(row["over_from"] / SECOND - first) < 1.5, client


@pytest.mark.parametrize(
    ("given", "rate", "over"),
    [
        ([(100, 1000, 0)], 100, []),
        ([(100, 1010, 0)], 101, [100.0]),
        ([(100, 1010, 0.5)], 96, []),  # over 10.5 s
        ([(100, 600, 0), (110, 600, 0.9)], 110, [110.9]),
        ([(100, 600, 0), (111, 600, 0.9)], 60, []),
    ],
)
def test_rates(given: list[tuple[int, int, float]], rate: int, over: list[float]) -> None:
    """Eleven windows of a second with a quota of 100 bytes a second: second, bytes, and part of the second."""
    lines = [(second, size, second * SECOND, int((second + part) * SECOND)) for second, size, part in given]
    found = rate_of(np.array(lines), 100, (11, 1))
    assert (found.rate, [time / SECOND for time in found.over]) == (rate, over)
    assert found.bytes == sum(size for _, size, _ in given)
    assert (found.throttle_ns > 0) == bool(over)


def test_throttle_time_is_that_of_the_formula() -> None:
    """521,924 bytes in the first 0.226 s with a quota of 50,000: the broker said 211 ms."""
    found = rate_of(np.array([(0, 521_924, 0, 226_000_000)]), 50_000, (11, 1))
    assert abs(found.throttle_ns / 1_000_000 - 211) < 2


def test_longer_windows() -> None:
    lines = [(second, size, second * SECOND, second * SECOND) for second, size in ((0, 10), (1, 10), (2, 10), (3, 10))]
    found = rate_of(np.array([*lines, (9, 5, 9 * SECOND, 9 * SECOND)]), None, (2, 2))
    assert (found.rate, found.at, found.busiest, found.over) == (13, 3 * SECOND, 10, [])


def test_an_old_broker_holds_responses_back() -> None:
    tables = section_rows(FOLDER.parent / "apache-0.10.2.pcap.zst", "throttle")
    found = tables["throttle_obedience"]
    assert {(row["verdict"], row["early"]) for row in found} == {("broker holds responses back", 0)}


@pytest.mark.parametrize(("name", "holds_back"), [("apache-0.10.2", True), ("questions/throttle", False)])
def test_the_note_is_on_the_brokers_of_the_capture(name: str, holds_back: bool) -> None:
    """Before Kafka 2.0 the response itself waits, so that nobody has to wait after it (KIP-219)."""
    table = section_tables([FOLDER.parent / f"{name}.pcap.zst"], "throttle")["throttle_obedience"]
    (note,) = table.notes
    assert note.startswith("These brokers hold throttled responses back") == holds_back
    assert ("should not send" in note) != holds_back
