"""Requests of APIs that nothing defines: what shows that they are Kafka, also without a SYN and with loss."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

import pytest

from tests.support.tcp import Segment, TcpConversation, encode, lose, request_frame, response_frame
from tests.support.vendor import BROKER, CLIENT, api_versions, body
from tests.wire.harness import check, decode_packets

PING, HEARTBEAT = 10_001, 12
Found = Counter[tuple[int, str]]


def talk(
    *, syn: bool = True, listed: bool = False, count: int = 6, size: int = 60, version: int = 0,
    clients: Sequence[str | None] = ("app",), heartbeats: bool = False, answers: bool = True,
) -> list[Segment]:  # fmt: skip
    """A connection with `count` requests of an unknown API, with random bodies of `size` bytes."""
    chance = random.Random(size)
    tcp = TcpConversation(CLIENT, BROKER)
    if syn:
        tcp.open()
    number = 100

    def exchange(key: int, asked: bytes, told: bytes, client: str | None, version: int = 0) -> None:
        nonlocal number
        number += 1
        tcp.client(request_frame(key, version, number, client, asked))
        if answers:
            tcp.server(response_frame(number, told))

    if listed:
        exchange(18, b"", api_versions(0, 1, 3, 18, PING, highest=version), clients[0])
    for n in range(count):
        exchange(PING, chance.randbytes(size), chance.randbytes(size), clients[n % len(clients)], version)
        if heartbeats:
            exchange(HEARTBEAT, body(HEARTBEAT, 0, 0, GroupId="g", MemberId="m"), body(HEARTBEAT, 0, 1), clients[0])
    return tcp.segments


def found(segments: Sequence[Segment], ports: Sequence[int] = ()) -> Found:
    """How many exchanges of each API and outcome there are."""
    return Counter((x["api_key"], x["outcome"]) for x in decode_packets(encode(segments), ports=ports).exchanges)


@pytest.mark.parametrize("syn", [True, False])
@pytest.mark.parametrize("heartbeats", [True, False])
def test_sizes_and_ids_of_both_directions_show_them(syn: bool, heartbeats: bool) -> None:
    segments = talk(syn=syn, heartbeats=heartbeats)
    seen = check(encode(segments))
    assert Counter(x["api_key"] for x in seen.exchanges) == {PING: 6, **({HEARTBEAT: 6} if heartbeats else {})}
    assert set(seen.outcomes) == {"answered"}
    assert seen.ledger["payload bytes"]["kafka_frames"] == seen.ledger["payload bytes"]["total"]


@pytest.mark.parametrize("ports", [(), (9_092,)])
def test_one_direction_shows_them(ports: tuple[int, ...]) -> None:
    assert found(talk(syn=False, answers=False), ports) == {(PING, "in_flight"): 6}


def test_one_request_and_its_answer_show_it() -> None:
    assert found(talk(syn=False, count=1)) == {(PING, "answered"): 1}


def test_a_request_alone_without_a_syn_shows_nothing() -> None:
    assert found(talk(syn=False, count=1, answers=False)) == {}


@pytest.mark.parametrize("listed", [True, False])
def test_clients_of_a_proxy_share_a_connection(listed: bool) -> None:
    assert found(talk(listed=listed, clients=("a", "b", None)))[PING, "answered"] == 6


def test_long_requests_of_an_api_that_the_broker_lists() -> None:
    assert found(talk(listed=True, count=3, size=1_500_000))[PING, "answered"] == 3


def test_versions_go_up_to_int16() -> None:
    assert found(talk(listed=True, version=32_767))[PING, "answered"] == 6


def test_loss_costs_what_it_hit() -> None:
    """Each lost packet costs at most the exchange whose bytes it carried."""
    for listed in (True, False):
        segments = talk(listed=listed, count=6, size=3_000)
        total = 6 + listed
        for number, segment in enumerate(segments):
            if segment.payload and number > 9:
                seen = found(lose(segments, number))
                assert seen[PING, "answered"] + seen[18, "answered"] >= total - 1, (listed, number, seen)


def test_what_only_looks_like_them_is_not_claimed() -> None:
    """A size, and text where the client_id is; but no chain, and no answer with the same id."""
    for change in ("no ids", "other names", "no boundaries"):
        tcp = TcpConversation(CLIENT, BROKER)
        for n in range(8):
            name = f"name-{n:03}" if change == "other names" else "name"
            number = 5 if change == "no ids" else 5 + n
            data = request_frame(PING, 0, number, name, bytes(30))
            tcp.client(data + (b"more" if change == "no boundaries" else b""))
            tcp.server(response_frame(number + 1, bytes(8)))
        assert found(tcp.segments) == {}, change
