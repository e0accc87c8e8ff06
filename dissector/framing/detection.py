"""What a connection carries, by its first bytes.

After a SYN, the client is known, and a frame starts with the first byte. The connection is Kafka if its first request
decodes to its end, or one behind it. A request that does not decode (a newer version, a vendor's API, a client's
mistake) waits for the broker's answer, which has to carry its correlation_id. Until then nothing is reported. If it has
no name, its answer is no proof: the next request decides.

A connection that seems foreign may begin with what is no frame (SASL of Kafka 0.9). It is looked at again from each
chunk that starts with a request that decodes. Then the next bytes of the broker have to be the answer, and decode.

A PROXY header may come before all of this, and before TLS, which the layer in front of the dissector finds.
"""

from __future__ import annotations

import numpy as np

from kafkatap.kernels.decorator import helper

from ..dtypes import INCOMPLETE, MALFORMED, OK, TRAILING_BYTES
from .buffers import skip_buffer
from .connections import PROTOCOL_FOREIGN, PROTOCOL_KAFKA, PROTOCOL_UNKNOWN, STREAM_AT_START, STREAM_RESYNC
from .cursor import Cursor, i4, left, skip
from .evidence import ACCEPT, REJECT, WAIT, Header, body_status, is_telling, request_header
from .headers import (
    API_VERSIONS,
    LONGEST_FRAME,
    REQUEST_FIXED,
    RESPONSE_HEADER,
    api_key,
    api_version,
    frame_size,
    has_client_id,
    is_named,
    request_correlation_id,
    response_correlation_id,
)
from .known_brokers import note_expected, note_missed
from .program_index import response_program
from .proxy_protocol import MORE, NO_HEADER, NO_SOURCE, may_be_proxy_header, read_proxy_header
from .resync import RETRY_FROM, SEARCH_LIMIT, drop_front, search_buffer, segment_ends_at

#: A ControlledShutdown request of version 0 has 16 bytes; some clients' mistakes have a few more.
LONGEST_SHUTDOWN = 20


@helper
def _is_shutdown(frame, status):  # type: ignore[no-untyped-def]
    """Whether a frame with such a body is a ControlledShutdown request of version 0, which names no client."""
    is_body = status == OK or status == TRAILING_BYTES
    return is_body and not has_client_id(api_key(frame), api_version(frame)) and frame_size(frame) <= LONGEST_SHUTDOWN


@helper
def _judge_requests(t, connection, stream, is_final):  # type: ignore[no-untyped-def]
    """Whether the client's first bytes are requests: ACCEPT, REJECT, or WAIT for more of them or for an answer.

    A body that decodes suffices, but not one of zeros: it takes two of these, or an ApiVersions request. A
    ControlledShutdown request, which is mostly zeros, suffices if nothing follows it.
    """
    frame = search_buffer(t, stream)
    stream.retry = 0
    decoded = 0
    while left(frame) > 0:
        header = request_header(t, frame)
        if header.verdict != ACCEPT:
            return header.verdict
        size = frame_size(frame)
        end = frame.at + size - stream.buffer
        if header.program >= 0:
            status = body_status(t, frame, header, True, True)
            if status == OK:
                decoded += 1
                if decoded == 2 or api_key(frame) == API_VERSIONS or is_telling(t, connection, frame):
                    return np.int64(ACCEPT)
            if is_final and segment_ends_at(t, stream, end) and _is_shutdown(frame, status):
                return np.int64(ACCEPT)
            if size > left(frame) and status == MALFORMED:
                return np.int64(REJECT)
        elif is_final and segment_ends_at(t, stream, end) and is_named(t, connection, frame):
            return np.int64(ACCEPT)  # nobody answered it, but it ends with a segment and names its client
        if size > left(frame) and stream.used > RETRY_FROM:
            # Each look decodes them from their start: look when the last is whole, or all are a sixteenth longer.
            stream.retry = min(end, stream.used + stream.used // 16)
        frame = skip(frame, size)
    if stream.used > RETRY_FROM and stream.retry == 0:
        stream.retry = stream.used + stream.used // 16
    return np.int64(WAIT)


@helper
def _decodes(t, request):  # type: ignore[no-untyped-def]
    """Whether the body of a whole request decodes to its end."""
    header = request_header(t, request)
    return header.verdict == ACCEPT and header.program >= 0 and body_status(t, request, header, True, True) == OK


@helper
def _judge_answer(t, connection, requests, stream, is_final):  # type: ignore[no-untyped-def]
    """Whether the broker's first bytes answer the first request, which stream `requests` holds."""
    request = search_buffer(t, requests)
    answer = search_buffer(t, stream)
    if left(answer) < RESPONSE_HEADER:
        return WAIT
    size = frame_size(answer)
    if size < RESPONSE_HEADER or size > LONGEST_FRAME + 4:
        return REJECT
    if response_correlation_id(answer) != request_correlation_id(request):
        return REJECT
    body = Cursor(answer.buf, answer.at + RESPONSE_HEADER, min(answer.end, answer.at + size))
    program = response_program(t.program_index, api_key(request), api_version(request), body)
    if size > left(answer) and not is_final:
        stream.retry = min(size, np.int64(SEARCH_LIMIT + 1))
        return WAIT
    is_aligned = segment_ends_at(t, stream, size)
    if (connection.is_second_look or not is_named(t, connection, request)) and not _decodes(t, request):
        if connection.is_second_look or is_final or not is_aligned:
            return REJECT
        stream.retry = SEARCH_LIMIT + 1  # the next request decides
        return WAIT
    if program < 0:
        is_followed = 4 <= i4(answer, size) <= SEARCH_LIMIT
        return ACCEPT if is_aligned or is_followed else REJECT
    status = body_status(t, answer, Header(np.int64(ACCEPT), program, body.at), False, True)
    return ACCEPT if status == OK or (status == INCOMPLETE and is_aligned) else REJECT


@helper
def _begins_with_request(t, connection, stream):  # type: ignore[no-untyped-def]
    """Whether the client's first bytes look like the beginning of a request with a known layout."""
    frame = search_buffer(t, stream)
    header = request_header(t, frame)
    if header.verdict == WAIT:
        return True
    return header.verdict == ACCEPT and header.program >= 0 and is_named(t, connection, frame)


@helper
def _judge_broker(t, connection, stream, client_stream, is_final):  # type: ignore[no-untyped-def]
    """Whether the broker's first bytes show that the connection is Kafka. Without a request, the stream is searched."""
    request = search_buffer(t, client_stream)
    at_start = client_stream.mode == STREAM_AT_START
    if at_start and left(request) >= REQUEST_FIXED and 0 < frame_size(request) <= left(request):
        verdict = np.int64(_judge_answer(t, connection, client_stream, stream, is_final))
        if verdict == WAIT and is_final:
            stream.mode = STREAM_RESYNC
        return verdict
    stream.mode = STREAM_RESYNC
    if at_start and client_stream.used > 0:
        if not _begins_with_request(t, connection, client_stream):
            return np.int64(REJECT)
        client_stream.mode = STREAM_RESYNC  # the capture has them in another order
    return np.int64(WAIT)


@helper
def begin_look(t, c, d, part):  # type: ignore[no-untyped-def]
    """Look again at a connection that seems foreign if a request seems to start with a chunk part. Return whether."""
    connection = t.connections[c]
    if connection.protocol != PROTOCOL_FOREIGN or d != np.int64(connection.client) or part.is_gap:
        return False
    header = request_header(t, part)
    if header.verdict == REJECT or header.program < 0 or not is_telling(t, connection, part):
        return False
    connection.protocol = PROTOCOL_UNKNOWN
    connection.is_second_look = 1
    note_expected(t, connection)
    for k in range(2):
        t.streams[2 * c + k].mode = STREAM_AT_START
        t.streams[2 * c + k].retry = 0
    return True


@helper
def _judge_pair(t, connection, is_client, stream, other, is_final):  # type: ignore[no-untyped-def]
    """The verdict of a second look: the broker's next bytes have to answer the request, unless one is expected."""
    if not is_client:
        request = search_buffer(t, other)
        is_whole = left(request) >= REQUEST_FIXED and frame_size(request) <= left(request)
        verdict = np.int64(_judge_answer(t, connection, other, stream, is_final)) if is_whole else np.int64(REJECT)
    else:
        verdict = np.int64(_judge_requests(t, connection, stream, is_final))
        if verdict == ACCEPT and not connection.is_expected:
            note_missed(t, connection, np.int64(connection.client))
            stream.retry = SEARCH_LIMIT + 1
            verdict = np.int64(WAIT)
    return np.int64(REJECT if is_final and verdict == WAIT else verdict)


@helper
def note_source(t, connection):  # type: ignore[no-untyped-def]
    """Note that the ends of a connection have to change before the next drain."""
    connection.is_source_new = 1
    t.state[0].new_sources += 1


@helper
def _needs_more_of_proxy(t, connection, stream, is_final):  # type: ignore[no-untyped-def]
    """Skip a PROXY header at the start of the client's stream, and note its source. Return whether more bytes are
    needed: of the header, or behind it."""
    if stream.proxy_bytes > 0 or not may_be_proxy_header(search_buffer(t, stream)):
        return False
    header = read_proxy_header(search_buffer(t, stream))
    if header.length == NO_HEADER:
        return False
    if header.length == MORE:
        return not is_final
    drop_front(t, stream, header.length)
    stream.skipped_bytes -= header.length
    stream.proxy_bytes += header.length
    if header.port != NO_SOURCE:
        connection.source_high = header.high
        connection.source_low = header.low
        connection.source_port = header.port
        note_source(t, connection)
    if stream.segments_first >= 0:
        t.segments[stream.segments_first].starts_chunk = 1  # for a search: a frame starts here
    return stream.used == 0 and not is_final


@helper
def detect_protocol(t, c, d, stream, is_final):  # type: ignore[no-untyped-def]
    """Set a connection's `protocol` by the first bytes after its SYN: the client's, and the broker's if these do not
    suffice. If they do not either, the streams are searched. `is_final`: no more bytes come that could help."""
    connection = t.connections[c]
    other = t.streams[2 * c + 1 - d]
    is_final = is_final or stream.used > SEARCH_LIMIT
    is_client = d == np.int64(connection.client)
    if (is_client and _needs_more_of_proxy(t, connection, stream, is_final)) or connection.shows_tls:
        return
    if connection.is_second_look:
        verdict = np.int64(_judge_pair(t, connection, is_client, stream, other, is_final))
    elif is_client:
        verdict = np.int64(_judge_requests(t, connection, stream, is_final))
        if verdict == WAIT and (is_final or other.mode == STREAM_RESYNC):
            stream.mode = STREAM_RESYNC
    else:
        verdict = np.int64(_judge_broker(t, connection, stream, other, is_final))
    if verdict == ACCEPT:
        connection.protocol = PROTOCOL_KAFKA
        if connection.is_second_look:
            connection.is_second_look = 0
            for k in range(2):
                seemed_foreign = t.streams[2 * c + k]
                seemed_foreign.foreign_bytes += seemed_foreign.skipped_bytes
                seemed_foreign.skipped_bytes = 0
    elif verdict == REJECT:
        set_not_kafka(t, c, PROTOCOL_FOREIGN)


@helper
def set_not_kafka(t, c, protocol):  # type: ignore[no-untyped-def]
    """Note that a connection carries something else. Its bytes are not searched any more."""
    t.connections[c].protocol = protocol
    for d in range(2):
        skip_buffer(t, t.streams[2 * c + d])
