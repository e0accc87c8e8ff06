"""A firewall before a broker that rejects: said as what it is, and not as a broker that stopped."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from kafkatap import analyze
from kafkatap.reports.model import Row
from tests.support.captures import Packet, pcap_bytes
from tests.support.tcp import START_NS, TcpConversation, encode, tcp_packet
from tests.wire.kafkatalk import KafkaTalk
from tests.wire.test_unreachable import icmp

SECOND, MS = 1_000_000_000, 1_000_000
BROKER, OTHER = ("10.0.0.2", 9092), ("10.0.0.3", 9092)
HOSTS = ("10.0.0.7", "10.0.0.8")


def answered(client: tuple[str, int], broker: tuple[str, int], begin: int, seconds: float) -> list[Packet]:
    """A connection with five answered requests a second, which stays open."""
    talk = KafkaTalk(client=client, broker=broker, time_ns=START_NS + begin)
    talk.tcp.open()
    for n in range(int(5 * seconds)):
        talk.exchange(3, 9, n)
        talk.tcp.wait(200 * MS)
    return list(encode(talk.segments))


def refused(client: tuple[str, int], begin: int, by_icmp: bool) -> list[Packet]:
    """A SYN that the firewall answers, or the host."""
    tcp = TcpConversation(client, BROKER, time_ns=START_NS + begin)
    tcp._add(0, 2, seq=999, ack=0)
    (syn,) = tcp.segments
    if by_icmp:
        return [*encode([syn]), icmp(tcp_packet(syn), syn.time_ns + MS)]
    tcp._add(1, 0x14, seq=0, ack=1000)
    return list(encode(tcp.segments))


def events(folder: Path, tries: Sequence[bool], returns: bool = True) -> list[Row]:
    """Two hosts that talk to two brokers. After 5 s nobody gets answers of one: `tries` say how its SYNs are refused,
    two a second. It answers again once these are over."""
    packets = []
    for n, host in enumerate(HOSTS):
        packets += answered((host, 41_000), BROKER, n * MS, 5)
        packets += answered((host, 42_000), OTHER, n * MS, 14)
        if returns:
            packets += answered((host, 43_000), BROKER, 10 * SECOND + n * MS, 3)
    for n, by_icmp in enumerate(tries):
        packets += refused((HOSTS[n % 2], 50_000 + n), 5 * SECOND + n * 500 * MS, by_icmp)
    path = folder / "a.pcap"
    path.write_bytes(pcap_bytes(sorted(packets, key=lambda packet: packet.time_ns), nanoseconds=True))
    return list(analyze(path).report(sections=["events"])["events"].named_rows())


@pytest.mark.parametrize("returns", [True, False])
def test_icmp_that_refuses_is_a_firewall(tmp_path: Path, returns: bool) -> None:
    first, *others = events(tmp_path, [True] * 8, returns)
    assert first["event"] == "broker_unreachable"
    text = str(first["what"])
    assert text.startswith("broker 10.0.0.2:9092 was not reached for ")
    assert "a firewall or a router rejects connections to it" in text
    assert "8 connections refused" in text
    assert "stopped" not in text
    assert isinstance(first["time"], int)
    assert abs(first["time"] - START_NS - 5 * SECOND) < 10 * MS
    assert others == []
    assert (first["end"] is None) == (not returns)


def test_resets_are_a_stop(tmp_path: Path) -> None:
    assert events(tmp_path, [False] * 8)[0]["event"] == "broker_stopped"


def test_one_reset_among_them_is_a_stop(tmp_path: Path) -> None:
    """The host is reached, and listens no more."""
    assert events(tmp_path, [True] * 7 + [False])[0]["event"] == "broker_stopped"
