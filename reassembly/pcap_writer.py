"""Packets to the bytes of capture files: records by a kernel, headers by Python. All is little-endian, times in ns.

A classic pcap (magic a1b23c4d) holds packets of one link type. pcapng holds those of any: an interface description for
each link type, in the order of `links`, has to stand before the first packet of it. What is packed lies record behind
record, so that a file may begin with any of them.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np

from kafkatap.kernels import kernel
from kafkatap.kernels.decorator import helper
from kafkatap.kernels.readers import le32

from .dtypes import PACKET
from .pcap import HEADER, LONGEST_PACKET
from .pcapng import ENHANCED_PACKET, INTERFACE_DESCRIPTION, INTERFACE_STATISTICS, SECTION_HEADER

#: State (int64): the form, where in the output to go on and where to end, why packing stopped, rows of `links`, packets
#: left out as their link type has no interface, the latest time packed.
FORM, POSITION, END, STOPPED, LINKS, LEFT_OUT, LATEST = range(7)
STATE_SIZE = 8
CLASSIC, NEXT_GENERATION = 0, 1
#: Why packing stopped: all packets taken, no room for the next one, or its link type is not in `links`.
PACKED, OUTPUT_FULL, NEW_LINK = range(3)
#: Bytes of an enhanced packet block beside the packet's.
_BLOCK = 32
#: No record is longer.
LONGEST_RECORD = LONGEST_PACKET + _BLOCK

_COMMENT, _NAME, _APPLICATION, _RESOLUTION, _RECEIVED, _DROPPED = 1, 2, 4, 9, 4, 5


@helper
def _put32(out, at, value):  # type: ignore[no-untyped-def]
    out[np.uintp(at)] = value & 255
    out[np.uintp(at + 1)] = (value >> 8) & 255
    out[np.uintp(at + 2)] = (value >> 16) & 255
    out[np.uintp(at + 3)] = (value >> 24) & 255


@kernel(np.uint8, PACKET, int, int, np.int64, np.int64, np.uint8)
def pack_packets(buf, packets, first, count, links, state, out):  # type: ignore[no-untyped-def]
    """Write packets[first:count] as records to out[state[POSITION]:state[END]]; return the first one not taken.

    `links` has pairs of a link type and its interface's number, below 0: packets of it are left out. Of a packet no
    more is written than `buf` holds, and at most LONGEST_PACKET bytes; times before 1970 become 1970.
    """
    at = state[POSITION]
    end = min(state[END], out.shape[0])
    blocks = state[FORM] == NEXT_GENERATION
    link = np.int64(-1)
    interface = np.int64(-1)
    latest = state[LATEST]
    stopped = PACKED
    i = first
    while i < count:
        packet = packets[i]
        if packet.link_type != link:
            row = np.int64(0)
            while row < state[LINKS] and links[2 * row] != packet.link_type:
                row += 1
            if row == state[LINKS]:
                stopped = NEW_LINK
                break
            link = np.int64(packet.link_type)
            interface = links[2 * row + 1]
        if interface < 0:
            state[LEFT_OUT] += 1
            i += 1
            continue
        source = packet.at
        captured = np.int64(0)
        if source >= 0 and source < buf.shape[0]:
            captured = max(captured, min(np.int64(packet.captured), np.int64(LONGEST_PACKET), buf.shape[0] - source))
        padded = (captured + 3) & ~3 if blocks else captured
        length = padded + (_BLOCK if blocks else HEADER)
        if at + length > end:
            stopped = OUTPUT_FULL
            break
        ts = max(np.int64(packet.ts), np.int64(0))
        latest = max(latest, ts)
        original = max(np.int64(packet.original), np.int64(0))
        data = at + HEADER
        if blocks:
            _put32(out, at, ENHANCED_PACKET)
            _put32(out, at + 4, length)
            _put32(out, at + 8, interface)
            _put32(out, at + 12, ts >> 32)
            _put32(out, at + 16, ts)
            _put32(out, at + 20, captured)
            _put32(out, at + 24, original)
            data = at + 28
            for k in range(captured, padded):
                out[np.uintp(data + k)] = 0
            _put32(out, data + padded, length)
        else:
            _put32(out, at, ts // 1_000_000_000)
            _put32(out, at + 4, ts % 1_000_000_000)
            _put32(out, at + 8, captured)
            _put32(out, at + 12, original)
        for k in range(captured):
            out[np.uintp(data + k)] = buf[np.uintp(source + k)]
        at += length
        i += 1
    state[POSITION] = at
    state[STOPPED] = stopped
    state[LATEST] = latest
    return i


@kernel(np.uint8, int, int, np.int64)
def whole_records(out, start, end, state):  # type: ignore[no-untyped-def]
    """Where the last record ends that lies whole in out[start:end], which begins with a record."""
    at = start
    while at + HEADER <= end:
        length = le32(out, at + 4) if state[FORM] == NEXT_GENERATION else HEADER + le32(out, at + 8)
        if at + length > end or length < HEADER:
            break
        at += length
    return at


def file_header(link_type: int) -> bytes:
    """The header of a classic pcap."""
    return struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, LONGEST_PACKET, link_type)


def section_header(application: str, comment: str = "") -> bytes:
    """The block that a pcapng begins with; its comment is what Wireshark shows of the whole file."""
    options = [(_COMMENT, comment.encode())] if comment else []
    options.append((_APPLICATION, application.encode()))
    return _block(SECTION_HEADER, struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1), options)


def interface_description(link_type: int, name: str = "") -> bytes:
    """The block of an interface whose times are in ns."""
    options = [(_NAME, name.encode())] if name else []
    options.append((_RESOLUTION, b"\x09"))
    return _block(INTERFACE_DESCRIPTION, struct.pack("<HHI", link_type, 0, LONGEST_PACKET), options)


def interface_statistics(interface: int, ts: int, received: int, dropped: int) -> bytes:
    """How many packets an interface received, and how many of them were dropped; `ts`: ns since the epoch."""
    counts = [(_RECEIVED, struct.pack("<Q", received)), (_DROPPED, struct.pack("<Q", dropped))]
    return _block(INTERFACE_STATISTICS, struct.pack("<III", interface, ts >> 32, ts & 0xFFFFFFFF), counts)


def _block(kind: int, body: bytes, options: Sequence[tuple[int, bytes]]) -> bytes:
    for code, value in options:
        body += struct.pack("<HH", code, len(value)) + _padded(value)
    body = _padded(body + bytes(4))
    length = len(body) + 12
    return struct.pack("<II", kind, length) + body + struct.pack("<I", length)


def _padded(value: bytes) -> bytes:
    return value + bytes(-len(value) % 4)
