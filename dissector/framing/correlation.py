"""Frames to requests and responses, matched by order and by correlation_id.

A response that fits a later request passes those before it. Produce with acks=0 is not answered by most brokers, and if
bytes of the stream were missed since, the response was lost: these are finished without an answer. Others still wait,
as some brokers answer out of order.

Old SASL (after SaslHandshake v0) sends bare tokens. A request frame without a header waits as a token, and its answer
has no header either.
"""

from __future__ import annotations

from collections import namedtuple

import numpy as np

from kafkatap.kernels.decorator import helper, inlined
from kafkatap.kernels.hashing import add_to_key, finish_key, start_key
from kafkatap.kernels.table import take_row

from ..dtypes import ANSWERED, NO_INT16, NO_INT32, NO_TIME, NOT_DECODED, OK, ORPHAN_RESPONSE, UNANSWERED
from ..programs.machine import NO_ROWS, run_program
from ..strings import intern
from .advertised import note_advertised
from .connections import DOUBT_NONE
from .cursor import Cursor, i2, left, skip
from .headers import (
    API_VERSIONS,
    PRODUCE,
    REQUEST_FIXED,
    REQUEST_HEADER,
    RESPONSE_HEADER,
    SASL_HANDSHAKE,
    acks_of,
    api_key,
    api_version,
    client_id_length,
    has_client_id,
    is_same_client,
    request_correlation_id,
    response_correlation_id,
)
from .known_brokers import note_broker
from .program_index import REQUEST, program_of, response_program, status_without_program
from .samples import choose_sample, note_sample
from .silences import silence_of
from .tables import PASSED
from .waiting import (
    DEPTH,
    NO_REPLY_LIMIT,
    add_waiting,
    find_waiting,
    finish_exchange,
    finish_without_answer,
    give_up,
    next_token,
    remove_first,
    remove_passing,
)

#: How many waiting requests with one correlation_id the body of a response is compared with.
MOST_DECODED = 8

#: A frame: a cursor at its size field, whose end is that of the captured bytes. `limit` is the end that the size
#: field declares; `source` says which array `buf` is; times and packets are those of its first and last byte.
#: `seq` is that of its first byte, as of `frames.ChunkPart`.
Frame = namedtuple("Frame", "buf at end limit source first last packet_first packet_last seq")


@helper
def _clear_exchange(x):  # type: ignore[no-untyped-def]
    """Set the fields of an exchange to their values before any frame."""
    x.request_first = NO_TIME
    x.request_last = NO_TIME
    x.response_first = NO_TIME
    x.response_last = NO_TIME
    x.request_packet_first = 0
    x.request_packet_last = 0
    x.response_packet_first = 0
    x.response_packet_last = 0
    x.request_bytes = -1
    x.response_bytes = -1
    x.request_cut_bytes = 0
    x.response_cut_bytes = 0
    x.broker_ns = 0
    x.waiting_ns = 0
    x.round_trip_ns = 0
    x.hol_wait_ns = 0
    x.hol_throttle_wait_ns = 0
    x.hol_poll_wait_ns = 0
    x.hol_unknown_wait_ns = 0
    x.hol_loss_wait_ns = 0
    x.hol_round_trip_ns = 0
    x.throttle_wait_ns = 0
    x.waited_ns = -1
    x.loss_ns = 0
    x.receiver_ns = 0
    x.sender_ns = 0
    x.nagle_ns = 0
    x.path_ns = 0
    x.unexplained_ns = 0
    x.total_ns = 0
    x.client_id = -1
    x.client_software = -1
    x.client_software_version = -1
    x.request_problem = -1
    x.response_problem = -1
    x.request_problem_at = NO_INT32
    x.response_problem_at = NO_INT32
    x.correlation_id = 0
    x.throttle_time_ms = NO_INT32
    x.max_wait_ms = NO_INT32
    x.min_bytes = NO_INT32
    x.api_key = -1
    x.api_version = -1
    x.acks = NO_INT16
    x.outcome = UNANSWERED
    x.closed_by = -1
    x.request_status = NOT_DECODED
    x.response_status = NOT_DECODED
    x.long_poll = 0
    x.behind_unread = 0
    x.tls_version = -1


@helper
def _exchange_key(connection, frame, is_response, correlation_id):  # type: ignore[no-untyped-def]
    """The key of the exchange that begins with a frame: 63 bits, the same in every run and at every capture point.

    It needs nothing that came before the frame, and no time of capture: only the ends of the connection, the sequence
    number of the frame's first byte, its direction, correlation_id, and the upper half of its TCP time stamp. The last
    two distinguish connections that have the same ends and the same numbers one after the other.
    """
    key = add_to_key(start_key(connection.ends), (frame.seq << 1) | is_response)
    return finish_key(add_to_key(key, correlation_id))


@helper
def _new_exchange(t, c, frame, is_response, correlation_id):  # type: ignore[no-untyped-def]
    """The slot of a new exchange of connection `c`, which begins with a frame. `is_response`: 1 or 0. `correlation_id`:
    of the frame, 0 for a token, whose bytes may be secret."""
    slot = take_row(t.free_exchanges)
    connection = t.connections[c]
    state = t.state[0]
    x = t.exchanges[slot]
    _clear_exchange(x)
    x.exchange = state.next_exchange
    state.next_exchange += 1
    x.key = _exchange_key(connection, frame, is_response, correlation_id)
    x.connection = connection.key
    x.tls_version = connection.tls_version
    link = t.links[slot]
    link.connection = c
    link.next = -1
    link.name = -1
    link.partitions = -1
    link.topics = -1
    link.wait_ms = 0
    link.waited_until = 0
    link.sample = 0
    link.may_come = 0
    link.no_reply = 0
    link.token = 0
    link.request_lost = 0
    link.answers_at_once = -1
    link.reached = NO_TIME
    link.request_whole = NO_TIME
    link.response_whole = NO_TIME
    link.late_ns = 0
    link.request_receiver_ns = 0
    link.request_end = 0
    link.round_trip_ns = -1
    link.provisional = 0
    link.passed = 0
    link.losses = t.streams[2 * c + 1 - np.int64(connection.client)].losses if connection.client >= 0 else 0
    return slot


@inlined
def _add_job(t, frame, body_at, program, tag):  # type: ignore[no-untyped-def]
    """Have the next drain decode the body of a frame. `tag`: slot * 2, + 1 for a response."""
    state = t.state[0]
    job = t.jobs[state.jobs]
    state.jobs += 1
    job.at = body_at
    job.end = frame.end
    job.limit = frame.limit
    job.tape_first = 0
    job.error_at = -1
    job.frame = tag
    job.source = frame.source
    job.program = program
    job.tape_count = 0
    job.error_field = -1
    job.nulls = 0
    job.status = NOT_DECODED


@helper
def _is_token(t, connection, frame):  # type: ignore[no-untyped-def]
    """Whether a request frame is a bare SASL token. The first request header ends the exchange of tokens."""
    if connection.raw_sasl == 0:
        return False
    known = program_of(t.program_index, REQUEST, api_key(frame), api_version(frame)) >= 0
    if known and left(frame) >= REQUEST_HEADER and client_id_length(frame) >= -1:
        connection.raw_sasl = 0
        return False
    return True


@helper
def _note_request(x, frame):  # type: ignore[no-untyped-def]
    """Note the times, packets and size of a request."""
    x.request_first = frame.first
    x.request_last = frame.last
    x.request_packet_first = frame.packet_first
    x.request_packet_last = frame.packet_last
    x.request_bytes = frame.limit - frame.at - 4


@helper
def _note_response(x, frame):  # type: ignore[no-untyped-def]
    """Note the times, packets and size of a response."""
    x.response_first = frame.first
    x.response_last = frame.last
    x.response_packet_first = frame.packet_first
    x.response_packet_last = frame.packet_last
    x.response_bytes = frame.limit - frame.at - 4


@helper
def _note_stalls(t, x, stream):  # type: ignore[no-untyped-def]
    """Add the stalls within a frame, the current one of a stream, to its exchange."""
    silence = silence_of(t, stream)
    x.loss_ns += silence.loss_ns
    x.receiver_ns += silence.receiver_ns
    x.sender_ns += silence.sender_ns
    x.nagle_ns += silence.nagle_ns
    x.unexplained_ns += silence.unknown_ns


@inlined
def _read_client_id(t, connection, x, frame):  # type: ignore[no-untyped-def]
    """Note the client_id of a request. Return where its body starts, or -1 if the client_id goes beyond its end."""
    is_whole = frame.end == frame.limit
    if is_whole and is_same_client(t, connection, frame):
        x.client_id = connection.client_id
        return frame.at + REQUEST_HEADER + np.int64(t.strings.entries[connection.client_id].length)
    length = client_id_length(frame)
    if left(frame) < REQUEST_HEADER or (length < -1 and not is_whole):
        return np.int64(-1)
    x.client_id = intern(t.strings, frame.buf, frame.at + REQUEST_HEADER, length)
    connection.client_id = x.client_id
    return frame.at + REQUEST_HEADER + max(np.int64(0), length)


@inlined
def read_request(t, c, frame, cut):  # type: ignore[no-untyped-def]
    """Read the header of a request frame, and have it wait for its response. `cut`: as of `frames.ChunkPart`."""
    connection = t.connections[c]
    counts = t.counts[0]
    counts.requests += 1
    connection.requests += 1
    is_token = _is_token(t, connection, frame)
    if left(frame) < REQUEST_FIXED and not is_token:
        counts.requests_headerless += 1
        return
    slot = _new_exchange(t, c, frame, np.int64(0), np.int64(0) if is_token else request_correlation_id(frame))
    add_waiting(t, connection, slot)
    x = t.exchanges[slot]
    _note_request(x, frame)
    x.request_cut_bytes = cut
    requests = t.streams[2 * c + np.int64(connection.client)]
    _note_stalls(t, x, requests)
    if requests.last > frame.last:
        t.links[slot].request_whole = requests.last
    t.links[slot].request_receiver_ns = silence_of(t, requests).receiver_ns
    t.links[slot].request_end = (frame.seq + frame.limit - frame.at) & 0xFFFFFFFF
    if is_token:
        t.links[slot].token = 1
        x.client_id = connection.client_id
        counts.request_tokens += 1
        stream = t.streams[2 * c + np.int64(connection.client)]
        stream.token_bytes += stream.seen
        _add_job(t, frame, frame.at + 4, np.int64(-1), slot * 2)
        return
    key = api_key(frame)
    version = api_version(frame)
    x.api_key = key
    x.api_version = version
    x.correlation_id = request_correlation_id(frame)
    choose_sample(t, c, slot, frame)
    program = program_of(t.program_index, REQUEST, key, version)
    body = frame.at + REQUEST_FIXED
    if has_client_id(key, version):
        body = _read_client_id(t, connection, x, frame)
        if body < 0:
            program = np.int64(-1)
            body = frame.end
    _add_job(t, frame, body, program, slot * 2)
    if program < 0:
        x.request_status = status_without_program(t, key, frame)
    if key == PRODUCE and program >= 0:
        acks = acks_of(Cursor(frame.buf, body, frame.end), version)
        x.acks = acks
        if acks == 0 and cut == 0:
            t.links[slot].no_reply = 1
    # The requests of a producer with acks=0 would wait for ever.
    while connection.waiting_count > NO_REPLY_LIMIT and t.links[connection.waiting_first].no_reply:
        give_up(t, c, np.int64(t.links[connection.waiting_first].next))


@helper
def _decodes_as_answer(t, frame, slot):  # type: ignore[no-untyped-def]
    """Whether the body of a whole response decodes to its end as an answer to the request in `slot`."""
    x = t.exchanges[slot]
    body = skip(frame, RESPONSE_HEADER)
    program = response_program(t.program_index, np.int64(x.api_key), np.int64(x.api_version), body)
    if program < 0:
        return True
    status = run_program(frame.buf, body.at, frame.end, frame.limit, t.code, program, t.tape, NO_ROWS, 0, t.scratch)
    return status == OK


@helper
def _answered_by_body(t, c, slot, frame):  # type: ignore[no-untyped-def]
    """Which waiting request a response answers whose correlation_id that in `slot` has, or -1.

    Some clients use a correlation_id for several requests. If an answer may be lost, the body shows which one it is.
    """
    losses = t.streams[2 * c + 1 - np.int64(t.connections[c].client)].losses
    if t.links[slot].losses == losses or frame.end < frame.limit:
        return slot
    correlation_id = t.exchanges[slot].correlation_id
    decoded = 0
    while slot >= 0 and decoded < MOST_DECODED:
        if t.links[slot].token == 0 and t.exchanges[slot].correlation_id == correlation_id:
            if _decodes_as_answer(t, frame, slot):
                return slot
            decoded += 1
        slot = np.int64(t.links[slot].next)
    return np.int64(-1)


@helper
def _try_head(t, c, connection, x, frame):  # type: ignore[no-untyped-def]
    """Note the packet of a response as the head of its connection if no frame is in doubt.

    It is final if no request waits that came before the response: how long that one waits, and why, depends on what
    was before. If there is no such answer, the first one counts.
    """
    if t.streams[2 * c].doubt != DOUBT_NONE or t.streams[2 * c + 1].doubt != DOUBT_NONE:
        return
    first = np.int64(connection.waiting_first)
    is_final = first < 0 or t.exchanges[first].request_last >= x.response_first
    if is_final or connection.head == 0:
        connection.head = frame.packet_last
        connection.head_is_sure = 1 if is_final else 0
    connection.head_tries = 0 if is_final else connection.head_tries - 1


@inlined
def read_response(t, c, frame, cut):  # type: ignore[no-untyped-def]
    """Match a response frame with the request that it answers, and finish their exchange. `cut`: as of
    `frames.ChunkPart`; the request is not answered then."""
    connection = t.connections[c]
    counts = t.counts[0]
    counts.responses += 1
    # The answer to a token has no header. If a token or its answer was lost, a waiting correlation_id goes first.
    token = next_token(t, connection)
    has_header = left(frame) >= RESPONSE_HEADER
    if not has_header and token < 0:
        counts.responses_headerless += 1
        return
    slot = np.int64(-1)
    if has_header:
        slot = find_waiting(t, connection, response_correlation_id(frame), DEPTH)
        if slot >= 0:
            slot = _answered_by_body(t, c, slot, frame)
    is_token = slot < 0 and token >= 0
    if is_token:
        slot = token
    is_orphan = slot < 0
    if is_orphan:
        slot = _new_exchange(t, c, frame, np.int64(1), response_correlation_id(frame))
    else:
        if slot == np.int64(connection.waiting_first):
            remove_first(t, connection)
        else:
            remove_passing(t, c, slot)
        if t.links[slot].passed == PASSED:
            counts.out_of_order_responses += 1
    x = t.exchanges[slot]
    x.outcome = ANSWERED
    if cut > 0 and not is_orphan:
        finish_without_answer(t, c, slot)
    else:
        finish_exchange(t, slot)
    _note_response(x, frame)
    x.response_cut_bytes = cut
    responses = t.streams[2 * c + 1 - np.int64(connection.client)]
    _note_stalls(t, x, responses)
    if responses.last > frame.last:
        t.links[slot].response_whole = responses.last
    t.links[slot].late_ns = silence_of(t, responses).late_ns
    if is_token:
        counts.response_tokens += 1
        stream = t.streams[2 * c + 1 - np.int64(connection.client)]
        stream.token_bytes += stream.seen
        _add_job(t, frame, frame.at + 4, np.int64(-1), slot * 2 + 1)
        return
    if is_orphan:
        counts.orphan_responses += 1
        t.links[slot].request_lost = 1 if t.streams[2 * c + np.int64(connection.client)].losses > 0 else 0
        x.correlation_id = response_correlation_id(frame)
        x.outcome = ORPHAN_RESPONSE
        _add_job(t, frame, frame.at + RESPONSE_HEADER, np.int64(-1), slot * 2 + 1)
        return
    if cut > 0:
        counts.cut_responses += 1
    else:
        counts.answered += 1
        if t.links[slot].sample:
            note_sample(t, c, slot, frame)
        if connection.shows_broker == 0:
            connection.shows_broker = 1
            note_broker(t, connection)
    if connection.head_tries > 0 and cut == 0 and frame.last >= t.state[0].heads_from:
        _try_head(t, c, connection, x, frame)
    body = skip(frame, RESPONSE_HEADER)
    program = response_program(t.program_index, np.int64(x.api_key), np.int64(x.api_version), body)
    _add_job(t, frame, body.at, program, slot * 2 + 1)
    if program < 0:
        x.response_status = status_without_program(t, np.int64(x.api_key), frame)
    if x.api_key == API_VERSIONS and frame.end == frame.limit:
        note_advertised(t, connection, np.int64(x.api_version), body)
    if x.api_key == SASL_HANDSHAKE and x.api_version == 0 and i2(body, 0) == 0:
        connection.raw_sasl = 1
