"""Measures of TCP: windows, bytes in flight, round trips, retransmission timers, and stalls. Only for runs that ask.

Each direction has a MEASURE row, for its sender. `measure_segment` sees every segment that is no duplicate, after it
was added to its connection. A *stall* is a time of more than STALL_NS between two data segments of one direction:

* LOSS: the segment that ends it carries bytes before the highest one sent, which were not acknowledged, or a
  retransmission was not acknowledged when it began.
* RECEIVER_LIMITED: the sender had filled the window that it knew when the stall began, or the window was closed since.
* SENDER_IDLE: all bytes were acknowledged and the window was open, so nothing but the sender's program kept it waiting.
* PATH, which has no rows: the rest, such as a round trip, or a congestion window.

The capture may be made at either end. An acknowledgement that passes the capture point reaches the sender later, and
what the sender then sends passes the capture point later still: after the round trip between both, which the handshake
shows (`_lag`). So the window that a sender knew is that of the last segment so long before the stall.

A loss that was none is taken back: the receiver reports data that it got twice (D-SACK, RFC 2883), so the first copy
had reached it, and the sender's timer was too short.

A stall ends up in one piece, or in two: blocked first, then idle.
"""

from __future__ import annotations

import numpy as np

from kafkatap.kernels.decorator import helper, inlined
from kafkatap.kernels.readers import be32, signed32

from .dtypes import ACK, LOSS, NOT_SCALED, RECEIVER_LIMITED, RST, SENDER_IDLE, SYN
from .recent_packets import RECENT_ROWS
from .stream_tables import FAR, distance

#: Data segments of a direction that are farther apart than this have a stall between them, ns.
STALL_NS = 200_000
#: A retransmission so long after the data before it was sent by a timer: Linux waits 200 ms at least.
TIMEOUT_NS = 190_000_000
#: The MSS of an end that did not announce one, less its timestamps: that of Ethernet.
_USUAL_MSS = 1_448
#: Kinds of TCP options, and the least length of options with a SACK block.
_END_OF_OPTIONS, _NOP, _SACK_BLOCKS = 0, 1, 5
_LEAST_SACK = 10
#: Packets of a direction that are searched for the one that its receiver knew last.
_MOST_PACKETS = 1_024


@helper
def _reset_measure(m, serial):  # type: ignore[no-untyped-def]
    """Set a row as it is before the first segment of the connection that is the `serial`-th."""
    m.serial = serial
    m.sent = 0
    m.acked = 0
    m.timed_end = -1
    m.timed_at = 0
    m.lag = -1
    m.last_data = 0
    m.new_data = 0
    m.loss_begin = 0
    m.loss_end = 0
    m.recovery = 0
    m.free_at = 0
    m.zero_since = 0
    m.zero_until = 0
    m.window = -1
    m.window_max = 0
    m.in_flight_max = 0
    m.zero_window_ns = 0
    m.rtt_count = 0
    m.rtt_sum = 0
    m.rtt_min = 0
    m.rtt_max = 0
    m.retransmission_wait_sum = 0
    m.retransmission_wait_max = 0
    m.retransmissions = 0
    m.retransmission_timeouts = 0


@inlined
def _shift(receiver, sender):  # type: ignore[no-untyped-def]
    """The shift of the windows that `receiver` advertises (DIRECTION rows); -1 if it is not known. Windows are scaled
    only if both ends said so."""
    if receiver.shift == NOT_SCALED or sender.shift == NOT_SCALED:
        return np.int64(0)
    if receiver.shift < 0 or sender.shift < 0:
        return np.int64(-1)
    return np.int64(receiver.shift)


@helper
def _lag(t, number):  # type: ignore[no-untyped-def]
    """The round trip between the capture point and the sender of direction `number` during the handshake, ns; 0 if it
    was not captured."""
    if t.measures[number].lag >= 0:
        return np.int64(t.measures[number].lag)
    row = t.connections[number >> 1]
    if row.handshake_rtt_ns < 0 or row.syn_at == 0 or row.syn_ack_at == 0:
        return np.int64(0)
    to_server = min(max(np.int64(0), row.syn_ack_at - row.syn_at), row.handshake_rtt_ns)
    return row.handshake_rtt_ns - to_server if number & 1 == row.client else to_server


@helper
def _is_limited(t, number, begin):  # type: ignore[no-untyped-def]
    """Whether the sender of direction `number` had filled the window that it knew at a time, ns."""
    m, receiver = t.measures[number], t.measures[number ^ 1]
    if receiver.zero_since != 0 or receiver.zero_until > begin:
        return True
    stream, acking = t.directions[number], t.directions[number ^ 1]
    shift = _shift(acking, stream)
    if shift < 0:
        return False
    gone = max(np.int64(0), t.state[0].recent - RECENT_ROWS)
    at = np.int64(acking.recent)
    known = begin - _lag(t, number)
    for _ in range(_MOST_PACKETS):
        if at <= gone:
            break
        row = t.recent[np.uintp(at & (RECENT_ROWS - 1))]
        if row.ts <= known:
            if row.tcp_flags & (ACK | SYN | RST) != ACK:
                break
            window = np.int64(row.window) << shift
            in_flight = m.sent - (stream.next + distance(stream, np.int64(row.ack)))
            room = window - in_flight
            mss = np.int64(_USUAL_MSS)
            if stream.mss != 0 and acking.mss != 0:
                mss = np.int64(min(stream.mss, acking.mss))
            return room <= 0 or room < min(mss, window // 2)
        at = row.previous
    return False


@inlined
def _add_stall(t, number, begin, end, cause):  # type: ignore[no-untyped-def]
    """Emit a stall. `full_table` has checked that there is room for three."""
    state = t.state[0]
    row = t.stalls[state.stalls]
    state.stalls += 1
    row.begin = begin
    row.end = end
    row.new_data = t.measures[number].new_data
    row.connection = number >> 1
    row.direction = number & 1
    row.cause = cause


@helper
def _note_stall(t, number, ts, is_repeated):  # type: ignore[no-untyped-def]
    """Emit what kept direction `number` waiting from its last data segment to the one at `ts`."""
    m = t.measures[number]
    begin = m.last_data
    blocked_until = ts
    if m.free_at != 0 and not is_repeated:
        blocked_until = min(ts, max(begin, m.free_at + _lag(t, number)))
    if blocked_until - begin > STALL_NS:
        if is_repeated or m.acked < m.recovery:
            _add_stall(t, number, begin, blocked_until, LOSS)
            m.loss_begin = begin
            m.loss_end = blocked_until
        elif _is_limited(t, number, begin):
            _add_stall(t, number, begin, blocked_until, RECEIVER_LIMITED)
    if ts - blocked_until > STALL_NS:
        _add_stall(t, number, blocked_until, ts, SENDER_IDLE)


@helper
def _measure_data(t, number, segment):  # type: ignore[no-untyped-def]
    """Measure a segment with payload of direction `number`."""
    m = t.measures[number]
    stream = t.directions[number]
    seq = (segment.seq + 1) & 0xFFFFFFFF if segment.tcp_flags & SYN else segment.seq
    offset = stream.next + distance(stream, seq)
    end = offset + segment.wire
    if abs(distance(stream, seq)) > FAR:
        return
    if m.last_data == 0 and m.sent == 0:
        m.sent = offset  # the capture may begin here
    is_repeated = offset < m.sent
    acked = np.int64(stream.acked)
    if is_repeated and segment.wire == 1 and end == m.sent and acked >= end:
        return  # a keep-alive
    if m.last_data != 0:
        wait = max(np.int64(0), segment.ts - m.last_data)
        if wait > STALL_NS and not (is_repeated and acked >= end):
            _note_stall(t, number, segment.ts, is_repeated)
        if is_repeated:
            m.retransmissions += 1
            m.retransmission_wait_sum += wait
            m.retransmission_wait_max = max(m.retransmission_wait_max, wait)
            if wait >= TIMEOUT_NS:
                m.retransmission_timeouts += 1
    if is_repeated and acked >= end:
        return  # its receiver has it, so nothing waits for it: a probe, or a timer that was too short
    if is_repeated:
        m.recovery = max(m.recovery, max(m.sent, end))
        if m.timed_end > offset:
            m.timed_end = -1  # Karn: its acknowledgement may be that of either copy
    else:
        m.new_data = segment.ts
        m.loss_end = 0
        if m.timed_end < 0:
            m.timed_end = end
            m.timed_at = segment.ts
    m.sent = max(m.sent, end)
    m.acked = acked
    m.last_data = segment.ts
    m.free_at = 0
    if t.directions[number ^ 1].started != 0:
        m.in_flight_max = max(m.in_flight_max, m.sent - max(acked, np.int64(0)))


@helper
def _measure_acknowledged(t, number, ts):  # type: ignore[no-untyped-def]
    """Note what the other end has acknowledged of direction `number` now, and whether its sender is free to send."""
    m = t.measures[number]
    acked = np.int64(t.directions[number].acked)
    if m.timed_end >= 0 and acked >= m.timed_end:
        rtt = max(np.int64(0), ts - m.timed_at)
        m.rtt_min = rtt if m.rtt_count == 0 else min(m.rtt_min, rtt)
        m.rtt_max = max(m.rtt_max, rtt)
        m.rtt_sum += rtt
        m.rtt_count += 1
        m.timed_end = -1
    if acked < m.sent or t.measures[number ^ 1].window == 0:
        m.free_at = 0
    elif m.free_at == 0:
        m.free_at = ts


@inlined
def _measure_window(t, number, segment):  # type: ignore[no-untyped-def]
    """Note the window that a segment of direction `number` advertises."""
    m = t.measures[number]
    m.window = segment.window
    if segment.window == 0:
        if m.zero_since == 0:
            m.zero_since = segment.ts
    elif m.zero_since != 0:
        m.zero_window_ns += max(np.int64(0), segment.ts - m.zero_since)
        m.zero_until = segment.ts
        m.zero_since = 0
    shift = np.int64(0) if segment.tcp_flags & SYN else _shift(t.directions[number], t.directions[number ^ 1])
    if shift >= 0:
        m.window_max = max(m.window_max, segment.window << shift)


@helper
def _reports_duplicate(buf, segment):  # type: ignore[no-untyped-def]
    """Whether the first SACK block of a segment lies below its acknowledgement: its sender got those bytes twice."""
    end = segment.at
    at = end - segment.options
    while at + 2 <= end:
        kind = np.int64(buf[np.uintp(at)])
        if kind == _NOP:
            at += 1
            continue
        length = np.int64(buf[np.uintp(at + 1)])
        if kind == _SACK_BLOCKS and length >= 10 and at + length <= end:
            return signed32((be32(buf, at + 6) - segment.ack) & 0xFFFFFFFF) <= 0
        if kind == _END_OF_OPTIONS or length < 2:
            break
        at += length
    return False


@inlined
def _take_loss_back(t, number):  # type: ignore[no-untyped-def]
    """Take back the last stall of direction `number` by a loss."""
    m = t.measures[number]
    if m.loss_end != 0:
        _add_stall(t, number, 2 * m.loss_end - m.loss_begin, m.loss_end, LOSS)
        m.loss_end = 0


@helper
def measure_segment(t, buf, c, number, segment):  # type: ignore[no-untyped-def]
    """Measure a segment of direction `number` of connection `c`, which was added to it before."""
    row = t.connections[c]
    serial = row.serial + 1
    if t.measures[number].serial != serial:
        _reset_measure(t.measures[2 * c], serial)
        _reset_measure(t.measures[2 * c + 1], serial)
    if segment.tcp_flags & RST or t.directions[number].started == 0:
        return
    if segment.wire > 0:
        _measure_data(t, number, segment)
    if segment.tcp_flags & ACK:
        if segment.options >= _LEAST_SACK and _reports_duplicate(buf, segment):
            _take_loss_back(t, number ^ 1)
        _measure_window(t, number, segment)
        _measure_acknowledged(t, number ^ 1, segment.ts)
