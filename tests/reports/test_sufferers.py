"""Whose fault slow requests are, by counting who suffers: units made by hand, and recordings of brokers and a host that
were made slow."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from kafkatap.reports.sections.sufferers import Asked, Fault, Unit, Units, fault, numbers_of, suffering
from tests.cli.running import kafkatap
from tests.reports import rows as made
from tests.reports.rows import MS
from tests.reports.test_slow_times import first_lines, produced

FOLDER = Path(__file__).resolve().parents[2] / "samples" / "events" / "freezes"
PRODUCE, FETCH = 0, 1
#: A unit in words: client, host, broker, and how many of 100 Produce requests were slow.
One = tuple[str, str, str, int]


def judged(place: str, *units: One, most: int = 100) -> Fault | None:
    asked = {Unit(*who): {PRODUCE: Asked(most, slow, slow * 50 * MS)} for *who, slow in units}
    return fault(place, suffering(Units(asked, {}), {PRODUCE}, {who[0] for who in units if who[3]}))


def named(found: Fault | None) -> tuple[str, ...] | None:
    return None if found is None else (found.kind, *found.names)


B1, B2 = "10.0.0.1:9092", "10.0.0.2:9092"
SLOW: list[One] = [("a", "h1", B1, 20), ("b", "h2", B1, 20)]
WELL: list[One] = [("a", "h1", B2, 0), ("c", "h1", B2, 1)]


def test_a_broker_at_which_clients_of_several_hosts_suffer() -> None:
    found = judged("broker", *SLOW, *WELL)
    assert named(found) == ("broker", B1)
    assert found is not None
    assert {(unit.client, unit.broker) for unit in found.well} == {("a", B2), ("c", B2)}


#: What is just outside of it.
NO_BROKER: dict[str, tuple[str, Iterable[One]]] = {
    "one host": ("broker", [("a", "h1", B1, 20), ("b", "h1", B1, 20), *WELL, ("d", "h2", B2, 0)]),
    "one client lost nearly all": ("broker", [("a", "h1", B1, 82), ("b", "h2", B1, 20), *WELL]),
    "one is well elsewhere": ("broker", [*SLOW, WELL[0]]),
    "others are well there": ("broker", [*SLOW, *WELL, ("c", "h1", B1, 0)]),
    "slow elsewhere too": ("broker", [*SLOW, *WELL, ("d", "h2", B2, 9)]),
    "one client_id": ("broker", [("a", "h1", B1, 20), ("a", "h2", B1, 20), ("c", "h1", B2, 0), ("d", "h1", B2, 0)]),
    "slow clients": ("client", [*SLOW, *WELL]),
}


@pytest.mark.parametrize("why", NO_BROKER)
def test_no_broker(why: str) -> None:
    assert judged(NO_BROKER[why][0], *NO_BROKER[why][1]) is None


def test_one_client_id_that_is_well_at_other_brokers() -> None:
    assert named(judged("broker", *(("a", f"h{n}", B1, 20) for n in (1, 2)), *WELL)) == ("broker", B1)


def test_the_only_broker() -> None:
    assert named(judged("broker", *SLOW)) == ("broker", B1)
    assert judged("head-of-line", *SLOW) is None  # clients send so many at once, too
    assert judged("broker", ("a", "h1", B1, 20), ("a", "h2", B1, 20)) is None


def test_all_brokers_and_one_host_of_all() -> None:
    both = [(client, host, broker, 20) for client, host in (("a", "h1"), ("b", "h2")) for broker in (B1, B2)]
    assert named(judged("broker", *both)) == ("cluster", B1, B2)
    assert judged("broker", *both[:3]) is None  # one host only at the second
    assert judged("broker", *both, ("c", "h3", B2, 0)) is None
    there = [(client, host, broker.replace("0.2:9092", "0.1:9093"), slow) for client, host, broker, slow in both]
    assert named(judged("broker", *there)) == ("host", "10.0.0.1")


def test_a_host_whose_clients_suffer_alone() -> None:
    slow: list[One] = [("a", "h1", B1, 20), ("b", "h1", B1, 20)]
    others: list[One] = [("c", "h2", B1, 0), ("d", "h2", B1, 0)]
    assert named(judged("network", *slow, *others)) == ("host", "h1")
    assert judged("broker", *slow, *others) is None  # the time passed at the broker
    assert judged("network", *slow, others[0]) is None
    assert judged("network", *slow, *((*who[:2], B2, 0) for who in others)) is None  # at other brokers
    assert judged("network", *slow, *others, ("e", "h1", B1, 0)) is None  # well at the same host
    assert judged("network", *slow[:1], *others) is None  # one client
    again: list[One] = [("a", "h2", B1, 0), ("d", "h3", B1, 0)]
    assert judged("network", ("a", "h1", B1, 20), ("a", "h1", B2, 20), *again) is not None  # well at other hosts


@pytest.mark.parametrize(("requests", "is_well"), [(15, True), (14, False)])
def test_one_that_asks_seldom_is_not_well(requests: int, is_well: bool) -> None:
    """Of 20 % it would have 3 slow ones."""
    asked = {Unit("a", "h1", B1): {PRODUCE: Asked(100, 20, MS)}, Unit("b", "h2", B1): {PRODUCE: Asked(requests)}}
    found = suffering(Units(asked, {}), {PRODUCE}, {"a"})
    assert bool(found.well) == is_well


@pytest.mark.parametrize(("slow", "is_hit"), [(5, True), (4, False), (1, False)])
def test_one_that_is_slow_less_often_does_not_suffer(slow: int, is_hit: bool) -> None:
    asked = {Unit("a", "h1", B1): {PRODUCE: Asked(100, 20, MS)}, Unit("b", "h2", B1): {PRODUCE: Asked(100, slow, MS)}}
    found = suffering(Units(asked, {}), {PRODUCE}, {"a"})
    assert (Unit("b", "h2", B1) in found.hit) == is_hit
    assert numbers_of(found, found.hit) == {
        "hosts": 1 + is_hit, "of_hosts": 2, "clients": 1 + is_hit, "of_clients": 2, "brokers": 1, "of_brokers": 1,
    }  # fmt: skip


def test_other_apis_say_nothing() -> None:
    """Readers are well at a broker whose writers are slow."""
    asked = {
        **{Unit(client, f"h{n}", B1): {PRODUCE: Asked(100, 20, MS)} for n, client in enumerate("ab")},
        **{Unit(client, f"h{n}", B1): {FETCH: Asked(100)} for n, client in enumerate("cd")},
    }
    found = suffering(Units(asked, {}), {PRODUCE}, {"a", "b"})
    assert len(found.every) == 2
    assert named(fault("broker", found)) == ("broker", B1)


def test_the_line_is_on_the_broker_and_names_those_that_suffer() -> None:
    rows = []
    for client, host, broker, ms in (
        (made.BILLING, 0, 1, 300), (made.GROUP, 2, 1, 200), (made.BILLING, 0, 2, 5), (made.GROUP, 2, 2, 5),
    ):  # fmt: skip
        rows += [
            produced(len(rows) + n, 500 * n, ms, client_id=client, client_ip=host, broker_ip=broker) for n in range(50)
        ]
    (row,) = first_lines(*rows)
    assert row["finding"] == "slow_broker"
    assert row["text"] == (
        "broker 10.0.0.2:9092: Produce p99 300 ms, longest 300 ms; for 22.8 s; broker 100 %; 2 clients of 2 hosts; "
        "2 clients at other brokers not slow"
    )
    assert list(row["parties"][:2]) == [
        ("broker", "10.0.0.2:9092"), ("client", "billing"),
    ]  # fmt: skip
    numbers = dict(row["numbers"])
    assert (numbers["hosts"], numbers["of_hosts"], numbers["brokers"], numbers["of_brokers"]) == (2, 2, 1, 2)
    assert numbers["requests"] == 100


@pytest.mark.parametrize(
    ("scene", "begins", "party"),
    [
        ("slow-broker", "broker 10.77.0.2:9092: Produce", ("broker", "10.77.0.2:9092")),
        ("slow-cluster", "both brokers: Produce", ("broker", "10.77.0.1:9092")),
        ("far-host", "host 10.78.1.1: Produce", ("host", "10.78.1.1")),
        ("freezes-alone", 'client "checkout": Produce', ("client", "checkout")),
    ],
)
def test_recordings(scene: str, begins: str, party: tuple[str, str]) -> None:
    rows: list[dict[str, Any]] = json.loads(kafkatap("report", "--json", FOLDER / f"{scene}.pcap.zst").out)["reports"][
        "summary"
    ]
    assert rows[0]["text"].startswith(begins)
    assert (rows[0]["parties"][0]["kind"], rows[0]["parties"][0]["name"]) == party
