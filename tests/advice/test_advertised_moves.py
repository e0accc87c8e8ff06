"""A broker that comes back under an address that nobody reaches: a recording, and talks by hand."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest

from kafkatap.reports.findings import Finding, Party
from kafkatap.reports.sections.advice import findings
from tests.support.captures import pcap_bytes
from tests.support.section_runs import section_input
from tests.support.tcp import START_NS, Segment, encode, merge
from tests.wire.kafkatalk import API_VERSIONS, METADATA, PRODUCE, KafkaTalk

from .advice_samples import FOLDER, SECOND, found, truth

LARGEST = 40_000
NAME = "advertised-moved"
BROKER, OLD, NEW, CLIENT = "10.0.0.2", ("10.0.0.3", 9092), ("172.17.0.5", 9092), "10.0.0.1"


def ns(text: str) -> float:
    return datetime.fromisoformat(text).timestamp() * SECOND


def test_it_is_named_with_the_old_address_and_who_was_told() -> None:
    (finding,) = found(NAME)
    made = truth(NAME)
    assert finding.id == "advertised_unreachable"
    brokers = [party.name for party in finding.parties if party.kind == "broker"]
    assert brokers == [made["advertised"], made["before"]]
    assert finding.numbers["node"] == made["broker"]
    assert finding.numbers["unanswered"] == made["syns"]
    assert finding.begin == pytest.approx(ns(made["first_connect"]), abs=0.01 * SECOND)
    assert [party.name for party in finding.parties if party.kind == "client"] == made["told"]
    assert finding.numbers["partitions"] == len(made["leads_again"]["orders"])
    assert Party("topic", "orders") in finding.parties
    assert "orders[1, 3]" in finding.text


def test_the_recording_is_small_and_described() -> None:
    assert (FOLDER / f"{NAME}.pcap.zst").stat().st_size <= LARGEST
    assert f"`{NAME}`" in (FOLDER / "README.md").read_text()


def asks(places: list[tuple[str, int]], apart_ns: int, port: int = 40_000) -> list[Segment]:
    """A client that works with broker 1, and is told an address of broker 2 each time that it asks."""
    talk = KafkaTalk((CLIENT, port), (BROKER, 9092))
    talk.tcp.open()
    talk.respond(talk.request(PRODUCE, 3, 1, Acks=1))
    for n, (host, number) in enumerate(places, 2):
        asked = talk.request(METADATA, 1, n, Topics=[])
        brokers = [{"NodeId": 1, "Host": BROKER, "Port": 9092}, {"NodeId": 2, "Host": host, "Port": number}]
        talk.respond(asked, Brokers=brokers, ControllerId=1)
        talk.tcp.wait(apart_ns)
    return talk.segments


def connects(host: str, broker: tuple[str, int], count: int, is_answered: bool) -> list[Segment]:
    """Connections, each a second after the one before. Without an answer: only their SYNs."""
    made: list[Segment] = []
    for n in range(count):
        talk = KafkaTalk((host, 50_000 + n), broker, time_ns=START_NS + 2 * SECOND + n * SECOND, isn=(n, n))
        talk.tcp.open()
        if is_answered:
            talk.respond(talk.request(API_VERSIONS, 0, 1))
        made += talk.segments if is_answered else talk.segments[:1]
    return made


def on(tmp_path: Path, *parts: list[Segment]) -> list[Finding]:
    path = tmp_path / "a.pcap"
    path.write_bytes(pcap_bytes(encode(merge(*parts))))
    return [each for each in findings(section_input(path, "advice")) if each.id == "advertised_unreachable"]


MOVED = [OLD] * 2 + [NEW] * 6


@pytest.mark.parametrize(("count", "is_named"), [(2, True), (1, False)])
def test_connects_of_another_broker_count(count: int, is_named: bool, tmp_path: Path) -> None:
    assert len(on(tmp_path, asks(MOVED, SECOND), connects(BROKER, NEW, count, False))) == is_named


def test_an_address_that_somebody_reaches_is_none(tmp_path: Path) -> None:
    tries = connects(BROKER, NEW, 3, False)
    assert on(tmp_path, asks(MOVED, SECOND), tries, connects("10.0.0.9", NEW, 1, True)) == []


def test_a_broker_that_is_down_under_its_own_address_has_not_moved(tmp_path: Path) -> None:
    assert on(tmp_path, asks([NEW] * 8, SECOND), connects(BROKER, NEW, 5, False)) == []


def test_two_listeners_in_turn_are_no_move(tmp_path: Path) -> None:
    assert on(tmp_path, asks([OLD, NEW] * 4, SECOND), connects(BROKER, NEW, 5, False)) == []


@pytest.mark.parametrize(
    ("host", "apart_s", "is_named"), [(CLIENT, 1, True), (CLIENT, 60, False), ("10.0.0.9", 1, False)]
)
def test_a_client_that_never_connects_to_it_asks_often(host: str, apart_s: int, is_named: bool, tmp_path: Path) -> None:
    """It had connected to the old address: so packets between the two pass the capture point."""
    made = on(tmp_path, asks(MOVED, apart_s * SECOND), connects(host, OLD, 1, True))
    assert len(made) == is_named
    for finding in made:
        assert finding.party("client") == "app"
        assert finding.begin is not None
        assert finding.begin / SECOND == pytest.approx(START_NS / SECOND + 2, abs=0.1)
