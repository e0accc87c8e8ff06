"""The state of connections as bytes, and how a connection is resumed.

Connections with equal states handle the same later packets alike.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from kafkatap.kernels import kernel
from kafkatap.kernels.decorator import helper, record_dtype
from kafkatap.kernels.writers import put_bytes, put_int

from .dtypes import SHIFT_UNKNOWN
from .stalls import sent_of
from .stream_tables import StreamTables, own_recovery, recovery_of

Array = np.ndarray[Any, Any]


#: What is known of one direction of a connection that is resumed: as `Resumption.base_seqs` and `SynOptions`.
RESUMED_END = record_dtype(
    ("base_seq", "i8"), ("shift", "i1"), ("mss", "i4"), ("sack_permitted", "u1"), ("timestamps", "u1")
)  # fmt: skip


class Handshake(NamedTuple):
    """What the SYN (`syn_at`) and SYN-ACK (`syn_ack_at`) of a connection showed. Times are ns, 0 if not captured.

    `client`: the direction whose sender opened the connection, -1 if not known. `rtt_ns`: -1 if not known.
    """

    syn_at: int = 0
    syn_ack_at: int = 0
    client: int = -1
    rtt_ns: int = -1


class SynOptions(NamedTuple):
    """The options of a SYN: fields as in DIRECTION."""

    shift: int = SHIFT_UNKNOWN
    mss: int = 0
    sack_permitted: int = 0
    timestamps: int = 0


class Resumption(NamedTuple):
    """What an earlier capture showed of a connection that this one continues.

    `base_seqs`: by direction the sequence number from which its bytes are counted, -1 if not known. `options`: by
    direction.
    """

    base_seqs: tuple[int, int] = (-1, -1)
    handshake: Handshake = Handshake()
    options: tuple[SynOptions, SynOptions] = (SynOptions(), SynOptions())

    @property
    def ends(self) -> Array:
        """RESUMED_END (2,)."""
        pairs = zip(self.base_seqs, self.options, strict=True)
        return np.array([(base, *options) for base, options in pairs], RESUMED_END)


@helper
def _put_stream(t, out, at, number, opened):  # type: ignore[no-untyped-def]
    """Write direction `number`. `opened`: its connection's SYN or SYN-ACK was captured.

    Its first byte is known if it was captured, or is the one after a SYN. Else bytes before the first ones that come
    are no gap. Offsets count from the next expected byte.
    """
    row = t.directions[number]
    if row.started == 0:
        return put_int(out, at, np.int64(-1))
    following = np.int64(row.next)
    at = put_int(out, at, row.base_seq)
    at = put_int(out, at, (row.base_seq + following) & 0xFFFFFFFF)
    at = put_int(out, at, np.int64(1) if row.delivered != 0 or opened else np.int64(0))
    at = put_int(out, at, max(np.int64(0), row.acked - following))
    at = put_int(out, at, np.int64(1) if row.fin >= 0 else np.int64(0))
    at = put_int(out, at, row.fin - following if row.fin >= 0 else np.int64(0))
    at = put_int(out, at, row.held_since if row.held >= 0 else np.int64(0))
    held = np.int64(row.held)
    while held >= 0:
        node = t.held[held]
        at = put_int(out, at, node.offset - following)
        at = put_int(out, at, max(np.int64(0), node.needs - t.directions[number ^ 1].next))
        at = put_int(out, at, node.ts)
        at = put_int(out, at, node.packet)
        at = put_int(out, at, np.int64(node.wire))
        at = put_int(out, at, np.int64(node.stamp))
        at = put_bytes(out, at, t.pool, node.at, np.int64(node.captured))
        held = np.int64(node.next)
    return put_int(out, at, np.int64(-1))


@helper
def _put_stall(t, out, at, number):  # type: ignore[no-untyped-def]
    """Write what the next stalls of direction `number`, and its count of spurious retransmissions, depend on. If all of
    its data is acknowledged, stalls matter inside of messages only, whose bytes both runs read."""
    stream = t.directions[number]
    more = recovery_of(t, stream)
    following = np.int64(stream.next)
    at = put_int(out, at, np.int64(stream.window))
    at = put_int(out, at, np.int64(stream.shift))
    at = put_int(out, at, np.int64(stream.mss))
    at = put_int(out, at, np.int64(more.spurious_due))
    at = put_int(out, at, more.spurious_end - following if more.spurious_due != 0 else np.int64(0))
    is_recovering = more.recovery > stream.acked_then
    at = put_int(out, at, more.recovery - following if is_recovering else np.int64(0))
    at = put_int(out, at, more.recovered_at if is_recovering else np.int64(0))
    sent = sent_of(t, stream)
    if stream.last_data == 0 or sent <= stream.acked:
        return put_int(out, at, np.int64(-1))
    at = put_int(out, at, sent - following)
    at = put_int(out, at, stream.last_data)
    at = put_int(out, at, stream.freed_at if stream.freed_at > stream.last_data else np.int64(0))
    at = put_int(out, at, following - max(stream.acked_then, np.int64(0)))
    at = put_int(out, at, np.int64(stream.last_wire))
    at = put_int(out, at, np.int64(stream.last_stamp))
    at = put_int(out, at, np.int64(stream.is_limited))
    at = put_int(out, at, np.int64(stream.is_pushed))
    at = put_int(out, at, more.lost_ns)
    at = put_int(out, at, more.awaited_ns)
    if more.copy_end == 0:
        return put_int(out, at, np.int64(-1))
    at = put_int(out, at, more.copy_from - following)
    at = put_int(out, at, more.copy_end - following)
    at = put_int(out, at, more.copy_at)
    at = put_int(out, at, more.copy_stamp)
    at = put_int(out, at, more.copy_since)
    return put_int(out, at, np.int64(more.copies))


@helper
def _put_measures(t, out, at, number):  # type: ignore[no-untyped-def]
    """Write what later measures of direction `number` depend on. Times of data matter while it is not acknowledged."""
    m, stream = t.measures[number], t.directions[number]
    if m.serial != t.connections[number >> 1].serial + 1:
        return put_int(out, at, np.int64(-1))
    following = np.int64(stream.next)
    in_flight = m.sent > stream.acked and m.last_data != 0
    at = put_int(out, at, m.sent - following if m.last_data != 0 else np.int64(0))
    at = put_int(out, at, m.sent - stream.acked if in_flight else np.int64(0))
    at = put_int(out, at, m.last_data if in_flight else np.int64(0))
    at = put_int(out, at, m.timed_at if m.timed_end >= 0 else np.int64(0))
    at = put_int(out, at, m.timed_end - following if m.timed_end >= 0 else np.int64(0))
    return put_int(out, at, m.zero_since)


@kernel(StreamTables, np.int64, np.uint8, int, np.uint8, np.int64)
def write_states(t, numbers, earlier, first, out, ends):  # type: ignore[no-untyped-def]
    """Write the states of connections numbers[first:] one after the other; ends[i] is where that of numbers[i] ends.

    `earlier`: 1 for a connection that is followed by another one on its 4-tuple. Its handshake does not matter any
    more. Return how many of `numbers` are written. If that is fewer than all, `out` is full; ends[i] of the first one
    that is not written is the length that its state alone needs.
    """
    at = np.int64(0)
    for i in range(first, numbers.shape[0]):
        c = numbers[i]
        row = t.connections[c]
        captured = row.syn_at != 0 or row.syn_ack_at != 0
        end = put_int(out, at, row.closed_at)
        end = put_int(out, end, np.int64(row.fin_by))
        end = put_int(out, end, row.fin_at)
        if earlier[i] == 0:
            end = put_int(out, end, row.handshake_rtt_ns)
            open_handshake = captured and row.handshake_rtt_ns < 0
            end = put_int(out, end, row.syn_at if open_handshake else np.int64(-1))
            end = put_int(out, end, row.syn_ack_at if open_handshake else np.int64(-1))
            end = put_int(out, end, np.int64(row.client) if open_handshake else np.int64(-1))
        for number in range(2 * c, 2 * c + 2):
            end = _put_stream(t, out, end, number, captured)
            end = _put_stall(t, out, end, number)
            if t.state[0].measures != 0:
                end = _put_measures(t, out, end, number)
        ends[i] = end
        if end > out.shape[0]:
            ends[i] = end - at
            return i
        at = end
    return numbers.shape[0]


@helper
def _learn_options(stream, end):  # type: ignore[no-untyped-def]
    """Know the options of a direction's SYN, which was not captured here."""
    if stream.shift == SHIFT_UNKNOWN:
        stream.shift = end.shift
        stream.mss = end.mss
        stream.sack_permitted = end.sack_permitted
        stream.timestamps = end.timestamps


@helper
def _move_recovery(row, more):  # type: ignore[no-untyped-def]
    """Count the offsets of a RECOVERY row from `more` bytes earlier."""
    row.sent += more
    if row.recovery > 0:
        row.recovery += more
    row.spurious_end += more
    if row.copy_end != 0:
        row.copy_from += more
        row.copy_end += more


@helper
def _move_measures(measure, more):  # type: ignore[no-untyped-def]
    """Count the offsets of a MEASURE row from `more` bytes earlier."""
    measure.sent += more
    if measure.timed_end >= 0:
        measure.timed_end += more


@kernel(StreamTables, RESUMED_END, int, int, int, int, int)
def resume_connection(t, ends, c, syn_at, syn_ack_at, client, rtt_ns):  # type: ignore[no-untyped-def]
    """Continue connection `c` from what an earlier capture showed of it: `ends` by direction, and its `Handshake`.

    Its bytes are counted from where they were counted there. So a retransmitted SYN has the expected sequence number,
    and does not begin a new connection.
    """
    row = t.connections[c]
    row.is_quiet = 0
    row.syn_at = syn_at
    row.syn_ack_at = syn_ack_at
    if syn_at != 0 or syn_ack_at != 0:
        row.client = client
    if rtt_ns >= 0:
        row.handshake_rtt_ns = rtt_ns
    for direction in range(2):
        number = 2 * c + direction
        end = ends[direction]
        stream = t.directions[number]
        _learn_options(stream, end)
        if stream.started == 0 or end.base_seq < 0:
            continue
        more = (stream.base_seq - end.base_seq) & 0xFFFFFFFF
        stream.base_seq = end.base_seq
        stream.next += more
        stream.acked += more
        if stream.fin >= 0:
            stream.fin += more
        stream.acked_then += more
        if stream.recovery_row != 0:
            _move_recovery(t.recoveries[stream.recovery_row], more)
        if t.state[0].measures != 0:
            _move_measures(t.measures[number], more)
        held = np.int64(stream.held)
        while held >= 0:
            t.held[held].offset += more
            held = np.int64(t.held[held].next)
        held = np.int64(t.directions[number ^ 1].held)
        while held >= 0:
            t.held[held].needs += more
            held = np.int64(t.held[held].next)
    return 0


@kernel(StreamTables, RESUMED_END, int, int, int, int, int)
def expect_connection(t, ends, c, syn_at, syn_ack_at, client, rtt_ns):  # type: ignore[no-untyped-def]
    """Judge the stalls of connection `c`, of which a first packet was read, with what an earlier capture showed of its
    handshake. Arguments as of `resume_connection`, which follows.

    Streams do not depend on it. There is room for two more rows of RECOVERY.
    """
    is_known = rtt_ns >= 0 and syn_at != 0 and syn_ack_at != 0 and client >= 0
    to_server = min(max(np.int64(0), syn_ack_at - syn_at), rtt_ns)
    for direction in range(2):
        stream = t.directions[2 * c + direction]
        _learn_options(stream, ends[direction])
        if is_known:
            own_recovery(t, stream).lag = rtt_ns - to_server if direction == client else to_server
    return 0
