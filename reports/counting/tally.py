"""Kernels that add exchanges and their results to count tables, and the columns of these tables.

A group is one combination of GROUP_KEY. Tables without topics or times roll up from groups. Topics have the same value
columns under TOPIC_KEY. A kernel notes each histogram value as one int64: owner row << 20 | metric << 12 | bucket.

An exchange counts at the start of its request, and an orphan response at its own start. Broker time and total time
cover answered exchanges only. Long polls have groups of their own.
"""

from __future__ import annotations

import numpy as np

from kafkatap.dissector.dtypes import EXCHANGE, NO_TIME, RESULT
from kafkatap.kernels import helper, kernel

from .count_table import MAX, MIN, SUM, claim_row
from .histogram import BUCKET_BITS, OWNER_SHIFT, bucket_of

GROUP_KEY = (
    "api_key", "api_version", "client_id", "software", "software_version",
    "client_ip", "broker_ip", "broker_port", "long_poll",
)  # fmt: skip
TOPIC_KEY = ("api_key", "long_poll", "topic", "topic_id")
TIMELINE_KEY = ("interval", "api_key")
ERROR_KEY = (
    "error_code", "api_key", "kind", "topic", "topic_id", "name", "client_id", "broker_ip", "broker_port",
)  # fmt: skip

#: Value columns of groups and topics, and how each is added up. Units: ns, bytes or counts.
GROUP_VALUES = {
    "answered": SUM,
    "no_reply_expected": SUM,
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
    "throttle_waits": SUM,  # exchanges with a throttle wait
    "throttle_wait_ns": SUM,
    "throttle_wait_max": MAX,
    "failed_exchanges": SUM,  # exchanges with at least one non-zero error code
    "error_codes": SUM,  # non-zero error codes
    "first": MIN,
    "last": MAX,
}
(
    V_ANSWERED, _V_NO_REPLY, _V_UNANSWERED, _V_LOST, _V_ORPHAN,
    V_REQUEST_BYTES, V_RESPONSE_BYTES, V_THROTTLE_KNOWN, V_THROTTLED, V_THROTTLE_TIME, V_THROTTLE_TIME_MAX,
    V_BROKER, V_BROKER_MAX, V_TOTAL, V_TOTAL_MAX, V_HOL_WAITS, V_HOL_WAIT, V_HOL_WAIT_MAX,
    V_HOL_THROTTLE_WAIT, V_HOL_POLL_WAIT, V_THROTTLE_WAITS, V_THROTTLE_WAIT, V_THROTTLE_WAIT_MAX,
    V_FAILED, V_ERROR_CODES, V_FIRST, V_LAST,
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

ORPHAN = 4
UNANSWERED, LOST = 2, 3


@helper
def _add_bucket(noted, used, owner, metric, value):  # type: ignore[no-untyped-def]
    noted[used[0]] = (np.int64(owner) << OWNER_SHIFT) | (metric << BUCKET_BITS) | bucket_of(value)
    used[0] += 1


@helper
def began(e):  # type: ignore[no-untyped-def]
    """The start of an exchange: the first byte of its request, or of an orphan response."""
    return e.response_first if e.outcome == ORPHAN else e.request_first


@helper
def _tally(e, at, row, values, noted, used):  # type: ignore[no-untyped-def]
    """Add an exchange to the values and histograms of a group or topic."""
    v = row * GROUP_COLUMNS
    values[v + e.outcome] += 1
    if e.request_bytes > 0:
        values[v + V_REQUEST_BYTES] += e.request_bytes
    if e.response_bytes > 0:
        values[v + V_RESPONSE_BYTES] += e.response_bytes
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
            _add_bucket(noted, used, row, M_THROTTLE_TIME, throttle)
    if e.outcome == 0:
        broker = e.broker_ns
        total = e.total_ns
        values[v + V_BROKER] += broker
        values[v + V_BROKER_MAX] = max(values[v + V_BROKER_MAX], broker)
        values[v + V_TOTAL] += total
        values[v + V_TOTAL_MAX] = max(values[v + V_TOTAL_MAX], total)
        _add_bucket(noted, used, row, M_BROKER, broker)
        _add_bucket(noted, used, row, M_TOTAL, total)
        hol_wait = e.hol_wait_ns
        if hol_wait > 0:
            values[v + V_HOL_WAITS] += 1
            values[v + V_HOL_WAIT] += hol_wait
            values[v + V_HOL_WAIT_MAX] = max(values[v + V_HOL_WAIT_MAX], hol_wait)
            values[v + V_HOL_THROTTLE_WAIT] += e.hol_throttle_wait_ns
            values[v + V_HOL_POLL_WAIT] += e.hol_poll_wait_ns
            _add_bucket(noted, used, row, M_HOL_WAIT, hol_wait)
        wait = e.throttle_wait_ns
        if wait > 0:
            values[v + V_THROTTLE_WAITS] += 1
            values[v + V_THROTTLE_WAIT] += wait
            values[v + V_THROTTLE_WAIT_MAX] = max(values[v + V_THROTTLE_WAIT_MAX], wait)
            _add_bucket(noted, used, row, M_THROTTLE_WAIT, wait)


@kernel(
    EXCHANGE, int, int, np.int32, np.int32, np.int64,
    np.int64, np.int64, np.int32, np.int64, np.int64, np.int64,
    np.int64, np.int64, np.int32, np.int64, np.int64, np.int64,
)  # fmt: skip
def add_exchanges(  # type: ignore[no-untyped-def]
    exchanges, start, interval_ns, group_of, interval_of, probe,
    g_keys, g_values, g_slots, g_used, noted, used,
    t_keys, t_values, t_slots, t_used, t_noted, t_noted_used,
):  # fmt: skip
    """Add exchanges from `start` on to groups (g) and timeline (t), and note the values of their histograms.

    Write the group row and timeline row of each exchange. Return the number of exchanges, or the index of the first one
    for which space may be short.
    """
    g_space = len(g_values) // GROUP_COLUMNS
    t_space = len(t_values) // TIMELINE_COLUMNS
    noted_space = len(noted) - 5
    t_noted_space = len(t_noted)
    for i in range(start, len(exchanges)):
        if g_used[0] >= g_space or used[0] > noted_space or t_used[0] >= t_space or t_noted_used[0] >= t_noted_space:
            return i
        e = exchanges[i]
        at = began(e)
        probe[0] = e.api_key
        probe[1] = e.api_version
        probe[2] = e.client_id
        probe[3] = e.client_software
        probe[4] = e.client_software_version
        probe[5] = e.client_ip
        probe[6] = e.broker_ip
        probe[7] = e.broker_port
        probe[8] = e.long_poll
        group = claim_row(g_keys, 9, g_slots, g_used, probe, 0)
        group_of[i] = group
        _tally(e, at, group, g_values, noted, used)

        probe[0] = at // interval_ns
        probe[1] = e.api_key
        interval = claim_row(t_keys, 2, t_slots, t_used, probe, 0)
        interval_of[i] = interval
        t = interval * TIMELINE_COLUMNS
        if e.outcome != ORPHAN:
            t_values[t + T_REQUESTS] += 1
        if e.request_bytes > 0:
            t_values[t + T_BYTES] += e.request_bytes
        if e.response_bytes > 0:
            t_values[t + T_BYTES] += e.response_bytes
        if e.throttle_time_ms > 0:
            t_values[t + T_THROTTLED] += 1
        if e.outcome == 0:
            t_values[t + T_ANSWERED] += 1
            t_values[t + T_THROTTLE_WAIT] += e.throttle_wait_ns
            if e.long_poll == 0:
                broker = e.broker_ns
                t_values[t + T_BROKER_MAX] = max(t_values[t + T_BROKER_MAX], broker)
                _add_bucket(t_noted, t_noted_used, interval, M_BROKER, broker)
        elif e.outcome == UNANSWERED:
            t_values[t + T_UNANSWERED] += 1
        elif e.outcome == LOST:
            t_values[t + T_LOST] += 1
    return len(exchanges)


@kernel(
    EXCHANGE, RESULT, np.int64, int, np.int32, np.int32, np.int64,
    np.int64, np.int64, np.int64, np.int64, np.int32, np.int64,
)  # fmt: skip
def add_errors(  # type: ignore[no-untyped-def]
    exchanges, results, exchange_of, start, group_of, interval_of, probe,
    g_values, t_values, e_keys, e_values, e_slots, e_used,
):  # fmt: skip
    """Add results with a non-zero error code, from `start` on. `exchange_of`: the row in `exchanges` of each result.

    Return the number of results, or the index of the first one without space.
    """
    space = len(e_values) // 4
    counted = np.int64(-1)  # the exchange that was last counted as failed
    before = start - 1
    while before >= 0 and start < len(results) and exchange_of[before] == exchange_of[start]:
        if results[before].error_code != 0:
            counted = np.int64(exchange_of[start])
        before -= 1
    for i in range(start, len(results)):
        r = results[i]
        if r.error_code == 0:
            continue
        at_row = exchange_of[i]
        if at_row < 0:
            continue
        if e_used[0] >= space:
            return i
        e = exchanges[at_row]
        g = np.int64(group_of[at_row]) * GROUP_COLUMNS
        t = np.int64(interval_of[at_row]) * TIMELINE_COLUMNS
        g_values[g + V_ERROR_CODES] += 1
        t_values[t + T_ERROR_CODES] += 1
        if counted != at_row:
            g_values[g + V_FAILED] += 1
            t_values[t + T_FAILED] += 1
            counted = np.int64(at_row)
        probe[0] = r.error_code
        probe[1] = e.api_key
        probe[2] = r.kind
        probe[3] = r.topic
        probe[4] = r.topic_id
        probe[5] = r.name
        probe[6] = e.client_id
        probe[7] = e.broker_ip
        probe[8] = e.broker_port
        row = 4 * claim_row(e_keys, 9, e_slots, e_used, probe, 0)
        e_values[row] += 1
        at = e.response_first
        if at == NO_TIME:
            at = e.request_first
        e_values[row + 1] = min(e_values[row + 1], at)
        e_values[row + 2] = max(e_values[row + 2], at)
        e_values[row + 3] = min(e_values[row + 3], e.response_packet_last)
    return len(results)


@kernel(
    EXCHANGE, RESULT, np.int64, int, np.int64,
    np.int64, np.int64, np.int32, np.int64, np.int64,
    np.int64, np.int64,
)  # fmt: skip
def add_topics(  # type: ignore[no-untyped-def]
    exchanges, results, exchange_of, start, probe,
    k_keys, k_values, k_slots, k_used, stamps,
    noted, used,
):  # fmt: skip
    """Add each exchange once to each of its topics, and its error codes for that topic.

    `stamps`: int64, for each topic row 1 + the exchange that was added last. The results of an exchange are adjacent.
    Return the number of results, or the index of the first one for which space may be short.
    """
    space = len(k_values) // GROUP_COLUMNS
    noted_space = len(noted) - 5
    for i in range(start, len(results)):
        r = results[i]
        at_row = exchange_of[i]
        if (r.topic < 0 and r.topic_id < 0) or at_row < 0:
            continue
        if k_used[0] >= space or used[0] > noted_space:
            return i
        e = exchanges[at_row]
        probe[0] = e.api_key
        probe[1] = e.long_poll
        probe[2] = r.topic
        probe[3] = r.topic_id
        row = claim_row(k_keys, 4, k_slots, k_used, probe, 0)
        if stamps[row] != 1 + e.exchange:
            stamps[row] = 1 + e.exchange
            _tally(e, began(e), row, k_values, noted, used)
        if r.error_code != 0:
            k_values[row * GROUP_COLUMNS + V_ERROR_CODES] += 1
    return len(results)
