"""Which packets are IP fragments, and of which datagram."""

from __future__ import annotations

import numpy as np

from kafkatap.kernels import kernel
from kafkatap.kernels.decorator import record_dtype
from kafkatap.kernels.hashing import add_to_key, finish_key, start_key
from kafkatap.reassembly.dtypes import PACKET, Packet
from kafkatap.reassembly.layers import IPV4, IPV6, Layer, ip_header
from kafkatap.reassembly.trail import FRAGMENT_PAYLOAD, TRAIL, find_trail

#: A packet with a fragment: its row, and a hash of what all fragments of its datagram have in common.
FRAGMENT_PLACE = record_dtype(("row", "i8"), ("datagram", "i8"))


@kernel(np.uint8, PACKET, int, FRAGMENT_PLACE, TRAIL)
def find_fragments(buf, packets, count, places, trail):  # type: ignore[no-untyped-def]
    """Find the packets with IP fragments among packets[0:count]; return their number. Only the outermost fragment of a
    packet counts. `places` has room for all packets, `trail` LONGEST_TRAIL rows."""
    found = 0
    for i in range(count):
        row = packets[i]
        packet = Packet(
            row.ts, row.number, row.at, np.int64(row.captured), np.int64(row.original), np.int64(row.link_type),
            np.int64(row.point),
        )  # fmt: skip
        headers = find_trail(buf, packet, trail)
        if headers == 0 or trail[headers - 1].what != FRAGMENT_PAYLOAD:
            continue
        at = headers - 1
        while trail[at].what != IPV4 and trail[at].what != IPV6:
            at -= 1
        last = trail[at]
        zero = np.int64(0)
        ip = ip_header(buf, Layer(last.what, last.at, last.end, last.wire, zero))
        key = add_to_key(add_to_key(start_key(ip.source_high), ip.source_low), ip.target_high)
        places[found].row = i
        places[found].datagram = finish_key(add_to_key(add_to_key(key, ip.target_low), ip.identifier))
        found += 1
    return found
