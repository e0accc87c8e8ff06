"""Section `timeouts`, against the lines in clients' logs about requests that they cancelled."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import pytest

from tests.cli.running import kafkatap
from tests.support.captures import pcap_bytes
from tests.support.section_runs import QUESTIONS, Row, section_rows, truth_rows
from tests.support.tcp import encode
from tests.wire.kafkatalk import METADATA, PRODUCE, KafkaTalk

CAPTURE = QUESTIONS / "timeouts.pcap.zst"
MS = 1_000_000
#: Names of APIs in clients' logs.
NAMES = {"PRODUCE": "Produce", "FETCH": "Fetch", "METADATA": "Metadata", "API_VERSIONS": "ApiVersions"}


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    return section_rows(CAPTURE, "timeouts")["timeouts"]


def cancelled(name: str) -> Counter[tuple[str, str]]:
    """The requests that Java clients say that they cancelled, by client and API."""
    text = (QUESTIONS / f"{name}.client.log.tsv").read_text()
    found = re.findall(r"clientId=([\w-]+)[^\n]*Cancelled in-flight (\w+) request", text)
    return Counter((client, NAMES[api]) for client, api in found)


def counted(rows: list[Row]) -> Counter[tuple[str, str]]:
    found: Counter[tuple[str, str]] = Counter()
    for row in rows:
        found[row["client_id"], row["api"]] += row["requests"]
    return found


def test_timed_out_requests_are_those_that_the_clients_cancelled(rows: list[Row]) -> None:
    found = {key: count for key, count in counted(rows).items() if key[0] != "librd"}
    assert found == cancelled("timeouts")


def test_librdkafka_says_how_many_it_timed_out(rows: list[Row]) -> None:
    """It logs the first timeout of a connection, which fails the others in flight too."""
    found = {api: count for (client, api), count in counted(rows).items() if client == "librd"}
    assert found == {"Produce": 4, "ApiVersions": 1}


def test_the_fault_is_the_brokers_while_it_is_stopped_and_the_networks_while_packets_are_dropped(
    rows: list[Row],
) -> None:
    for row in rows:
        assert row["fault"] == ("network" if row["client_id"] == "far-away" else "broker"), row
        assert row["loss_ns"] > row["waited_ns"] / 2 if row["fault"] == "network" else row["loss_ns"] == 0


def test_waits_lie_within_the_steps(rows: list[Row]) -> None:
    """A stopped broker answers when it continues; no wait is longer than the step and a little."""
    steps = {step["step"]: step for step in json.loads((QUESTIONS / "timeouts.truth.json").read_text())["steps"]}
    stopped = steps["stopped"]
    for row in (row for row in rows if row["fault"] == "broker"):
        assert row["waited_ns"] <= (stopped["to_ms"] - stopped["from_ms"] + 1500) * MS
        assert (stopped["from_ms"] - 1500) * MS <= row["first"] <= stopped["to_ms"] * MS
    for client in ("idempotent", "plain", "librd", "reader"):  # it gives up younger requests of the connection, too
        assert max(row["waited_ns"] for row in rows if row["client_id"] == client) >= 1500 * MS


def test_requests_behind_one_without_an_answer_say_so(tmp_path: Path) -> None:
    """A broker answers the requests of a connection in order."""
    talk = KafkaTalk()
    talk.tcp.open()
    talk.exchange(METADATA, 1, 1)
    talk.request(PRODUCE, 3, 2, Acks=-1)
    talk.request(METADATA, 1, 3)
    talk.tcp.wait(3_000 * MS)
    talk.tcp.close(0)
    path = tmp_path / "behind.pcap"
    path.write_bytes(pcap_bytes(encode(talk.segments)))
    found = {row["api"]: row["what"] for row in section_rows(path, "timeouts")["timeouts"]}
    closed = "client closed (FIN)"
    assert found == {"Produce": f"no answer, {closed}", "Metadata": f"behind Produce, {closed}"}


def test_retries_of_java_clients_are_answered(rows: list[Row]) -> None:
    """All of their records are in the log. librdkafka makes new batches for a retry, which are not recognised."""
    assert {row["not_retried"] for row in rows if row["client_id"] != "librd"} == {0}
    assert [row["retried"] for row in rows if row["client_id"] == "librd" and row["api"] == "Produce"] == [0, 0]


def test_requests_that_a_killed_broker_did_not_answer() -> None:
    rows = section_rows(QUESTIONS / "retries.pcap.zst", "timeouts")["timeouts"]
    steady = cancelled("retries")["steady", "Produce"]
    assert counted(rows)["steady", "Produce"] == steady == 5
    assert {row["fault"] for row in rows} == {"broker"}
    assert {row["what"] for row in rows} >= {"no answer, broker closed (RST)"}
    assert {row["not_retried"] for row in rows} == {0}


def test_a_shorter_bound_finds_late_responses() -> None:
    usual = section_rows(CAPTURE, "timeouts")["timeouts"]
    late = section_rows(CAPTURE, "timeouts", {"late": 1000 * MS})["timeouts"]
    more = counted(late) - counted(usual)
    assert set(more) == {("idempotent", "ApiVersions"), ("plain", "ApiVersions")}
    assert {row["what"] for row in late} - {row["what"] for row in usual} == {"answered late"}


def test_clients_that_end_while_a_request_waits_are_no_fault_of_others() -> None:
    rows = section_rows(QUESTIONS / "upgrade-3.9.pcap.zst", "timeouts")["timeouts"]
    assert [(row["client_id"], row["api"], row["fault"]) for row in rows] == [
        ("java-2.8.2", "Fetch", "client"), ("librdkafka", "Fetch", "client")
    ]  # fmt: skip


def test_failed_logins_are_no_timeouts() -> None:
    """The broker closes connections on which a login failed, or that begin without one. The section `auth` has them."""
    assert section_rows(QUESTIONS / "auth.pcap.zst", "timeouts")["timeouts"] == []
    results = Counter(line["result"] for line in truth_rows(QUESTIONS / "auth.broker.tsv"))
    assert results["closed"]
    assert results["failed"]


def test_only_the_bytes_of_a_request_itself_are_lost() -> None:
    """`steady` sent data again before the broker stopped. Requests of `cut-off` are in flight when the capture ends."""
    truth = json.loads((QUESTIONS / "patience.truth.json").read_text())
    steps = {step["step"]: step for step in truth["steps"]}
    given = section_rows(QUESTIONS / "patience.pcap.zst", "timeouts")["timeouts"]
    assert counted(given) == {key: n for key, n in cancelled("patience").items() if key[0] == "steady"}
    for row in given:
        assert (row["fault"], row["loss_ns"]) == ("broker", 0)
        assert (steps["stopped"]["from_ms"] - 1500) * MS < row["first"] < steps["stopped"]["to_ms"] * MS


def test_a_request_that_nothing_acknowledges_is_lost() -> None:
    """With a bound of 1 s, it is no longer in flight at the end of the capture."""
    steps = {step["step"]: step for step in json.loads((QUESTIONS / "patience.truth.json").read_text())["steps"]}
    done = kafkatap("report", "--late", "1s", "--sections", "timeouts", "--json", QUESTIONS / "patience.pcap.zst")
    rows = json.loads(done.out)["reports"]["timeouts"]
    lost = [row for row in rows if row["fault"] == "network"]
    assert {(row["client_id"], row["api"]) for row in lost} == {("cut-off", "Produce"), ("cut-off", "Metadata")}
    for row in lost:
        assert row["what"] == "sent again, never acknowledged"
        assert row["loss_ns"] > 1500 * MS
    assert {row["fault"] for row in rows if row["client_id"] != "cut-off"} == {"broker"}
    assert steps["cut off"]["from_ms"] > steps["stopped"]["to_ms"]
