"""The frames of a stream in sync.

A frame is a 32-bit size and that many bytes, so the next one starts 4 + size bytes further on, whether or not the bytes
between were captured. A gap inside a body costs that body alone. A stream loses sync only if a size field is missing,
or if the frame there makes no sense.

A frame that lies in one chunk part is read where it is. Others are collected in the stream's buffer.
"""

from __future__ import annotations

from collections import namedtuple

import numpy as np

from kafkatap.kernels.decorator import helper, inlined

from .advertised import is_advertised
from .buffers import append, defer_buffer
from .connections import DOUBT_AT_SEGMENT, DOUBT_IN_SEGMENT, DOUBT_NEXT, DOUBT_NONE, STREAM_RESYNC, forget_frame
from .correlation import Frame, read_request, read_response
from .cursor import Cursor, left, seq_behind, skip
from .evidence import ACCEPT, REJECT, SEARCH_DEPTH
from .headers import (
    APACHE_KEYS,
    LONGEST_FRAME,
    REQUEST_FIXED,
    RESPONSE_HEADER,
    api_key,
    api_version,
    frame_size,
    has_plausible_name,
    is_plausible_api,
    may_be_same_client,
    response_correlation_id,
)
from .program_index import REQUEST, RESPONSE, is_head_only, program_of
from .resync import contradicts
from .silences import add_up_frame
from .tables import HEAD_KEPT, SOURCE_POOL
from .waiting import DEPTH, find_waiting

#: A size field this large is believed at once only if the frame's header makes sense.
SUSPICIOUS = 1 << 20
#: Bytes of the size field.
SIZE = 4
#: What `_begin_frame` and `_continue_frame` return if the frame makes no sense or its size field is missing.
SYNC_LOST = -1

#: Bytes that a stream reads at once: a chunk, or the part of one that was searched. A cursor over its captured bytes;
#: `length` is that on the wire, `seq` the sequence number of its first byte, below the `stamp` of its chunk (32 bits
#: each). `starts_chunk`: its first byte is the chunk's. `is_gap`: no packet carried it. `cut`: its length if no packet
#: will: the connection, or the capture, ended before.
ChunkPart = namedtuple("ChunkPart", "buf at end length ts packet seq source starts_chunk is_gap cut")


@helper
def is_request_stream(t, c, d):  # type: ignore[no-untyped-def]
    """Whether direction `d` of a connection carries the requests."""
    return d == np.int64(t.connections[c].client)


@inlined
def _is_believable_request(t, c, frame, size, in_doubt):  # type: ignore[no-untyped-def]
    connection = t.connections[c]
    if connection.raw_sasl:
        return size <= SUSPICIOUS
    if size < REQUEST_FIXED:
        return False
    if left(frame) < 8:
        return not in_doubt
    key = api_key(frame)
    version = api_version(frame)
    if (key <= APACHE_KEYS or connection.requests == 0) and is_plausible_api(key, version):
        return True
    return _is_believable_vendor_request(t, connection, frame, size, in_doubt)


@helper
def _is_believable_vendor_request(t, connection, frame, size, in_doubt):  # type: ignore[no-untyped-def]
    """Whether a request of an API that only some vendor knows makes sense: one that the broker lists or that has a
    layout, of the client that the connection had so far, or of any client where no frame was in doubt."""
    key = api_key(frame)
    version = api_version(frame)
    if is_advertised(t, connection, key, version) or program_of(t.program_index, REQUEST, key, version) >= 0:
        return True
    if not is_plausible_api(key, version):
        return not in_doubt and key >= 0 and version >= 0 and may_be_same_client(t, connection, frame)
    if size <= SUSPICIOUS and may_be_same_client(t, connection, frame):
        return True
    return not in_doubt and has_plausible_name(frame, size)


@helper
def _is_believable(t, c, d, frame):  # type: ignore[no-untyped-def]
    """Whether a frame makes sense where a stream in sync expects it, by the bytes that are there."""
    size = frame_size(frame)
    if size < SIZE or size > LONGEST_FRAME:  # SIZE: an empty token
        return False
    in_doubt = t.streams[2 * c + d].doubt == DOUBT_NEXT
    if is_request_stream(t, c, d):
        return _is_believable_request(t, c, frame, size, in_doubt)
    if not in_doubt and (size <= SUSPICIOUS or left(frame) < RESPONSE_HEADER):
        return True
    if left(frame) < RESPONSE_HEADER:
        return False
    return find_waiting(t, t.connections[c], response_correlation_id(frame), SEARCH_DEPTH) >= 0


@helper
def _set_frame_size(t, stream, size):  # type: ignore[no-untyped-def]
    """Note the size of the current frame, and how many of its leading bytes are kept."""
    state = t.state[0]
    kept = size if size <= state.max_frame else np.int64(HEAD_KEPT)
    stream.frame_size = size
    stream.kept = min(kept, np.int64(state.most_kept))


@helper
def _is_head_enough(t, c, d, stream):  # type: ignore[no-untyped-def]
    """Whether nobody wants more than the head of the frame that a stream's buffer begins with."""
    frame = Cursor(t.pool, stream.buffer, stream.buffer + stream.used)
    if is_request_stream(t, c, d):
        return is_head_only(t.program_index, REQUEST, api_key(frame), api_version(frame))
    slot = find_waiting(t, t.connections[c], response_correlation_id(frame), DEPTH)
    if slot < 0:
        return False
    x = t.exchanges[slot]
    return is_head_only(t.program_index, RESPONSE, np.int64(x.api_key), np.int64(x.api_version))


@helper
def lose_frame(t, stream):  # type: ignore[no-untyped-def]
    """Give up the current frame: it is none, or the rest of it is missing."""
    stream.losses += 1
    stream.skipped_bytes += stream.seen
    defer_buffer(t, stream)
    forget_frame(t, stream)


@helper
def drop_contradicted_frame(t, c, d, stream, part):  # type: ignore[no-untyped-def]
    """Give up the current frame, which is in doubt, if a part within it starts a frame of its own."""
    verdict = contradicts(t, c, part, not is_request_stream(t, c, d), np.int64(stream.doubt))
    if verdict != REJECT:
        lose_frame(t, stream)
        stream.doubt = DOUBT_NONE if verdict == ACCEPT else DOUBT_AT_SEGMENT
        t.counts[0].resyncs += 1


@inlined
def _finish_frame(t, c, d, stream, frame, cut):  # type: ignore[no-untyped-def]
    """Read the header of a frame, without its last `cut` bytes. The next byte of the stream starts another one."""
    if is_request_stream(t, c, d):
        read_request(t, c, frame, cut)
    else:
        read_response(t, c, frame, cut)
    if stream.doubt != DOUBT_NONE:
        stream.doubt = DOUBT_NEXT


@inlined
def _begin_frame(t, c, d, stream, part, taken):  # type: ignore[no-untyped-def]
    """Begin a frame behind the first `taken` bytes of a part. Return its size if all of it lies there; else 0, or
    SYNC_LOST."""
    frame = skip(part, taken)
    if left(frame) < min(np.int64(SIZE), part.length - taken):
        return np.int64(SYNC_LOST)
    stream.first = part.ts
    stream.packet_first = part.packet
    stream.seq_first = seq_behind(part.seq, taken)
    if left(frame) < SIZE:
        return np.int64(0)
    if not _is_believable(t, c, d, frame):
        return np.int64(SYNC_LOST)
    if stream.doubt == DOUBT_NEXT:
        stream.doubt = DOUBT_NONE
    size = frame_size(frame)
    _set_frame_size(t, stream, size)
    return size if left(frame) >= size else np.int64(0)


@inlined
def _buffer_bytes(t, c, d, stream, part, taken, count):  # type: ignore[no-untyped-def]
    """Keep what is wanted of `count` bytes of a frame, behind the first `taken` bytes of a part."""
    wanted = max(np.int64(0), min(count, part.end - part.at - taken))
    if stream.frame_size > 0:
        wanted = min(wanted, stream.kept - stream.used)
    if wanted > 0 and stream.is_broken == 0:
        head = np.int64(t.state[0].head_kept) - stream.used
        if 0 < head < wanted:
            append(t, stream, part.buf, part.at + taken, head)
            if _is_head_enough(t, c, d, stream):
                stream.kept = stream.used
                wanted = head
            else:
                append(t, stream, part.buf, part.at + taken + head, wanted - head)
        else:
            append(t, stream, part.buf, part.at + taken, wanted)
    if wanted < count:
        stream.is_broken = 1


@inlined
def _continue_frame(t, c, d, stream, part, taken):  # type: ignore[no-untyped-def]
    """Read on, behind the first `taken` bytes of a part, to the end of the current frame or of its size field. Return
    how many bytes that are, or SYNC_LOST."""
    size = stream.frame_size if stream.frame_size > 0 else np.int64(SIZE)
    count = min(part.length - taken, size - stream.passed)
    _buffer_bytes(t, c, d, stream, part, taken, count)
    stream.passed += count
    if stream.passed == size:
        frame = Cursor(t.pool, stream.buffer, stream.buffer + stream.used)
        # A header that was cut is checked again when the frame is complete.
        is_checked = stream.frame_size == 0 or stream.used >= REQUEST_FIXED
        if is_checked and not _is_believable(t, c, d, frame):
            return np.int64(SYNC_LOST)
        if stream.frame_size == 0:
            _set_frame_size(t, stream, frame_size(frame))
    if part.is_gap == 0:
        stream.seen += count
    return count


@helper
def _frame_in_part(stream, part, taken):  # type: ignore[no-untyped-def]
    """The current frame, which lies behind the first `taken` bytes of a part."""
    at = part.at + taken
    return Frame(
        part.buf, at, at + stream.kept, at + stream.frame_size, part.source, stream.first, part.ts, stream.packet_first,
        part.packet, stream.seq_first,
    )  # fmt: skip


@helper
def _frame_in_buffer(t, stream, part):  # type: ignore[no-untyped-def]
    """The current frame, which lies in the stream's buffer and ends in a part."""
    at = stream.buffer
    return Frame(
        t.pool, at, at + stream.used, at + stream.frame_size, np.int64(SOURCE_POOL), stream.first, part.ts,
        stream.packet_first, part.packet, stream.seq_first,
    )  # fmt: skip


@helper
def _is_end_believable(t, c, part, end):  # type: ignore[no-untyped-def]
    """Whether the end of a response that began inside a segment is right: the end of a segment, or the start of another
    response. If it was not captured, it may be."""
    following = skip(part, end)
    if part.length == end or left(following) < RESPONSE_HEADER:
        return True
    if frame_size(following) == part.length - end:
        return True
    return find_waiting(t, t.connections[c], response_correlation_id(following), SEARCH_DEPTH) >= 0


@helper
def _lose_sync(t, stream):  # type: ignore[no-untyped-def]
    """Give up the current frame, and search for the next boundary."""
    lose_frame(t, stream)
    stream.mode = STREAM_RESYNC
    t.counts[0].resyncs += 1


@inlined
def read_frames(t, c, d, stream, part):  # type: ignore[no-untyped-def]
    """Read a part of a stream in sync. Return how many bytes of it were read; fewer than all if sync was lost."""
    taken = np.int64(0)
    while taken < part.length:
        moved = np.int64(0)
        if stream.passed == 0:
            moved = _begin_frame(t, c, d, stream, part, taken)
        elif stream.frame_size == 0 and part.end - part.at - taken < min(SIZE - stream.passed, part.length - taken):
            moved = np.int64(SYNC_LOST)
        frame = _frame_in_part(stream, part, taken)
        if moved == 0:
            moved = _continue_frame(t, c, d, stream, part, taken)
            frame = _frame_in_buffer(t, stream, part)
        elif moved > 0:
            stream.seen = moved
            stream.passed = moved
        if moved == SYNC_LOST:
            _lose_sync(t, stream)
            if part.is_gap == 0:
                taken += 1  # no frame starts where sync was lost
                stream.skipped_bytes += 1
            break
        if stream.passed == stream.frame_size:
            if stream.doubt == DOUBT_IN_SEGMENT and not _is_end_believable(t, c, part, taken + moved):
                stream.seen -= moved
                _lose_sync(t, stream)
                break
            stream.frame_bytes += stream.seen
            add_up_frame(t, stream, part.ts)
            _finish_frame(t, c, d, stream, frame, part.cut)
            defer_buffer(t, stream)
            forget_frame(t, stream)
        taken += moved
    return taken
