"""The parts of exchanges' times beside what scripts, clients, brokers and kernels noted (samples/account)."""

from __future__ import annotations

import json
from functools import cache
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import pytest

from kafkatap import analyze

SAMPLES = Path(__file__).resolve().parents[1] / "samples"
FOLDER = SAMPLES / "account"
NAMES = ("firewall", "lossy", "late", "muted")
PRODUCE, FETCH = 0, 1
LARGEST = 40_000
MS = 1_000_000
#: Data of a segment of these connections; the last one of a request or response is shorter.
FULL = 1448


class Timed(NamedTuple):
    """A request by the client's clock, ms."""

    port: int
    correlation_id: int
    api_key: int
    at: float
    took: float
    throttle_ms: int


@cache
def truth(name: str) -> dict[str, Any]:
    made: dict[str, Any] = json.loads((FOLDER / f"{name}.truth.json").read_text())
    return made


@cache
def timed(name: str) -> tuple[Timed, ...]:
    return tuple(Timed(*row) for row in truth(name)["requests"])


@cache
def logged(name: str) -> dict[tuple[int, int], float]:
    """totalTimeMs in the broker's request log, by port and correlation id."""
    return {(port, number): total for port, number, total, _ in truth(name)["request_log"]}


@cache
def rows(name: str, end: str) -> dict[tuple[int, int], dict[str, Any]]:
    """The exchanges of a recording at an end, by port and correlation id."""
    found = analyze(FOLDER / f"{name}-{end}.pcap.zst").exchanges.to_pylist()
    return {(row["client_port"], row["correlation_id"]): row for row in found}


def connections(name: str, end: str) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = analyze(FOLDER / f"{name}-{end}.pcap.zst").connections.to_pylist()
    return made


def test_recordings_are_small_and_described() -> None:
    readme = (FOLDER / "README.md").read_text()
    for name in NAMES:
        assert f"`{name}`" in readme
        for end in ("client", "broker"):
            assert (FOLDER / f"{name}-{end}.pcap.zst").stat().st_size <= LARGEST


def test_a_firewall_costs_what_the_client_waited_for_it() -> None:
    """By the client's clock, without what the broker's log says."""
    stopped = [request for request in timed("firewall") if request.took > 1000]
    assert len(stopped) == len(truth("firewall")["steps_ms"]) // 2
    for request in timed("firewall"):
        row, log = rows("firewall", "client")[request[:2]], logged("firewall")[request[:2]]
        waited = request.took - log if request in stopped else 0
        assert row["loss_ns"] / MS == pytest.approx(waited, rel=0.02)
        assert row["broker_ns"] / MS == pytest.approx(log, rel=0.15, abs=2)
        assert row["sender_ns"] == row["receiver_ns"] == 0


def test_a_firewall_costs_what_the_kernel_was_busy() -> None:
    """With data that was not acknowledged, less the broker's time. The kernel counts its retransmissions."""
    (kernel,) = truth("firewall")["connections"]
    (connection,) = connections("firewall", "client")
    lost = sum(row["loss_ns"] for row in rows("firewall", "client").values()) / MS
    assert lost == pytest.approx(kernel["busy_ms"], rel=0.03)
    assert connection["client_retransmitted_packets"] == kernel["retrans"]
    assert connection["client_spurious_retransmissions"] == 0


def test_behind_the_firewall_the_broker_is_as_fast_as_its_log() -> None:
    """The first copies were never captured there."""
    for key, log in logged("firewall").items():
        row = rows("firewall", "broker")[key]
        assert row["broker_ns"] / MS == pytest.approx(log, rel=0.15, abs=2)
        assert row["sender_ns"] == row["receiver_ns"] == 0


def lost_in(request: Timed) -> tuple[list[int], list[int]]:
    """The bytes of each segment that the relay dropped during a request: of the client, of the broker."""
    made: tuple[list[int], list[int]] = ([], [])
    for at, source, destination, _, size in truth("lossy")["dropped"]:
        if request.at <= 1000 * at <= request.at + request.took and request.port in (source, destination):
            made[source != request.port].append(size)
    return made


def extra(request: Timed) -> float:
    """How much longer than others of its API a request took, without the broker's time by its log, ms."""
    outside = {r: r.took - logged("lossy")[r[:2]] for r in timed("lossy") if r.api_key == request.api_key}
    return outside[request] - median(took for r, took in outside.items() if lost_in(r) == ([], []))


def own_losses(api_key: int) -> list[Timed]:
    """The requests of an API whose large message lost segments, and the small one of which none."""
    large = 0 if api_key == PRODUCE else 1
    hits = [(request, lost_in(request)) for request in timed("lossy") if request.api_key == api_key]
    return [request for request, lost in hits if lost[large] and not lost[1 - large]]


@pytest.mark.parametrize("api_key", [PRODUCE, FETCH])
def test_loss_costs_what_lossy_requests_took_longer(api_key: int) -> None:
    """Recorded at the client: it sends the Produces, and gets the responses to the Fetches."""
    requests = own_losses(api_key)
    found = {request: rows("lossy", "client")[request[:2]]["loss_ns"] / MS for request in requests}
    assert len(requests) >= 8
    assert sum(found.values()) == pytest.approx(sum(map(extra, requests)), rel=0.1)
    close = [found[request] == pytest.approx(extra(request), rel=0.15, abs=6) for request in requests]
    assert sum(close) >= 0.75 * len(close)  # the relay held other packets back as well, on a busy machine
    for request in requests:
        assert found[request] <= 1.15 * extra(request) + 6, request


def test_loss_in_front_of_the_capture_point() -> None:
    """At the broker, where no copy that was lost was captured. What lacks at the end of a request was not seen to
    lack there; if its begin was lost, its time begins later."""
    found, wanted = [], []
    for request in own_losses(PRODUCE):
        row = rows("lossy", "broker")[request[:2]]
        began = row["request_first"].timestamp() * 1000
        if set(lost_in(request)[0]) == {FULL} and began < request.at + 15 + 10:
            found.append(row["loss_ns"] / MS)
            wanted.append(extra(request))
            assert row["broker_ns"] / MS == pytest.approx(logged("lossy")[request[:2]], rel=0.15, abs=3)
    assert len(found) >= 5
    assert sum(found) == pytest.approx(sum(wanted), rel=0.1)


@pytest.mark.parametrize("end", ["client", "broker"])
def test_where_nothing_was_lost_nothing_is(end: str) -> None:
    for request in timed("lossy"):
        if lost_in(request) == ([], []):
            assert rows("lossy", end)[request[:2]]["loss_ns"] == 0, request


def test_the_total_time_is_the_clients() -> None:
    """Until the last missing byte had come."""
    for request in timed("lossy"):
        total = rows("lossy", "client")[request[:2]]["total_ns"] / MS
        assert total == pytest.approx(request.took, abs=5)
        assert rows("lossy", "broker")[request[:2]]["total_ns"] / MS < request.took


@pytest.mark.parametrize("end", ["client", "broker"])
def test_spurious_retransmissions_are_those_that_the_kernels_learnt_of(end: str) -> None:
    """The relay loses nothing."""
    counted = truth("late")["counters"]
    seen = connections("late", end)
    for side in ("client", "broker"):
        spurious = sum(row[f"{side}_spurious_retransmissions"] for row in seen)
        assert spurious == counted[side]["TcpExtTCPDSACKRecv"] > 0
    assert sum(row["client_spurious_retransmissions"] for row in seen) == sum(
        row.get("dsack_dups", 0) for row in truth("late")["connections"]
    )
    for row in rows("late", end).values():
        assert row["loss_ns"] == row["sender_ns"] == row["receiver_ns"] == 0


@pytest.mark.parametrize("end", ["client", "broker"])
def test_a_mute_is_throttle_wait_and_not_the_receivers(end: str) -> None:
    """A request waits for the throttle time of the response before it. It is sent at once."""
    requests = timed("muted")
    for ahead, request in pairwise(requests):
        row = rows("muted", end)[request[:2]]
        passed = request.at - ahead.at - ahead.took
        wait = max(0.0, ahead.throttle_ms - passed)
        assert row["throttle_wait_ns"] / MS == pytest.approx(wait, rel=0.15, abs=3)
        if wait > 100:
            assert row["receiver_ns"] <= 0.02 * row["total_ns"]
            assert row["throttle_wait_ns"] >= 0.85 * row["total_ns"]
    assert sum(request.throttle_ms for request in requests[:-1]) > 2000


def test_nagle_costs_each_request_what_the_kernel_held_back() -> None:
    """The kernel of the client says when it had sent the second piece."""
    held: list[list[float]] = json.loads((SAMPLES / "advice" / "nagle.truth.json").read_text())["requests"]
    found = analyze(SAMPLES / "advice" / "nagle.pcap.zst").exchanges.to_pylist()
    waits = [row["nagle_ns"] / MS for row in found if row["api_key"] == PRODUCE]
    assert len(waits) == len(held)
    assert sum(waits) == pytest.approx(sum(sent for sent, _ in held), rel=0.15)
    for wait, (sent, _) in zip(waits, held, strict=True):
        assert wait == pytest.approx(sent, rel=0.15, abs=3)


def test_responses_whose_ends_were_lost_behind_the_capture_point_arrived_with_the_copies() -> None:
    """The broker's end has their last bytes before a relay drops them. Each Fetch takes the client so much longer than
    others. Of those with a request that was lost before the capture point, that is not known."""
    resent = {
        row["client_port"]: row["response_resent_ns"] / MS
        for row in analyze(FOLDER / "lossy-broker.pcap.zst").connections.to_pylist()
    }
    usual = min(one.took - rows("lossy", "broker")[one[:2]]["total_ns"] / MS for one in timed("lossy"))
    seen = 0
    for port in {one.port for one in timed("lossy")}:
        late = [
            one.took - rows("lossy", "broker")[one[:2]]["total_ns"] / MS - usual
            for one in timed("lossy") if one.port == port and one.api_key == FETCH
        ]  # fmt: skip
        if max(late) < 150 and resent[port] < 150:
            seen += 1
            assert abs(resent[port] - sum(late)) < 13, port
    assert seen >= 6
    at_client = analyze(FOLDER / "lossy-client.pcap.zst").connections.to_pylist()
    assert not any(row["response_resent_ns"] for row in at_client)


@pytest.mark.parametrize("name", ["late-broker", "late-client", "far-broker", "muted-broker"])
def test_copies_that_nobody_needed_cost_nothing(name: str) -> None:
    found = analyze(FOLDER / f"{name}.pcap.zst").connections.to_pylist()
    assert not any(row["response_resent_ns"] for row in found)
