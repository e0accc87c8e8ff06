"""Section `transactions`, against the steps of real producers and the batches of a real broker's log."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.support.captures import pcap_bytes, read_capture
from tests.support.section_runs import QUESTIONS, Row, section_rows, truth_rows

CAPTURE = QUESTIONS / "transactions.pcap.zst"
RETRIES = QUESTIONS / "retries.pcap.zst"
MS = 1_000_000


@pytest.fixture(scope="module")
def rows() -> dict[str, Row]:
    return {row["transactional_id"]: row for row in section_rows(CAPTURE, "transactions")["transactions"]}


@pytest.fixture(scope="module")
def steps() -> list[tuple[int, int, str, str, str]]:
    truth = json.loads((QUESTIONS / "transactions.truth.json").read_text())
    return [tuple(step) for step in truth["steps"]]


@pytest.fixture(scope="module")
def retried() -> list[Row]:
    return section_rows(RETRIES, "transactions")["retried_batches"]


def id_of(client: str) -> str:
    return "payout" if client.startswith("payout") else client


def test_commits_and_aborts_are_those_of_the_clients(rows: dict[str, Row], steps: list[Any]) -> None:
    ends = Counter(
        (id_of(client), verb) for _, _, client, verb, said in steps if verb in ("commit", "abort") and not said
    )
    found = {(name, verb): row[column] for name, row in rows.items()
             for verb, column in (("commit", "committed"), ("abort", "aborted"))}  # fmt: skip
    assert {key: count for key, count in found.items() if count} == ends


def test_markers_are_those_of_the_log(rows: dict[str, Row]) -> None:
    written = Counter(
        int(row["producer_id"]) for row in truth_rows(QUESTIONS / "transactions.log.tsv") if row["control"]
    )
    assert {row["producer_id"]: row["markers"] for row in rows.values()} == written


def test_epochs_are_at_least_those_of_the_log(rows: dict[str, Row]) -> None:
    """The coordinator's own abort raises the epoch of `forgetful` in the log, and its producer never learns."""
    last: dict[int, int] = {}
    for row in truth_rows(QUESTIONS / "transactions.log.tsv"):
        last[int(row["producer_id"])] = max(last.get(int(row["producer_id"]), -1), int(row["producer_epoch"]))
    found = {row["producer_id"]: row["producer_epoch"] for row in rows.values()}
    assert {pid: epoch for pid, epoch in last.items() if found.get(pid) not in (None, epoch)} == {
        rows["forgetful"]["producer_id"]: 1
    }


def test_open_time_is_that_of_the_client(rows: dict[str, Row], steps: list[Any]) -> None:
    """From the client's begin (the first request comes a little later) to the end of its commit."""
    began = next(start for start, _, client, verb, _ in steps if (client, verb) == ("holder", "begin"))
    sent = next(end for _, end, client, verb, _ in steps if (client, verb) == ("holder", "send"))
    ended = next(end for _, end, client, verb, _ in steps if (client, verb) == ("holder", "commit"))
    committing = next(start for start, _, client, verb, _ in steps if (client, verb) == ("holder", "commit"))
    assert (committing - sent) * MS <= rows["holder"]["longest_ns"] <= (ended - began + 1) * MS


def test_who_fenced_whom(rows: dict[str, Row], steps: list[Any]) -> None:
    row = rows["payout"]
    assert row["client_id"] == "payout-new"
    failed = [step for step in steps if step[2] == "payout-old" and "InvalidProducerEpoch" in step[4]]
    assert row["fenced"] == len(failed) == 2
    assert row["finding"] == "payout-old (127.0.0.1) was fenced by payout-new: INVALID_PRODUCER_EPOCH"
    assert row["aborted_by_broker"] == 1


def test_the_coordinator_aborts_what_is_open_for_too_long(rows: dict[str, Row]) -> None:
    row = rows["forgetful"]
    assert (row["aborted_by_broker"], row["committed"], row["timeout_ms"]) == (1, 0, 2000)
    assert row["longest_ns"] > 2000 * MS
    assert "the coordinator aborted a transaction after" in row["finding"]


def test_open_transactions_at_the_end_of_a_capture(tmp_path: Path) -> None:
    """A capture that ends while `kafka-transactions list` says that two are open."""
    truth = json.loads((QUESTIONS / "transactions.truth.json").read_text())["open"]
    capture = read_capture(CAPTURE)
    early = [packet for packet in capture.packets if packet.time_ns < truth["to_ms"] * MS]
    path = tmp_path / "early.pcap"
    path.write_bytes(pcap_bytes(early))
    lines = [line.split("\t") for line in truth["list"].splitlines()[1:]]
    ongoing = {line[0].strip() for line in lines if "Ongoing" in line[3]}
    rows = section_rows(path, "transactions")["transactions"]
    assert {row["transactional_id"] for row in rows if row["state"] == "open"} == ongoing == {"holder", "forgetful"}
    assert {row["transactional_id"] for row in rows[:2]} == ongoing
    for row in rows:
        assert (row["open_ns"] is not None) == (row["transactional_id"] in ongoing)
    states = {line[0].strip(): line[3].strip() for line in lines}
    assert states["payout"] == "Empty"
    assert next(row["state"] for row in rows if row["transactional_id"] == "payout") == "empty"


def test_duplicated_batches_are_those_that_the_log_has_twice(retried: list[Row]) -> None:
    log = truth_rows(QUESTIONS / "retries.log.tsv")
    copies = Counter((row["topic"], row["crc"]) for row in log)
    twice = Counter(topic for (topic, _), count in copies.items() if count > 1)
    assert {row["topic"]: row["batches"] for row in retried if row["fate"] == "duplicated"} == twice == {"audit": 2}


def test_deduplicated_batches_are_the_cuts_of_the_idempotent_client(retried: list[Row]) -> None:
    cuts = json.loads((QUESTIONS / "retries.truth.json").read_text())["cuts"]
    for client, fate in (("idempotent", "deduplicated"), ("plain", "duplicated")):
        seen = [kind for _, name, kind, _ in cuts if name == client and kind != "request"]
        assert [row["batches"] for row in retried if row["client_id"] == client] == [len(seen)]
        assert {row["fate"] for row in retried if row["client_id"] == client} == {fate}
    assert {row["idempotent"] for row in retried if row["fate"] == "deduplicated"} == {True}


def test_batches_that_a_killed_broker_did_not_answer(retried: list[Row]) -> None:
    """The clients' logs name the cancelled requests. All of their batches are answered after the restart."""
    cancelled = Counter(
        line.partition("clientId=")[2].partition("]")[0]
        for line in (QUESTIONS / "retries.client.log.tsv").read_text().splitlines()
        if "Cancelled in-flight PRODUCE" in line
    )
    found = {row["client_id"]: row for row in retried}
    assert found["steady"]["batches"] == cancelled["steady"]
    assert found["steady"]["fate"] == "acknowledged by a retry"
    assert found["plain-steady"]["batches"] == cancelled["plain-steady"]
    assert found["plain-steady"]["fate"] == "acknowledged, perhaps twice in the log"
    assert "careless" not in found


def test_few_names_keep_the_batches_that_were_sent_twice(retried: list[Row]) -> None:
    few = section_rows(RETRIES, "transactions", most=64)["retried_batches"]
    assert [row for row in few if row["fate"] == "duplicated"] == [
        row for row in retried if row["fate"] == "duplicated"
    ]


def test_usual_traffic_has_no_duplicates(samples: Path) -> None:
    rows = section_rows(samples / "live-4.4.pcap.zst", "transactions")["retried_batches"]
    assert [row for row in rows if row["fate"] in ("duplicated", "deduplicated")] == []


def test_aborts_of_a_coordinator_that_was_not_captured() -> None:
    """The other broker's log names the one that it aborted itself. Its markers do not."""
    truth = json.loads((QUESTIONS / "elsewhere.truth.json").read_text())
    asked = Counter((client, step) for _, step, client in truth["steps"] if step in ("commit", "abort"))
    rolled_back = Counter(
        line.split("transactionalId ")[1].split()[0] for line in truth["logs"] if "due to timeout" in line
    )
    assert rolled_back == {"forgetful": 1}
    rows = section_rows(QUESTIONS / "elsewhere-transactions.pcap.zst", "transactions")["transactions"]
    assert {row["transactional_id"] for row in rows} == {"settlement", "forgetful", "mover"}
    for row in rows:
        name = row["transactional_id"]
        assert row["committed"] == asked[name, "commit"]
        assert row["aborted_elsewhere"] == asked[name, "abort"] + rolled_back[name] == 1
        assert row["aborted"] == row["aborted_by_broker"] == 0
        assert "by whom was not captured" in row["finding"]
