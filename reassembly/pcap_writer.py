"""Packets to the bytes of capture files: records by a kernel, headers by Python. All is little-endian, times in ns.

A classic pcap (magic a1b23c4d) holds packets of one link type. A pcapng holds packets of several: the interface
description of a link type, in the order of `LINK` rows, has to come before its first packet. Records follow one
another without gaps, so a file may begin with any of them. `pcapng_blocks` has the other blocks.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

import numpy as np

from kafkatap.kernels import kernel
from kafkatap.kernels.decorator import helper, record_dtype
from kafkatap.kernels.readers import le32

from .dtypes import PACKET
from .pcap import FILE_HEADER, HEADER, LONGEST_PACKET
from .pcapng import ENHANCED_PACKET
from .pcapng_blocks import Options, option_bytes

Array = np.ndarray[Any, Any]

#: One row: the form of the records, and how far the output is written.
PACK_STATE = record_dtype(
    ("form", "i8"),  # CLASSIC or NEXT_GENERATION
    ("position", "i8"),  # where the next record goes
    ("end", "i8"),  # where the room for records ends
    ("stopped", "i8"),  # why packing stopped: PACK_ENDED, …
    ("links", "i8"),  # how many rows of `links` are used
    ("left_out", "i8"),  # packets that were skipped because their link type has no interface
    ("latest", "i8"),  # the latest time of all packets
)
#: A link type and the number of its interface; -1: packets of this link type are skipped.
LINK = record_dtype(("link_type", "i8"), ("interface", "i8"))
CLASSIC, NEXT_GENERATION = 0, 1
#: Why packing stopped: all packets are written, no room for the next one, or its link type is not in `links`.
PACK_ENDED, PACK_FULL, PACK_NEW_LINK = range(3)
#: An enhanced packet block to write: where its packet is, and its options are among those of others. `ticks`: its time
#: in those of its interface.
PACKET_BLOCK = record_dtype(
    ("at", "i8"), ("captured", "i8"), ("original", "i8"), ("interface", "i8"), ("ticks", "i8"), ("options_at", "i8"),
    ("options_size", "i8"),
)  # fmt: skip
#: Bytes of an enhanced packet block without the packet and options.
_BLOCK = 32
#: The most bytes of a record.
LONGEST_RECORD = LONGEST_PACKET + _BLOCK


@helper
def _put32(out, at, value):  # type: ignore[no-untyped-def]
    out[np.uintp(at)] = value & 255
    out[np.uintp(at + 1)] = (value >> 8) & 255
    out[np.uintp(at + 2)] = (value >> 16) & 255
    out[np.uintp(at + 3)] = (value >> 24) & 255


@helper
def _link_row(links, state, link_type):  # type: ignore[no-untyped-def]
    """Return the row of a link type in `links`, or -1."""
    for row in range(state.links):
        if links[row].link_type == link_type:
            return np.int64(row)
    return np.int64(-1)


@helper
def _bytes_to_write(buf, packet):  # type: ignore[no-untyped-def]
    """Return how many bytes of a packet are written: what `buf` holds of it, and at most LONGEST_PACKET."""
    if packet.at < 0 or packet.at >= buf.shape[0]:
        return np.int64(0)
    wanted = min(np.int64(packet.captured), np.int64(LONGEST_PACKET), buf.shape[0] - packet.at)
    return max(np.int64(0), wanted)


@helper
def _put_pcap_header(out, at, ts, captured, original):  # type: ignore[no-untyped-def]
    """Write the header of a classic pcap's record; return where the packet's bytes go."""
    _put32(out, at, ts // 1_000_000_000)
    _put32(out, at + 4, ts % 1_000_000_000)
    _put32(out, at + 8, captured)
    _put32(out, at + 12, original)
    return at + HEADER


@helper
def _put_block(out, at, length, interface, ts, captured, original):  # type: ignore[no-untyped-def]
    """Write an enhanced packet block of `length` bytes, without the packet's bytes; return where those go."""
    _put32(out, at, ENHANCED_PACKET)
    _put32(out, at + 4, length)
    _put32(out, at + 8, interface)
    _put32(out, at + 12, ts >> 32)
    _put32(out, at + 16, ts)
    _put32(out, at + 20, captured)
    _put32(out, at + 24, original)
    for k in range(at + 28 + captured, at + length - 4):  # padding
        out[np.uintp(k)] = 0
    _put32(out, at + length - 4, length)
    return at + 28


@kernel(np.uint8, PACKET, int, int, LINK, PACK_STATE, np.uint8)
def pack_packets(buf, packets, first, count, links, state, out):  # type: ignore[no-untyped-def]
    """Write packets[first:count] as records to out[state.position:state.end].

    Returns the first packet that was not written (see state.stopped). Times before 1970 become 1970.
    """
    s = state[0]
    at = s.position
    end = min(s.end, out.shape[0])
    blocks = s.form == NEXT_GENERATION
    row = np.int64(-1)
    s.stopped = PACK_ENDED
    i = first
    while i < count:
        packet = packets[i]
        if row < 0 or links[row].link_type != packet.link_type:
            row = _link_row(links, s, np.int64(packet.link_type))
            if row < 0:
                s.stopped = PACK_NEW_LINK
                break
        interface = links[row].interface
        if interface < 0:
            s.left_out += 1
            i += 1
            continue
        captured = _bytes_to_write(buf, packet)
        length = ((captured + 3) & ~3) + _BLOCK if blocks else captured + HEADER
        if at + length > end:
            s.stopped = PACK_FULL
            break
        ts = max(np.int64(packet.ts), np.int64(0))
        s.latest = max(s.latest, ts)
        original = max(np.int64(packet.original), np.int64(0))
        if blocks:
            data = _put_block(out, at, length, interface, ts, captured, original)
        else:
            data = _put_pcap_header(out, at, ts, captured, original)
        source = packet.at
        for k in range(captured):
            out[np.uintp(data + k)] = buf[np.uintp(source + k)]
        at += length
        i += 1
    s.position = at
    return i


@kernel(np.uint8, PACKET_BLOCK, np.uint8, np.uint8)
def pack_blocks(buf, rows, options, out):  # type: ignore[no-untyped-def]
    """Write packets with their options as blocks to `out`, which has as many bytes."""
    at = np.int64(0)
    for i in range(len(rows)):
        row = rows[i]
        padded = (row.captured + 3) & ~3
        length = _BLOCK + padded + row.options_size
        data = _put_block(out, at, length, row.interface, row.ticks, row.captured, row.original)
        for k in range(row.captured):
            out[np.uintp(data + k)] = buf[np.uintp(row.at + k)]
        for k in range(row.options_size):
            out[np.uintp(data + padded + k)] = options[np.uintp(row.options_at + k)]
        at += length
    return at


def packet_blocks(buf: Array, rows: Array, options: Mapping[int, Options]) -> tuple[Array, Array]:
    """The blocks of packets (PACKET_BLOCK), with options by row, and where each block ends (int64)."""
    written = list(map(option_bytes, options.values()))
    places, sizes = np.array(list(options), np.int64), np.array(list(map(len, written)), np.int64)
    rows["options_size"][places], rows["options_at"][places] = sizes, np.cumsum(sizes) - sizes
    ends: Array = np.cumsum(_BLOCK + (rows["captured"] + 3 & ~3) + rows["options_size"])
    out = np.empty(int(ends[-1]) if len(ends) else 0, np.uint8)
    pack_blocks(buf, rows, np.frombuffer(bytearray(b"".join(written)), np.uint8), out)
    return out, ends


@kernel(np.uint8, int, int, int)
def whole_records(out, start, end, form):  # type: ignore[no-untyped-def]
    """Return where the last whole record in out[start:end] ends. The range begins with a record."""
    at = start
    while at + HEADER <= end:
        length = le32(out, at + 4) if form == NEXT_GENERATION else HEADER + le32(out, at + 8)
        if at + length > end or length < HEADER:
            break
        at += length
    return at


def pcap_size(packets: int, captured: int) -> int:
    """The bytes of a classic pcap with so many packets, which have `captured` bytes together."""
    return FILE_HEADER + packets * HEADER + captured


def file_header(link_type: int) -> bytes:
    """Return the header of a classic pcap."""
    return struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, LONGEST_PACKET, link_type)
