"""Read the packets of a block of an AF_PACKET ring (TPACKET_V3) in place, without a copy.

A block begins with its descriptor: status at +8, number of packets at +12, offset of the first at +16, bytes used at
+20. A packet begins with a tpacket3_hdr: offset of the next at +0 (0: the last), seconds +4, nanoseconds +8,
captured length +12, length on the wire +16, status +20, offsets of the link layer +24 and the network layer +26, a VLAN
tag that Linux removed from the packet +32 and its EtherType +36; at +48 a sockaddr_ll with the protocol +2, the
hardware type +8 and the packet's direction +10. All fields but the protocol are in the host's byte order. (Linux,
Documentation/networking/packet_mmap.rst and include/uapi/linux/if_packet.h)
"""

from __future__ import annotations

import numpy as np

from kafkatap.kernels import kernel
from kafkatap.kernels.decorator import helper, record_dtype
from kafkatap.kernels.hints import prefetch
from kafkatap.kernels.readers import be16, le16, le32

from .dtypes import PACKET
from .headers import ETHERNET, RAW

#: Offsets in a block's descriptor, and the status bit of a block that Linux handed over.
STATUS, COUNT, LENGTH, OURS = 8, 12, 20, 1
HEADER, ADDRESS = 48, 20
LOOPBACK, OUTGOING = 772, 4
#: Bits of a packet's status: it had a VLAN tag, and the tag's EtherType is in the header.
TAGGED, TAG_TYPE = 1 << 4, 1 << 6
_DOT1Q = 0x8100
#: Bytes of a tag, and of an Ethernet frame's addresses, which come before it.
TAG, ADDRESSES = 4, 12
#: Link type of a packet without link layer that is not IP. It is counted and not read.
NOT_IP_LINK = -1
#: Bytes of a cache line, and how many lines hold a packet's headers, Kafka's included.
LINE, HEADER_LINES = 64, 4
#: One row: how far a ring was scanned.
RING_STATE = record_dtype(
    ("left", "i8"),  # packets of the block that were not read yet
    ("position", "i8"),  # where the next of them begins; 0: the block was not begun
    ("next_number", "i8"),  # of the next packet
)


@helper
def put_tag_back(ring, at, first):  # type: ignore[no-untyped-def]
    """Insert the tag of the packet at `at` into its frame, whose addresses move to TAG bytes before `first`.

    Linux leaves more room than that between a packet's header and its bytes.
    """
    tci = le16(ring, at + 32)
    kind = le16(ring, at + 36) if le32(ring, at + 20) & TAG_TYPE else np.int64(_DOT1Q)
    for place in range(first, first + ADDRESSES):
        ring[np.uintp(place - TAG)] = ring[np.uintp(place)]
    tag = first - TAG + ADDRESSES
    ring[np.uintp(tag)] = kind >> 8
    ring[np.uintp(tag + 1)] = kind & 0xFF
    ring[np.uintp(tag + 2)] = tci >> 8
    ring[np.uintp(tag + 3)] = tci & 0xFF


@kernel(np.uint8, np.int64, int)
def fetch_headers(ring, places, count):  # type: ignore[no-untyped-def]
    """Load the headers of all packets in the blocks at places[:count] into the cache; return how many packets that is.

    `places` is overwritten. Another core wrote the packets, and each one says where the next one is, so a single block
    waits for memory at every packet. Several blocks wait at the same time.
    """
    for lane in range(count):
        places[lane] += le32(ring, places[lane] + 16)
    found = np.int64(0)
    left = count
    while left > 0:
        left = np.int64(0)
        for lane in range(count):
            at = places[lane]
            if at < 0 or at + 4 > ring.shape[0]:
                continue
            for line in range(1, HEADER_LINES):
                prefetch(ring, at + line * LINE)
            step = le32(ring, at)
            places[lane] = at + step if step > 0 else np.int64(-1)
            found += 1
            left += 1
    return found


@kernel(np.uint8, int, int, int, RING_STATE, PACKET, int)
def scan_block(ring, start, end, link_type, state, packets, made):  # type: ignore[no-untyped-def]
    """Add the packets of the block ring[start:end] to packets[made:], from state.position on (0: its first).

    Returns how many there are then. Stops when `packets` is full: state.left packets are not read yet.

    Packets on loopback come twice; the outgoing ones are skipped. The address behind the header of a packet without
    link layer (`link_type` RAW) says which protocol it is. A VLAN tag is put back where it was on the wire.
    """
    s = state[0]
    if s.position == 0:
        s.left = le32(ring, start + COUNT)
        s.position = start + le32(ring, start + 16)
    at = s.position
    left = s.left
    number = s.next_number
    room = packets.shape[0]
    while left > 0 and made < room:
        if at < start or at + HEADER + ADDRESS > end:
            left = np.int64(0)
            break
        address = at + HEADER
        if le16(ring, address + 8) != LOOPBACK or ring[np.uintp(address + 10)] != OUTGOING:
            first = at + le16(ring, at + 24)
            kind = link_type
            if link_type == RAW:
                protocol = be16(ring, address + 2)
                if protocol != 0x0800 and protocol != 0x86DD:
                    kind = np.int64(NOT_IP_LINK)
            captured = min(le32(ring, at + 12), end - first)
            original = le32(ring, at + 16)
            if link_type == ETHERNET and captured >= ADDRESSES and le32(ring, at + 20) & TAGGED:
                put_tag_back(ring, at, first)
                first -= TAG
                captured += TAG
                original += TAG
            packet = packets[made]
            packet.ts = le32(ring, at + 4) * 1_000_000_000 + le32(ring, at + 8)
            packet.number = number
            packet.at = first
            packet.captured = max(np.int64(0), captured)
            packet.original = min(original, 0x7FFFFFFF)
            packet.link_type = kind
            number += 1
            made += 1
        left -= 1
        step = le32(ring, at)
        if step == 0:
            left = np.int64(0)
        at += step
    s.left = left
    s.position = at
    s.next_number = number
    return made
