"""The search for the next boundary where a stream lost sync.

Every offset of the search buffer is tried, in order. A request is confirmed by its header and by its body, which has to
decode to its end; a response by the correlation_id of a waiting request as well. A frame inside a segment is believed
only if it ends with a segment, or if another header follows it. A body that does not decode is believed only if the
frame starts and ends with segments. A candidate that is not complete waits for more bytes; confirmed ones behind it do
not wait. No response is looked for inside one that fills its segments, even if nobody waits for that one.
"""

from __future__ import annotations

import numpy as np

from kafkatap.kernels.decorator import helper
from kafkatap.kernels.readers import same_bytes

from ..dtypes import INCOMPLETE, OK
from .advertised import is_advertised
from .buffers import drop_segment
from .connections import DOUBT_AT_SEGMENT, DOUBT_IN_SEGMENT, DOUBT_NONE, PROTOCOL_KAFKA
from .cursor import Cursor, left, seq_behind, skip
from .evidence import ACCEPT, REJECT, SEARCH_DEPTH, WAIT, body_status, is_telling, request_header, response_header
from .headers import (
    PRODUCE,
    REQUEST_HEADER,
    RESPONSE_HEADER,
    api_key,
    api_version,
    client_id_length,
    frame_size,
    is_named,
    is_plausible_api,
    may_be_same_client,
    request_correlation_id,
    response_correlation_id,
)
from .known_brokers import note_missed
from .program_index import REQUEST, program_of
from .waiting import find_waiting

#: When a search buffer holds more, doubtful candidates are decided with the bytes that are there.
SEARCH_LIMIT = 1 << 18
#: A candidate longer than this is not looked at again with each segment.
RETRY_FROM = 4_096
#: Captured bytes of a body that suffice where neither its end nor a client's name speaks for a frame.
ENOUGH = 16
#: A response of this many bytes needs no header behind it; this many captured bytes suffice inside a segment.
LONG_RESPONSE, LONG_RESPONSE_START = 28, 64
#: So many captured bytes of a client_id suffice if the rest of the request was cut off.
SHORTEST_NAME = 4
#: By how much the correlation_id of a client's next request is larger, at most.
CORRELATION_STEP = 1 << 16
#: A verdict beside REJECT, ACCEPT and WAIT: a frame that is believed until another one contradicts it.
DOUBT = 3


@helper
def search_buffer(t, stream):  # type: ignore[no-untyped-def]
    """A cursor over the bytes that are searched."""
    return Cursor(t.pool, stream.buffer, stream.buffer + stream.used)


@helper
def segment_ends_at(t, stream, offset):  # type: ignore[no-untyped-def]
    """Whether a segment of the search buffer ends at this offset."""
    if stream.segments_last < 0:
        return False
    last = t.segments[stream.segments_last]
    if last.offset + last.length < offset:
        return False
    number = np.int64(stream.segments_first)
    while number >= 0 and t.segments[number].offset < offset:
        segment = t.segments[number]
        if segment.offset + segment.length == offset:
            return True
        number = np.int64(segment.next)
    return False


@helper
def _is_header(t, c, frame, is_response):  # type: ignore[no-untyped-def]
    """Whether another frame of this direction seems to start here."""
    if is_response:
        return find_waiting(t, t.connections[c], response_correlation_id(frame), SEARCH_DEPTH) >= 0
    known = program_of(t.program_index, REQUEST, api_key(frame), api_version(frame)) >= 0
    return known and client_id_length(frame) >= -1


@helper
def _is_followed_by_request(t, frame):  # type: ignore[no-untyped-def]
    """Whether another request follows a whole one, and its body decodes to its end: ACCEPT, REJECT, or WAIT."""
    following = skip(frame, frame_size(frame))
    header = request_header(t, following)
    if header.verdict != ACCEPT:
        return header.verdict
    if header.program < 0 or request_correlation_id(following) == request_correlation_id(frame):
        return np.int64(REJECT)
    if frame_size(following) > left(following):
        return np.int64(WAIT)
    return np.int64(ACCEPT if body_status(t, following, header, True, True) == OK else REJECT)


@helper
def _judge_whole(t, c, frame, status, is_response, at_segment, is_aligned, is_final):  # type: ignore[no-untyped-def]
    """The verdict on a candidate whose bytes are all there.

    A request that is not telling is believed of a connection that has had others, or if another one follows.
    """
    connection = t.connections[c]
    is_kafka = connection.protocol == PROTOCOL_KAFKA and connection.requests > 0
    if status != OK:  # trailing bytes, or a body that does not decode
        return ACCEPT if at_segment and is_aligned and is_kafka else REJECT
    if not is_response and not is_kafka and not is_telling(t, connection, frame):
        verdict = np.int64(_is_followed_by_request(t, frame))
        if verdict != ACCEPT:
            return REJECT if is_final else verdict
    if is_aligned or (at_segment and connection.client >= 0):
        return ACCEPT
    following = skip(frame, frame_size(frame))
    if left(following) < REQUEST_HEADER:
        return REJECT if is_final else WAIT
    is_long = is_response and frame_size(frame) >= LONG_RESPONSE
    return ACCEPT if is_long or _is_header(t, c, following, is_response) else REJECT


@helper
def _judge_start(t, c, frame, header, is_response, at_segment, is_aligned, is_named_request):  # type: ignore[no-untyped-def]
    """The verdict on a candidate of which no more bytes come, and those that are there decode.

    Inside a segment they do not suffice, except for a response. A frame whose end was cut off starts with a segment as
    a rule.
    """
    if is_response:
        return DOUBT if at_segment or left(frame) >= LONG_RESPONSE_START else REJECT
    connection = t.connections[c]
    is_hinted = is_named_request or (is_aligned and frame.end - header.body >= ENOUGH)
    is_hinted = is_hinted and (connection.client >= 0 or api_key(frame) != PRODUCE)
    return DOUBT if at_segment and (connection.protocol == PROTOCOL_KAFKA or is_hinted) else REJECT


@helper
def _is_next_request(t, stream, frame, following, size):  # type: ignore[no-untyped-def]
    """Whether the same client's next request seems to follow a request, and ends with a segment."""
    length = client_id_length(frame)
    if left(following) < REQUEST_HEADER or client_id_length(following) != length:
        return False
    if not is_plausible_api(api_key(following), api_version(following)):
        return False
    step = request_correlation_id(following) - request_correlation_id(frame)
    if not 0 < step < CORRELATION_STEP:
        return False
    at = frame.at + REQUEST_HEADER
    if not same_bytes(following.buf, following.at + REQUEST_HEADER, frame.buf, at, length):
        return False
    offset = frame.at - stream.buffer
    return segment_ends_at(t, stream, offset + size + frame_size(following))


@helper
def _judge_unknown_request(t, c, stream, offset, header, at_segment, is_final):  # type: ignore[no-untyped-def]
    """The verdict on a request without a layout. It has to start with a segment and to name its client.

    It is expected of the connection's client, and if the broker lists its API; then it has to end with a segment. Of
    others, the client's next request has to follow it.
    """
    connection = t.connections[c]
    frame = skip(search_buffer(t, stream), offset)
    if not at_segment or not is_named(t, connection, frame):
        return REJECT
    if header.verdict == WAIT:
        return REJECT if is_final else WAIT
    is_expected = False
    if connection.protocol == PROTOCOL_KAFKA and connection.client >= 0:
        is_expected = connection.client_id >= 0 and may_be_same_client(t, connection, frame)
        is_expected = is_expected or is_advertised(t, connection, api_key(frame), api_version(frame))
    size = frame_size(frame)
    if size > left(frame):
        unfinished = DOUBT if is_expected else REJECT
        return unfinished if is_final else WAIT
    is_aligned = segment_ends_at(t, stream, offset + size)
    if is_expected and is_aligned:
        return ACCEPT
    if _is_next_request(t, stream, frame, skip(frame, size), size):
        return ACCEPT
    return REJECT if is_final or not is_aligned else WAIT


@helper
def _starts_with_segment(t, stream):  # type: ignore[no-untyped-def]
    """Whether a search buffer starts where a segment does."""
    if stream.segments_first < 0:
        return False
    segment = t.segments[stream.segments_first]
    return segment.offset == 0 and segment.starts_chunk == 1


@helper
def judge_answer(t, c, requests, stream, is_final):  # type: ignore[no-untyped-def]
    """Whether a search buffer starts with the answer to a request without a layout, with which that of stream
    `requests` starts. Both have to start and to end with segments, and to have the same correlation_id."""
    request = search_buffer(t, requests)
    answer = search_buffer(t, stream)
    if left(request) < REQUEST_HEADER or left(answer) < RESPONSE_HEADER:
        return REJECT
    if response_correlation_id(answer) != request_correlation_id(request):
        return REJECT
    header = request_header(t, request)
    is_known = header.verdict != ACCEPT or header.program >= 0
    if is_known or not is_named(t, t.connections[c], request):
        return REJECT
    if not (_starts_with_segment(t, requests) and segment_ends_at(t, requests, frame_size(request))):
        return REJECT
    size = frame_size(answer)
    if size < RESPONSE_HEADER or size > SEARCH_LIMIT or not _starts_with_segment(t, stream):
        return REJECT
    if size > left(answer):
        return REJECT if is_final else WAIT
    return ACCEPT if segment_ends_at(t, stream, size) else REJECT


@helper
def _judge_cut_header(connection, frame, is_aligned):  # type: ignore[no-untyped-def]
    """The verdict on a request that starts with a segment, of which no more than a part of its client_id was captured.

    That is a short snap length, which cuts every request of a client with a long name. Some bytes of the name have to
    be there, unless the connection is Kafka. Until the client's direction is known, what seems to be a Produce request
    may be a response.
    """
    is_client_known = connection.client >= 0
    is_kafka = connection.protocol == PROTOCOL_KAFKA and is_client_known
    is_hinted = is_aligned and left(frame) >= REQUEST_HEADER + SHORTEST_NAME
    is_hinted = is_hinted and (is_client_known or api_key(frame) != PRODUCE)
    return DOUBT if is_hinted or is_kafka else REJECT


@helper
def _judge_lone(t, connection, frame, header):  # type: ignore[no-untyped-def]
    """The verdict on a request without a name that is all of the buffer, while the client's direction is not known. At
    a known broker it waits: if nothing follows, `lone_request` decides."""
    if header.verdict != ACCEPT or body_status(t, frame, header, True, True) != OK:
        return REJECT
    if connection.is_expected:
        return WAIT
    for client in range(2):
        note_missed(t, connection, np.int64(client))
    return REJECT


@helper
def _judge_candidate(t, c, stream, offset, is_response, at_segment, is_final):  # type: ignore[no-untyped-def]
    """Whether a frame starts at an offset of the search buffer."""
    connection = t.connections[c]
    frame = skip(search_buffer(t, stream), offset)
    header = response_header(t, c, frame) if is_response else request_header(t, frame)
    if header.verdict == REJECT:
        return REJECT
    # Until the client's direction is known, a response may look like a Produce request: the correlation_id is the key
    # and version, the number of topics the correlation_id, the first topic the client_id. Its body shows the
    # difference, and only headers that name a client are believed.
    is_client_known = connection.client >= 0
    is_named_request = True
    if not is_response and left(frame) >= REQUEST_HEADER:
        if header.program < 0:
            return _judge_unknown_request(t, c, stream, offset, header, at_segment, is_final)
        is_named_request = is_named(t, connection, frame)
        # Inside a segment, a client_id that is no text is not worth waiting for.
        worth_waiting = is_client_known if header.body <= frame.at + REQUEST_HEADER else at_segment
        if not is_named_request and not worth_waiting:
            fills_buffer = at_segment and offset == 0 and not is_final and frame_size(frame) == left(frame)
            return _judge_lone(t, connection, frame, header) if fills_buffer else REJECT
    is_aligned = segment_ends_at(t, stream, offset + frame_size(frame))
    if header.verdict == WAIT:
        if is_final and not is_response and at_segment and is_named_request and left(frame) >= REQUEST_HEADER:
            return _judge_cut_header(connection, frame, is_aligned)
        return REJECT if is_final else WAIT
    is_whole = frame_size(frame) <= left(frame)
    if header.program < 0:
        if not at_segment or (is_whole and not is_aligned):
            return REJECT
        return ACCEPT if is_whole else DOUBT
    status = body_status(t, frame, header, not is_response, at_segment)
    if is_whole:
        return _judge_whole(t, c, frame, status, is_response, at_segment, is_aligned, is_final)
    if status != INCOMPLETE:
        return REJECT
    if not is_final:
        return WAIT
    return _judge_start(t, c, frame, header, is_response, at_segment, is_aligned, is_named_request)


@helper
def contradicts(t, c, part, is_response, doubt):  # type: ignore[no-untyped-def]
    """Whether a chunk part within a doubtful frame starts a frame of its own.

    ACCEPT for a whole frame, DOUBT for one that decodes as far as it is there (against DOUBT_IN_SEGMENT only).
    """
    frame = Cursor(part.buf, part.at, part.end)
    header = response_header(t, c, frame) if is_response else request_header(t, frame)
    if header.verdict != ACCEPT or header.program < 0:
        return REJECT
    size = frame_size(frame)
    status = body_status(t, frame, header, not is_response, True)
    if size > left(frame):
        return DOUBT if status == INCOMPLETE and doubt == DOUBT_IN_SEGMENT else REJECT
    following = skip(frame, size)
    is_followed = left(following) >= REQUEST_HEADER and _is_header(t, c, following, is_response)
    return ACCEPT if status == OK and (is_followed or size == part.length) else REJECT


@helper
def drop_front(t, stream, count):  # type: ignore[no-untyped-def]
    """Skip the first bytes of a search buffer: no frame starts in them."""
    if count <= 0:
        return
    stream.skipped_bytes += count
    base = stream.buffer
    for k in range(stream.used - count):
        t.pool[np.uintp(base + k)] = t.pool[np.uintp(base + count + k)]
    stream.used -= count
    number = np.int64(stream.segments_first)
    while number >= 0:
        segment = t.segments[number]
        following = np.int64(segment.next)
        is_cut_off = segment.length != np.int64(segment.captured)  # the last one keeps the bytes that are missing
        if segment.offset + segment.length <= count and (following >= 0 or not is_cut_off):
            drop_segment(t, stream)
        elif segment.offset < count:
            cut = count - segment.offset
            segment.offset = 0
            segment.length -= cut
            segment.captured -= cut
            segment.seq = seq_behind(segment.seq, cut)
            segment.starts_chunk = 0
        else:
            segment.offset -= count
        number = following


@helper
def _fills_segments(t, stream, offset):  # type: ignore[no-untyped-def]
    """Whether a segment starts with what seems to be a response that ends with a segment."""
    frame = skip(search_buffer(t, stream), offset)
    if left(frame) < RESPONSE_HEADER or frame_size(frame) < RESPONSE_HEADER:
        return False
    return segment_ends_at(t, stream, offset + frame_size(frame))


@helper
def _note_retry(t, stream, offset):  # type: ignore[no-untyped-def]
    """Note when a long candidate that waits is worth another look: when it is whole, or a sixteenth longer. Each look
    decodes it from its start."""
    count = stream.used - offset
    if count > RETRY_FROM:
        stream.retry = min(frame_size(skip(search_buffer(t, stream), offset)), count + count // 16)


@helper
def find_frame(t, c, d, stream, is_final):  # type: ignore[no-untyped-def]
    """Whether there is a frame in the search buffer, which starts with it then: bytes before it are dropped, or those
    that no frame can start in. `stream.doubt` says whether another frame may contradict it."""
    connection = t.connections[c]
    is_response = connection.client >= 0 and d != np.int64(connection.client)
    # If no request waits, no response can answer one.
    offset = np.int64(stream.used if is_response and connection.waiting_first < 0 else 0)
    is_decided = is_final or stream.used > SEARCH_LIMIT
    number = np.int64(stream.segments_first)
    found = np.int64(REJECT)
    waiting = np.int64(-1)  # the first candidate that more bytes may confirm
    while offset < stream.used:
        while number >= 0 and t.segments[number].next >= 0 and t.segments[t.segments[number].next].offset <= offset:
            number = np.int64(t.segments[number].next)
        segment = t.segments[number]
        at_segment = segment.offset == offset and segment.starts_chunk == 1
        verdict = np.int64(REJECT)
        if at_segment or waiting < 0:
            verdict = np.int64(_judge_candidate(t, c, stream, offset, is_response, at_segment, is_decided))
        if verdict == ACCEPT or verdict == DOUBT:
            found = verdict
            in_doubt = DOUBT_AT_SEGMENT if at_segment else DOUBT_IN_SEGMENT
            stream.doubt = DOUBT_NONE if verdict == ACCEPT else in_doubt
            break
        if verdict == WAIT and waiting < 0:
            waiting = offset
        if is_response and at_segment and verdict == REJECT and _fills_segments(t, stream, offset):
            # Its request was lost. No other response starts within it.
            offset = min(offset + frame_size(skip(search_buffer(t, stream), offset)), np.int64(stream.used))
        elif waiting < 0:
            offset += 1
        else:
            # While one waits, only a frame that starts with a segment and is confirmed at once goes before it.
            following = np.int64(segment.next)
            offset = t.segments[following].offset if following >= 0 else stream.used
    stream.retry = 0
    if found == REJECT and waiting >= 0:
        offset = waiting
        if not is_final:
            _note_retry(t, stream, offset)
    drop_front(t, stream, offset)
    return found != REJECT
