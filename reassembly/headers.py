"""Packets to TCP segments: link layer, IPv4 or IPv6, TCP, and the flow that a segment belongs to.

Checksums are ignored: offload makes them wrong on the capturing host. IP's own length says where the payload ends, so
Ethernet padding is left out. A length of 0 (segmentation offload) means the packet as captured. Tunnels and fragments
are counted, not opened.
"""

from __future__ import annotations

from collections import namedtuple

import numpy as np

from kafkatap.kernels import kernel
from kafkatap.kernels.decorator import helper, inlined, record_dtype
from kafkatap.kernels.readers import be16, be32, be64

from .dtypes import PACKET, SEGMENT, Packet, Segment
from .flows import FlowArrays, flow_and_direction, flows_full

#: The categories of packets. Every packet is counted in exactly one.
TCP, NOT_IP, NOT_TCP, FRAGMENT, SHORT, BAD_HEADER, UNKNOWN_LINK = range(7)
CATEGORIES = (
    "tcp",
    "not_ip",
    "not_tcp",
    "fragment",
    "headers_not_captured",
    "bad_header",
    "unknown_link_type",
)
#: One row: what is counted of packets, and what `read_headers` made in its last run. `read`, `first` and `last` are of
#: the packets that `one_pass` read since the caller reset them.
HEADERS_STATE = record_dtype(
    ("packets", "i8", len(CATEGORIES)),  # by category
    ("payload_bytes", "i8"),
    ("segments", "i8"),  # of the last run
    ("flows_full", "i8"),  # 1: the last run stopped because the table of flows is full
    ("read", "i8"),
    ("first", "i8"),  # the earliest and the latest time, ns
    ("last", "i8"),
)

ETHERNET, NULL, RAW_BSD, RAW_OPENBSD, RAW, LOOP, SLL, RAW_IPV4, RAW_IPV6, SLL2, PPP = (
    1, 0, 12, 14, 101, 108, 113, 228, 229, 276, 9,
)  # fmt: skip
LINK_NAMES = {
    ETHERNET: "Ethernet",
    NULL: "BSD loopback",
    RAW_BSD: "raw IP",
    RAW_OPENBSD: "raw IP",
    RAW: "raw IP",
    LOOP: "OpenBSD loopback",
    SLL: "Linux cooked",
    RAW_IPV4: "raw IPv4",
    RAW_IPV6: "raw IPv6",
    SLL2: "Linux cooked v2",
}


@helper
def network_layer(buf, at, end, link_type):  # type: ignore[no-untyped-def]
    """Return where the IP header starts, or -1 - category: what the packet is counted in."""
    if link_type == ETHERNET:
        place = at + 12
        at += 14
    elif link_type in (NULL, LOOP):
        return at + 4
    elif link_type in (RAW, RAW_BSD, RAW_OPENBSD, RAW_IPV4, RAW_IPV6):
        return np.int64(at)
    elif link_type == SLL:
        place = at + 14
        at += 16
    elif link_type == SLL2:  # its type comes first; a tag follows the cooked header
        place = np.int64(at)
        at += 20
    else:
        return np.int64(-1 - UNKNOWN_LINK)
    # A chain of EtherTypes: VLAN tags, PPPoE sessions and MPLS labels may come before IP.
    for _ in range(6):
        if at > end:
            return np.int64(-1 - SHORT)
        kind = be16(buf, place)
        if kind == 0x0800 or kind == 0x86DD:
            return np.int64(at)
        if kind == 0x8100 or kind == 0x88A8 or kind == 0x9100:
            place = at + 2
            at += 4
        elif kind == 0x8864:
            if at + 8 > end:
                return np.int64(-1 - SHORT)
            protocol = be16(buf, at + 6)
            return at + 8 if protocol == 0x21 or protocol == 0x57 else np.int64(-1 - NOT_IP)
        elif kind == 0x8847:
            for _label in range(16):
                if at + 4 > end:
                    return np.int64(-1 - SHORT)
                at += 4
                if buf[at - 2] & 1:
                    return np.int64(at)
            return np.int64(-1 - NOT_IP)
        else:
            return np.int64(-1 - NOT_IP)
    return np.int64(-1 - NOT_IP)


#: An IP datagram, as scalars (int64): its category, where its TCP header starts, where the datagram ends by its own
#: length, its addresses, and the id of IPv4 (0 for IPv6).
Datagram = namedtuple("Datagram", "category at end source_high source_low target_high target_low ip_id")


@helper
def _other_packet(category):  # type: ignore[no-untyped-def]
    """Return a datagram without TCP."""
    zero = np.int64(0)
    return Datagram(np.int64(category), zero, zero, zero, zero, zero, zero, zero)


@helper
def _ipv4(buf, at, end, wire_end):  # type: ignore[no-untyped-def]
    """Read the IPv4 header at `at` of a packet captured up to `end`, which on the wire ended at `wire_end`."""
    if at + 20 > end:
        return _other_packet(SHORT)
    header = (np.int64(buf[at]) & 15) * 4
    length = be16(buf, at + 2)
    if length == 0:
        length = wire_end - at
    if header < 20 or length < header:
        return _other_packet(BAD_HEADER)
    if be16(buf, at + 6) & 0x3FFF != 0:
        return _other_packet(FRAGMENT)
    if buf[at + 9] != 6:
        return _other_packet(NOT_TCP)
    source, target = 0xFFFF00000000 + be32(buf, at + 12), 0xFFFF00000000 + be32(buf, at + 16)
    zero = np.int64(0)
    return Datagram(np.int64(TCP), at + header, at + length, zero, source, zero, target, be16(buf, at + 4))


@helper
def _ipv6(buf, at, end, wire_end):  # type: ignore[no-untyped-def]
    """Read the IPv6 header at `at`, and its extension headers, as `_ipv4` does."""
    if at + 40 > end:
        return _other_packet(SHORT)
    length = be16(buf, at + 4)
    if length == 0:
        length = wire_end - at - 40
    following = np.int64(buf[at + 6])
    tcp = at + 40
    for _ in range(8):
        if following not in (0, 43, 44, 51, 60):
            break
        if tcp + 4 > end:
            return _other_packet(SHORT)
        if following == 44:
            if be16(buf, tcp + 2) & 0xFFF9 != 0:
                break
            step = np.int64(8)  # a fragment that is the whole packet (RFC 6946)
        elif following == 51:
            step = (np.int64(buf[tcp + 1]) + 2) * 4
        else:
            step = (np.int64(buf[tcp + 1]) + 1) * 8
        following = np.int64(buf[tcp])
        tcp += step
    if following == 44:
        return _other_packet(FRAGMENT)
    if following != 6:
        return _other_packet(NOT_TCP)
    return Datagram(
        np.int64(TCP), tcp, at + 40 + length,
        be64(buf, at + 8), be64(buf, at + 16), be64(buf, at + 24), be64(buf, at + 32), np.int64(0),
    )  # fmt: skip


@inlined
def read_datagram(buf, packet):  # type: ignore[no-untyped-def]
    """Read the headers of a packet up to TCP's."""
    start = packet.at
    end = start + packet.captured
    at = network_layer(buf, start, end, packet.link_type)
    if at < 0:
        return _other_packet(-1 - at)
    if at >= end:
        return _other_packet(SHORT)
    wire_end = max(start + packet.original, end)
    version = buf[np.uintp(at)] >> 4
    if version == 4:
        return _ipv4(buf, at, end, wire_end)
    if version == 6:
        return _ipv6(buf, at, end, wire_end)
    return _other_packet(NOT_IP)


@inlined
def _tcp_header(buf, d):  # type: ignore[no-untyped-def]
    """Return the length of a datagram's TCP header."""
    return (np.int64(buf[np.uintp(d.at + 12)]) >> 4) * 4


@inlined
def packet_category(buf, packet, d):  # type: ignore[no-untyped-def]
    """Return what a packet is counted in. `d`: its datagram."""
    if d.category != TCP:
        return d.category
    if d.at + 16 > packet.at + packet.captured:
        return np.int64(SHORT)
    header = _tcp_header(buf, d)
    return np.int64(BAD_HEADER if header < 20 or d.end - d.at - header < 0 else TCP)


@inlined
def read_segment(buf, packet, d, flows):  # type: ignore[no-untyped-def]
    """Read the TCP header of a datagram, whose packet counts as TCP. A new flow is added to `flows`, which has room."""
    at = d.at
    end = packet.at + packet.captured
    flow = flow_and_direction(d.source_high, d.source_low, d.target_high, d.target_low, be32(buf, at), flows)
    payload = at + _tcp_header(buf, d)
    wire = d.end - payload
    captured = max(np.int64(0), min(wire, end - payload))
    timestamps = be64(buf, at + 24) if payload >= at + 32 and end >= at + 32 else np.int64(0)
    return Segment(
        packet.ts, packet.number, payload, be32(buf, at + 4), be32(buf, at + 8), timestamps, flow >> 1, captured, wire,
        be16(buf, at + 14), d.ip_id, packet.point, np.int64(buf[np.uintp(at + 13)]), flow & 1,
    )  # fmt: skip


@inlined
def _packet_of(row):  # type: ignore[no-untyped-def]
    """Return a PACKET row as scalars."""
    return Packet(
        row.ts, row.number, row.at, np.int64(row.captured), np.int64(row.original), np.int64(row.link_type),
        np.int64(row.point),
    )  # fmt: skip


@inlined
def _write_segment(row, segment):  # type: ignore[no-untyped-def]
    """Write a segment to a SEGMENT row."""
    row.ts = segment.ts
    row.packet = segment.packet
    row.at = segment.at
    row.seq = segment.seq
    row.ack = segment.ack
    row.timestamps = segment.timestamps
    row.flow = segment.flow
    row.captured = segment.captured
    row.wire = segment.wire
    row.window = segment.window
    row.ip_id = segment.ip_id
    row.point = segment.point
    row.tcp_flags = segment.tcp_flags
    row.direction = segment.direction


@kernel(np.uint8, PACKET, int, int, HEADERS_STATE, FlowArrays, SEGMENT)
def read_headers(buf, packets, first, count, state, flows, segments):  # type: ignore[no-untyped-def]
    """Turn packets[first:count], or as many as there is room for, into segments[0:state.segments].

    Returns the first packet that was not read.
    """
    s = state[0]
    s.flows_full = 0
    made = 0
    i = first
    while i < count and made < segments.shape[0]:
        if flows_full(flows):
            s.flows_full = 1
            break
        packet = _packet_of(packets[i])
        datagram = read_datagram(buf, packet)
        category = packet_category(buf, packet, datagram)
        if category == TCP:
            segment = read_segment(buf, packet, datagram, flows)
            _write_segment(segments[made], segment)
            s.payload_bytes += segment.wire
            made += 1
        s.packets[category] += 1
        i += 1
    s.segments = made
    return i
