"""The search for a frame's start where sync was lost, and what a connection's first bytes tell.

Every offset of the search buffer is tried, in order. A request is confirmed by its header and by its body, which the
schema has to read to its very end; a response by a correlation_id that was asked for as well. What neither ends with a
segment nor is followed by another header is not believed, nor is a body that does not fit, unless the frame starts and
ends as segments do. A candidate that is not whole waits for more bytes, without holding up confirmed ones behind it.
"""

from __future__ import annotations

import numpy as np

from kafkatap.kernels.decorator import helper
from kafkatap.kernels.readers import be16, be32, signed16, signed32

from .buffers import defer_buffer, drop_mark
from .correlation import CONTROLLED_SHUTDOWN, PRODUCE, client_id_length, find_pending, program_of, response_program
from .dialogs import FOREIGN, KAFKA, TLS
from .machine import ERROR_AT, SCRATCH_SIZE, run_program
from .rows import INCOMPLETE, MALFORMED, OK, TRAILING_BYTES

#: Frames beyond this are not believed (a broker takes requests up to socket.request.max.bytes, 100 MiB unless told).
LONGEST_FRAME = 1 << 30
#: What a search buffer holds at most before a doubtful candidate is decided with what is there.
SEARCH_LIMIT = 1 << 18
#: A candidate longer than this is not looked at again with each segment.
RETRY_FROM = 4_096
#: How deep in the queue a searched response may lie.
SEARCH_DEPTH = 64
REJECT, ACCEPT, WAIT = range(3)
#: Places in scratch behind the machine's own: the program of a candidate, and where its body starts.
PROGRAM, BODY = SCRATCH_SIZE, SCRATCH_SIZE + 1


@helper
def plausible_key(key, version):  # type: ignore[no-untyped-def]
    """Whether an api_key and version can be a newer Kafka's, or a client's mistake."""
    return 0 <= key <= 1_000 and 0 <= version <= 100


@helper
def _chunk_ends_at(t, stream, offset):  # type: ignore[no-untyped-def]
    """Whether a piece of the search buffer ends at this offset."""
    number = np.int64(stream.marks_first)
    while number >= 0:
        mark = t.marks[number]
        if mark.offset + mark.wire == offset:
            return True
        number = np.int64(mark.next)
    return False


@helper
def _request_header(t, c, at, end, final):  # type: ignore[no-untyped-def]
    """How far a request header at pool[at:end] can be believed: ACCEPT (its body may be looked at), REJECT, WAIT.
    scratch[PROGRAM] and [BODY] tell which program reads its body, and from where."""
    buf = t.pool
    size = be32(buf, at)
    if size < 8 or size > LONGEST_FRAME:
        return REJECT
    key = be16(buf, at + 4)
    version = be16(buf, at + 6)
    program = program_of(t.index, 0, key, version)
    if program < 0:
        return REJECT
    t.scratch[PROGRAM] = program
    t.scratch[BODY] = at + 12
    # Where it is not known which end is the client, a response with a small correlation_id must not pass for a Produce
    # request: only headers that name a client are believed, and only acks that exist.
    sure = t.dialogs[c].client >= 0
    if key == CONTROLLED_SHUTDOWN and version == 0:
        return ACCEPT if sure else REJECT
    if at + 14 > end:
        return REJECT if final else WAIT
    length = signed16(be16(buf, at + 12))
    if length < -1 or length + 10 > size or (length <= 0 and not sure):
        return REJECT
    for k in range(min(length, end - at - 14)):
        byte = buf[at + 14 + k]
        if byte < 32 or byte == 127:
            return REJECT
    if at + 14 + length > end:
        return REJECT if final else WAIT
    t.scratch[BODY] = at + 14 + max(np.int64(0), length)
    return ACCEPT


@helper
def _response_header(t, c, at, end):  # type: ignore[no-untyped-def]
    """The same for a response: its correlation_id has to be one that was asked for."""
    size = be32(t.pool, at)
    if size < 4 or size > LONGEST_FRAME:
        return REJECT
    slot = find_pending(t, t.dialogs[c], signed32(be32(t.pool, at + 4)), SEARCH_DEPTH)
    if slot < 0:
        return REJECT
    t.scratch[PROGRAM] = response_program(t, t.exchanges[slot], t.pool, at + 8, min(end, at + 4 + size))
    t.scratch[BODY] = at + 8
    return ACCEPT


@helper
def _try_frame(t, c, stream, x, as_response, fresh, final):  # type: ignore[no-untyped-def]
    """Whether a frame starts at offset x of the search buffer: a request, or a response that was asked for."""
    at = stream.buffer + x
    end = stream.buffer + stream.used
    if at + (8 if as_response else 12) > end:
        return REJECT if final else WAIT
    header = _response_header(t, c, at, end) if as_response else _request_header(t, c, at, end, final)
    if header != ACCEPT:
        return header
    frame_end = at + 4 + be32(t.pool, at)
    whole = frame_end <= end
    aligned = whole and _chunk_ends_at(t, stream, frame_end - stream.buffer)
    program = t.scratch[PROGRAM]
    if program < 0:
        return ACCEPT if fresh and (aligned or not whole) else REJECT
    status = run_program(
        t.pool, t.scratch[BODY], min(end, frame_end), frame_end, t.code, program, t.tape, 0, 0, 0, t.scratch
    )
    # Until it is known which end is the client, a response may look like a Produce request: the correlation_id is the
    # key and version, the number of topics the correlation_id, the first topic the client_id. Its body gives it away.
    sure = t.dialogs[c].client >= 0
    if whole:
        if status != OK:  # trailing bytes, or a message that the schema cannot read
            # librdkafka's requests for all topics' metadata have three bytes too many.
            extra = not as_response and status == TRAILING_BYTES and frame_end - t.scratch[ERROR_AT] <= 4
            extra = extra and be16(t.pool, at + 4) != PRODUCE
            return ACCEPT if fresh and aligned and (sure or extra) else REJECT
        if aligned or (fresh and sure):
            return ACCEPT
        # One that does not end where a segment does is confirmed by the header behind it.
        if frame_end + 14 > end:
            return REJECT if final else WAIT
        if as_response:
            following = find_pending(t, t.dialogs[c], signed32(be32(t.pool, frame_end + 4)), SEARCH_DEPTH) >= 0
            return ACCEPT if following or frame_end - at >= 28 else REJECT
        following = program_of(t.index, 0, be16(t.pool, frame_end + 4), be16(t.pool, frame_end + 6)) >= 0
        return ACCEPT if following and client_id_length(t.pool, frame_end + 4, end) >= -1 else REJECT
    if status != INCOMPLETE:
        return REJECT
    if not final:
        return WAIT
    # What is there of it makes sense. Inside of a segment that is too little to go by, but for a response that was
    # asked for; a frame whose end was not captured (small snap length) starts with a segment as a rule.
    if as_response:
        return ACCEPT if fresh or end - at >= 64 else REJECT
    return ACCEPT if fresh and (sure or be16(t.pool, at + 4) != PRODUCE) else REJECT


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
    """The offset of the first confirmed frame in the search buffer, or -1. Bytes before it, or in vain, are dropped."""
    dialog = t.dialogs[c]
    as_response = dialog.client >= 0 and d != np.int64(dialog.client)
    # Where nothing was asked for, nothing can be an answer that matters.
    x = np.int64(stream.used if as_response and dialog.pending_first < 0 else 0)
    decide = final or stream.used > SEARCH_LIMIT
    number = np.int64(stream.marks_first)
    found = np.int64(-1)
    waiting = np.int64(-1)  # the first candidate that more bytes may confirm
    while x < stream.used:
        while number >= 0 and t.marks[number].next >= 0 and t.marks[t.marks[number].next].offset <= x:
            number = np.int64(t.marks[number].next)
        mark = t.marks[number]
        fresh = mark.offset == x and mark.fresh == 1
        verdict = np.int64(REJECT)
        if fresh or waiting < 0:
            verdict = np.int64(_try_frame(t, c, stream, x, as_response, fresh, decide))
        if verdict == ACCEPT:
            found = x
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
    if found < 0 and waiting >= 0:
        x = waiting
        if not final and stream.used - x > RETRY_FROM:
            # Each look decodes it from its start again: look when it is whole, or a sixteenth longer.
            whole = be32(t.pool, stream.buffer + x) + 4
            stream.retry = min(whole, (stream.used - x) + (stream.used - x) // 16)
    _drop_front(t, stream, x)
    return np.int64(0) if found >= 0 else np.int64(-1)


@helper
def looks_like_tls(buf, at, captured):  # type: ignore[no-untyped-def]
    """Whether a TLS record header stands here (RFC 8446, 5.1)."""
    if captured < 5:
        return False
    length = be16(buf, at + 3)
    return 20 <= buf[at] <= 23 and buf[at + 1] == 3 and buf[at + 2] <= 4 and 0 < length <= 16_640


@helper
def judge_start(t, c, d, stream):  # type: ignore[no-untyped-def]
    """What a connection carries, by the client's first bytes after its SYN. 1: decided, 0: wait for more."""
    dialog = t.dialogs[c]
    buf = t.pool
    at = stream.buffer
    used = stream.used
    if looks_like_tls(buf, at, used) and buf[at] == 22:
        dialog.protocol = TLS
        return 1
    if used < 14:
        return 0
    size = be32(buf, at)
    key = be16(buf, at + 4)
    version = be16(buf, at + 6)
    length = signed16(be16(buf, at + 12))
    if size < 8 or size > LONGEST_FRAME or not plausible_key(key, version):
        dialog.protocol = FOREIGN
        return 1
    if key == CONTROLLED_SHUTDOWN and version == 0:
        dialog.protocol = KAFKA
        return 1
    if length < -1 or length + 10 > size:
        dialog.protocol = FOREIGN
        return 1
    for k in range(min(length, used - 14)):
        byte = buf[at + 14 + k]
        if byte < 32 or byte == 127:
            dialog.protocol = FOREIGN
            return 1
    program = program_of(t.index, 0, key, version)
    if program < 0:
        if not _chunk_ends_at(t, stream, size + 4):
            dialog.protocol = FOREIGN
            return 1
    elif length <= 0 and size + 4 <= used:
        # Other protocols have sizes as well; their first message names no client, and is no body of Kafka's.
        end = at + 4 + size
        body = at + 14 + max(np.int64(0), length)
        status = run_program(t.pool, body, end, end, t.code, program, t.tape, 0, 0, 0, t.scratch)
        if status == MALFORMED or (status == TRAILING_BYTES and end - t.scratch[ERROR_AT] > 4):
            dialog.protocol = FOREIGN
            return 1
    dialog.protocol = KAFKA
    return 1
