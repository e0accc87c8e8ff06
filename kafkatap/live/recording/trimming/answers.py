"""What brokers send while clients authenticate, and at other times."""

from __future__ import annotations

import numpy as np

from kafkatap.kernels.decorator import helper
from kafkatap.kernels.readers import be16, be32, signed16, signed32

from .flows import FAR, FLEXIBLE, FOLLOWED, NO_TOKEN_BEGINS_SO, SIZE, TOKENS, WRAP, ZERO, hide


@helper
def _varying(buf, at, end):  # type: ignore[no-untyped-def]
    """Read a length of varying size: return it, less 1, and where it ends; -2 if it does not end before `end`."""
    value, shift = np.int64(0), np.int64(0)
    while at < end and shift < 35:
        value |= np.int64(buf[at] & 127) << shift
        at += 1
        if buf[at - 1] < 128:
            return value - 1, at
        shift += 7
    return np.int64(-2), at


@helper
def _kept_of_answer(t, buf, at, captured, wire, flow):  # type: ignore[no-untyped-def]
    """Hide the token in an answer to one. Return how many of its captured bytes are kept: none, if it is not whole."""
    end = at + captured
    if captured < 10 or captured != wire or be32(buf, at) != wire - SIZE:
        if captured == wire and wire >= SIZE and be32(buf, at) == wire - SIZE and flow.is_bare:
            hide(t, buf, at + SIZE, end, np.int64(NO_TOKEN_BEGINS_SO))
            return captured
        return np.int64(0)
    if flow.is_bare:
        hide(t, buf, at + SIZE, end, np.int64(NO_TOKEN_BEGINS_SO))
        return captured
    is_flexible = flow.version >= FLEXIBLE
    if is_flexible and buf[at + 8] != 0:  # tagged fields
        return np.int64(10)
    where = at + SIZE + 4 + (3 if is_flexible else 2)  # behind the error code
    kept = np.int64(10)
    if is_flexible:
        length, where = _varying(buf, where, end)
    elif where + 2 <= end:
        length = signed16(be16(buf, where))
        where += 2
    else:
        return kept
    if length < -1 or where + max(length, 0) + 1 > end:
        return kept
    where += max(length, 0)
    kept = where - at
    if is_flexible:
        length, where = _varying(buf, where, end)
    elif where + 4 <= end:
        length = signed32(be32(buf, where))
        where += 4
    else:
        return kept
    rest = end - where - max(length, 0)  # of the session's lifetime, and tagged fields
    if length < -1 or rest < 0 or (rest != (8 if flow.version > 0 else 0) and not (is_flexible and rest > 8)):
        return kept
    hide(t, buf, where, where + max(length, 0), np.int64(ZERO))
    return captured


@helper
def kept_of_broker(t, buf, at, captured, wire, seq, ack, flow, side, other):  # type: ignore[no-untyped-def]
    """Return how many captured bytes of a segment of the broker are kept. `other`: the client's direction."""
    if signed32((ack - other.next) & WRAP) > 0:  # the broker has read what was not seen: it may have been a token
        return np.int64(0)
    if other.mode != FOLLOWED or other.begun == 0:
        return np.int64(0)
    if side.has_secret:
        ahead = signed32((seq - side.secret) & WRAP)
        if ahead < 0:
            return np.int64(0)  # it came before
        if ahead > FAR:
            side.has_secret = 0
    if flow.auth != TOKENS:
        return captured
    side.has_secret = 1
    side.secret = (seq + wire) & WRAP
    return _kept_of_answer(t, buf, at, captured, wire, flow)
