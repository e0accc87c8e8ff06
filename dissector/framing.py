"""Chunks of TCP streams to frames: boundaries by arithmetic, and a search where one was lost.

A frame is a 32-bit size and that many bytes, so the next one starts at boundary + 4 + size whether or not the bytes
between were captured: a hole inside of a body costs that body alone. Only when a size field itself is missing (a hole
over it, or a capture that begins in mid-connection) is sync lost. Then every offset is tried, in order, as the start of
a frame that can be confirmed: by its header, by its body that the schema reads to its very end, and for responses by a
correlation_id that was asked for.

Which end is the client is told by the SYN, else by the first direction in which a request is confirmed.
"""

from __future__ import annotations

import numpy as np

from kafkatap.kernels import kernel
from kafkatap.kernels.decorator import helper
from kafkatap.kernels.readers import be16, be32, signed16, signed32

from .buffers import add_mark, append, defer_buffer, drop_mark, free_mark
from .correlation import (
    CONTROLLED_SHUTDOWN,
    client_id_length,
    find_pending,
    give_up_first,
    program_of,
    response_program,
    take_request,
    take_response,
)
from .dialogs import (
    ALL_TAKEN,
    ANCHORED,
    CHUNK,
    DATA,
    DEFERRED,
    DEFERRED_FULL,
    DIALOG,
    DONE,
    DONE_FULL,
    END,
    EXCHANGES_FULL,
    FOREIGN,
    FREE_EXCHANGES,
    FREE_MARKS_LEFT,
    HOLE,
    JOBS,
    JOBS_FULL,
    KAFKA,
    LINK,
    MARK,
    MARKS_FULL,
    POOL,
    POOL_FULL,
    POOL_TOP,
    RESYNCS,
    ROOM,
    SEARCHING,
    START,
    STOPPED,
    STREAM,
    STRING,
    STRINGS,
    STRINGS_FULL,
    SYNCED,
    TEXT,
    TEXT_FULL,
    TLS,
    UNFINISHED,
    UNKNOWN,
    Tables,
)
from .machine import JOB, TAPE, run_program
from .rows import EXCHANGE, INCOMPLETE, NO_TIME, OK

#: Frames beyond this are not believed (a broker takes requests up to socket.request.max.bytes, 100 MiB unless told).
LONGEST_FRAME = 1 << 30
#: A size field this large is believed at once only if the frame's header makes sense.
SUSPICIOUS = 1 << 20
#: What a search buffer holds at most before a doubtful candidate is decided with what is there.
SEARCH_LIMIT = 1 << 18
SEARCH_MARKS = 512
#: How deep in the queue a searched response may lie.
SEARCH_DEPTH = 64
REJECT, ACCEPT, WAIT = range(3)


@helper
def _plausible_key(key, version):  # type: ignore[no-untyped-def]
    """Whether an api_key and version can be a newer Kafka's, or a client's mistake."""
    return 0 <= key <= 1_000 and 0 <= version <= 100


@helper
def _forget_frame(stream):  # type: ignore[no-untyped-def]
    stream.size = 0
    stream.have = 0
    stream.seen = 0
    stream.broken = 0


@helper
def _complete(t, c, d, buf, source, at, captured, size, first, last, packet_first, packet_last):  # type: ignore[no-untyped-def]
    if d == np.int64(t.dialogs[c].client):
        take_request(t, c, buf, source, at, captured, size, first, last, packet_first, packet_last)
    else:
        take_response(t, c, buf, source, at, captured, size, first, last, packet_first, packet_last)


@helper
def _believable(t, c, d, buf, at, available, size):  # type: ignore[no-untyped-def]
    """Whether a frame of a synced stream makes sense, as far as its first bytes are there."""
    if size < 4 or size > LONGEST_FRAME:
        return False  # 4: an empty token
    dialog = t.dialogs[c]
    if d == np.int64(dialog.client):
        if dialog.raw_sasl:
            return size <= SUSPICIOUS
        if size < 12:
            return False
        return available < 8 or _plausible_key(signed16(be16(buf, at + 4)), signed16(be16(buf, at + 6)))
    if size <= SUSPICIOUS or available < 8:
        return True
    return find_pending(t, dialog, signed32(be32(buf, at + 4)), SEARCH_DEPTH) >= 0


@helper
def _lose(t, c, d, stream):  # type: ignore[no-untyped-def]
    """Sync is lost here: what is buffered of the current frame is given up."""
    stream.losses += 1
    stream.skipped_bytes += stream.seen
    defer_buffer(t, stream)
    _forget_frame(stream)
    stream.mode = SEARCHING
    t.state[RESYNCS] += 1


@helper
def _read_frames(t, c, d, stream, buf, source, at, captured, wire, ts, packet, seen):  # type: ignore[no-untyped-def]
    """Give one piece to a synced stream; return how many of its bytes were taken before sync was lost (or all).

    `captured` of the piece's `wire` bytes lie at buf[at]; `seen` is 0 for a hole, whose time is not known.
    """
    taken = np.int64(0)
    while taken < wire:
        left = captured - taken  # captured bytes left, maybe negative
        position = at + taken
        if stream.have == 0:
            if left < min(np.int64(4), wire - taken):
                _lose(t, c, d, stream)
                return taken
            if left >= 4:
                size = be32(buf, position) + 4
                if not _believable(t, c, d, buf, position, left, size):
                    _lose(t, c, d, stream)
                    return taken
                if left >= size:
                    _complete(t, c, d, buf, source, position, size, size, ts, ts, packet, packet)
                    stream.frame_bytes += size
                    taken += size
                    continue
                stream.size = size
            stream.first = ts if seen else NO_TIME
            stream.packet_first = packet
        elif stream.size == 0:
            # The size field goes over a segment's end: take what is missing of it, and look again.
            want = min(4 - stream.have, wire - taken)
            if left < want:
                _lose(t, c, d, stream)
                return taken
            append(t, stream, source, position, want)
            stream.have += want
            stream.seen += want
            taken += want
            if stream.have == 4:
                size = be32(t.pool, stream.buffer) + 4
                if not _believable(t, c, d, t.pool, stream.buffer, 4, size):
                    _lose(t, c, d, stream)
                    return taken
                stream.size = size
            continue
        want = wire - taken
        if stream.size > 0:
            want = min(want, stream.size - stream.have)
        have = max(np.int64(0), min(want, left))
        if have > 0 and stream.broken == 0:
            append(t, stream, source, position, have)
        if have < want:
            stream.broken = 1
        stream.have += want
        if seen:
            stream.seen += want
        taken += want
        if stream.size > 0 and stream.have == stream.size:
            last = ts if seen else NO_TIME
            start = stream.buffer
            filled = stream.used
            size = stream.size
            believed = filled < 12 or _believable(t, c, d, t.pool, start, filled, size)
            if not believed:
                _lose(t, c, d, stream)
                return taken
            _complete(t, c, d, t.pool, POOL, start, filled, size, stream.first, last, stream.packet_first, packet)
            stream.frame_bytes += stream.seen
            defer_buffer(t, stream)
            _forget_frame(stream)
    return taken


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
def _try_request(t, c, stream, x, fresh, final):  # type: ignore[no-untyped-def]
    """Whether a request starts at offset x of the search buffer."""
    buf = t.pool
    at = stream.buffer + x
    end = stream.buffer + stream.used
    if at + 14 > end:
        return REJECT if final else WAIT
    size = be32(buf, at)
    if size < 8 or size > LONGEST_FRAME:
        return REJECT
    key = be16(buf, at + 4)
    version = be16(buf, at + 6)
    program = program_of(t.index, 0, key, version)
    if program < 0:
        return REJECT
    body = at + 12
    frame_end = at + 4 + size
    if not (key == CONTROLLED_SHUTDOWN and version == 0):
        length = signed16(be16(buf, at + 12))
        if length < -1 or length + 10 > size:
            return REJECT
        if at + 14 + length > end:
            for k in range(end - at - 14):
                byte = buf[at + 14 + k]
                if byte < 32 or byte == 127:
                    return REJECT
            return REJECT if final else WAIT
        if client_id_length(buf, at + 4, end) < -1:
            return REJECT
        body = at + 14 + max(np.int64(0), length)
    if frame_end <= end:
        status = run_program(buf, body, frame_end, frame_end, t.code, program, t.tape, 0, 0, 0, t.scratch)
        if status == OK:
            return ACCEPT
        return ACCEPT if fresh and _chunk_ends_at(t, stream, x + 4 + size) else REJECT
    status = run_program(buf, body, end, frame_end, t.code, program, t.tape, 0, 0, 0, t.scratch)
    if status != INCOMPLETE:
        return REJECT
    if not final:
        return WAIT
    return ACCEPT if fresh or end - at >= 64 else REJECT


@helper
def _try_response(t, c, stream, x, fresh, final):  # type: ignore[no-untyped-def]
    """Whether a response that was asked for starts at offset x of the search buffer."""
    buf = t.pool
    at = stream.buffer + x
    end = stream.buffer + stream.used
    if at + 8 > end:
        return REJECT if final else WAIT
    size = be32(buf, at)
    if size < 4 or size > LONGEST_FRAME:
        return REJECT
    dialog = t.dialogs[c]
    slot = find_pending(t, dialog, signed32(be32(buf, at + 4)), SEARCH_DEPTH)
    if slot < 0:
        return REJECT
    frame_end = at + 4 + size
    program = response_program(t, t.exchanges[slot], buf, at + 8, min(end, frame_end))
    if program < 0:
        return ACCEPT if fresh and (frame_end > end or _chunk_ends_at(t, stream, x + 4 + size)) else REJECT
    if frame_end <= end:
        status = run_program(buf, at + 8, frame_end, frame_end, t.code, program, t.tape, 0, 0, 0, t.scratch)
        aligned = _chunk_ends_at(t, stream, x + 4 + size)
        if status == OK:
            if aligned or size >= 24:
                return ACCEPT
            if frame_end + 8 <= end:
                following = find_pending(t, dialog, signed32(be32(buf, frame_end + 4)), SEARCH_DEPTH)
                return ACCEPT if following >= 0 or fresh else REJECT
            return ACCEPT if fresh else (REJECT if final else WAIT)
        return ACCEPT if fresh and aligned else REJECT
    status = run_program(buf, at + 8, end, frame_end, t.code, program, t.tape, 0, 0, 0, t.scratch)
    if status != INCOMPLETE:
        return REJECT
    if not final:
        return WAIT
    return ACCEPT if fresh or end - at >= 64 else REJECT


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
def _empty_search(t, stream):  # type: ignore[no-untyped-def]
    """Give up all of a search buffer."""
    while stream.marks_first >= 0:
        stream.skipped_bytes += t.marks[stream.marks_first].wire
        drop_mark(t, stream)
    defer_buffer(t, stream)


@helper
def _search(t, c, d, stream, final):  # type: ignore[no-untyped-def]
    """The offset of the first confirmed frame in the search buffer, or -1. Bytes before it, or in vain, are dropped."""
    dialog = t.dialogs[c]
    as_response = dialog.client >= 0 and d != np.int64(dialog.client)
    if as_response and dialog.pending_first < 0:
        x = stream.used  # nothing was asked for, so nothing here can be an answer that matters
    else:
        x = np.int64(0)
    decide = final or stream.used > SEARCH_LIMIT
    number = np.int64(stream.marks_first)
    found = np.int64(-1)
    while x < stream.used:
        while number >= 0 and t.marks[number].next >= 0 and t.marks[t.marks[number].next].offset <= x:
            number = np.int64(t.marks[number].next)
        mark = t.marks[number]
        fresh = mark.offset == x and mark.fresh == 1
        if as_response:
            verdict = _try_response(t, c, stream, x, fresh, decide)
        else:
            verdict = _try_request(t, c, stream, x, fresh, decide)
        if verdict == ACCEPT:
            found = x
            break
        if verdict == WAIT:
            break
        x += 1
    _drop_front(t, stream, x)
    return np.int64(0) if found >= 0 else np.int64(-1)


@helper
def _looks_like_tls(buf, at, captured):  # type: ignore[no-untyped-def]
    """Whether a TLS record header stands here (RFC 8446, 5.1)."""
    if captured < 5:
        return False
    length = be16(buf, at + 3)
    return 20 <= buf[at] <= 23 and buf[at + 1] == 3 and buf[at + 2] <= 4 and 0 < length <= 16_640


@helper
def _judge_start(t, c, d, stream):  # type: ignore[no-untyped-def]
    """What a connection that was seen from its SYN carries, by its client's first bytes. 1: decided, 0: wait for more."""
    dialog = t.dialogs[c]
    buf = t.pool
    at = stream.buffer
    used = stream.used
    if _looks_like_tls(buf, at, used) and buf[at] == 22:
        dialog.protocol = TLS
        return 1
    if used < 14:
        return 0
    size = be32(buf, at)
    key = be16(buf, at + 4)
    version = be16(buf, at + 6)
    length = signed16(be16(buf, at + 12))
    if size < 8 or size > LONGEST_FRAME or not _plausible_key(key, version):
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
    if program_of(t.index, 0, key, version) < 0 and not _chunk_ends_at(t, stream, size + 4):
        dialog.protocol = FOREIGN
        return 1
    dialog.protocol = KAFKA
    return 1


@helper
def _replay(t, c, d, stream):  # type: ignore[no-untyped-def]
    """The search buffer starts with a frame: read it piece by piece as if it came now. Return 1 if sync held."""
    base = stream.buffer
    capacity = np.int64(stream.capacity)
    number = np.int64(stream.marks_first)
    stream.marks_first = -1
    stream.marks_last = -1
    stream.capacity = -1
    stream.used = 0
    stream.mode = SYNCED
    held = True
    while number >= 0:
        mark = t.marks[number]
        at = base + mark.offset
        captured = np.int64(mark.captured)
        wire = mark.wire
        ts = mark.ts
        packet = mark.packet
        fresh = np.int64(mark.fresh)
        following = np.int64(mark.next)
        free_mark(t, number)
        taken = np.int64(0)
        if held:
            taken = _read_frames(t, c, d, stream, t.pool, POOL, at, captured, wire, ts, packet, 1)
            held = stream.mode == SYNCED
        if not held and taken < wire:
            # What follows the loss goes back into a new search buffer, less the byte that was wrongly believed in.
            if stream.marks_first < 0 and taken < wire:
                taken += 1
                stream.skipped_bytes += 1
            rest = max(np.int64(0), captured - taken)
            if taken < wire:
                add_mark(t, stream, rest, wire - taken, ts, packet, fresh if taken == 0 else 0)
                append(t, stream, POOL, at + taken, rest)
        number = following
    t.deferred[t.state[DEFERRED]] = base * 64 + capacity
    t.state[DEFERRED] += 1
    return 1 if held else 0


@helper
def _find_frames(t, c, d, stream, final):  # type: ignore[no-untyped-def]
    """Search, and read on from what was found, until the stream is synced or nothing more is to be found."""
    while stream.mode == SEARCHING and stream.used > 0:
        if _search(t, c, d, stream, final) < 0:
            break
        dialog = t.dialogs[c]
        if dialog.client < 0:
            dialog.client = d
        dialog.protocol = KAFKA
        _replay(t, c, d, stream)
    if stream.mode == SEARCHING and (final or stream.used == 0):
        _empty_search(t, stream)


@helper
def _take_data(t, c, d, chunk):  # type: ignore[no-untyped-def]
    dialog = t.dialogs[c]
    stream = t.streams[2 * c + d]
    at = chunk.at
    captured = np.int64(chunk.captured)
    wire = chunk.length
    ts = chunk.ts
    packet = chunk.packet
    source = np.int64(chunk.source)
    buf = t.block if source == 0 else t.held
    if dialog.protocol == TLS or dialog.protocol == FOREIGN:
        stream.skipped_bytes += wire
        return
    if dialog.protocol == UNKNOWN and stream.mode == SYNCED:
        stream.mode = SEARCHING  # a broker does not speak first: bytes are missing, or this is not Kafka
    taken = np.int64(0)
    if stream.mode == SYNCED:
        taken = _read_frames(t, c, d, stream, buf, source, at, captured, wire, ts, packet, 1)
        if stream.mode == SYNCED:
            return
        if taken < wire and stream.marks_first < 0:
            taken += 1  # where sync was lost no frame starts
            stream.skipped_bytes += 1
    if taken >= wire:
        return
    rest = max(np.int64(0), captured - taken)
    if dialog.protocol == UNKNOWN and stream.mode == SEARCHING and _looks_like_tls(buf, at, captured):
        dialog.tls_records += 1
        if dialog.tls_records >= 3:
            dialog.protocol = TLS
    add_mark(t, stream, rest, wire - taken, ts, packet, 1 if taken == 0 else 0)
    append(t, stream, source, at + taken, rest)
    broken = rest < wire - taken
    if stream.mode == ANCHORED:
        if _judge_start(t, c, d, stream) == 0 and not broken:
            return
        if dialog.protocol == KAFKA:
            if _replay(t, c, d, stream) == 0:
                _find_frames(t, c, d, stream, broken)
        elif dialog.protocol == UNKNOWN:
            stream.mode = SEARCHING
            _find_frames(t, c, d, stream, True)
        else:
            _empty_search(t, stream)
        return
    _find_frames(t, c, d, stream, broken)


@helper
def _take_hole(t, c, d, chunk):  # type: ignore[no-untyped-def]
    dialog = t.dialogs[c]
    stream = t.streams[2 * c + d]
    stream.hole_bytes += chunk.length
    if dialog.protocol == TLS or dialog.protocol == FOREIGN:
        return
    stream.losses += 1
    if stream.mode != SYNCED:
        stream.mode = SEARCHING
        _find_frames(t, c, d, stream, True)
        if stream.mode != SYNCED:
            return
    _read_frames(t, c, d, stream, t.block, 0, np.int64(0), np.int64(0), chunk.length, NO_TIME, chunk.packet, 0)


@helper
def _start(t, c, chunk):  # type: ignore[no-untyped-def]
    dialog = t.dialogs[c]
    dialog.serial = chunk.at
    dialog.previous_response = NO_TIME
    dialog.mute_end = NO_TIME
    dialog.requests = 0
    dialog.responses = 0
    dialog.pending_first = -1
    dialog.pending_last = -1
    dialog.pending_count = 0
    dialog.client_id = -1
    dialog.software = -1
    dialog.software_version = -1
    dialog.mechanism = -1
    dialog.tls_records = 0
    dialog.client = chunk.direction if chunk.captured == 1 else -1
    dialog.protocol = UNKNOWN
    dialog.raw_sasl = 0
    dialog.answers_at_once = -1
    dialog.open = 1
    for d in range(2):
        stream = t.streams[2 * c + d]
        stream.buffer = 0
        stream.used = 0
        _forget_frame(stream)
        stream.first = NO_TIME
        stream.packet_first = 0
        stream.searched = 0
        stream.losses = 0
        stream.frame_bytes = 0
        stream.token_bytes = 0
        stream.skipped_bytes = 0
        stream.hole_bytes = 0
        stream.capacity = -1
        stream.marks_first = -1
        stream.marks_last = -1
        # From a SYN on, both streams are known from their first byte: what the client's carries is judged there.
        stream.mode = SEARCHING
        if chunk.captured == 1:
            stream.mode = ANCHORED if d == np.int64(chunk.direction) else SYNCED


@helper
def _end(t, c):  # type: ignore[no-untyped-def]
    """A connection is over: decide what was doubtful, and give up what still waits."""
    dialog = t.dialogs[c]
    if dialog.open == 0:
        return
    for turn in range(2):
        d = turn if dialog.client < 0 else (np.int64(dialog.client) + turn) & 1
        stream = t.streams[2 * c + d]
        if stream.mode != SYNCED:
            stream.mode = SEARCHING
            _find_frames(t, c, d, stream, True)
            _empty_search(t, stream)
        elif stream.have > 0:
            t.state[UNFINISHED] += 1
            if dialog.client >= 0 and d != np.int64(dialog.client):
                stream.losses += 1  # the answer had begun when the capture of it ended
            stream.skipped_bytes += stream.seen
            defer_buffer(t, stream)
            _forget_frame(stream)
    while dialog.pending_first >= 0:
        give_up_first(t, c)
    dialog.open = 0


@kernel(
    np.uint8, np.uint8, np.uint8, CHUNK, int, int, DIALOG, STREAM, MARK, EXCHANGE, LINK, np.int32, np.int32, JOB,
    STRING, np.uint8, np.int32, np.int32, np.int32, TAPE, np.int64, np.int64, np.int64,
)  # fmt: skip
def take_chunks(  # type: ignore[no-untyped-def]
    block, held, pool, chunks, first, count, dialogs, streams, marks, exchanges, links, free, done, jobs,
    strings, text, buckets, code, index, tape, scratch, deferred, state,
):  # fmt: skip
    """Take chunks[first:count]; return the first one not taken and say in state[STOPPED] what has to grow first."""
    t = Tables(
        block, held, pool, dialogs, streams, marks, exchanges, links, free, done, jobs, strings, text, buckets, code,
        index, tape, scratch, deferred, state,
    )  # fmt: skip
    state[STOPPED] = ALL_TAKEN
    i = first
    while i < count:
        chunk = chunks[i]
        c = np.int64(chunk.connection)
        d = np.int64(chunk.direction)
        kind = chunk.kind
        if kind == START:
            _start(t, c, chunk)
            i += 1
            continue
        # Room for the most that one chunk can make: see that nothing has to grow while it is taken.
        # (A synced stream's buffer is part of one frame; a search buffer may hold many.)
        largest = np.int64(chunk.captured) + 65_536
        buffered = np.int64(chunk.captured)
        for side in range(2):
            buffered += streams[2 * c + side].used
            if streams[2 * c + side].mode != SYNCED:
                largest += streams[2 * c + side].used
        frames = largest // 4
        if frames > jobs.shape[0] - state[JOBS]:
            state[STOPPED] = JOBS_FULL
            break
        if frames > state[FREE_EXCHANGES]:
            state[STOPPED] = EXCHANGES_FULL
            break
        if state[DONE] + np.int64(dialogs[c].pending_count) + frames > done.shape[0]:
            state[STOPPED] = DONE_FULL
            break
        if state[POOL_TOP] + 8 * buffered + 4_096 > pool.shape[0]:
            state[STOPPED] = POOL_FULL
            break
        if state[FREE_MARKS_LEFT] < 2 * SEARCH_MARKS:
            state[STOPPED] = MARKS_FULL
            break
        if state[STRINGS] + frames > strings.shape[0] or (state[STRINGS] + frames) * 2 > buckets.shape[0]:
            state[STOPPED] = STRINGS_FULL
            break
        if state[TEXT] + largest > text.shape[0]:
            state[STOPPED] = TEXT_FULL
            break
        if state[DEFERRED] + frames > deferred.shape[0]:
            state[STOPPED] = DEFERRED_FULL
            break
        if kind == DATA:
            _take_data(t, c, d, chunk)
        elif kind == HOLE:
            _take_hole(t, c, d, chunk)
        else:
            _end(t, c)
        i += 1
    return i
