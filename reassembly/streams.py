"""Segments to chunks: TCP in sequence space, one packet after another, so that no block boundary can change a result.

Each direction gives out its bytes in order, from offset 0 on, each byte once: the first copy that was read wins, and
carries its packet's time. A segment beyond the next expected byte is held (its bytes copied to the held pool). What is
missing before it becomes a HOLE when it is known not to come any more:

* the other end answers with data and acknowledges bytes beyond the gap (it has them, so they passed unrecorded),
* they were acknowledged and PATIENCE_NS went by, or IMPATIENCE_NS without any acknowledgement,
* more than HELD_LIMIT bytes or HELD_SEGMENTS segments wait behind it, or the connection or the input ends,
* all connections together hold too much (`Bounds.held_bytes`, `held_segments`), and no gap is older.

A SYN with another sequence number, or a segment REST_NS after the close, starts a new connection on the same 4-tuple;
segments of the old one that are still under way go to it as long as its sequence numbers are the nearer ones.

Memory is bounded by the number of connections too (`Bounds`). A connection is over, and its next segment starts a new
one, when `closed` others were closed after it, when `syns` others began after a SYN that nothing followed, or when
`idle` others began after its last segment. These rules count connections, not time or blocks, so that the same packets
always give the same connections.

Who opened a connection is told by its SYN or SYN-ACK; where neither was captured, by an end that answered the SYN of
another connection (`listeners`).
"""

from __future__ import annotations

import numpy as np

from kafkatap.kernels import kernel
from kafkatap.kernels.decorator import helper
from kafkatap.kernels.readers import signed32
from kafkatap.kernels.table import rows_left, take_row

from .dtypes import (
    ACK,
    CHUNK,
    CONNECTION,
    DATA,
    DIRECTION,
    END,
    FIN,
    FLOW,
    FROM_BLOCK,
    FROM_HELD,
    HELD,
    HOLE,
    LISTENER,
    RST,
    SEGMENT,
    START,
    SYN,
)
from .listeners import known_client, listeners_full, note_listener

PATIENCE_NS = 50_000_000
IMPATIENCE_NS = 5_000_000_000
HELD_LIMIT = 16 * 1024 * 1024
HELD_SEGMENTS = 16_384
REST_NS = 5_000_000_000
#: A segment farther than this from the expected byte is not of this connection (windows end at 1 GiB).
FAR = 1 << 30
#: Farther than this, an older connection of the same 4-tuple is asked first.
DOUBTFUL = 1 << 26

#: State (int64) of the kernels; `listeners` has the first two places. HELD_AT is where the pool is written next;
#: HELD_BYTES and HELD_USED are what is held of all connections, in bytes and segments; GAPS_FIRST and GAPS_LAST the
#: directions with a gap, in the order in which their gaps began (-1: none). The last five are bounds (`rows.Bounds`).
(
    CHUNKS, NEXT_SERIAL, CLOSED, HELD_AT, HELD_BYTES, HELD_USED, FREE_HELD, GAPS_FIRST, GAPS_LAST, STOPPED,
    CLOSED_KEPT, SYN_KEPT, IDLE_KEPT, HELD_LIMIT_ALL, HELD_SEGMENTS_ALL,
) = range(2, 17)  # fmt: skip
STATE_SIZE = 17
DONE, CHUNKS_FULL, CONNECTIONS_FULL, HELD_FULL, POOL_FULL, LISTENERS_FULL = range(6)


@helper
def _emit(chunks, state, kind, connection, direction, source, at, ts, packet, captured, length):  # type: ignore[no-untyped-def]
    chunk = chunks[state[CHUNKS]]
    state[CHUNKS] += 1
    chunk.kind = kind
    chunk.connection = connection
    chunk.direction = direction
    chunk.source = source
    chunk.at = at
    chunk.ts = ts
    chunk.packet = packet
    chunk.captured = captured
    chunk.length = length


@helper
def _give(chunks, state, way, c, d, source, at, ts, packet, captured, length):  # type: ignore[no-untyped-def]
    """Give out the next `length` bytes of a direction."""
    _emit(chunks, state, DATA, c, d, source, at, ts, packet, captured, length)
    way.next += length
    way.delivered = 1
    way.cut_bytes += length - captured


@helper
def _gap_began(directions, state, number):  # type: ignore[no-untyped-def]
    """Direction `number` waits for missing bytes from now on."""
    way = directions[number]
    way.gap_next = -1
    way.gap_previous = state[GAPS_LAST]
    if state[GAPS_LAST] >= 0:
        directions[state[GAPS_LAST]].gap_next = number
    else:
        state[GAPS_FIRST] = number
    state[GAPS_LAST] = number


@helper
def _gap_ended(directions, state, number):  # type: ignore[no-untyped-def]
    """Direction `number` waits no longer."""
    way = directions[number]
    if way.gap_previous >= 0:
        directions[way.gap_previous].gap_next = way.gap_next
    else:
        state[GAPS_FIRST] = np.int64(way.gap_next)
    if way.gap_next >= 0:
        directions[way.gap_next].gap_previous = way.gap_previous
    else:
        state[GAPS_LAST] = np.int64(way.gap_previous)


@helper
def _drain(chunks, state, directions, c, d, held):  # type: ignore[no-untyped-def]
    """Give out held segments that have become next in line."""
    way = directions[2 * c + d]
    while way.held >= 0:
        node = held[way.held]
        if node.offset != way.next:
            break
        captured, wire = np.int64(node.captured), np.int64(node.wire)
        _give(chunks, state, way, c, d, FROM_HELD, node.at, node.ts, node.packet, captured, wire)
        way.held_bytes -= wire
        state[HELD_BYTES] -= captured
        number = np.int64(way.held)
        way.held = node.next
        way.held_count -= 1
        if node.next < 0:
            way.held_last = -1
            _gap_ended(directions, state, 2 * c + d)
        node.next = state[FREE_HELD]
        state[FREE_HELD] = number
        state[HELD_USED] -= 1


@helper
def _skip_gap(chunks, state, directions, c, d, held, ts):  # type: ignore[no-untyped-def]
    """Give the first gap up as a gap and go on behind it."""
    way = directions[2 * c + d]
    node = held[way.held]
    length = node.offset - way.next
    _emit(chunks, state, HOLE, c, d, FROM_BLOCK, 0, node.ts, node.packet, 0, length)
    way.gaps += 1
    way.gap_bytes += length
    way.next = node.offset
    way.gap_since = ts
    _drain(chunks, state, directions, c, d, held)


@helper
def _hold(buf, pool, state, way, held, offset, at, ts, packet, captured, wire):  # type: ignore[no-untyped-def]
    """Keep what is new of [offset, offset + wire): fill the gaps between what is held already."""
    added = np.int64(0)
    before = np.int64(-1)
    after = np.int64(way.held)
    last = np.int64(way.held_last)
    if last >= 0 and held[last].offset + np.int64(held[last].wire) <= offset:
        before = last  # the usual case: behind all that is held
        after = np.int64(-1)
    position = offset
    end = offset + wire
    while position < end:
        while after >= 0 and held[after].offset + np.int64(held[after].wire) <= position:
            before = after
            after = np.int64(held[after].next)
        limit = end
        if after >= 0 and held[after].offset < end:
            limit = held[after].offset
        if limit > position:
            number = state[FREE_HELD]
            node = held[number]
            state[FREE_HELD] = np.int64(node.next)
            state[HELD_USED] += 1
            node.offset = position
            node.ts = ts
            node.packet = packet
            node.wire = limit - position
            have = max(np.int64(0), min(limit - offset, captured) - (position - offset))
            node.captured = have
            node.at = state[HELD_AT]
            source = at + (position - offset)
            target = state[HELD_AT]
            for k in range(have):
                pool[np.uintp(target + k)] = buf[np.uintp(source + k)]
            state[HELD_AT] += have
            state[HELD_BYTES] += have
            node.next = after
            if before >= 0:
                held[before].next = number
            else:
                way.held = number
            if after < 0:
                way.held_last = number
            way.held_count += 1
            before = number
            added += limit - position
        position = limit
        if after >= 0 and position < end:
            position = min(end, held[after].offset + np.int64(held[after].wire))
    way.held_bytes += added
    return added


@helper
def _close(row, state, ts):  # type: ignore[no-untyped-def]
    """Nothing but late segments comes of this connection any more."""
    row.closed_at = ts
    row.closed_number = state[CLOSED]
    state[CLOSED] += 1


@helper
def _is_past(row, state):  # type: ignore[no-untyped-def]
    """Whether a connection is over because so many others came after it."""
    if row.closed_at != 0 and state[CLOSED] - row.closed_number > state[CLOSED_KEPT]:
        return True
    if row.only_syn and state[NEXT_SERIAL] - row.serial > state[SYN_KEPT]:
        return True
    return state[NEXT_SERIAL] - row.last_serial > state[IDLE_KEPT]


@helper
def _open(connections, directions, flows, chunks, state, c, flow, ts, packet, client, known):  # type: ignore[no-untyped-def]
    """Make connection `c` the one that uses `flow`."""
    row = connections[c]
    row.serial = state[NEXT_SERIAL]
    state[NEXT_SERIAL] += 1
    row.first = ts
    row.last = ts
    row.closed_at = 0
    row.syn_at = 0
    row.syn_ack_at = 0
    row.handshake_rtt_ns = -1
    row.packets = 0
    row.first_packet = packet
    row.flow = flow
    row.previous = flows[flow].connection
    if row.previous >= 0:
        older = connections[row.previous]
        # Its end was not captured. (One that is past may be gone already, so it never counts as closed now.)
        if older.closed_at == 0 and not _is_past(older, state):
            _close(older, state, ts)
    row.client = client if known != 0 else -1
    row.used = 1
    row.reset_by = -1
    row.only_syn = 1  # as long as nothing else comes
    flows[flow].connection = c
    for d in range(2):
        way = directions[2 * c + d]
        way.base_seq = 0
        way.next = 0
        way.acked = 0
        way.fin = -1
        way.gap_since = 0
        way.held_bytes = 0
        way.packets = 0
        way.bytes = 0
        way.retransmitted_packets = 0
        way.retransmitted_bytes = 0
        way.out_of_order = 0
        way.gap_bytes = 0
        way.cut_bytes = 0
        way.stray_bytes = 0
        way.held = -1
        way.held_last = -1
        way.held_count = 0
        way.gaps = 0
        way.zero_windows = 0
        way.started = 0
        way.delivered = 0
    _emit(chunks, state, START, c, client, FROM_BLOCK, row.serial, ts, packet, known, 0)


@helper
def _distance(way, seq):  # type: ignore[no-untyped-def]
    """Stream bytes from the expected one to `seq`; signed, at most 2^31."""
    return signed32((seq - way.base_seq - way.next) & 0xFFFFFFFF)


@helper
def _starts_anew(row, way, segment, state):  # type: ignore[no-untyped-def]
    """Whether a segment belongs to a new connection on this 4-tuple."""
    if (row.closed_at != 0 and segment.ts - row.closed_at > REST_NS) or _is_past(row, state):
        return True
    if segment.tcp_flags & SYN == 0 or segment.tcp_flags & RST != 0:
        return False
    if way.started:
        # A SYN sent again has the same number; data may have moved `next` on since.
        return (segment.seq + 1 - way.base_seq) & 0xFFFFFFFF != 0
    return segment.tcp_flags & ACK == 0 and row.packets > 0


@helper
def _bound_held(chunks, state, directions, held, ts):  # type: ignore[no-untyped-def]
    """Give up the oldest gaps while all connections together hold too much behind theirs."""
    while state[HELD_BYTES] > state[HELD_LIMIT_ALL] or state[HELD_USED] > state[HELD_SEGMENTS_ALL]:
        number = state[GAPS_FIRST]
        _skip_gap(chunks, state, directions, number >> 1, number & 1, held, ts)


@kernel(np.uint8, SEGMENT, int, int, np.int64, FLOW, CONNECTION, DIRECTION, HELD, np.uint8, np.int32, LISTENER, CHUNK)
def assemble(buf, segments, first, count, state, flows, connections, directions, held, pool, free, listeners, chunks):  # type: ignore[no-untyped-def]
    """Turn segments[first:count] into chunks; return the first segment not taken (see state[STOPPED])."""
    state[STOPPED] = DONE
    i = first
    while i < count:
        segment = segments[i]
        wire = np.int64(segment.wire)
        # Room for the worst case of one segment: all that is held, a start, pieces and gaps between them.
        if state[CHUNKS] + 2 * state[HELD_USED] + 8 > chunks.shape[0]:
            state[STOPPED] = CHUNKS_FULL
            break
        if state[HELD_USED] * 2 + 4 > held.shape[0]:
            state[STOPPED] = HELD_FULL
            break
        if state[HELD_AT] + wire > pool.shape[0]:
            state[STOPPED] = POOL_FULL
            break
        if rows_left(free) == 0:
            state[STOPPED] = CONNECTIONS_FULL
            break
        if listeners_full(listeners, state):
            state[STOPPED] = LISTENERS_FULL
            break
        i += 1
        ts = segment.ts
        d = np.int64(segment.direction)
        flow = np.int64(segment.flow)
        flags = segment.tcp_flags
        c = np.int64(flows[flow].connection)
        if c < 0 or _starts_anew(connections[c], directions[2 * c + d], segment, state):
            c = take_row(free)
            known = np.int64(1) if flags & SYN else np.int64(0)
            client = 1 - d if flags & ACK else d
            if known == 0:
                client = known_client(listeners, flows[flow], state)
                known = np.int64(2) if client >= 0 else np.int64(0)
            _open(connections, directions, flows, chunks, state, c, flow, ts, segment.packet, max(client, 0), known)
        elif (
            wire > 0
            and flags & SYN == 0
            and connections[c].previous >= 0
            and (directions[2 * c + d].started == 0 or abs(_distance(directions[2 * c + d], segment.seq)) > DOUBTFUL)
        ):
            older = np.int64(connections[c].previous)
            before = directions[2 * older + d]
            under_way = connections[older].used == 1 and ts - connections[older].closed_at <= REST_NS
            under_way = under_way and not _is_past(connections[older], state)
            if under_way and before.started and abs(_distance(before, segment.seq)) <= DOUBTFUL:
                c = older
        row = connections[c]
        way = directions[2 * c + d]
        other = directions[2 * c + 1 - d]
        if ts > row.last:
            row.last = ts
        row.last_serial = state[NEXT_SERIAL]
        if flags & (SYN | ACK | RST) != SYN or wire > 0:
            row.only_syn = 0
        row.packets += 1
        way.packets += 1
        way.bytes += wire
        if segment.window == 0 and flags & (RST | SYN) == 0:
            way.zero_windows += 1
        seq = segment.seq
        if flags & SYN:
            if way.started == 0:
                way.base_seq = (seq + 1) & 0xFFFFFFFF
                way.started = 1
            if flags & ACK == 0:
                row.syn_at = ts
            else:
                row.syn_ack_at = ts
                note_listener(listeners, flows[flow], d, state)
            seq = (seq + 1) & 0xFFFFFFFF
        elif way.started == 0 and flags & RST == 0:
            way.base_seq = seq
            way.started = 1
        if flags & ACK and flags & RST == 0:
            if row.handshake_rtt_ns < 0 and row.syn_at != 0 and row.syn_ack_at != 0 and d == row.client:
                # SYN to SYN-ACK plus SYN-ACK to ACK: the whole round trip wherever the capture stands
                row.handshake_rtt_ns = max(np.int64(0), ts - row.syn_at)
            if other.started:
                acked = other.next + _distance(other, segment.ack)
                if acked > other.acked and acked - other.next < FAR:
                    other.acked = acked
                if other.held >= 0 and wire > 0:
                    while other.held >= 0 and held[other.held].offset <= other.acked:
                        _skip_gap(chunks, state, directions, c, 1 - d, held, ts)
        if wire > 0 and not way.started:
            way.stray_bytes += wire  # a reset with payload, before anything else
        elif wire > 0:
            offset = way.next + _distance(way, seq)
            if way.delivered == 0 and way.held < 0 and row.syn_at == 0 and row.syn_ack_at == 0 and offset > way.next:
                way.next = offset  # begun in mid-connection: nothing before this was ever to be had
            captured = np.int64(segment.captured)
            at = segment.at
            if offset - way.next > FAR or way.next - offset > FAR:
                way.stray_bytes += wire
            elif offset + wire <= way.next:
                way.retransmitted_bytes += wire
                if wire > 1 or offset + 1 < way.next:
                    way.retransmitted_packets += 1
            else:
                if offset < way.next:
                    trim = way.next - offset
                    way.retransmitted_bytes += trim
                    way.retransmitted_packets += 1
                    offset += trim
                    wire -= trim
                    at += trim
                    captured = max(np.int64(0), captured - trim)
                if way.held < 0 and offset == way.next:
                    _give(chunks, state, way, c, d, FROM_BLOCK, at, ts, segment.packet, captured, wire)
                else:
                    if way.held < 0:
                        way.gap_since = ts
                        _gap_began(directions, state, 2 * c + d)
                    if offset > way.next:
                        way.out_of_order += 1
                    added = _hold(buf, pool, state, way, held, offset, at, ts, segment.packet, captured, wire)
                    way.retransmitted_bytes += wire - added
                    if added == 0:
                        way.retransmitted_packets += 1
                    _drain(chunks, state, directions, c, d, held)
        for side in range(2):
            waiting = directions[2 * c + side]
            while waiting.held >= 0:
                age = ts - waiting.gap_since
                acked_beyond = held[waiting.held].offset <= waiting.acked
                too_much = waiting.held_bytes > HELD_LIMIT or waiting.held_count > HELD_SEGMENTS
                if not ((acked_beyond and age > PATIENCE_NS) or age > IMPATIENCE_NS or too_much):
                    break
                _skip_gap(chunks, state, directions, c, side, held, ts)
        _bound_held(chunks, state, directions, held, ts)
        if flags & FIN and way.started:
            way.fin = way.next + _distance(way, seq) + np.int64(segment.wire)
        if row.closed_at == 0 and (flags & RST or (way.fin >= 0 and other.fin >= 0)):
            _close(row, state, ts)
            if flags & RST:
                row.reset_by = d
    return i


@kernel(int, int, int, np.int64, FLOW, CONNECTION, DIRECTION, HELD, np.int32, CHUNK)
def finish(now, everything, idle, state, flows, connections, directions, held, ended, chunks):  # type: ignore[no-untyped-def]
    """End connections that are over: closed for longer than REST_NS before `now`, silent for `idle` ns (0: however
    long), or past because of those that came after them; or all. Gaps become gaps, an END chunk follows.

    `ended` gets their numbers; returns how many. state[STOPPED] says when chunks or `ended` were full: call again.
    """
    state[STOPPED] = DONE
    made = 0
    for c in range(connections.shape[0]):
        row = connections[c]
        if row.used != 1:
            continue
        closed = row.closed_at != 0 and now - row.closed_at > 2 * REST_NS
        silent = idle != 0 and now - row.last > idle
        if everything == 0 and not closed and not silent and not _is_past(row, state):
            continue
        if made == ended.shape[0] or state[CHUNKS] + 2 * state[HELD_USED] + 8 > chunks.shape[0]:
            state[STOPPED] = CHUNKS_FULL
            break
        for d in range(2):
            while directions[2 * c + d].held >= 0:
                _skip_gap(chunks, state, directions, c, np.int64(d), held, row.last)
        _emit(chunks, state, END, c, 0, FROM_BLOCK, 0, row.last, 0, 0, 0)
        row.used = 2
        ended[made] = c
        made += 1
        if flows[row.flow].connection == c:
            flows[row.flow].connection = -1
    for c in range(connections.shape[0]):
        row = connections[c]
        if row.used == 1 and row.previous >= 0 and connections[row.previous].used != 1:
            row.previous = -1
    return made


@kernel(CONNECTION, DIRECTION, HELD, np.uint8, np.uint8)
def compact(connections, directions, held, pool, target):  # type: ignore[no-untyped-def]
    """Copy the bytes of all held segments to `target`, one behind the other; return how many."""
    used = np.int64(0)
    for c in range(connections.shape[0]):
        if connections[c].used != 1:
            continue
        for d in range(2):
            number = np.int64(directions[2 * c + d].held)
            while number >= 0:
                node = held[number]
                source = node.at
                for k in range(np.int64(node.captured)):
                    target[np.uintp(used + k)] = pool[np.uintp(source + k)]
                node.at = used
                used += np.int64(node.captured)
                number = np.int64(node.next)
    return used
