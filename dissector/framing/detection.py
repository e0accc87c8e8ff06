"""What a connection carries, by its first bytes.

A SYN tells which end is the client and that a frame starts with its first byte. Kafka it is where the schema reads the
first request to its end, or one behind it. One that the schema cannot read (a newer version, an API of a vendor, a
client's mistake) waits for the broker's answer, which has to carry its correlation_id; until then nothing is reported.
"""

from __future__ import annotations

import numpy as np

from kafkatap.kernels.decorator import helper
from kafkatap.kernels.readers import be16, be32

from ..dtypes import INCOMPLETE, MALFORMED, OK
from .connections import ANCHORED, FOREIGN, KAFKA, SEARCHING, TLS
from .correlation import response_program
from .evidence import ACCEPT, BODY, LONGEST_FRAME, PROGRAM, REJECT, WAIT, body_status, is_named, request_header
from .resync import RETRY_FROM, SEARCH_LIMIT, chunk_ends_at, empty_search


@helper
def looks_like_tls(buf, at, captured):  # type: ignore[no-untyped-def]
    """Whether a TLS record header stands here (RFC 8446, 5.1)."""
    if captured < 5:
        return False
    length = be16(buf, at + 3)
    return 20 <= buf[at] <= 23 and buf[at + 1] == 3 and buf[at + 2] <= 4 and 0 < length <= 16_640


@helper
def _judge_requests(t, dialog, stream, final):  # type: ignore[no-untyped-def]
    """Whether the client's first bytes are requests: ACCEPT, REJECT, or WAIT for more of them or for an answer."""
    buf = t.pool
    at = stream.buffer
    end = stream.buffer + stream.used
    stream.retry = 0
    while at < end:
        header = request_header(t, buf, at, end)
        if header != ACCEPT:
            return header
        frame_end = at + 4 + be32(buf, at)
        if t.scratch[PROGRAM] >= 0:
            status = body_status(t, buf, at, end, True, True)
            if status == OK:
                return ACCEPT
            if frame_end > end and status == MALFORMED:
                return REJECT
        elif final and chunk_ends_at(t, stream, frame_end - stream.buffer) and is_named(t, dialog, buf, at, end):
            return ACCEPT  # nobody answered it, but it is as long as its segments and names its client
        if frame_end > end and stream.used > RETRY_FROM:
            # Each look decodes them from their start again: look when the last is whole, or all are a sixteenth longer.
            stream.retry = min(frame_end - stream.buffer, stream.used + stream.used // 16)
        at = frame_end
    return WAIT


@helper
def _judge_answer(t, asked, stream, final):  # type: ignore[no-untyped-def]
    """Whether the broker's first bytes answer the first request, which is in the search buffer of stream `asked`."""
    buf = t.pool
    at = stream.buffer
    end = stream.buffer + stream.used
    if stream.used < 8:
        return WAIT
    size = be32(buf, at)
    if size < 4 or size > LONGEST_FRAME or be32(buf, at + 4) != be32(buf, asked.buffer + 8):
        return REJECT
    frame_end = at + 4 + size
    key = be16(buf, asked.buffer + 4)
    program = response_program(t.index, key, be16(buf, asked.buffer + 6), buf, at + 8, min(end, frame_end))
    if frame_end > end and not final:
        return WAIT
    ends = chunk_ends_at(t, stream, size + 4)
    if program < 0:
        return ACCEPT if ends or (frame_end + 4 <= end and 4 <= be32(buf, frame_end) <= SEARCH_LIMIT) else REJECT
    t.scratch[PROGRAM] = program
    t.scratch[BODY] = at + 8
    status = body_status(t, buf, at, end, False, True)
    return ACCEPT if status == OK or (status == INCOMPLETE and ends) else REJECT


@helper
def _is_begun(t, dialog, stream):  # type: ignore[no-untyped-def]
    """Whether the client's first bytes look like the beginning of a request that the schema knows."""
    header = request_header(t, t.pool, stream.buffer, stream.buffer + stream.used)
    if header == WAIT:
        return True
    return (
        header == ACCEPT
        and t.scratch[PROGRAM] >= 0
        and is_named(t, dialog, t.pool, stream.buffer, stream.buffer + stream.used)
    )


@helper
def judge_start(t, c, d, stream, final):  # type: ignore[no-untyped-def]
    """Tell what a connection carries, in its `protocol`, by the first bytes after its SYN: the client's, or where these
    do not suffice the broker's too. What cannot be told so is searched. `final`: nothing comes that could tell more."""
    dialog = t.dialogs[c]
    other = t.streams[2 * c + 1 - d]
    final = final or stream.used > SEARCH_LIMIT
    if d == np.int64(dialog.client):
        if looks_like_tls(t.pool, stream.buffer, stream.used) and t.pool[stream.buffer] == 22:
            dialog.protocol = TLS
            return
        verdict = np.int64(_judge_requests(t, dialog, stream, final))
        if verdict == WAIT and (final or other.mode == SEARCHING):
            stream.mode = SEARCHING
    elif other.mode == ANCHORED and other.used >= 12 and be32(t.pool, other.buffer) + 4 <= other.used:
        verdict = np.int64(_judge_answer(t, other, stream, final))
        if verdict == REJECT:
            empty_search(t, other)
        elif verdict == WAIT and final:
            stream.mode = SEARCHING
    else:  # nothing was asked yet
        verdict = np.int64(WAIT)
        stream.mode = SEARCHING
        if other.mode == ANCHORED and other.used > 0:
            if _is_begun(t, dialog, other):
                other.mode = SEARCHING  # the capture has them in another order
            else:
                verdict = np.int64(REJECT)
                empty_search(t, other)
    if verdict == ACCEPT:
        dialog.protocol = KAFKA
    elif verdict == REJECT:
        dialog.protocol = FOREIGN
