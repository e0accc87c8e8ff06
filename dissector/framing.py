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
from kafkatap.kernels.decorator import helper, inlined
from kafkatap.kernels.readers import be16, be32, signed16, signed32

from .buffers import add_mark, append, defer_buffer, drop_mark, free_mark
from .correlation import (
    CONTROLLED_SHUTDOWN,
    PRODUCE,
    client_id_length,
    find_pending,
    give_up,
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
    PIECE,
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
from .machine import ERROR_AT, JOB, SCRATCH_SIZE, TAPE, run_program
from .rows import EXCHANGE, INCOMPLETE, NO_TIME, OK, TRAILING_BYTES

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
#: Places in scratch behind the machine's own: the program of a candidate, and where its body starts.
PROGRAM, BODY = SCRATCH_SIZE, SCRATCH_SIZE + 1


@helper
def _plausible_key(key, version):  # type: ignore[no-untyped-def]
    """Whether an api_key and version can be a newer Kafka's, or a client's mistake."""
    return 0 <= key <= 1_000 and 0 <= version <= 100


@helper
def _forget_frame(stream):  # type: ignore[no-untyped-def]
    stream.frame_size = 0
    stream.have = 0
    stream.seen = 0
    stream.broken = 0


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


@inlined
def _read_frames(t, c, d, stream, piece):  # type: ignore[no-untyped-def]
    """Give a piece to a synced stream; return how many of its bytes were taken before sync was lost (or all)."""
    taken = np.int64(0)
    source = np.int64(piece.source)
    wire = piece.wire
    captured = np.int64(piece.captured)
    seen = piece.kind != HOLE
    ts = piece.ts if seen else np.int64(NO_TIME)
    buf = t.block if source == 0 else (t.held if source == 1 else t.pool)
    lost = False
    while taken < wire and not lost:
        left = captured - taken  # captured bytes left, maybe negative
        position = piece.at + taken
        whole = np.int64(0)  # set to its size when a frame is complete
        direct = False
        take = np.int64(0)  # bytes to move on, and to append of them
        if stream.have == 0:
            if left < min(np.int64(4), wire - taken):
                lost = True
                continue
            stream.first = ts
            stream.packet_first = piece.packet
            if left >= 4:
                size = be32(buf, position) + 4
                if not _believable(t, c, d, buf, position, left, size):
                    lost = True
                    continue
                stream.frame_size = size
                if left >= size:
                    whole = size
                    direct = True
                    take = size
        elif stream.frame_size == 0 and left < min(4 - stream.have, wire - taken):
            lost = True
            continue
        if not direct:
            # Up to the end of the frame, or of its size field where that goes over a segment's end.
            rest = (stream.frame_size if stream.frame_size > 0 else np.int64(4)) - stream.have
            take = min(wire - taken, rest)
            have = max(np.int64(0), min(take, left))
            if have > 0 and stream.broken == 0:
                append(t, stream, buf, position, have)
            if have < take:
                stream.broken = 1
            stream.have += take
            if seen:
                stream.seen += take
            if stream.frame_size == 0:
                if stream.have == 4:
                    size = be32(t.pool, stream.buffer) + 4
                    if not _believable(t, c, d, t.pool, stream.buffer, np.int64(4), size):
                        lost = True
                        continue
                    stream.frame_size = size
                    if size == 4:
                        whole = size
            elif stream.have == stream.frame_size:
                whole = stream.frame_size
                if stream.used >= 12 and not _believable(t, c, d, t.pool, stream.buffer, stream.used, whole):
                    lost = True
                    continue
        taken += take
        if whole > 0:
            at = position if direct else stream.buffer
            have = whole if direct else stream.used
            where = source if direct else np.int64(POOL)
            if d == np.int64(t.dialogs[c].client):
                take_request(t, c, where, at, have, whole, stream.first, ts, stream.packet_first, piece.packet)
            else:
                take_response(t, c, where, at, have, whole, stream.first, ts, stream.packet_first, piece.packet)
            if direct:
                stream.frame_bytes += whole
            else:
                stream.frame_bytes += stream.seen
                defer_buffer(t, stream)
            _forget_frame(stream)
    if lost:
        stream.losses += 1
        stream.skipped_bytes += stream.seen
        defer_buffer(t, stream)
        _forget_frame(stream)
        stream.mode = SEARCHING
        t.state[RESYNCS] += 1
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
    if found < 0 and waiting >= 0:
        x = waiting
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


@inlined
def _buffer_piece(t, stream, piece, taken):  # type: ignore[no-untyped-def]
    """Add what a piece has beyond `taken` to the search buffer; return whether bytes are missing behind it."""
    rest = max(np.int64(0), np.int64(piece.captured) - taken)
    add_mark(t, stream, rest, piece.wire - taken, piece.ts, piece.packet, 1 if taken == 0 and piece.fresh else 0)
    source = np.int64(piece.source)
    append(t, stream, t.block if source == 0 else (t.held if source == 1 else t.pool), piece.at + taken, rest)
    return rest < piece.wire - taken


@inlined
def _take_pieces(t, c, d, piece, final):  # type: ignore[no-untyped-def]
    """Give one piece (wire 0: none) to a stream, and whatever its search buffer then turns out to hold.

    Found frames are read again from the search buffer, piece by piece as its marks tell, so that times and packets stay
    those of the chunks. With `final` nothing more comes that could confirm a doubtful frame.
    """
    dialog = t.dialogs[c]
    stream = t.streams[2 * c + d]
    marks = np.int64(-1)  # what is being read again, and where it lies
    base = np.int64(0)
    capacity = np.int64(-1)
    search = final and stream.mode != SYNCED
    broken = final
    waiting = piece.wire > 0  # the piece itself comes last when a hole or the end has to be settled first
    while True:
        if not search:
            if marks >= 0:
                mark = t.marks[marks]
                again = t.pieces[1]
                again.at = base + mark.offset
                again.source = POOL
                again.captured = mark.captured
                again.wire = mark.wire
                again.ts = mark.ts
                again.packet = mark.packet
                again.fresh = mark.fresh
                again.kind = DATA
                number = marks
                marks = np.int64(mark.next)
                free_mark(t, number)
                current = 1
            elif waiting:
                waiting = False
                current = 0
            else:
                break
            now = t.pieces[current]
            taken = np.int64(0)
            lost = False
            if stream.mode == SYNCED:
                taken = _read_frames(t, c, d, stream, now)
                lost = stream.mode != SYNCED
            if taken < now.wire and now.kind != HOLE:
                if lost:
                    taken += 1  # where sync was lost no frame starts
                    stream.skipped_bytes += 1
                if taken < now.wire:
                    broken = _buffer_piece(t, stream, now, taken) or broken
            search = marks < 0
            if search and capacity >= 0:
                t.deferred[t.state[DEFERRED]] = base * 64 + capacity
                t.state[DEFERRED] += 1
                capacity = np.int64(-1)
            search = search and stream.mode != SYNCED and (now.kind != HOLE or current == 1)
            continue
        search = False
        found = False
        if stream.mode == ANCHORED:
            decided = _judge_start(t, c, d, stream)
            if dialog.protocol == KAFKA:
                found = True
            elif dialog.protocol != UNKNOWN:
                _empty_search(t, stream)
                break
            elif decided == 0 and not broken:
                continue
            else:
                stream.mode = SEARCHING
        if not found and stream.used > 0:
            found = _search(t, c, d, stream, broken) == 0
        if found:
            if dialog.client < 0:
                dialog.client = d
            dialog.protocol = KAFKA
            marks = np.int64(stream.marks_first)
            base = stream.buffer
            capacity = np.int64(stream.capacity)
            stream.marks_first = -1
            stream.marks_last = -1
            stream.capacity = -1
            stream.used = 0
            stream.mode = SYNCED
        else:
            if broken or stream.used == 0:
                _empty_search(t, stream)
            if not waiting:
                break
            # What comes next is a hole or nothing: it cannot be searched.
            if t.pieces[0].kind == HOLE:
                break


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
    dialog.client = chunk.direction if chunk.captured >= 1 else -1
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
def _finish_stream(t, c, d):  # type: ignore[no-untyped-def]
    """The connection is over: what is left of this stream is no frame."""
    stream = t.streams[2 * c + d]
    if stream.mode != SYNCED:
        _empty_search(t, stream)
    elif stream.have > 0:
        t.state[UNFINISHED] += 1
        if t.dialogs[c].client >= 0 and d != np.int64(t.dialogs[c].client):
            stream.losses += 1  # the answer had begun when the capture of it ended
        stream.skipped_bytes += stream.seen
        defer_buffer(t, stream)
        _forget_frame(stream)


@inlined
def _take_chunk(t, c, chunk):  # type: ignore[no-untyped-def]
    """One DATA, HOLE or END chunk."""
    dialog = t.dialogs[c]
    piece = t.pieces[0]
    piece.at = chunk.at
    piece.source = chunk.source
    piece.captured = chunk.captured
    piece.wire = chunk.length
    piece.ts = chunk.ts
    piece.packet = chunk.packet
    piece.fresh = 1
    piece.kind = chunk.kind
    turns = 2 if chunk.kind == END else 1
    for turn in range(turns):
        d = np.int64(chunk.direction)
        if chunk.kind == END:
            # Requests first: what they ask for may still confirm a response.
            d = np.int64(turn) if dialog.client < 0 else (np.int64(dialog.client) + turn) & 1
            piece.wire = 0
        stream = t.streams[2 * c + d]
        if chunk.kind == HOLE:
            stream.hole_bytes += chunk.length
        if dialog.protocol == TLS or dialog.protocol == FOREIGN:
            if chunk.kind == DATA:
                stream.skipped_bytes += chunk.length
            continue
        if chunk.kind == HOLE:
            stream.losses += 1
        elif chunk.kind == DATA and dialog.protocol == UNKNOWN:
            if stream.mode == SYNCED:
                stream.mode = SEARCHING  # a broker does not speak first: bytes are missing, or this is not Kafka
            if stream.mode == SEARCHING:
                source = np.int64(chunk.source)
                if _looks_like_tls(t.block if source == 0 else t.held, chunk.at, np.int64(chunk.captured)):
                    dialog.tls_records += 1
                    if dialog.tls_records >= 3:
                        dialog.protocol = TLS
        if chunk.kind == HOLE and stream.mode == ANCHORED:
            stream.mode = SEARCHING
        _take_pieces(t, c, d, piece, chunk.kind != DATA)
    if chunk.kind == END:
        for d in range(2):
            _finish_stream(t, c, np.int64(d))
        give_up(t, c, np.int64(-1))
        dialog.open = 0


@kernel(
    np.uint8, np.uint8, np.uint8, CHUNK, int, int, DIALOG, STREAM, MARK, EXCHANGE, LINK, np.int32, np.int32, JOB,
    STRING, np.uint8, np.int32, np.int32, np.int32, TAPE, np.int64, np.int64, PIECE, np.int64,
)  # fmt: skip
def take_chunks(  # type: ignore[no-untyped-def]
    block, held, pool, chunks, first, count, dialogs, streams, marks, exchanges, links, free, done, jobs,
    strings, text, buckets, code, index, tape, scratch, deferred, pieces, state,
):  # fmt: skip
    """Take chunks[first:count]; return the first one not taken and say in state[STOPPED] what has to grow first."""
    t = Tables(
        block, held, pool, dialogs, streams, marks, exchanges, links, free, done, jobs, strings, text, buckets, code,
        index, tape, scratch, deferred, pieces, state,
    )  # fmt: skip
    state[STOPPED] = ALL_TAKEN
    i = first
    while i < count:
        chunk = chunks[i]
        c = np.int64(chunk.connection)
        if chunk.kind == START:
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
        _take_chunk(t, c, chunk)
        i += 1
    return i
