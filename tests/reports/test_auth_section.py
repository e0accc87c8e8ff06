"""Section `auth`, against the broker's own lines about authentication and what the clients were answered."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from kafkatap import analyze
from tests.support.section_runs import QUESTIONS, Row, section_rows, truth_rows

CAPTURE = QUESTIONS / "auth.pcap.zst"


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    return section_rows(CAPTURE, "auth")["auth"]


@pytest.fixture(scope="module")
def client_of() -> dict[int, str]:
    """The client_id of each connection, by the client's port."""
    table = analyze(CAPTURE).connections
    ports, clients = table["client_port"].to_pylist(), table["client_id"].to_pylist()
    return {port: client for port, client in zip(ports, clients, strict=True) if client}


@pytest.fixture(scope="module")
def truth() -> Any:
    return json.loads((QUESTIONS / "auth.truth.json").read_text())


def _is_of_tls(row: Row) -> bool:
    """Whether a row is on TLS: no SASL requests are in it."""
    return row["outcome"] == "no TLS" or str(row["outcome"]).startswith("TLS ")


def test_failures_are_those_of_the_broker(rows: list[Row], client_of: dict[int, str]) -> None:
    lines = truth_rows(QUESTIONS / "auth.broker.tsv")
    failed = Counter(client_of[int(line["port"])] for line in lines if line["listener"] == "SASL" and line["port"])
    found = {row["client_id"]: row["failed"] for row in rows if row["failed"] and not _is_of_tls(row)}
    assert found == failed


def test_successes_are_those_of_the_broker(rows: list[Row]) -> None:
    lines = truth_rows(QUESTIONS / "auth.broker.tsv")
    good = sum(line["result"] == "authenticated" for line in lines if line["listener"] == "SASL")
    assert sum(row["attempts"] - row["failed"] for row in rows if not _is_of_tls(row)) == good


def test_only_clients_that_were_refused_failed(rows: list[Row], truth: Any) -> None:
    at_sasl = {name for name, outcome in truth["clients"].items() if outcome[0] == "SASL"}
    refused = {name for name in at_sasl if "Exception" in truth["clients"][name][3]} | {"librd-typo"}
    assert {row["client_id"] for row in rows if row["failed"] and not _is_of_tls(row)} == refused
    assert {row["client_id"] for row in rows if not _is_of_tls(row)} == at_sasl


def test_messages_are_what_the_clients_were_told(rows: list[Row], truth: Any) -> None:
    for row in rows:
        if row["outcome"] == "SASL_AUTHENTICATION_FAILED":
            told = truth["clients"][row["client_id"]][3]
            assert row["message"] in told or not told  # librdkafka keeps the message to itself


def test_plain_text_at_a_port_with_tls(rows: list[Row], client_of: dict[int, str]) -> None:
    """The broker's line says that the TLS handshake failed, as does what it says about untrusting clients."""
    lines = [line for line in truth_rows(QUESTIONS / "auth.broker.tsv") if line["listener"] == "TLS" and line["port"]]
    plain = [line for line in lines if int(line["port"]) in client_of]
    assert [client_of[int(line["port"])] for line in plain] == ["no-tls"]
    found = [(row["client_id"], row["failed"]) for row in rows if row["outcome"] == "no TLS"]
    assert found == [("no-tls", len(plain))]


def test_alerts_of_clients_that_do_not_trust(rows: list[Row], client_of: dict[int, str]) -> None:
    """Those with TLS 1.2, which sends them in clear: two connections. Those with TLS 1.3 are encrypted."""
    lines = [line for line in truth_rows(QUESTIONS / "auth.broker.tsv") if line["listener"] == "TLS" and line["port"]]
    failed = [line for line in lines if int(line["port"]) not in client_of]
    tls = {row["outcome"]: row for row in rows if str(row["outcome"]).startswith("TLS ")}
    assert tls["TLS certificate_unknown"]["failed"] == 2
    assert "alert of the client" in tls["TLS certificate_unknown"]["message"]
    assert 2 <= sum(row["failed"] for row in tls.values()) <= len(failed) == 4


def test_users_and_mechanisms(rows: list[Row]) -> None:
    assert {(row["client_id"], row["principal"], row["mechanism"]) for row in rows if row["principal"]} == {
        ("ghost", "ghost", "SCRAM-SHA-256"),
        ("librd-scram", "shop", "SCRAM-SHA-256"),
        ("librd-typo", "shop", "SCRAM-SHA-256"),
        ("shop-plain", "shop", "PLAIN"),
        ("shop-scram", "shop", "SCRAM-SHA-256"),
        ("typo-plain", "shop", "PLAIN"),
        ("typo-scram", "shop", "SCRAM-SHA-256"),
    }


def test_captures_without_authentication_have_no_failures(samples: Path) -> None:
    """Requests that are not answered for other reasons are no failures of authentication."""
    for name in ("timeouts", "retries", "upgrade-4.3"):
        assert section_rows(samples / "questions" / f"{name}.pcap.zst", "auth")["auth"] == []
