"""Which connection a segment belongs to: when a connection begins, when it is closed, and when it is over.

A SYN with another sequence number, or a segment CLOSED_NS after the close, begins a new connection on the same 4-tuple.
Segments of the old one that are still under way go to it as long as its sequence numbers are the nearer ones.

Memory is bounded by the number of connections too (`Bounds`). A connection is over, and its next segment begins a new
one, when `closed` others were closed after it, when `syns` others began after a SYN that nothing followed, or when
`idle` others began after its last segment. These rules count connections, not time or blocks, so the same packets
always make the same connections.

The SYN or SYN-ACK shows which end opened a connection. If neither was captured, it is the end that does not listen
(`listeners`).
"""

from __future__ import annotations

import numpy as np

from kafkatap.kernels.decorator import helper, inlined
from kafkatap.kernels.table import take_row

from .capture_points import forget_points
from .dtypes import (
    ACK,
    CHUNK_START,
    LATE_NS,
    OPENING_HINT,
    OPENING_SYN,
    OPENING_UNKNOWN,
    ROW_OPEN,
    RST,
    SHIFT_UNKNOWN,
    SYN,
)
from .flows import connection_key, ends_key
from .listeners import known_client
from .stream_tables import add_chunk, clear_recovery, distance

#: After this time a closed connection gets no more segments, ns.
CLOSED_NS = 5_000_000_000
#: A segment farther than this from the expected byte is checked against the earlier connection of its 4-tuple first.
DOUBTFUL_DISTANCE = 1 << 26
#: So many bytes of a connection may be captured before its SYN.
LATE_SYN_BYTES = 1 << 20


@helper
def close_connection(t, c, ts):  # type: ignore[no-untyped-def]
    """Mark connection `c` as closed: only late segments can still belong to it."""
    row = t.connections[c]
    state = t.state[0]
    row.closed_at = ts
    row.closed_number = state.closed
    state.closed += 1


@inlined
def is_over(t, c):  # type: ignore[no-untyped-def]
    """Return whether connection `c` is over because so many others came after it."""
    row = t.connections[c]
    state = t.state[0]
    if row.closed_at != 0 and state.closed - row.closed_number > state.closed_limit:
        return True
    if row.only_syn and state.next_serial - row.serial > state.syns_limit:
        return True
    return state.next_serial - row.last_serial > state.idle_limit


@helper
def _reset_direction(t, stream):  # type: ignore[no-untyped-def]
    """Set the row of a direction as it is before its first segment."""
    stream.base_seq = 0
    stream.next = 0
    stream.acked = 0
    stream.last_data = 0
    stream.freed_at = 0
    stream.acked_then = 0
    stream.window = -1
    stream.last_wire = 0
    stream.is_limited = 0
    stream.is_pushed = 0
    stream.fin = -1
    stream.held_since = 0
    stream.recent = 0
    stream.held_bytes = 0
    stream.packets = 0
    stream.bytes = 0
    stream.retransmitted_packets = 0
    stream.retransmitted_bytes = 0
    stream.out_of_order = 0
    stream.gap_bytes = 0
    stream.cut_bytes = 0
    stream.stray_bytes = 0
    stream.duplicate_packets = 0
    stream.duplicate_bytes = 0
    stream.held = -1
    stream.held_last = -1
    stream.held_count = 0
    stream.gaps = 0
    stream.zero_windows = 0
    stream.started = 0
    stream.delivered = 0
    stream.shift = SHIFT_UNKNOWN
    stream.sack_permitted = 0
    stream.timestamps = 0
    stream.mss = 0
    if stream.recovery_row != 0:
        clear_recovery(t.recoveries[stream.recovery_row])


@helper
def _open_connection(t, segment):  # type: ignore[no-untyped-def]
    """Begin the connection that uses the flow of `segment` from now on; return its number."""
    state = t.state[0]
    flow = t.flows[segment.flow]
    c = take_row(t.free_connections)
    if state.points > 1:
        forget_points(t, c)
    row = t.connections[c]
    row.serial = state.next_serial
    state.next_serial += 1
    row.first = segment.ts
    row.last = segment.ts
    row.closed_at = 0
    row.syn_at = 0
    row.syn_ack_at = 0
    row.handshake_rtt_ns = -1
    row.packets = 0
    row.first_packet = segment.packet
    row.closed_packet = 0
    row.flow = segment.flow
    row.previous = flow.connection
    if row.previous >= 0:
        older = np.int64(row.previous)
        # Its end was not captured. (One that is over may be released already, so it never counts as closed now.)
        if t.connections[older].closed_at == 0 and not is_over(t, older):
            close_connection(t, older, segment.ts)
    if segment.tcp_flags & SYN:
        opening = np.int64(OPENING_SYN)
        client = segment.direction
        if segment.tcp_flags & ACK:
            client = 1 - client
    else:
        client = known_client(t.listeners, flow)
        opening = np.int64(OPENING_HINT if client >= 0 else OPENING_UNKNOWN)
    row.client = client
    row.used = ROW_OPEN
    row.reset_by = -1
    row.fin_by = -1
    row.fin_at = 0
    row.only_syn = 1  # as long as nothing else comes
    row.is_unreachable = 0
    row.is_quiet = 0
    flow.connection = c
    _reset_direction(t, t.directions[2 * c])
    _reset_direction(t, t.directions[2 * c + 1])
    chunk = add_chunk(t, CHUNK_START, 2 * c + max(client, np.int64(0)), segment.ts, segment.packet)
    chunk.at = row.serial
    chunk.stamp = ends_key(flow)
    chunk.length = connection_key(chunk.stamp, segment.ts, segment.seq)
    chunk.opening = opening
    return c


@inlined
def _begins_connection(t, c, segment):  # type: ignore[no-untyped-def]
    """Return whether a segment begins a new connection on the 4-tuple of connection `c`."""
    row = t.connections[c]
    if (row.closed_at != 0 and segment.ts - row.closed_at > CLOSED_NS) or is_over(t, c):
        return True
    if segment.tcp_flags & SYN == 0 or segment.tcp_flags & RST != 0:
        return False
    stream = t.directions[2 * c + segment.direction]
    if stream.started:
        # A retransmitted SYN has the same number; data may have moved `next` on since. One that is captured late has a
        # number before those of the first bytes that came.
        before = (stream.base_seq - segment.seq - 1) & 0xFFFFFFFF
        is_late = before < LATE_SYN_BYTES and segment.ts - row.first <= LATE_NS
        return before != 0 and not is_late
    if t.state[0].points > 1 and row.syn_at == 0 and row.syn_ack_at != 0:
        return False  # another point saw the answer to this SYN before it
    return segment.tcp_flags & ACK == 0


@helper
def _belongs_to_earlier(t, c, segment):  # type: ignore[no-untyped-def]
    """Return whether a segment with payload belongs to the connection that used the flow of `c` before."""
    d = segment.direction
    stream = t.directions[2 * c + d]
    if stream.started and abs(distance(stream, segment.seq)) <= DOUBTFUL_DISTANCE:
        return False
    older = np.int64(t.connections[c].previous)
    row = t.connections[older]
    if row.used != ROW_OPEN or segment.ts - row.closed_at > CLOSED_NS or is_over(t, older):
        return False
    before = t.directions[2 * older + d]
    return before.started != 0 and abs(distance(before, segment.seq)) <= DOUBTFUL_DISTANCE


@helper
def _is_late_copy(t, c, segment):  # type: ignore[no-untyped-def]
    """Return whether a segment belongs to the connection that used the flow of `c` before.

    Another capture point, whose clock is behind, sees the whole connection after the new one began.
    """
    d = segment.direction
    older = np.int64(t.connections[c].previous)
    if older < 0 or t.connections[older].used != ROW_OPEN or is_over(t, older):
        return False
    stream, before = t.directions[2 * c + d], t.directions[2 * older + d]
    if before.started == 0 or segment.ts - t.connections[older].closed_at > CLOSED_NS:
        return False
    if segment.tcp_flags & SYN:
        return (segment.seq + 1) & 0xFFFFFFFF == before.base_seq
    is_near = stream.started != 0 and abs(distance(stream, segment.seq)) <= DOUBTFUL_DISTANCE
    return not is_near and abs(distance(before, segment.seq)) <= DOUBTFUL_DISTANCE


@inlined
def connection_of(t, segment):  # type: ignore[no-untyped-def]
    """Return the number of the connection that a segment belongs to, which may begin with it."""
    c = np.int64(t.flows[segment.flow].connection)
    if c >= 0 and t.state[0].points > 1 and _is_late_copy(t, c, segment):
        return np.int64(t.connections[c].previous)
    if c < 0 or _begins_connection(t, c, segment):
        return _open_connection(t, segment)
    if (
        segment.wire > 0
        and segment.tcp_flags & SYN == 0
        and t.connections[c].previous >= 0
        and _belongs_to_earlier(t, c, segment)
    ):
        return np.int64(t.connections[c].previous)
    return c
