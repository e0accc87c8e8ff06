"""Section `auth`: each SASL mechanism at a real broker with sessions of four seconds, against its log."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from tests.support.section_runs import QUESTIONS, Row, section_rows, truth_rows

CAPTURE = QUESTIONS / "sasl.pcap.zst"
#: What each mechanism sends, and in which order: client, broker, client, ...
SCRAM = ["SCRAM client-first", "SCRAM server-first", "SCRAM client-final", "SCRAM server-final"]
GSSAPI = ["GSSAPI initial token (AP-REQ)", "GSSAPI security layers offered", "GSSAPI security layer chosen"]
KINDS = {
    "PLAIN": ["PLAIN credentials", "empty"],
    "SCRAM-SHA-256": SCRAM,
    "SCRAM-SHA-512": SCRAM,
    "OAUTHBEARER": ["OAUTHBEARER client-first", "OAUTHBEARER error", "OAUTHBEARER client-end", "empty"],
    "GSSAPI": [*GSSAPI, "empty"],
}
MECHANISMS = {
    "java-plain": "PLAIN", "java-scram-256": "SCRAM-SHA-256", "java-scram-512": "SCRAM-SHA-512",
    "java-oauth": "OAUTHBEARER", "oauth-denied": "OAUTHBEARER", "java-gssapi": "GSSAPI",
    "librd-again": "SCRAM-SHA-256", "never-again": "PLAIN", "late-again": "PLAIN", "old-plain": "PLAIN",
    "old-typo": "PLAIN", "old-gssapi": "GSSAPI", "old-scram": "SCRAM-SHA-512",
}  # fmt: skip


@pytest.fixture(scope="module")
def tables() -> dict[str, list[Row]]:
    return section_rows(CAPTURE, "auth")


@pytest.fixture(scope="module")
def truth() -> Any:
    return json.loads((QUESTIONS / "sasl.truth.json").read_text())


@pytest.fixture(scope="module")
def lines() -> Counter[tuple[str, str]]:
    """The broker's lines by listener and result."""
    return Counter((line["listener"], line["result"]) for line in truth_rows(QUESTIONS / "sasl.broker.tsv"))


def is_old(row: Row) -> bool:
    return bool(row["client_id"].startswith("old-"))


def test_successes_and_failures_are_those_of_the_broker(
    tables: dict[str, list[Row]], lines: Counter[tuple[str, str]]
) -> None:
    for listener, old in (("SASL", False), ("OLD", True)):
        rows = [row for row in tables["auth"] if is_old(row) == old]
        good = lines[listener, "successfully authenticated"] + lines[listener, "successfully re-authenticated"]
        assert sum(row["attempts"] - row["failed"] for row in rows) == good
        assert sum(row["failed"] for row in rows) == lines[listener, "failed authentication"]


def test_each_client_has_its_mechanism_and_rounds(tables: dict[str, list[Row]]) -> None:
    assert {row["client_id"]: row["mechanism"] for row in tables["auth"]} == MECHANISMS
    for row in tables["auth"]:
        assert row["rounds"] == (1 if row["mechanism"] == "PLAIN" or row["client_id"] == "java-oauth" else 2)
        assert row["principal"] == ("shop" if row["mechanism"][:5] in ("PLAIN", "SCRAM") else None)


def test_failures(tables: dict[str, list[Row]], truth: Any) -> None:
    failed = {row["client_id"]: row for row in tables["auth"] if row["failed"]}
    assert set(failed) == {"old-typo", "oauth-denied"}
    denied = failed["oauth-denied"]
    assert (denied["outcome"], denied["failed_at"]) == ("SASL_AUTHENTICATION_FAILED", "OAUTHBEARER client-end")
    assert denied["message"] in truth["clients"]["oauth-denied"]
    typo = failed["old-typo"]
    assert (typo["outcome"], typo["failed_at"]) == ("unanswered", "PLAIN credentials")
    assert typo["message"] == "the broker closed the connection"


def test_messages_by_kind(tables: dict[str, list[Row]]) -> None:
    """Each mechanism has its own messages, in SaslAuthenticate and in frames of their own; none is of unknown form."""
    found: dict[str, set[str]] = {}
    for row in tables["auth_messages"]:
        found.setdefault(row["mechanism"], set()).add(row["message"])
    assert found == {mechanism: set(kinds) for mechanism, kinds in KINDS.items()}
    bare = {(row["mechanism"], row["message"]) for row in tables["auth_messages"] if "own" in row["carried_in"]}
    assert bare == {(name, kind) for name in ("PLAIN", "SCRAM-SHA-512") for kind in KINDS[name]} | {
        ("GSSAPI", kind) for kind in GSSAPI
    }


def test_messages_in_frames_of_their_own(tables: dict[str, list[Row]]) -> None:
    """As many as the attempts have rounds."""
    attempts = {row["client_id"]: row for row in tables["auth"]}
    count = {
        (row["mechanism"], row["message"]): row["messages"]
        for row in tables["auth_messages"]
        if row["carried_in"] != "SaslAuthenticate"
    }
    assert count["GSSAPI", GSSAPI[0]] == count["GSSAPI", GSSAPI[2]] == attempts["old-gssapi"]["attempts"]
    assert {count["SCRAM-SHA-512", kind] for kind in SCRAM} == {attempts["old-scram"]["attempts"]}
    plain = attempts["old-plain"]["attempts"]
    assert count["PLAIN", "empty"] == plain
    assert count["PLAIN", "PLAIN credentials"] == plain + attempts["old-typo"]["attempts"]


def test_authentication_again(tables: dict[str, list[Row]], truth: Any, lines: Counter[tuple[str, str]]) -> None:
    rows = {row["client_id"]: row for row in tables["auth_sessions"]}
    assert set(rows) == {name for name in MECHANISMS if not name.startswith(("old-", "oauth-denied"))}
    assert {row["lifetime_ms"] for row in rows.values()} == {truth["lifetime_ms"]}
    assert sum(row["again"] for row in rows.values()) == lines["SASL", "successfully re-authenticated"]
    assert sum(row["failed"] for row in rows.values()) == 0
    for name, row in rows.items():
        if name not in ("never-again", "late-again"):
            assert row["again"] >= 2
            assert 3_000_000_000 < row["after_p50_ns"] < 4_200_000_000


def test_late_and_expired_sessions(tables: dict[str, list[Row]], truth: Any) -> None:
    rows = {row["client_id"]: row for row in tables["auth_sessions"]}
    assert (truth["clients"]["never-again"], truth["clients"]["late-again"]) == ("closed", "answered")
    assert (rows["late-again"]["late"], rows["late-again"]["expired"]) == (1, 0)
    assert {name for name, row in rows.items() if row["expired"]} == {"never-again"}
    assert all(row["late"] == 0 for row in rows.values() if row["after_max_ns"] and row["after_max_ns"] < 4_000_000_000)


def test_mechanisms_of_the_broker(tables: dict[str, list[Row]], truth: Any) -> None:
    """Both listeners offer all of them."""
    ports = truth["ports"]
    offered = {(row["broker"], row["mechanism"]) for row in tables["auth_mechanisms"] if row["offered"]}
    assert offered == {(f"127.0.0.1:{port}", name) for port in ports.values() for name in KINDS}
    for row in tables["auth_mechanisms"]:
        assert row["handshakes"] == row["attempts"]


def test_no_secret_is_in_any_table(tables: dict[str, list[Row]]) -> None:
    text = repr(tables)
    assert "made-up" not in text
    assert "Bearer" not in text
