"""The requests of a connection that wait for their response, in order.

They are a list, chained by their links, from the connection's `waiting_first`. A broker answers the requests of a
connection in order, so the first one is the usual match for a response. A response to a later one passes those before
it. If none of the stream's bytes were missed they stay, as a broker that answers out of order may answer them yet.
"""

from __future__ import annotations

import numpy as np

from kafkatap.kernels.decorator import helper, inlined

from ..dtypes import IN_FLIGHT, NO_REPLY_EXPECTED, NO_TIME, RESPONSE_LOST, UNANSWERED
from .tables import PASSED, PASSING

#: How many waiting requests are compared with a response's correlation_id.
DEPTH = 1_024
#: Requests with acks=0 that wait at most, as some brokers answer them.
NO_REPLY_LIMIT = 1_024
#: Requests that were passed and stay, at most.
PASSED_LIMIT = 64


@inlined
def add_waiting(t, connection, slot):  # type: ignore[no-untyped-def]
    """Add an exchange at the end."""
    if connection.waiting_last >= 0:
        t.links[connection.waiting_last].next = slot
    else:
        connection.waiting_first = slot
    connection.waiting_last = slot
    connection.waiting_count += 1


@helper
def remove_first(t, connection):  # type: ignore[no-untyped-def]
    """Remove the first waiting request; return it."""
    slot = np.int64(connection.waiting_first)
    connection.waiting_first = t.links[slot].next
    if connection.waiting_first < 0:
        connection.waiting_last = -1
    connection.waiting_count -= 1
    return slot


@helper
def find_waiting(t, connection, correlation_id, depth):  # type: ignore[no-untyped-def]
    """The first waiting request with this correlation_id, or -1."""
    slot = np.int64(connection.waiting_first)
    compared = 0
    while slot >= 0 and compared < depth:
        if t.links[slot].token == 0 and t.exchanges[slot].correlation_id == correlation_id:
            return slot
        slot = np.int64(t.links[slot].next)
        compared += 1
    return np.int64(-1)


@inlined
def next_token(t, connection):  # type: ignore[no-untyped-def]
    """The SASL token that the broker answers next, or -1 if it answers a request next. acks=0 needs no answer."""
    slot = np.int64(connection.waiting_first)
    while slot >= 0 and (t.links[slot].no_reply or t.links[slot].passed) and not t.links[slot].token:
        slot = np.int64(t.links[slot].next)
    return slot if slot >= 0 and t.links[slot].token else np.int64(-1)


@helper
def finish_exchange(t, slot):  # type: ignore[no-untyped-def]
    """Have the next drain deliver an exchange."""
    state = t.state[0]
    t.finished[state.finished] = slot
    state.finished += 1


@helper
def outcome_without_answer(link, connection, streams, c):  # type: ignore[no-untyped-def]
    """The outcome of a waiting request of connection `c` that nothing will answer."""
    if link.no_reply:
        return np.int64(NO_REPLY_EXPECTED)
    if streams[2 * c + 1 - np.int64(connection.client)].losses != link.losses:
        return np.int64(RESPONSE_LOST)
    return np.int64(UNANSWERED)


@helper
def finish_without_answer(t, c, slot):  # type: ignore[no-untyped-def]
    """Finish a request that is no longer among the waiting ones, without an answer."""
    counts = t.counts[0]
    link = t.links[slot]
    outcome = outcome_without_answer(link, t.connections[c], t.streams, c)
    t.exchanges[slot].outcome = outcome
    if link.token == 0:
        if outcome == NO_REPLY_EXPECTED:
            counts.no_reply_expected += 1
        elif outcome == RESPONSE_LOST:
            counts.response_lost += 1
        else:
            counts.unanswered += 1
    finish_exchange(t, slot)


@helper
def note_end(t, c, until, closer):  # type: ignore[no-untyped-def]
    """Note of the waiting requests until when they waited, ns, and who closed their connection then (CLOSED_BY_*; -1:
    nobody did when the capture ended, so their responses may still come)."""
    connection = t.connections[c]
    slot = np.int64(connection.waiting_first)
    while slot >= 0:
        link = t.links[slot]
        if link.no_reply == 0:
            link.waited_until = until
            t.exchanges[slot].closed_by = closer
            if closer < 0 and outcome_without_answer(link, connection, t.streams, c) == UNANSWERED:
                link.may_come = 1
        slot = np.int64(link.next)


@helper
def decide_in_flight(t, slot):  # type: ignore[no-untyped-def]
    """Set how long a request without a response waited, and decide whether it is in flight. Its body is decoded: it
    says how long the broker may hold the request."""
    x = t.exchanges[slot]
    link = t.links[slot]
    sent = x.request_last if x.request_last != NO_TIME else x.request_first
    if link.token or sent == NO_TIME:
        return
    x.waited_ns = max(np.int64(0), link.waited_until - sent)
    if link.may_come == 0 or x.waited_ns >= t.state[0].late + np.int64(link.wait_ms) * 1_000_000:
        return
    counts = t.counts[0]
    if x.outcome == RESPONSE_LOST:
        counts.response_lost -= 1
    else:
        counts.unanswered -= 1
    counts.in_flight += 1
    x.outcome = IN_FLIGHT


@helper
def give_up(t, c, until):  # type: ignore[no-untyped-def]
    """Finish the requests that wait before `until` (-1: all) without an answer."""
    connection = t.connections[c]
    while np.int64(connection.waiting_first) != until:
        slot = remove_first(t, connection)
        finish_without_answer(t, c, slot)


@helper
def _remove_after(t, connection, before, slot):  # type: ignore[no-untyped-def]
    """Remove a waiting request, which comes after `before` (-1: it is the first)."""
    if before < 0:
        remove_first(t, connection)
        return
    t.links[before].next = t.links[slot].next
    if connection.waiting_last == slot:
        connection.waiting_last = before
    connection.waiting_count -= 1


@helper
def remove_passing(t, c, answered):  # type: ignore[no-untyped-def]
    """Remove the waiting request that a response answers. Those before it, which it passes, are finished without an
    answer, or stay."""
    connection = t.connections[c]
    losses = t.streams[2 * c + 1 - np.int64(connection.client)].losses
    before = np.int64(-1)
    kept = 0
    slot = np.int64(connection.waiting_first)
    while slot != answered:
        link = t.links[slot]
        following = np.int64(link.next)
        stays = link.no_reply == 0 and link.token == 0 and link.losses == losses
        if stays and kept < PASSED_LIMIT:
            link.passed = PASSED
            if t.links[answered].passed == 0:
                t.links[answered].passed = PASSING
            before = slot
            kept += 1
        else:
            _remove_after(t, connection, before, slot)
            finish_without_answer(t, c, slot)
        slot = following
    _remove_after(t, connection, before, answered)
