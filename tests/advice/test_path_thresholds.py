"""Signatures of addresses, paths and connections just inside and just outside of their thresholds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from kafkatap.dissector.dtypes import ANSWERED, IN_FLIGHT
from kafkatap.dissector.dtypes import UNANSWERED as UNANSWERED_REQUEST
from kafkatap.reports.advice.advertised import ADVERTISED
from kafkatap.reports.advice.black_hole import BLACK_HOLE
from kafkatap.reports.advice.buffers import BUFFERS
from kafkatap.reports.connection_words import H_COMPLETE, H_REFUSED, H_UNANSWERED, NO_SCALE, P_TLS
from kafkatap.reports.findings import Finding, Party
from tests.reports.rows import ADDRESSES, MS, ORDERS, START, STRINGS, connection, exchange, fact

from .made_input import SECOND, found

# ------------------------------------------------------------ addresses that brokers advertise

#: Hosts of brokers that answers name, behind the other strings.
HOSTS = {host: len(STRINGS) + n for n, host in enumerate(("10.0.0.9", "b-9.kafka", "10.0.0.2", "10.0.0.8"))}
WITH_HOSTS = {"strings": [*STRINGS, *(host.encode() for host in HOSTS)]}
PORT = 9099


def asks(
    count: int, apart: int = SECOND, host: str = "10.0.0.9", node: int = 3, begin: int = 0, port: int = PORT,
    **columns: Any,
) -> tuple[list[Any], list[Any]]:  # fmt: skip
    """Metadata requests of a client, and the facts of their answers, which name one broker."""
    numbers = [begin // SECOND * 100 + n for n in range(count)]
    made = [exchange(n, begin + i * apart, api_key=3, **columns) for i, n in enumerate(numbers)]
    return made, [fact(n, "metadata broker", node=node, host=HOSTS[host], port=port) for n in numbers]


def connect(handshake: int, at: int = 0, **columns: Any) -> Any:
    """A connect to the broker's advertised address."""
    values = {"broker_ip": 2, "broker_port": PORT, "first": START + at, "last": START + at + MS, "first_packet": 50}
    return connection(handshake=handshake, **(values | columns))


REFUSED, UNANSWERED = connect(H_REFUSED, 9 * SECOND), connect(H_UNANSWERED, 2 * SECOND, packets=1)


def advertised(told: tuple[list[Any], list[Any]], connects: Sequence[Any], others: Sequence[Any] = ()) -> list[Finding]:
    return found(ADVERTISED, [*told[0], *others], connects, told[1], **WITH_HOSTS)


def test_advertised_addresses() -> None:
    """A client that is told the same by two APIs, and works with another broker."""
    told, facts = asks(3)
    told.append(exchange(50, 12 * SECOND, api_key=10))
    facts.append(fact(50, "coordinator of key", node=4, host=HOSTS["10.0.0.9"], port=PORT))
    connects = [REFUSED, connect(H_UNANSWERED, 2 * SECOND, packets=2), UNANSWERED]
    (one,) = advertised((told, facts), connects)
    assert one.numbers == {"refused": 1, "unanswered": 3, "responses": 4, "lasts_ns": 10 * SECOND + MS}
    assert (one.begin, one.end, one.packets) == (START + 2 * SECOND, START + 12 * SECOND + MS, (50, 2))
    assert one.text == (
        '10.0.0.9:9099, which the broker advertises to client "billing" (10.0.0.1), cannot be reached: 1 refused and 3 '
        "unanswered of 4 connects"
    )
    assert one.time_lost_ns == 10 * SECOND + MS
    (works,) = advertised((told, facts), connects, [exchange(99, api_key=0)])
    assert works.time_lost_ns == 0


@pytest.mark.parametrize(
    ("host", "connects", "is_named"),
    [
        ("10.0.0.9", [REFUSED], False),
        ("10.0.0.9", [REFUSED, REFUSED], True),
        ("10.0.0.9", [REFUSED, UNANSWERED], True),
        ("10.0.0.9", [UNANSWERED], False),
        ("10.0.0.9", [connect(H_UNANSWERED, packets=2)], True),
        ("10.0.0.9", [connect(H_REFUSED, broker_port=1)] * 2, False),
        ("10.0.0.9", [connect(H_REFUSED, client_ip=1)] * 2, False),  # another host
        ("10.0.0.9", [REFUSED, REFUSED, connect(H_COMPLETE, client_ip=1)], False),
        ("10.0.0.8", [REFUSED] * 2, False),
        ("b-9.kafka", [REFUSED] * 2, True),  # the address of the name is not known
        ("b-9.kafka", [connect(H_REFUSED, broker_port=19099)] * 2, False),
        ("b-9.kafka", [REFUSED, REFUSED, connect(H_COMPLETE, broker_ip=1)], False),  # a broker with that port
        ("b-9.kafka", [REFUSED, REFUSED, connect(H_COMPLETE, broker_port=1)], True),
        ("b-9.kafka", [*[REFUSED] * 2, *[connect(H_REFUSED, broker_ip=1)] * 2], False),  # which one is it?
    ],
)
def test_thresholds_of_connects(host: str, connects: list[Any], is_named: bool) -> None:
    assert bool(advertised(asks(3, host=host), connects)) == is_named


@pytest.mark.parametrize(
    ("told", "others", "connects", "is_named"),
    [
        (asks(5), [], [], True),
        (asks(4), [], [], False),
        (asks(4), [exchange(9, api_key=10)], [], True),
        (asks(4, 50 * SECOND // 3), [exchange(9, api_key=10)], [], True),
        (asks(6, 12 * SECOND), [], [], True),  # ten seconds for each
        (asks(6, 12 * SECOND + 1), [], [], False),
        (asks(5), [exchange(9, api_key=17), exchange(10, api_key=18), exchange(11, api_key=36)], [], True),
        (asks(5), [exchange(9, api_key=0)], [], False),  # it works
        (asks(5), [], [connect(H_COMPLETE)], False),
        (asks(5), [], [connect(H_REFUSED)], False),  # once
        (asks(5), [], [connect(H_COMPLETE, client_ip=1)], True),
        (asks(5, host="b-9.kafka"), [], [], False),
        (asks(5, port=0), [], [], False),
    ],
)
def test_thresholds_of_clients_that_only_ask(
    told: tuple[list[Any], list[Any]], others: list[Any], connects: list[Any], is_named: bool
) -> None:
    named = advertised(told, connects, others)
    assert bool(named) == is_named
    for one in named:
        assert one.numbers["asked"] == len(told[0]) + sum(row["api_key"] == 10 for row in others)
        assert (one.begin, one.packets) == (START + MS, (2,))
        assert one.end == max(row["response_last"] for row in told[0])
        assert one.numbers["lasts_ns"] == one.time_lost_ns == one.end - START - MS
        assert one.party("broker") == "10.0.0.9:9099"


def moved(
    old: int = 1, new: int = 5, apart: int = SECOND, begin: int = 20 * SECOND, node: int = 3
) -> tuple[list[Any], list[Any]]:
    """A client that is told one address of a node, and then another one, with what the node leads."""
    first, second = asks(old, host="10.0.0.2", node=node), asks(new, apart, node=node, begin=begin)
    leads = [
        fact(row["exchange"], "metadata partition", partition=p, leader=leader)
        for row in second[0] for p, leader in ((0, node), (1, node + 1), (2, node))
    ]  # fmt: skip
    facts = sorted([*first[1], *second[1], *leads], key=lambda row: row["exchange"])
    return [*first[0], *second[0]], facts


OLD = connect(H_COMPLETE, broker_ip=1)


@pytest.mark.parametrize(
    ("told", "connects", "is_named"),
    [
        (moved(), [REFUSED, REFUSED], True),
        (moved(), [REFUSED, connect(H_REFUSED, client_ip=1)], True),
        (moved(), [REFUSED], False),
        (moved(node=0), [REFUSED, REFUSED], True),
        (moved(node=-1), [REFUSED, REFUSED], False),
        (moved(), [OLD], True),  # it is shunned
        (moved(), [], False),
        (moved(new=4), [OLD], False),
        (moved(apart=12 * SECOND + SECOND // 2), [OLD], True),  # ten seconds for each
        (moved(apart=12 * SECOND + SECOND // 2 + 1), [OLD], False),
        (moved(begin=0), [REFUSED, REFUSED], False),  # two listeners
        (moved(), [OLD, REFUSED], False),
        (moved(), [REFUSED, REFUSED, connect(H_COMPLETE, client_ip=1)], False),
    ],
)
def test_thresholds_of_nodes_that_move(told: tuple[list[Any], list[Any]], connects: list[Any], is_named: bool) -> None:
    named = [one for one in advertised(told, connects, [exchange(9, api_key=0)]) if "node" in one.numbers]
    assert bool(named) == is_named
    for one in named:
        assert (one.numbers["responses"], one.numbers["clients"]) == (5, 1)
        assert one.numbers["partitions"] == 2
        assert one.parties[:2] == (Party("broker", "10.0.0.9:9099"), Party("broker", "10.0.0.2:9099"))


def test_a_node_that_moves() -> None:
    tries = [REFUSED, connect(H_UNANSWERED, 18 * SECOND, packets=3, client_ip=1)]
    (one,) = advertised(moved(), tries, [exchange(9, api_key=0)])
    assert one.text == (
        "broker 3 is advertised as 10.0.0.9:9099, which cannot be reached, before as 10.0.0.2:9099: 1 refused and 3 "
        'unanswered connects, by 10.0.0.1, 10.0.0.2; it leads orders[0, 2]; told to client "billing"'
    )
    assert (one.begin, one.end) == (START + 9 * SECOND, START + 24 * SECOND + MS)
    assert one.time_lost_ns == one.numbers["lasts_ns"] == 15 * SECOND + MS
    assert one.packets == (2 * 2000 + 2, 50)


def test_clients_of_a_node_that_moves() -> None:
    """One was told both addresses, and had connected to the old one. The other is told the new one only, more often."""
    told, facts = asks(1, host="10.0.0.2")
    for more in (asks(5, begin=20 * SECOND), asks(7, begin=22 * SECOND, client_id=ORDERS, client_ip=2)):
        told, facts = told + more[0], facts + more[1]
    (one,) = advertised((told, facts), [OLD])
    assert one.text.endswith(': no client that is told so connects to it; told to client "orders", client "billing"')
    assert (one.begin, one.end, one.packets) == (START + 20 * SECOND + MS, START + 28 * SECOND + MS, (4002,))
    assert (one.numbers["responses"], one.numbers["clients"]) == (12, 2)


@pytest.mark.parametrize("reached", [[], [connect(H_COMPLETE)], [connect(H_COMPLETE, broker_ip=3)]])
def test_a_client_that_is_told_several_addresses(reached: list[Any]) -> None:
    told = [asks(3, node=1), asks(4, begin=4 * SECOND, host="10.0.0.8"), asks(3, begin=9 * SECOND, node=1)]
    every = [row for one in told for row in one[0]], [row for one in told for row in one[1]]
    named = found(ADVERTISED, every[0], reached, every[1], addresses=[*ADDRESSES, "10.0.0.8"], **WITH_HOSTS)
    assert bool(named) == (not reached)
    for one in named:
        assert one.text.startswith("10.0.0.9:9099 and 1 more, which")
        assert (one.numbers["asked"], one.packets) == (10, (2,))
        assert (one.begin, one.end) == (START + MS, START + 11 * SECOND + MS)
    seldom = [asks(3), asks(2, begin=60 * SECOND, host="10.0.0.8")]
    assert not advertised(([row for one in seldom for row in one[0]], [row for one in seldom for row in one[1]]), [])


# ------------------------------------------------------------ packets of the full size that never arrive


def stuck(is_broker: bool = False, requests: Sequence[Any] = (), **columns: Any) -> list[Finding]:
    """Of a connection with segments of 1,000 bytes, of which an end sends four in vain, three times one. Both ends
    have sent 300 bytes before."""
    end = "broker" if is_broker else "client"
    values: dict[str, Any] = {
        "connection": 7, "handshake": H_COMPLETE, "client_mss": 1_012, "broker_mss": 1_013, f"{end}_bytes": 4_300,
        f"{end}_unacknowledged_bytes": 4_000, f"{end}_retransmitted_packets": 3, f"{end}_retransmitted_bytes": 3_000,
        "first_packet": 50, "last": START + 20 * SECOND,
    }  # fmt: skip
    rows = [
        exchange(0, connection=7, request_bytes=296),
        exchange(1, SECOND, connection=7, request_bytes=4_000, outcome=IN_FLIGHT),
    ]
    return found(BLACK_HOLE, [*rows, *requests], [connection(**(values | columns))])


@pytest.mark.parametrize("is_broker", [False, True])
def test_black_holes(is_broker: bool) -> None:
    (one,) = stuck(is_broker)
    assert one.numbers == {
        "connections": 1, "retransmissions": 3, "segment_bytes": 1_000, "stuck_bytes": 4_000, "lasts_ns": 20 * SECOND,
    }  # fmt: skip
    assert (one.begin, one.end, one.packets) == (START, START + 20 * SECOND, (50,))
    assert one.time_lost_ns == 20 * SECOND
    ends = ('client "billing" (10.0.0.1)', "10.0.0.2:9092")
    begin, end = ends[::-1] if is_broker else ends
    assert one.text.startswith(f"packets of the full size do not arrive from {begin} to {end}: 1 connection is stuck")


@pytest.mark.parametrize("is_broker", [False, True])
@pytest.mark.parametrize(
    ("columns", "is_named"),
    [
        ({"retransmitted_packets": 2}, False),
        ({"retransmitted_bytes": 2_700}, True),  # nine tenths
        ({"retransmitted_bytes": 2_699}, False),
        ({"bytes": 1_200, "unacknowledged_bytes": 900}, True),
        ({"bytes": 1_199, "unacknowledged_bytes": 899}, False),
        ({"bytes": 4_000}, False),  # nothing passed
        ({"bytes": 4_001}, True),
        ({"bytes": 11_999}, True),  # less than eight segments passed
        ({"bytes": 12_000}, False),
        ({"mss": 0, "retransmitted_bytes": 2_703}, True),  # the other end says
    ],
)
def test_thresholds_of_black_holes(is_broker: bool, columns: dict[str, int], is_named: bool) -> None:
    end = "broker" if is_broker else "client"
    assert bool(stuck(is_broker, **{f"{end}_{name}": value for name, value in columns.items()})) == is_named


@pytest.mark.parametrize(
    ("columns", "is_named"),
    [
        ({"client_mss": 0, "broker_mss": 0, "client_retransmitted_bytes": 3_910}, True),  # as of Ethernet: 1,448
        ({"client_mss": 0, "broker_mss": 0, "client_retransmitted_bytes": 3_909}, False),
        ({"protocol": P_TLS}, False),
        ({"handshake": H_REFUSED}, False),
    ],
)
def test_connections_of_black_holes(columns: dict[str, int], is_named: bool) -> None:
    assert bool(stuck(**columns)) == is_named


@pytest.mark.parametrize(
    ("request_bytes", "is_named"), [(995, True), (996, False)]  # with the four bytes of its length
)  # fmt: skip
def test_larger_requests_passed(request_bytes: int, is_named: bool) -> None:
    passed = [exchange(2, MS, connection=7, request_bytes=request_bytes)]
    assert bool(stuck(False, passed)) == is_named
    assert stuck(True, passed)  # they say nothing of responses


def at_s(seconds: int, is_answered: bool, size: int = 296) -> Any:
    """A request of the connection."""
    outcome = ANSWERED if is_answered else UNANSWERED_REQUEST
    return exchange(10 + seconds, seconds * SECOND, connection=7, request_bytes=size, outcome=outcome)


@pytest.mark.parametrize(
    ("requests", "is_named"),
    [
        ([at_s(10, True), at_s(11, False)], True),  # it began anew after the pause
        ([at_s(10, False)], False),
        ([at_s(10, True), at_s(20, False)], False),
        ([at_s(10, False), at_s(20, True), at_s(30, False)], False),
        ([at_s(10, True, 2_000), at_s(11, False)], False),  # as large a request passed later
    ],
)
def test_what_is_stuck_after_a_pause(requests: list[Any], is_named: bool) -> None:
    assert bool(stuck(False, requests)) == is_named


def test_black_holes_of_a_client() -> None:
    """The broker with more time is first; another direction is another finding."""
    rows = [exchange(n, connection=n, request_bytes=296, broker_port=9092 + n) for n in range(3)]
    usual: dict[str, Any] = {"handshake": H_COMPLETE, "broker_mss": 1_460}
    lost: dict[str, Any] = {"bytes": 4_300, "unacknowledged_bytes": 4_000, "retransmitted_packets": 4,
                            "retransmitted_bytes": 4_000}  # fmt: skip
    ends = [
        connection(connection=n, broker_port=9092 + n, first=START - n, last=START + (n + 1) * SECOND,
                   first_packet=60 - n, client_mss=1_012 - n, **usual,
                   **{f"{end}_{name}": value for name, value in lost.items()})
        for n, end in enumerate(("client", "client", "broker"))
    ]  # fmt: skip
    one, other = found(BLACK_HOLE, rows, ends)
    assert "to 10.0.0.2:9093 and 1 more: 2 connections are stuck at segments of 1,000 bytes, sent again 8" in one.text
    assert (one.packets, one.begin, one.end) == ((59, 60), START - 1, START + 2 * SECOND)
    assert one.time_lost_ns == one.numbers["lasts_ns"] == 3 * SECOND + 1
    assert "from 10.0.0.2:9094 to" in other.text


# ------------------------------------------------------------ receive buffers


def waiting(count: int = 1, rtt_ns: int = MS, others_ns: int = 0, end: dict[str, Any] | None = None, **columns: Any
) -> list[Finding]:  # fmt: skip
    """Of responses of 9,000 bytes, each with 100 ms of waits for the window."""
    usual = {"connection": 7, "response_bytes": 9_000, "receiver_ns": 100 * MS, "total_ns": 100 * MS} | columns
    rows = [exchange(n, n * SECOND, 0, **usual) for n in range(count)]
    others = [exchange(90, 0, others_ns, api_key=3)] if others_ns else []
    path = connection(connection=7, handshake_rtt_ns=rtt_ns, **(end or {}))
    return found(BUFFERS, [*rows, *others], [path])


def test_buffers() -> None:
    (one,) = waiting(2, 10 * MS, sender_ns=30 * MS, loss_ns=10 * MS, total_ns=150 * MS)
    assert one.numbers == {
        "receiver_ns": 200 * MS, "transfer_ns": 300 * MS, "rtt_ns": 10 * MS, "exchanges": 2, "connections": 1,
        "window_bytes": 600, "rate_bytes": 60_000, "share": 200 / 300,
    }  # fmt: skip
    assert (one.begin, one.packets, one.time_lost_ns) == (START, (2,), 200 * MS)
    assert one.end == START + SECOND
    assert one.text.startswith('the receive window of client "billing" (10.0.0.1) lets about 600')
    assert one.setting.startswith("receive.buffer.bytes")
    (one,) = waiting(request_bytes=9_001, end={"broker_window_scale": NO_SCALE})
    assert one.text.startswith('client "billing" (10.0.0.1): the receive window of 10.0.0.2:9092 (no window scaling)')
    assert (one.packets, one.setting) == ((1,), "net.ipv4.tcp_window_scaling")


@pytest.mark.parametrize(
    ("options", "is_named"),
    [
        ({}, True),
        ({"rtt_ns": MS - 1}, False),
        ({"receiver_ns": 100 * MS - 1}, False),
        ({"outcome": IN_FLIGHT}, False),
        ({"others_ns": 400 * MS}, True),  # a fifth
        (
            {"others_ns": 400 * MS, "hol_wait_ns": 500 * MS, "hol_poll_wait_ns": 500 * MS, "total_ns": 600 * MS},
            True,
        ),  # without waits for data
        ({"count": 2, "others_ns": 800 * MS + 1}, False),
        ({"rtt_ns": 25 * MS}, True),  # four round trips
        ({"rtt_ns": 25 * MS + 1}, False),
        ({"rtt_ns": 25 * MS, "count": 2}, True),
        ({"rtt_ns": 25 * MS + 1, "count": 2}, False),
        ({"end": {"protocol": P_TLS}}, False),
        ({"end": {"client_zero_windows": 1}}, False),
        ({"end": {"broker_zero_windows": 1}}, True),
    ],
)
def test_thresholds_of_buffers(options: dict[str, Any], is_named: bool) -> None:
    assert bool(waiting(**options)) == is_named


def test_connections_of_one_client_are_added_up() -> None:
    rows = [
        exchange(n, n * SECOND, 0, connection=n, response_bytes=9_000, receiver_ns=at * MS, total_ns=at * MS)
        for n, at in enumerate((60, 70, 50))
    ]
    (one,) = found(BUFFERS, rows, [connection(connection=n, handshake_rtt_ns=(n + 1) * MS) for n in range(3)])
    assert (one.numbers["connections"], one.numbers["exchanges"], one.numbers["rtt_ns"]) == (3, 3, 2 * MS)
    assert (one.time_lost_ns, one.begin, one.end) == (180 * MS, START, START + 2 * SECOND)
