"""A connection that was closed after one request, without an answer: the broker does not know the version, or the
client went away.

Nothing follows that would confirm the request. But it is all that its connection carried, to the byte. Kafka has its
API, its version is known or one of the next, its body decodes if it can, and its client_id is null or text. An empty
client_id is no evidence, as zeros read as one.
"""

from __future__ import annotations

import numpy as np

from kafkatap.kernels.decorator import helper

from ..dtypes import INCOMPLETE, OK
from .connections import PROTOCOL_KAFKA, PROTOCOL_UNKNOWN, STREAM_AT_START, STREAM_RESYNC
from .cursor import Cursor, i2, left
from .evidence import ACCEPT, body_status, request_header
from .headers import (
    PRODUCE,
    REQUEST_FIXED,
    REQUEST_HEADER,
    api_key,
    api_version,
    frame_size,
    has_client_id,
    is_named,
)
from .program_index import REQUEST, program_of
from .resync import ENOUGH, search_buffer

#: Versions beyond the latest known one that a newer release may have. Each adds one or two.
NEWER_VERSIONS = 4


@helper
def _is_newer_version(t, key, version):  # type: ignore[no-untyped-def]
    """Whether a version is one of the next that Kafka's API may get."""
    for step in range(1, NEWER_VERSIONS + 1):
        if version >= step and program_of(t.program_index, REQUEST, key, version - step) >= 0:
            return True
    return False


@helper
def _is_lone_request(t, c, stream, other):  # type: ignore[no-untyped-def]
    """Whether all bytes of a stream are one request, and the other stream has none."""
    if stream.mode != STREAM_AT_START and stream.mode != STREAM_RESYNC:
        return False
    if other.used > 0 or other.skipped_bytes > 0 or other.losses > 0 or stream.skipped_bytes > 0 or stream.losses > 0:
        return False
    connection = t.connections[c]
    frame = search_buffer(t, stream)
    if left(frame) < REQUEST_HEADER or frame_size(frame) != left(frame):
        return False
    key = api_key(frame)
    if not has_client_id(key, api_version(frame)):
        return False
    # Until the client's direction is known, a response may look like a request, most of all a Produce request.
    is_client_known = connection.client >= 0
    if not is_client_known and key == PRODUCE:
        return False
    is_null = is_client_known and i2(frame, REQUEST_FIXED) == -1
    header = request_header(t, frame)
    if header.verdict != ACCEPT or not (is_null or is_named(t, connection, frame)):
        return False
    if header.program >= 0:
        return body_status(t, frame, header, True, True) == OK
    return _is_newer_version(t, key, api_version(frame))


@helper
def is_lone_start(t, c, d):  # type: ignore[no-untyped-def]
    """Whether all bytes of a connection are the start of one request, which its end cuts: it names its client, and
    ENOUGH bytes of its body decode."""
    stream, other = t.streams[2 * c + d], t.streams[2 * c + 1 - d]
    if other.used > 0 or other.skipped_bytes > 0 or other.losses > 0 or stream.skipped_bytes > 0 or stream.losses > 0:
        return False
    frame = Cursor(t.pool, stream.buffer, stream.buffer + stream.used)
    header = request_header(t, frame)
    if header.verdict != ACCEPT or header.program < 0 or not is_named(t, t.connections[c], frame):
        return False
    return frame.end - header.body >= ENOUGH and body_status(t, frame, header, True, True) == INCOMPLETE


@helper
def accept_lone_request(t, c):  # type: ignore[no-untyped-def]
    """Before a closed connection ends: if one request is all that it carried, the connection is Kafka, and the request
    can be read."""
    connection = t.connections[c]
    if connection.protocol != PROTOCOL_UNKNOWN:
        return
    for d in range(2):
        stream = t.streams[2 * c + d]
        is_client = connection.client < 0 or np.int64(connection.client) == d
        if is_client and _is_lone_request(t, c, stream, t.streams[2 * c + 1 - d]):
            connection.client = d
            connection.protocol = PROTOCOL_KAFKA
            stream.mode = STREAM_AT_START
            return
