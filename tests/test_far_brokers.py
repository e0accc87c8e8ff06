"""Captures at a client that is far from its brokers, beside captures at the brokers' host (samples/account)."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from kafkatap import analyze

FOLDER = Path(__file__).resolve().parents[1] / "samples" / "account"
MS = 1_000_000
#: APIs that wait for data or members: their waits contain the round trip.
WAITS = {"Fetch", "JoinGroup", "SyncGroup"}


@cache
def read(name: str, end: str) -> Any:
    return analyze(FOLDER / f"{name}-{end}.pcap.zst")


def rows(name: str, end: str) -> dict[tuple[int, int], dict[str, Any]]:
    """The answered exchanges of APIs that do not wait."""
    return {
        (row["client_port"], row["correlation_id"]): row for row in read(name, end).exchanges.to_pylist()
        if row["outcome"] == "answered" and row["api_name"] not in WAITS
    }  # fmt: skip


def own(row: dict[str, Any]) -> int:
    """The time of an exchange between request and response, without the round trip, ns."""
    whole: int = row["broker_ns"] + row["hol_wait_ns"] - row["round_trip_ns"] - row["hol_round_trip_ns"]
    return whole


@pytest.mark.parametrize("name", ["far", "step"])
def test_without_the_round_trip_broker_times_of_both_ends_agree(name: str) -> None:
    """It is that of the forwarder, and both ends saw the same exchanges."""
    truth = json.loads((FOLDER / f"{name}.truth.json").read_text())
    since = truth["steps"][0] if truth["steps"] else 0
    client, broker = rows(name, "client"), rows(name, "broker")
    both = [key for key in client.keys() & broker.keys() if client[key]["request_first"].timestamp() > since]
    assert len(both) >= 100
    delay = truth["forwarder_delay_ms"]
    trips = [(client[key]["round_trip_ns"] + client[key]["hol_round_trip_ns"]) / MS for key in both]
    assert median(trips) == pytest.approx(delay, abs=4)
    differ = [abs(own(client[key]) - own(broker[key])) / MS for key in both]
    assert median(differ) < 3
    assert sum(map(own, (client[key] for key in both))) < 1.2 * sum(map(own, (broker[key] for key in both)))
    assert all(row["round_trip_ns"] == row["hol_round_trip_ns"] == 0 for row in broker.values())


def test_without_the_round_trip_broker_times_are_those_of_the_request_log() -> None:
    """A relay is 15 ms away. Of Produces without loss."""
    log = {
        (port, number): total
        for port, number, total, _ in json.loads((FOLDER / "lossy.truth.json").read_text())["request_log"]
    }
    found = {key: row for key, row in rows("lossy", "client").items() if key in log and row["loss_ns"] == 0}
    assert len(found) >= 8
    differ = [abs((row["broker_ns"] - row["round_trip_ns"]) / MS - log[key]) for key, row in found.items()]
    assert median(differ) < 3
    assert median(abs(row["broker_ns"] / MS - log[key]) for key, row in found.items()) > 25


def test_before_the_step_the_broker_is_near() -> None:
    since = json.loads((FOLDER / "step.truth.json").read_text())["steps"][0]
    early = [row for row in rows("step", "client").values() if row["response_last"].timestamp() < since]
    assert len(early) >= 50
    assert all(row["round_trip_ns"] == row["hol_round_trip_ns"] == 0 for row in early)


@pytest.mark.parametrize("name", ["far", "step"])
def test_the_network_is_to_blame(name: str) -> None:
    """Not the broker, and no setting of the client: what the clients measured is the forwarder's delay."""
    truth = json.loads((FOLDER / f"{name}.truth.json").read_text())
    report = read(name, "client").report()
    clients = {row["client_id"]: row for row in report.table("clients").named_rows()}
    for client, log in truth["client_log"].items():
        assert clients[client]["verdict"] == "network"
        assert clients[client]["total_p50_ns"] / MS == pytest.approx(log["p50_ms"], rel=0.05)
        assert log["p50_ms"] == pytest.approx(truth["forwarder_delay_ms"], rel=0.1)
    found = [row["finding"] for row in report.table("summary").named_rows()]
    assert "slow_network" in found
    assert "slow_broker" not in found
    if name == "step":  # in the other one, the broker needed 0.9 s for a first Produce, with others behind it
        assert found[0] == "slow_network"


def test_the_broker_end_blames_nobody() -> None:
    found = [row["finding"] for row in read("step", "broker").report().table("summary").named_rows()]
    assert not any(name.startswith("slow_") for name in found)


def test_captures_of_both_ends_are_not_one_place() -> None:
    """Read together, a request counts from the client's end, and its response from the broker's."""
    both = analyze([FOLDER / f"step-{end}.pcap.zst" for end in ("broker", "client")]).report()
    (found,) = [row for row in both.table("summary").named_rows() if row["finding"] == "mixed_times"]
    assert dict(found["numbers"])["captures"] == 2
    for end in ("client", "broker"):
        assert "mixed_times" not in [row["finding"] for row in read("step", end).report().table("summary").named_rows()]
