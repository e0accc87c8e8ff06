"""Stalls of streams (`stalls` of reassembly) to the frames that they lie in.

A stall lies within a frame if bytes of the frame came before it and after it. One between two frames costs neither.
The parts of a silence are no longer than the time between the bytes around it.
"""

from __future__ import annotations

import numpy as np

from kafkatap.kernels.decorator import helper
from kafkatap.kernels.readers import signed32

from ..dtypes import NO_TIME
from .connections import forget_silence
from .tables import (
    STALL_LATE,
    STALL_LOSS,
    STALL_NAGLE,
    STALL_RECEIVER,
    STALL_RESENT,
    STALL_RETRACTED,
    STALL_SENDER,
    STALL_UNKNOWN,
)


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
def note_stall(t, c, chunk):  # type: ignore[no-untyped-def]
    """Note a STALL chunk."""
    cause, ns = np.int64(chunk.opening), np.int64(chunk.length)
    d = np.int64(chunk.direction)
    if cause == STALL_RESENT or cause == STALL_RETRACTED:
        if d == np.int64(t.connections[c].client):
            _note_reached(t, c, chunk)
        return
    stream = t.streams[2 * c + d]
    stream.quiet_ns += ns
    if cause == STALL_LOSS:
        stream.quiet_loss_ns += ns
    elif cause == STALL_RECEIVER:
        stream.quiet_receiver_ns += ns
    elif cause == STALL_SENDER:
        stream.quiet_sender_ns += ns
    elif cause == STALL_NAGLE:
        stream.quiet_sender_ns += ns
        stream.quiet_nagle_ns += ns
    elif cause == STALL_UNKNOWN:
        stream.quiet_unknown_ns += ns
    elif cause == STALL_LATE:
        stream.quiet_late_ns += ns


@helper
def charge_silence(stream, ts):  # type: ignore[no-untyped-def]
    """Charge the stalls since the last bytes of a stream to its current frame. Bytes come at `ts`."""
    if stream.passed > 0:
        rest = max(np.int64(0), ts - stream.last)
        part = min(rest, stream.quiet_loss_ns)
        stream.loss_ns += part
        rest -= part
        part = min(rest, stream.quiet_receiver_ns)
        stream.receiver_ns += part
        rest -= part
        part = min(rest, stream.quiet_sender_ns)
        stream.sender_ns += part
        stream.nagle_ns += min(part, stream.quiet_nagle_ns)
        rest -= part
        stream.unknown_ns += min(rest, stream.quiet_unknown_ns)
    else:
        stream.late_ns = stream.quiet_late_ns
    forget_silence(stream)


@helper
def add_up_frame(stream, last):  # type: ignore[no-untyped-def]
    """Add the current frame of a stream, whose last byte came at `last`, to the stream's sums."""
    if last != NO_TIME and stream.first != NO_TIME:
        stream.transfer_sum_ns += max(np.int64(0), last - stream.first)
    stream.loss_sum_ns += stream.loss_ns
    stream.receiver_sum_ns += stream.receiver_ns
    stream.sender_sum_ns += stream.sender_ns
    stream.unexplained_sum_ns += stream.unknown_ns
