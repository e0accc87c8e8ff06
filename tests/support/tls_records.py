"""TLS records of a capture by a reader of its own, and copies of captures that lack packets."""

from __future__ import annotations

import random
import struct
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from .captures import Packet, pcap_bytes, read_capture

#: Content types of records.
HANDSHAKE, APPLICATION_DATA = 22, 23
#: The client's port, and the direction: 0 from the client, 1 to it.
Stream = tuple[int, int]


@dataclass(frozen=True, slots=True)
class TlsRecord:
    """A record: its content type, the bytes behind its header, the numbers (from 1) of the packets that carry it."""

    kind: int
    length: int
    packets: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Payload:
    """The payload of a TCP packet on Ethernet and IPv4."""

    number: int
    source: int
    target: int
    sequence: int
    data: bytes
    is_syn: bool


def payloads(packets: Iterable[Packet]) -> list[Payload]:
    """The TCP packets of a capture."""
    found = []
    for number, packet in enumerate(packets, 1):
        data = packet.data
        at = 14 + (data[14] & 15) * 4
        end = 14 + struct.unpack_from(">H", data, 16)[0]
        source, target, sequence = struct.unpack_from(">HHI", data, at)
        start = at + (data[at + 12] >> 4) * 4
        found.append(Payload(number, source, target, sequence, data[start:end], bool(data[at + 13] & 2)))
    return found


def tls_records(packets: Sequence[Packet], port: int) -> dict[Stream, list[TlsRecord]]:
    """The records of every connection to a port, in a capture that lacks nothing."""
    streams: dict[Stream, bytearray] = defaultdict(bytearray)
    places: dict[Stream, list[tuple[int, int]]] = defaultdict(list)  # end in the stream, number of the packet
    starts: dict[Stream, int] = {}
    for each in payloads(packets):
        if port not in (each.source, each.target):
            continue
        stream = (each.target, 1) if each.source == port else (each.source, 0)
        if each.is_syn:
            starts[stream] = each.sequence + 1 & 0xFFFFFFFF
        offset = each.sequence - starts[stream] & 0xFFFFFFFF
        if each.data and offset == len(streams[stream]):
            streams[stream] += each.data
            places[stream].append((len(streams[stream]), each.number))
    return {stream: _records(bytes(data), places[stream]) for stream, data in streams.items()}


def _records(data: bytes, places: list[tuple[int, int]]) -> list[TlsRecord]:
    found, at, place = [], 0, 0
    while at + 5 <= len(data):
        kind, length = data[at], struct.unpack_from(">H", data, at + 3)[0]
        end = at + 5 + length
        while place < len(places) and places[place][0] <= at:
            place += 1
        last = place
        while last < len(places) and places[last][0] < end:
            last += 1
        found.append(TlsRecord(kind, length, tuple(number for _, number in places[place : last + 1])))
        at = end
    return found


def copy_without(source: Path, target: Path, is_dropped: Callable[[int, Packet], bool]) -> set[int]:
    """Write a copy of a pcap without some packets: the numbers of those, from 1."""
    packets = read_capture(source).packets
    dropped = {number for number, packet in enumerate(packets, 1) if is_dropped(number, packet)}
    kept = [packet for number, packet in enumerate(packets, 1) if number not in dropped]
    target.write_bytes(pcap_bytes(kept))
    return dropped


def losing(share: float, seed: int) -> Callable[[int, Packet], bool]:
    """Drop this share of the packets with payload, by chance."""
    chance = random.Random(seed)
    return lambda number, packet: bool(payloads([packet])[0].data) and chance.random() < share
