"""The kernel that adds exchanges and their results to count tables, and the columns of these tables.

A group is one combination of GROUP_KEY. Tables without topics or times roll up from groups. Topics have the same value
columns under TOPIC_KEY. A kernel notes each histogram value as one int64: owner row << 20 | metric << 12 | bucket.

An exchange counts at the start of its request, and an orphan response at its own start. Broker time and total time
cover answered exchanges only. Long polls have groups of their own.
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np

from kafkatap.dissector.dtypes import (
    CLOSED_BY_BROKER,
    CLOSED_BY_CLIENT,
    EXCHANGE,
    FETCHES,
    INCOMPLETE,
    NO_INT32,
    NO_TIME,
    ORPHAN_RESPONSE,
    RESPONSE_LOST,
    RESULT,
    UNANSWERED,
)
from kafkatap.dissector.exchange_places import enter_places, row_of
from kafkatap.dissector.results import EXCHANGE_TOPIC
from kafkatap.kernels import helper, kernel
from kafkatap.kernels.decorator import record_dtype

from .count_table import MAX, MIN, SUM, claim_row
from .histogram import BUCKET_BITS, OWNER_SHIFT, bucket_of

GROUP_KEY = (
    "api_key", "api_version", "client_id", "software", "software_version",
    "client_ip", "broker_ip", "broker_port", "long_poll", "client_port",
)  # fmt: skip
_GROUP_WIDTH = len(GROUP_KEY)
TOPIC_KEY = ("api_key", "long_poll", "topic", "topic_id")
TIMELINE_KEY = ("interval", "api_key")
ERROR_KEY = (
    "error_code", "api_key", "kind", "topic", "topic_id", "name", "client_id", "broker_ip", "broker_port",
)  # fmt: skip

#: Value columns of groups and topics, and how each is added up. Units: ns, bytes or counts.
GROUP_VALUES = {
    "answered": SUM,
    "no_reply_expected": SUM,
    "in_flight": SUM,
    "unanswered": SUM,
    "response_lost": SUM,
    "orphan_response": SUM,
    "request_bytes": SUM,
    "response_bytes": SUM,
    "throttle_known": SUM,  # responses that have the field throttle_time_ms
    "throttled": SUM,  # responses with throttle_time_ms above zero
    "throttle_time_ms": SUM,
    "throttle_time_ms_max": MAX,
    "broker_ns": SUM,
    "broker_max": MAX,
    "total_ns": SUM,
    "total_max": MAX,
    "hol_waits": SUM,
    "hol_wait_ns": SUM,
    "hol_wait_max": MAX,
    "hol_throttle_wait_ns": SUM,  # part of hol_wait_ns behind throttled requests
    "hol_poll_wait_ns": SUM,  # part of hol_wait_ns behind requests that wait for data or for other members
    "hol_unknown_wait_ns": SUM,  # part of hol_wait_ns behind the broker or a quota: throttle times are not captured
    "hol_loss_wait_ns": SUM,  # part of hol_wait_ns behind requests and responses that waited for lost segments
    "throttle_waits": SUM,  # exchanges with a throttle wait
    "throttle_wait_ns": SUM,
    "throttle_wait_max": MAX,
    "waiting_ns": SUM,  # part of broker_ns: for data or for other members
    "round_trip_ns": SUM,  # another part of it: from the capture point to the broker and back
    "hol_round_trip_ns": SUM,  # part of hol_wait_ns: the same
    "loss_ns": SUM,
    "receiver_ns": SUM,
    "sender_ns": SUM,
    "nagle_ns": SUM,  # part of sender_ns
    "path_ns": SUM,
    "unexplained_ns": SUM,
    "client_ns": SUM,  # part of receiver_ns and sender_ns: at the client's end
    "failed_exchanges": SUM,  # exchanges with at least one non-zero error code
    "failed_ns": SUM,  # their total_ns, without waits for data and members
    "error_codes": SUM,  # non-zero error codes
    "unknown_waits": SUM,  # answered exchanges of which throttle_time_ms or max_wait_ms was not captured
    "unknown_broker_ns": SUM,  # part of broker_ns, without waiting_ns, that may contain throttle waits or long polls
    "client_closed": SUM,  # requests without a response whose client closed the connection ...
    "broker_closed": SUM,  # ... or whose broker did
    "cut": SUM,  # those that had not come whole then
    "first": MIN,
    "last": MAX,
}
(
    V_ANSWERED, _V_NO_REPLY, _V_IN_FLIGHT, _V_UNANSWERED, _V_LOST, _V_ORPHAN,
    V_REQUEST_BYTES, V_RESPONSE_BYTES, V_THROTTLE_KNOWN, V_THROTTLED, V_THROTTLE_TIME, V_THROTTLE_TIME_MAX,
    V_BROKER, V_BROKER_MAX, V_TOTAL, V_TOTAL_MAX, V_HOL_WAITS, V_HOL_WAIT, V_HOL_WAIT_MAX,
    V_HOL_THROTTLE_WAIT, V_HOL_POLL_WAIT, V_HOL_UNKNOWN_WAIT, V_HOL_LOSS_WAIT, V_THROTTLE_WAITS, V_THROTTLE_WAIT,
    V_THROTTLE_WAIT_MAX, V_WAITING, V_ROUND_TRIP, V_HOL_ROUND_TRIP, V_LOSS, V_RECEIVER, V_SENDER, V_NAGLE, V_PATH,
    V_UNEXPLAINED, V_CLIENT,
    V_FAILED, V_FAILED_TIME, V_ERROR_CODES, V_UNKNOWN_WAITS, V_UNKNOWN_BROKER, V_CLIENT_CLOSED, V_BROKER_CLOSED,
    V_CUT, V_FIRST, V_LAST,
) = range(len(GROUP_VALUES))  # fmt: skip
GROUP_COLUMNS = len(GROUP_VALUES)

TIMELINE_VALUES = {
    "requests": SUM,
    "answered": SUM,
    "unanswered": SUM,
    "response_lost": SUM,
    "failed_exchanges": SUM,
    "error_codes": SUM,
    "throttled": SUM,
    "throttle_wait_ns": SUM,
    "bytes": SUM,
    "broker_max": MAX,
}
(
    T_REQUESTS, T_ANSWERED, T_UNANSWERED, T_LOST, T_FAILED, T_ERROR_CODES, T_THROTTLED, T_THROTTLE_WAIT, T_BYTES,
    T_BROKER_MAX,
) = range(len(TIMELINE_VALUES))  # fmt: skip
TIMELINE_COLUMNS = len(TIMELINE_VALUES)

#: `packet`: the packet with the response's last byte. Wireshark shows the message there.
ERROR_VALUES = {"count": SUM, "first": MIN, "last": MAX, "packet": MIN}

METRICS = ("broker", "total", "hol_wait", "throttle_wait", "throttle_time_ms")
M_BROKER, M_TOTAL, M_HOL_WAIT, M_THROTTLE_WAIT, M_THROTTLE_TIME = range(5)

#: Groups that were found last, by a few bits of their keys: most exchanges need no hash of a whole key.
MEMO = 256

#: What `add_batch` adds next, and the item of it. `failed`: the exchange that was last counted as failed.
#: `by_connection`: 1: each connection has groups of its own. Otherwise the client's port is 0 in their keys.
TALLY_STATE = record_dtype(("step", "i8"), ("done", "i8"), ("failed", "i8"), ("by_connection", "i8"))
STEP_BEGIN, STEP_EXCHANGES, STEP_ERRORS, STEP_TOPICS, STEP_REQUESTED = range(5)
#: What `add_batch` returns.
ADDED, FULL = 0, 1


class Counted(NamedTuple):
    """The arrays of a CountTable, and the noted values of its histograms."""

    keys: Annotated[Any, np.int64]
    values: Annotated[Any, np.int64]
    slots: Annotated[Any, np.int32]
    used: Annotated[Any, np.int64]
    noted: Annotated[Any, np.int64]
    noted_used: Annotated[Any, np.int64]


class TallyTables(NamedTuple):
    """The tables of a run's counts, and room for one batch.

    `stamps`: for each topic row 1 + the exchange that was added last. `group_of`, `interval_of`: the group row and the
    timeline row of each exchange. `places`: as of `exchange_places`. `probe`: room for a key.
    """

    groups: Counted
    topics: Counted
    timeline: Counted
    errors: Counted
    stamps: Annotated[Any, np.int64]
    memo: Annotated[Any, np.int32]
    group_of: Annotated[Any, np.int32]
    interval_of: Annotated[Any, np.int32]
    places: Annotated[Any, np.int32]
    probe: Annotated[Any, np.int64]
    state: Annotated[Any, TALLY_STATE]


@helper
def _add_bucket(table, owner, metric, value):  # type: ignore[no-untyped-def]
    used = table.noted_used
    table.noted[used[0]] = (np.int64(owner) << OWNER_SHIFT) | (metric << BUCKET_BITS) | bucket_of(value)
    used[0] += 1


@helper
def began(e):  # type: ignore[no-untyped-def]
    """The start of an exchange: the first byte of its request, or of an orphan response."""
    return e.response_first if e.outcome == ORPHAN_RESPONSE else e.request_first


@helper
def has_unknown_waits(e):  # type: ignore[no-untyped-def]
    """Whether bytes are missing in which the throttle time, or the max_wait_ms of a Fetch, may be: broker time may
    contain the throttle wait or the long poll."""
    is_unknown = e.response_status == INCOMPLETE and e.throttle_time_ms == NO_INT32
    if e.api_key == FETCHES[0] or e.api_key == FETCHES[1]:
        is_unknown = is_unknown or (e.request_status == INCOMPLETE and e.max_wait_ms == NO_INT32)
    return is_unknown


@helper
def _tally_transfers(e, v, values):  # type: ignore[no-untyped-def]
    """Add the parts of an exchange's transfers to the values of a row, which begin at `v`.

    The client's end is the sender of the request, and the receiver of the response. Where both have time, that of the
    longer message counts.
    """
    values[v + V_LOSS] += e.loss_ns
    values[v + V_RECEIVER] += e.receiver_ns
    values[v + V_SENDER] += e.sender_ns
    values[v + V_NAGLE] += e.nagle_ns
    values[v + V_PATH] += e.path_ns
    values[v + V_UNEXPLAINED] += e.unexplained_ns
    if e.receiver_ns > 0 or e.sender_ns > 0:
        is_response = e.response_last - e.response_first > e.request_last - e.request_first
        values[v + V_CLIENT] += e.receiver_ns if is_response else e.sender_ns


@helper
def _tally(e, at, row, table):  # type: ignore[no-untyped-def]
    """Add an exchange to the values and histograms of a group or topic."""
    values = table.values
    v = row * GROUP_COLUMNS
    values[v + e.outcome] += 1
    if e.closed_by == CLOSED_BY_CLIENT:
        values[v + V_CLIENT_CLOSED] += 1
    elif e.closed_by == CLOSED_BY_BROKER:
        values[v + V_BROKER_CLOSED] += 1
    if e.closed_by >= 0 and e.request_cut_bytes > 0:
        values[v + V_CUT] += 1
    if e.request_bytes > 0:
        values[v + V_REQUEST_BYTES] += e.request_bytes - e.request_cut_bytes
    if e.response_bytes > 0:
        values[v + V_RESPONSE_BYTES] += e.response_bytes - e.response_cut_bytes
    if at < values[v + V_FIRST]:
        values[v + V_FIRST] = at
    if at > values[v + V_LAST]:
        values[v + V_LAST] = at
    throttle = np.int64(e.throttle_time_ms)
    if throttle >= 0:
        values[v + V_THROTTLE_KNOWN] += 1
        if throttle > 0:
            values[v + V_THROTTLED] += 1
            values[v + V_THROTTLE_TIME] += throttle
            values[v + V_THROTTLE_TIME_MAX] = max(values[v + V_THROTTLE_TIME_MAX], throttle)
            _add_bucket(table, row, M_THROTTLE_TIME, throttle)
    if e.outcome == 0:
        is_unknown = has_unknown_waits(e)
        if is_unknown:
            values[v + V_UNKNOWN_WAITS] += 1
        if is_unknown or e.behind_unread:
            values[v + V_UNKNOWN_BROKER] += e.broker_ns - e.waiting_ns
        broker = e.broker_ns
        total = e.total_ns
        values[v + V_BROKER] += broker
        values[v + V_BROKER_MAX] = max(values[v + V_BROKER_MAX], broker)
        values[v + V_TOTAL] += total
        values[v + V_TOTAL_MAX] = max(values[v + V_TOTAL_MAX], total)
        _add_bucket(table, row, M_BROKER, broker)
        _add_bucket(table, row, M_TOTAL, total)
        hol_wait = e.hol_wait_ns
        if hol_wait > 0:
            values[v + V_HOL_WAITS] += 1
            values[v + V_HOL_WAIT] += hol_wait
            values[v + V_HOL_WAIT_MAX] = max(values[v + V_HOL_WAIT_MAX], hol_wait)
            values[v + V_HOL_THROTTLE_WAIT] += e.hol_throttle_wait_ns
            values[v + V_HOL_POLL_WAIT] += e.hol_poll_wait_ns
            values[v + V_HOL_UNKNOWN_WAIT] += e.hol_unknown_wait_ns
            values[v + V_HOL_LOSS_WAIT] += e.hol_loss_wait_ns
            _add_bucket(table, row, M_HOL_WAIT, hol_wait)
        wait = e.throttle_wait_ns
        if wait > 0:
            values[v + V_THROTTLE_WAITS] += 1
            values[v + V_THROTTLE_WAIT] += wait
            values[v + V_THROTTLE_WAIT_MAX] = max(values[v + V_THROTTLE_WAIT_MAX], wait)
            _add_bucket(table, row, M_THROTTLE_WAIT, wait)
        values[v + V_WAITING] += e.waiting_ns
        values[v + V_ROUND_TRIP] += e.round_trip_ns
        values[v + V_HOL_ROUND_TRIP] += e.hol_round_trip_ns
        if total > broker + hol_wait + wait:
            _tally_transfers(e, v, values)


@helper
def _has_space(table, columns, noted):  # type: ignore[no-untyped-def]
    """Whether a table has space for one more row, and `noted` values."""
    return table.used[0] < len(table.values) // columns and table.noted_used[0] + noted <= len(table.noted)


@helper
def _group_row(t, e):  # type: ignore[no-untyped-def]
    """The row of an exchange's group."""
    probe = t.probe
    probe[0] = e.api_key
    probe[1] = e.api_version
    probe[2] = e.client_id
    probe[3] = e.client_software
    probe[4] = e.client_software_version
    probe[5] = e.client_ip
    probe[6] = e.broker_ip
    probe[7] = e.broker_port
    probe[8] = e.long_poll
    probe[9] = e.client_port if t.state[0].by_connection else 0
    bits = (probe[0] + 5 * probe[2] + 11 * probe[5] + 23 * probe[6] + probe[7] + 64 * probe[8]) & (MEMO - 1)
    row = np.int64(t.memo[bits])
    if row >= 0:
        is_same = True
        for c in range(_GROUP_WIDTH):
            is_same = is_same and t.groups.keys[row * _GROUP_WIDTH + c] == probe[c]
        if is_same:
            return row
    row = np.int64(claim_row(t.groups.keys, _GROUP_WIDTH, t.groups.slots, t.groups.used, probe, 0))
    t.memo[bits] = row
    return row


@helper
def _add_to_interval(t, e, row):  # type: ignore[no-untyped-def]
    """Add an exchange to an interval of the timeline."""
    values = t.timeline.values
    v = row * TIMELINE_COLUMNS
    if e.outcome != ORPHAN_RESPONSE:
        values[v + T_REQUESTS] += 1
    if e.request_bytes > 0:
        values[v + T_BYTES] += e.request_bytes - e.request_cut_bytes
    if e.response_bytes > 0:
        values[v + T_BYTES] += e.response_bytes - e.response_cut_bytes
    if e.throttle_time_ms > 0:
        values[v + T_THROTTLED] += 1
    if e.outcome == 0:
        values[v + T_ANSWERED] += 1
        values[v + T_THROTTLE_WAIT] += e.throttle_wait_ns
        if e.long_poll == 0:
            broker = e.broker_ns
            values[v + T_BROKER_MAX] = max(values[v + T_BROKER_MAX], broker)
            _add_bucket(t.timeline, row, M_BROKER, broker)
    elif e.outcome == UNANSWERED:
        values[v + T_UNANSWERED] += 1
    elif e.outcome == RESPONSE_LOST:
        values[v + T_LOST] += 1


@helper
def _add_exchanges(t, exchanges, interval_ns, first):  # type: ignore[no-untyped-def]
    """Add exchanges from `first` on to groups and timeline. Return the first one for which space may be short."""
    last_time = np.int64(-1)
    last_key = np.int64(-1)
    row = np.int64(0)
    for i in range(first, len(exchanges)):
        if not _has_space(t.groups, GROUP_COLUMNS, 5) or not _has_space(t.timeline, TIMELINE_COLUMNS, 1):
            return i
        e = exchanges[i]
        at = began(e)
        group = _group_row(t, e)
        t.group_of[i] = group
        _tally(e, at, group, t.groups)
        time = at // interval_ns
        key = np.int64(e.api_key)
        if i == first or time != last_time or key != last_key:
            t.probe[0] = time
            t.probe[1] = key
            row = np.int64(claim_row(t.timeline.keys, 2, t.timeline.slots, t.timeline.used, t.probe, 0))
            last_time = time
            last_key = key
        t.interval_of[i] = row
        _add_to_interval(t, e, row)
    return len(exchanges)


@helper
def _add_error(t, e, r, at_row):  # type: ignore[no-untyped-def]
    """Add a result with a non-zero error code."""
    g = np.int64(t.group_of[at_row]) * GROUP_COLUMNS
    v = np.int64(t.interval_of[at_row]) * TIMELINE_COLUMNS
    t.groups.values[g + V_ERROR_CODES] += 1
    t.timeline.values[v + T_ERROR_CODES] += 1
    if t.state[0].failed != at_row:
        t.groups.values[g + V_FAILED] += 1
        if e.outcome == 0:
            t.groups.values[g + V_FAILED_TIME] += e.total_ns - e.waiting_ns
        t.timeline.values[v + T_FAILED] += 1
        t.state[0].failed = at_row
    probe = t.probe
    probe[0] = r.error_code
    probe[1] = e.api_key
    probe[2] = r.kind
    probe[3] = r.topic
    probe[4] = r.topic_id
    probe[5] = r.name
    probe[6] = e.client_id
    probe[7] = e.broker_ip
    probe[8] = e.broker_port
    values = t.errors.values
    row = 4 * claim_row(t.errors.keys, 9, t.errors.slots, t.errors.used, probe, 0)
    values[row] += 1
    at = e.response_first
    if at == NO_TIME:
        at = e.request_first
    values[row + 1] = min(values[row + 1], at)
    values[row + 2] = max(values[row + 2], at)
    values[row + 3] = min(values[row + 3], e.response_packet_last)


@helper
def _add_errors(t, exchanges, results, first):  # type: ignore[no-untyped-def]
    """Add results with a non-zero error code, from `first` on. Return the first one without space."""
    for i in range(first, len(results)):
        r = results[i]
        if r.error_code == 0:
            continue
        at_row = row_of(t.places, exchanges, r.exchange)
        if at_row < 0:
            continue
        if not _has_space(t.errors, 4, 0):
            return i
        _add_error(t, exchanges[at_row], r, at_row)
    return len(results)


@helper
def _topic_row(t, e, topic, topic_id):  # type: ignore[no-untyped-def]
    """The row of one of an exchange's topics. The exchange is added once to each topic."""
    probe = t.probe
    probe[0] = e.api_key
    probe[1] = e.long_poll
    probe[2] = topic
    probe[3] = topic_id
    row = np.int64(claim_row(t.topics.keys, 4, t.topics.slots, t.topics.used, probe, 0))
    if t.stamps[row] != 1 + e.exchange:
        t.stamps[row] = 1 + e.exchange
        _tally(e, began(e), row, t.topics)
    return row


@helper
def _has_topic_space(t):  # type: ignore[no-untyped-def]
    return _has_space(t.topics, GROUP_COLUMNS, 5) and t.topics.used[0] < len(t.stamps)


@helper
def _add_topics(t, exchanges, results, first):  # type: ignore[no-untyped-def]
    """Add each exchange to the topics of its results from `first` on, and its error codes for each topic.

    Return the first result for which space may be short.
    """
    number = np.int64(-1)
    at_row = np.int64(-1)
    for i in range(first, len(results)):
        r = results[i]
        if r.topic < 0 and r.topic_id < 0:
            continue
        if at_row < 0 or r.exchange != number:
            number = r.exchange
            at_row = row_of(t.places, exchanges, number)
            if at_row < 0:
                continue
        if not _has_topic_space(t):
            return i
        row = _topic_row(t, exchanges[at_row], np.int64(r.topic), np.int64(r.topic_id))
        if r.error_code != 0:
            t.topics.values[row * GROUP_COLUMNS + V_ERROR_CODES] += 1
    return len(results)


@helper
def _add_requested(t, exchanges, topics, first):  # type: ignore[no-untyped-def]
    """Add exchanges without a response to the topics of their requests, from `first` on.

    A topic with a name counts by name, as in responses. Return the first topic for which space may be short.
    """
    for i in range(first, len(topics)):
        topic = topics[i]
        at_row = row_of(t.places, exchanges, topic.exchange)
        if at_row < 0:
            continue
        e = exchanges[at_row]
        if e.outcome == 0 or e.outcome == ORPHAN_RESPONSE or (topic.topic < 0 and topic.topic_id < 0):
            continue
        if not _has_topic_space(t):
            return i
        _topic_row(t, e, np.int64(topic.topic), np.int64(topic.topic_id if topic.topic < 0 else -1))
    return len(topics)


@kernel(TallyTables, EXCHANGE, RESULT, EXCHANGE_TOPIC, int, int)
def add_batch(t, exchanges, results, topics, interval_ns, by_topic):  # type: ignore[no-untyped-def]
    """Add a batch to all tables; `by_topic`: to those of topics too. The results of an exchange are adjacent, and so
    are the topics of a request.

    Return ADDED, or FULL if a table may be full: call it again when there is more space. `group_of`, `interval_of` and
    `places` have space for the batch.
    """
    state = t.state[0]
    if state.step == STEP_BEGIN:
        state.done = 0
        state.failed = -1
        state.step = STEP_EXCHANGES
    if state.step == STEP_EXCHANGES:
        state.done = _add_exchanges(t, exchanges, interval_ns, state.done)
        if state.done < len(exchanges):
            return FULL
        state.done = 0
        state.step = STEP_ERRORS
        if len(results) > 0 or (by_topic and len(topics) > 0):
            enter_places(t.places, exchanges)
    if state.step == STEP_ERRORS:
        state.done = _add_errors(t, exchanges, results, state.done)
        if state.done < len(results):
            return FULL
        state.done = 0
        state.step = STEP_TOPICS
    if by_topic and state.step == STEP_TOPICS:
        state.done = _add_topics(t, exchanges, results, state.done)
        if state.done < len(results):
            return FULL
        state.done = 0
        state.step = STEP_REQUESTED
    if by_topic and state.step == STEP_REQUESTED:
        state.done = _add_requested(t, exchanges, topics, state.done)
        if state.done < len(topics):
            return FULL
    state.step = STEP_BEGIN
    return ADDED
