"""Packets to segments: PACKET rows in, SEGMENT rows out, for runs that select segments before they assemble them."""

from __future__ import annotations

import numpy as np

from kafkatap.kernels import kernel
from kafkatap.kernels.decorator import inlined

from .dtypes import FROM_BLOCK, PACKET, SEGMENT, Packet
from .flows import flows_full
from .headers import read_datagram, read_quoted, read_segment, tcp_category
from .inner_packets import read_inner, room_for_datagrams
from .listeners import listeners_full
from .packet_counts import TCP
from .packet_tables import PacketTables
from .shards import is_foreign, note_foreign
from .stream_tables import ASSEMBLED, FLOWS_FULL, LISTENERS_FULL


@inlined
def _packet_of(row):  # type: ignore[no-untyped-def]
    """Return a PACKET row as scalars."""
    return Packet(
        row.ts, row.number, row.at, np.int64(row.captured), np.int64(row.original), np.int64(row.link_type),
        np.int64(row.point),
    )  # fmt: skip


@inlined
def _write_segment(row, segment):  # type: ignore[no-untyped-def]
    """Write a segment to a SEGMENT row."""
    row.ts = segment.ts
    row.packet = segment.packet
    row.at = segment.at
    row.seq = segment.seq
    row.ack = segment.ack
    row.timestamps = segment.timestamps
    row.flow = segment.flow
    row.captured = segment.captured
    row.wire = segment.wire
    row.window = segment.window
    row.ip_id = segment.ip_id
    row.point = segment.point
    row.tcp_flags = segment.tcp_flags
    row.direction = segment.direction
    row.source = segment.source
    row.options = segment.options


@kernel(np.uint8, PACKET, int, int, PacketTables, SEGMENT)
def read_segments(buf, packets, first, count, t, segments):  # type: ignore[no-untyped-def]
    """Turn packets[first:count], or as many as there is room for, into segments[0:state.segments].

    Returns the first packet that was not read. `state.stopped`: ASSEMBLED, or which table is full.
    """
    s = t.headers[0]
    stopped = ASSEMBLED
    made = 0
    i = first
    while i < count and made < segments.shape[0]:
        if flows_full(t.flows):
            stopped = FLOWS_FULL
            break
        if s.shards > 1 and listeners_full(t.streams.listeners):
            stopped = LISTENERS_FULL
            break
        packet = _packet_of(packets[i])
        datagram = read_datagram(buf, packet)
        is_usual = datagram.is_usual != 0 and tcp_category(buf, packet, datagram) == TCP
        if is_usual and is_foreign(buf, datagram, s):
            note_foreign(buf, datagram, t.streams)
        elif is_usual:
            segment = read_segment(buf, packet, datagram, np.int64(FROM_BLOCK), t.flows)
            _write_segment(segments[made], segment)
            s.payload_bytes += segment.wire
            made += 1
            s.packets[TCP] += 1
        else:
            stopped = room_for_datagrams(t)
            if stopped != ASSEMBLED:
                break
            inner = read_inner(buf, packet, t)
            data = t.streams.pool if inner.source != FROM_BLOCK else buf
            if inner.is_quoted and not is_foreign(data, inner.datagram, s):
                _write_segment(segments[made], read_quoted(data, packet, inner.datagram, t.flows))
                made += 1
            if inner.category == TCP and is_foreign(data, inner.datagram, s):
                note_foreign(data, inner.datagram, t.streams)
            elif inner.category == TCP:
                segment = read_segment(data, inner.packet, inner.datagram, inner.source, t.flows)
                _write_segment(segments[made], segment)
                s.payload_bytes += segment.wire
                made += 1
                s.packets[TCP] += inner.packets
            elif inner.category >= 0:
                s.packets[inner.category] += inner.packets
        i += 1
    s.segments = made
    s.stopped = stopped
    return i
