"""The state of connections as bytes, and how a connection is resumed.

Connections with equal states handle the same later packets alike.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from kafkatap.kernels import kernel
from kafkatap.kernels.decorator import helper
from kafkatap.kernels.writers import put_bytes, put_int

from .dtypes import SHIFT_UNKNOWN
from .stalls import sent_of
from .stream_tables import StreamTables, own_recovery, recovery_of

Array = np.ndarray[Any, Any]


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
    at = put_int(out, at, more.recovery - following if more.recovery > stream.acked_then else np.int64(0))
    sent = sent_of(t, stream)
    if stream.last_data == 0 or sent <= stream.acked:
        return put_int(out, at, np.int64(-1))
    at = put_int(out, at, sent - following)
    at = put_int(out, at, stream.last_data)
    at = put_int(out, at, stream.freed_at if stream.freed_at > stream.last_data else np.int64(0))
    at = put_int(out, at, following - max(stream.acked_then, np.int64(0)))
    at = put_int(out, at, np.int64(stream.last_wire))
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


def resume_connection(t: StreamTables, c: int, known: Resumption) -> None:
    """Continue connection `c` from what an earlier capture showed of it.

    Its bytes are counted from where they were counted there. So a retransmitted SYN has the expected sequence number,
    and does not begin a new connection.
    """
    row = t.connections[c]
    row.is_quiet = 0
    row.syn_at, row.syn_ack_at = known.handshake.syn_at, known.handshake.syn_ack_at
    if known.handshake.syn_at or known.handshake.syn_ack_at:
        row.client = known.handshake.client
    if known.handshake.rtt_ns >= 0:
        row.handshake_rtt_ns = known.handshake.rtt_ns
    for number, base, options in zip((2 * c, 2 * c + 1), known.base_seqs, known.options, strict=True):
        stream = t.directions[number]
        if stream.shift == SHIFT_UNKNOWN:
            stream.shift, stream.mss, stream.sack_permitted, stream.timestamps = options
        if not stream.started or base < 0:
            continue
        more = (int(stream.base_seq) - base) & 0xFFFFFFFF
        stream.base_seq = base
        stream.next += more
        stream.acked += more
        stream.fin += more if stream.fin >= 0 else 0
        stream.acked_then += more
        if stream.recovery_row:
            _move_recovery(t.recoveries[stream.recovery_row], more)
        if t.state[0].measures:
            _move_measures(t.measures[number], more)
        for i in _held_rows(t, number):
            t.held[i].offset += more
        for i in _held_rows(t, number ^ 1):
            t.held[i].needs += more


def _move_recovery(row: Any, more: int) -> None:
    """Count the offsets of a RECOVERY row from `more` bytes earlier."""
    row.sent += more
    row.recovery += more if row.recovery > 0 else 0
    row.spurious_end += more
    if row.copy_end:
        row.copy_from += more
        row.copy_end += more


def _move_measures(measure: Any, more: int) -> None:
    """Count the offsets of a MEASURE row from `more` bytes earlier."""
    measure.sent += more
    measure.timed_end += more if measure.timed_end >= 0 else 0


def expect_connection(t: StreamTables, c: int, known: Resumption) -> None:
    """Judge the stalls of connection `c`, of which a first packet was read, with what an earlier capture showed of its
    handshake.

    `resume_connection` follows. Streams do not depend on it. There is room for two more rows of RECOVERY.
    """
    to_server, rtt, client = known.handshake.syn_ack_at - known.handshake.syn_at, known.handshake.rtt_ns, -1
    if rtt >= 0 and known.handshake.syn_at and known.handshake.syn_ack_at:
        to_server, client = min(max(0, to_server), rtt), known.handshake.client
    for direction, options in enumerate(known.options):
        stream = t.directions[2 * c + direction]
        if stream.shift == SHIFT_UNKNOWN:
            stream.shift, stream.mss, stream.sack_permitted, stream.timestamps = options
        if client >= 0:
            own_recovery(t, stream).lag = rtt - to_server if direction == client else to_server


def _held_rows(t: StreamTables, number: int) -> list[int]:
    """Return the rows of what direction `number` holds, in order of offset."""
    rows = []
    row = int(t.directions[number].held)
    while row >= 0:
        rows.append(row)
        row = int(t.held[row].next)
    return rows
