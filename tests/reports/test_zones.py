"""The section `zones` beside the counters of the network (samples/questions/make_zones.py).

iptables counted the IP packets and bytes of each pair of addresses. Less 52 bytes for the headers of each packet (IP,
and TCP with its time stamps), that is the payload of TCP: messages, and what was retransmitted or left over. A SYN has
8 bytes of options more. Two fetches of followers were not over at the end of the capture.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from kafkatap.commands.values import parse_rate, parse_window, read_zones
from kafkatap.reports.sections.zones import zone_in_client_id
from tests.cli.running import kafkatap
from tests.support.section_runs import section_rows

FOLDER = Path(__file__).resolve().parents[2] / "samples" / "questions"
CAPTURE = FOLDER / "zones.pcap.zst"
HEADERS, SYN = 52, 8
ZONES = {"10.77.1": "a", "10.77.2": "b", "10.77.3": "c"}


def zone(address: str) -> str:
    return ZONES[address.rsplit(".", 1)[0]]


@pytest.fixture(scope="module")
def truth() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FOLDER / "zones.truth.json").read_text())
    return found


@pytest.fixture(scope="module")
def tables() -> dict[str, list[dict[str, Any]]]:
    options = {"zones": read_zones(str(FOLDER / "zones.zones.txt"))}
    return section_rows(CAPTURE, "zones", options)


def test_bytes_between_zones_are_those_of_the_network(
    truth: dict[str, Any], tables: dict[str, list[dict[str, Any]]]
) -> None:
    counted: Counter[tuple[str, str, str]] = Counter()
    for pair in truth["pairs"]:
        payload = pair["bytes"] - HEADERS * pair["packets"]
        if pair["port_at"] == "target":
            counted[zone(pair["source"]), zone(pair["target"]), "to broker"] += payload
        else:
            counted[zone(pair["target"]), zone(pair["source"]), "to client"] += payload
    ours: Counter[tuple[str, str, str]] = Counter()
    for row in tables["zones"]:
        ours[row["client_zone"], row["broker_zone"], "to broker"] += row["to_broker_bytes"]
        ours[row["client_zone"], row["broker_zone"], "to client"] += row["to_client_bytes"]
    # What a broker sends to itself does not leave its host.
    assert {key for key, count in ours.items() if count} == set(counted)
    for key, count in counted.items():
        # 20 connections at most (SYNs), and a Fetch or its answer (200 bytes) of each follower.
        assert abs(ours[key] - count) <= 20 * SYN + 600 + 0.01 * count, key
    assert abs(ours.total() / counted.total() - 1) < 0.01


def test_topics(tables: dict[str, list[dict[str, Any]]]) -> None:
    """The same records go from the producer to leaders, to followers, and to each reader."""
    sums: Counter[tuple[str | None, str]] = Counter()
    for row in tables["zones"]:
        sums[row["topic"], row["traffic"]] += row["to_broker_bytes"] + row["to_client_bytes"]
    records = sums["orders", "produce"]
    assert sums["orders", "replication"] == 2 * records
    assert sums["orders", "fetch"] == 3 * records
    assert sums["audit", "produce"] == sums["audit", "replication"] == sums["audit", "fetch"]
    assert sum(row["bytes_share"] for row in tables["zones"]) == pytest.approx(1)


def test_readers(tables: dict[str, list[dict[str, Any]]]) -> None:
    found = {(row["client_id"], row["topic"]): row for row in tables["zone_readers"]}
    assert found["billing", "audit"]["finding"] == "no replica in its zone"
    assert found["billing", "orders"]["finding"] == "set client.rack"
    assert found["billing", "orders"]["local_bytes"] == found["billing", "orders"]["cross_bytes"] > 80_000
    for client in ("java-reader", "local-reader"):
        assert found[client, "orders"]["finding"] == "it was sent to a replica in its zone"
        assert found[client, "orders"]["redirects"] == 2  # the two partitions that another zone leads
        assert found[client, "orders"]["cross_bytes"] == 0


def test_racks_without_a_file() -> None:
    tables = section_rows(CAPTURE, "zones")
    assert {row["client_zone"] for row in tables["zones"] if row["traffic"] == "replication"} == {"a", "b", "c"}
    assert {row["client_zone"] for row in tables["zones"] if row["traffic"] == "produce"} == {None}
    assert {row["client_rack"] for row in tables["zone_readers"]} == {"b", "c"}


def test_no_zones() -> None:
    tables = section_rows(FOLDER / "upgrade-4.3.pcap.zst", "zones")
    assert tables["zones"] == []
    assert tables["zone_readers"] == []


def test_files_of_zones(tmp_path: Path) -> None:
    path = tmp_path / "zones"
    path.write_text("# network zone\n\n10.0.0.1/8 a # first\nfe80::/10\tb\n")
    assert read_zones(str(path)) == [("10.0.0.0/8", "a"), ("fe80::/10", "b")]
    for text in ("10.0.0.0/8\n", "10.0.0/8 a\n", "", "10.0.0.0/8 a b\n"):
        path.write_text(text)
        with pytest.raises(argparse.ArgumentTypeError, match="zones"):
            read_zones(str(path))
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(argparse.ArgumentTypeError, match="not a text in UTF-8"):
        read_zones(str(path))
    with pytest.raises(argparse.ArgumentTypeError, match="No such file"):
        read_zones(str(tmp_path / "none"))


def test_labels_of_hosts_and_files_of_zones_say_the_same(tmp_path: Path) -> None:
    named = tmp_path / "hosts.csv"
    named.write_text("".join(f"{network}.0/24,network-{zone},zone={zone}\n" for network, zone in ZONES.items()))

    def tables(*options: str) -> dict[str, Any]:
        done = kafkatap("report", "--sections", "zones", "--json", *options, CAPTURE)
        found: dict[str, Any] = json.loads(done.out)["reports"]
        return found

    with_zones = tables("--zones", str(FOLDER / "zones.zones.txt"))
    with_hosts = tables("--hosts", str(named))
    assert tables("--zones", str(named))["zones"] == with_zones["zones"] == with_hosts["zones"]
    readers = [{name: row[name] for name in row if name != "client_host"} for row in with_hosts["zone_readers"]]
    assert readers == with_zones["zone_readers"]


def test_zones_in_client_ids() -> None:
    assert zone_in_client_id("app,ws_az=us-east-1a") == "us-east-1a"
    assert zone_in_client_id("diskless_az=b;app=x") == "b"
    assert [zone_in_client_id(text) for text in ("app", None, "news_az=x", "ws_az=", "")] == [None] * 5


def test_rates_and_windows() -> None:
    assert parse_window("11x1s") == (11, 1)
    assert parse_window("30 x 1m") == (30, 60)
    for text in ("11", "x1s", "1x1s", "11x500ms", "11x", "ax1s", "11x1.5s"):
        with pytest.raises(argparse.ArgumentTypeError, match="windows"):
            parse_window(text)
    assert (parse_rate("20000"), parse_rate("1k/s")) == (20_000, 1024)
