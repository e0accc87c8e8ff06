"""Servers that are no Kafka brokers, and clients that are no Kafka clients, are known by their first bytes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.cli.running import kafkatap
from tests.support.captures import pcap_bytes, write_capture
from tests.support.tcp import START_NS, Segment, TcpConversation, encode, merge, request_frame, response_frame

BROKER, OTHER = ("10.0.0.9", 9092), ("10.0.0.9", 8080)
ALERT = bytes.fromhex("15030300020250")
SERVER_HELLO = bytes.fromhex("160303003a0200003603030000") + bytes(50)
CLIENT_HELLO = bytes.fromhex("16030100c8010000c40303aabb") + bytes(192)
METADATA = b"\xff\xff\xff\xff"
ANSWER = response_frame(1, b"\0\0\0\0\0\0\0\1\0\0\0\0")
HTTP = b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"
PAGE = b"<!DOCTYPE HTML>\n<html><body>Bad request</body></html>\n"
GET = b"GET /metrics HTTP/1.1\r\nHost: broker\r\n\r\n"


def talk(
    port: int, asks: bytes | None, answer: bytes, place: tuple[str, int] = BROKER, opens: bool = True
) -> list[Segment]:
    """A connection on which a client asks (None: Metadata, as Kafka), and is answered."""
    made = TcpConversation((f"10.0.0.{port % 200}", port), place, time_ns=START_NS + port * 1_000_000)
    if opens:
        made.open()
    made.client(request_frame(3, 1, 1, "orders", METADATA) if asks is None else asks)
    if answer:
        made.server(answer)
    made.close(1)
    return made.segments


def report(folder: Path, *talks: Sequence[Segment]) -> dict[str, Any]:
    path = write_capture(folder / "a.pcap", pcap_bytes(encode(merge(*talks))))
    found: dict[str, Any] = json.loads(kafkatap("report", "--json", path, "--sections", "summary", "--ledger").out)
    return found["reports"]


def lines(found: dict[str, Any]) -> list[tuple[str, str]]:
    return [(row["finding"], row["text"]) for row in found["summary"]]


@pytest.mark.parametrize(
    ("answer", "words", "setting"),
    [
        (ALERT, "began without TLS, but 10.0.0.9:9092 speaks TLS, as its answer shows", "security.protocol"),
        (SERVER_HELLO, "speaks TLS, as its answer shows", "security.protocol"),
        (HTTP, "answers with HTTP: that is an HTTP server", "bootstrap.servers"),
        (PAGE, "answers with HTTP: that is an HTTP server", "bootstrap.servers"),
    ],
)
def test_a_server_that_is_no_broker_of_this_listener(tmp_path: Path, answer: bytes, words: str, setting: str) -> None:
    """Without a neighbour. Its bytes are not lost, and the request is folded under it."""
    found = report(tmp_path, *(talk(40_000 + n, None, answer) for n in range(3)))
    (wrong, unanswered) = found["summary"]
    assert (wrong["finding"], wrong["severity"], wrong["setting"]) == ("wrong_port", "error", setting)
    assert words in wrong["text"]
    assert (unanswered["finding"], unanswered["cause"]) == ("unanswered", "wrong_port")
    places = {row["part"]: row["count"] for row in found["ledger"] if row["section"] == "payload bytes"}
    assert places["not_kafka"] == 3 * len(answer)
    assert "skipped" not in places


def test_it_is_cut_in_segments_or_comes_late(tmp_path: Path) -> None:
    talks = TcpConversation(("10.0.0.5", 40_000), OTHER, mss=20)
    talks.open()
    talks.client(request_frame(3, 1, 1, "orders", METADATA))
    talks.server(HTTP + b"x" * 5_000)
    talks.close(1)
    found = report(tmp_path, talks.segments)
    assert [row["finding"] for row in found["summary"]] == ["wrong_port", "unanswered"]


@pytest.mark.parametrize(
    ("talks", "others"),
    [
        ([talk(40_001, None, ANSWER)], 0),  # Kafka
        ([talk(40_001, GET, HTTP, OTHER)], 0),  # a web server is nobody's fault
        ([talk(40_001, GET, b"")], 0),  # nobody knows that a broker is there
        ([talk(40_001, CLIENT_HELLO, ALERT, OTHER)], 1),  # TLS alone: that a handshake failed is said elsewhere
        ([talk(40_001, None, HTTP, opens=False)], 0),  # where the connection began is not captured
    ],
)
def test_silent_otherwise(tmp_path: Path, talks: Sequence[Sequence[Segment]], others: int) -> None:
    found = lines(report(tmp_path, *talks))
    assert not {name for name, _ in found} & {"wrong_port", "http_client"}
    assert len([name for name, _ in found if name == "tls_failed"]) == others


def test_http_to_a_broker_is_a_note(tmp_path: Path) -> None:
    found = report(tmp_path, talk(40_001, None, ANSWER), talk(40_002, GET, b""))
    (probe,) = (row for row in found["summary"] if row["finding"] == "http_client")
    assert probe["severity"] == "note"
    assert probe["text"] == "1 connection of 10.0.0.2 sent HTTP to 10.0.0.9:9092, where a Kafka broker listens"


@pytest.mark.parametrize(("hellos", "others", "is_told"), [(3, 0, True), (2, 0, False), (4, 3, True), (3, 4, False)])
def test_a_port_that_answers_nobody_may_speak_no_tls(tmp_path: Path, hellos: int, others: int, is_told: bool) -> None:
    """`others`: handshakes that another port refuses with an alert."""
    refused = (talk(40_010 + n, CLIENT_HELLO, ALERT, OTHER) for n in range(others))
    found = report(tmp_path, *(talk(40_001 + n, CLIENT_HELLO, b"") for n in range(hellos)), *refused)
    (line,) = (row for row in found["summary"] if row["finding"] == "tls_failed")
    assert line["text"].endswith(f"10.0.0.9:9092 closed {hellos} without a byte: perhaps it speaks no TLS") is is_told
    assert line["setting"] == ("security.protocol" if is_told else None)


def test_tls_at_a_plain_listener_needs_a_neighbour(tmp_path: Path) -> None:
    hello = talk(40_002, CLIENT_HELLO, b"")
    assert "wrong_port" not in dict(lines(report(tmp_path, hello)))
    found = dict(lines(report(tmp_path, hello, talk(40_001, None, ANSWER))))
    assert "speaks no TLS with others" in found["wrong_port"]
