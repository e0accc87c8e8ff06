"""Stalls: times in which a direction sent no data, and why. Every run notes them.

Data that flows leaves less than QUIET_NS between two segments. A longer silence is a stall, and so is any wait of a
sender that had filled the window that it knew. When the segment comes that ends a stall, STALL chunks say what it was,
right before the chunk with its bytes. `opening` is the cause, `length` the duration in ns:

* STALL_LOSS: the segment that ends it was sent before and not acknowledged, or such a retransmission was not
  acknowledged when the stall began. It ends with the acknowledgement of all that was sent before the retransmission;
  what follows is a stall of its own. While the window is closed, a retransmission is a probe (STALL_RECEIVER).
* STALL_RECEIVER: the sender had filled the window, or it was closed.
* STALL_NAGLE: little data was not acknowledged, and as little followed right after its acknowledgement.
* STALL_SENDER: no acknowledgement set the segment free, the one before it ended a write (PSH) and was not full, so that
  nothing was left to send, and less than a segment was under way: the sender was idle. If more was under way, the time
  until its acknowledgement is the path's.
* STALL_PATH: an acknowledgement set it free (the sender waited for a round trip), or the sender had more to send, as
  the one before it ended no write, or by its time stamp it was sent right after that one (a slow link in front of the
  capture point).
* STALL_UNKNOWN: an acknowledgement set it free, but the windows are not known, as the SYN was not captured. Or nothing
  shows that the sender was idle: its program may have paused, or its kernel held data back (congestion window, pacing).

The capture may be made at either end. An acknowledgement that passes the capture point reaches the sender later, and
what the sender then sends passes the capture point later still: after the round trip between both, which the handshake
shows (`lag_of`). Only what the sender knew counts.

Retransmissions behind the capture point bring no new bytes. STALL_RESENT says that the bytes from sequence number `seq`
on reached their receiver with the copy at `ts`, STALL_RETRACTED that they had done so before. A retransmission is
spurious if the acknowledgement echoes an earlier time stamp (Eifel, RFC 3522), comes sooner than a round trip, or came
before it, or if the receiver reports data that it got twice (D-SACK, RFC 2883). STALL_LATE says that the following
bytes are late by `length` ns, if that is a stall: bytes behind them came before them, or, in a capture at their sender,
they left as soon as a loss was over.

Broker time contains the round trip from the capture point to the broker. STALL_ACKED says that the broker acknowledged
`stamp` bytes of requests, which end at `seq`, and how long the round trip to it was during the handshake (`length`;
0: it is near, or not known). It comes only if that is long, or if the acknowledgement may be later than a near
broker's.
"""

from __future__ import annotations

import numpy as np

from kafkatap.kernels.decorator import helper, inlined
from kafkatap.kernels.readers import be32, signed32

from .dtypes import (
    ACK,
    CHUNK_STALL,
    NOT_SCALED,
    PSH,
    RST,
    STALL_ACKED,
    STALL_LATE,
    STALL_LOSS,
    STALL_NAGLE,
    STALL_PATH,
    STALL_RECEIVER,
    STALL_RESENT,
    STALL_RETRACTED,
    STALL_SENDER,
    STALL_UNKNOWN,
    SYN,
)
from .recent_packets import RECENT_ROWS
from .stream_tables import FAR, add_chunk, distance, own_recovery, recovery_of

#: Data segments of a direction that are farther apart than this have a stall between them, ns. Timers and schedulers
#: leave up to a millisecond between the segments of a program that sends as fast as it can; the shortest waits of TCP
#: itself (delayed acknowledgements, retransmission timers) are 40 ms and more.
QUIET_NS = 2_000_000
#: A segment that is set free by an acknowledgement follows it so soon, ns, and half of the round trip to the sender.
RELEASE_NS = 1_000_000
#: One tick of a TCP time stamp, ns, as of today's kernels; those of older ones are longer.
_TICK_NS = 1_000_000
#: A segment lay in a queue if its time stamp is later by less than this part of the stall, and a tick.
_QUEUED_PART = 20
#: The capture is made at the sender if the round trip to it is shorter than this, ns.
NEAR_NS = 1_000_000
#: A broker in the network of the capture point acknowledges sooner: delayed acknowledgements wait for 40 ms, ns.
ACK_DELAY_NS = 50_000_000
#: The MSS of an end that did not announce one, less its timestamps: that of Ethernet.
_USUAL_MSS = 1_448
#: The bytes of a time stamp in the TCP header, and the first four of them: two NOPs, the kind and the length.
_TIME_STAMP, _USUAL_TIME_STAMP = 12, 0x0101080A
#: An end that acknowledges nothing of what is sent again for so long gets none of it. With few losses, the second or
#: third copy arrives, after 600 ms.
STUCK_NS = 1_000_000_000
#: Kinds of TCP options.
_END_OF_OPTIONS, _NOP, _SACK_BLOCKS, _TIMESTAMPS = 0, 1, 5, 8
#: The least length of options with a SACK block.
_LEAST_SACK = 10
#: Packets of a direction that are searched for the one that its receiver knew last.
_MOST_PACKETS = 1_024


@inlined
def window_shift(receiver, sender):  # type: ignore[no-untyped-def]
    """The shift of the windows that `receiver` advertises (DIRECTION rows); -1 if it is not known. Windows are scaled
    only if both ends said so."""
    if receiver.shift == NOT_SCALED or sender.shift == NOT_SCALED:
        return np.int64(0)
    if receiver.shift < 0 or sender.shift < 0:
        return np.int64(-1)
    return np.int64(receiver.shift)


@helper
def lag_of(t, number):  # type: ignore[no-untyped-def]
    """The round trip between the capture point and the sender of direction `number` during the handshake, ns; 0 if it
    was not captured."""
    known = recovery_of(t, t.directions[number]).lag
    if known >= 0:
        return np.int64(known)
    row = t.connections[number >> 1]
    if row.handshake_rtt_ns < 0 or row.syn_at == 0 or row.syn_ack_at == 0:
        return np.int64(0)
    to_server = min(max(np.int64(0), row.syn_ack_at - row.syn_at), row.handshake_rtt_ns)
    return row.handshake_rtt_ns - to_server if number & 1 == row.client else to_server


@inlined
def mss_of(stream, other):  # type: ignore[no-untyped-def]
    """The data that fits into a segment of a connection: its MSS, less what each time stamp takes of it."""
    if stream.mss != 0 and other.mss != 0:
        mss = np.int64(min(stream.mss, other.mss))
        return mss - _TIME_STAMP if stream.timestamps != 0 and other.timestamps != 0 else mss
    return np.int64(_USUAL_MSS)


@inlined
def sent_of(t, stream):  # type: ignore[no-untyped-def]
    """The end of the highest byte that a direction sent."""
    return max(recovery_of(t, stream).sent, stream.next)


@inlined
def is_filled(room, window, mss):  # type: ignore[no-untyped-def]
    """Whether a window with so much room lets its sender send nothing more: less than a segment, or half of it."""
    return room <= 0 or room < min(mss, window // 2)


@inlined
def note_sent(stream, other, segment, sent):  # type: ignore[no-untyped-def]
    """Note a segment with data, up to offset `sent`, for the stall that may follow."""
    stream.last_data = segment.ts
    stream.last_wire = segment.wire
    stream.last_stamp = (segment.timestamps >> 32) & 0xFFFFFFFF
    stream.acked_then = stream.acked
    stream.is_pushed = 1 if segment.tcp_flags & PSH else 0
    _note_limit(stream, other, sent)


@inlined
def _note_limit(stream, other, sent):  # type: ignore[no-untyped-def]
    """Note whether a direction that has sent data up to offset `sent` has filled the window of the other end."""
    shift = window_shift(other, stream)
    stream.is_limited = 0
    if other.window == 0:
        stream.is_limited = 1
    elif shift >= 0 and other.window > 0:
        window = np.int64(other.window) << shift
        room = window - (sent - max(stream.acked, np.int64(0)))
        if is_filled(room, window, mss_of(stream, other)):
            stream.is_limited = 1


@inlined
def note_window(stream, other, segment):  # type: ignore[no-untyped-def]
    """Note the window that a segment of `stream` advertises. A larger one may free `other`, a closed one stops it."""
    if segment.window > stream.window:
        other.freed_at = segment.ts
    elif segment.window == 0:
        other.is_limited = 1
    stream.window = segment.window


@inlined
def may_have_sack(buf, segment):  # type: ignore[no-untyped-def]
    """Whether a segment may have a SACK block: it has options, and they are not the usual time stamp alone."""
    if segment.options < _LEAST_SACK:
        return False
    return segment.options != _TIME_STAMP or be32(buf, segment.at - _TIME_STAMP) != _USUAL_TIME_STAMP


@inlined
def may_have_stalled(t, stream, ts):  # type: ignore[no-untyped-def]
    """Whether `note_stall` has something to say of a direction that sends new data at a time."""
    if stream.last_data == 0:
        return False
    if ts - stream.last_data > QUIET_NS or stream.is_limited != 0:
        return True
    if stream.recovery_row == 0:
        return False
    more = recovery_of(t, stream)
    return more.lost_ns != 0 or more.awaited_ns != 0


@helper
def _add_stall(t, number, cause, ns, ts):  # type: ignore[no-untyped-def]
    """Emit a STALL chunk of direction `number`. `chunks_full` has made room."""
    stream = t.directions[number]
    chunk = add_chunk(t, CHUNK_STALL, number, ts, np.int64(0))
    chunk.opening = cause
    chunk.length = ns
    chunk.seq = (stream.base_seq + stream.next) & 0xFFFFFFFF


@inlined
def note_recovered(t, stream, other, ts):  # type: ignore[no-untyped-def]
    """Note at an acknowledgement of `stream` that all is acknowledged that was sent before its last retransmission.

    Once later data is acknowledged, expect no reports of spurious retransmissions any more: a D-SACK comes at once, or
    it is lost.
    """
    if stream.recovery_row == 0:
        return
    more = recovery_of(t, stream)
    if more.spurious_due != 0 and stream.acked > more.spurious_end:
        more.spurious_due = 0
    if more.recovered_at == 0 and 0 < more.recovery <= stream.acked:
        more.recovered_at = ts
        _note_limit(stream, other, sent_of(t, stream))


@helper
def _was_limited(t, number, begin, lag):  # type: ignore[no-untyped-def]
    """Whether the sender of direction `number` had filled the window that it knew when a stall began: that of the last
    packet so long before."""
    stream, acking = t.directions[number], t.directions[number ^ 1]
    if lag < NEAR_NS or stream.is_limited != 0:
        return stream.is_limited != 0
    shift = window_shift(acking, stream)
    if shift < 0:
        return False
    gone = max(np.int64(0), t.state[0].recent - RECENT_ROWS)
    at = np.int64(acking.recent)
    for _ in range(_MOST_PACKETS):
        if at <= gone:
            break
        row = t.recent[np.uintp(at & (RECENT_ROWS - 1))]
        if row.ts <= begin - lag:
            if row.tcp_flags & (ACK | SYN | RST) != ACK:
                break
            window = np.int64(row.window) << shift
            sent = sent_of(t, stream)
            room = window - (sent - (stream.next + distance(stream, np.int64(row.ack))))
            return is_filled(room, window, mss_of(stream, acking))
        at = row.previous
    return False


@inlined
def may_be_far(stream, ts):  # type: ignore[no-untyped-def]
    """Whether `note_acknowledged` may have something to say of data of a direction that is acknowledged at a time."""
    return ts - stream.last_data > NEAR_NS or stream.next - stream.acked_then > stream.last_wire


@helper
def note_acknowledged(t, number, before, segment):  # type: ignore[no-untyped-def]
    """A segment acknowledges more of direction `number` than `before`. Emit that if its sender may be far."""
    row, stream = t.connections[number >> 1], t.directions[number]
    if (row.client >= 0 and number & 1 != row.client) or stream.last_data == 0:
        return
    away = lag_of(t, number ^ 1)
    is_late = segment.ts - stream.last_data > ACK_DELAY_NS
    answers_earlier = segment.wire > 0 and stream.next - stream.acked_then > stream.last_wire
    if away < NEAR_NS:
        if not is_late and not answers_earlier:
            return
        away = np.int64(0)
    chunk = add_chunk(t, CHUNK_STALL, number, segment.ts, np.int64(0))
    chunk.opening = STALL_ACKED
    chunk.length = away
    chunk.seq = (stream.base_seq + stream.acked) & 0xFFFFFFFF
    chunk.stamp = stream.acked - max(before, np.int64(0))


@inlined
def _in_flight_then(t, stream):  # type: ignore[no-untyped-def]
    """The bytes that were not acknowledged when a direction sent its last data."""
    return sent_of(t, stream) - max(stream.acked_then, np.int64(0))


@helper
def _released_cause(t, number, wire):  # type: ignore[no-untyped-def]
    """Why direction `number` waited for the acknowledgement that set a segment of `wire` bytes free."""
    stream, other = t.directions[number], t.directions[number ^ 1]
    mss = mss_of(stream, other)
    sent = sent_of(t, stream)
    if 0 < _in_flight_then(t, stream) < mss and stream.last_wire < mss and wire < mss and stream.acked >= sent:
        return np.int64(STALL_NAGLE)
    return np.int64(STALL_PATH if window_shift(other, stream) >= 0 else STALL_UNKNOWN)


@inlined
def _was_queued(stream, other, segment):  # type: ignore[no-untyped-def]
    """Whether a segment lay in a queue in front of the capture point: its sender sent it soon after the one before."""
    if stream.timestamps == 0 or other.timestamps == 0 or segment.timestamps == 0:
        return False
    ticks = signed32((((segment.timestamps >> 32) & 0xFFFFFFFF) - np.int64(stream.last_stamp)) & 0xFFFFFFFF)
    return 0 <= ticks * _TICK_NS <= _TICK_NS + (segment.ts - stream.last_data) // _QUEUED_PART


@helper
def _idle_cause(t, number, segment):  # type: ignore[no-untyped-def]
    """Why direction `number` sent nothing although it was free to: its program, if all shows that it was idle."""
    stream, other = t.directions[number], t.directions[number ^ 1]
    if stream.is_pushed == 0 or _was_queued(stream, other, segment):
        return np.int64(STALL_PATH)
    mss = mss_of(stream, other)
    in_flight = sent_of(t, stream) - max(stream.acked, np.int64(0))
    is_idle = in_flight < mss and np.int64(stream.last_wire) % mss != 0
    return np.int64(STALL_SENDER if is_idle else STALL_UNKNOWN)


@helper
def _end_of_loss(t, number, ts, lag):  # type: ignore[no-untyped-def]
    """Emit the loss that ended within the stall of direction `number` that ends at `ts`. Return when it ended, `ts` if
    its end set the segment free."""
    stream = t.directions[number]
    more = recovery_of(t, stream)
    begin = np.int64(stream.last_data)
    end = min(ts, max(begin, more.recovered_at + lag))
    if ts - end <= RELEASE_NS + lag // 2:
        end = ts
    if end > begin:
        _add_stall(t, number, STALL_LOSS, end - begin, ts)
    stream.acked_then = more.recovery
    return end


@helper
def _note_held_back(t, number, ts):  # type: ignore[no-untyped-def]
    """Emit how long a segment of direction `number` at `ts` was held back by a loss, if it left as soon as that was
    over. That shows at its sender only."""
    stream = t.directions[number]
    more = recovery_of(t, stream)
    waited = more.lost_ns + ts - stream.last_data
    if ts - more.recovered_at <= RELEASE_NS and waited > QUIET_NS and lag_of(t, number) < NEAR_NS:
        _add_stall(t, number, STALL_LATE, waited, ts)


@helper
def note_stall(t, number, segment):  # type: ignore[no-untyped-def]
    """Emit what kept direction `number` waiting from its last data segment to this one, which brings new data."""
    stream = t.directions[number]
    more = recovery_of(t, stream)
    ts, begin = segment.ts, np.int64(stream.last_data)
    if more.recovered_at >= begin:
        _note_held_back(t, number, ts)
    if more.lost_ns > 0:
        _add_stall(t, number, STALL_LOSS, more.lost_ns, ts)
        more.lost_ns = 0
    if more.awaited_ns > 0:
        _add_stall(t, number, STALL_PATH, more.awaited_ns, ts)
        more.awaited_ns = 0
    if ts - begin <= 0 or (ts - begin <= QUIET_NS and stream.is_limited == 0):
        return
    lag = lag_of(t, number)
    if stream.acked_then < more.recovery and more.recovered_at != 0:
        begin = _end_of_loss(t, number, ts, lag)
        if ts - begin <= QUIET_NS and stream.is_limited == 0:
            return
    blocked_until = min(ts, max(begin, stream.freed_at + lag))
    if lag >= NEAR_NS and stream.acked < sent_of(t, stream):
        blocked_until = ts  # its sender may know less than was captured
    is_released = blocked_until > begin and ts - blocked_until <= RELEASE_NS + lag // 2
    idle = _idle_cause(t, number, segment)
    cause = idle
    if stream.acked_then < more.recovery:
        cause = np.int64(STALL_LOSS)
    elif _was_limited(t, number, begin, lag):
        cause = np.int64(STALL_RECEIVER)
    elif is_released:
        cause = _released_cause(t, number, segment.wire)
    elif _in_flight_then(t, stream) >= 2 * mss_of(stream, t.directions[number ^ 1]) and blocked_until > begin:
        cause = np.int64(STALL_PATH)
    if is_released or cause == idle:
        blocked_until = ts
    if blocked_until > begin:
        _add_stall(t, number, cause, blocked_until - begin, ts)
    if ts > blocked_until:
        _add_stall(t, number, idle, ts - blocked_until, ts)


@helper
def _option(buf, segment, wanted):  # type: ignore[no-untyped-def]
    """Where the option of a kind begins among those of a segment; -1 if there is none."""
    if segment.options < 0:
        return np.int64(-1)
    end = segment.at
    at = end - segment.options
    while at + 2 <= end:
        kind = np.int64(buf[np.uintp(at)])
        if kind == _NOP:
            at += 1
            continue
        length = np.int64(buf[np.uintp(at + 1)])
        if kind == wanted and at + length <= end:
            return np.int64(at)
        if kind == _END_OF_OPTIONS or length < 2:
            break
        at += length
    return np.int64(-1)


@helper
def _time_stamp(buf, segment, is_echo):  # type: ignore[no-untyped-def]
    """The TCP time stamp of a segment, or that which it echoes; -1 if it has none."""
    at = _option(buf, segment, _TIMESTAMPS)
    if at < 0 or buf[np.uintp(at + 1)] != 10:
        return np.int64(-1)
    return be32(buf, at + (6 if is_echo else 2))


@helper
def _note_copy(t, buf, number, segment, offset, since):  # type: ignore[no-untyped-def]
    """Note a retransmission of bytes that were captured before and not acknowledged. `since`: the data before it."""
    more = own_recovery(t, t.directions[number])
    if more.copy_end == 0:
        more.copy_from = offset
        more.copy_stamp = _time_stamp(buf, segment, False)
        more.copy_since = since
        more.copies = 0
    more.copy_from = min(more.copy_from, offset)
    more.copy_end = max(more.copy_end, offset + segment.wire)
    more.copy_at = segment.ts
    more.copies += 1


@inlined
def _note_spurious(t, stream, count):  # type: ignore[no-untyped-def]
    """Count spurious retransmissions of a direction, which a D-SACK may report later."""
    more = own_recovery(t, stream)
    more.spurious_packets += count
    more.spurious_due += count
    more.spurious_end = sent_of(t, stream)


@helper
def _note_repeated(t, buf, number, segment, offset):  # type: ignore[no-untyped-def]
    """Note a segment with bytes before the highest one sent."""
    stream = t.directions[number]
    sent = sent_of(t, stream)
    end = offset + segment.wire
    if stream.acked >= end and segment.wire == 1 and end == sent:
        return  # a keep-alive
    more = own_recovery(t, stream)
    if stream.acked >= end:
        _note_spurious(t, stream, 1)
        return
    since = np.int64(stream.last_data)
    silent = segment.ts - since
    if stream.last_data != 0 and silent > QUIET_NS:
        if t.directions[number ^ 1].window == 0:
            _add_stall(t, number, STALL_RECEIVER, silent, segment.ts)
        else:
            more.lost_ns += silent
    more.recovery = max(more.recovery, max(sent, end))
    more.recovered_at = 0
    stream.last_data = segment.ts
    stream.last_stamp = (segment.timestamps >> 32) & 0xFFFFFFFF
    stream.acked_then = stream.acked
    if end <= stream.next:
        _note_copy(t, buf, number, segment, offset, since)
        return
    if more.lost_ns > 0:
        _add_stall(t, number, STALL_LOSS, more.lost_ns, segment.ts)
        more.lost_ns = 0
    if stream.held >= 0 and offset <= stream.next:
        late = segment.ts - t.held[stream.held].ts
        if t.held[stream.held].offset > stream.next and late > QUIET_NS:
            _add_stall(t, number, STALL_LATE, late, segment.ts)


@helper
def note_data(t, buf, number, segment, offset):  # type: ignore[no-untyped-def]
    """Note a segment of direction `number` with data from a stream offset on, before its bytes are added."""
    stream = t.directions[number]
    if abs(offset - stream.next) > FAR:
        return
    if stream.last_data != 0 and offset < sent_of(t, stream):
        _note_repeated(t, buf, number, segment, offset)
    else:
        if may_have_stalled(t, stream, segment.ts):
            note_stall(t, number, segment)
        note_sent(stream, t.directions[number ^ 1], segment, offset + segment.wire)


@inlined
def note_waiting(t, stream, end):  # type: ignore[no-untyped-def]
    """Note that bytes of a direction up to offset `end` were sent, which have to wait before `next` passes them."""
    if end > sent_of(t, stream):
        own_recovery(t, stream).sent = end


@inlined
def has_copies(t, stream):  # type: ignore[no-untyped-def]
    """Whether retransmitted bytes of a direction wait for their acknowledgement (`resolve_copies`)."""
    return recovery_of(t, stream).copy_end != 0


@helper
def _is_spurious(t, buf, number, segment):  # type: ignore[no-untyped-def]
    """Whether a segment that acknowledges retransmitted bytes of direction `number` shows that the first copy
    arrived."""
    more = recovery_of(t, t.directions[number])
    echoed = _time_stamp(buf, segment, True)
    if echoed >= 0 and more.copy_stamp >= 0:
        return signed32((echoed - more.copy_stamp) & 0xFFFFFFFF) < 0
    away = lag_of(t, number ^ 1)
    return away >= NEAR_NS and segment.ts - more.copy_at < away // 2


@helper
def resolve_copies(t, buf, number, segment):  # type: ignore[no-untyped-def]
    """A segment of the other end acknowledges retransmitted bytes of direction `number`, which `has_copies`."""
    stream = t.directions[number]
    more = recovery_of(t, stream)
    if stream.acked <= more.copy_from:
        return
    if more.copies > 1 and segment.ts - more.copy_since >= STUCK_NS:
        more.stuck_ns = segment.ts - more.copy_since
        more.stuck_at = more.copy_since
    more.copy_since = segment.ts
    if _is_spurious(t, buf, number, segment):
        _note_spurious(t, stream, more.copies)
        more.awaited_ns += more.lost_ns
        more.lost_ns = 0
        more.recovery = 0
    else:
        chunk = add_chunk(t, CHUNK_STALL, number, more.copy_at, np.int64(0))
        chunk.opening = STALL_RESENT
        chunk.seq = (stream.base_seq + more.copy_from) & 0xFFFFFFFF
    more.copies = 0
    more.copy_from = stream.acked
    if stream.acked >= more.copy_end:
        more.copy_end = 0
        more.copy_from = 0


@helper
def _duplicate_bytes(buf, segment):  # type: ignore[no-untyped-def]
    """The length of the first SACK block of a segment if it lies below its acknowledgement: its sender got those bytes
    twice. 0 if it lies above: it got bytes behind missing ones. -1 if there is none."""
    at = _option(buf, segment, _SACK_BLOCKS)
    if at < 0 or buf[np.uintp(at + 1)] < 10:
        return np.int64(-1)
    first, last = be32(buf, at + 2), be32(buf, at + 6)
    if signed32((last - segment.ack) & 0xFFFFFFFF) > 0:
        return np.int64(0)
    return max(np.int64(0), signed32((last - first) & 0xFFFFFFFF))


@helper
def note_duplicate_report(t, buf, number, segment):  # type: ignore[no-untyped-def]
    """Count what a segment reports by D-SACK: its sender got data of direction `number` twice. A report of data behind
    missing bytes frees its sender, as an acknowledgement does."""
    if segment.options < _LEAST_SACK:
        return
    length = _duplicate_bytes(buf, segment)
    if length == 0:
        t.directions[number].freed_at = segment.ts
    if length <= 0:
        return
    stream, other = t.directions[number], t.directions[number ^ 1]
    mss = mss_of(stream, other)
    count = max(np.int64(1), (length + mss - 1) // mss)
    more = own_recovery(t, stream)
    known = min(count, np.int64(more.spurious_due))
    more.spurious_due -= known
    if count == known:
        return
    more.spurious_packets += count - known
    more.awaited_ns += more.lost_ns
    more.lost_ns = 0
    more.recovery = 0
    more.recovered_at = 0
    _add_stall(t, number, STALL_RETRACTED, np.int64(0), segment.ts)
