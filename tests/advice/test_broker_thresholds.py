"""Signatures of brokers just inside and just outside of their thresholds."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from kafkatap.reports.advice.hot_leaders import HOT_LEADERS, led_by
from kafkatap.reports.advice.slow_followers import SLOW_FOLLOWERS
from kafkatap.reports.findings import Finding, Party
from tests.reports.rows import BILLING, GROUP, MS, ORDERS, START, STRINGS, exchange, fact

from .made_input import SECOND, found, given_of

# ------------------------------------------------------------ followers


def followed(
    waits_ms: Sequence[int],
    others_ms: Sequence[int] = (),
    prompt: bool = True,
    clients: Sequence[int] = (BILLING,),
) -> list[Finding]:
    """Of Produce requests with acks=all, a second apart. Each is answered when broker 3 has fetched beyond its record;
    broker 2 does at once. `others_ms`: requests that wait for broker 2."""
    rows, facts = [], []
    for n, (node, wait) in enumerate([*((3, wait) for wait in waits_ms), *((2, wait) for wait in others_ms)]):
        at, written = n * SECOND, 10 * n
        rows.append(
            exchange(written, at, wait * MS, api_key=0, acks=-1, connection=1, client_id=clients[n % len(clients)])
        )
        facts.append(fact(written, "produced partition", base_offset=n))
        for replica, after in ((node, wait), (5 - node, 0)):
            if replica == 2 and not prompt:
                continue
            number = written + replica
            rows.append(exchange(number, at + after * MS, 0, connection=replica, client_ip=2, client_id=-1))
            facts.append(fact(number, "fetch", replica_id=replica))
            facts.append(fact(number, "fetch partition", offset=n + 1))
    return found(SLOW_FOLLOWERS, rows, (), facts)


def test_a_slow_follower() -> None:
    (one,) = followed([1, 11, *[22] * 9, 10], [20], clients=(BILLING, ORDERS, ORDERS))
    assert one.text == (
        "follower broker 3 (10.0.0.9) held back 12 of 13 Produce requests with acks=all: 91.7 % of their broker time, "
        'p99 22.0 ms; most of client "orders" and 1 more'
    )
    assert one.numbers == {
        "wait_ns": 220 * MS, "own_ns": 220 * MS, "wait_p99_ns": 22 * MS, "wait_max_ns": 22 * MS, "broker_ns": 240 * MS,
        "share": 220 / 240, "produces": 13, "held_back": 12, "follower": 3,
    }  # fmt: skip
    assert one.time_lost_ns == 220 * MS
    # From the first wait of half of the p99 to the last one.
    assert (one.begin, one.end, one.packets) == (START + SECOND, START + 10 * SECOND + 22 * MS, (22,))
    assert one.parties == (
        Party("broker", "10.0.0.9"), Party("host", "10.0.0.9"), Party("client", "orders"), Party("client", "billing"),
    )  # fmt: skip

    (one,) = followed([20] * 10, clients=(-1,))
    assert one.text.endswith("; most of clients without client_id")
    assert one.party("client") is None


@pytest.mark.parametrize(
    ("waits_ms", "others_ms", "is_named"),
    [
        ([20] * 10, [], True),
        ([20] * 9, [], False),
        ([19] * 10, [], False),
        ([1] * 150 + [300], [], False),  # one pause
        ([20] * 10, [200], True),  # half of the time
        ([20] * 10, [201], False),
    ],
)
def test_thresholds_of_slow_followers(waits_ms: list[int], others_ms: list[int], is_named: bool) -> None:
    assert bool(followed(waits_ms, others_ms)) == is_named


def test_a_follower_is_slow_beside_another_one() -> None:
    assert not followed([20] * 10, prompt=False)


# ------------------------------------------------------------ leaders

#: A name that is no string of the other rows.
OWN, CLICKS = len(STRINGS), len(STRINGS) + 1


def led(
    *topics: tuple[int, Sequence[int]], brokers: int = 3, at: Sequence[int] = (0,), is_apart: bool = False
) -> list[Finding]:
    """Of Metadata answers with the leaders of the partitions of some topics. `is_apart`: an answer for each."""
    rows = [exchange(n, second * SECOND, api_key=3) for n, second in enumerate(at)]
    facts = []
    for n in range(len(rows)):
        facts += [fact(n, "metadata broker", node=node, host=BILLING, port=9092) for node in range(brokers)]
        for topic, leaders in topics[n : n + 1] if is_apart else topics:
            for partition, leader in enumerate(leaders):
                facts.append(fact(n, "metadata partition", topic=topic, partition=partition, leader=leader))
    return found(HOT_LEADERS, rows, (), facts, strings=[*STRINGS, b"__offsets", b"clicks"])


def test_hot_leaders() -> None:
    (one,) = led((ORDERS, [0] * 5), (CLICKS, [0, 0, 0, 0, 0, 1]), (BILLING, [0] * 4), at=(2, 1))
    assert one.text == (
        "broker 0 (billing:9092) leads 5 of 6 partitions of topic clicks (83.3 %), and nearly all of 2 other topics, "
        "and there are 3 brokers: it does their work alone"
    )
    assert one.numbers == {"led": 5, "partitions": 6, "share": 5 / 6, "brokers": 3, "leader": 0, "topics": 3}
    assert (one.begin, one.end, one.packets) == (START + SECOND + MS, START + 2 * SECOND + MS, (2,))
    assert one.parties[1:] == tuple(Party("topic", name) for name in ("clicks", "orders", "billing"))
    (one,) = led((ORDERS, [1] * 4), (CLICKS, [1] * 4))
    assert ", and nearly all of 1 other topic, and" in one.text
    assert len(led((ORDERS, [1] * 4), (CLICKS, [2] * 4))) == 2
    (one,) = led((ORDERS, [1] * 4), (CLICKS, [1] * 4), at=(2, 1), is_apart=True)
    assert (one.begin, one.end, one.packets) == (START + SECOND + MS, START + 2 * SECOND + MS, (2,))
    (one,) = led((ORDERS, [9] * 4))  # no answer has its address
    assert one.text.startswith("broker 9 leads 4 of 4 partitions of topic orders (100 %), and there are 3 brokers")
    assert one.party("broker") == "9"


@pytest.mark.parametrize(
    ("leaders", "brokers", "topic", "is_named"),
    [
        ([0, 0, 0, 0, 1], 3, ORDERS, True),  # four fifths
        ([0, 0, 0, 1], 3, ORDERS, False),
        ([0] * 4, 3, ORDERS, True),
        ([0] * 3, 3, ORDERS, False),
        ([0] * 4, 2, ORDERS, False),
        ([0] * 5, 5, ORDERS, True),
        ([0] * 4, 5, ORDERS, False),
        ([0, 0, 0, 0, -1], 5, ORDERS, False),  # nobody leads it
        ([0] * 4, 3, OWN, False),  # Kafka's own
    ],
)
def test_thresholds_of_hot_leaders(leaders: list[int], brokers: int, topic: int, is_named: bool) -> None:
    assert bool(led((topic, leaders), brokers=brokers)) == is_named


def test_what_a_node_leads_by_the_brokers_that_name_its_address() -> None:
    """Brokers of three clusters: the second has another node at the address, the third the same node elsewhere."""
    rows, facts = [], []
    for n, (node, host, topic) in enumerate(((3, GROUP, ORDERS), (4, GROUP, CLICKS), (3, BILLING, CLICKS))):
        rows.append(exchange(n, api_key=3, broker_ip=n))
        facts.append(fact(n, "metadata broker", node=node, host=host, port=9092))
        for partition, leader in enumerate((3, 4, 3)):
            facts.append(fact(n, "metadata partition", topic=topic, partition=partition, leader=leader))
        facts.append(fact(n, "metadata partition", topic=OWN, leader=3))
    given = given_of(rows, (), facts, strings=[*STRINGS, b"__offsets", b"clicks"])
    assert led_by(given, 3, "group-1:9092") == {"orders": [0, 2]}
