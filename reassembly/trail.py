"""The trail of a packet: where each header up to TCP begins, read by the code that leads packets to their streams.

A header ends where the next one begins. Whoever copies or rewrites packets goes along the trail, and need not know how
layers follow each other.
"""

from __future__ import annotations

import numpy as np

from kafkatap.kernels import kernel
from kafkatap.kernels.decorator import helper, record_dtype

from .dtypes import PACKET, Packet
from .inner_packets import IP_LEVELS, LAYERS
from .layers import IPV4, IPV6, TCP_PROTOCOL, extension_length, ip_header, ip_payload, is_ip, link_layer, next_layer

#: What a header is beside those of `layers`: an extension header of IPv6 (EXTENSION + its protocol), TCP, and the
#: payload of an IP fragment, which ends the trail. Of IP, it is IPV4 or IPV6 by its version.
EXTENSION, TCP_SEGMENT, FRAGMENT_PAYLOAD = 0x40000000, 0x40000100, 0x40000101
#: One header: where it begins, and where the captured bytes and those on the wire end of what it begins. Of a fragment,
#: its identifier, offset, and whether it is the last one, as in layers.IpHeader.
TRAIL = record_dtype(
    ("what", "i8"),
    ("at", "i8"),
    ("end", "i8"),
    ("wire", "i8"),
    ("identifier", "i8"),
    ("offset", "i8"),
    ("is_last", "i8"),
)
#: Rows that a trail needs at most: extension headers are up to 16 in each IP header.
LONGEST_TRAIL = LAYERS + 17 * IP_LEVELS + 2


@helper
def _add(trail, count, what, layer):  # type: ignore[no-untyped-def]
    """Add the header that a layer, or what an IP header has read, begins with. Return the number of rows."""
    row = trail[count]
    row.what = what
    row.at = layer.at
    row.end = layer.end
    row.wire = layer.wire
    return count + 1


@helper
def _add_extensions(buf, trail, count, layer, ip):  # type: ignore[no-untyped-def]
    """Add the extension headers of an IPv6 header that was read."""
    following = np.int64(buf[np.uintp(layer.at + 6)])
    at = layer.at + 40
    while at < ip.at:
        count = _add(trail, count, EXTENSION + following, ip)
        trail[count - 1].at = at
        step = extension_length(buf, following, at)
        following = np.int64(buf[np.uintp(at)])
        at += step
    return count


@helper
def find_trail(buf, packet, trail):  # type: ignore[no-untyped-def]
    """Fill `trail` with the headers of a packet; return their number, or 0 for one that leads neither to TCP nor to a
    fragment."""
    count = np.int64(0)
    levels = 0
    layer = link_layer(packet)
    for _ in range(LAYERS):
        if layer.what < 0:
            return np.int64(0)
        if not is_ip(layer):
            count = _add(trail, count, layer.what, layer)
            layer = next_layer(buf, layer)
            continue
        levels += 1
        ip = ip_header(buf, layer)
        if levels > IP_LEVELS or ip.category >= 0:
            return np.int64(0)
        is_v4 = buf[np.uintp(layer.at)] >> 4 == 4
        count = _add(trail, count, IPV4 if is_v4 else IPV6, layer)
        trail[count - 1].end = ip.end
        trail[count - 1].wire = ip.wire
        if not is_v4:
            count = _add_extensions(buf, trail, count, layer, ip)
        if ip.identifier >= 0:
            count = _add(trail, count, FRAGMENT_PAYLOAD, ip)
            row = trail[count - 1]
            row.identifier = ip.identifier
            row.offset = ip.offset
            row.is_last = ip.is_last
            return count
        if ip.protocol == TCP_PROTOCOL:
            return _add(trail, count, TCP_SEGMENT, ip)
        layer = ip_payload(ip.protocol, ip.at, ip.end, ip.wire)
    return np.int64(0)


@kernel(np.uint8, PACKET, int, TRAIL)
def read_trail(buf, packets, index, trail):  # type: ignore[no-untyped-def]
    """`find_trail` of packets[index]. `trail` has LONGEST_TRAIL rows."""
    row = packets[index]
    packet = Packet(
        row.ts, row.number, row.at, np.int64(row.captured), np.int64(row.original), np.int64(row.link_type),
        np.int64(row.point),
    )  # fmt: skip
    return find_trail(buf, packet, trail)
