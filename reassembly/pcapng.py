"""pcapng: blocks of (type, length, body, length) in the byte order of their section header.

Read are section headers, interface descriptions (link type, if_tsresol, if_tsoffset), enhanced, simple and obsolete
packet blocks, and interface statistics (drops); other blocks are passed over by their length. A block length that is
not a multiple of 4, or less than 12, or that differs from its copy at the block's end, is damage.
"""

from __future__ import annotations

import numpy as np

from kafkatap.kernels import kernel
from kafkatap.kernels.decorator import helper
from kafkatap.kernels.readers import be16, be32, le16

from .dtypes import PACKET
from .pcap import DAMAGED, LONGEST_PACKET, NEXT_NUMBER, OUTPUT_FULL, POSITION, SCANNED, STATUS, STOP, SWAPPED, read32

#: More state (after pcap's): interfaces of this section, where they start, all interfaces, packets dropped as told.
INTERFACES, FIRST_INTERFACE, DROPPED, DROPS_TOLD = 8, 9, 10, 11
NG_STATE_SIZE = 12

#: Per interface four int64: link type, ticks exponent (resolution 10^-n as n, 2^-n as -1 - n), offset in s, packets
#: dropped as last told (-1: not told).
INTERFACE_WIDTH = 4

SECTION_HEADER = 0x0A0D0D0A
INTERFACE_DESCRIPTION, OBSOLETE_PACKET, SIMPLE_PACKET, INTERFACE_STATISTICS, ENHANCED_PACKET = 1, 2, 3, 5, 6
LONGEST_BLOCK = 16 * 1024 * 1024


@helper
def _read16(buf, at, swapped):  # type: ignore[no-untyped-def]
    return be16(buf, at) if swapped else le16(buf, at)


@helper
def _option(buf, at, end, swapped, code):  # type: ignore[no-untyped-def]
    """Where the value of an option starts, or -1."""
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
    """Ticks of an interface as ns since the epoch; exponent as in INTERFACE_WIDTH's second value."""
    if high >= 0x80000000:
        high -= 0x100000000
    ticks = high * 0x100000000 + low
    if exponent < 0:
        bits = -1 - exponent
        if bits > 62:
            bits = 62
        whole = ticks >> bits
        part = ticks - (whole << bits)
        if bits > 33:
            part >>= bits - 33
            bits = 33
        return (whole + offset) * 1_000_000_000 + ((part * 1_000_000_000) >> bits)
    scale = np.int64(1)
    if exponent <= 9:
        for _ in range(9 - exponent):
            scale *= 10
        return ticks * scale + offset * 1_000_000_000
    for _ in range(min(exponent, 18) - 9):
        scale *= 10
    return ticks // scale + offset * 1_000_000_000


@kernel(np.uint8, int, int, np.int64, np.int64, PACKET)
def scan_pcapng(buf, start, end, state, interfaces, packets):  # type: ignore[no-untyped-def]
    """Split buf[start:end] into packets; return their number. Interfaces are added to `interfaces` as they come."""
    swapped = state[SWAPPED]
    number = state[NEXT_NUMBER]
    room = packets.shape[0]
    at = start
    count = 0
    status = SCANNED
    last = min(end - 12, state[STOP] - 1)
    while at <= last:
        kind = read32(buf, at, swapped)
        if kind == SECTION_HEADER:
            magic = be32(buf, at + 8)
            if magic == 0x1A2B3C4D:
                swapped = np.int64(1)
            elif magic == 0x4D3C2B1A:
                swapped = np.int64(0)
            else:
                status = DAMAGED
                break
        length = read32(buf, at + 4, swapped)
        if length < 12 or length % 4 != 0 or length > LONGEST_BLOCK:
            status = DAMAGED
            break
        if at + length > end:
            break
        if read32(buf, at + length - 4, swapped) != length:
            status = DAMAGED
            break
        body = at + 8
        body_end = at + length - 4
        interface = np.int64(-1)
        captured = np.int64(0)
        original = np.int64(0)
        data = np.int64(0)
        high = np.int64(0)
        low = np.int64(0)
        if kind == SECTION_HEADER:
            state[SWAPPED] = swapped
            state[FIRST_INTERFACE] = state[INTERFACES]
        elif kind == INTERFACE_DESCRIPTION and body + 8 <= body_end:
            if (state[INTERFACES] + 1) * INTERFACE_WIDTH > interfaces.shape[0]:
                status = OUTPUT_FULL
                break
            row = state[INTERFACES] * INTERFACE_WIDTH
            interfaces[row] = _read16(buf, body, swapped)
            interfaces[row + 1] = 6
            interfaces[row + 2] = 0
            interfaces[row + 3] = -1
            resolution = _option(buf, body + 8, body_end, swapped, 9)
            if resolution >= 0:
                value = np.int64(buf[resolution])
                interfaces[row + 1] = -1 - (value & 127) if value & 128 else value
            offset = _option(buf, body + 8, body_end, swapped, 14)
            if offset >= 0 and offset + 8 <= body_end:
                first = read32(buf, offset, swapped)
                second = read32(buf, offset + 4, swapped)
                # 64 bits in the section's order: of seconds of this age the high half is but the sign
                low = second if swapped else first
                high = first if swapped else second
                interfaces[row + 2] = low - 0x100000000 if high >= 0x80000000 else low
            state[INTERFACES] += 1
        elif kind == ENHANCED_PACKET and body + 20 <= body_end:
            interface = read32(buf, body, swapped)
            high = read32(buf, body + 4, swapped)
            low = read32(buf, body + 8, swapped)
            captured = read32(buf, body + 12, swapped)
            original = read32(buf, body + 16, swapped)
            data = body + 20
        elif kind == OBSOLETE_PACKET and body + 20 <= body_end:
            interface = _read16(buf, body, swapped)
            high = read32(buf, body + 4, swapped)
            low = read32(buf, body + 8, swapped)
            captured = read32(buf, body + 12, swapped)
            original = read32(buf, body + 16, swapped)
            data = body + 20
        elif kind == SIMPLE_PACKET and body + 4 <= body_end:
            interface = np.int64(0)
            original = read32(buf, body, swapped)
            captured = min(original, body_end - body - 4)
            data = body + 4
        elif kind == INTERFACE_STATISTICS and body + 12 <= body_end:
            told = _option(buf, body + 12, body_end, swapped, 5)
            row = (state[FIRST_INTERFACE] + read32(buf, body, swapped)) * INTERFACE_WIDTH
            if told >= 0 and told + 8 <= body_end and row + 3 < state[INTERFACES] * INTERFACE_WIDTH:
                first = read32(buf, told, swapped)
                second = read32(buf, told + 4, swapped)
                drops = (first << 31) * 2 + second if swapped else (second << 31) * 2 + first
                state[DROPPED] += drops - max(interfaces[row + 3], 0)
                interfaces[row + 3] = drops
                state[DROPS_TOLD] = 1
        if interface >= 0:
            row = (state[FIRST_INTERFACE] + interface) * INTERFACE_WIDTH
            if captured > LONGEST_PACKET or data + captured > body_end or row >= state[INTERFACES] * INTERFACE_WIDTH:
                status = DAMAGED
                break
            if count == room:
                status = OUTPUT_FULL
                break
            packet = packets[count]
            packet.ts = _nanoseconds(high, low, interfaces[row + 1], interfaces[row + 2])
            packet.number = number
            packet.at = data
            packet.captured = captured
            packet.original = min(original, 0x7FFFFFFF)
            packet.link_type = interfaces[row]
            number += 1
            count += 1
        at += length
    state[POSITION] = at
    state[STATUS] = status
    state[NEXT_NUMBER] = number
    return count
