"""Section `upgrade`, against what clients saw at real brokers and the broker's own count of deprecated requests."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from kafkatap.dissector.kafka.releases import removed_in
from kafkatap.reports.sections.own_brokers import own_by
from kafkatap.reports.sections.upgrade import java_release
from tests.support.section_runs import QUESTIONS, Row, section_rows


def rows_at(broker: str, release: str = "4.0") -> dict[str, Row]:
    rows = section_rows(QUESTIONS / f"upgrade-{broker}.pcap.zst", "upgrade", {"release": release})["upgrade"]
    return {row["address"]: row for row in rows if row["client_id"] != "ops-admin"}


def truth_of(broker: str) -> Any:
    return json.loads((QUESTIONS / f"upgrade-{broker}.truth.json").read_text())


def failed(outcome: Any) -> bool:
    """Whether a client could not send or read at all."""
    text = json.dumps(outcome)
    return '"sent": 0' in text or "sent 0" in text


def test_the_capture_of_a_3_9_broker_says_who_fails_at_4_3() -> None:
    hosts = truth_of("3.9")["hosts"]
    outcomes = truth_of("4.3")["clients"]
    rows = rows_at("3.9")
    assert set(rows) == set(hosts.values())
    for client, outcome in outcomes.items():
        address = hosts[client.partition(" ")[0]]
        assert rows[address]["verdict"] == ("breaks" if failed(outcome) else "ok"), client
    assert {name for name, outcome in outcomes.items() if failed(outcome)} == {"python-0.10", "java-0.10.2.2"}


def test_at_the_newer_broker_the_same_clients_break() -> None:
    verdicts = {address: row["verdict"] for address, row in rows_at("4.3").items()}
    assert verdicts == {address: row["verdict"] for address, row in rows_at("3.9").items()}


def test_removed_and_deprecated_versions_are_those_that_the_broker_counts() -> None:
    """DeprecatedRequestsPerSec of Kafka 3.9 counts JoinGroup 0 and 1 too, which 4.0 still has."""
    counted = {
        (entry["request"].replace("FetchConsumer", "Fetch"), int(entry["version"]))
        for entry in truth_of("3.9")["deprecated"]
    }
    rows = rows_at("3.9").values()
    removed = {(api, version) for row in rows for api, versions in row["removed"] for version in versions}
    deprecated = {(api, version) for row in rows for api, versions in row["deprecated"] for version in versions}
    assert removed | deprecated == counted
    assert deprecated == {("JoinGroup", 0), ("JoinGroup", 1)}


def test_the_evidence_names_the_limit() -> None:
    row = rows_at("3.9")["10.77.0.13"]
    assert row["evidence"] == (
        "Produce v2, Fetch v3 (removed in 4.0): the client's limit, the broker offers up to v11, v17"
    )
    assert row["fix"] == "use a release of the client's library that speaks Kafka 2.1 or newer"
    assert row["connections"] == row["started"] == 5


def test_no_client_breaks_at_a_release_that_has_all_versions() -> None:
    rows = rows_at("3.9", "3.9").values()
    assert {row["verdict"] for row in rows} == {"ok"}
    assert ("Produce", (2,)) in [pair for row in rows for pair in row["deprecated"]]


def test_versions_that_an_old_broker_limits_are_judged_by_the_software(samples: Path) -> None:
    rows = section_rows(samples / "apache-2.8.pcap.zst", "upgrade")["upgrade"]
    java = [row for row in rows if "apache-kafka-java" in str(row["software"])]
    assert {row["verdict"] for row in java if row["client_id"] != "1"} == {"ok"}
    old = section_rows(samples / "apache-0.10.2.pcap.zst", "upgrade")["upgrade"]
    producer = next(row for row in old if row["client_id"] == "console-producer")
    assert producer["verdict"] == "cannot tell"
    assert producer["evidence"] == "Produce v2 (removed in 4.0): the broker's limit"
    controller = next(row for row in old if row["client_id"] == "1")
    assert controller["verdict"] == "broker"
    assert "KRaft" in controller["fix"]


@pytest.mark.parametrize(
    ("name", "version", "release"),
    [
        ("apache-kafka-java", "3.5.1", "3.5"),
        ("apache-kafka-java", "2.8.2-redhat", "2.8"),
        ("apache-kafka-java", "unknown", None),
        ("apache-kafka-java", None, None),
        ("librdkafka", "2.3.0", None),
    ],
)
def test_releases_of_java_clients(name: str, version: str | None, release: str | None) -> None:
    assert java_release(("client", "10.0.0.1", name, version)) == release


def test_all_removals_are_of_4_0() -> None:
    """The note on clients of 2.1 and the JoinGroup versions above hold for this clean-up only."""
    assert {removed_in(key, version) for key in range(100) for version in range(20)} == {None, "4.0"}


BROKERS = {
    # client ids of the brokers and controllers of each recording, by the node ids of its brokers
    "apache-0.8.2": r"(id_[12]-host_127\.0\.0\.1-port_810[12])?",
    "apache-0.10.2": "[12]",
    "apache-2.8": r"[12]|broker-[12]-.*",
    "apache-4.3": r"[123]|(broker|raft-client)-[123].*",
    "questions/replication": "broker-[23]-fetcher-0",
}


@pytest.mark.parametrize("name", BROKERS)
def test_the_own_clients_of_brokers_are_told_apart(name: str) -> None:
    path = QUESTIONS.parent / f"{name}.pcap.zst"
    rows = section_rows(path, "upgrade", {"release": "4.0"})["upgrade"]
    own = {row["client_id"] or "" for row in rows if row["verdict"] == "broker"}
    assert own
    assert all(re.fullmatch(BROKERS[name], client) for client in own), own
    others = [row for row in rows if row["verdict"] != "broker"]
    assert not any(row["client_id"] and re.fullmatch(BROKERS[name], row["client_id"]) for row in others)
    assert not any("ZooKeeper" in f"{row['evidence']} {row['fix']}" for row in others)
    old = [row for row in rows if row["verdict"] == "broker" and "ZooKeeper" in row["evidence"]]
    assert bool(old) == (name in ("apache-0.8.2", "apache-0.10.2", "apache-2.8"))


def test_a_name_of_a_broker_at_another_address_is_no_broker() -> None:
    assert own_by("broker-1-fetcher-0", "10.0.0.1", {1}, False, {"10.0.0.1"})
    assert not own_by("broker-1-fetcher-0", "10.0.0.9", {1}, False, {"10.0.0.1"})
    assert not own_by("broker-1-fetcher", "10.0.0.9", {1, 18}, False, {"10.0.0.1"})
    assert own_by("x", "10.0.0.9", {1, 63}, False, ())
    assert own_by("x", "10.0.0.9", {1}, True, ())
    assert not own_by("", "10.0.0.9", {2, 5}, False, ())
