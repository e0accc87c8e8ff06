"""pcapng: blocks of (type, length, body, length) in the byte order of their section header.

The scanner reads section headers, interface descriptions (link type, if_tsresol, if_tsoffset), enhanced, simple and
obsolete packet blocks, interface statistics (drops), decryption secrets of TLS and names of addresses: it stops behind
such a block, so that the caller can copy what it has. It skips other blocks by their length. A block is damaged if its
length is not a multiple of 4, less than 12, or differs from its copy at the block's end.
"""

from __future__ import annotations

import numpy as np

from kafkatap.kernels import kernel
from kafkatap.kernels.decorator import helper, record_dtype
from kafkatap.kernels.readers import be16, be32, le16

from .dtypes import PACKET, Packet
from .pcap import (
    A_PACKET,
    LONGEST_PACKET,
    NO_PACKET,
    SCAN_DAMAGED,
    SCAN_ENDED,
    SCAN_FULL,
    SCAN_NOTED,
    SCAN_STATE,
    Record,
    other_record,
    read32,
    write_packet,
)

#: One interface of a capture.
INTERFACE = record_dtype(
    ("link_type", "i8"),
    ("exponent", "i8"),  # of a tick: n for 10^-n s, -1 - n for 2^-n s
    ("offset", "i8"),  # s
    ("dropped", "i8"),  # packets dropped, as last reported; -1: not reported
)

SECTION_HEADER = 0x0A0D0D0A
INTERFACE_DESCRIPTION, OBSOLETE_PACKET, SIMPLE_PACKET, INTERFACE_STATISTICS, ENHANCED_PACKET = 1, 2, 3, 5, 6
NAME_RESOLUTION, DECRYPTION_SECRETS = 4, 10
#: Blocks with a packet.
PACKET_BLOCKS = (OBSOLETE_PACKET, SIMPLE_PACKET, ENHANCED_PACKET)
#: The type of secrets that are a TLS key log.
TLS_KEY_LOG = 0x544C534B
#: A block with secrets or names uses up at least so many bytes of the room for them, so that many small ones cost
#: little.
LEAST_COST = 1024
SMALLEST_BLOCK, LONGEST_BLOCK = 12, 16 * 1024 * 1024
#: Times beyond 136 years from the epoch, ns, which only a wrong offset makes, count as these: so spans fit 64 bits.
LATEST = 0xFFFFFFFF * 1_000_000_000


@helper
def _read16(buf, at, swapped):  # type: ignore[no-untyped-def]
    return be16(buf, at) if swapped else le16(buf, at)


@helper
def _option(buf, at, end, swapped, code):  # type: ignore[no-untyped-def]
    """Return where the value of an option starts, or -1."""
    while at + 4 <= end:
        kind = _read16(buf, at, swapped)
        length = _read16(buf, at + 2, swapped)
        if kind == 0 or at + 4 + length > end:
            return np.int64(-1)
        if kind == code:
            return at + 4
        at += 4 + ((length + 3) & ~3)
    return np.int64(-1)


@helper
def _nanoseconds(high, low, exponent, offset):  # type: ignore[no-untyped-def]
    """Return the ticks of an interface as ns since the epoch, within LATEST of it; `exponent` as in INTERFACE."""
    if high >= 0x80000000:
        high -= 0x100000000
    ticks = high * 0x100000000 + low
    part = np.int64(0)
    scale = np.int64(1_000_000_000)
    if exponent < 0:
        bits = min(-1 - exponent, 62)
        whole = ticks >> bits
        part = ticks - (whole << bits)
        if bits > 33:
            part >>= bits - 33
            bits = 33
        part = (part * 1_000_000_000) >> bits
        ticks = whole
    elif exponent <= 9:
        for _ in range(exponent):
            scale //= 10
    else:
        for _ in range(min(exponent, 18) - 9):
            ticks //= 10
        scale = np.int64(1)
    about = np.float64(ticks) * np.float64(scale) + np.float64(offset) * 1e9
    if about >= LATEST:
        return np.int64(LATEST)
    if about <= -LATEST:
        return np.int64(-LATEST)
    return ticks * scale + offset * 1_000_000_000 + part


@helper
def _byte_order(buf, at, swapped):  # type: ignore[no-untyped-def]
    """Return the byte order of the block at `at`: 1 big-endian, 0 little-endian, -1 for a damaged section header."""
    if read32(buf, at, swapped) != SECTION_HEADER:  # which reads the same in both orders
        return swapped
    magic = be32(buf, at + 8)
    if magic == 0x1A2B3C4D:
        return np.int64(1)
    return np.int64(0) if magic == 0x4D3C2B1A else np.int64(-1)


@helper
def _block_length(buf, at, end, swapped):  # type: ignore[no-untyped-def]
    """Return the length of the block at `at`: 0 if it is not whole, -1 if it is damaged."""
    length = read32(buf, at + 4, swapped)
    if length < SMALLEST_BLOCK or length % 4 != 0 or length > LONGEST_BLOCK:
        return np.int64(-1)
    if at + length > end:
        return np.int64(0)
    return length if read32(buf, at + length - 4, swapped) == length else np.int64(-1)


@helper
def _read_interface(buf, body, end, swapped, interface):  # type: ignore[no-untyped-def]
    """Read the body of an interface description into `interface`."""
    interface.link_type = _read16(buf, body, swapped)
    interface.exponent = 6
    interface.offset = 0
    interface.dropped = -1
    resolution = _option(buf, body + 8, end, swapped, 9)
    if resolution >= 0:
        value = np.int64(buf[resolution])
        interface.exponent = -1 - (value & 127) if value & 128 else value
    offset = _option(buf, body + 8, end, swapped, 14)
    if offset >= 0 and offset + 8 <= end:
        # 64 bits in the section's order. The high half of seconds of our time is only the sign.
        low = read32(buf, offset + 4 if swapped else offset, swapped)
        high = read32(buf, offset if swapped else offset + 4, swapped)
        interface.offset = low - 0x100000000 if high >= 0x80000000 else low


@helper
def _read_statistics(buf, body, end, s, interfaces):  # type: ignore[no-untyped-def]
    """Add the drops that interface statistics report."""
    value = _option(buf, body + 12, end, s.swapped, 5)
    number = s.first_interface + read32(buf, body, s.swapped)
    if value < 0 or value + 8 > end or number >= s.interfaces:
        return
    first = read32(buf, value, s.swapped)
    second = read32(buf, value + 4, s.swapped)
    drops = (first << 31) * 2 + second if s.swapped else (second << 31) * 2 + first
    interface = interfaces[number]
    s.dropped += drops - max(interface.dropped, 0)
    s.drops_known = 1
    interface.dropped = drops


@helper
def _read_secrets(buf, at, length, s):  # type: ignore[no-untyped-def]
    """Read a block with decryption secrets: as a record of the kind SCAN_NOTED if they are of TLS and are read."""
    count = read32(buf, at + 12, s.swapped)
    if read32(buf, at + 8, s.swapped) != TLS_KEY_LOG or count == 0:
        return other_record(NO_PACKET, at + length)
    cost = max(count, np.int64(LEAST_COST))
    if count > length - 20 or cost > s.secrets_room:
        s.secrets_left_out += 1
        return other_record(NO_PACKET, at + length)
    s.secrets_room -= cost
    return _noted(DECRYPTION_SECRETS, at + 16, count, at + length, s)


@helper
def _noted(kind, first, count, end, s):  # type: ignore[no-untyped-def]
    """A record whose block, of this type, has bytes for the caller."""
    s.noted_kind = kind
    s.noted = first
    s.noted_length = count
    return other_record(SCAN_NOTED, end)


@helper
def _holds_packet(kind, length):  # type: ignore[no-untyped-def]
    """Return whether a block of this type and length holds a packet."""
    return ((kind == ENHANCED_PACKET or kind == OBSOLETE_PACKET) and length >= 32) or (
        kind == SIMPLE_PACKET and length >= 16
    )


@helper
def _read_packet(buf, at, length, s, interfaces):  # type: ignore[no-untyped-def]
    """Read a block with a packet."""
    swapped = s.swapped
    body = at + 8
    body_end = at + length - 4
    kind = read32(buf, at, swapped)
    number = np.int64(0)
    high = np.int64(0)
    low = np.int64(0)
    if kind == SIMPLE_PACKET:
        original = read32(buf, body, swapped)
        data = body + 4
        captured = min(original, body_end - data)
    else:
        number = read32(buf, body, swapped) if kind == ENHANCED_PACKET else _read16(buf, body, swapped)
        high = read32(buf, body + 4, swapped)
        low = read32(buf, body + 8, swapped)
        captured = read32(buf, body + 12, swapped)
        original = read32(buf, body + 16, swapped)
        data = body + 20
    number += s.first_interface
    if captured > LONGEST_PACKET or data + captured > body_end or number >= s.interfaces:
        return other_record(SCAN_DAMAGED, at)
    interface = interfaces[number]
    ts = _nanoseconds(high, low, interface.exponent, interface.offset)
    original = min(original, np.int64(0x7FFFFFFF))
    link_type = np.int64(interface.link_type)
    packet = Packet(ts, np.int64(s.next_number), data, captured, original, link_type, np.int64(0))
    return Record(np.int64(A_PACKET), at + length, packet)


@helper
def read_block(buf, at, end, s, interfaces):  # type: ignore[no-untyped-def]
    """Read the block at `at`, whose first 12 bytes lie before `end`, as a record.

    A new interface is added to `interfaces`. The caller counts packets in `s.next_number`.
    """
    swapped = _byte_order(buf, at, s.swapped)
    length = _block_length(buf, at, end, swapped) if swapped >= 0 else np.int64(-1)
    if length <= 0:
        return other_record(SCAN_DAMAGED if length < 0 else SCAN_ENDED, at)
    kind = read32(buf, at, swapped)
    if _holds_packet(kind, length):
        return _read_packet(buf, at, length, s, interfaces)
    if kind == SECTION_HEADER:
        s.swapped = swapped
        s.first_interface = s.interfaces
    elif kind == INTERFACE_DESCRIPTION and length >= 20:
        if s.interfaces == interfaces.shape[0]:
            return other_record(SCAN_FULL, at)
        _read_interface(buf, at + 8, at + length - 4, swapped, interfaces[s.interfaces])
        s.interfaces += 1
    elif kind == INTERFACE_STATISTICS and length >= 24:
        _read_statistics(buf, at + 8, at + length - 4, s, interfaces)
    elif kind == DECRYPTION_SECRETS and length >= 20:
        return _read_secrets(buf, at, length, s)
    elif kind == NAME_RESOLUTION and length > SMALLEST_BLOCK:
        cost = max(length, np.int64(LEAST_COST))
        if cost <= s.names_room:
            s.names_room -= cost
            return _noted(NAME_RESOLUTION, at + 8, length - SMALLEST_BLOCK, at + length, s)
    return other_record(NO_PACKET, at + length)


@kernel(np.uint8, int, int, SCAN_STATE, INTERFACE, PACKET)
def scan_pcapng(buf, start, end, state, interfaces, packets):  # type: ignore[no-untyped-def]
    """Split buf[start:end] into packets; return their number. New interfaces are added to `interfaces`."""
    s = state[0]
    at = start
    count = 0
    status = SCAN_ENDED
    last = min(end - SMALLEST_BLOCK, s.stop - 1)
    while at <= last:
        record = read_block(buf, at, end, s, interfaces)
        if record.kind < A_PACKET:
            status = record.kind
            if status == SCAN_NOTED:
                at = record.end
            break
        if record.kind == A_PACKET:
            if count == packets.shape[0]:
                status = SCAN_FULL
                break
            write_packet(packets[count], record.packet)
            s.next_number += 1
            count += 1
        at = record.end
    s.position = at
    s.status = status
    return count
