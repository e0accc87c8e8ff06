"""Measures of TCP: windows, bytes in flight, round trips, and retransmission timers, for runs that need them.

Each direction has a MEASURE row, for its sender. `measure_segment` sees every segment that is no duplicate, after it
was added to its connection. Why a direction sends nothing is known in every run (`stalls`).
"""

from __future__ import annotations

import numpy as np

from kafkatap.kernels.decorator import helper, inlined

from .dtypes import ACK, RST, SYN
from .stalls import window_shift
from .stream_tables import FAR, distance

#: A retransmission so long after the data before it was sent by a timer: Linux waits 200 ms at least.
TIMEOUT_NS = 190_000_000


@helper
def _reset_measure(m, serial):  # type: ignore[no-untyped-def]
    """Set a row as it is before the first segment of the connection that is the `serial`-th."""
    m.serial = serial
    m.sent = 0
    m.timed_end = -1
    m.timed_at = 0
    m.last_data = 0
    m.zero_since = 0
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
        if is_repeated:
            m.retransmissions += 1
            m.retransmission_wait_sum += wait
            m.retransmission_wait_max = max(m.retransmission_wait_max, wait)
            if wait >= TIMEOUT_NS:
                m.retransmission_timeouts += 1
    if is_repeated and acked >= end:
        return  # its receiver has it, so nothing waits for it: a probe, or a timer that was too short
    if is_repeated:
        if m.timed_end > offset:
            m.timed_end = -1  # Karn: its acknowledgement may be that of either copy
    else:
        if m.timed_end < 0:
            m.timed_end = end
            m.timed_at = segment.ts
    m.sent = max(m.sent, end)
    m.last_data = segment.ts
    if t.directions[number ^ 1].started != 0:
        m.in_flight_max = max(m.in_flight_max, m.sent - max(acked, np.int64(0)))


@helper
def _measure_acknowledged(t, number, ts):  # type: ignore[no-untyped-def]
    """Note what the other end has acknowledged of direction `number` now."""
    m = t.measures[number]
    acked = np.int64(t.directions[number].acked)
    if m.timed_end >= 0 and acked >= m.timed_end:
        rtt = max(np.int64(0), ts - m.timed_at)
        m.rtt_min = rtt if m.rtt_count == 0 else min(m.rtt_min, rtt)
        m.rtt_max = max(m.rtt_max, rtt)
        m.rtt_sum += rtt
        m.rtt_count += 1
        m.timed_end = -1


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
        m.zero_since = 0
    shift = np.int64(0) if segment.tcp_flags & SYN else window_shift(t.directions[number], t.directions[number ^ 1])
    if shift >= 0:
        m.window_max = max(m.window_max, segment.window << shift)


@helper
def measure_segment(t, c, number, segment):  # type: ignore[no-untyped-def]
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
        _measure_window(t, number, segment)
        _measure_acknowledged(t, number ^ 1, segment.ts)
