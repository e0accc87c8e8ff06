"""Read the packets of an AF_PACKET ring (TPACKET_V3) in place, without a copy.

A ring is a sequence of blocks of one size. A block begins with its descriptor: status at +8, number of packets at +12,
offset of the first at +16, bytes used at +20. A packet begins with a tpacket3_hdr: offset of the next at +0 (0: the
last), seconds +4, nanoseconds +8, captured length +12, length on the wire +16, status +20, offsets of the link layer
+24 and the network layer +26, a VLAN tag that Linux removed from the packet +32 and its EtherType +36; at +48 a
sockaddr_ll with the protocol +2, the hardware type +8 and the packet's direction +10. All fields but the protocol are
in the host's byte order. (Linux, Documentation/networking/packet_mmap.rst and include/uapi/linux/if_packet.h)

`assemble_blocks` turns packets into chunks in one pass. `scan_blocks` makes PACKET rows, for several interfaces and for
recording. Both read the same packets.
"""

from __future__ import annotations

from collections import namedtuple

import numpy as np

from kafkatap.kernels import kernel
from kafkatap.kernels.decorator import helper, inlined, record_dtype
from kafkatap.kernels.hints import prefetch
from kafkatap.kernels.readers import be16, le16, le32
from kafkatap.kernels.shared_memory import load_acquire, store_release

from .dtypes import PACKET, Packet
from .link_types import ETHERNET, RAW
from .one_pass import assemble_packet
from .packet_tables import PacketTables
from .pcap import write_packet
from .stream_tables import ASSEMBLED

#: Offsets in a block's descriptor, and the status bit of a block that Linux handed over.
STATUS, COUNT, FIRST, LENGTH, OURS = 8, 12, 16, 20, 1
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
#: Blocks ahead of the one that is read whose headers are prefetched.
LANES = 8
#: One row: how far a ring was read.
RING_STATE = record_dtype(
    ("read", "i8"),  # blocks that were read so far; modulo the number of blocks, the one that is read next
    ("held", "i8"),  # how many of them were not released
    ("left", "i8"),  # packets of the next block that were not read yet
    ("position", "i8"),  # where the first of them begins; 0: the block was not begun
    ("next_number", "i8"),  # of the next packet
    ("waiting_bytes", "i8"),  # in blocks that are ours and were not read, as of the last `count_waiting`
    ("waiting_packets", "i8"),
)
#: The next headers to prefetch, one row for each block ahead (by its number modulo LANES).
LANE = record_dtype(("block", "i8"), ("position", "i8"))

#: A packet of a ring, as scalars (int64): whether it is a copy to skip, and where the next one begins (0: none).
RingPacket = namedtuple("RingPacket", "is_copy following packet")


@helper
def put_tag_back(ring, at, first):  # type: ignore[no-untyped-def]
    """Insert the tag of the packet at `at` into its frame, whose addresses move to TAG bytes before `first`.

    Linux leaves more room than that between a packet's header and its bytes. The header then describes the packet with
    its tag, so that the packet can be read again.
    """
    tci = le16(ring, at + 32)
    status = le32(ring, at + 20)
    kind = le16(ring, at + 36) if status & TAG_TYPE else np.int64(_DOT1Q)
    for place in range(first, first + ADDRESSES):
        ring[np.uintp(place - TAG)] = ring[np.uintp(place)]
    tag = first - TAG + ADDRESSES
    ring[np.uintp(tag)] = kind >> 8
    ring[np.uintp(tag + 1)] = kind & 0xFF
    ring[np.uintp(tag + 2)] = tci >> 8
    ring[np.uintp(tag + 3)] = tci & 0xFF
    _put32(ring, at + 12, le32(ring, at + 12) + TAG)
    _put32(ring, at + 16, le32(ring, at + 16) + TAG)
    _put32(ring, at + 20, status & ~TAGGED)
    start = first - TAG - at
    ring[np.uintp(at + 24)] = start & 0xFF
    ring[np.uintp(at + 25)] = start >> 8


@helper
def _put32(ring, at, value):  # type: ignore[no-untyped-def]
    """Write 32 bits, little-endian."""
    for byte in range(4):
        ring[np.uintp(at + byte)] = (value >> (8 * byte)) & 0xFF


@inlined
def _read_packet(ring, at, end, link_type, number):  # type: ignore[no-untyped-def]
    """Read the packet at `at` of a block that ends at `end`.

    Packets on loopback come twice; the outgoing ones are copies. The address behind the header of a packet without link
    layer (`link_type` RAW) says which protocol it is. A VLAN tag is put back where it was on the wire.
    """
    address = at + HEADER
    kind = link_type
    if link_type == RAW:
        protocol = be16(ring, address + 2)
        if protocol != 0x0800 and protocol != 0x86DD:
            kind = np.int64(NOT_IP_LINK)
    if link_type == ETHERNET and le32(ring, at + 20) & TAGGED:
        first = at + le16(ring, at + 24)
        if min(le32(ring, at + 12), end - first) >= ADDRESSES:
            put_tag_back(ring, at, first)
    first = at + le16(ring, at + 24)
    captured = max(np.int64(0), min(le32(ring, at + 12), end - first))
    original = min(le32(ring, at + 16), np.int64(0x7FFFFFFF))
    step = le32(ring, at)
    ts = le32(ring, at + 4) * 1_000_000_000 + le32(ring, at + 8)
    return RingPacket(
        le16(ring, address + 8) == LOOPBACK and ring[np.uintp(address + 10)] == OUTGOING,
        at + step if step > 0 else np.int64(0),
        Packet(ts, number, first, captured, original, kind, np.int64(0)),
    )


@inlined
def _fetch_header(ring, lane):  # type: ignore[no-untyped-def]
    """Load a header of a block ahead into the cache.

    Another core wrote the packets, and each one says where the next one is, so to read one block waits for memory at
    every packet. The headers of several blocks arrive at the same time, while earlier packets are read.
    """
    at = lane.position
    if at == 0 or at + LINE > ring.shape[0]:
        return
    for line in range(1, HEADER_LINES):
        prefetch(ring, at + line * LINE)
    step = le32(ring, at)
    lane.position = at + step if step > 0 else np.int64(0)
    prefetch(ring, at + step)
    prefetch(ring, at + step + LINE)


@helper
def _begin_block(ring, size, s, ready, lanes):  # type: ignore[no-untyped-def]
    """Begin the next block, if it was not begun, and the lanes of blocks behind it. Return where it begins."""
    blocks = ring.shape[0] // size
    start = s.read % blocks * size
    if s.position == 0:
        s.left = le32(ring, start + COUNT)
        s.position = start + le32(ring, start + FIRST)
        lanes[s.read % LANES].position = 0
        for ahead in range(1, min(np.int64(LANES), ready - s.held)):
            number = s.read + ahead
            lane = lanes[number % LANES]
            if lane.block != number:
                lane.block = number
                place = number % blocks * size
                lane.position = place + le32(ring, place + FIRST)
    return start


@helper
def _end_block(s):  # type: ignore[no-untyped-def]
    """Hold the block that was read, until it is released."""
    s.position = 0
    s.left = 0
    s.held += 1
    s.read += 1


@helper
def _is_inside(at, start, end):  # type: ignore[no-untyped-def]
    """Whether the header of a packet lies in a block."""
    return at >= start and at + HEADER + ADDRESS <= end


@helper
def _count_waiting(ring, size, s):  # type: ignore[no-untyped-def]
    """Count what is ours and was not read: bytes and packets in `s`; return the number of blocks."""
    blocks = ring.shape[0] // size
    s.waiting_bytes = 0
    s.waiting_packets = 0
    found = np.int64(0)
    while found < blocks - s.held:
        start = (s.read + found) % blocks * size
        if load_acquire(ring, start + STATUS) & OURS == 0:
            break
        s.waiting_bytes += le32(ring, start + LENGTH)
        s.waiting_packets += s.left if found == 0 and s.position != 0 else le32(ring, start + COUNT)
        found += 1
    return found


@kernel(np.uint8, int, RING_STATE)
def count_waiting(ring, size, state):  # type: ignore[no-untyped-def]
    """Count what is ours and was not read: bytes and packets in `state`; return the number of blocks."""
    return _count_waiting(ring, size, state[0])


@kernel(np.uint8, int, RING_STATE)
def release_blocks(ring, size, state):  # type: ignore[no-untyped-def]
    """Pass the blocks that were read back to Linux; return their number."""
    s = state[0]
    blocks = ring.shape[0] // size
    released = s.held
    for number in range(s.read - released, s.read):
        store_release(ring, number % blocks * size + STATUS, 0)
    s.held = 0
    return released


@kernel(np.uint8, int, int, RING_STATE, LANE, PacketTables, int)
def assemble_blocks(ring, size, link_type, state, lanes, t, most):  # type: ignore[no-untyped-def]
    """Turn the packets of our blocks into chunks, until `most` blocks are held. Return ASSEMBLED or the full table.

    `state` then has what waited before.
    """
    s = state[0]
    ready = s.held + _count_waiting(ring, size, s)
    stopped = ASSEMBLED
    turn = np.int64(0)
    while s.held < min(most, ready) and stopped == ASSEMBLED:
        start = _begin_block(ring, size, s, ready, lanes)
        end = start + size
        while s.left > 0 and _is_inside(s.position, start, end):
            _fetch_header(ring, lanes[turn % LANES])
            turn += 1
            found = _read_packet(ring, s.position, end, link_type, s.next_number)
            if not found.is_copy:
                stopped = assemble_packet(ring, found.packet, t)
                if stopped != ASSEMBLED:
                    break
                s.next_number += 1
            s.left -= 1
            if found.following == 0:
                break
            s.position = found.following
        if stopped == ASSEMBLED:
            _end_block(s)
    return stopped


@kernel(np.uint8, int, int, RING_STATE, LANE, PACKET, int)
def scan_blocks(ring, size, link_type, state, lanes, packets, most):  # type: ignore[no-untyped-def]
    """Write the packets of our blocks to `packets`, until it is full or `most` blocks are held. Return how many."""
    s = state[0]
    ready = s.held + _count_waiting(ring, size, s)
    made = 0
    turn = np.int64(0)
    while s.held < min(most, ready):
        start = _begin_block(ring, size, s, ready, lanes)
        end = start + size
        while s.left > 0 and _is_inside(s.position, start, end):
            if made == packets.shape[0]:
                return made
            _fetch_header(ring, lanes[turn % LANES])
            turn += 1
            found = _read_packet(ring, s.position, end, link_type, s.next_number)
            if not found.is_copy:
                write_packet(packets[made], found.packet)
                made += 1
                s.next_number += 1
            s.left -= 1
            if found.following == 0:
                break
            s.position = found.following
        _end_block(s)
    return made
