"""ICMP messages that answer a SYN refuse its connection. Whatever else they quote, they change nothing."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from kafkatap.reports.connection_words import HANDSHAKES
from tests.support.captures import Packet, pcap_bytes
from tests.support.tcp import Segment, encode, tcp_packet
from tests.wire.harness import assert_same, check, decode_files, decode_packets
from tests.wire.kafkatalk import MS, KafkaTalk, small_talk

CLIENTS = {4: ("10.0.0.7", "10.0.0.2"), 6: ("fd00::7", "fd00::2")}
families = pytest.mark.parametrize("family", sorted(CLIENTS))


def icmp(quoted: bytes, time_ns: int, code: int = 3, kind: int | None = None) -> Packet:
    """An ICMP message to the sender of a packet, that quotes the packet."""
    is_ipv6 = quoted[0] >> 4 == 6
    body = struct.pack("!BBHI", kind if kind is not None else (1 if is_ipv6 else 3), code, 0, 0) + quoted
    if is_ipv6:
        data = struct.pack("!IHBB", 6 << 28, len(body), 58, 64) + quoted[24:40] + quoted[8:24] + body
        ethertype = b"\x86\xdd"
    else:
        data = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(body), 1, 0, 64, 1, 0) + quoted[16:20] + quoted[12:16] + body
        ethertype = b"\x08\x00"
    frame = bytes(12) + ethertype + data
    return Packet(time_ns, frame, len(frame))


def ip_of(segment: Segment) -> bytes:
    return tcp_packet(segment)


def asking(family: int, port: int = 40_000) -> KafkaTalk:
    client, broker = CLIENTS[family]
    talk = KafkaTalk(client=(client, port), broker=(broker, 9092))
    talk.tcp.open()
    return talk


def handshakes(packets: Sequence[Packet], folder: Path) -> list[str]:
    """How the handshakes of the connections went: the same in one pass, and by way of segments."""
    ordered = sorted(packets, key=lambda packet: packet.time_ns)
    seen = check(ordered)
    path = folder / "x.pcap"
    path.write_bytes(pcap_bytes(ordered, nanoseconds=True))
    assert_same(replace(decode_files([path]), files=[]), replace(seen, files=[]))
    return [HANDSHAKES[row["handshake"]] for row in seen.connections]


@families
def test_a_firewall_refuses_a_connection(family: int, tmp_path: Path) -> None:
    talk = asking(family)
    (syn, *_) = talk.segments
    for code in (0, 1, 3, 9, 10, 13) if family == 4 else (0, 1, 3, 4):
        assert handshakes([*encode([syn]), icmp(ip_of(syn), syn.time_ns + MS, code)], tmp_path) == ["refused"]
    # RFC 792 quotes the IP header and 8 bytes.
    header = 20 if family == 4 else 40
    assert handshakes([*encode([syn]), icmp(ip_of(syn)[: header + 8], syn.time_ns + MS)], tmp_path) == ["refused"]
    assert handshakes([*encode([syn]), icmp(ip_of(syn)[: header + 7], syn.time_ns + MS)], tmp_path) == ["unanswered"]
    tagged = [replace(p, data=p.data[:12] + b"\x81\0\0\1" * 6 + p.data[12:]) for p in encode([syn])]
    assert handshakes([*tagged, icmp(ip_of(syn), syn.time_ns + MS)], tmp_path) == ["refused"]


@families
def test_what_else_icmp_says_refuses_nothing(family: int, tmp_path: Path) -> None:
    (syn, *_) = asking(family).segments
    for kind, code in ((3, 4), (3, 5), (11, 0), (5, 1)) if family == 4 else ((2, 0), (3, 0)):
        assert handshakes([*encode([syn]), icmp(ip_of(syn), syn.time_ns + MS, code, kind)], tmp_path) == ["unanswered"]


@families
def test_a_forged_message_changes_nothing(family: int, tmp_path: Path) -> None:
    """Another sequence number, other ports, the other direction, no SYN before, or a connection that is open."""
    (syn, *_) = asking(family).segments
    back = replace(syn, source=syn.destination, destination=syn.source)
    other = replace(syn, source=(syn.source[0], syn.source[1] + 1))
    for quoted in (replace(syn, seq=syn.seq + 1), replace(syn, seq=syn.seq - 1), back, other):
        assert handshakes([*encode([syn]), icmp(ip_of(quoted), syn.time_ns + MS)], tmp_path) == ["unanswered"]
    assert handshakes([icmp(ip_of(syn), syn.time_ns - MS), *encode([syn])], tmp_path) == ["unanswered"]
    talk = small_talk(4, client=(CLIENTS[family][0], 40_000), broker=(CLIENTS[family][1], 9092))
    packets = encode(talk.segments)
    wanted = check(packets)
    (row,) = wanted.connections
    for number, segment in enumerate(talk.segments, 1):  # each packet is said to be undeliverable, right after it
        seen = check(sorted([*packets, icmp(ip_of(segment), segment.time_ns + 1)], key=lambda p: p.time_ns), splits=2)
        closed = row["closed_packet"] + (number < row["closed_packet"])  # a packet more came before it
        assert seen.connections == [{**row, "closed_packet": closed}]
        assert [x["outcome"] for x in seen.exchanges] == wanted.outcomes


def test_a_syn_that_is_answered_after_all_is_complete(tmp_path: Path) -> None:
    """A firewall's rule may change between two SYNs, and a message may be forged with the right numbers."""
    talk = small_talk(2)
    packets = [*encode(talk.segments), icmp(ip_of(talk.segments[0]), talk.segments[0].time_ns + 1)]
    assert handshakes(packets, tmp_path) == ["complete"]
    assert decode_packets(sorted(packets, key=lambda p: p.time_ns)).outcomes == ["answered"] * 2
