"""How far the first bytes of a frame can be believed: a header that fits, and a body that decodes to its end.

A size and a few small numbers are no proof: many protocols begin their messages like that. The body decides, or the
other end's answer. A client_id may be any bytes; that it is text counts only if the body cannot be decoded.
"""

from __future__ import annotations

from collections import namedtuple

import numpy as np

from kafkatap.kernels.decorator import helper

from ..dtypes import MALFORMED, NO_INT16, OK, TRAILING_BYTES
from ..programs.machine import ERROR_AT, NO_ROWS, run_program
from .cursor import Cursor, i2, left, u1
from .headers import (
    API_VERSIONS,
    LONGEST_FRAME,
    METADATA,
    PRODUCE,
    REQUEST_FIXED,
    REQUEST_HEADER,
    RESPONSE_HEADER,
    acks_of,
    api_key,
    api_version,
    frame_size,
    has_client_id,
    has_records,
    is_named,
    is_plausible_api,
    response_correlation_id,
)
from .program_index import REQUEST, program_of, response_program
from .waiting import find_waiting

#: How many waiting requests are compared with a searched response.
SEARCH_DEPTH = 64
#: The body of a Produce request with one topic is no shorter.
SHORTEST_PRODUCE = 18
#: So many bytes that are not zero, behind the header's fixed part, show what a request without a name is.
TELLING = 8
#: What evidence says: it is no frame; it is one; the bytes that are there do not suffice.
REJECT, ACCEPT, WAIT = range(3)

#: What the header of a candidate says: a verdict, the program that decodes its body (-1 for none), where that starts.
Header = namedtuple("Header", "verdict program body")


@helper
def _header(verdict, program, body):  # type: ignore[no-untyped-def]
    return Header(np.int64(verdict), np.int64(program), np.int64(body))


@helper
def request_header(t, frame):  # type: ignore[no-untyped-def]
    """The header of a request. With WAIT, `program` and `body` are valid if REQUEST_HEADER bytes are there."""
    if left(frame) < REQUEST_FIXED:
        return _header(WAIT, -1, frame.at)
    size = frame_size(frame)
    key = api_key(frame)
    version = api_version(frame)
    program = program_of(t.program_index, REQUEST, key, version)
    is_plausible = program >= 0 or is_plausible_api(key, version)
    if size < REQUEST_FIXED or size > LONGEST_FRAME + 4 or not is_plausible:
        return _header(REJECT, -1, frame.at)
    body = frame.at + REQUEST_FIXED
    if not has_client_id(key, version):
        return _header(ACCEPT, program, body)
    if left(frame) < REQUEST_HEADER:
        return _header(WAIT, program, body)
    length = i2(frame, REQUEST_FIXED)
    if length < -1 or REQUEST_HEADER + max(np.int64(0), length) > size:
        return _header(REJECT, program, body)
    body = frame.at + REQUEST_HEADER + max(np.int64(0), length)
    return _header(ACCEPT if body <= frame.end else WAIT, program, body)


@helper
def response_header(t, c, frame):  # type: ignore[no-untyped-def]
    """The header of a response: a request with its correlation_id has to wait."""
    if left(frame) < RESPONSE_HEADER:
        return _header(WAIT, -1, frame.at)
    size = frame_size(frame)
    if size < RESPONSE_HEADER or size > LONGEST_FRAME + 4:
        return _header(REJECT, -1, frame.at)
    slot = find_waiting(t, t.connections[c], response_correlation_id(frame), SEARCH_DEPTH)
    if slot < 0:
        return _header(REJECT, -1, frame.at)
    x = t.exchanges[slot]
    body = Cursor(frame.buf, frame.at + RESPONSE_HEADER, min(frame.end, frame.at + size))
    return _header(
        ACCEPT, response_program(t.program_index, np.int64(x.api_key), np.int64(x.api_version), body), body.at
    )


@helper
def _is_librdkafka_tail(frame, count):  # type: ignore[no-untyped-def]
    """Whether librdkafka writes so many trailing bytes: three in Metadata for all topics, four in ApiVersions v0."""
    key = api_key(frame)
    version = api_version(frame)
    return (key == METADATA and version >= 9 and count == 3) or (key == API_VERSIONS and version == 0 and count == 4)


@helper
def body_status(t, frame, header, is_request, starts_chunk):  # type: ignore[no-untyped-def]
    """The status of a candidate's body.

    Two more things count for requests. Produce, which zeros read as, has a topic and one of three values of `acks`.
    With other acks, which brokers may refuse, its topic and records have to fit. librdkafka's trailing bytes are
    believed where a chunk starts.
    """
    frame_end = frame.at + frame_size(frame)
    captured_end = min(frame.end, frame_end)
    status = run_program(
        frame.buf, header.body, captured_end, frame_end, t.code, header.program, t.tape, NO_ROWS, 0, t.scratch
    )
    if is_request and api_key(frame) == PRODUCE:
        body = Cursor(frame.buf, header.body, captured_end)
        version = api_version(frame)
        acks = acks_of(body, version)
        is_odd = acks != NO_INT16 and not -1 <= acks <= 1
        if frame_end - header.body < SHORTEST_PRODUCE or (is_odd and not has_records(body, version)):
            return np.int64(MALFORMED)
    elif is_request and starts_chunk and status == TRAILING_BYTES:
        is_known = _is_librdkafka_tail(frame, frame_end - t.scratch[ERROR_AT])
        return np.int64(OK if is_known else status)
    return np.int64(status)


@helper
def is_telling(t, connection, frame):  # type: ignore[no-untyped-def]
    """Whether a request whose body decodes is believed alone: it names its client, or not all of it is zeros and small
    numbers, which read as empty names and lists."""
    if is_named(t, connection, frame):
        return True
    telling = 0
    for k in range(REQUEST_HEADER, min(frame_size(frame), left(frame))):
        if u1(frame, k) != 0:
            telling += 1
            if telling == TELLING:
                return True
    return False
