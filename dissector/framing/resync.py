"""The search for a frame's start where sync was lost.

Every offset of the search buffer is tried, in order. A request is confirmed by its header and by its body, which the
schema has to read to its very end; a response by a correlation_id that was asked for as well. What neither ends with a
segment nor is followed by another header is not believed, nor is a body that does not fit, unless the frame starts and
ends as segments do. A candidate that is not whole waits for more bytes, without holding up confirmed ones behind it.
"""

from __future__ import annotations

import numpy as np

from kafkatap.kernels.decorator import helper
from kafkatap.kernels.readers import be16, be32, signed32

from ..dtypes import INCOMPLETE, OK
from .buffers import defer_buffer, drop_mark
from .connections import CERTAIN, FIRM, KAFKA, LOOSE
from .correlation import PRODUCE, client_id_length, find_pending, program_of
from .evidence import (
    ACCEPT,
    BODY,
    PROGRAM,
    REJECT,
    SEARCH_DEPTH,
    WAIT,
    body_status,
    is_named,
    request_header,
    response_header,
)

#: What a search buffer holds at most before a doubtful candidate is decided with what is there.
SEARCH_LIMIT = 1 << 18
#: A candidate longer than this is not looked at again with each segment.
RETRY_FROM = 4_096
#: Bytes of a body that were captured and make sense, where neither its end nor a client's name speaks for a frame.
ENOUGH = 16
#: A verdict beside REJECT, ACCEPT and WAIT: a frame that is believed until another one contradicts it.
DOUBT = 3


@helper
def chunk_ends_at(t, stream, offset):  # type: ignore[no-untyped-def]
    """Whether a piece of the search buffer ends at this offset."""
    if stream.marks_last < 0 or t.marks[stream.marks_last].offset + t.marks[stream.marks_last].wire < offset:
        return False
    number = np.int64(stream.marks_first)
    while number >= 0 and t.marks[number].offset < offset:
        mark = t.marks[number]
        if mark.offset + mark.wire == offset:
            return True
        number = np.int64(mark.next)
    return False


@helper
def _is_followed(t, c, buf, at, end, as_response):  # type: ignore[no-untyped-def]
    """Whether the header of another frame of this direction stands at buf[at:end]."""
    if as_response:
        return find_pending(t, t.dialogs[c], signed32(be32(buf, at + 4)), SEARCH_DEPTH) >= 0
    known = program_of(t.index, 0, be16(buf, at + 4), be16(buf, at + 6)) >= 0
    return known and client_id_length(buf, at + 4, end) >= -1


@helper
def _try_frame(t, c, stream, x, as_response, fresh, final):  # type: ignore[no-untyped-def]
    """Whether a frame starts at offset x of the search buffer: a request, or a response that was asked for."""
    dialog = t.dialogs[c]
    buf = t.pool
    at = stream.buffer + x
    end = stream.buffer + stream.used
    header = response_header(t, c, buf, at, end) if as_response else request_header(t, buf, at, end)
    if header == REJECT:
        return REJECT
    # Until it is known which end is the client, a response may look like a Produce request: the correlation_id is the
    # key and version, the number of topics the correlation_id, the first topic the client_id. Its body gives it away,
    # and only headers that name a client are believed.
    sure = dialog.client >= 0
    named = True
    if not as_response and at + 14 <= end:
        if t.scratch[PROGRAM] < 0:
            return REJECT
        named = is_named(t, dialog, buf, at, end)
        # Inside of a segment a client_id that is no text is too little to wait for.
        if not named and not (sure if t.scratch[BODY] <= at + 14 else fresh):
            return REJECT
    if header == WAIT:
        return REJECT if final else WAIT
    frame_end = at + 4 + be32(buf, at)
    whole = frame_end <= end
    aligned = chunk_ends_at(t, stream, frame_end - stream.buffer)
    if t.scratch[PROGRAM] < 0:
        if not fresh or (whole and not aligned):
            return REJECT
        return ACCEPT if whole else DOUBT
    status = body_status(t, buf, at, end, not as_response, fresh)
    confirmed = dialog.protocol == KAFKA
    if whole:
        if status != OK:  # trailing bytes, or a message that the schema cannot read
            return ACCEPT if fresh and aligned and confirmed else REJECT
        if aligned or (fresh and sure):
            return ACCEPT
        # One that does not end where a segment does is confirmed by the header behind it.
        if frame_end + 14 > end:
            return REJECT if final else WAIT
        followed = _is_followed(t, c, buf, frame_end, end, as_response)
        return ACCEPT if followed or (as_response and frame_end - at >= 28) else REJECT
    if status != INCOMPLETE:
        return REJECT
    if not final:
        return WAIT
    # What is there of it makes sense. Inside of a segment that is too little to go by, but for a response that was
    # asked for; a frame whose end was not captured (small snap length) starts with a segment as a rule.
    if as_response:
        return DOUBT if fresh or end - at >= 64 else REJECT
    hint = (named or (aligned and end - t.scratch[BODY] >= ENOUGH)) and (sure or be16(buf, at + 4) != PRODUCE)
    return DOUBT if fresh and (confirmed or hint) else REJECT


@helper
def contradicts(t, c, buf, piece, as_response, doubt):  # type: ignore[no-untyped-def]
    """Whether a piece within a doubted frame starts a frame of its own: ACCEPT a whole one, DOUBT one that fits as far
    as it is there (against LOOSE evidence only), or REJECT."""
    at = piece.at
    end = at + np.int64(piece.captured)
    header = response_header(t, c, buf, at, end) if as_response else request_header(t, buf, at, end)
    if header != ACCEPT or t.scratch[PROGRAM] < 0:
        return REJECT
    frame_end = at + 4 + be32(buf, at)
    status = body_status(t, buf, at, end, not as_response, True)
    if frame_end <= end:
        followed = frame_end + 14 <= end and _is_followed(t, c, buf, frame_end, end, as_response)
        return ACCEPT if status == OK and (followed or frame_end == at + piece.wire) else REJECT
    return DOUBT if status == INCOMPLETE and doubt == LOOSE else REJECT


@helper
def _drop_front(t, stream, x):  # type: ignore[no-untyped-def]
    """Take the first x bytes off a search buffer: they are no part of a frame that can be told."""
    if x <= 0:
        return
    stream.skipped_bytes += x
    stream.searched += x
    base = stream.buffer
    for k in range(stream.used - x):
        t.pool[np.uintp(base + k)] = t.pool[np.uintp(base + x + k)]
    stream.used -= x
    number = np.int64(stream.marks_first)
    while number >= 0:
        mark = t.marks[number]
        following = np.int64(mark.next)
        if mark.offset + mark.wire <= x and (following >= 0 or mark.wire == np.int64(mark.captured)):
            drop_mark(t, stream)
        elif mark.offset < x:
            cut = x - mark.offset
            mark.offset = 0
            mark.wire -= cut
            mark.captured -= cut
            mark.fresh = 0
        else:
            mark.offset -= x
        number = following


@helper
def empty_search(t, stream):  # type: ignore[no-untyped-def]
    """Give up all of a search buffer."""
    while stream.marks_first >= 0:
        stream.skipped_bytes += t.marks[stream.marks_first].wire
        drop_mark(t, stream)
    defer_buffer(t, stream)


@helper
def search_frame(t, c, d, stream, final):  # type: ignore[no-untyped-def]
    """Whether a frame was found in the search buffer; it starts there then. Bytes before it, or in vain, are dropped.
    stream.doubt tells whether another one may yet contradict it."""
    dialog = t.dialogs[c]
    as_response = dialog.client >= 0 and d != np.int64(dialog.client)
    # Where nothing was asked for, nothing can be an answer that matters.
    x = np.int64(stream.used if as_response and dialog.pending_first < 0 else 0)
    decide = final or stream.used > SEARCH_LIMIT
    number = np.int64(stream.marks_first)
    found = np.int64(REJECT)
    waiting = np.int64(-1)  # the first candidate that more bytes may confirm
    while x < stream.used:
        while number >= 0 and t.marks[number].next >= 0 and t.marks[t.marks[number].next].offset <= x:
            number = np.int64(t.marks[number].next)
        mark = t.marks[number]
        fresh = mark.offset == x and mark.fresh == 1
        verdict = np.int64(REJECT)
        if fresh or waiting < 0:
            verdict = np.int64(_try_frame(t, c, stream, x, as_response, fresh, decide))
        if verdict == ACCEPT or verdict == DOUBT:
            found = verdict
            stream.doubt = CERTAIN if verdict == ACCEPT else (FIRM if fresh else LOOSE)
            break
        if verdict == WAIT and waiting < 0:
            waiting = x
        if waiting < 0:
            x += 1
        else:
            # While one waits, only a frame that starts with a segment and is confirmed at once goes before it.
            following = np.int64(mark.next)
            x = t.marks[following].offset if following >= 0 else stream.used
    stream.retry = 0
    if found == REJECT and waiting >= 0:
        x = waiting
        if not final and stream.used - x > RETRY_FROM:
            # Each look decodes it from its start again: look when it is whole, or a sixteenth longer.
            whole = be32(t.pool, stream.buffer + x) + 4
            stream.retry = min(whole, (stream.used - x) + (stream.used - x) // 16)
    _drop_front(t, stream, x)
    return found != REJECT
