"""Which packets are IP fragments, and of which datagram."""

from __future__ import annotations

import numpy as np

from kafkatap.kernels import kernel
from kafkatap.kernels.decorator import record_dtype
from kafkatap.kernels.hashing import add_to_key, finish_key, start_key
from kafkatap.reassembly.dtypes import PACKET, Packet
from kafkatap.reassembly.inner_packets import IP_LEVELS, LAYERS
from kafkatap.reassembly.layers import IP, IPV4, IPV6, TCP_PROTOCOL, ip_header, ip_payload, link_layer, next_layer

#: A packet with a fragment: its row, and a hash of what all fragments of its datagram have in common.
FRAGMENT_PLACE = record_dtype(("row", "i8"), ("datagram", "i8"))


@kernel(np.uint8, PACKET, int, FRAGMENT_PLACE)
def find_fragments(buf, packets, count, places):  # type: ignore[no-untyped-def]
    """Find the packets with IP fragments among packets[0:count]; return their number. Only the outermost fragment of a
    packet counts. `places` has room for all packets."""
    found = 0
    for i in range(count):
        row = packets[i]
        packet = Packet(
            row.ts, row.number, row.at, np.int64(row.captured), np.int64(row.original), np.int64(row.link_type),
            np.int64(row.point),
        )  # fmt: skip
        layer = link_layer(buf, packet)
        levels = 0
        for _ in range(LAYERS):
            if layer.what < 0:
                break
            if layer.what != IPV4 and layer.what != IPV6 and layer.what != IP:
                layer = next_layer(buf, layer)
                continue
            levels += 1
            ip = ip_header(buf, layer)
            if levels > IP_LEVELS or ip.category >= 0:
                break
            if ip.identifier >= 0:
                key = add_to_key(add_to_key(start_key(ip.source_high), ip.source_low), ip.target_high)
                places[found].row = i
                places[found].datagram = finish_key(add_to_key(add_to_key(key, ip.target_low), ip.identifier))
                found += 1
                break
            if ip.protocol == TCP_PROTOCOL:
                break
            layer = ip_payload(buf, ip.protocol, ip.at, ip.end, ip.wire)
    return found
