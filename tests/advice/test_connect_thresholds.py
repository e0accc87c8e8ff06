"""Signatures of connections that are made too often, and of what one connection carries, just inside and just outside
of their thresholds."""

from __future__ import annotations

from typing import Any

import pytest

from kafkatap.dissector.dtypes import IN_FLIGHT, NO_REPLY_EXPECTED
from kafkatap.reports.advice.one_connection import ONE_CONNECTION
from kafkatap.reports.advice.reconnects import CONNECTION_EACH, RECONNECT_STORM
from kafkatap.reports.advice.refused_produce import REFUSED_PRODUCE
from kafkatap.reports.connection_words import H_COMPLETE, H_NOT_CAPTURED, H_REFUSED, H_UNANSWERED, P_TLS
from kafkatap.reports.findings import NOTE, WARNING, Finding, Party
from tests.reports.rows import BILLING, MS, ORDERS, START, connection, exchange, result

from .made_input import SECOND, found

VERSIONS, LOGIN, PRODUCE = 18, 36, 0
#: A correlation id of a client that goes on, and one of those that Java's clients have for their login.
USUAL, RESERVED = 4, 2_147_483_640


def each(
    count: int = 10, uses: int = 10, id_of: int = USUAL, setup_ns: int = MS, use_ns: int = 4 * MS, failed: int = 0,
    code: int = 58, use_api: int = PRODUCE, ends: dict[str, Any] | None = None, **columns: Any,
) -> list[Finding]:  # fmt: skip
    """Of a client that opens connections, with their setup and some requests on all of them together."""
    rows, results, number = [], [], 0
    for api, times, broker_ns in ((VERSIONS, count, setup_ns), (use_api, uses, use_ns), (LOGIN, failed, MS)):
        for n in range(times):
            rows.append(
                exchange(number, n * SECOND, broker_ns, **({"api_key": api, "correlation_id": id_of} | columns))
            )
            results += [result(number, code)] if api == LOGIN else []
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
        "connections": 10, "requests": 10, "setup_ns": 20 * MS, "setup_share": 20 * MS / (60 * MS),
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
        ({"failed": 1, "code": 0}, WARNING),
        ({"use_api": 1, "use_ns": 400 * MS}, WARNING),  # that waits for data
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


@pytest.mark.parametrize(
    ("starts", "reserved", "count", "is_new", "is_idle"),
    [(4, 0, 12, True, False), (4, 0, 13, False, True), (0, 4, 10, False, True), (0, 5, 10, False, False)],
)
def test_ids_of_new_clients_and_of_others(starts: int, reserved: int, count: int, is_new: bool, is_idle: bool) -> None:
    """A new client makes up to three connections. Reserved ids of most say nothing."""
    ids = [*[0] * starts, *[RESERVED] * reserved, *[USUAL] * (count - starts - reserved)]
    rows = [exchange(n, 0, MS, api_key=VERSIONS, correlation_id=one) for n, one in enumerate(ids)]
    rows += [exchange(count + n, 0, MS, api_key=PRODUCE) for n in range(count)]
    ends = [connection(connection=n, handshake=H_COMPLETE, exchanges=1) for n in range(count)]
    (one,) = found(CONNECTION_EACH, rows, ends)
    assert ("a new client" in one.text) == is_new
    assert (one.setting == "connections.max.idle.ms") == is_idle
    assert one.numbers["new_clients"] == starts


def test_connections_to_several_brokers_are_added_up() -> None:
    rows, ends = [], []
    for n in range(22):
        place = {"broker_port": 9093 - (n < 10), "connection": n}
        rows.append(exchange(2 * n, 0, MS, api_key=VERSIONS, correlation_id=USUAL, **place))
        rows.append(exchange(2 * n + 1, 0, MS, api_key=PRODUCE, **place))
        ends.append(connection(first=START - n * SECOND, first_packet=50 - n, handshake=H_COMPLETE, exchanges=2,
                               handshake_rtt_ns=0, **place))  # fmt: skip
    (one,) = found(CONNECTION_EACH, rows, ends)
    assert "opened 22 connections to 10.0.0.2:9093, 10.0.0.2:9092 for 22 requests" in one.text
    assert (one.begin, one.end, one.packets, one.time_lost_ns) == (START - 21 * SECOND, START, (29,), 21 * MS)


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
    assert one.parties == (Party("host", "10.0.0.1"), Party("broker", "10.0.0.2:9092"))
    (one,) = storm(count=21, handshake=H_COMPLETE, setups=30, client_id=BILLING)
    assert one.text.startswith('client "billing" (10.0.0.1) connects to 10.0.0.2:9092 5 times a second: 21 times, 21 ')
    assert one.text.endswith("21 closed after 30 requests")
    assert one.time_lost_ns == 30 * MS
    (one,) = storm(handshake=H_UNANSWERED, others=(ELSEWHERE,))
    assert (one.text[-13:], one.numbers["unanswered"]) == ("20 unanswered", 20)
    (one,) = storm(seconds=0.001, others=(ELSEWHERE,))
    assert one.numbers["rate"] == 20  # in a second


@pytest.mark.parametrize(
    ("options", "is_named"),
    [
        ({}, True),  # five a second
        ({"count": 21, "seconds": 4.2}, True),
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
    connects = [connection(connection=n, handshake=H_REFUSED, client_id=-1, first=START + n * 105 * MS)
                for n in range(21)]  # fmt: skip
    assert bool(found(RECONNECT_STORM, rows, connects)) == is_named


def test_many_clients_that_connect_once_are_no_storm() -> None:
    """There is no room for the counts of each."""
    ends = [connection(connection=n, client_ip=n, handshake=H_REFUSED, first=START + n) for n in range(400)]
    rows = [exchange(1, client_id=BILLING, client_ip=-1, broker_ip=-1, broker_port=-1)]
    assert found(RECONNECT_STORM, rows, ends, most=20, addresses=[f"10.0.{n >> 8}.{n & 255}" for n in range(400)]) == []


# ------------------------------------------------------------ Produce requests that a broker refuses


def refused(
    count: int = 3, after_ms: float = 100, size: int = 5_000, passed: int = 4_000, more: tuple[Any, ...] = (),
    acks: int = 0, end: dict[str, Any] | None = None,
) -> list[Finding]:  # fmt: skip
    """Of connections, 10 s apart, that the broker closes some time after a request. One of another size passed before.
    The client sends again 2 s after each."""
    rows, ends = [], []
    for n in range(count):
        at, one = 10 * n * SECOND, {"connection": n, "outcome": NO_REPLY_EXPECTED, "api_key": PRODUCE, "acks": acks}
        rows.append(exchange(3 * n, at, 0, request_bytes=passed, **one))
        rows.append(exchange(3 * n + 1, at + SECOND, 0, request_bytes=size + n, **one))
        rows.append(exchange(3 * n + 2, at + 3 * SECOND, 0, request_bytes=100, **(one | {"connection": 90 + n})))
        closed = {"closed_by": 1, "closed_at": START + at + SECOND + round(after_ms * MS)}
        ends.append(connection(connection=n, **(closed | (end or {}))))
    return found(REFUSED_PRODUCE, rows, [*ends, *more])


def test_refused_produce_requests() -> None:
    (one,) = refused()
    assert one.numbers == {
        "connections": 3, "smallest_refused_bytes": 5_000, "largest_refused_bytes": 5_002,
        "largest_passed_bytes": 4_000,
    }  # fmt: skip
    assert one.time_lost_ns == 3 * 1_900 * MS
    assert (one.begin, one.end) == (START + 1_100 * MS, START + 21_100 * MS)
    assert one.packets == (3, 9, 15)
    assert one.text.startswith(
        'broker 10.0.0.2:9092 closed 3 connections of client "billing" (10.0.0.1) straight after a Produce request '
        "with acks=0: each of 4.9 KiB or more, while those up to 3.9 KiB passed."
    )
    (one,) = refused(passed=9_000)
    assert "with acks=0. It may not answer" in one.text  # the size is not the reason


@pytest.mark.parametrize(
    ("options", "is_named"),
    [
        ({"count": 2}, False),
        ({"after_ms": 100.001}, False),
        ({"after_ms": 0}, True),
        ({"after_ms": -0.001}, False),
        ({"acks": 1}, False),
        ({"end": {"closed_by": 0}}, False),
        ({"end": {"protocol": P_TLS}}, False),
        ({"more": (connection(connection=50, client_ip=2, closed_by=1, closed_at=START + 2_100 * MS - 1),)}, False),
        ({"more": (connection(connection=50, client_ip=2, closed_by=1, closed_at=START + 2_100 * MS),)}, True),
        ({"more": (connection(connection=50, client_ip=2, closed_by=1, closed_at=START + 100 * MS),)}, False),
        ({"more": (connection(connection=50, client_ip=2, closed_by=1, closed_at=START + 100 * MS - 1),)}, True),
        ({"more": (connection(connection=50, client_ip=2, closed_by=0, closed_at=START + 1_100 * MS),)}, True),
        ({"more": (connection(connection=50, closed_by=1, closed_at=START + 1_100 * MS),)}, True),  # its own
        (
            {"more": (connection(connection=50, client_ip=2, broker_ip=2, closed_by=1, closed_at=START + 1_100 * MS),)},
            True,
        ),
    ],
)
def test_thresholds_of_refused_produce(options: dict[str, Any], is_named: bool) -> None:
    assert bool(refused(**options)) == is_named


# ------------------------------------------------------------ one connection


def behind(
    count: int = 12, wait_ms: int = 20, own_ms: int = 4, others_ms: int = 0, links: int = 1, slow: tuple[Any, ...] = (),
    **columns: Any,
) -> list[Finding]:  # fmt: skip
    """Of requests that wait behind others. `slow`: others of the same connections."""
    usual: dict[str, Any] = {"api_key": PRODUCE, "hol_wait_ns": wait_ms * MS, "broker_ns": own_ms * MS}
    rows = [
        exchange(n, n * SECOND, 0, **(usual | {"total_ns": (wait_ms + own_ms) * MS, "connection": n % links} | columns))
        for n in range(count)
    ]
    return found(
        ONE_CONNECTION,
        [*rows, *([exchange(90, 0, others_ms * MS, api_key=3, connection=99)] if others_ms else []), *slow],
    )


def test_one_connection() -> None:
    (one,) = behind(20, links=2)
    assert one.numbers == {
        "hol_wait_ns": 400 * MS, "mean_ns": 20 * MS, "longest_ns": 20 * MS, "broker_mean_ns": 4 * MS,
        "requests_ahead": 5.0, "exchanges": 20, "connections": 2, "share": 20 / 24,
    }  # fmt: skip
    assert one.text == (
        'client "billing" (10.0.0.1): 20 Produce requests wait 20.0 ms on average behind about 5 others on 2 '
        "connections, 83.3 % of its time; the broker needs 4.00 ms for one"
    )
    assert (one.begin, one.end, one.packets) == (START, START + 19 * SECOND, (1,))
    assert one.time_lost_ns == 400 * MS
    assert " on one connection, " in behind()[0].text


@pytest.mark.parametrize(
    ("options", "is_named"),
    [
        ({"wait_ms": 19, "own_ms": 3}, False),
        ({"own_ms": 5}, False),  # four ahead
        ({"count": 8}, True),  # half of them, and one, are ahead of each
        ({"count": 7}, False),
        ({"count": 16, "links": 2}, True),
        ({"count": 15, "links": 2}, False),
        ({"count": 10, "others_ms": 160, "total_ns": 24 * MS}, True),  # half of its time
        ({"count": 10, "others_ms": 161, "total_ns": 24 * MS}, False),
        ({"wait_ms": 120, "own_ms": 19}, True),
        ({"wait_ms": 120, "own_ms": 20}, False),  # the broker is slow
        ({"outcome": IN_FLIGHT}, False),
        ({"slow": (exchange(91, connection=0, broker_ns=47 * MS, total_ns=47 * MS, api_key=3),)}, True),
        ({"slow": (exchange(91, connection=0, broker_ns=48 * MS, total_ns=48 * MS, api_key=3),)}, False),  # half
        ({"slow": (exchange(91, connection=9, broker_ns=48 * MS, total_ns=48 * MS, api_key=3),)}, True),
        ({"waiting_ns": 3 * MS}, True),
        ({"hol_loss_wait_ns": 1}, False),
        ({"hol_round_trip_ns": 1}, False),
        ({"hol_poll_wait_ns": 1}, False),
    ],
)
def test_thresholds_of_one_connection(options: dict[str, Any], is_named: bool) -> None:
    assert bool(behind(**options)) == is_named


@pytest.mark.parametrize(
    ("at", "columns", "is_named"),
    [
        (0.5, {"broker_ns": 200 * MS}, False),  # eleven of thirteen are stalled
        (0.5, {"broker_ns": 200 * MS - 1}, True),
        (0.5, {"broker_ns": 100 * MS, "loss_ns": 100 * MS}, False),
        (0.5, {"broker_ns": 200 * MS, "waiting_ns": 1, "api_key": 1}, True),
        (6.5, {"broker_ns": 200 * MS}, True),  # eight are not
        (5.5, {"broker_ns": 200 * MS}, False),
        (0.5, {"broker_ns": 200 * MS, "client_ip": 2}, True),
        (0.5, {"broker_ns": 200 * MS, "outcome": IN_FLIGHT}, True),
    ],
)
def test_stalled_seconds_do_not_count(at: float, columns: dict[str, Any], is_named: bool) -> None:
    """Of another connection, on which a request takes until 10 s after the begin."""
    usual = {"connection": 9, "api_key": 3, "total_ns": 200 * MS}
    stall = exchange(91, round(at * SECOND), round((10.2 - at) * SECOND), **(usual | columns))
    assert bool(behind(13, slow=(stall,))) == is_named


@pytest.mark.parametrize("cause", ["hol_throttle_wait_ns", "hol_poll_wait_ns", "hol_unknown_wait_ns"])
def test_waits_for_other_reasons_are_not_of_stalled_seconds(cause: str) -> None:
    """A millisecond of each wait. What is left of eight of thirteen is just enough."""
    stall = exchange(91, 6_500 * MS, 3_700 * MS, connection=9, api_key=3, total_ns=200 * MS, broker_ns=200 * MS)
    (one,) = behind(13, wait_ms=21, slow=(stall,), **{cause: MS})
    assert (one.numbers["exchanges"], one.numbers["mean_ns"]) == (8, 20 * MS)
