"""Packets whose TCP is not in the usual place: behind other link layers, in tunnels, or in IP fragments.

`read_inner` opens one layer after another (`layers`) until it finds TCP or something that is not read. Fragments wait
(`fragments`). The packet that completes a datagram is read on from the held pool, so its segment is that of all its
fragments, with its time and number. An ICMP message that TCP could not be delivered is not TCP, but quotes some.
"""

from __future__ import annotations

from collections import namedtuple

import numpy as np

from kafkatap.kernels.decorator import helper

from .dtypes import FROM_BLOCK, FROM_HELD, Packet
from .fragments import HEADER, LONGEST, UNIT, Fragment, add_fragment, take_datagram
from .headers import Datagram, tcp_category
from .layers import (
    ICMP_PROTOCOL,
    ICMPV6_PROTOCOL,
    TCP_PROTOCOL,
    ip_header,
    ip_payload,
    is_ip,
    link_layer,
    next_layer,
    quoted_header,
)
from .link_types import RAW
from .packet_counts import FRAGMENT, NO_TUNNEL, NOT_TCP, WAITING
from .stream_tables import ASSEMBLED, POOL_FULL

#: IP headers within each other, and layers in all, that are read of one packet.
IP_LEVELS, LAYERS = 9, 96
#: Bytes of the held pool that one packet may need for the datagrams that it completes.
ROOM = IP_LEVELS * (HEADER + LONGEST)

#: What was found, as scalars (int64): the category, or WAITING; how many packets are counted in it; what has the bytes,
#: FROM_BLOCK or FROM_HELD; of TCP, the packet around the datagram there; and whether the datagram is one that an ICMP
#: message quotes (then the category is NOT_TCP).
Inner = namedtuple("Inner", "category packets source packet datagram is_quoted")


@helper
def room_for_datagrams(t):  # type: ignore[no-untyped-def]
    """Return POOL_FULL if the held pool has no room for what one packet may complete, else ASSEMBLED."""
    return POOL_FULL if t.streams.state[0].pool_used + ROOM > t.streams.pool.shape[0] else ASSEMBLED


@helper
def _fragment(ip, packet, packets):  # type: ignore[no-untyped-def]
    """Return the fragment that an IP header begins."""
    wire = ip.wire - ip.at
    captured = max(np.int64(0), min(wire, ip.end - ip.at))
    return Fragment(
        ip.source_high, ip.source_low, ip.target_high, ip.target_low, ip.identifier, ip.offset, ip.at, captured, wire,
        ip.is_last, packet.ts, packets,
    )  # fmt: skip


@helper
def _is_valid(fragment):  # type: ignore[no-untyped-def]
    """Whether a fragment has bytes, ends within the longest datagram, and only the last one ends between units."""
    ends_at_unit = fragment.is_last != 0 or fragment.wire % UNIT == 0
    return fragment.wire > 0 and fragment.offset + fragment.wire < LONGEST and ends_at_unit


@helper
def _datagram(ip):  # type: ignore[no-untyped-def]
    """Return the datagram behind an IP header."""
    return Datagram(
        np.int64(1), ip.at, ip.wire, ip.source_high, ip.source_low, ip.target_high, ip.target_low, ip.ip_id
    )  # fmt: skip


@helper
def read_inner(buf, packet, t):  # type: ignore[no-untyped-def]
    """Read a packet from its link layer on. The caller has checked `room_for_datagrams`.

    Fragments that wait, and tunnels, are counted in the tables.
    """
    h = t.headers[0]
    pool = t.streams.pool
    zero = np.int64(0)
    category = np.int64(NOT_TCP)
    packets = np.int64(1)
    source = np.int64(FROM_BLOCK)
    place = packet
    datagram = Datagram(zero, zero, zero, zero, zero, zero, zero, zero)
    is_in_tunnel = False
    is_quoted = False
    completed = np.int64(-1)  # the row of the outermost datagram that this packet completes
    levels = 0
    layer = link_layer(packet)
    for _ in range(LAYERS):
        if layer.what < 0:
            category = -1 - layer.what
            break
        if layer.tunnel != NO_TUNNEL and not is_in_tunnel:
            is_in_tunnel = True
            h.tunnels[layer.tunnel] += packets
        data = pool if source == FROM_HELD else buf
        if not is_ip(layer):
            layer = next_layer(data, layer)
            continue
        levels += 1
        if levels > IP_LEVELS:
            break
        ip = ip_header(data, layer)
        if ip.category >= 0:
            category = ip.category
            break
        if ip.identifier >= 0:
            fragment = _fragment(ip, packet, packets)
            if not _is_valid(fragment):
                category = np.int64(FRAGMENT)
                break
            row = add_fragment(data, t.fragments, h, fragment)
            if row < 0:
                category = np.int64(WAITING)
                break
            packets = np.int64(t.fragments.rows[row].packets)
            if completed < 0:
                completed = row
            state = t.streams.state[0]
            at = state.pool_used
            captured = take_datagram(t.fragments, row, ip.protocol, ip.ip_id, pool, at)
            state.pool_used = at + captured
            source = np.int64(FROM_HELD)
            place = Packet(packet.ts, packet.number, at, captured, captured, np.int64(RAW), packet.point)
            layer = link_layer(place)
            continue
        if ip.protocol == TCP_PROTOCOL:
            place = Packet(packet.ts, packet.number, ip.at, max(zero, ip.end - ip.at), zero, zero, packet.point)
            datagram = _datagram(ip)
            category = tcp_category(data, place, datagram)
            break
        if ip.protocol == ICMP_PROTOCOL or ip.protocol == ICMPV6_PROTOCOL:
            quoted = quoted_header(data, ip)
            is_quoted = quoted.category < 0
            datagram = _datagram(quoted)
            break
        layer = ip_payload(ip.protocol, ip.at, ip.end, ip.wire)
    if completed >= 0 and category >= 0:
        t.fragments.rows[completed].category = category
    return Inner(category, packets, source, place, datagram, is_quoted)
