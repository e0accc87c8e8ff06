"""The TCP segments of captured packets without tunnels and fragments, read in the plainest way."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from .captures import ETHERNET, SLL, SLL2, Packet

#: By link type: the length of its header, and where the EtherType is in it.
_LINKS = {ETHERNET: (14, 12), SLL: (16, 14), SLL2: (20, 0)}

#: (source address, source port, destination address, destination port)
Way = tuple[bytes, int, bytes, int]


@dataclass(frozen=True, slots=True)
class TcpPart:
    """The TCP segment of a packet. `length`: of its payload on the wire; `captured`: how much of it is there."""

    way: Way
    seq: int
    flags: int
    length: int
    payload: bytes


def tcp_at(packet: Packet, link_type: int) -> int:
    """Where the TCP header of a packet begins; 0 if it has none."""
    header, type_at = _LINKS[link_type]
    kind = int.from_bytes(packet.data[type_at : type_at + 2], "big")
    if kind == 0x0800 and packet.data[header + 9] == 6:
        return header + (packet.data[header] & 15) * 4
    return header + 40 if kind == 0x86DD and packet.data[header + 6] == 6 else 0


def way_of(packet: Packet, link_type: int) -> Way | None:
    """The addresses and ports of a TCP packet, or None."""
    at = tcp_at(packet, link_type)
    if not at:
        return None
    data = packet.data
    length = 4 if data[_LINKS[link_type][0]] >> 4 == 4 else 16
    first = _LINKS[link_type][0] + (12 if length == 4 else 8)
    source, destination = struct.unpack_from("!HH", data, at)
    return data[first : first + length], source, data[first + length : first + 2 * length], destination


def tcp_part(packet: Packet, link_type: int) -> TcpPart | None:
    """The TCP segment of a packet, or None."""
    way = way_of(packet, link_type)
    if way is None:
        return None
    data, at, header = packet.data, tcp_at(packet, link_type), _LINKS[link_type][0]
    begin = at + (data[at + 12] >> 4) * 4
    if len(way[0]) == 4:
        total = int.from_bytes(data[header + 2 : header + 4], "big")
        end = header + total if total else packet.wire_length
    else:
        total = int.from_bytes(data[header + 4 : header + 6], "big")
        end = header + 40 + total if total else packet.wire_length
    (seq,) = struct.unpack_from("!I", data, at + 4)
    return TcpPart(way, seq, data[at + 13], end - begin, data[begin:end])
