"""A connection that ends after one request, without an answer: the broker does not know the version, or hangs, or the
client went away.

Nothing follows that would confirm the request. But it is all that its connection carried, to the byte. Kafka has its
API, its version is known or one of the next, its body decodes if it can, and its client_id is null or text. An empty
client_id is no evidence, as zeros read as one.

A connection that nothing closed is Kafka only at a known broker (`known_brokers`). There the client_id may be empty,
and a client with a name may use any API.
"""

from __future__ import annotations

import numpy as np

from kafkatap.kernels.decorator import helper

from ..dtypes import INCOMPLETE, OK
from .connections import PROTOCOL_KAFKA, PROTOCOL_UNKNOWN, STREAM_AT_START, STREAM_RESYNC
from .cursor import Cursor, i2, left
from .evidence import ACCEPT, body_status, request_header
from .headers import PRODUCE, REQUEST_FIXED, REQUEST_HEADER, api_key, api_version, frame_size, has_client_id, is_named
from .known_brokers import is_at_broker, note_missed
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
def _is_lone_request(t, c, stream, other, is_expected):  # type: ignore[no-untyped-def]
    """Whether all bytes of a stream are one request, and the other one has none. `is_expected`: it goes to a broker."""
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
    is_client_known = connection.client >= 0 or is_expected
    if not is_client_known and key == PRODUCE:
        return False
    length = i2(frame, REQUEST_FIXED)
    is_nameless = (is_client_known and length == -1) or (is_expected and length == 0)
    header = request_header(t, frame)
    if header.verdict != ACCEPT or not (is_nameless or is_named(t, connection, frame)):
        return False
    if header.program >= 0:
        return body_status(t, frame, header, True, True) == OK
    return _is_newer_version(t, key, api_version(frame)) or (is_expected and length > 0)


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
def accept_lone_request(t, c, is_closed):  # type: ignore[no-untyped-def]
    """Before a connection ends: if one request is all that it carried, the connection is Kafka, and the request can be
    read. If nothing closed it, its broker has to be known."""
    connection = t.connections[c]
    if connection.protocol != PROTOCOL_UNKNOWN:
        return
    for d in range(2):
        stream = t.streams[2 * c + d]
        other = t.streams[2 * c + 1 - d]
        client = np.int64(d)
        is_client = connection.client == client
        if is_client or connection.client < 0:
            is_expected = is_client and connection.is_expected != 0
            if connection.is_expected or not is_closed:
                is_expected = is_expected or is_at_broker(t, connection, client)
            if (is_closed or is_expected) and _is_lone_request(t, c, stream, other, is_expected):
                connection.client = client
                connection.protocol = PROTOCOL_KAFKA
                stream.mode = STREAM_AT_START
                return
            if not is_expected and _is_lone_request(t, c, stream, other, True):
                note_missed(t, connection, client)
