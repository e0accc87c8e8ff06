"""Packets to chunks in one pass: each packet goes from its record's header to its chunk while it is in the cache.

The usual way to read one capture. Several captures in time order, and runs that select segments, need the rows in
between: packets (`scanner`), segments (`segments`), then chunks (`streams`). Both ways use the same helpers, so that
they make the same chunks.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kafkatap.kernels import kernel
from kafkatap.kernels.decorator import helper, inlined
from kafkatap.kernels.hints import prefetch

from .dtypes import FROM_BLOCK
from .flows import flows_full
from .headers import read_datagram, read_quoted, read_segment, tcp_category
from .inner_packets import ROOM, read_inner
from .listeners import listeners_full
from .packet_counts import TCP
from .packet_tables import PacketTables
from .pcap import A_PACKET, SCAN_ENDED, SCAN_FULL, SCAN_NOTED, SCAN_STATE, pcap_format, read_record
from .pcapng import INTERFACE, SMALLEST_BLOCK, read_block
from .shards import EVERYONE, SHARED_RECORD, SHARED_STATE, is_foreign, note_foreign
from .stream_tables import ASSEMBLED, FLOWS_FULL, LISTENERS_FULL, full_table
from .streams import assemble_segment, assemble_usual, note_unreachable

Array = np.ndarray[Any, Any]
#: Bytes of a cache line. A record's header and most of its packet's headers lie in two lines.
_LINE = 64
#: Packets that are fetched before they are read, where it is known which ones follow.
_AHEAD = 6


@helper
def _assemble_inner(buf, packet, t):  # type: ignore[no-untyped-def]
    """Do as `assemble_packet` for a packet whose TCP is not in the usual place."""
    if flows_full(t.flows):
        return FLOWS_FULL
    full = full_table(t.streams, packet.captured + ROOM)
    if full != ASSEMBLED:
        return full
    inner = read_inner(buf, packet, t)
    h = t.headers[0]
    data = t.streams.pool if inner.source != FROM_BLOCK else buf
    if inner.is_quoted and not is_foreign(data, inner.datagram, h):
        note_unreachable(t.streams, read_quoted(data, packet, inner.datagram, t.flows))
    if inner.category == TCP and is_foreign(data, inner.datagram, h):
        note_foreign(data, inner.datagram, t.streams)
        return ASSEMBLED
    if inner.category == TCP:
        segment = read_segment(data, inner.packet, inner.datagram, inner.source, t.flows)
        if not assemble_usual(t.streams, data, segment):
            assemble_segment(t.streams, data, segment)
        h.payload_bytes += segment.wire
    if inner.category >= 0:
        h.packets[inner.category] += inner.packets
    return ASSEMBLED


@inlined
def assemble_packet(buf, packet, t):  # type: ignore[no-untyped-def]
    """Count a packet (`Packet`), whose bytes lie in `buf`, and add its payload to its stream.

    Returns ASSEMBLED, or which table of `t` is full: then the packet was not read.
    """
    h = t.headers[0]
    datagram = read_datagram(buf, packet)
    if datagram.is_usual != 0 and tcp_category(buf, packet, datagram) == TCP:
        if is_foreign(buf, datagram, h):
            if listeners_full(t.streams.listeners):
                return LISTENERS_FULL
            note_foreign(buf, datagram, t.streams)
        else:
            if flows_full(t.flows):
                return FLOWS_FULL
            segment = read_segment(buf, packet, datagram, np.int64(FROM_BLOCK), t.flows)
            if not assemble_usual(t.streams, buf, segment):
                full = full_table(t.streams, segment.wire)
                if full != ASSEMBLED:
                    return full
                assemble_segment(t.streams, buf, segment)
            h.payload_bytes += segment.wire
            h.packets[TCP] += 1
    else:
        full = _assemble_inner(buf, packet, t)
        if full != ASSEMBLED:
            return full
    h.read += 1
    h.captured += packet.captured
    h.empty += packet.captured == 0
    h.first = min(h.first, packet.ts)
    h.last = max(h.last, packet.ts)
    return ASSEMBLED


@kernel(np.uint8, int, int, SCAN_STATE, INTERFACE, PacketTables)
def assemble_records(buf, start, end, state, interfaces, t):  # type: ignore[no-untyped-def]
    """Turn the packets of the records in buf[start:end] into chunks; return ASSEMBLED, or which table is full.

    `state.position` is the first record that was not read, and `state.status` says why: SCAN_FULL if a table is full,
    or `interfaces` (then ASSEMBLED is returned). SCAN_NOTED: the record before it has something for the caller.
    """
    s = state[0]
    f = pcap_format(s)
    is_pcapng = f.header == 0
    at = start
    status = SCAN_ENDED
    stopped = ASSEMBLED
    last = min(end - (SMALLEST_BLOCK if is_pcapng else f.header), s.stop - 1)
    while at <= last:
        number = s.next_number
        record = read_block(buf, at, end, s, interfaces) if is_pcapng else read_record(buf, at, end, f, number)
        if record.kind < A_PACKET:
            status = record.kind
            if status == SCAN_NOTED:
                at = record.end
            break
        if record.kind == A_PACKET:
            prefetch(buf, record.end)
            prefetch(buf, record.end + _LINE)
            stopped = assemble_packet(buf, record.packet, t)
            if stopped != ASSEMBLED:
                status = SCAN_FULL
                break
            s.next_number += 1
        at = record.end
    s.position = at
    s.status = status
    return stopped


@kernel(np.uint8, int, SHARED_RECORD, SHARED_STATE, SCAN_STATE, INTERFACE, PacketTables)
def assemble_shared(buf, end, records, shared, state, interfaces, t):  # type: ignore[no-untyped-def]
    """Do as `assemble_records` for records that `share_records` found, and look at those of this engine only.

    `state.record` is the first one that was not read.
    """
    s = state[0]
    h = t.headers[0]
    f = pcap_format(s)
    is_pcapng = f.header == 0
    status = SCAN_ENDED
    stopped = ASSEMBLED
    h.first = min(h.first, shared[0].first)
    h.last = max(h.last, shared[0].last)
    i = s.record
    ahead = i
    window = _AHEAD * h.shards
    while i < records.shape[0]:
        while ahead < records.shape[0] and ahead < i + window:
            if np.int64(records[ahead].owner) == h.shard:
                prefetch(buf, np.int64(records[ahead].at))
                prefetch(buf, np.int64(records[ahead].at) + _LINE)
            ahead += 1
        owner = np.int64(records[i].owner)
        if owner != EVERYONE and owner != h.shard:
            s.next_number += 1
            t.streams.state[0].recent += 1
            h.read += 1
            i += 1
            continue
        at = np.int64(records[i].at)
        number = s.next_number
        record = read_block(buf, at, end, s, interfaces) if is_pcapng else read_record(buf, at, end, f, number)
        s.position = at
        if record.kind < A_PACKET:
            status = record.kind
            if status == SCAN_NOTED:
                s.position = record.end
                i += 1
            break
        if record.kind == A_PACKET:
            stopped = assemble_packet(buf, record.packet, t)
            if stopped != ASSEMBLED:
                status = SCAN_FULL
                break
            s.next_number += 1
        s.position = record.end
        i += 1
    if i == records.shape[0] and status == SCAN_ENDED:
        s.position = shared[0].end
    s.record = i
    s.status = status
    return stopped
