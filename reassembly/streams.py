"""Segments to chunks: TCP in sequence space, one packet after another, so that no block boundary can change a result.

Each direction emits its bytes in order, from offset 0 on, each byte once. The first copy that was read wins, and its
packet's time is the time of the bytes. A segment beyond the next expected byte is held (`held_segments`). So is one
that acknowledges bytes of the other direction that did not come yet, so that a request comes before its response
whatever the order of the packets. Missing bytes become a GAP when they will not come any more:

* LATE_NS passed since the segment behind them came, and the other end has acknowledged bytes beyond them,
* LONGEST_GAP_NS passed without any acknowledgement,
* more than HELD_BYTES_BEHIND_GAP or HELD_SEGMENTS_BEHIND_GAP wait behind them, or the connection or the input ends,
* all connections together hold too much (`Bounds.held_bytes`, `held_segments`), and no gap is older.

`connection_rules` decides which connection a segment belongs to.
"""

from __future__ import annotations

import numpy as np

from kafkatap.kernels import kernel
from kafkatap.kernels.decorator import helper, inlined

from .capture_points import is_of_other_point, move_to_duplicates, note_progress
from .connection_rules import CLOSED_NS, close_connection, connection_of, is_over
from .dtypes import (
    ACK,
    CHUNK_END,
    ENDED_BY,
    FIN,
    FROM_HELD,
    QUOTED,
    ROW_ENDED,
    ROW_OPEN,
    RST,
    SEGMENT,
    SHIFT_UNKNOWN,
    SYN,
    Segment,
)
from .held_segments import (
    HELD_BYTES_BEHIND_GAP,
    Payload,
    cut_front,
    drop_held,
    emit_held,
    give_up_all,
    give_up_beyond_bounds,
    give_up_overdue,
    hold,
    is_held,
    skip_to,
    stamp_of,
)
from .listeners import add_listener
from .measures import measure_segment
from .recent_packets import count_duplicate, is_copy, note_packet
from .stalls import (
    has_copies,
    may_be_far,
    may_have_sack,
    may_have_stalled,
    note_acknowledged,
    note_data,
    note_duplicate_report,
    note_recovered,
    note_sent,
    note_stall,
    note_waiting,
    note_window,
    resolve_copies,
)
from .stream_tables import (
    ASSEMBLED,
    CHUNKS_FULL,
    FAR,
    STALLS_ROOM,
    StreamTables,
    add_chunk,
    add_data,
    chunks_full,
    distance,
    full_table,
)
from .syn_options import read_options


@inlined
def _count_segment(t, row, stream, segment):  # type: ignore[no-untyped-def]
    """Count a segment in the rows of its connection and direction."""
    row.last = max(row.last, segment.ts)
    row.last_serial = t.state[0].next_serial
    row.packets += 1
    stream.packets += 1
    stream.bytes += segment.wire


@inlined
def _note_flags(row, stream, segment):  # type: ignore[no-untyped-def]
    """Note what a segment shows beside its payload."""
    flags = segment.tcp_flags
    if flags & (SYN | ACK | RST) != SYN or segment.wire > 0:
        row.only_syn = 0
    if segment.window == 0 and flags & (RST | SYN) == 0:
        stream.zero_windows += 1


@inlined
def _note_start(t, buf, c, stream, segment):  # type: ignore[no-untyped-def]
    """Note a SYN, and the sequence number from which the stream's bytes are counted."""
    if segment.tcp_flags & SYN:
        if stream.started == 0:
            stream.base_seq = (segment.seq + 1) & 0xFFFFFFFF
            stream.started = 1
        if stream.shift == SHIFT_UNKNOWN and segment.options >= 0:
            read_options(buf, segment, stream)
        row = t.connections[c]
        if segment.tcp_flags & ACK == 0:
            row.syn_at = segment.ts
        else:
            row.syn_ack_at = segment.ts
            add_listener(t.listeners, t.flows[segment.flow], segment.direction)
    elif stream.started == 0 and segment.tcp_flags & RST == 0:
        stream.base_seq = segment.seq
        stream.started = 1


@inlined
def _acknowledge(t, buf, c, number, segment):  # type: ignore[no-untyped-def]
    """Note what a segment of direction `number` acknowledges of the other one."""
    row = t.connections[c]
    if row.handshake_rtt_ns < 0 and row.syn_at != 0 and row.syn_ack_at != 0 and segment.direction == row.client:
        # SYN to SYN-ACK plus SYN-ACK to ACK: the whole round trip, wherever the capture was made
        row.handshake_rtt_ns = max(np.int64(0), segment.ts - row.syn_at)
    other = t.directions[number ^ 1]
    if segment.tcp_flags & SYN == 0:
        note_window(t.directions[number], other, segment)
    if other.started:
        _note_acked(t, number ^ 1, segment)
        if has_copies(t, other):
            resolve_copies(t, buf, number ^ 1, segment)
        if other.last_data != 0:
            note_duplicate_report(t, buf, number ^ 1, segment)
            note_recovered(t, other, t.directions[number], segment.ts)


@inlined
def _acknowledges_more(other, segment):  # type: ignore[no-untyped-def]
    """Return whether a segment acknowledges bytes of the other direction that were not acknowledged before."""
    return other.acked - other.next < distance(other, segment.ack) < FAR


@inlined
def _note_acked(t, number, segment):  # type: ignore[no-untyped-def]
    """Note how far a segment acknowledges direction `number`, the other one."""
    other = t.directions[number]
    acked = other.next + distance(other, segment.ack)
    if acked > other.acked and acked - other.next < FAR:
        before = np.int64(other.acked)
        other.acked = acked
        other.freed_at = segment.ts
        if may_be_far(other, segment.ts):
            note_acknowledged(t, number, before, segment)


@inlined
def _needed(other, segment, handshake_seen):  # type: ignore[no-untyped-def]
    """Return the offset in the other direction up to which a segment acknowledges bytes that are expected there."""
    has_begun = other.started and (other.delivered or other.held >= 0 or handshake_seen)
    if segment.tcp_flags & (ACK | RST) != ACK or not has_begun:
        return np.int64(0)
    needs = other.next + distance(other, segment.ack)
    if other.fin >= 0:
        needs = min(needs, other.fin)  # a FIN is acknowledged like a byte
    return needs if needs - other.next < FAR else np.int64(0)


@inlined
def _payload_seq(segment):  # type: ignore[no-untyped-def]
    """Return the sequence number of a segment's first payload byte."""
    return (segment.seq + 1) & 0xFFFFFFFF if segment.tcp_flags & SYN else segment.seq


@inlined
def _add_payload(t, buf, c, number, segment):  # type: ignore[no-untyped-def]
    """Emit the payload of a segment, hold it, or count it as retransmitted or stray."""
    stream = t.directions[number]
    row = t.connections[c]
    wire = segment.wire
    if not stream.started:  # a reset with payload, before anything else
        stream.stray_bytes += wire
        return
    offset = stream.next + distance(stream, _payload_seq(segment))
    handshake_seen = row.syn_at != 0 or row.syn_ack_at != 0
    if stream.delivered == 0 and stream.held < 0 and not handshake_seen and offset > stream.next:
        stream.next = offset  # the capture began in mid-connection: it has nothing before this
    if offset - stream.next > FAR or stream.next - offset > FAR:
        stream.stray_bytes += wire
        return
    note_data(t, buf, number, segment, offset)
    if offset + wire <= stream.next:
        stream.retransmitted_bytes += wire
        if wire > 1 or offset + 1 < stream.next:  # else a keep-alive
            stream.retransmitted_packets += 1
        return
    payload = Payload(offset, segment.at, segment.ts, segment.packet, segment.captured, wire, stamp_of(segment))
    if offset < stream.next:
        known = stream.next - offset
        stream.retransmitted_bytes += known
        stream.retransmitted_packets += 1
        payload = cut_front(payload, known)
    other = t.directions[number ^ 1]
    needs = _needed(other, segment, handshake_seen)
    if stream.held < 0 and payload.offset == stream.next and needs <= other.next:
        add_data(t, number, segment.source, payload)
        if other.held >= 0:
            emit_held(t, number ^ 1)
    else:
        note_waiting(t, stream, offset + wire)
        hold(t, buf, number, payload, needs)


@inlined
def _note_close(t, c, number, segment):  # type: ignore[no-untyped-def]
    """Close the connection if a segment resets it, or ends its second direction."""
    row = t.connections[c]
    stream = t.directions[number]
    flags = segment.tcp_flags
    if flags & FIN and row.fin_by < 0:
        row.fin_by = segment.direction
        row.fin_at = segment.ts
        row.closed_packet = segment.packet
    if flags & FIN and stream.started:
        stream.fin = stream.next + distance(stream, _payload_seq(segment)) + segment.wire
    both_ended = stream.fin >= 0 and t.directions[number ^ 1].fin >= 0
    if row.closed_at == 0 and (flags & RST or both_ended):
        close_connection(t, c, segment.ts)
        if flags & RST:
            row.reset_by = segment.direction
            if row.fin_by < 0:
                row.closed_packet = segment.packet


@helper
def _brings_nothing(t, number, segment):  # type: ignore[no-untyped-def]
    """Return whether a segment has only bytes that came before, or none and acknowledges nothing new."""
    stream = t.directions[number]
    if segment.wire == 0:
        other = t.directions[number ^ 1]
        is_ack = segment.tcp_flags & (ACK | SYN | FIN | RST) == ACK
        return not (is_ack and other.started != 0 and _acknowledges_more(other, segment))
    if not stream.started:
        return False
    offset = stream.next + distance(stream, _payload_seq(segment))
    end = offset + segment.wire
    return end <= stream.next or (stream.held >= 0 and is_held(t, number, max(offset, stream.next), end))


@helper
def _is_duplicate(t, number, segment):  # type: ignore[no-untyped-def]
    """Return whether a segment that brings nothing new was captured twice, at one capture point or at several."""
    if t.state[0].points <= 1:
        return is_copy(t, number, segment)
    is_other = is_of_other_point(t, number, segment)
    found = is_other or is_copy(t, number, segment)
    if found:
        note_progress(t, number, segment)
    return found


@inlined
def assemble_segment(t, buf, segment):  # type: ignore[no-untyped-def]
    """Add a segment to its connection. The caller has checked `full_table`."""
    c = connection_of(t, segment)
    number = 2 * c + segment.direction
    row = t.connections[c]
    stream = t.directions[number]
    if _brings_nothing(t, number, segment) and _is_duplicate(t, number, segment):
        count_duplicate(t, stream, segment)
        return
    old_bytes, old_packets = stream.retransmitted_bytes, stream.retransmitted_packets
    note_packet(t, stream, segment)
    _count_segment(t, row, stream, segment)
    _note_flags(row, stream, segment)
    _note_start(t, buf, c, stream, segment)
    if segment.tcp_flags & (ACK | RST) == ACK:
        _acknowledge(t, buf, c, number, segment)
    if segment.wire > 0:
        _add_payload(t, buf, c, number, segment)
    if t.directions[2 * c].held >= 0 or t.directions[2 * c + 1].held >= 0:
        give_up_overdue(t, c, segment.ts)
    give_up_beyond_bounds(t)
    _note_close(t, c, number, segment)
    if t.state[0].points > 1:
        move_to_duplicates(t, number, segment, old_bytes, old_packets)
        note_progress(t, number, segment)
    if t.state[0].measures != 0:
        measure_segment(t, c, number, segment)
    row.is_quiet = _is_quiet(t, c)


@inlined
def _is_quiet(t, c):  # type: ignore[no-untyped-def]
    """Return whether `assemble_usual` may add segments to connection `c`: it is open, its start is known, it holds
    nothing, no retransmission waits for its acknowledgement, and nothing is measured."""
    row = t.connections[c]
    a, b = t.directions[2 * c], t.directions[2 * c + 1]
    is_open = row.closed_at == 0 and (a.fin < 0 or b.fin < 0) and row.previous < 0 and a.held < 0 and b.held < 0
    has_no_copies = not has_copies(t, a) and not has_copies(t, b)
    handshake_known = row.handshake_rtt_ns >= 0 or row.syn_at == 0 or row.syn_ack_at == 0
    is_known = handshake_known and row.only_syn == 0 and a.started != 0 and b.started != 0
    one_point = t.state[0].points <= 1
    is_counted_only = t.state[0].measures == 0
    return np.int64(1 if is_open and is_known and has_no_copies and one_point and is_counted_only else 0)


@inlined
def assemble_usual(t, buf, segment):  # type: ignore[no-untyped-def]
    """Add a segment of the usual kind to its connection; return whether it is of that kind.

    It begins and ends nothing, brings the next bytes or acknowledges some, and acknowledges none that did not come,
    while its connection holds nothing. It has no SACK block. Then all other steps of `assemble_segment` would do
    nothing, so this one leaves them out.
    """
    state = t.state[0]
    c = np.int64(t.flows[segment.flow].connection)
    if c < 0 or segment.tcp_flags & (ACK | SYN | FIN | RST) != ACK or segment.window == 0:
        return False
    row = t.connections[c]
    if row.is_quiet == 0 or is_over(t, c) or state.chunks + STALLS_ROOM >= t.chunks.shape[0]:
        return False
    if may_have_sack(buf, segment):
        return False
    number = 2 * c + segment.direction
    stream = t.directions[number]
    other = t.directions[number ^ 1]
    acked = distance(other, segment.ack)
    if acked > 0:
        return False
    if segment.wire > 0:
        if distance(stream, segment.seq) != 0:
            return False
    elif not _acknowledges_more(other, segment):
        return False  # it may be a duplicate
    note_packet(t, stream, segment)
    _count_segment(t, row, stream, segment)
    _note_acked(t, number ^ 1, segment)
    note_window(stream, other, segment)
    note_recovered(t, other, stream, segment.ts)
    if segment.wire > 0:
        if may_have_stalled(t, stream, segment.ts):
            note_stall(t, number, segment)
        note_sent(stream, other, segment, stream.next + segment.wire)
        payload = Payload(
            stream.next, segment.at, segment.ts, segment.packet, segment.captured, segment.wire, stamp_of(segment)
        )
        add_data(t, number, segment.source, payload)
    return True


@helper
def note_unreachable(t, segment):  # type: ignore[no-untyped-def]
    """Note that an ICMP message answered a SYN (`dtypes.QUOTED`).

    It has to quote the SYN that a connection still waits with. So a forged one changes nothing of any other connection,
    and a SYN-ACK may still come.
    """
    c = np.int64(t.flows[segment.flow].connection)
    if c < 0:
        return
    row = t.connections[c]
    stream = t.directions[2 * c + (segment.direction ^ 1)]
    if row.only_syn != 0 and row.syn_at != 0 and stream.started != 0 and stream.base_seq == segment.ack:
        row.is_unreachable = 1


@inlined
def _segment_of(row):  # type: ignore[no-untyped-def]
    """Return a SEGMENT row as scalars."""
    return Segment(
        row.ts, row.packet, row.at, row.seq, row.ack, row.timestamps, np.int64(row.flow), np.int64(row.captured),
        np.int64(row.wire), np.int64(row.window), np.int64(row.ip_id), np.int64(row.point), np.int64(row.tcp_flags),
        np.int64(row.direction), np.int64(row.source), np.int64(row.options),
    )  # fmt: skip


@kernel(np.uint8, SEGMENT, int, int, StreamTables)
def assemble(buf, segments, first, count, t):  # type: ignore[no-untyped-def]
    """Turn segments[first:count] into chunks; return the first segment that was not read (see state.stopped)."""
    stopped = ASSEMBLED
    i = first
    while i < count:
        segment = _segment_of(segments[i])
        stopped = full_table(t, segment.wire)
        if stopped != ASSEMBLED:
            break
        if segment.source == QUOTED:
            note_unreachable(t, segment)
        else:
            assemble_segment(t, t.pool if segment.source == FROM_HELD else buf, segment)
        i += 1
    t.state[0].stopped = stopped
    return i


@helper
def _unseen_directions(t, c):  # type: ignore[no-untyped-def]
    """Return the directions of which no packet was captured, as bits."""
    return (t.directions[2 * c].started == 0) + 2 * (t.directions[2 * c + 1].started == 0)


@helper
def _closed_by(row):  # type: ignore[no-untyped-def]
    """Return the bit of ENDED_BY for the direction of a connection's first FIN, or else of its RST; 0 if it is open."""
    if row.fin_by >= 0:
        return ENDED_BY[row.fin_by]
    return ENDED_BY[row.reset_by] if row.reset_by >= 0 else 0


@helper
def _skip_tail(t, number):  # type: ignore[no-untyped-def]
    """Emit a gap for the last bytes of a direction if its FIN or an acknowledgement shows that they are missing."""
    stream = t.directions[number]
    row = t.connections[number >> 1]
    if stream.delivered == 0 and row.syn_at == 0 and row.syn_ack_at == 0:
        return
    end = stream.fin
    if end < 0:
        # One byte more may be a FIN that was not captured.
        end = stream.acked if stream.acked > stream.next + 1 else stream.next
    if stream.next < end <= stream.next + HELD_BYTES_BEHIND_GAP:
        skip_to(t, number, end, row.last, np.int64(0))


@helper
def _forget_earlier_connections(t):  # type: ignore[no-untyped-def]
    """Remove the links from open connections to earlier ones of their 4-tuples that have ended."""
    for c in range(t.connections.shape[0]):
        row = t.connections[c]
        if row.used == ROW_OPEN and row.previous >= 0 and t.connections[row.previous].used != ROW_OPEN:
            row.previous = -1


@kernel(int, int, int, StreamTables, np.int32)
def finish(now, everything, idle, t, ended):  # type: ignore[no-untyped-def]
    """End the connections that are over, or all: emit their gaps and an END chunk.

    A connection is over when it was closed more than 2 * CLOSED_NS before `now`, when it was silent for `idle` ns (0:
    however long), or when so many others came after it. `ended` gets the numbers of the connections that end; returns
    how many. If state.stopped says that the chunks or `ended` are full, call again.
    """
    state = t.state[0]
    state.stopped = ASSEMBLED
    made = 0
    for c in range(t.connections.shape[0]):
        row = t.connections[c]
        if row.used != ROW_OPEN:
            continue
        closed = row.closed_at != 0 and now - row.closed_at > 2 * CLOSED_NS
        silent = idle != 0 and now - row.last > idle
        if everything == 0 and not closed and not silent and not is_over(t, c):
            continue
        if made == ended.shape[0] or chunks_full(t):
            state.stopped = CHUNKS_FULL
            break
        give_up_all(t, c)
        for number in range(2 * c, 2 * c + 2):
            _skip_tail(t, number)
        chunk = add_chunk(t, CHUNK_END, 2 * c, row.last, 0)
        chunk.opening = _unseen_directions(t, c) + _closed_by(row)
        if chunk.opening >= ENDED_BY[0]:
            chunk.length = row.fin_at if row.fin_by >= 0 else row.closed_at
        if everything != 0 and chunk.opening < ENDED_BY[0] and t.flows[row.flow].connection == c:
            chunk.at = now
        row.used = ROW_ENDED
        ended[made] = c
        made += 1
        if t.flows[row.flow].connection == c:
            t.flows[row.flow].connection = -1
    _forget_earlier_connections(t)
    return made


@kernel(np.int32, StreamTables)
def detach(numbers, t):  # type: ignore[no-untyped-def]
    """Drop the connections `numbers`, and what they hold, without emitting anything."""
    for i in range(numbers.shape[0]):
        c = np.int64(numbers[i])
        row = t.connections[c]
        drop_held(t, 2 * c)
        drop_held(t, 2 * c + 1)
        row.used = ROW_ENDED
        if t.flows[row.flow].connection == c:
            t.flows[row.flow].connection = -1
    _forget_earlier_connections(t)
    return 0
