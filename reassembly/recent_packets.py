"""Duplicates: packets that a capture holds twice, because they crossed several interfaces or were mirrored twice.

The latest packets of all connections lie in one table, which is written round and round. Each row refers to the packet
before it of the same direction. A copy has the id, numbers, window and timestamps of one of these packets. A
retransmission has a new IPv4 id or a later timestamp. Link layers, TTLs and checksums may differ.

Offload may have changed the segments between two interfaces. So a part of an earlier segment is a copy too, if its id
and timestamps fit, and so are several segments joined.

The caller searches only for packets that bring nothing new.
"""

from __future__ import annotations

import numpy as np

from kafkatap.kernels.decorator import helper, inlined
from kafkatap.kernels.readers import signed32

from .dtypes import RST, SYN

#: Rows of the table of recent packets: a power of two.
RECENT_ROWS = 1 << 14
#: A copy comes no later than this, ns.
COPY_NS = 100_000_000
#: The same for packets with neither IPv4 ids nor TCP timestamps, ns: a retransmission takes longer than this.
COPY_WITHOUT_ID_NS = 1_000_000
#: The search ends after so many packets that lie before the copy in sequence, and after so many in all.
_EARLIER_PACKETS, _MOST_PACKETS = 64, 1_024


@inlined
def note_packet(t, stream, segment):  # type: ignore[no-untyped-def]
    """Add a packet to the recent ones. `stream`: the row of its direction."""
    state = t.state[0]
    number = state.recent + 1
    state.recent = number
    row = t.recent[np.uintp(number & (RECENT_ROWS - 1))]
    row.ts = segment.ts
    row.previous = stream.recent
    row.timestamps = segment.timestamps
    row.seq = segment.seq
    row.ack = segment.ack
    row.wire = segment.wire
    row.window = segment.window
    row.ip_id = segment.ip_id
    row.tcp_flags = segment.tcp_flags
    stream.recent = number


@helper
def _is_copy_of(segment, row, offset):  # type: ignore[no-untyped-def]
    """Return whether a segment is a copy of the packet in `row`, or of a part of it that begins at `offset`."""
    has_id = segment.ip_id != 0 or segment.timestamps != 0
    if not has_id and segment.tcp_flags & RST == 0 and abs(segment.ts - row.ts) > COPY_WITHOUT_ID_NS:
        return False
    if segment.ack != row.ack or segment.window != row.window or segment.timestamps != row.timestamps:
        return False
    flags = np.int64(row.tcp_flags)
    ids = (segment.ip_id - np.int64(row.ip_id)) & 0xFFFF
    if offset == 0 and segment.wire == row.wire:
        return ids == 0 and segment.tcp_flags == flags
    if segment.wire == 0 or not has_id or (segment.tcp_flags ^ flags) & (SYN | RST) != 0:
        return False
    if offset == 0 or segment.ip_id == 0:
        return ids == 0
    # The parts of an offloaded segment have ids that rise by one, and the same size, except for the last one.
    if ids == 0 or segment.wire == 1:  # the last byte again: a keep-alive
        return False
    return offset % ids == 0 and segment.wire <= offset // ids


@helper
def _has_duplicates(t, number):  # type: ignore[no-untyped-def]
    """Return whether the connection of direction `number` has duplicates."""
    return t.directions[number].duplicate_packets + t.directions[number ^ 1].duplicate_packets > 0


@helper
def is_copy(t, number, segment):  # type: ignore[no-untyped-def]
    """Return whether a segment of direction `number` is a copy of a recent packet.

    Linux sends RSTs without an id, and equal ones for several segments. So the copy of one counts only if its
    connection has other duplicates.
    """
    if segment.tcp_flags & RST != 0 and segment.ip_id == 0 and not _has_duplicates(t, number):
        return False
    gone = max(np.int64(0), t.state[0].recent - RECENT_ROWS)
    at = t.directions[number].recent
    earlier = 0
    for _ in range(_MOST_PACKETS):
        if at <= gone or earlier == _EARLIER_PACKETS:
            break
        row = t.recent[np.uintp(at & (RECENT_ROWS - 1))]
        if segment.ts - row.ts > COPY_NS:
            break
        offset = signed32((segment.seq - row.seq) & 0xFFFFFFFF)
        if 0 <= offset < max(np.int64(row.wire), np.int64(1)) and _is_copy_of(segment, row, offset):
            return True
        if offset > 0 or (offset == 0 and signed32((segment.ack - row.ack) & 0xFFFFFFFF) > 0):
            earlier += 1
        at = row.previous
    return False


@helper
def count_duplicate(t, stream, segment):  # type: ignore[no-untyped-def]
    """Count a segment as a duplicate. `stream`: the row of its direction."""
    stream.duplicate_packets += 1
    stream.duplicate_bytes += segment.wire
    t.duplicates[max(np.int64(0), min(segment.point, t.duplicates.shape[0] - 1))] += 1
