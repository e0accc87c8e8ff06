"""Segments that arrive before the bytes in front of them: they are held until the gap is filled or skipped.

Each direction keeps its held segments in a list ordered by offset, which do not overlap. Their bytes are copied to the
held pool. All directions with a gap are in one list, oldest gap first.
"""

from __future__ import annotations

from collections import namedtuple

import numpy as np

from kafkatap.kernels import kernel
from kafkatap.kernels.decorator import helper, inlined
from kafkatap.kernels.table import release_row, rows_in_use, take_row

from .dtypes import CHUNK_GAP, FROM_HELD, ROW_OPEN
from .stream_tables import StreamTables, add_chunk, add_data

#: A gap is skipped when the other end acknowledged bytes beyond it and this time went by, ns.
ACKED_GAP_NS = 50_000_000
#: A gap is skipped after this time without any acknowledgement, ns.
LONGEST_GAP_NS = 5_000_000_000
#: A gap is skipped when more than this waits behind it.
HELD_BYTES_BEHIND_GAP = 16 * 1024 * 1024
HELD_SEGMENTS_BEHIND_GAP = 16_384

#: The payload of a segment, or a part of it, as scalars (int64): its stream offset, where its captured bytes start, its
#: time and packet, how many bytes of it were captured, and how many were on the wire.
Payload = namedtuple("Payload", "offset at ts packet captured wire")


@helper
def cut_front(payload, count):  # type: ignore[no-untyped-def]
    """Return a payload without its first `count` bytes."""
    return Payload(
        payload.offset + count, payload.at + count, payload.ts, payload.packet,
        max(np.int64(0), payload.captured - count), payload.wire - count,
    )  # fmt: skip


@helper
def _add_gap(t, number):  # type: ignore[no-untyped-def]
    """Append direction `number` to the list of those with a gap."""
    state = t.state[0]
    stream = t.directions[number]
    stream.gap_next = -1
    stream.gap_previous = state.gaps_last
    if state.gaps_last >= 0:
        t.directions[state.gaps_last].gap_next = number
    else:
        state.gaps_first = number
    state.gaps_last = number


@helper
def _remove_gap(t, number):  # type: ignore[no-untyped-def]
    """Remove direction `number` from the list of those with a gap."""
    state = t.state[0]
    stream = t.directions[number]
    if stream.gap_previous >= 0:
        t.directions[stream.gap_previous].gap_next = stream.gap_next
    else:
        state.gaps_first = np.int64(stream.gap_next)
    if stream.gap_next >= 0:
        t.directions[stream.gap_next].gap_previous = stream.gap_previous
    else:
        state.gaps_last = np.int64(stream.gap_previous)


@helper
def emit_held(t, number):  # type: ignore[no-untyped-def]
    """Emit the held segments that are next in line."""
    stream = t.directions[number]
    while stream.held >= 0:
        row = np.int64(stream.held)
        node = t.held[row]
        if node.offset != stream.next:
            break
        captured, wire = np.int64(node.captured), np.int64(node.wire)
        add_data(t, number, FROM_HELD, Payload(node.offset, node.at, node.ts, node.packet, captured, wire))
        stream.held_bytes -= wire
        t.state[0].held_bytes -= captured
        stream.held = node.next
        stream.held_count -= 1
        if node.next < 0:
            stream.held_last = -1
            _remove_gap(t, number)
        release_row(t.free_held, row)


@helper
def skip_gap(t, number, ts):  # type: ignore[no-untyped-def]
    """Emit the first gap of a direction as missing, and what is held behind it."""
    stream = t.directions[number]
    node = t.held[stream.held]
    length = node.offset - stream.next
    add_chunk(t, CHUNK_GAP, number, node.ts, node.packet).length = length
    stream.gaps += 1
    stream.gap_bytes += length
    stream.next = node.offset
    stream.gap_since = ts
    emit_held(t, number)


@helper
def skip_acked_gaps(t, number, ts):  # type: ignore[no-untyped-def]
    """Skip the gaps in front of bytes that the other end acknowledged."""
    stream = t.directions[number]
    while stream.held >= 0 and t.held[stream.held].offset <= stream.acked:
        skip_gap(t, number, ts)


@helper
def skip_overdue_gaps(t, number, ts):  # type: ignore[no-untyped-def]
    """Skip the gaps of a direction that are too old, or behind which too much waits."""
    stream = t.directions[number]
    while stream.held >= 0:
        age = ts - stream.gap_since
        acked_beyond = t.held[stream.held].offset <= stream.acked
        too_much = stream.held_bytes > HELD_BYTES_BEHIND_GAP or stream.held_count > HELD_SEGMENTS_BEHIND_GAP
        if not ((acked_beyond and age > ACKED_GAP_NS) or age > LONGEST_GAP_NS or too_much):
            break
        skip_gap(t, number, ts)


@inlined
def skip_gaps_beyond_bounds(t, ts):  # type: ignore[no-untyped-def]
    """Skip the oldest gaps while all connections together hold too much."""
    state = t.state[0]
    while state.held_bytes > state.held_bytes_limit or rows_in_use(t.free_held) > state.held_segments_limit:
        state.gaps_given_up += 1
        skip_gap(t, state.gaps_first, ts)


@helper
def _insert(t, buf, stream, before, after, part):  # type: ignore[no-untyped-def]
    """Hold `part`, which overlaps nothing, between the held segments `before` and `after` (-1: none)."""
    state = t.state[0]
    row = take_row(t.free_held)
    node = t.held[row]
    node.offset = part.offset
    node.ts = part.ts
    node.packet = part.packet
    node.wire = part.wire
    node.captured = part.captured
    node.at = state.pool_used
    target = state.pool_used
    for k in range(part.captured):
        t.pool[np.uintp(target + k)] = buf[np.uintp(part.at + k)]
    state.pool_used += part.captured
    state.held_bytes += part.captured
    node.next = after
    if before >= 0:
        t.held[before].next = row
    else:
        stream.held = row
    if after < 0:
        stream.held_last = row
    stream.held_count += 1
    stream.held_bytes += part.wire
    return row


@helper
def _hold_new_bytes(t, buf, number, payload):  # type: ignore[no-untyped-def]
    """Hold the bytes of `payload` that are not held yet; return how many those are."""
    stream = t.directions[number]
    added = np.int64(0)
    before = np.int64(-1)
    after = np.int64(stream.held)
    last = np.int64(stream.held_last)
    if last >= 0 and t.held[last].offset + np.int64(t.held[last].wire) <= payload.offset:
        before = last  # the usual case: behind all that is held
        after = np.int64(-1)
    position = payload.offset
    end = payload.offset + payload.wire
    while position < end:
        while after >= 0 and t.held[after].offset + np.int64(t.held[after].wire) <= position:
            before = after
            after = np.int64(t.held[after].next)
        limit = end
        if after >= 0 and t.held[after].offset < end:
            limit = t.held[after].offset
        if limit > position:
            rest = cut_front(payload, position - payload.offset)
            wire = limit - position
            part = Payload(rest.offset, rest.at, rest.ts, rest.packet, min(rest.captured, wire), wire)
            before = _insert(t, buf, stream, before, after, part)
            added += wire
        position = limit
        if after >= 0 and position < end:
            position = min(end, t.held[after].offset + np.int64(t.held[after].wire))
    return added


@helper
def is_held(t, number, offset, end):  # type: ignore[no-untyped-def]
    """Return whether a direction holds all bytes from stream offset `offset` to `end`."""
    row = np.int64(t.directions[number].held)
    while row >= 0 and offset < end:
        node = t.held[row]
        if node.offset > offset:
            return False
        offset = max(offset, node.offset + np.int64(node.wire))
        row = np.int64(node.next)
    return offset >= end


@helper
def hold(t, buf, number, payload):  # type: ignore[no-untyped-def]
    """Hold a payload behind a gap of direction `number`, and emit what is next in line after that."""
    stream = t.directions[number]
    if stream.held < 0:
        stream.gap_since = payload.ts
        _add_gap(t, number)
    if payload.offset > stream.next:
        stream.out_of_order += 1
    added = _hold_new_bytes(t, buf, number, payload)
    stream.retransmitted_bytes += payload.wire - added
    if added == 0:
        stream.retransmitted_packets += 1
    emit_held(t, number)


@helper
def drop_held(t, number):  # type: ignore[no-untyped-def]
    """Drop what direction `number` holds without emitting it."""
    stream = t.directions[number]
    if stream.held >= 0:
        _remove_gap(t, number)
    while stream.held >= 0:
        row = np.int64(stream.held)
        t.state[0].held_bytes -= np.int64(t.held[row].captured)
        stream.held = t.held[row].next
        release_row(t.free_held, row)


@kernel(StreamTables, np.uint8)
def move_held_bytes(t, target):  # type: ignore[no-untyped-def]
    """Copy the bytes of all held segments to `target`, one behind the other; return how many."""
    used = np.int64(0)
    for c in range(t.connections.shape[0]):
        if t.connections[c].used != ROW_OPEN:
            continue
        for d in range(2):
            row = np.int64(t.directions[2 * c + d].held)
            while row >= 0:
                node = t.held[row]
                source = node.at
                for k in range(np.int64(node.captured)):
                    target[np.uintp(used + k)] = t.pool[np.uintp(source + k)]
                node.at = used
                used += np.int64(node.captured)
                row = np.int64(node.next)
    return used
