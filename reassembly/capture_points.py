"""Connections that several capture points saw, such as two hosts: which packets another point carried already.

Bytes are compared, not packets: a sender's offloaded segments never match the packets that a receiver captures. For
each direction and point, one row says how far the point saw the stream: sent, acknowledged and reset. A packet that
brings nothing new is a duplicate if it is new to its own point. If it is not, it is a retransmission or the like, which
each point may see: it counts if its point has then seen more bytes again than any other point.

Rows are used only once packets of more than one point are read. Until then all packets are of point 0.
"""

from __future__ import annotations

import numpy as np

from kafkatap.kernels.decorator import helper

from .dtypes import ACK, FIN, POINTS_KEPT, RST, SYN
from .stream_tables import distance

_NOTHING = -(1 << 62)


@helper
def _sent_end(stream, segment):  # type: ignore[no-untyped-def]
    """Return the offset after a segment's last byte, with its FIN. A SYN ends at the stream's first byte."""
    first = (segment.seq + 1) & 0xFFFFFFFF if segment.tcp_flags & SYN else segment.seq
    end = stream.next + distance(stream, first) + segment.wire
    return end + 1 if segment.tcp_flags & FIN else end


@helper
def _acked_end(other, segment):  # type: ignore[no-untyped-def]
    """Return the offset in the other direction that a segment acknowledges."""
    if other.started == 0 or segment.tcp_flags & ACK == 0:
        return np.int64(_NOTHING)
    return other.next + distance(other, segment.ack)


@helper
def _row_of(t, number, segment):  # type: ignore[no-untyped-def]
    """Return the row of a segment's point in direction `number`, or -1 if there is no room for it.

    A row that begins in the middle of a stream takes over what other points saw repeated until then.
    """
    point = segment.point
    first = number * POINTS_KEPT
    repeated, repeated_empty = np.int64(0), np.int64(0)
    for place in range(first, first + POINTS_KEPT):
        row = t.progress[place]
        if row.point == point + 1:
            return np.int64(place)
        if row.point == 0:
            row.point = point + 1
            row.end = _NOTHING
            row.acked = _NOTHING
            is_start = _sent_end(t.directions[number], segment) <= segment.wire
            row.repeated_bytes = np.int64(0) if is_start else repeated
            row.repeated_empty = np.int64(0) if is_start else repeated_empty
            row.is_reset = 0
            return np.int64(place)
        repeated, repeated_empty = max(repeated, row.repeated_bytes), max(repeated_empty, row.repeated_empty)
    return np.int64(-1)


@helper
def forget_points(t, c):  # type: ignore[no-untyped-def]
    """Empty the rows of connection `c`."""
    for place in range(2 * c * POINTS_KEPT, (2 * c + 2) * POINTS_KEPT):
        t.progress[place].point = 0


@helper
def note_progress(t, number, segment):  # type: ignore[no-untyped-def]
    """Note how far a point has seen direction `number` with this segment."""
    stream = t.directions[number]
    if not stream.started:
        return
    place = _row_of(t, number, segment)
    if place < 0:
        return
    row = t.progress[place]
    row.end = max(row.end, _sent_end(stream, segment))
    row.acked = max(row.acked, _acked_end(t.directions[number ^ 1], segment))
    if segment.tcp_flags & RST:
        row.is_reset = 1


@helper
def _add_repeated(stream, row, segment):  # type: ignore[no-untyped-def]
    """Return whether a segment's first bytes were seen by its point before. Add them if others follow."""
    end = _sent_end(stream, segment) - (1 if segment.tcp_flags & FIN else 0)
    again = segment.wire - (end - row.end)
    if row.end == _NOTHING or again <= 0:
        return False
    if again < segment.wire:
        row.repeated_bytes += again
    return True


@helper
def _is_first_repetition(t, number, mine, segment):  # type: ignore[no-untyped-def]
    """Count a segment that its point saw before; return whether no other point saw as much again."""
    row = t.progress[mine]
    most = np.int64(0)
    for place in range(number * POINTS_KEPT, (number + 1) * POINTS_KEPT):
        other = t.progress[place]
        if other.point != 0:
            most = max(most, other.repeated_bytes if segment.wire > 0 else other.repeated_empty)
    if segment.wire > 0:
        row.repeated_bytes += segment.wire
        return row.repeated_bytes > most
    row.repeated_empty += 1
    return row.repeated_empty > most


@helper
def is_of_other_point(t, number, segment):  # type: ignore[no-untyped-def]
    """Return whether a segment without new bytes is a duplicate of packets of other points."""
    stream = t.directions[number]
    if not stream.started:
        return False
    mine = _row_of(t, number, segment)
    if mine < 0:
        return True
    end, acked = _sent_end(stream, segment), _acked_end(t.directions[number ^ 1], segment)
    if segment.wire > 0:
        acked = np.int64(_NOTHING)
    is_reset = segment.tcp_flags & RST != 0
    known_end, known_acked, known_reset = np.int64(_NOTHING), np.int64(_NOTHING), np.int64(0)
    for place in range(number * POINTS_KEPT, (number + 1) * POINTS_KEPT):
        row = t.progress[place]
        if row.point != 0:
            known_end = max(known_end, row.end)
            known_acked = max(known_acked, row.acked)
            known_reset = max(known_reset, np.int64(row.is_reset))
    if end > known_end or acked > known_acked or (is_reset and known_reset == 0):
        return False
    row = t.progress[mine]
    if end > row.end or acked > row.acked or (is_reset and row.is_reset == 0):
        _add_repeated(stream, row, segment)
        return True
    return not _is_first_repetition(t, number, mine, segment)


@helper
def move_to_duplicates(t, number, segment, retransmitted_bytes, retransmitted_packets):  # type: ignore[no-untyped-def]
    """Count the known bytes of a segment with new ones as duplicate, unless its point had carried them itself.

    `retransmitted_bytes`, `retransmitted_packets`: of the direction before this segment.
    """
    stream = t.directions[number]
    known = stream.retransmitted_bytes - retransmitted_bytes
    place = _row_of(t, number, segment)
    if known == 0:
        if place >= 0 and segment.wire > 0 and _sent_end(stream, segment) <= t.progress[place].end:
            t.progress[place].repeated_bytes += segment.wire  # out of order: other points see the same
        return
    if place >= 0 and _add_repeated(stream, t.progress[place], segment):
        return
    stream.retransmitted_bytes = retransmitted_bytes
    stream.retransmitted_packets = retransmitted_packets
    stream.duplicate_bytes += known
    stream.bytes -= known
