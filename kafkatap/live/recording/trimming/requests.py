"""What clients send: where requests begin, and tokens in them."""

from __future__ import annotations

import numpy as np

from kafkatap.kernels.decorator import helper
from kafkatap.kernels.readers import be16, be32, signed16, signed32

from .flows import (
    AGREED,
    AUTHENTICATE,
    FLEXIBLE,
    FOLLOWED,
    GUESSED,
    HANDSHAKE,
    HEAD,
    LOST,
    NO_SASL,
    NO_TOKEN_BEGINS_SO,
    SIZE,
    TOKENS,
    WRAP,
    ZERO,
    begin_frame,
    follow_from,
    hide,
    note_secret,
)

_CONTROLLED_SHUTDOWN = 7
#: No API of Kafka and no version is as large: printable tokens are.
_NO_API, _NO_VERSION = 128, 32
#: The least bytes of a request behind its size: API, version, correlation id.
_LEAST = 8
#: The longest request, as brokers accept it, with room; and the longest bare token.
_LONGEST, _LONGEST_TOKEN = 110 << 20, 16 << 20
#: Bytes before the newest ones that may come again.
_AGAIN = 16 << 20


@helper
def is_request(buf, at, end):  # type: ignore[no-untyped-def]
    """Whether buf[at:end] begins with the header of a request up to the length of its client id."""
    if at + HEAD > end:
        return False
    size = be32(buf, at)
    name = signed16(be16(buf, at + 12))
    if size < HEAD - SIZE or size > _LONGEST or name < -1 or name > size - (HEAD - SIZE):
        return False
    if be16(buf, at + 4) >= _NO_API or be16(buf, at + 6) >= _NO_VERSION:
        return False
    for k in range(at + HEAD, min(at + HEAD + name, end)):  # noqa: SIM110 -- numba compiles no generators
        if buf[k] < 32:
            return False
    return True


@helper
def is_tls(buf, at, end):  # type: ignore[no-untyped-def]
    """Whether a record of TLS seems to begin at buf[at:end]. As the size of a request it would be too large."""
    if at + 5 > end:
        return False
    length = be16(buf, at + 3)
    return 20 <= buf[at] <= 23 and buf[at + 1] == 3 and buf[at + 2] <= 4 and 0 < length <= 18_432


@helper
def proxy_header(buf, at, end):  # type: ignore[no-untyped-def]
    """The length of a header of the PROXY protocol at buf[at:end], 0 if there is none that is whole."""
    if at + 16 > end:
        return np.int64(0)
    word = be32(buf, at)
    if word == 0x50524F58 and buf[at + 4] == 0x59 and buf[at + 5] == 0x20:  # "PROXY "
        for k in range(at + 6, min(at + 106, end - 1)):
            if buf[k] == 13 and buf[k + 1] == 10:
                return np.int64(k + 2 - at)
        return np.int64(0)
    if word == 0x0D0A0D0A and be32(buf, at + 4) == 0x000D0A51 and be32(buf, at + 8) == 0x5549540A:
        length = 16 + be16(buf, at + 14)
        return np.int64(length if at + length <= end else 0)
    return np.int64(0)


@helper
def _find_begin(t, buf, at, captured, wire, seq, ack, flow, d, side, other):  # type: ignore[no-untyped-def]
    """Find where a request begins in a segment of a direction that is lost. Return its offset, -1 if there is none.

    Other bytes may look like a request: answers to one of the first 31 requests, or what begins amid a header. So one
    counts only if it has a client id and fills the segment, or if another one follows it.
    """
    end = at + captured
    start = proxy_header(buf, at, end)
    if is_request(buf, at + start, end):
        name = signed16(be16(buf, at + start + 12))
        if 0 < name <= captured - start - HEAD and be32(buf, at + start) + SIZE == wire - start:
            follow_from(side, FOLLOWED, seq + start)
            note_secret(other, ack)
            flow.client = d
            return start
        if name != 0:
            follow_from(side, GUESSED, seq + start)
            return start
    if flow.auth == NO_SASL and is_tls(buf, at + start, end):
        flow.encrypted = 1
        return np.int64(-1)
    if start > 0:
        follow_from(side, FOLLOWED, seq + start)
        note_secret(other, ack)
        flow.client = d
        return start
    for offset in range(1, captured - HEAD):
        if is_request(buf, at + offset, end):
            name = signed16(be16(buf, at + offset + 12))
            if 0 < name <= captured - offset - HEAD:
                follow_from(side, GUESSED, seq + offset)
                return np.int64(offset)
    return np.int64(-1)


@helper
def _decide_token(flow, side, token, filler):  # type: ignore[no-untyped-def]
    side.decided = 1
    side.token = token
    side.filler = filler
    side.left = side.bytes + SIZE - side.pos
    flow.auth = TOKENS


@helper
def _may_be_vendors(flow, side):  # type: ignore[no-untyped-def]
    """Whether a request may have a larger API: no token is expected."""
    return flow.auth == NO_SASL and side.mode == FOLLOWED


@helper
def _lose(flow, side):  # type: ignore[no-untyped-def]
    """It is not known any more where requests begin."""
    side.mode = LOST
    if not flow.opened:
        flow.client = -1


@helper
def _decide(flow, side, other, ack):  # type: ignore[no-untyped-def]
    """Decide what a frame is of which the header is there, or as much as it has. Return False if it is no request."""
    is_short = side.pos < HEAD
    is_plausible = (
        (side.api < _NO_API or _may_be_vendors(flow, side))
        and side.version < _NO_VERSION
        and (
            (is_short and side.api == _CONTROLLED_SHUTDOWN and side.bytes >= _LEAST)
            or (not is_short and -1 <= side.name <= side.bytes - (HEAD - SIZE))
        )
    )
    if not is_plausible:
        if flow.auth == NO_SASL or side.mode != FOLLOWED or side.bytes > _LONGEST_TOKEN:
            return False
        flow.is_bare = 1
        _decide_token(flow, side, np.int64(SIZE), np.int64(NO_TOKEN_BEGINS_SO))
        return True
    side.begun += 1
    side.named = side.name
    if side.api == AUTHENTICATE:
        flow.is_bare = 0
        flow.version = side.version
        name = max(np.int64(side.name), np.int64(0))
        side.varies = 1 if side.version >= FLEXIBLE else 0
        _decide_token(flow, side, HEAD + name + (1 if side.varies else 4), np.int64(ZERO))
        return True
    if side.api == HANDSHAKE:
        flow.auth = AGREED
    elif flow.auth != NO_SASL:
        if flow.auth == TOKENS:
            note_secret(other, ack)
        flow.auth = NO_SASL
    side.decided = 1
    side.left = side.bytes + SIZE - side.pos
    return True


@helper
def _read_head(t, buf, at, p, captured, flow, side, other, ack):  # type: ignore[no-untyped-def]
    """Read the header of a frame from offset `p` of a segment on. Return the offset behind what was read of it, or -1
    if it is no request."""
    first = p
    while side.decided == 0:
        if side.pos == SIZE and (side.bytes > _LONGEST or side.bytes == 0):
            if side.bytes > 0 or flow.auth == NO_SASL:
                return np.int64(-1)
            side.decided = 1  # an empty token
            return p
        is_whole = side.pos == HEAD or (side.pos > SIZE and side.pos == side.bytes + SIZE)
        is_large = side.api >= _NO_API and not _may_be_vendors(flow, side)
        is_odd = side.pos == _LEAST and (side.version >= _NO_VERSION or is_large)
        if is_whole or is_odd:
            if not _decide(flow, side, other, ack):
                return np.int64(-1)
            break
        if p >= captured:
            break
        value = np.int64(buf[at + p])
        if side.pos < SIZE:
            side.bytes = (side.bytes << 8) | value
        elif side.pos < 6:
            side.api = (side.api << 8) | value
        elif side.pos < _LEAST:
            side.version = (side.version << 8) | value
        elif side.pos >= 12:
            side.name = signed16((side.name << 8) | value) if side.pos == 13 else value
        side.pos += 1
        p += 1
    may_be_token = side.token == SIZE or (side.decided == 0 and flow.auth != NO_SASL)
    if may_be_token:
        hide(t, buf, at + max(first, p - max(side.pos - SIZE, 0)), at + p, np.int64(NO_TOKEN_BEGINS_SO))
    return p


@helper
def _hide_token(t, buf, at, p, count, captured, side):  # type: ignore[no-untyped-def]
    """Hide what the next `count` bytes of a frame, from offset `p` of a segment on, have of its token."""
    begin = max(p, p + side.token - side.pos)
    end = min(p + count, captured)
    while side.varies and begin < end:  # the length before the token
        if buf[at + begin] < 128 or side.varies == 5:
            side.varies = 0
        else:
            side.varies += 1
        begin += 1
        side.token += 1
    hide(t, buf, at + begin, at + end, side.filler)


@helper
def kept_of_client(t, buf, at, captured, wire, seq, ack, flow, d, side, other):  # type: ignore[no-untyped-def]
    """Read a segment that may have requests. Return how many of its captured bytes are kept, from the first on."""
    p = np.int64(0)
    if side.mode == FOLLOWED and side.begun == 0 and side.pos == 0 and seq == side.next:  # the first bytes
        p = proxy_header(buf, at, at + captured)
        if is_tls(buf, at + p, at + captured):
            flow.encrypted = 1
            return captured
        if p > 0:
            follow_from(side, FOLLOWED, seq + p)
    elif side.mode != LOST:
        ahead = signed32((seq - side.next) & WRAP)
        if ahead < 0:  # bytes that came before
            p = min(-ahead, wire)
            if side.mode != FOLLOWED or signed32((seq - side.clean) & WRAP) < 0:
                hide(t, buf, at, at + min(p, captured), np.int64(ZERO))
        elif ahead > 0:  # bytes are missing
            if side.decided and ahead <= side.left:
                side.pos += ahead
                side.left -= ahead
                side.varies = 0
                if side.token >= 0:
                    side.clean = seq
                if side.left == 0:
                    begin_frame(side)
            else:
                _lose(flow, side)
    if side.mode == LOST:
        p = _find_begin(t, buf, at, captured, wire, seq, ack, flow, d, side, other)
        if p < 0:
            return captured if flow.encrypted else np.int64(0)
    is_kept = side.mode == FOLLOWED
    while p < wire:
        begin = p
        if side.decided == 0:
            before, name = side.begun, side.named
            p = _read_head(t, buf, at, p, captured, flow, side, other, ack)
            if p < 0 or (side.decided == 0 and p < wire):  # no request, or cut within a header
                _lose(flow, side)
                return min(begin, captured) if is_kept else np.int64(0)
            if side.mode == GUESSED and before > 0 and side.begun > before and side.named == name:
                side.mode = FOLLOWED
                side.clean = (seq + p) & WRAP
                note_secret(other, ack)
                flow.client = d
        if side.decided:
            count = min(np.int64(side.left), wire - p)
            if side.token >= 0:
                _hide_token(t, buf, at, p, count, captured, side)
            side.pos += count
            side.left -= count
            p += count
            if side.token >= 0:
                side.clean = (seq + p) & WRAP
            if side.left == 0:
                begin_frame(side)
        elif flow.auth != NO_SASL:
            side.clean = (seq + p) & WRAP
    if signed32((seq + wire - side.next) & WRAP) > 0:
        side.next = (seq + wire) & WRAP
    if ((side.next - side.clean) & WRAP) > 2 * _AGAIN:
        side.clean = (side.next - _AGAIN) & WRAP
    return captured if is_kept else np.int64(0)
