"""Talks crafted from other protocols' specifications: each whole, begun at every packet, and with every packet lost.

All of them are in one capture, each as a connection of its own.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.captures import pcap_bytes
from tests.support.tcp import START_NS, Segment, TcpConversation, encode
from tests.wire.foreign_noise import noise
from tests.wire.foreign_talks import TALKS, Talk
from tests.wire.harness import Decoded, decode_capture

#: The talk, what was done to it, whether its start is captured, and its messages: None stands for lost bytes.
Damaged = tuple[str, str, bool, list[tuple[int, bytes | int]]]


def variations(name: str, talk: Talk) -> Iterator[Damaged]:
    whole: list[tuple[int, bytes | int]] = list(talk)
    yield name, "whole", True, whole
    for end in (0, 1):
        yield name, f"only end {end}", True, [message for message in whole if message[0] == end]
        yield name, f"only end {end}, without its start", False, [message for message in whole if message[0] == end]
    for n, (end, data) in enumerate(talk):
        lost = [*whole[:n], (end, len(data)), *whole[n + 1 :]]
        yield name, f"from message {n} on", False, whole[n:]
        yield name, f"message {n} lost", True, lost
        yield name, f"message {n} lost, without its start", False, lost
        yield name, f"from within message {n} on", False, [(end, data[len(data) // 2 :]), *whole[n + 1 :]]
    for size in (1, 3, 16):
        small: list[tuple[int, bytes | int]] = [
            (end, data[at : at + size]) for end, data in talk for at in range(0, len(data), size)
        ]
        if len(small) <= 200:
            yield name, f"in segments of {size}", True, small
            yield name, f"in segments of {size}, without its start", False, small[1:]


def client_of(number: int) -> tuple[str, int]:
    """The client's end of a connection."""
    return f"10.{1 + number // 40_000}.{number // 200 % 200}.{1 + number % 200}", 10_000 + number % 40_000


def connection(number: int, port: int, damaged: Damaged) -> list[Segment]:
    talk = TcpConversation(client_of(number), ("10.200.0.2", port), time_ns=START_NS + 1_000 * number, acks=False)
    if damaged[2]:
        talk.open()
    for end, data in damaged[3]:
        if isinstance(data, int):
            talk.skip(end, data)
        else:
            talk.send(end, data)
    if number % 2:
        talk.close()
    return talk.segments


def decoded(port: int, ports: tuple[int, ...], snap_length: int = 0) -> tuple[list[Damaged], Decoded]:
    every = [damaged for name, talk in TALKS.items() for damaged in variations(name, talk)]
    segments = [segment for number, damaged in enumerate(every) for segment in connection(number, port, damaged)]
    return every, decode_capture(pcap_bytes(encode(segments, snap_length=snap_length), nanoseconds=True), ports=ports)


def test_there_are_many_talks() -> None:
    assert len(TALKS) >= 90


@pytest.mark.parametrize(
    ("port", "ports", "snap_length"), [(9_092, (), 0), (9_092, (9_092,), 0), (5_000, (9_092,), 96)]
)
def test_no_kafka_is_made_of_them(port: int, ports: tuple[int, ...], snap_length: int) -> None:
    every, seen = decoded(port, ports, snap_length)
    numbers = {client_of(number): number for number in range(len(every))}
    wrong = []
    for row in seen.connections:
        ends = [(row[f"{end}_ip"], row[f"{end}_port"]) for end in ("proxy", "client", "broker")]
        number = next(numbers[end] for end in ends if end in numbers)
        name, what, *_ = every[number]
        if row["protocol"] == "kafka" or (name == "tls-1-3" and what == "whole" and row["protocol"] != "tls"):
            wrong.append((name, what, row["protocol"]))
    assert not wrong, (len(wrong), wrong[:5])
    assert not seen.exchanges, seen.exchanges[:2]
    payload = seen.ledger["payload bytes"]
    assert payload["total"] == payload["not_kafka"] + payload["encrypted"] + payload.get("proxy_headers", 0)
    assert payload["encrypted"] > 0


def noisy(seeds: range) -> tuple[int, list[str]]:
    """How many connections of noise there are, and those that are taken for Kafka."""
    segments, count = [], 0
    for seed in seeds:
        talk: list[tuple[int, bytes | int]] = list(noise(seed))
        for has_start, messages in ((True, talk), *((False, talk[first:]) for first in range(4))):
            segments += connection(count, 9_092, (str(seed), "", has_start, messages))
            count += 1
    seen = decode_capture(pcap_bytes(encode(segments), nanoseconds=True))
    return count, [str(row) for row in seen.connections if row["protocol"] == "kafka"]


def test_noise_that_looks_like_kafka(pytestconfig: pytest.Config) -> None:
    """Some of it is Kafka as far as anyone can say; with --long, 0.1 % of 40,000 connections at most."""
    blocks = 16 if pytestconfig.getoption("--long") else 1
    count, wrong = 0, []
    for block in range(blocks):
        more, found = noisy(range(500 * block, 500 * block + 500))
        count += more
        wrong += found
    assert count == 2_500 * blocks
    assert len(wrong) <= max(8, count // 1_000), wrong[:5]
