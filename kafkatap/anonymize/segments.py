"""Writes many packets anew whose headers were seen before, and the TCP segments of all.

What comes before TCP is nearly the same in all packets of one direction of a connection: its *head*, the bytes of
packets with zeros in place of IP's length, identifier and checksum. `headers` rewrites a packet with a head the first
time, and its copies follow it. Packets in tunnels have two IP headers, and no head.

What is kept of a TCP segment: its numbers, and of its options those that only have numbers; the others become
no-operations. The payload is filler under the bytes of a `StreamMap`.
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np

from kafkatap.kernels import kernel
from kafkatap.kernels.decorator import helper, record_dtype
from kafkatap.kernels.readers import be16, be32
from kafkatap.reassembly.dtypes import PACKET, Packet
from kafkatap.reassembly.layers import IPV4, IPV6, TCP_PROTOCOL
from kafkatap.reassembly.trail import TCP_SEGMENT, TRAIL, find_trail

from .fields import FILLER

Array = np.ndarray[Any, Any]
#: One direction of one connection. `base_seq`: the sequence number of offset 0, -1 if none is known. `latest`: the
#: latest offset. `following`: the next stream between the same ends, or -1. Its pieces are pieces[first:stop].
STREAM = record_dtype(
    ("base_seq", "i8"), ("latest", "i8"), ("first_packet", "i8"), ("following", "i8"), ("first", "i8"), ("stop", "i8")
)
#: New bytes of a stream from an offset on, and where they are. Those of a stream are in order of their offsets.
PIECE = record_dtype(("offset", "i8"), ("length", "i8"), ("place", "i8"))
#: Where the parts of a packet with a head begin, where its captured bytes and those on the wire end. `flow`: the number
#: of its head, -1 for none; `stream`: the first one between its ends, or -1.
PLACE = record_dtype(("ip", "i8"), ("tcp", "i8"), ("end", "i8"), ("wire", "i8"), ("flow", "i8"), ("stream", "i8"))
#: Bytes of a head with what follows it: the ports, the link type, and its size.
HEAD = 128
_LONGEST = HEAD - 7
_FILLER = FILLER[0]
_TCP_HEADER = 20
_NOP, _END_OF_OPTIONS = 1, 0
_HALF, _WRAP = 1 << 31, 1 << 32


class StreamTables(NamedTuple):
    """What a `StreamMap` knows. `data`: the new bytes."""

    streams: Annotated[Array, STREAM]
    pieces: Annotated[Array, PIECE]
    data: Annotated[Array, np.uint8]


@helper
def _copy(old, new, at, end):  # type: ignore[no-untyped-def]
    for k in range(at, end):
        new[np.uintp(k)] = old[np.uintp(k)]


@helper
def _fill(new, at, end, byte):  # type: ignore[no-untyped-def]
    for k in range(at, end):
        new[np.uintp(k)] = byte


@helper
def _sum(raw, at, end):  # type: ignore[no-untyped-def]
    """The sum of 16-bit words."""
    total = np.int64(0)
    while at + 1 < end:
        total += be16(raw, at)
        at += 2
    return total + (np.int64(raw[np.uintp(at)]) << 8) if at < end else total


@helper
def _put_checksum(raw, at, total):  # type: ignore[no-untyped-def]
    """Write the Internet checksum (RFC 1071) of words with this sum."""
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    raw[np.uintp(at)] = (total >> 8) ^ 0xFF
    raw[np.uintp(at + 1)] = (total & 0xFF) ^ 0xFF


@helper
def _has_only_numbers(kind, size):  # type: ignore[no-untyped-def]
    """Whether an option of TCP is MSS, window scale, SACK permitted, SACK or timestamps."""
    if kind == 5:
        return size == 10 or size == 18 or size == 26 or size == 34
    return (
        (kind == 2 and size == 4)
        or (kind == 3 and size == 3)
        or (kind == 4 and size == 2)
        or (kind == 8 and size == 10)
    )


@helper
def _put_options(old, new, at, end):  # type: ignore[no-untyped-def]
    _fill(new, at, end, _NOP)
    while at < end:
        kind = old[np.uintp(at)]
        if kind == _END_OF_OPTIONS:
            _fill(new, at, end, 0)
            return
        if kind == _NOP:
            at += 1
            continue
        size = np.int64(old[np.uintp(at + 1)]) if at + 1 < end else np.int64(0)
        if size < 2 or at + size > end:
            return
        if _has_only_numbers(kind, size):
            _copy(old, new, at, at + size)
        at += size


@helper
def _put_payload(old, new, tcp, at, end, number, stream, tables):  # type: ignore[no-untyped-def]
    """Write the payload at:end of the segment that begins at `tcp`, in the packet with this number."""
    _fill(new, at, end, _FILLER)
    if stream < 0 or at >= end:
        return
    streams, pieces = tables.streams, tables.pieces
    following = streams[stream].following
    while following >= 0 and streams[following].first_packet <= number:
        stream = following
        following = streams[stream].following
    row = streams[stream]
    if row.base_seq < 0:
        return
    # The offset of its sequence number that is the nearest to the latest one.
    sequence = be32(old, tcp + 4) + (np.int64(old[np.uintp(tcp + 13)]) >> 1 & 1)
    distance = (sequence - row.base_seq - row.latest) & (_WRAP - 1)
    row.latest += distance - _WRAP if distance >= _HALF else distance
    first, stop = row.latest, row.latest + end - at
    low, high = row.first, row.stop
    while low < high:
        middle = (low + high) // 2
        if pieces[middle].offset > first:
            high = middle
        else:
            low = middle + 1
    piece = max(low - 1, row.first)
    while piece < row.stop and pieces[piece].offset < stop:
        offset = pieces[piece].offset
        place = pieces[piece].place - offset
        for k in range(max(first, offset), min(stop, offset + pieces[piece].length)):
            new[np.uintp(at + k - first)] = tables.data[np.uintp(place + k)]
        piece += 1


@helper
def _put_segment(old, new, place, ends, width, number, tables):  # type: ignore[no-untyped-def]
    """Write a segment. `ends`: where the addresses are, each of `width` bytes."""
    at, end = place.tcp, place.end
    if at + _TCP_HEADER > end:
        _copy(old, new, at, min(end, at + 16))
        return
    _copy(old, new, at, at + 16)
    _copy(old, new, at + 18, at + _TCP_HEADER)
    header = np.int64(old[np.uintp(at + 12)] >> 4) * 4
    if header < _TCP_HEADER or at + header > place.wire:
        _fill(new, at + _TCP_HEADER, end, _FILLER)
    else:
        _put_options(old, new, at + _TCP_HEADER, min(at + header, end))
        _put_payload(old, new, at, at + header, end, number, place.stream, tables)
    if end == place.wire:
        length = end - at
        pseudo = _sum(new, ends, ends + 2 * width) + TCP_PROTOCOL + (length & 0xFFFF) + (length >> 16)
        _put_checksum(new, at + 16, pseudo + _sum(new, at, end))


@kernel(np.uint8, np.uint8, PLACE, int, int, int, StreamTables)
def write_segment(old, new, places, ends, width, number, tables):  # type: ignore[no-untyped-def]
    """Write the segment of a packet, behind its headers (`_put_segment`)."""
    _put_segment(old, new, places[0], ends, width, number, tables)
    return 0


@kernel(np.uint8, PACKET, TRAIL, PLACE, np.uint8)
def read_heads(buf, packets, trail, places, heads):  # type: ignore[no-untyped-def]
    """Fill `places` and `heads` (zeros, HEAD for each packet): `tcp` is -1 for a packet without a head."""
    for k in range(len(packets)):
        row, place = packets[k], places[k]
        place.tcp = -1
        place.flow = -1
        packet = Packet(
            row.ts, row.number, row.at, np.int64(row.captured), np.int64(row.original), np.int64(row.link_type),
            np.int64(row.point),
        )  # fmt: skip
        count = find_trail(buf, packet, trail)
        levels = 0
        for header in range(count):
            if trail[header].what == IPV4 or trail[header].what == IPV6:
                levels += 1
                place.ip = trail[header].at
        last = trail[max(count - 1, 0)]
        size = last.at - row.at
        if levels != 1 or last.what != TCP_SEGMENT or size > _LONGEST or last.at + 4 > last.end:
            continue
        place.tcp = last.at
        place.end = last.end
        place.wire = last.wire
        head = np.int64(k) * HEAD
        for byte in range(size + 4):
            heads[np.uintp(head + byte)] = buf[np.uintp(row.at + byte)]
        ip = head + place.ip - row.at
        if buf[np.uintp(place.ip)] >> 4 == 4:
            _fill(heads, ip + 2, ip + 6, 0)
            _fill(heads, ip + 10, ip + 12, 0)
        else:
            _fill(heads, ip + 4, ip + 6, 0)
        heads[np.uintp(head + HEAD - 3)] = row.link_type >> 8
        heads[np.uintp(head + HEAD - 2)] = row.link_type & 0xFF
        heads[np.uintp(head + HEAD - 1)] = size
    return 0


@kernel(np.uint8, PACKET, PLACE, np.uint8, StreamTables, int, np.uint8)
def write_packets(old, packets, places, heads, tables, only_changed, new):  # type: ignore[no-untyped-def]
    """Write the packets that have a flow to `new` (zeros), at their places in `old`. `heads`: HEAD bytes for each flow,
    the new ones. `only_changed`: a packet whose payload is whole and stays is copied."""
    for k in range(len(packets)):
        row, place = packets[k], places[k]
        if place.flow < 0:
            continue
        ip, end = place.ip, row.at + row.captured
        head = place.flow * HEAD - row.at
        for byte in range(row.at, place.tcp):
            new[np.uintp(byte)] = heads[np.uintp(head + byte)]
        is_v4 = old[np.uintp(ip)] >> 4 == 4
        if is_v4:
            _copy(old, new, ip + 2, ip + 6)
            _fill(new, ip + 10, ip + 12, 0)
            _put_checksum(new, ip + 10, _sum(new, ip, place.tcp))
        else:
            _copy(old, new, ip + 4, ip + 6)
        _put_segment(old, new, place, ip + 12 if is_v4 else ip + 8, 4 if is_v4 else 16, row.number, tables)
        if only_changed and place.end == place.wire:
            at = place.end
            if place.tcp + 12 < end:
                at = place.tcp + np.int64(old[np.uintp(place.tcp + 12)] >> 4) * 4
            while at < place.end and new[np.uintp(at)] == old[np.uintp(at)]:
                at += 1
            if at >= place.end:
                _copy(old, new, row.at, end)
    return 0
