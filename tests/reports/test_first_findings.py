"""Which findings lead the first lines of recordings whose truth is beside them, and what is folded under what."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

SAMPLES = Path(__file__).resolve().parents[2] / "samples"


@cache
def rows(path: Path) -> list[dict[str, Any]]:
    """The findings of a report, in their order."""
    made = subprocess.run(
        [sys.executable, "-m", "kafkatap", "report", "--json", str(path)], capture_output=True, check=False
    )
    found: list[dict[str, Any]] = json.loads(made.stdout)["reports"]["summary"]
    return found


def of(name: str, finding: str) -> list[dict[str, Any]]:
    return [row for row in rows(SAMPLES / f"{name}.pcap.zst") if row["finding"] == finding]


def test_a_listener_that_never_answers_is_no_stop() -> None:
    """A wrong advertised.listeners refuses connections, while the broker works."""
    assert of("advice/advertised", "broker_stopped") == []
    assert of("advice/advertised", "broker_returned") == []
    assert rows(SAMPLES / "advice/advertised.pcap.zst")[0]["label"] == "advice"


@pytest.mark.parametrize(
    ("name", "finding", "cause"),
    [
        ("advice/black-hole", "hosts_cut_off", "mtu_black_hole"),
        ("questions/throttle", "quota_began", "throttled"),
        ("events/quota", "quota_began", "throttled"),
        ("events/storm", "connection_storm", "reconnect_storm"),
        ("questions/storms", "error_burst", "sasl_failed"),
        ("events/kill", "slow_head_of_line", "broker_stopped"),
        ("events/hang", "slow_head_of_line", "broker_hung"),
        ("questions/timeouts", "request_timeout", "broker_hung"),
        ("advice/expelled-session", "group_rebalanced", "expelled_members"),
        ("events/firewall", "lossy_host", "hosts_cut_off"),
    ],
)
def test_the_same_trouble_is_one_line(name: str, finding: str, cause: str) -> None:
    found = of(name, finding)
    assert found
    assert {row["cause"] for row in found} == {cause}
    roots = [row["finding"] for row in rows(SAMPLES / f"{name}.pcap.zst") if row["cause"] is None]
    assert cause in roots


@pytest.mark.parametrize("name", ["events/kill", "events/stop", "events/hang"])
def test_what_explains_the_rest_comes_first(name: str) -> None:
    assert rows(SAMPLES / f"{name}.pcap.zst")[0]["finding"] in ("broker_stopped", "broker_hung")


def test_answers_that_the_capture_lacks_are_no_outage(corpus: Path) -> None:
    """Packets of it were dropped and reordered."""
    found = rows(corpus / "captures" / "repro" / "wrong-response-503725.pcap")
    assert {row["finding"] for row in found} & {"broker_hung", "hosts_cut_off", "broker_unreachable"} == set()


@pytest.mark.parametrize("name", ["questions/upgrade-4.3", "questions/retries"])
def test_no_backoff_is_blamed_for_others_troubles(name: str) -> None:
    """`upgrade-4.3`: the broker closes connections after a version that it removed. `retries`: it was killed, and each
    of several clients of the host connects at the usual rate."""
    assert [row for row in of(name, "reconnect_storm") if row["cause"] is None] == []


def test_requests_between_brokers_are_no_ones_time() -> None:
    (row,) = of("events/quota", "slow_between_brokers")
    assert (row["severity"], row["time_lost_ns"]) == ("note", 0)
    assert all(party["name"] != "greedy" for party in row["parties"])


def test_clusters_of_one_capture_are_not_counted_together(corpus: Path) -> None:
    """Mock clusters of one broker each, and others; a LeaveGroup that was pipelined behind a JoinGroup."""
    found = rows(corpus / "captures" / "diverse.pcap")
    assert [row for row in found if row["finding"] == "hot_leader"] == []
    assert [row for row in found if row["finding"].startswith("slow_") and "LeaveGroup" in row["text"]] == []
    (each,) = [row for row in found if row["finding"] == "connection_each_message"]
    assert "4 other clients too" in each["text"]


def test_moved_leaders_lead_the_errors_that_follow(corpus: Path, tmp_path: Path) -> None:
    import zstandard

    path = tmp_path / "broker1.pcap"
    with (corpus / "captures" / "apache-4.3-broker1.pcap.zst").open("rb") as packed, path.open("wb") as whole:
        zstandard.ZstdDecompressor().copy_stream(packed, whole)
    found = rows(path)
    assert found[0]["finding"] == "leaders_moved"
    follow = {
        row["numbers"]["error"] for row in found if row["cause"] == "leaders_moved" and row["finding"] == "errors"
    }
    assert "LEADER_NOT_AVAILABLE" in follow


def test_hosts_that_lose_packets_are_named_with_the_time_that_it_cost() -> None:
    """The script drops the packets of the client `far-away` alone. The hang of the broker there is no loss."""
    (row,) = of("questions/timeouts", "lossy_host")
    assert [party["name"] for party in row["parties"] if party["kind"] == "client"] == ["far-away"]
    lost = row["numbers"]["loss_ns"]
    assert row["time_lost_ns"] == lost
    assert lost > 1_000_000_000
    assert all(of(name, "lossy_host") == [] for name in ("events/hang", "events/stop", "apache-4.3"))
