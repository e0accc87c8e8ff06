"""Chunks of TCP streams to frames: boundaries by arithmetic, and a search where one was lost.

A frame is a 32-bit size and that many bytes, so the next one starts at boundary + 4 + size whether or not the bytes
between were captured: a gap inside of a body costs that body alone. Only when a size field itself is missing (a gap
over it, or a capture that begins in mid-connection) is sync lost. Then every offset is tried, in order, as the start of
a frame that can be confirmed: by its header, by its body that the schema reads to its very end, and for responses by a
correlation_id that was asked for.

Which end is the client is told by the SYN, else by the first direction in which a request is confirmed.
"""

from __future__ import annotations

import numpy as np

from kafkatap.kernels import kernel
from kafkatap.kernels.decorator import helper, inlined
from kafkatap.kernels.readers import be16, be32, signed32

from ..dtypes import EXCHANGE, NO_TIME
from ..programs.machine import JOB, TAPE
from .buffers import add_mark, append, defer_buffer, free_mark
from .connections import (
    ALL_TAKEN,
    ANCHORED,
    CERTAIN,
    CHECK,
    CHUNK,
    DATA,
    DEFERRED,
    DEFERRED_FULL,
    DIALOG,
    DONE,
    DONE_FULL,
    END,
    EXCHANGES_FULL,
    FIRM,
    FOREIGN,
    FREE_EXCHANGES,
    FREE_MARKS_LEFT,
    HEAD_KEPT,
    HOLE,
    JOBS,
    JOBS_FULL,
    KAFKA,
    LINK,
    MARK,
    MARKS_FULL,
    MARKS_ROOM,
    MAX_FRAME,
    OPENING_RESUMED,
    OPENING_SYN,
    OPENING_UNKNOWN,
    PIECE,
    POOL,
    POOL_FULL,
    POOL_TOP,
    RESYNCS,
    SEARCHING,
    SETTLED,
    SHED_FRAME,
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
from .correlation import DEPTH, find_pending, give_up, only_head, take_request, take_response
from .detection import judge_start, looks_like_tls
from .evidence import ACCEPT, APACHE_KEYS, LONGEST_FRAME, REJECT, SEARCH_DEPTH, may_be_same_client, plausible_key
from .resync import contradicts, empty_search, search_frame

#: A size field this large is believed at once only if the frame's header makes sense.
SUSPICIOUS = 1 << 20
#: How often a search buffer is searched with one chunk, where sync is lost again behind each frame that was found: each
#: time what is left is copied.
SEARCHES = 8


@helper
def _forget_frame(stream):  # type: ignore[no-untyped-def]
    stream.frame_size = 0
    stream.kept = 0
    stream.have = 0
    stream.seen = 0
    stream.broken = 0


@helper
def _believable(t, c, d, buf, at, available, size):  # type: ignore[no-untyped-def]
    """Whether a frame of a synced stream makes sense, as far as its first bytes are there."""
    if size < 4 or size > LONGEST_FRAME:
        return False  # 4: an empty token
    dialog = t.dialogs[c]
    doubted = t.streams[2 * c + d].doubt == CHECK
    if d == np.int64(dialog.client):
        if dialog.raw_sasl:
            return size <= SUSPICIOUS
        if size < 12:
            return False
        if available < 8:
            return not doubted
        key = be16(buf, at + 4)
        if not plausible_key(key, be16(buf, at + 6)):
            return False
        # An API that only some vendor knows is believed of the client that the connection had so far.
        if key <= APACHE_KEYS or dialog.requests == 0:
            return True
        return size <= SUSPICIOUS and may_be_same_client(t, dialog, buf, at, at + available)
    if not doubted and (size <= SUSPICIOUS or available < 8):
        return True
    if available < 8:
        return False
    return find_pending(t, dialog, signed32(be32(buf, at + 4)), SEARCH_DEPTH) >= 0


@helper
def _kept(state, size):  # type: ignore[no-untyped-def]
    """How many bytes of a frame are kept, from its first on."""
    kept = size if size <= state[MAX_FRAME] else np.int64(HEAD_KEPT)
    return min(kept, np.int64(state[SHED_FRAME]))


@helper
def _wants_head(t, c, d, stream):  # type: ignore[no-untyped-def]
    """Whether nobody asks for more than the head of the frame whose first bytes are in a stream's buffer."""
    at = stream.buffer
    if d == np.int64(t.dialogs[c].client):
        return only_head(t.index, 0, be16(t.pool, at + 4), be16(t.pool, at + 6))
    slot = find_pending(t, t.dialogs[c], signed32(be32(t.pool, at + 4)), DEPTH)
    return slot >= 0 and only_head(
        t.index, 1, np.int64(t.exchanges[slot].api_key), np.int64(t.exchanges[slot].api_version)
    )


@helper
def _lose_frame(t, stream):  # type: ignore[no-untyped-def]
    """The current frame is none, or its rest is missing."""
    stream.losses += 1
    stream.skipped_bytes += stream.seen
    defer_buffer(t, stream)
    _forget_frame(stream)


@helper
def _settle_doubt(t, c, d, stream, piece):  # type: ignore[no-untyped-def]
    """Give up the current frame, which was doubtful, where a piece that comes in the middle of it starts another."""
    source = np.int64(piece.source)
    buf = t.block if source == 0 else (t.held if source == 1 else t.pool)
    verdict = contradicts(t, c, buf, piece, d != np.int64(t.dialogs[c].client), np.int64(stream.doubt))
    if verdict != REJECT:
        _lose_frame(t, stream)
        stream.doubt = CERTAIN if verdict == ACCEPT else FIRM
        t.state[RESYNCS] += 1


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
                if stream.doubt == CHECK:
                    stream.doubt = CERTAIN
                stream.frame_size = size
                stream.kept = _kept(t.state, size)
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
            if stream.frame_size > 0:
                have = min(have, stream.kept - stream.used)
            if have > 0 and stream.broken == 0:
                append(t, stream, buf, position, have)
                if stream.used >= HEAD_KEPT > stream.used - have and _wants_head(t, c, d, stream):
                    stream.kept = stream.used
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
                        stream.seen -= take if seen else 0  # this piece's part is searched again
                        continue
                    stream.frame_size = size
                    stream.kept = _kept(t.state, size)
                    if size == 4:
                        whole = size
            elif stream.have == stream.frame_size:
                whole = stream.frame_size
                if stream.used >= 12 and not _believable(t, c, d, t.pool, stream.buffer, stream.used, whole):
                    lost = True
                    stream.seen -= take if seen else 0
                    continue
        taken += take
        if whole > 0:
            at = position if direct else stream.buffer
            have = stream.kept if direct else stream.used
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
            if stream.doubt != CERTAIN:
                stream.doubt = CHECK
    if lost:
        _lose_frame(t, stream)
        stream.mode = SEARCHING
        t.state[RESYNCS] += 1
    return taken


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
    those of the chunks. With `final` nothing more comes that could confirm a doubtful frame. What is left after
    SEARCHES of them is given up.
    """
    dialog = t.dialogs[c]
    stream = t.streams[2 * c + d]
    other = t.streams[2 * c + 1 - d]
    marks = np.int64(-1)  # what is being read again, and where it lies
    base = np.int64(0)
    capacity = np.int64(-1)
    searches = 0
    search = (final or piece.wire == 0) and stream.mode != SYNCED
    broken = final
    waiting = piece.wire > 0  # the piece itself comes last when a gap or the end has to be settled first
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
            if stream.doubt != CERTAIN and stream.have > 0 and now.fresh and now.kind == DATA and stream.mode == SYNCED:
                _settle_doubt(t, c, d, stream, now)
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
        if not broken and stream.used < stream.retry:
            break
        if stream.mode == ANCHORED:
            if dialog.protocol == UNKNOWN and (stream.used > 0 or broken):
                judge_start(t, c, d, stream, broken)
            if dialog.protocol == TLS or dialog.protocol == FOREIGN:
                empty_search(t, stream)
                break
            # The requests that a response answers are read before it.
            found = dialog.protocol == KAFKA and (d == np.int64(dialog.client) or other.mode != ANCHORED)
            stream.doubt = CERTAIN
            if not found and stream.mode == ANCHORED:
                break
        if not found and stream.used > 0:
            searches += 1
            if searches <= SEARCHES:
                found = search_frame(t, c, d, stream, broken)
            else:
                broken = True
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
            if other.mode == ANCHORED and other.used == 0:
                other.mode = SYNCED
        else:
            if broken or stream.used == 0:
                empty_search(t, stream)
            if not waiting:
                break
            # What comes next is a gap or nothing: it cannot be searched.
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
    dialog.ready = 0
    dialog.settled = 0
    dialog.pending_first = -1
    dialog.pending_last = -1
    dialog.pending_count = 0
    dialog.tls_records = 0
    dialog.unknown_chunks = 0
    dialog.raw_sasl = 0
    if chunk.opening != OPENING_RESUMED:
        dialog.client_id = -1
        dialog.software = -1
        dialog.software_version = -1
        dialog.mechanism = -1
        dialog.client = chunk.direction if chunk.opening != OPENING_UNKNOWN else -1
        dialog.protocol = UNKNOWN
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
        stream.retry = 0
        stream.losses = 0
        stream.doubt = CERTAIN
        stream.frame_bytes = 0
        stream.token_bytes = 0
        stream.skipped_bytes = 0
        stream.gap_bytes = 0
        stream.capacity = -1
        stream.marks_first = -1
        stream.marks_last = -1
        # From a SYN on, both streams are known from their first byte: what they carry is judged there.
        stream.mode = ANCHORED if chunk.opening == OPENING_SYN else SEARCHING


@helper
def _finish_stream(t, c, d):  # type: ignore[no-untyped-def]
    """The connection is over: what is left of this stream is no frame."""
    stream = t.streams[2 * c + d]
    if stream.mode != SYNCED:
        empty_search(t, stream)
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
    for turn in range(3):
        d = (np.int64(chunk.direction) + turn) & 1
        if chunk.kind == END:
            # Requests first: what they ask for may still confirm a response.
            d = np.int64(turn if dialog.client < 0 else dialog.client + turn) & 1
            piece.wire = 0
        stream = t.streams[2 * c + d]
        if turn > (0 if chunk.kind != END else 1):
            # What was held back until a connection was known to be Kafka: the other end's bytes, then this one's.
            if dialog.protocol != KAFKA or stream.mode != ANCHORED:
                continue
            piece.wire = 0
        elif chunk.kind == HOLE:
            stream.gap_bytes += chunk.length
        if dialog.protocol == TLS or dialog.protocol == FOREIGN:
            if chunk.kind == DATA:
                stream.skipped_bytes += chunk.length
                dialog.unknown_chunks += 1
                if dialog.unknown_chunks == SETTLED:
                    dialog.settled = chunk.packet
                    dialog.ready = chunk.packet
            continue
        if chunk.kind == HOLE and turn == 0:
            stream.losses += 1
        elif chunk.kind == DATA and dialog.protocol == UNKNOWN:
            dialog.unknown_chunks += 1
            if dialog.unknown_chunks == SETTLED:
                dialog.settled = chunk.packet
            if stream.mode == SEARCHING:
                source = np.int64(chunk.source)
                if looks_like_tls(t.block if source == 0 else t.held, chunk.at, np.int64(chunk.captured)):
                    dialog.tls_records += 1
                    if dialog.tls_records >= 3:
                        dialog.protocol = TLS
        if chunk.kind == HOLE and turn == 0 and stream.mode == ANCHORED:
            stream.mode = SEARCHING
        _take_pieces(t, c, d, piece, chunk.kind != DATA)
    if chunk.kind == END:
        for side in range(2):
            _finish_stream(t, c, np.int64(side))
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
        # (A synced stream's buffer is part of one frame; a search buffer may hold many. A buffer that doubles takes
        # less than four times what is needed, with all that it grew through; a small one less than sixteen times. What
        # is searched takes another buffer each time.)
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
        searched = 4 * (SEARCHES + 1) * largest
        if state[POOL_TOP] + 4 * buffered + 16 * min(buffered, np.int64(1) << 20) + searched > pool.shape[0]:
            state[STOPPED] = POOL_FULL
            break
        if state[FREE_MARKS_LEFT] < MARKS_ROOM:
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
