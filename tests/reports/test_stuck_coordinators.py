"""Who names a coordinator that refuses: just inside and just outside of the rule, and in a recording."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kafkatap.reports.sections.stuck_coordinators import stuck_coordinator
from tests.advice.made_input import given_of
from tests.support.section_runs import section_input

from .rows import GROUP, HOSTILE, MS, STRINGS, exchange, fact, result

SAMPLES = Path(__file__).resolve().parents[2] / "samples"
HEARTBEAT, FIND, METADATA = 12, 10, 3
HOSTS = [*STRINGS, b"10.0.0.2", b"10.0.0.9"]


def said(asked: int, *changed: tuple[int, dict[str, Any]], node: int = 1, last: int = 1000) -> str | None:
    """A client is refused by broker 1 at 10.0.0.2 from 10 ms to `last` ms, and broker 2 at 10.0.0.9 names it each 20 ms
    from then on, `asked` times. `changed`: a time in ms, and columns of one more answer."""
    rows = [exchange(0, 0, MS, api_key=METADATA)]
    facts = [fact(0, "metadata broker", node=n, port=9092, host=len(STRINGS) + n - 1) for n in (1, 2)]
    results = []
    for number, at in ((1, 10), (2, last)):
        rows.append(exchange(number, at * MS, 0, api_key=HEARTBEAT))
        results.append(result(number, 16))
    finds: list[tuple[int, dict[str, Any]]] = [(20 * n + 20, {"node": node}) for n in range(asked)]
    for number, (at, columns) in enumerate([*finds, *changed], 3):
        own = {name: value for name, value in columns.items() if name != "node"}
        rows.append(exchange(number, at * MS, 0, api_key=FIND, broker_ip=2, **own))
        facts += [
            fact(number, "find coordinator", key=GROUP),
            fact(number, "coordinator", node=columns["node"], error_code=0),
        ]
    rows.sort(key=lambda row: int(row["request_first"]))
    return stuck_coordinator(given_of(rows, (), facts, results, sections=("events",), strings=HOSTS))


@pytest.mark.parametrize(
    ("given", "is_said"),
    [
        (((3,), {}), True),
        (((2,), {}), False),
        (((3,), {"node": 2}), False),
        (((3,), {"last": 60}), True),
        (((3,), {"last": 59}), False),  # it is not refused after the last answer
        (((2, (5, {"node": 1})), {}), False),  # before it refused
        (((3, (100, {"node": 2})), {}), False),  # it is sent to another one
        (((3, (100, {"node": 2, "client_id": HOSTILE})), {}), True),
    ],
)
def test_who_is_named_after_it_refused(given: tuple[tuple[Any, ...], dict[str, Any]], is_said: bool) -> None:
    words = "FindCoordinator at 10.0.0.9:9092 named broker 1 (10.0.0.2:9092) 3 times meanwhile, which refuses"
    positional, named = given
    assert said(*positional, **named) == (words if is_said else None)


def test_a_cluster_that_names_a_broker_that_refuses_and_one_whose_brokers_restart() -> None:
    stuck = section_input(SAMPLES / "reports" / "not-coordinator.pcap.zst", ["first-lines"])
    assert stuck_coordinator(stuck) == (
        "FindCoordinator at 10.88.0.9:9092 named broker 1 (10.88.0.9:9092) 20 times meanwhile, which refuses"
    )
    restarts = section_input(SAMPLES / "events" / "healthy" / "rolling.pcap.zst", ["first-lines"])
    assert stuck_coordinator(restarts) is None
