"""Chunks of TCP streams to frames: the loop over a block's chunks, and what each does to its stream.

A part of a stream in sync is read frame by frame (`frames`). Where sync is lost, the rest is added to the search
buffer. When a search finds a frame, the buffer is read again from there, segment by segment, so that times and packets
stay those of the chunks. A connection that began with a SYN is not searched: its first bytes show what it carries
(`detection`).
"""

from __future__ import annotations

import numpy as np

from kafkatap.kernels import kernel
from kafkatap.kernels.decorator import helper, inlined
from kafkatap.kernels.hints import prefetch
from kafkatap.kernels.table import release_row, rows_left

from ..dtypes import CLOSED_BY_BROKER, CLOSED_BY_CLIENT, NO_TIME
from .buffers import add_segment, append, defer_buffer, defer_place, skip_buffer
from .connections import (
    DOUBT_NONE,
    NOT_KAFKA_AFTER,
    PROTOCOL_FOREIGN,
    PROTOCOL_KAFKA,
    PROTOCOL_TLS,
    PROTOCOL_UNKNOWN,
    STREAM_AT_START,
    STREAM_IN_SYNC,
    STREAM_RESYNC,
    clear_connection,
    clear_facts,
    clear_stream,
    forget_frame,
)
from .cursor import left, seq_behind
from .detection import begin_look, detect_protocol, note_source, set_not_kafka
from .evidence import ACCEPT, WAIT
from .frames import ChunkPart, drop_contradicted_frame, is_request_stream, read_frames
from .headers import REQUEST_FIXED, RESPONSE_HEADER
from .known_brokers import note_expected
from .lone_request import accept_lone_request, is_lone_start
from .openings import MAYBE_KAFKA, NO_OPENING, opening_of
from .resync import find_frame, judge_answer
from .silences import charge_silence, note_stall
from .tables import (
    CHUNK,
    CHUNK_END,
    CHUNK_GAP,
    CHUNK_STALL,
    CHUNK_START,
    ENDED_BY,
    FROM_TLS,
    FULL_DEFERRED,
    FULL_EXCHANGES,
    FULL_FINISHED,
    FULL_JOBS,
    FULL_NONE,
    FULL_POOL,
    FULL_SEGMENTS,
    FULL_SILENCES,
    FULL_STRINGS,
    FULL_TEXT,
    OPENING_RESUMED,
    OPENING_SYN,
    OPENING_UNKNOWN,
    SHOWS_PLAIN,
    SHOWS_TLS,
    SOURCE_BLOCK,
    SOURCE_POOL,
    Tables,
)
from .waiting import give_up, note_end

#: So many chunks ahead, bytes and rows are loaded into the cache.
CHUNKS_AHEAD = 3
#: Bytes of a chunk that are loaded at most.
PREFETCHED = 1_536
#: Searches of a search buffer for one chunk, at most. Each search copies the bytes that are left.
SEARCHES = 8
#: Free segments that must be left before a chunk is read.
SEGMENTS_ROOM = 1_024


@helper
def _chunk_part(block, held, chunk):  # type: ignore[no-untyped-def]
    """All bytes of a chunk."""
    at = np.int64(chunk.at)
    is_gap = chunk.kind == CHUNK_GAP
    return ChunkPart(
        block if chunk.source == SOURCE_BLOCK else held, at, at + np.int64(chunk.captured), np.int64(chunk.length),
        np.int64(NO_TIME) if is_gap else np.int64(chunk.ts), np.int64(chunk.packet),
        (chunk.stamp << 32) | np.int64(chunk.seq), np.int64(chunk.source), np.int64(1), np.int64(1 if is_gap else 0),
        np.int64(0),
    )  # fmt: skip


@helper
def _segment_part(t, segment, base):  # type: ignore[no-untyped-def]
    """The bytes of a segment in a buffer at `base`."""
    at = base + np.int64(segment.offset)
    return ChunkPart(
        t.pool, at, at + np.int64(segment.captured), np.int64(segment.length), np.int64(segment.ts),
        np.int64(segment.packet), np.int64(segment.seq), np.int64(SOURCE_POOL), np.int64(segment.starts_chunk),
        np.int64(0), np.int64(0),
    )  # fmt: skip


@helper
def _no_bytes(t):  # type: ignore[no-untyped-def]
    """A part without bytes."""
    zero = np.int64(0)
    return ChunkPart(t.pool, zero, zero, zero, np.int64(NO_TIME), zero, zero, zero, zero, zero, zero)


@helper
def _missing_part(t, stream):  # type: ignore[no-untyped-def]
    """The bytes of the current frame that never came, as a part that ends when the last ones came."""
    zero = np.int64(0)
    rest = stream.frame_size - stream.passed
    return ChunkPart(
        t.pool, zero, zero, rest, stream.last, stream.packet_last, zero, np.int64(SOURCE_POOL), zero, np.int64(1), rest
    )


@inlined
def _buffer_rest(t, stream, part, taken):  # type: ignore[no-untyped-def]
    """Add the bytes behind the first `taken` ones of a part to the search buffer. Return whether some are missing."""
    rest = max(np.int64(0), left(part) - taken)
    starts_chunk = 1 if taken == 0 and part.starts_chunk else 0
    seq = seq_behind(part.seq, taken)
    add_segment(t, stream, rest, part.length - taken, part.ts, part.packet, seq, starts_chunk)
    append(t, stream, part.buf, part.at + taken, rest)
    return rest < part.length - taken


@inlined
def _read_part(t, c, d, stream, part):  # type: ignore[no-untyped-def]
    """Read the frames of a part, and add the rest to the search buffer if sync is lost.

    Return whether bytes are missing behind it."""
    taken = np.int64(0)
    if part.is_gap == 0:
        if stream.silence_row != 0 and part.source != SOURCE_POOL:
            charge_silence(t, stream, part.ts)
        stream.last = max(stream.last, part.ts) if stream.passed > 0 else part.ts
        stream.packet_last = part.packet
    if stream.mode == STREAM_IN_SYNC:
        if stream.doubt != DOUBT_NONE and stream.passed > 0 and part.starts_chunk and part.is_gap == 0:
            drop_contradicted_frame(t, c, d, stream, part)
        taken = read_frames(t, c, d, stream, part)
    if part.is_gap or taken == part.length:
        return False
    return _buffer_rest(t, stream, part, taken)


@helper
def _read_any_part(t, c, d, stream, part):  # type: ignore[no-untyped-def]
    """`_read_part` for unusual parts, so that it is compiled twice and not once for each call."""
    return _read_part(t, c, d, stream, part)


@helper
def _read_buffer(t, c, d, stream):  # type: ignore[no-untyped-def]
    """Read a search buffer that starts with a frame. Return whether bytes are missing behind it."""
    number = np.int64(stream.segments_first)
    base = np.int64(stream.buffer)
    capacity = np.int64(stream.capacity)
    stream.segments_first = -1
    stream.segments_last = -1
    stream.capacity = -1
    stream.used = 0
    stream.mode = STREAM_IN_SYNC
    is_broken = False
    while number >= 0:
        segment = t.segments[number]
        part = _segment_part(t, segment, base)
        following = np.int64(segment.next)
        release_row(t.free_segments, number)
        is_broken = _read_any_part(t, c, d, stream, part) or is_broken
        number = following
    if capacity >= 0:
        defer_place(t, base, capacity)
    return is_broken


@helper
def _is_kafka_from_start(t, c, d, stream, is_final):  # type: ignore[no-untyped-def]
    """Whether a stream whose first bytes are in its buffer starts with a Kafka frame that can be read now."""
    connection = t.connections[c]
    if connection.protocol == PROTOCOL_UNKNOWN and (stream.used > 0 or is_final):
        detect_protocol(t, c, d, stream, is_final)
    stream.doubt = DOUBT_NONE
    # The requests are read before the responses to them.
    is_readable = d == np.int64(connection.client) or t.streams[2 * c + 1 - d].mode != STREAM_AT_START
    return connection.protocol == PROTOCOL_KAFKA and is_readable


@helper
def _resync_stream(t, c, d, stream, is_final):  # type: ignore[no-untyped-def]
    """Read the search buffer from each frame that is found in it, until the stream is in sync or nothing is found.

    `is_final`: no more bytes come that could confirm a frame. After SEARCHES searches the rest is skipped.
    """
    connection = t.connections[c]
    other = t.streams[2 * c + 1 - d]
    searches = 0
    while stream.mode != STREAM_IN_SYNC:
        if not is_final and stream.used < stream.retry:
            return
        is_found = False
        if stream.mode == STREAM_AT_START:
            is_found = _is_kafka_from_start(t, c, d, stream, is_final)
            if connection.protocol == PROTOCOL_TLS or connection.protocol == PROTOCOL_FOREIGN:
                return
            if not is_found and stream.mode == STREAM_AT_START:
                return
        if connection.protocol == PROTOCOL_UNKNOWN and other.mode == STREAM_RESYNC and connection.client != d:
            verdict = judge_answer(t, c, other, stream, is_final)
            if verdict == WAIT:
                return
            if verdict == ACCEPT:
                connection.client = 1 - d
                connection.protocol = PROTOCOL_KAFKA
                _read_buffer(t, c, 1 - d, other)
        if not is_found and stream.used > 0:
            searches += 1
            is_final = is_final or searches > SEARCHES
            is_found = searches <= SEARCHES and find_frame(t, c, d, stream, is_final)
        if not is_found:
            if is_final or stream.used == 0:
                skip_buffer(t, stream)
            return
        if connection.client < 0:
            connection.client = d
        connection.protocol = PROTOCOL_KAFKA
        if other.mode == STREAM_AT_START and other.used == 0:
            other.mode = STREAM_IN_SYNC
        is_final = _read_buffer(t, c, d, stream) or is_final


@helper
def _read_stream(t, c, d, part, is_final):  # type: ignore[no-untyped-def]
    """Read a part of a stream, or, if its length is 0, what the stream still has in its search buffer. With `is_final`,
    the buffer is decided before the part: a gap comes, or the end."""
    stream = t.streams[2 * c + d]
    if is_final or part.length == 0:
        _resync_stream(t, c, d, stream, is_final)
        if part.length == 0 or stream.mode != STREAM_IN_SYNC:
            return
    is_broken = _read_any_part(t, c, d, stream, part)
    if part.is_gap == 0:
        _resync_stream(t, c, d, stream, is_broken)


@helper
def _start_connection(t, c, chunk):  # type: ignore[no-untyped-def]
    """Begin a connection."""
    connection = t.connections[c]
    opening = chunk.opening
    clear_connection(connection, chunk)
    if opening != OPENING_RESUMED:
        clear_facts(connection, np.int64(-1 if opening == OPENING_UNKNOWN else chunk.direction))
    elif connection.source_port >= 0:
        note_source(t, connection)
    for d in range(2):
        clear_stream(t, t.streams[2 * c + d], STREAM_AT_START if opening == OPENING_SYN else STREAM_RESYNC)


@helper
def _finish_stream(t, c, d, is_closed):  # type: ignore[no-untyped-def]
    """End a stream: its last bytes are no whole frame. `is_closed`: a FIN or RST cut them off, and not the capture.

    A frame with a header is read without the bytes that never came."""
    stream = t.streams[2 * c + d]
    if stream.mode != STREAM_IN_SYNC:
        skip_buffer(t, stream)
    elif stream.passed > 0:
        is_request = is_request_stream(t, c, d)
        if not is_closed and not is_request and t.connections[c].client >= 0:
            stream.losses += 1  # the response had begun when its capture ended
        has_header = stream.frame_size > 0 and stream.used >= (REQUEST_FIXED if is_request else RESPONSE_HEADER)
        if has_header and (t.connections[c].requests > 0 or stream.doubt == DOUBT_NONE or is_lone_start(t, c, d)):
            _read_any_part(t, c, d, stream, _missing_part(t, stream))
        else:
            stream.skipped_bytes += stream.seen
            defer_buffer(t, stream)
            forget_frame(t, stream)


@helper
def _first_direction(connection):  # type: ignore[no-untyped-def]
    """The client's direction; 0 if it is unknown."""
    return np.int64(max(connection.client, 0))


@helper
def _is_not_kafka(connection):  # type: ignore[no-untyped-def]
    """Whether a connection is known to carry something else."""
    return connection.protocol == PROTOCOL_TLS or connection.protocol == PROTOCOL_FOREIGN


@helper
def _begin_plain(t, c):  # type: ignore[no-untyped-def]
    """What passed of a connection so far was TLS, and is not counted here. Plain bytes come now."""
    connection = t.connections[c]
    connection.protocol = PROTOCOL_UNKNOWN
    connection.shows_tls = 0
    connection.unknown_chunks = 0
    connection.not_kafka_since = 0
    for d in range(2):
        clear_stream(t, t.streams[2 * c + d], STREAM_RESYNC)


@helper
def _end_connection(t, c, chunk):  # type: ignore[no-untyped-def]
    """End a connection with an END chunk. Requests are read first, as they may confirm a response.

    Responses in a direction of which no packet was captured are lost.
    """
    closed_0 = chunk.opening & ENDED_BY[0]
    closed_1 = chunk.opening & ENDED_BY[1]
    is_closed = closed_0 != 0 or closed_1 != 0
    connection = t.connections[c]
    nothing = _no_bytes(t)
    accept_lone_request(t, c, is_closed)
    for turn in range(2):
        if not _is_not_kafka(connection):
            _read_stream(t, c, (_first_direction(connection) + turn) & 1, nothing, True)
    d = _first_direction(connection)
    if connection.protocol == PROTOCOL_KAFKA and t.streams[2 * c + d].mode == STREAM_AT_START:
        _read_stream(t, c, d, nothing, True)
    _finish_stream(t, c, d, is_closed)
    client = np.int64(connection.client)
    if client >= 0 and chunk.opening >> (1 - client) & 1:
        t.streams[2 * c + 1 - client].losses += 1
    if is_closed and client >= 0:
        by = np.int64(0) if closed_0 != 0 else np.int64(1)
        note_end(t, c, chunk.length, np.int64(CLOSED_BY_CLIENT if by == client else CLOSED_BY_BROKER))
    elif chunk.at != 0:
        note_end(t, c, chunk.at, np.int64(-1))
    _finish_stream(t, c, 1 - d, is_closed)
    give_up(t, c, np.int64(-1))
    if connection.protocol == PROTOCOL_KAFKA and connection.requests == 0:
        connection.protocol = PROTOCOL_UNKNOWN  # a frame was in doubt, and it never ended
    connection.is_open = 0


@helper
def _count_unknown(t, connection, chunk):  # type: ignore[no-untyped-def]
    """Count a chunk of a connection that is not, or not yet, Kafka. Return whether NOT_KAFKA_AFTER have come now."""
    connection.unknown_chunks += 1
    is_enough = connection.unknown_chunks >= NOT_KAFKA_AFTER and chunk.ts >= t.state[0].heads_from
    if is_enough and connection.not_kafka_since == 0:
        connection.not_kafka_since = chunk.packet
        return True
    return False


@helper
def _note_opening(connection, d, stream, part):  # type: ignore[no-untyped-def]
    """Note what a stream begins with. The first bytes of one that is searched are not those behind its SYN."""
    is_known = stream.mode != STREAM_RESYNC and part.is_gap == 0
    stream.opening = opening_of(part) if is_known else np.int64(MAYBE_KAFKA)


@inlined
def _read_chunk(t, block, held, c, chunk):  # type: ignore[no-untyped-def]
    """Read a DATA or GAP chunk, whose bytes lie in the block or are held."""
    connection = t.connections[c]
    d = np.int64(chunk.direction)
    stream = t.streams[2 * c + d]
    part = _chunk_part(block, held, chunk)
    is_gap = chunk.kind == CHUNK_GAP
    if chunk.opening == SHOWS_PLAIN:
        _begin_plain(t, c)
        return
    if chunk.opening >= FROM_TLS:
        connection.tls_version = chunk.opening - FROM_TLS
    if stream.opening == NO_OPENING:
        _note_opening(connection, d, stream, part)
    if stream.opening > MAYBE_KAFKA and connection.protocol == PROTOCOL_KAFKA and d != np.int64(connection.client):
        stream.foreign_bytes += 0 if is_gap else chunk.length
        return
    if is_gap and connection.protocol == PROTOCOL_UNKNOWN and connection.is_second_look:
        set_not_kafka(t, c, PROTOCOL_FOREIGN)
    if _is_not_kafka(connection) and not begin_look(t, c, d, part):
        if not is_gap:
            stream.skipped_bytes += chunk.length
            if _count_unknown(t, connection, chunk):
                connection.head = chunk.packet
        return
    if stream.mode == STREAM_IN_SYNC and not is_gap:  # the usual case
        is_broken = _read_part(t, c, d, stream, part)
        if stream.mode != STREAM_IN_SYNC:
            _resync_stream(t, c, d, stream, is_broken)
        return
    if is_gap:
        stream.losses += 1
        if stream.mode == STREAM_AT_START:
            stream.mode = STREAM_RESYNC
    elif connection.protocol == PROTOCOL_UNKNOWN:
        _count_unknown(t, connection, chunk)
        note_expected(t, connection)
        if chunk.opening == SHOWS_TLS:
            connection.shows_tls = 1
    _read_stream(t, c, d, part, is_gap)
    if connection.protocol == PROTOCOL_UNKNOWN:
        if connection.shows_tls:
            set_not_kafka(t, c, PROTOCOL_TLS)
        return
    # Bytes were held back until the connection turned out to be Kafka: the other direction's, then this one's.
    nothing = _no_bytes(t)
    for turn in range(2):
        held_back = (d + 1 + turn) & 1
        if connection.protocol == PROTOCOL_KAFKA and t.streams[2 * c + held_back].mode == STREAM_AT_START:
            _read_stream(t, c, held_back, nothing, is_gap)


@inlined
def _missing_room(t, c, chunk):  # type: ignore[no-untyped-def]
    """What has to grow before a chunk is read (FULL_*): nothing grows while it is.

    The buffer of a stream in sync holds part of one frame; a search buffer may hold many frames. A buffer that doubles
    takes less than four times the needed bytes with all that it grew through, a small one less than sixteen times. Each
    search takes another buffer.
    """
    state = t.state[0]
    strings = t.strings.state[0]
    largest = np.int64(chunk.captured) + 65_536
    buffered = np.int64(chunk.captured)
    for d in range(2):
        stream = t.streams[2 * c + d]
        buffered += stream.used
        if stream.mode != STREAM_IN_SYNC:
            largest += stream.used
    frames = largest // 4
    pool = 4 * buffered + 16 * min(buffered, np.int64(1) << 20) + 4 * (SEARCHES + 1) * largest
    if state.jobs + frames > t.jobs.shape[0]:
        return FULL_JOBS
    if frames > rows_left(t.free_exchanges):
        return FULL_EXCHANGES
    if state.finished + np.int64(t.connections[c].waiting_count) + frames > t.finished.shape[0]:
        return FULL_FINISHED
    if state.pool_top + pool > t.pool.shape[0]:
        return FULL_POOL
    if rows_left(t.free_segments) < SEGMENTS_ROOM:
        return FULL_SEGMENTS
    if strings.count + frames > t.strings.entries.shape[0] or (strings.count + frames) * 2 > t.strings.buckets.shape[0]:
        return FULL_STRINGS
    if strings.text_used + largest > t.strings.text.shape[0]:
        return FULL_TEXT
    if state.deferred + frames > t.deferred.shape[0]:
        return FULL_DEFERRED
    return FULL_NONE


@inlined
def _prefetch_chunk(t, block, held, chunk):  # type: ignore[no-untyped-def]
    """Start to load what `_read_chunk` touches first."""
    c = np.int64(chunk.connection)
    buf = block if chunk.source == SOURCE_BLOCK else held
    at = np.int64(chunk.at)
    for k in range(0, min(np.int64(chunk.captured), np.int64(PREFETCHED)), 64):
        prefetch(buf, at + k)
    prefetch(t.connections, c)
    prefetch(t.streams, 2 * c + np.int64(chunk.direction))


@kernel(Tables, np.uint8, np.uint8, CHUNK, int, int)
def read_chunks(t, block, held, chunks, first, count):  # type: ignore[no-untyped-def]
    """Read chunks[first:count], whose bytes lie in `block` and `held`. Return the first one that was not read;
    `state.full` says what has to grow before."""
    state = t.state[0]
    state.full = FULL_NONE
    i = first
    while i < count:
        chunk = chunks[i]
        c = np.int64(chunk.connection)
        if i + CHUNKS_AHEAD < count:
            _prefetch_chunk(t, block, held, chunks[i + CHUNKS_AHEAD])
        if chunk.kind == CHUNK_START:
            _start_connection(t, c, chunk)
        elif chunk.kind == CHUNK_STALL:
            if state.silences + 1 >= t.silences.shape[0]:
                state.full = FULL_SILENCES
                break
            note_stall(t, c, chunk)
        else:
            state.full = _missing_room(t, c, chunk)
            if state.full != FULL_NONE:
                break
            if chunk.kind == CHUNK_END:
                _end_connection(t, c, chunk)
            else:
                _read_chunk(t, block, held, c, chunk)
        i += 1
    return i
