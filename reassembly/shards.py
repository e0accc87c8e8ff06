"""Connections shared out to several engines. Each sees all packets, and assembles those of its own connections.

The ends of a connection say which engine has it. Of the packets of others, an engine notes only which end listens, and
that they came: so it decides as one engine does that has all connections. `share_records` finds the records of a block,
so that the engines need not read those of others.
"""

from __future__ import annotations

import numpy as np

from kafkatap.kernels import kernel
from kafkatap.kernels.decorator import helper, inlined, record_dtype
from kafkatap.kernels.hints import prefetch
from kafkatap.kernels.readers import be32

from .dtypes import ACK, SYN
from .headers import read_datagram, tcp_category
from .listeners import add_end
from .packet_counts import TCP
from .pcap import A_PACKET, SCAN_ENDED, SCAN_FULL, SCAN_NOTED, SCAN_STATE, pcap_format, read_record
from .pcapng import INTERFACE, SMALLEST_BLOCK, read_block

#: A record in a block. `at`: where it begins. `owner`: the engine that reads it; EVERYONE: all of them.
SHARED_RECORD = record_dtype(("at", "i4"), ("owner", "i4"))
EVERYONE = -1
#: What engines have to know of such records. `first`, `last`: the times of their packets, ns. `begin`, `end`: of all.
SHARED_STATE = record_dtype(("first", "i8"), ("last", "i8"), ("begin", "i8"), ("end", "i8"))

#: Odd numbers of 63 bits with about as many ones as zeros, by which ends are mixed.
_A, _B, _C = 0x1E3779B97F4A7C15, 0x4F6CDD1D7B5A2E93, 0x2545F4914F6CDD1D


@inlined
def _owner(buf, d, shards):  # type: ignore[no-untyped-def]
    """Return which of so many engines has the connection of a datagram with TCP."""
    ports = be32(buf, d.at)
    source = (d.source_low ^ (d.source_high * _C)) * _A + (ports >> 16) * _B
    target = (d.target_low ^ (d.target_high * _C)) * _A + (ports & 0xFFFF) * _B
    mixed = ((source ^ (source >> 31)) * _C) ^ ((target ^ (target >> 31)) * _C)  # the same for both directions
    mixed = (mixed ^ (mixed >> 29)) * _A
    return ((mixed >> 33) & 0x3FFFFFFF) % shards


@inlined
def is_foreign(buf, d, counts):  # type: ignore[no-untyped-def]
    """Return whether another engine has the connection of a datagram with TCP. `counts`: a row of PACKETS_STATE."""
    return counts.shards > 1 and _owner(buf, d, counts.shards) != counts.shard


@inlined
def _answers_syn(buf, d):  # type: ignore[no-untyped-def]
    return buf[np.uintp(d.at + 13)] & (SYN | ACK) == SYN | ACK


@helper
def note_foreign(buf, d, streams):  # type: ignore[no-untyped-def]
    """Note a packet of another engine's connection, for which there is room (`listeners_full`)."""
    streams.state[0].recent += 1
    if _answers_syn(buf, d):
        add_end(streams.listeners, d.source_high, d.source_low, be32(buf, d.at) >> 16)


@kernel(np.uint8, int, int, SCAN_STATE, INTERFACE, int, SHARED_RECORD, SHARED_STATE)
def share_records(buf, start, end, state, interfaces, shards, records, shared):  # type: ignore[no-untyped-def]
    """Write the records in buf[start:end], and which of so many engines reads each; return how many there are.

    They are behind those in `records[:state.record]`. `state.position` is the first one that is left, and
    `state.status` says why: SCAN_FULL if `records` or `interfaces` are full, else as of `scan_pcap`. SYNs that are
    answered, and all that is no usual TCP, are for all engines.
    """
    s = state[0]
    f = pcap_format(s)
    is_pcapng = f.header == 0
    at = start
    status = SCAN_ENDED
    count = s.record
    last = end - (SMALLEST_BLOCK if is_pcapng else f.header)
    while at <= last:
        if count == records.shape[0]:
            status = SCAN_FULL
            break
        record = read_block(buf, at, end, s, interfaces) if is_pcapng else read_record(buf, at, end, f, np.int64(0))
        if record.kind < A_PACKET and record.kind != SCAN_NOTED:
            status = record.kind
            break
        owner = np.int64(EVERYONE)
        if record.kind == A_PACKET:
            prefetch(buf, record.end)
            prefetch(buf, record.end + 64)
            packet = record.packet
            shared[0].first = min(shared[0].first, packet.ts)
            shared[0].last = max(shared[0].last, packet.ts)
            datagram = read_datagram(buf, packet)
            is_usual = datagram.is_usual != 0 and tcp_category(buf, packet, datagram) == TCP
            if is_usual and not _answers_syn(buf, datagram):
                owner = _owner(buf, datagram, shards)
        records[count].at = at
        records[count].owner = owner
        count += 1
        at = record.end
    s.position = at
    s.status = status
    s.record = count
    shared[0].end = at
    return count
