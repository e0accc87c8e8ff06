"""Stalls of streams (`stalls` of reassembly) to the frames that they lie in.

A stall lies within a frame if bytes of the frame came before it and after it. One between two frames costs neither,
except for a late first byte of a response (STALL_LATE).
The parts of a silence are no longer than the time between the bytes around it.
"""

from __future__ import annotations

import numpy as np

from kafkatap.kernels.decorator import helper, inlined
from kafkatap.kernels.readers import signed32

from ..dtypes import NO_TIME
from .connections import forget_silence
from .tables import (
    STALL_ACKED,
    STALL_LATE,
    STALL_LOSS,
    STALL_NAGLE,
    STALL_RECEIVER,
    STALL_RESENT,
    STALL_RETRACTED,
    STALL_SENDER,
    STALL_UNKNOWN,
)

#: A broker's host delays acknowledgements for 40 ms; timers are late, ns.
ACK_DELAY_NS = 50_000_000
#: A request that was not acknowledged for so long is sent again, ns: Linux waits for 200 ms at least.
RETRANSMISSION_NS = 200_000_000


@inlined
def silence_of(t, stream):  # type: ignore[no-untyped-def]
    """The row of SILENCE of a stream, to read it. The same row serves all that need none of their own."""
    return t.silences[stream.silence_row]


@inlined
def own_silence(t, stream):  # type: ignore[no-untyped-def]
    """The row of SILENCE of a stream, to write it. There is room."""
    if stream.silence_row == 0:
        state = t.state[0]
        state.silences += 1
        stream.silence_row = state.silences
    return t.silences[stream.silence_row]


@helper
def _note_reached(t, c, chunk):  # type: ignore[no-untyped-def]
    """Note when waiting requests reached the broker that had to be sent again, or that they did not have to."""
    slot = np.int64(t.connections[c].waiting_first)
    while slot >= 0:
        x, link = t.exchanges[slot], t.links[slot]
        if chunk.opening == STALL_RETRACTED:
            link.reached = NO_TIME
        elif (
            signed32((np.int64(link.request_end) - np.int64(chunk.seq)) & 0xFFFFFFFF) > 0 and chunk.ts > x.request_last
        ):
            link.reached = max(link.reached, chunk.ts)
        slot = np.int64(link.next)


@helper
def _note_resent_end(stream, chunk):  # type: ignore[no-untyped-def]
    """Add up how much later responses arrived than they were captured: their last bytes got lost behind the capture
    point. The exchanges are finished by then. `chunk`: STALL_RESENT or STALL_RETRACTED."""
    if chunk.opening == STALL_RETRACTED:
        stream.resent_sum_ns -= stream.resent_ns
        stream.resent_ns = 0
    elif stream.passed == 0 and stream.last != NO_TIME:
        since = max(np.int64(stream.last), np.int64(stream.resent_until))
        stream.resent_ns = max(np.int64(0), chunk.ts - since)
        stream.resent_sum_ns += stream.resent_ns
        stream.resent_until = max(since, chunk.ts)


@inlined
def _round_trip(acked_ns, away):  # type: ignore[no-untyped-def]
    """The round trip to a broker that acknowledged a request after so long. `away`: that of the handshake.

    It is no longer than that. A broker's host delays an acknowledgement for `ACK_DELAY_NS`, or for a round trip. If it
    is even later, the path is longer now than during the handshake: then all of that time was the path's. If nothing
    was sent again by then, even later ones were not captured.
    """
    if away < min(acked_ns - ACK_DELAY_NS, acked_ns // 2) and acked_ns < RETRANSMISSION_NS:
        return np.int64(acked_ns)
    return min(np.int64(acked_ns), np.int64(away))


@helper
def _note_acked(t, c, chunk):  # type: ignore[no-untyped-def]
    """Note the round trip to the broker for the requests that it acknowledges, and that of the handshake for others."""
    slot = np.int64(t.connections[c].waiting_first)
    while slot >= 0:
        x, link = t.exchanges[slot], t.links[slot]
        behind = (np.int64(chunk.seq) - np.int64(link.request_end)) & 0xFFFFFFFF
        if behind < chunk.stamp:
            link.round_trip_ns = _round_trip(max(np.int64(0), chunk.ts - x.request_last), np.int64(chunk.length))
        elif link.round_trip_ns < 0:
            link.round_trip_ns = chunk.length
        slot = np.int64(link.next)


@helper
def note_stall(t, c, chunk):  # type: ignore[no-untyped-def]
    """Note a STALL chunk."""
    cause, ns = np.int64(chunk.opening), np.int64(chunk.length)
    d = np.int64(chunk.direction)
    if cause == STALL_RESENT or cause == STALL_RETRACTED:
        if d == np.int64(t.connections[c].client):
            _note_reached(t, c, chunk)
        else:
            _note_resent_end(t.streams[2 * c + d], chunk)
        return
    if cause == STALL_ACKED:
        if d == np.int64(t.connections[c].client):
            _note_acked(t, c, chunk)
        return
    silence = own_silence(t, t.streams[2 * c + d])
    silence.quiet_ns += ns
    if cause == STALL_LOSS:
        silence.quiet_loss_ns += ns
    elif cause == STALL_RECEIVER:
        silence.quiet_receiver_ns += ns
    elif cause == STALL_SENDER:
        silence.quiet_sender_ns += ns
    elif cause == STALL_NAGLE:
        silence.quiet_sender_ns += ns
        silence.quiet_nagle_ns += ns
    elif cause == STALL_UNKNOWN:
        silence.quiet_unknown_ns += ns
    elif cause == STALL_LATE:
        silence.quiet_late_ns += ns


@helper
def charge_silence(t, stream, ts):  # type: ignore[no-untyped-def]
    """Charge the stalls since the last bytes of a stream to its current frame. Bytes come at `ts`."""
    silence = silence_of(t, stream)
    if silence.quiet_ns == 0:
        return
    if stream.passed > 0:
        rest = max(np.int64(0), ts - stream.last)
        part = min(rest, max(silence.quiet_loss_ns, silence.quiet_late_ns))
        silence.loss_ns += part
        rest -= part
        part = min(rest, silence.quiet_receiver_ns)
        silence.receiver_ns += part
        rest -= part
        part = min(rest, silence.quiet_sender_ns)
        silence.sender_ns += part
        silence.nagle_ns += min(part, silence.quiet_nagle_ns)
        rest -= part
        silence.unknown_ns += min(rest, silence.quiet_unknown_ns)
    else:
        silence.late_ns = silence.quiet_late_ns
    forget_silence(silence)


@helper
def add_up_frame(t, stream, last):  # type: ignore[no-untyped-def]
    """Add the current frame of a stream, whose last byte came at `last`, to the stream's sums."""
    if last != NO_TIME and stream.first != NO_TIME:
        stream.transfer_sum_ns += max(np.int64(0), last - stream.first)
    if stream.silence_row != 0:
        silence = t.silences[stream.silence_row]
        silence.loss_sum_ns += silence.loss_ns
        silence.receiver_sum_ns += silence.receiver_ns
        silence.sender_sum_ns += silence.sender_ns
        silence.unexplained_sum_ns += silence.unknown_ns
