"""The table `client_activity` beside the truth of captures, and its findings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest

from kafkatap import analyze
from kafkatap.reports.sections.client_activity import CLIENTS, findings
from tests.support.section_runs import rows, section_tables
from tests.support.truth import read_truth

Rows = list[dict[str, Any]]
SETTINGS = (100, 500, 1, 50 << 20)


def activity(capture: Path) -> Rows:
    return rows(section_tables([capture], "clients")["client_activity"])


@pytest.mark.parametrize("name", ["apache-4.3", "apache-2.8", "apache-0.10.2", "live-4.4"])
def test_requests_beside_kafkas_parsers(samples: Path, name: str) -> None:
    """Requests of each client, and those of some APIs."""
    truth = read_truth(samples / f"{name}.exchanges.tsv")
    by_client = {(row["client_id"], row["address"]): row for row in activity(samples / f"{name}.pcap.zst")}
    known = truth[truth["client_id"].notna()]
    table = analyze(samples / f"{name}.pcap.zst").exchanges
    cut = table.filter(pc.greater(table["request_cut_bytes"], 0)).to_pylist()  # the truth has whole ones only
    is_cut = {(row["client_id"], row["client_ip"]) for row in cut}
    expected = [each for each in known.groupby(["client_id", "client_ip"]) if each[0] not in is_cut]
    assert len(expected) > 3
    for key, exchanges in expected:
        row = by_client[key]
        apis = exchanges["api_key"]
        assert row["fetches"] == (apis == 1).sum()
        assert row["metadata"] == (apis == 3).sum()
        assert row["commits"] == (apis == 8).sum()
        assert row["api_versions"] == (apis == 18).sum()
        assert row["requests"] == len(exchanges)
        assert row["first"] // 1000 == exchanges["request_first"].min()
        assert row["last"] // 1000 == exchanges["request_first"].max()
        seconds = exchanges["request_first"] // 1_000_000
        assert row["busiest_second"] == seconds.value_counts().max()


def test_who_is_connected(samples: Path) -> None:
    folder = samples / "questions"
    said: dict[str, Any] = json.loads((folder / "groups.truth.json").read_text())["clients"]
    by_id = {row["client_id"]: row for row in activity(folder / "groups.pcap.zst")}
    assert set(by_id) == set(said)
    for client, row in by_id.items():
        group = said[client].get("group")
        assert row["groups"] == (() if group is None else (group,))
        assert len(row["software"]) == 1
        assert row["finding"] is None
    assert by_id["idle-watcher"]["empty_fetches"] == 1.0
    assert by_id["slow-reader"]["fetch_settings"] == "500 ms, 1 B, 1.0 KiB"
    assert by_id["archive"]["idle_ns"] > 10 * 10**9 > by_id["mirror"]["idle_ns"]


def test_users_and_mechanisms(samples: Path) -> None:
    found = activity(samples / "questions" / "auth.pcap.zst")
    users = {user for row in found for user in row["principal"]}
    mechanisms = {mechanism for row in found for mechanism in row["mechanisms"]}
    assert users
    assert {"PLAIN", "SCRAM-SHA-256"} <= mechanisms


def test_transactional_ids(samples: Path) -> None:
    found = activity(samples / "questions" / "transactions.pcap.zst")
    assert any(row["transactional_ids"] for row in found)


def flooding(
    seconds: float = 10.0, settings: tuple[int, int, int, int] = SETTINGS, connections: int = 1, **v: int
) -> list[str]:
    return findings({**dict.fromkeys(CLIENTS.values, 0), "requests": 1000, **v}, seconds, settings, connections)


def test_findings() -> None:
    assert flooding() == []
    assert flooding(metadata=4120, metadata_all=4120) == ["412 Metadata requests/s for all topics"]
    assert flooding(metadata_all=9) == []
    assert flooding(metadata=520) == ["52 Metadata requests/s"]
    busy = {"fetches": 9000, "answered": 9000}
    assert flooding(**busy) == []
    assert flooding(settings=(9000, 0, 1, 1), **busy) == ["900 Fetches/s with max.wait 0 ms"]
    assert flooding(**busy, empty=8820) == ["900 Fetches/s with max.wait 500 ms, 98.0 % empty"]
    assert flooding(commits=1200) == ["120 commits/s"]
    assert flooding(connections=50, requests=100) == ["5.0 connections/s with 2.0 requests each"]
    assert flooding(connections=50, requests=1000) == []
