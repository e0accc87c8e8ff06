"""Segments that arrive before the bytes in front of them: they are held until these come, or are given up.

A segment waits for the bytes before it in its own direction, and for those of the other direction that it acknowledges:
they were sent before it. Each direction keeps its held segments in a list ordered by offset, which do not overlap.
Their bytes are copied to the held pool. All directions that hold something are in one list, the one that waits longest
first.
"""

from __future__ import annotations

from collections import namedtuple

import numpy as np

from kafkatap.kernels import kernel
from kafkatap.kernels.decorator import helper, inlined
from kafkatap.kernels.table import release_row, rows_in_use, take_row

from .dtypes import CHUNK_GAP, FROM_HELD, LATE_NS, ROW_OPEN
from .stream_tables import StreamTables, add_chunk, add_data

#: A gap is skipped after this time without any acknowledgement, ns.
LONGEST_GAP_NS = 5_000_000_000
#: A gap is skipped when more than this waits behind it.
HELD_BYTES_BEHIND_GAP = 16 * 1024 * 1024
HELD_SEGMENTS_BEHIND_GAP = 16_384

#: The payload of a segment, or a part of it, as scalars (int64): its stream offset, where its captured bytes start, its
#: time and packet, how many bytes of it were captured, how many were on the wire, and its `stamp` (CHUNK).
Payload = namedtuple("Payload", "offset at ts packet captured wire stamp")


@inlined
def stamp_of(segment):  # type: ignore[no-untyped-def]
    """Return the upper half of the TCP time stamp of a SEGMENT, which changes about once in a minute; 0 without one."""
    return (segment.timestamps >> 48) & 0xFFFF


@helper
def cut_front(payload, count):  # type: ignore[no-untyped-def]
    """Return a payload without its first `count` bytes."""
    return Payload(
        payload.offset + count, payload.at + count, payload.ts, payload.packet,
        max(np.int64(0), payload.captured - count), payload.wire - count, payload.stamp,
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
def _emit_first(t, number):  # type: ignore[no-untyped-def]
    """Emit the first held segment of a direction as its next bytes."""
    stream = t.directions[number]
    row = np.int64(stream.held)
    node = t.held[row]
    captured, wire = np.int64(node.captured), np.int64(node.wire)
    stamp = np.int64(node.stamp)
    add_data(t, number, FROM_HELD, Payload(node.offset, node.at, node.ts, node.packet, captured, wire, stamp))
    stream.held_bytes -= wire
    t.state[0].held_bytes -= captured
    stream.held = node.next
    stream.held_count -= 1
    if node.next < 0:
        stream.held_last = -1
        _remove_gap(t, number)
    else:
        stream.held_since = t.held[node.next].ts
    release_row(t.free_held, row)


@helper
def emit_held(t, number):  # type: ignore[no-untyped-def]
    """Emit the held segments of a connection that wait for nothing any more. Bytes of direction `number` came."""
    turn = np.int64(number)
    blocked = 0
    while blocked < 2:
        stream = t.directions[turn]
        blocked += 1
        while stream.held >= 0:
            node = t.held[stream.held]
            if node.offset != stream.next or node.needs > t.directions[turn ^ 1].next:
                break
            _emit_first(t, turn)
            blocked = 1
        turn ^= 1


@helper
def skip_to(t, number, offset, ts, packet):  # type: ignore[no-untyped-def]
    """Emit the next bytes of a direction, up to `offset`, as missing. `ts`, `packet`: of what comes behind the gap."""
    stream = t.directions[number]
    length = offset - stream.next
    add_chunk(t, CHUNK_GAP, number, ts, packet).length = length
    stream.gaps += 1
    stream.gap_bytes += length
    stream.next = offset


@helper
def give_up_first(t, number):  # type: ignore[no-untyped-def]
    """Give up what the first held segment of a direction waits for, and emit what waits for nothing then.

    That is a gap before it, or bytes of the other direction that it acknowledges: these passed uncaptured.
    """
    other = number ^ 1
    stream, acked = t.directions[number], t.directions[other]
    node = t.held[stream.held]
    missing_until = node.needs
    if acked.held >= 0:
        missing_until = min(missing_until, t.held[acked.held].offset)
    if node.offset > stream.next:
        skip_to(t, number, node.offset, node.ts, node.packet)
    elif acked.next < missing_until <= acked.next + HELD_BYTES_BEHIND_GAP:
        skip_to(t, other, missing_until, node.ts, node.packet)
    else:
        node.needs = 0  # an acknowledgement that makes no sense
    emit_held(t, number)


@helper
def _longest_waiting(t, c):  # type: ignore[no-untyped-def]
    """The direction of a connection whose first held segment came first, or -1 if nothing is held."""
    number = np.int64(2 * c)
    one, two = t.directions[number], t.directions[number + 1]
    if one.held < 0:
        return number + 1 if two.held >= 0 else np.int64(-1)
    if two.held < 0:
        return number
    return number if t.held[one.held].packet < t.held[two.held].packet else number + 1


@helper
def give_up_all(t, c):  # type: ignore[no-untyped-def]
    """Emit all that a connection holds."""
    number = _longest_waiting(t, c)
    while number >= 0:
        give_up_first(t, number)
        number = _longest_waiting(t, c)


@helper
def _is_overdue(t, number, ts):  # type: ignore[no-untyped-def]
    """Whether the first held segment of a direction waited long enough, or too much waits behind it."""
    stream = t.directions[number]
    if stream.held_bytes > HELD_BYTES_BEHIND_GAP or stream.held_count > HELD_SEGMENTS_BEHIND_GAP:
        return True
    stream.held_since = min(stream.held_since, ts)  # the clock may step back
    age = ts - stream.held_since
    is_acked = t.held[stream.held].offset <= stream.acked
    return age > (LATE_NS if is_acked else LONGEST_GAP_NS)


@helper
def give_up_overdue(t, c, ts):  # type: ignore[no-untyped-def]
    """Give up what a connection waits for too long."""
    number = _longest_waiting(t, c)
    while number >= 0:
        other = number ^ 1
        if not _is_overdue(t, number, ts):
            if t.directions[other].held < 0 or not _is_overdue(t, other, ts):
                break
            number = other
        give_up_first(t, number)
        number = _longest_waiting(t, c)


@inlined
def give_up_beyond_bounds(t):  # type: ignore[no-untyped-def]
    """Give up what was waited for longest while all connections together hold too much."""
    state = t.state[0]
    while state.held_bytes > state.held_bytes_limit or rows_in_use(t.free_held) > state.held_segments_limit:
        state.gaps_given_up += 1
        give_up_first(t, state.gaps_first)


@helper
def _insert(t, buf, stream, before, after, part, needs):  # type: ignore[no-untyped-def]
    """Hold `part`, which overlaps nothing, between the held segments `before` and `after` (-1: none)."""
    state = t.state[0]
    row = take_row(t.free_held)
    node = t.held[row]
    node.offset = part.offset
    node.needs = needs
    node.ts = part.ts
    node.packet = part.packet
    node.wire = part.wire
    node.captured = part.captured
    node.stamp = part.stamp
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
        stream.held_since = part.ts
    if after < 0:
        stream.held_last = row
    stream.held_count += 1
    stream.held_bytes += part.wire
    return row


@helper
def _hold_new_bytes(t, buf, number, payload, needs):  # type: ignore[no-untyped-def]
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
            part = Payload(rest.offset, rest.at, rest.ts, rest.packet, min(rest.captured, wire), wire, rest.stamp)
            before = _insert(t, buf, stream, before, after, part, needs)
            added += wire
        position = limit
        if after >= 0 and position < end:
            position = min(end, t.held[after].offset + np.int64(t.held[after].wire))
    return added


@helper
def is_held(t, number, offset, end):  # type: ignore[no-untyped-def]
    """Return whether a direction holds all bytes from stream offset `offset` to `end`."""
    stream = t.directions[number]
    row = np.int64(stream.held)
    if row < 0 or t.held[stream.held_last].offset + np.int64(t.held[stream.held_last].wire) < end:
        return False
    while row >= 0 and offset < end:
        node = t.held[row]
        if node.offset > offset:
            return False
        offset = max(offset, node.offset + np.int64(node.wire))
        row = np.int64(node.next)
    return offset >= end


@helper
def _is_behind_gap(t, stream, offset):  # type: ignore[no-untyped-def]
    """Whether bytes of a direction are missing before an offset."""
    if stream.held < 0:
        return offset > stream.next
    last = t.held[stream.held_last]
    return offset > last.offset + np.int64(last.wire) or t.held[stream.held].offset > stream.next


@helper
def hold(t, buf, number, payload, needs):  # type: ignore[no-untyped-def]
    """Hold a payload of direction `number`, and emit what waits for nothing any more.

    `needs`: the offset in the other direction that its segment acknowledges.
    """
    stream = t.directions[number]
    if _is_behind_gap(t, stream, payload.offset):
        stream.out_of_order += 1
    if stream.held < 0:
        _add_gap(t, number)
    added = _hold_new_bytes(t, buf, number, payload, needs)
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
