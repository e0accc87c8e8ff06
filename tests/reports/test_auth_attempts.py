"""Section `auth` over made connections: bare tokens, kinds of messages, re-authentication, failed TLS handshakes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kafkatap.engine.selection import Selection
from kafkatap.reports.batch import Context
from kafkatap.reports.connection_columns import CONNECTION_ROW
from kafkatap.reports.connection_words import D_FAILED_HANDSHAKE, P_TLS
from kafkatap.reports.counting.counts import ReportCounts
from kafkatap.reports.section_parts.section import SectionInput
from kafkatap.reports.section_parts.section_counts import SectionCounts
from kafkatap.reports.sections.auth import SECTION
from tests.support.captures import ETHERNET, pcap_bytes
from tests.support.section_runs import Row, rows, section_rows
from tests.support.tcp import encode, frame
from tests.wire.kafkatalk import METADATA, SASL_AUTHENTICATE, SASL_HANDSHAKE, KafkaTalk, add_exchanges
from tests.wire.test_security import GSSAPI, PLAIN, SCRAM, old_sasl

S = 1_000_000_000
Tables = dict[str, list[Row]]


def read(talk: KafkaTalk, folder: Path, selection: Selection | None = None) -> Tables:
    path = folder / "talk.pcap"
    path.write_bytes(pcap_bytes(encode(talk.segments), ETHERNET, nanoseconds=True))
    found = section_rows(path, "auth", selection=selection or Selection())
    assert "secret" not in repr(found)
    return found


def authenticate(
    talk: KafkaTalk, tokens: list[tuple[bytes, bytes]], mechanism: str, lifetime_ms: int = 0, version: int = 2
) -> None:
    talk.respond(talk.request(SASL_HANDSHAKE, 1, 1, Mechanism=mechanism), Mechanisms=[mechanism, "PLAIN"])
    for number, (asking, answering) in enumerate(tokens):
        asked = talk.request(SASL_AUTHENTICATE, version, 10 + number, AuthBytes=asking)
        is_last = number == len(tokens) - 1
        talk.respond(asked, AuthBytes=answering, SessionLifetimeMs=lifetime_ms if is_last else 0)


def names(tables: Tables, *columns: str) -> list[tuple[Any, ...]]:
    return [tuple(row[column] for column in columns) for row in tables["auth_messages"]]


@pytest.mark.parametrize(
    ("tokens", "mechanism", "user"),
    [(PLAIN, "PLAIN", "alice"), (SCRAM, "SCRAM-SHA-256", "alice"), (GSSAPI, "GSSAPI", None)],
)
@pytest.mark.parametrize("mss", [1448, 7])
def test_bare_tokens_that_succeed(
    tokens: list[tuple[bytes, bytes]], mechanism: str, user: str | None, mss: int, tmp_path: Path
) -> None:
    talk = old_sasl(tokens, mechanism, mss)
    add_exchanges(talk, 3, 2)
    talk.tcp.close()
    found = read(talk, tmp_path)
    (row,) = found["auth"]
    assert (row["principal"], row["mechanism"], row["attempts"], row["failed"]) == (user, mechanism, 1, 0)
    assert row["rounds"] == len(tokens)
    assert 0 < row["time_p50_ns"] == row["time_max_ns"] < row["last"] - row["first"] + S
    assert {carried for (carried,) in names(found, "carried_in")} == {"frame of its own"}
    assert sum(count for (count,) in names(found, "messages")) == 2 * len(tokens)
    assert found["auth_sessions"] == []


def test_kinds_of_bare_tokens(tmp_path: Path) -> None:
    talk = old_sasl(SCRAM, "SCRAM-SHA-512")
    add_exchanges(talk, 1, 2)
    assert names(read(talk, tmp_path), "mechanism", "message", "sent_by", "messages") == [
        ("SCRAM-SHA-512", "SCRAM client-first", "client", 1),
        ("SCRAM-SHA-512", "SCRAM server-first", "broker", 1),
        ("SCRAM-SHA-512", "SCRAM client-final", "client", 1),
        ("SCRAM-SHA-512", "SCRAM server-final", "broker", 1),
    ]


def test_a_broker_that_closes_after_a_bare_token(tmp_path: Path) -> None:
    talk = old_sasl([], "PLAIN")
    talk.tcp.client(frame(b"\0alice\0wrong-secret"))
    talk.tcp.close(first=1)
    (row,) = read(talk, tmp_path)["auth"]
    assert (row["attempts"], row["failed"], row["outcome"]) == (1, 1, "unanswered")
    assert (row["failed_at"], row["message"]) == ("PLAIN credentials", "the broker closed the connection")
    assert row["client_id"] == "app"


def test_a_conversation_that_stops(tmp_path: Path) -> None:
    """The client does not accept what the broker says."""
    talk = old_sasl(SCRAM[:1], "SCRAM-SHA-256")
    talk.tcp.close()
    (row,) = read(talk, tmp_path)["auth"]
    assert (row["failed"], row["outcome"], row["message"]) == (1, "unfinished", "nothing followed SCRAM server-first")


def test_a_conversation_at_the_end_of_the_capture(tmp_path: Path) -> None:
    (row,) = read(old_sasl(SCRAM[:1], "SCRAM-SHA-256"), tmp_path)["auth"]
    assert (row["attempts"], row["failed"]) == (1, 0)


def test_bare_tokens_are_no_exchanges_for_a_selection(tmp_path: Path) -> None:
    """They belong to the handshake: they count if it is selected."""
    talk = old_sasl(SCRAM, "SCRAM-SHA-256")
    add_exchanges(talk, 3, 2)
    talk.tcp.close()
    everything = read(talk, tmp_path)
    for text, count in (("api == SaslHandshake", 1), ("api == Metadata", 0), ("client_id == 'nobody'", 0)):
        found = read(talk, tmp_path, Selection.of(filter=text))
        assert len(found["auth"]) == count
        assert found["auth_messages"] == (everything["auth_messages"] if count else [])


def test_authentication_again(tmp_path: Path) -> None:
    """Every second for three seconds, the last time 0.5 s too late; then a request after the session."""
    talk = KafkaTalk()
    talk.tcp.open()
    for pause in (0, 700, 800, 1500):
        talk.tcp.time_ns += pause * 1_000_000
        authenticate(talk, PLAIN, "PLAIN", lifetime_ms=1000)
        talk.respond(talk.request(METADATA, 1, 50))
    talk.tcp.time_ns += 3 * S
    talk.request(METADATA, 1, 51)
    talk.tcp.close(first=1)
    found = read(talk, tmp_path)
    (row,) = found["auth_sessions"]
    assert {name: row[name] for name in ("lifetime_ms", "sessions", "again", "failed", "late", "expired")} == {
        "lifetime_ms": 1000, "sessions": 1, "again": 3, "failed": 0, "late": 1, "expired": 1,
    }  # fmt: skip
    assert 800_000_000 < row["after_p50_ns"] < 900_000_000
    assert 1_500_000_000 < row["after_max_ns"] < 1_600_000_000
    assert [(r["attempts"], r["failed"]) for r in found["auth"]] == [(4, 0)]


def test_authentication_again_that_fails(tmp_path: Path) -> None:
    talk = KafkaTalk()
    talk.tcp.open()
    authenticate(talk, PLAIN, "PLAIN", lifetime_ms=60_000)
    talk.respond(talk.request(METADATA, 1, 50))
    talk.respond(talk.request(SASL_HANDSHAKE, 1, 60, Mechanism="PLAIN"))
    asked = talk.request(SASL_AUTHENTICATE, 2, 61, AuthBytes=b"\0bob\0bob-secret")
    talk.respond(asked, ErrorCode=58, ErrorMessage="Cannot change principals")
    talk.tcp.close(first=1)
    found = read(talk, tmp_path)
    (failed,) = [row for row in found["auth"] if row["failed"]]
    assert (failed["principal"], failed["message"]) == ("bob", "Cannot change principals")
    again = {row["principal"]: (row["again"], row["failed"]) for row in found["auth_sessions"]}
    assert again == {"alice": (0, 0), "bob": (1, 1)}


def test_authentication_again_without_the_start_of_the_connection(tmp_path: Path) -> None:
    talk = KafkaTalk()
    talk.tcp.open()
    add_exchanges(talk, 3, 2)
    authenticate(talk, PLAIN, "PLAIN", lifetime_ms=60_000)
    talk.respond(talk.request(METADATA, 1, 50))
    (row,) = read(talk, tmp_path)["auth_sessions"]
    assert (row["again"], row["after_p50_ns"]) == (1, None)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_each_mechanism_in_sasl_authenticate(version: int, tmp_path: Path) -> None:
    error = b'{"status":"insufficient_scope"}'
    talk = KafkaTalk()
    talk.tcp.open()
    talk.respond(talk.request(SASL_HANDSHAKE, 1, 1, Mechanism="OAUTHBEARER"), Mechanisms=["OAUTHBEARER"])
    asked = talk.request(SASL_AUTHENTICATE, version, 2, AuthBytes=b"n,,\x01auth=Bearer my-secret\x01\x01")
    talk.respond(asked, AuthBytes=error)
    asked = talk.request(SASL_AUTHENTICATE, version, 3, AuthBytes=b"\x01")
    talk.respond(asked, ErrorCode=58, ErrorMessage=error.decode())
    talk.tcp.close(first=1)
    found = read(talk, tmp_path)
    assert names(found, "message", "sent_by", "carried_in") == [
        ("OAUTHBEARER client-first", "client", "SaslAuthenticate"),
        ("OAUTHBEARER error", "broker", "SaslAuthenticate"),
        ("OAUTHBEARER client-end", "client", "SaslAuthenticate"),
    ]
    (row,) = found["auth"]
    assert (row["outcome"], row["failed_at"]) == ("SASL_AUTHENTICATION_FAILED", "OAUTHBEARER client-end")
    (mechanism,) = found["auth_mechanisms"]
    assert mechanism == {
        "broker": "10.0.0.2:9092", "mechanism": "OAUTHBEARER", "offered": True, "handshakes": 1, "attempts": 1,
        "failed": 1, "client_addresses": 1,
    }  # fmt: skip


def test_the_message_names_the_mechanism_without_a_handshake(tmp_path: Path) -> None:
    talk = KafkaTalk()
    talk.tcp.open()
    for number, (asking, answering) in enumerate(SCRAM):
        asked = talk.request(SASL_AUTHENTICATE, 2, number, AuthBytes=asking)
        talk.respond(asked, AuthBytes=answering)
    (row,) = read(talk, tmp_path)["auth"]
    assert (row["mechanism"], row["principal"], row["rounds"], row["time_p50_ns"]) == ("SCRAM", "alice", 2, None)


def test_failed_tls_handshakes() -> None:
    """By client, broker and alert. A client whose alert cannot be read counts too; an alert after the handshake does
    not."""
    made = np.zeros(6, CONNECTION_ROW)
    made["connection"], made["protocol"] = range(6), P_TLS
    made["client_ip"], made["broker_ip"], made["broker_port"] = [0, 0, 0, 1, 1, 1], 2, 9093
    made["tls_alert"], made["tls_alert_by"] = [48, 48, -1, 40, -1, 80], [0, 0, -1, 1, -1, 1]
    made["tls_handshake_ns"] = [-1, -1, 5000, -1, -1, 7000]
    made["tls_decryption"][4] = D_FAILED_HANDSHAKE
    made["first"], made["last"] = np.arange(6) * S, np.arange(6) * S + 5
    counts = SectionCounts(["auth"], 1000, lambda: 0)
    counts.add_connections(made)
    context = Context(addresses=["10.0.0.1", "10.0.0.3", "10.0.0.2"])
    tables = SECTION.tables(SectionInput(counts, ReportCounts(), context, {}))
    columns = ("client_ip", "attempts", "failed", "outcome", "message", "connections", "first", "last")
    assert [tuple(row[name] for name in columns) for row in rows(tables[0])] == [
        ("10.0.0.1", 3, 2, "TLS unknown_ca", "broker 10.0.0.2:9093, alert of the client", 2, 0, S + 5),
        ("10.0.0.3", 3, 1, "TLS handshake_failure", "broker 10.0.0.2:9093, alert of the broker", 1, 3 * S, 3 * S + 5),
        ("10.0.0.3", 3, 1, "TLS handshake failed", "broker 10.0.0.2:9093, without an alert that can be read", 1, 4 * S,
         4 * S + 5),
    ]  # fmt: skip
