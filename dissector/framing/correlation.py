"""Requests and responses of one connection, paired in order and checked by correlation_id.

A broker answers the requests of a connection in order, so the queue's head is the usual match. A response that fits a
later entry passes those before it: Produce with acks=0 is not answered by most brokers; others are counted as
unanswered, or as lost when bytes of the response stream were missed since. Old SASL (after SaslHandshake v0) sends bare
tokens: a request whose frame has no header queues as a token, and its answer has none either.
"""

from __future__ import annotations

import numpy as np

from kafkatap.kernels.decorator import helper, inlined
from kafkatap.kernels.readers import be16, be32, same_bytes, signed16, signed32

from ..dtypes import (
    ANSWERED,
    INCOMPLETE,
    NO_INT16,
    NO_INT32,
    NO_REPLY_EXPECTED,
    NO_TIME,
    NOT_DECODED,
    ORPHAN_RESPONSE,
    RESPONSE_LOST,
    TOO_LARGE,
    UNANSWERED,
    UNKNOWN_API,
    UNKNOWN_VERSION,
)
from ..programs.program import KEYS, VERSIONS
from .buffers import intern
from .connections import (
    ANSWERED_COUNT,
    DONE,
    FREE_EXCHANGES,
    JOBS,
    LOST_COUNT,
    MAX_FRAME,
    NEXT_EXCHANGE,
    NO_REPLY_COUNT,
    ORPHANS,
    REQUEST_TOKENS,
    REQUESTS,
    REQUESTS_HEADERLESS,
    RESPONSE_TOKENS,
    RESPONSES,
    RESPONSES_HEADERLESS,
    UNANSWERED_COUNT,
)

PRODUCE, CONTROLLED_SHUTDOWN, SASL_HANDSHAKE, API_VERSIONS = 0, 7, 17, 18
UNSUPPORTED_VERSION = 35
#: A flag of the programs' index: only the head of these bodies is read.
ONLY_HEAD = 1 << 30
#: Requests with acks=0 that are kept at most, in case that a broker answers them all the same.
SILENT_LIMIT = 1_024
#: How deep in the queue a response's correlation_id is looked for.
DEPTH = 1_024


@helper
def _entry(index, direction, key, version):  # type: ignore[no-untyped-def]
    """What the programs' index says of a body, -1 where it has nothing."""
    if key < 0 or key >= KEYS or version < 0 or version >= VERSIONS:
        return np.int64(-1)
    return np.int64(index[(direction * KEYS + key) * VERSIONS + version])


@helper
def program_of(index, direction, key, version):  # type: ignore[no-untyped-def]
    """The program for a body, or -1."""
    entry = _entry(index, direction, key, version)
    return entry & ~ONLY_HEAD if entry >= 0 else entry


@helper
def only_head(index, direction, key, version):  # type: ignore[no-untyped-def]
    """Whether no more is read of a body than what lies in the first HEAD_KEPT bytes of its frame."""
    entry = _entry(index, direction, key, version)
    return entry >= 0 and entry & ONLY_HEAD != 0


@helper
def _status_unread(t, key, captured, size):  # type: ignore[no-untyped-def]
    """The status of a body without a program."""
    if captured < size:
        return np.int64(TOO_LARGE if size > t.state[MAX_FRAME] else INCOMPLETE)
    for program in range(2 * VERSIONS):
        if program_of(t.index, program // VERSIONS, key, np.int64(program % VERSIONS)) >= 0:
            return np.int64(UNKNOWN_VERSION)
    return np.int64(UNKNOWN_API)


@helper
def client_id_length(buf, at, end):  # type: ignore[no-untyped-def]
    """Length of the client_id of a request header whose api_key is at `at` (-1 null), or -2 where it goes beyond `end`,
    the frame's or what is captured of it. Its bytes may be anything: clients choose them."""
    if at + 10 > end:
        return np.int64(-2)
    length = signed16(be16(buf, at + 8))
    return length if length >= -1 and at + 10 + length <= end else np.int64(-2)


@helper
def _new_exchange(t, c):  # type: ignore[no-untyped-def]
    t.state[FREE_EXCHANGES] -= 1
    slot = np.int64(t.free[t.state[FREE_EXCHANGES]])
    dialog = t.dialogs[c]
    x = t.exchanges[slot]
    x.exchange = t.state[NEXT_EXCHANGE]
    t.state[NEXT_EXCHANGE] += 1
    x.connection = dialog.serial
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
    x.broker_ns = 0
    x.hol_wait_ns = 0
    x.hol_throttle_wait_ns = 0
    x.hol_poll_wait_ns = 0
    x.throttle_wait_ns = 0
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
    x.request_status = NOT_DECODED
    x.response_status = NOT_DECODED
    x.long_poll = 0
    link = t.links[slot]
    link.dialog = c
    link.next = -1
    link.name = -1
    link.parts = -1
    link.no_reply = 0
    link.token = 0
    link.offered = -1
    link.provisional = 0
    link.losses = t.streams[2 * c + 1 - np.int64(dialog.client)].losses if dialog.client >= 0 else 0
    return slot


@inlined
def _queue(t, dialog, slot):  # type: ignore[no-untyped-def]
    if dialog.pending_last >= 0:
        t.links[dialog.pending_last].next = slot
    else:
        dialog.pending_first = slot
    dialog.pending_last = slot
    dialog.pending_count += 1


@helper
def _finish(t, slot):  # type: ignore[no-untyped-def]
    t.done[t.state[DONE]] = slot
    t.state[DONE] += 1


@inlined
def _add_job(t, source, at, end, limit, program, frame):  # type: ignore[no-untyped-def]
    job = t.jobs[t.state[JOBS]]
    t.state[JOBS] += 1
    job.at = at
    job.end = end
    job.limit = limit
    job.tape_first = 0
    job.error_at = -1
    job.frame = frame
    job.source = source
    job.program = program
    job.tape_count = 0
    job.error_field = -1
    job.nulls = 0
    job.status = NOT_DECODED


@helper
def _unqueue(t, dialog):  # type: ignore[no-untyped-def]
    """Take the first waiting request from its queue; return it."""
    slot = np.int64(dialog.pending_first)
    dialog.pending_first = t.links[slot].next
    if dialog.pending_first < 0:
        dialog.pending_last = -1
    dialog.pending_count -= 1
    return slot


@helper
def outcome_without_answer(link, dialog, streams, c):  # type: ignore[no-untyped-def]
    """The outcome of a waiting request of connection `c` that nothing will answer."""
    if link.no_reply:
        return np.int64(NO_REPLY_EXPECTED)
    if streams[2 * c + 1 - np.int64(dialog.client)].losses != link.losses:
        return np.int64(RESPONSE_LOST)
    return np.int64(UNANSWERED)


@helper
def give_up(t, c, until):  # type: ignore[no-untyped-def]
    """Take waiting requests from a connection's queue up to `until` (-1: all): nothing will answer them."""
    dialog = t.dialogs[c]
    while np.int64(dialog.pending_first) != until:
        slot = _unqueue(t, dialog)
        link = t.links[slot]
        if link.token == 0:
            outcome = outcome_without_answer(link, dialog, t.streams, c)
            t.exchanges[slot].outcome = outcome
            if outcome == NO_REPLY_EXPECTED:
                t.state[NO_REPLY_COUNT] += 1
            elif outcome == RESPONSE_LOST:
                t.state[LOST_COUNT] += 1
            else:
                t.state[UNANSWERED_COUNT] += 1
        _finish(t, slot)


@helper
def acks_of(buf, at, end, version):  # type: ignore[no-untyped-def]
    """acks of a Produce request's body at `at` (with its header's tag section in flexible versions), or NO_INT16."""
    if version >= 9:
        if at + 2 > end or buf[at] != 0:
            return np.int64(NO_INT16)  # a header with tags: the machine will tell
        at += 1
        length = np.int64(buf[at])
        at += 1
        if length >= 128:
            if at >= end:
                return np.int64(NO_INT16)
            length = (length & 127) | (np.int64(buf[at]) << 7)
            at += 1
        at += max(np.int64(0), length - 1)
    elif version >= 3:
        if at + 2 > end:
            return np.int64(NO_INT16)
        length = signed16(be16(buf, at))
        at += 2 + max(np.int64(0), length)
    if at + 2 > end:
        return np.int64(NO_INT16)
    return signed16(be16(buf, at))


@helper
def _note_request(x, size, first, last, packet_first, packet_last):  # type: ignore[no-untyped-def]
    x.request_first = first
    x.request_last = last
    x.request_packet_first = packet_first
    x.request_packet_last = packet_last
    x.request_bytes = size - 4


@helper
def _same_client(t, dialog, buf, at, end):  # type: ignore[no-untyped-def]
    """Whether the client_id of a request, whose api_key is at `at`, is the one that its connection had before."""
    if dialog.client_id < 0 or at + 10 > end:
        return False
    known = t.strings[dialog.client_id]
    length = signed16(be16(buf, at + 8))
    if np.int64(known.length) != length or at + 10 + length > end:
        return False
    return same_bytes(buf, at + 10, t.text, known.at, length)


@inlined
def take_request(t, c, source, at, captured, size, first, last, packet_first, packet_last):  # type: ignore[no-untyped-def]
    """A whole request frame at `at` of a source (with its size field): `captured` of its `size` bytes are there."""
    buf = t.block if source == 0 else (t.held if source == 1 else t.pool)
    dialog = t.dialogs[c]
    end = at + captured
    t.state[REQUESTS] += 1
    dialog.requests += 1
    stream = t.streams[2 * c + np.int64(dialog.client)]
    token = False
    if dialog.raw_sasl:
        key = be16(buf, at + 4) if captured >= 14 else np.int64(-1)
        version = be16(buf, at + 6) if captured >= 14 else np.int64(-1)
        token = program_of(t.index, 0, key, version) < 0 or client_id_length(buf, at + 4, end) < -1
        dialog.raw_sasl = 1 if token else 0
    if captured < 12 and not token:
        t.state[REQUESTS_HEADERLESS] += 1
        return
    slot = _new_exchange(t, c)
    _queue(t, dialog, slot)
    if token:
        t.links[slot].token = 1
        t.state[REQUEST_TOKENS] += 1
        stream.token_bytes += size
        _note_request(t.exchanges[slot], size, first, last, packet_first, packet_last)
        _add_job(t, source, at + 4, end, at + size, np.int64(-1), slot * 2)
        return
    key = signed16(be16(buf, at + 4))
    version = signed16(be16(buf, at + 6))
    x = t.exchanges[slot]
    _note_request(x, size, first, last, packet_first, packet_last)
    x.api_key = key
    x.api_version = version
    x.correlation_id = signed32(be32(buf, at + 8))
    program = program_of(t.index, 0, key, version)
    body = at + 12
    if key == CONTROLLED_SHUTDOWN and version == 0:
        pass  # its header has no client_id
    elif captured == size and _same_client(t, dialog, buf, at + 4, end):
        x.client_id = dialog.client_id
        body = at + 14 + np.int64(t.strings[dialog.client_id].length)
    else:
        length = client_id_length(buf, at + 4, end)
        if captured < 14 or (length < -1 and captured < size):
            program = np.int64(-1)
            body = end
        else:
            x.client_id = intern(buf, at + 14, length, t.strings, t.text, t.buckets, t.state)
            dialog.client_id = x.client_id
            body = at + 14 + max(np.int64(0), length)
    _add_job(t, source, body, end, at + size, program, slot * 2)
    if program < 0:
        x.request_status = _status_unread(t, key, captured, size)
    if key == PRODUCE and program >= 0:
        acks = acks_of(buf, body, end, version)
        x.acks = acks
        if acks == 0:
            t.links[slot].no_reply = 1
    # A producer that never asks for a reply would queue for ever: the oldest will not be answered any more.
    while dialog.pending_count > SILENT_LIMIT and t.links[dialog.pending_first].no_reply:
        give_up(t, c, np.int64(t.links[dialog.pending_first].next))


@helper
def find_pending(t, dialog, correlation_id, depth):  # type: ignore[no-untyped-def]
    """The first waiting request with this correlation_id, -1 if there is none."""
    slot = np.int64(dialog.pending_first)
    looked = 0
    while slot >= 0 and looked < depth:
        if t.links[slot].token == 0 and t.exchanges[slot].correlation_id == correlation_id:
            return slot
        slot = np.int64(t.links[slot].next)
        looked += 1
    return np.int64(-1)


@helper
def response_program(index, key, version, buf, body, end):  # type: ignore[no-untyped-def]
    """The program for the response to a request: a broker that does not know an ApiVersions version answers in v0."""
    if key == API_VERSIONS and version > 0 and body + 2 <= end and be16(buf, body) == UNSUPPORTED_VERSION:
        version = np.int64(0)
    return program_of(index, 1, key, version)


@inlined
def take_response(t, c, source, at, captured, size, first, last, packet_first, packet_last):  # type: ignore[no-untyped-def]
    """A whole response frame at `at` of a source (with its size field): `captured` of its `size` bytes are there."""
    buf = t.block if source == 0 else (t.held if source == 1 else t.pool)
    dialog = t.dialogs[c]
    end = at + captured
    t.state[RESPONSES] += 1
    dialog.responses += 1
    # A token's answer has no header. Which waits first tells what comes, but where a token or its answer was lost a
    # correlation_id that is waited for goes before it.
    token = np.int64(dialog.pending_first)
    while token >= 0 and t.links[token].no_reply and not t.links[token].token:
        token = np.int64(t.links[token].next)
    if token >= 0 and t.links[token].token == 0:
        token = np.int64(-1)
    if captured < 8 and token < 0:
        t.state[RESPONSES_HEADERLESS] += 1
        return
    slot = find_pending(t, dialog, signed32(be32(buf, at + 4)), DEPTH) if captured >= 8 else np.int64(-1)
    is_token = slot < 0 and token >= 0
    if is_token:
        slot = token
    if slot >= 0:
        give_up(t, c, slot)
        _unqueue(t, dialog)
    else:
        slot = _new_exchange(t, c)
        t.exchanges[slot].correlation_id = signed32(be32(buf, at + 4))
        t.exchanges[slot].outcome = ORPHAN_RESPONSE
    _finish(t, slot)
    x = t.exchanges[slot]
    x.response_first = first
    x.response_last = last
    x.response_packet_first = packet_first
    x.response_packet_last = packet_last
    x.response_bytes = size - 4
    if is_token:
        t.state[RESPONSE_TOKENS] += 1
        t.streams[2 * c + 1 - np.int64(dialog.client)].token_bytes += size
        _add_job(t, source, at + 4, end, at + size, np.int64(-1), slot * 2 + 1)
        return
    if x.outcome == ORPHAN_RESPONSE:
        t.state[ORPHANS] += 1
        _add_job(t, source, at + 8, end, at + size, np.int64(-1), slot * 2 + 1)
        return
    x.outcome = ANSWERED
    if dialog.ready == 0:
        dialog.ready = packet_last
    t.state[ANSWERED_COUNT] += 1
    body = at + 8
    program = response_program(t.index, np.int64(x.api_key), np.int64(x.api_version), buf, body, end)
    _add_job(t, source, body, end, at + size, program, slot * 2 + 1)
    if program < 0:
        x.response_status = _status_unread(t, np.int64(x.api_key), captured, size)
    if x.api_key == SASL_HANDSHAKE and x.api_version == 0 and body + 2 <= end and be16(buf, body) == 0:
        dialog.raw_sasl = 1
