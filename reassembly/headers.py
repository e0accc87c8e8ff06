"""Packets to TCP segments, the usual way: link layer, IPv4 or IPv6, TCP, and the flow that a segment belongs to.

Checksums are ignored: offload makes them wrong on the capturing host. IP's own length says where the payload ends, so
Ethernet padding is left out. A length of 0 (segmentation offload) means the packet as captured.

Most packets have TCP right behind an IP header without extensions, in Ethernet or one of the other link layers here.
`inner_packets` reads all others.
"""

from __future__ import annotations

from collections import namedtuple

import numpy as np

from kafkatap.kernels.decorator import helper, inlined
from kafkatap.kernels.readers import be16, be32, be64

from .dtypes import QUOTED, Segment
from .flows import flow_and_direction
from .link_types import ETHERNET, LOOP, NULL, RAW, RAW_BSD, RAW_IPV4, RAW_IPV6, RAW_OPENBSD, SLL, SLL2
from .packet_counts import BAD_HEADER, SHORT, TCP

#: The VLAN tags that are read of one packet, at most.
_TAGS = 5


@helper
def _network_layer(buf, at, end, link_type):  # type: ignore[no-untyped-def]
    """Return where the IP header starts behind one of the usual link layers and VLAN tags, else -1."""
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
        return np.int64(-1)
    for _ in range(_TAGS):
        if at > end:
            return np.int64(-1)
        kind = be16(buf, place)
        if kind == 0x0800 or kind == 0x86DD:
            return np.int64(at)
        if kind != 0x8100 and kind != 0x88A8:
            break
        place = at + 2
        at += 4
    return np.int64(-1)


#: An IP datagram, as scalars (int64): whether it is a usual one, where its TCP header starts, where it ends by its own
#: length, its addresses, and the id of IPv4 (0 for IPv6).
Datagram = namedtuple("Datagram", "is_usual at end source_high source_low target_high target_low ip_id")


@helper
def _unusual():  # type: ignore[no-untyped-def]
    """Return the datagram of a packet that `inner_packets` reads."""
    zero = np.int64(0)
    return Datagram(zero, zero, zero, zero, zero, zero, zero, zero)


@helper
def _ipv4(buf, at, end, wire_end):  # type: ignore[no-untyped-def]
    """Read the IPv4 header at `at` of a packet captured up to `end`, which on the wire ended at `wire_end`."""
    if at + 20 > end:
        return _unusual()
    header = (np.int64(buf[at]) & 15) * 4
    length = be16(buf, at + 2)
    if length == 0:
        length = wire_end - at
    is_fragment = be16(buf, at + 6) & 0x3FFF != 0
    if header < 20 or length < header or is_fragment or buf[at + 9] != 6:
        return _unusual()
    source, target = 0xFFFF00000000 + be32(buf, at + 12), 0xFFFF00000000 + be32(buf, at + 16)
    zero = np.int64(0)
    return Datagram(np.int64(1), at + header, at + length, zero, source, zero, target, be16(buf, at + 4))


@helper
def _ipv6(buf, at, end, wire_end):  # type: ignore[no-untyped-def]
    """Read the IPv6 header at `at` as `_ipv4` does."""
    if at + 40 > end:
        return _unusual()
    length = be16(buf, at + 4)
    if length == 0:
        length = wire_end - at - 40
    if buf[at + 6] != 6:
        return _unusual()
    return Datagram(
        np.int64(1), at + 40, at + 40 + length,
        be64(buf, at + 8), be64(buf, at + 16), be64(buf, at + 24), be64(buf, at + 32), np.int64(0),
    )  # fmt: skip


@inlined
def read_datagram(buf, packet):  # type: ignore[no-untyped-def]
    """Read the headers of a packet up to TCP's, if they are the usual ones."""
    start = packet.at
    end = start + packet.captured
    at = _network_layer(buf, start, end, packet.link_type)
    if at < 0 or at >= end:
        return _unusual()
    wire_end = max(start + packet.original, end)
    version = buf[np.uintp(at)] >> 4
    if version == 4:
        return _ipv4(buf, at, end, wire_end)
    if version == 6:
        return _ipv6(buf, at, end, wire_end)
    return _unusual()


@inlined
def _tcp_header(buf, d):  # type: ignore[no-untyped-def]
    """Return the length of a datagram's TCP header."""
    return (np.int64(buf[np.uintp(d.at + 12)]) >> 4) * 4


@inlined
def tcp_category(buf, packet, d):  # type: ignore[no-untyped-def]
    """Return the category of a packet whose datagram `d` has TCP."""
    if d.at + 16 > packet.at + packet.captured:
        return np.int64(SHORT)
    header = _tcp_header(buf, d)
    return np.int64(BAD_HEADER if header < 20 or d.end - d.at - header < 0 else TCP)


@inlined
def read_segment(buf, packet, d, source, flows):  # type: ignore[no-untyped-def]
    """Read the TCP header of a datagram, whose packet counts as TCP. A new flow is added to `flows`, which has room.

    `source`: what `buf` is, FROM_BLOCK or FROM_HELD.
    """
    at = d.at
    end = packet.at + packet.captured
    flow = flow_and_direction(d.source_high, d.source_low, d.target_high, d.target_low, be32(buf, at), flows)
    payload = at + _tcp_header(buf, d)
    wire = d.end - payload
    captured = max(np.int64(0), min(wire, end - payload))
    options = min(payload - at - 20, np.int64(40)) if end >= payload else np.int64(-1)
    timestamps = be64(buf, at + 24) if payload >= at + 32 and end >= at + 32 else np.int64(0)
    return Segment(
        packet.ts, packet.number, payload, be32(buf, at + 4), be32(buf, at + 8), timestamps, flow >> 1, captured, wire,
        be16(buf, at + 14), d.ip_id, packet.point, np.int64(buf[np.uintp(at + 13)]), flow & 1, source,
        options,
    )  # fmt: skip


@helper
def read_quoted(buf, packet, d, flows):  # type: ignore[no-untyped-def]
    """Read the start of a TCP header that an ICMP message quotes. `packet`, `d`: of the message, and what it quotes."""
    flow = flow_and_direction(d.source_high, d.source_low, d.target_high, d.target_low, be32(buf, d.at), flows)
    zero = np.int64(0)
    return Segment(
        packet.ts, packet.number, zero, zero, (be32(buf, d.at + 4) + 1) & 0xFFFFFFFF, zero, flow >> 1, zero, zero, zero,
        zero, packet.point, zero, (flow & 1) ^ 1, np.int64(QUOTED), np.int64(-1),
    )  # fmt: skip
