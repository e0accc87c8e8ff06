"""Signatures of connections that are made too often, and of what one connection carries, just inside and just outside
of their thresholds."""

from __future__ import annotations

from typing import Any

import pytest

from kafkatap.dissector.dtypes import IN_FLIGHT, NO_REPLY_EXPECTED
from kafkatap.reports.advice.reconnects import CONNECTION_EACH, RECONNECT_STORM
from kafkatap.reports.connection_words import H_COMPLETE, H_NOT_CAPTURED, H_REFUSED, H_UNANSWERED, P_TLS
from kafkatap.reports.findings import NOTE, WARNING, Finding
from tests.reports.rows import BILLING, MS, ORDERS, START, connection, exchange, result

from .made_input import SECOND, found

VERSIONS, LOGIN, PRODUCE = 18, 36, 0
#: A correlation id of a client that goes on, and one of those that Java's clients have for their login.
USUAL, RESERVED = 4, 2_147_483_640


def each(
    count: int = 10, uses: int = 10, id_of: int = USUAL, setup_ns: int = MS, use_ns: int = 4 * MS - 1, failed: int = 0,
    ends: dict[str, Any] | None = None, **columns: Any,
) -> list[Finding]:  # fmt: skip
    """Of a client that opens connections, with their setup and some requests on all of them together."""
    rows, results, number = [], [], 0
    for api, times, broker_ns in ((VERSIONS, count, setup_ns), (PRODUCE, uses, use_ns), (LOGIN, failed, MS)):
        for n in range(times):
            rows.append(
                exchange(number, n * SECOND, broker_ns, **({"api_key": api, "correlation_id": id_of} | columns))
            )
            results += [result(number, 58)] if api == LOGIN else []
            number += 1
    made: dict[str, Any] = {"handshake": H_COMPLETE, "handshake_rtt_ns": 0, "exchanges": 2, "closed_by": 0}
    connects = [
        connection(connection=n, first=START + n * SECOND, first_packet=30 + n, **(made | (ends or {})))
        for n in range(count)
    ]
    return found(CONNECTION_EACH, rows, connects, results=results)


def test_a_connection_for_each_message() -> None:
    (one,) = each(ends={"handshake_rtt_ns": MS})
    assert one.numbers == {
        "connections": 10, "requests": 10, "setup_ns": 20 * MS, "setup_share": 20 * MS / (60 * MS - 10),
        "new_clients": 0, "closed_by_client": 10, "closed_by_broker": 0, "clients": 1,
    }  # fmt: skip
    assert one.text == (
        'client "billing" (10.0.0.1) opened 10 connections to 10.0.0.2:9092 for 10 requests besides their setup: the '
        "client closes them again. Setup takes 33.3 % of its time, 2.00 ms each"
    )
    assert (one.begin, one.end, one.packets) == (START, START + 9 * SECOND, (30,))
    assert one.time_lost_ns == 18 * MS  # one connection is needed


@pytest.mark.parametrize(
    ("options", "severity"),
    [
        ({}, WARNING),  # a fifth of its time
        ({"use_ns": 4 * MS + 1}, NOTE),
        ({"count": 9}, None),
        ({"failed": 1}, None),  # nine that did not fail
        ({"count": 11, "uses": 11, "failed": 1}, WARNING),
        ({"uses": 5, "ends": {"exchanges": 1}}, WARNING),  # one for each two
        ({"uses": 4, "ends": {"exchanges": 1}}, None),
        ({"uses": 29, "use_ns": MS}, WARNING),
        ({"uses": 30, "use_ns": MS}, None),
        ({"uses": 29, "outcome": IN_FLIGHT}, None),
        ({"outcome": NO_REPLY_EXPECTED}, NOTE),
        ({"ends": {"exchanges": 3}}, None),  # some were not selected
        ({"ends": {"protocol": P_TLS}}, None),
        ({"ends": {"handshake": H_NOT_CAPTURED}}, None),
        ({"api_key": 3}, None),  # nothing but Metadata
        ({"api_key": 17}, None),
    ],
)
def test_thresholds_of_each_message(options: dict[str, Any], severity: str | None) -> None:
    assert [one.severity for one in each(**options)] == ([] if severity is None else [severity])


@pytest.mark.parametrize(
    ("options", "why", "setting"),
    [
        ({"id_of": 3}, "a new client is made each time", "client reuse"),
        ({"id_of": USUAL}, "the client closes them again", "connections.max.idle.ms"),
        ({"ends": {"closed_by": 1}}, "the broker closes them again", "connections.max.idle.ms"),
        ({"id_of": RESERVED - 1}, "the client closes them again", "connections.max.idle.ms"),
        ({"id_of": RESERVED}, "the client closes them again", CONNECTION_EACH.setting),  # both may be
    ],
)
def test_why_there_is_another_connection(options: dict[str, Any], why: str, setting: str) -> None:
    (one,) = each(**options)
    assert f": {why}. Setup takes" in one.text
    assert one.setting == setting
    if setting == "connections.max.idle.ms":
        assert f" of {why.partition(' closes')[0]} above" in one.remedy


@pytest.mark.parametrize(("starts", "count", "is_new"), [(4, 12, True), (4, 13, False)])
def test_a_new_client_makes_up_to_three_connections(starts: int, count: int, is_new: bool) -> None:
    rows = [exchange(n, 0, MS, api_key=VERSIONS, correlation_id=0 if n < starts else USUAL) for n in range(count)]
    rows += [exchange(count + n, 0, MS, api_key=PRODUCE) for n in range(count)]
    ends = [connection(connection=n, handshake=H_COMPLETE, exchanges=1) for n in range(count)]
    (one,) = found(CONNECTION_EACH, rows, ends)
    assert ("a new client" in one.text) == is_new
    assert one.numbers["new_clients"] == starts


def test_clients_with_the_same_setting_are_one_finding() -> None:
    """The client that loses most is first."""
    rows, ends = [], []
    for client, setup in ((BILLING, MS), (ORDERS, 2 * MS), (-1, MS)):
        for n in range(10):
            who, number = {"client_id": client, "client_ip": max(client, 0)}, len(rows)
            rows.append(exchange(number, client * SECOND, setup, api_key=VERSIONS, correlation_id=USUAL, **who))
            rows.append(exchange(number + 1, 0, MS, api_key=PRODUCE, **who))
            ends.append(connection(connection=number, handshake=H_COMPLETE, handshake_rtt_ns=0, exchanges=2,
                                   first=START + client * SECOND + n, **who))  # fmt: skip
    (one,) = found(CONNECTION_EACH, rows, ends, addresses=["10.0.0.1", "10.0.0.2", "10.0.0.9", "10.0.0.3"])
    assert one.party("client") == "orders"
    assert one.text.endswith("2.00 ms each; 2 other clients too")
    assert (one.numbers["clients"], one.time_lost_ns) == (3, 36 * MS)
    assert (one.begin, one.end) == (START - SECOND, START + 3 * SECOND + 9)


# ------------------------------------------------------------ clients that connect again and again


def storm(
    count: int = 20, seconds: float = 4.0, asked: int = 0, setups: int = 0, handshake: int = H_REFUSED,
    others: tuple[Any, ...] = (), **columns: Any,
) -> list[Finding]:  # fmt: skip
    """Of connects at the same pace. `seconds`: from the first to the last."""
    step = round(seconds * SECOND) // (count - 1)
    connects = [
        connection(connection=n, handshake=handshake, first=START + n * step, first_packet=30 + n,
                   **({"client_id": -1} | columns)) for n in range(count)
    ]  # fmt: skip
    rows = [exchange(n, 0, MS, api_key=VERSIONS if n < setups else PRODUCE, **columns) for n in range(asked + setups)]
    return found(RECONNECT_STORM, [*rows, *others], connects)


#: A client of another host uses a broker with that port.
ELSEWHERE = exchange(90, client_ip=2, broker_ip=2)


def test_a_storm() -> None:
    (one,) = storm(others=(ELSEWHERE,))
    assert one.text == "host 10.0.0.1 connects to 10.0.0.2:9092 5 times a second: 20 times, 20 refused"
    assert one.numbers == {"connections": 20, "rate": pytest.approx(5), "refused": 20, "unanswered": 0, "requests": 0}
    assert (one.begin, one.packets, one.time_lost_ns) == (START, (30,), 0)
    (one,) = storm(count=21, handshake=H_COMPLETE, setups=30, client_id=BILLING)
    assert one.text.startswith('client "billing" (10.0.0.1) connects to 10.0.0.2:9092 5 times a second: 21 times, 21 ')
    assert one.text.endswith("21 closed after 30 requests")
    assert one.time_lost_ns == 30 * MS
    (one,) = storm(handshake=H_UNANSWERED, others=(ELSEWHERE,))
    assert (one.text[-13:], one.numbers["unanswered"]) == ("20 unanswered", 20)


@pytest.mark.parametrize(
    ("options", "is_named"),
    [
        ({}, True),  # five a second
        ({"seconds": 4.001}, False),
        ({"count": 19, "seconds": 1}, False),
        ({"count": 20, "seconds": 0.001}, True),
        ({"asked": 9, "client_id": BILLING}, True),
        ({"asked": 10, "client_id": BILLING}, False),  # one for each two
        ({"others": ()}, False),  # nobody shows that this is Kafka
        ({"others": (exchange(90, client_ip=2, broker_ip=2, broker_port=1),)}, False),
        ({"others": (), "setups": 1, "client_id": BILLING}, True),
        ({"handshake": H_NOT_CAPTURED}, False),
    ],
)
def test_thresholds_of_storms(options: dict[str, Any], is_named: bool) -> None:
    assert bool(storm(**({"others": (ELSEWHERE,)} | options))) == is_named


@pytest.mark.parametrize(("sharing", "is_named"), [(1, True), (2, True), (3, False)])
def test_clients_of_a_host_share_its_connects(sharing: int, is_named: bool) -> None:
    """Ten a second, of any of them."""
    rows = [exchange(n, client_id=n) for n in range(sharing)]
    connects = [connection(connection=n, handshake=H_REFUSED, client_id=-1, first=START + n * SECOND // 10)
                for n in range(21)]  # fmt: skip
    assert bool(found(RECONNECT_STORM, rows, connects)) == is_named


def test_many_clients_that_connect_once_are_no_storm() -> None:
    """There is no room for the counts of each."""
    ends = [connection(connection=n, client_ip=n, handshake=H_REFUSED, first=START + n) for n in range(400)]
    rows = [exchange(1, client_id=BILLING, client_ip=-1, broker_ip=-1, broker_port=-1)]
    assert found(RECONNECT_STORM, rows, ends, most=20, addresses=[f"10.0.{n >> 8}.{n & 255}" for n in range(400)]) == []
