"""Packets to TCP segments: link layer, IPv4 or IPv6, TCP, and the flow that a segment belongs to.

Checksums are not looked at (offload makes them wrong on the capturing host). IP's own length decides where the payload
ends, so that Ethernet padding is left out; a length of 0 (segmentation offload) means the packet as captured. Tunnels
and fragments are counted, not opened.
"""

from __future__ import annotations

import numpy as np

from kafkatap.kernels import kernel
from kafkatap.kernels.decorator import helper
from kafkatap.kernels.hashing import hash_start, mix, mix64, spread
from kafkatap.kernels.readers import be16, be32, be64

from .dtypes import FLOW, PACKET, SEGMENT

#: Counts of packets by what they were, kept in the state array; every packet ends in exactly one.
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
#: State (int64): the counts above, then the number of flows, why the kernel stopped early,
#: the segments it made, all payload bytes so far, and the seed of the flows' hashes.
FLOWS, STOPPED, SEGMENTS, PAYLOAD, SEED = 8, 9, 10, 11, 12
STATE_SIZE = 13
DONE, FLOWS_FULL = 0, 1

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
    """Where the IP header starts, or -1 - category: what the packet is counted in."""
    if link_type in (NULL, LOOP):
        return at + 4
    if link_type in (RAW, RAW_BSD, RAW_OPENBSD, RAW_IPV4, RAW_IPV6):
        return np.int64(at)
    if link_type == ETHERNET:
        place = at + 12
        at += 14
    elif link_type == SLL:
        place = at + 14
        at += 16
    elif link_type == SLL2:  # its type comes first; a tag follows the cooked header as it would the type of a frame
        place = np.int64(at)
        at += 20
    else:
        return np.int64(-1 - UNKNOWN_LINK)
    # A chain of EtherTypes: VLAN tags, PPPoE sessions and MPLS labels may stand before IP.
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


@helper
def hash_flow(a_high, a_low, b_high, b_low, a_port, b_port, seed):  # type: ignore[no-untyped-def]
    """A hash of a 4-tuple, 30 bits."""
    h = mix(hash_start(seed), a_low, seed)
    h = mix(h, b_low, seed)
    if a_high != 0 or b_high != 0 or a_low >> 32 != 0xFFFF or b_low >> 32 != 0xFFFF:  # not IPv4
        h = mix(mix(h, a_low >> 32, seed), b_low >> 32, seed)
        h = mix64(mix64(h, a_high, seed), b_high, seed)
    return spread(mix(h, (a_port << 16) | b_port, seed))


@helper
def find_flow(a_high, a_low, b_high, b_low, a_port, b_port, flows, buckets, count, seed):  # type: ignore[no-untyped-def]
    """The number of a 4-tuple in `flows`, added (as number `count`) when it is new. Buckets hold number + 1."""
    mask = buckets.shape[0] - 1
    at = hash_flow(a_high, a_low, b_high, b_low, a_port, b_port, seed) & mask
    while True:
        number = np.int64(buckets[at]) - 1
        if number < 0:
            break
        flow = flows[number]
        if (
            flow.a_low == a_low
            and flow.b_low == b_low
            and flow.a_port == a_port
            and flow.b_port == b_port
            and flow.a_high == a_high
            and flow.b_high == b_high
        ):
            return number
        at = (at + 1) & mask
    buckets[at] = count + 1
    flow = flows[count]
    flow.a_high = a_high
    flow.a_low = a_low
    flow.b_high = b_high
    flow.b_low = b_low
    flow.a_port = a_port
    flow.b_port = b_port
    flow.connection = -1
    return count


@kernel(np.uint8, PACKET, int, int, np.int64, FLOW, np.int32, SEGMENT)
def read_headers(buf, packets, first, count, state, flows, buckets, segments):  # type: ignore[no-untyped-def]
    """Turn packets[first:count], or as many as there is room for, into segments[0:state[SEGMENTS]]; return the first
    packet not taken."""
    made = 0
    seed = np.int64(state[SEED])
    state[STOPPED] = DONE
    i = first
    while i < count and made < segments.shape[0]:
        packet = packets[i]
        start = packet.at
        end = start + np.int64(packet.captured)
        at = network_layer(buf, start, end, np.int64(packet.link_type))
        if at < 0:
            state[-1 - at] += 1
            i += 1
            continue
        category = SHORT
        protocol = np.int64(-1)
        ip_end = end
        a_high = np.int64(0)
        a_low = np.int64(0)
        b_high = np.int64(0)
        b_low = np.int64(0)
        tcp = at
        if at < end:
            version = buf[at] >> 4
            if version == 4:
                if at + 20 <= end:
                    header = (np.int64(buf[at]) & 15) * 4
                    length = be16(buf, at + 2)
                    if length == 0:
                        length = max(np.int64(packet.original), end - start) - (at - start)
                    fragment = be16(buf, at + 6) & 0x3FFF
                    if header < 20 or length < header:
                        category = BAD_HEADER
                    elif fragment != 0:
                        category = FRAGMENT
                    else:
                        protocol = np.int64(buf[at + 9])
                        a_low = 0xFFFF00000000 + be32(buf, at + 12)
                        b_low = 0xFFFF00000000 + be32(buf, at + 16)
                        tcp = at + header
                        ip_end = at + length
            elif version == 6:
                if at + 40 <= end:
                    length = be16(buf, at + 4)
                    if length == 0:
                        length = max(np.int64(packet.original), end - start) - (at - start) - 40
                    protocol = np.int64(buf[at + 6])
                    a_high = be64(buf, at + 8)
                    a_low = be64(buf, at + 16)
                    b_high = be64(buf, at + 24)
                    b_low = be64(buf, at + 32)
                    tcp = at + 40
                    ip_end = at + 40 + length
                    for _ in range(8):
                        if protocol != 0 and protocol != 43 and protocol != 60 and protocol != 51 and protocol != 44:
                            break
                        if tcp + 4 > end:
                            protocol = np.int64(-1)
                            break
                        if protocol == 44:
                            if be16(buf, tcp + 2) & 0xFFF9 != 0:
                                break
                            step = np.int64(8)  # a fragment that is the whole packet (RFC 6946)
                        else:
                            unit = 4 if protocol == 51 else 8
                            step = (np.int64(buf[tcp + 1]) + (2 if protocol == 51 else 1)) * unit
                        protocol = np.int64(buf[tcp])
                        tcp += step
                    if protocol == 44:
                        category = FRAGMENT
                        protocol = np.int64(-1)
            else:
                category = NOT_IP
        if protocol >= 0:
            if protocol != 6:
                category = NOT_TCP
            elif tcp + 16 <= end:
                header = (np.int64(buf[tcp + 12]) >> 4) * 4
                wire = ip_end - tcp - header
                category = BAD_HEADER if header < 20 or wire < 0 else TCP
                if category == TCP:
                    source = be16(buf, tcp)
                    target = be16(buf, tcp + 2)
                    swap = a_high > b_high or (
                        a_high == b_high and (a_low > b_low or (a_low == b_low and source > target))
                    )
                    if np.int64(state[FLOWS]) * 2 >= buckets.shape[0] or state[FLOWS] >= flows.shape[0]:
                        state[STOPPED] = FLOWS_FULL
                        break
                    if swap:
                        flow = find_flow(
                            b_high, b_low, a_high, a_low, target, source, flows, buckets, np.int64(state[FLOWS]), seed
                        )
                    else:
                        flow = find_flow(
                            a_high, a_low, b_high, b_low, source, target, flows, buckets, np.int64(state[FLOWS]), seed
                        )
                    if flow == state[FLOWS]:
                        state[FLOWS] += 1
                    payload = tcp + header
                    segment = segments[made]
                    segment.ts = packet.ts
                    segment.packet = packet.number
                    segment.at = payload
                    segment.seq = be32(buf, tcp + 4)
                    segment.ack = be32(buf, tcp + 8)
                    segment.flow = flow
                    segment.captured = max(np.int64(0), min(wire, end - payload))
                    segment.wire = wire
                    segment.window = be16(buf, tcp + 14)
                    segment.tcp_flags = buf[tcp + 13]
                    segment.direction = 1 if swap else 0
                    state[PAYLOAD] += wire
                    made += 1
        state[category] += 1
        i += 1
    state[SEGMENTS] = made
    return i


@kernel(FLOW, int, np.int32, int)
def rehash_flows(flows, count, buckets, seed):  # type: ignore[no-untyped-def]
    """Enter flows[0:count] into zeroed buckets, whose number is a power of two."""
    mask = buckets.shape[0] - 1
    for number in range(count):
        flow = flows[number]
        a_port, b_port = np.int64(flow.a_port), np.int64(flow.b_port)
        at = hash_flow(flow.a_high, flow.a_low, flow.b_high, flow.b_low, a_port, b_port, seed) & mask
        while buckets[at] != 0:
            at = (at + 1) & mask
        buckets[at] = number + 1
    return 0
