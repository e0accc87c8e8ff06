"""The map of a cluster: each broker has one name in the parties of all findings, `address:port`."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from kafkatap import analyze
from kafkatap.reports.batch import Context
from kafkatap.reports.findings import Finding, Party
from kafkatap.reports.section_parts.cluster import Cluster
from kafkatap.reports.sections.advice import findings as advice
from kafkatap.reports.sections.events import findings as events
from kafkatap.reports.sections.folding import folded
from kafkatap.reports.sections.folds import Known
from tests.support.captures import pcap_bytes
from tests.support.section_runs import section_input
from tests.support.tcp import encode, merge
from tests.wire.kafkatalk import KafkaTalk

SAMPLES = Path(__file__).resolve().parents[2] / "samples"
SLOW_FOLLOWER = SAMPLES / "advice" / "slow-follower.pcap.zst"
METADATA, DESCRIBE_CLUSTER = 3, 60


def listing(folder: Path, nodes: dict[int, str], at_ns: int, *ends: str, leader: int = 1) -> Path:
    """A client that is told these nodes (by host) by the first of some brokers, and asks the others too."""
    talks = []
    for number, end in enumerate(ends):
        talk = KafkaTalk(
            client=("10.77.0.99", 40_000 + number + at_ns // 10**9 % 1_000), broker=(end, 9092), time_ns=at_ns
        )
        talk.tcp.open()
        brokers = [{"NodeId": node, "Host": host, "Port": 9092} for node, host in nodes.items()]
        partitions = [{"PartitionIndex": p, "LeaderId": leader} for p in range(6)]
        topics = [{"Name": "clicks", "Partitions": partitions}]
        talk.respond(talk.request(METADATA, 1, 1), Brokers=brokers if not number else [], Topics=topics)
        talks.append(talk.segments)
    path = folder / "listing.pcap"
    path.write_bytes(pcap_bytes(encode(merge(*talks)), nanoseconds=True))
    return path


def late_follower(*captures: Path) -> Finding:
    (found,) = (f for f in advice(section_input([SLOW_FOLLOWER, *captures], "advice")) if f.id == "slow_follower")
    return found


@pytest.mark.parametrize(
    ("nodes", "ends"),
    [
        ({3: "10.77.0.3"}, ("10.77.0.1",)),  # as it is advertised
        ({3: "b-3.kafka"}, ("10.77.0.3",)),  # of the only end of that port
        ({}, ("10.77.0.3",)),  # of the only end of the follower's host
    ],
)
def test_a_slow_follower_is_named_by_its_listener(tmp_path: Path, nodes: dict[int, str], ends: tuple[str, ...]) -> None:
    began = late_follower().begin
    assert began is not None
    found = late_follower(listing(tmp_path, nodes, began, *ends))
    assert found.party("broker") == "10.77.0.3:9092"
    assert "broker 3 (10.77.0.3:9092)" in found.text
    assert (
        found.numbers["follower"]
        == json.loads((SLOW_FOLLOWER.parent / "slow-follower.truth.json").read_text())["follower"]
    )


def test_a_slow_follower_follows_from_the_outage_of_that_broker(tmp_path: Path) -> None:
    began = late_follower().begin
    assert began is not None
    late = late_follower(listing(tmp_path, {3: "10.77.0.3"}, began, "10.77.0.1"))
    hung = Finding("broker_hung", "error", "", "", begin=began - 1, parties=(Party("broker", "10.77.0.3:9092"),))
    made = dict(folded([("events", hung), ("advice", late)], Known(Context())))
    assert made["advice"].cause == hung.key


def test_a_hot_leader_is_named_by_its_end(tmp_path: Path) -> None:
    """Its host is advertised by a name."""
    nodes = {1: "b-1.kafka", 2: "10.77.0.2", 3: "10.77.0.3"}
    given = section_input(listing(tmp_path, nodes, 10**18, "10.77.0.1"), "advice")
    (found,) = (f for f in advice(given) if f.id == "hot_leader")
    assert found.party("broker") == "10.77.0.1:9092"


def test_brokers_have_the_names_that_they_advertise(tmp_path: Path) -> None:
    """Those of a file come first. What is no name, or of an unknown address, names nothing."""
    path = listing(tmp_path, {1: "b-1.kafka", 2: "10.77.0.2", 3: ""}, 10**18, "10.77.0.1")
    report = analyze(path).report(by="broker")
    assert {row["broker_host"] for row in report["latency"]} == {"b-1.kafka"}
    assert report.heading[0]["broker_hosts"] == ("b-1.kafka",)
    names = tmp_path / "hosts"
    names.write_text("10.77.0.1 mine\n10.77.0.99 client\n")
    named = analyze(path, hosts=names).report(by="broker", sections=["latency", "clients"])
    assert {row["broker_host"] for row in named["latency"]} == {"mine"}
    assert {row["client_host"] for row in named["clients"]} == {"client"}


def test_described_brokers_have_names(tmp_path: Path) -> None:
    talk = KafkaTalk(client=("10.77.0.99", 40_000), broker=("10.77.0.1", 9092))
    talk.tcp.open()
    brokers = [{"BrokerId": 1, "Host": "b-1.kafka", "Port": 9092}]
    talk.respond(talk.request(DESCRIBE_CLUSTER, 1, 1), Brokers=brokers)
    path = tmp_path / "described.pcap"
    path.write_bytes(pcap_bytes(encode(talk.segments), nanoseconds=True))
    assert analyze(path).report().heading[0]["broker_hosts"] == ("b-1.kafka",)


def test_a_node_without_an_end_has_its_number(tmp_path: Path) -> None:
    """Whenever its address is learned: a live capture names an event once."""
    before = listing(tmp_path, {1: "10.77.0.1", 2: "10.77.0.2"}, 10**18, "10.77.0.1", leader=2)
    (tmp_path / "later").mkdir()
    after = listing(tmp_path / "later", {1: "10.77.0.1", 2: "10.77.0.2"}, 10**18 + 10**10, "10.77.0.1", leader=1)
    (moved,) = (f for f in events(section_input([before, after], "events")) if f.id == "leaders_moved")
    assert moved.parties == (Party("broker", "2"),)


def test_brokers_of_recordings_have_an_address_and_a_port() -> None:
    names = set()
    for path in sorted((SAMPLES / "events").glob("*.pcap.zst"))[::3]:
        given = section_input(path, ["events", "advice"])
        found = [*events(given), *advice(given)]
        names |= {party.name for finding in found for party in finding.parties if party.kind == "broker"}
        known = given.once(Cluster)
        assert {known.name(number) for number in range(len(known))} >= {
            finding.party("broker") for finding in found if finding.id.startswith("broker_")
        }
    assert names
    assert [name for name in names if not re.fullmatch(r"\S+:\d+|\d+", name)] == []
