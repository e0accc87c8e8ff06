"""The times of each exchange by their causes: the broker, requests ahead on its connection, or a quota.

A broker reads one request of a connection at a time. So its time with a request starts at the latest of: the request's
last byte, the previous response's first byte, and the end of the mute window. (Measured against a broker's own clock.)

The mute window is the throttle_time_ms after a throttled response. Brokers since 2.0 (KIP-219) answer at once, and then
do not read that connection. Older brokers, and some that are not Apache's, answer late, so the throttling lies in the
response's own time. The versions that a broker offers or answers show which one it is, unless the wire shows it:

* A throttled response that comes before its throttle_time_ms was not held back.
* A request that is answered well within the mute window was read in it. If that happens twice, and no throttled
  response came early, the broker holds responses back.

A head-of-line wait is charged to the cause that the request ahead had at that time: a quota, data, or the broker.
"""

from __future__ import annotations

import numpy as np

from kafkatap.kernels.decorator import helper

from .dtypes import ANSWERED, FETCHES, NO_TIME, WAITS
from .exchanges import FETCH, FETCH_219, PRODUCE, PRODUCE_219
from .framing.connections import ANSWERS_LATE, AT_ONCE, AT_ONCE_IN_DOUBT, AT_ONCE_PROVEN, AT_ONCE_UNKNOWN

#: A Fetch that came back this close to its max_wait_ms, or later, waited it out: brokers' timers tick in ms, and a Raft
#: leader ends idle Fetches up to 2 % early.
LONG_POLL_SLACK_NS = 2_000_000
LONG_POLL_SLACK_PART = 50
#: A request was read in a mute window if it is answered so long before the window ends.
MUTE_SLACK_NS = 10_000_000


@helper
def _charge_hol_wait(x, connection):  # type: ignore[no-untyped-def]
    """Split the head-of-line wait of an exchange by the causes of the exchange ahead.

    The wait ends with the response ahead, so it covers that exchange's parts from the latest one back. The rest lies in
    the head-of-line wait of the exchange ahead, and is split like that one.
    """
    rest = x.hol_wait_ns
    late = min(rest, connection.ahead_late)
    rest -= late
    broker = min(rest, connection.ahead_broker)
    rest -= broker
    mute = min(rest, connection.ahead_mute)
    rest -= mute
    x.hol_throttle_wait_ns = late + mute
    if connection.ahead_polls:
        x.hol_poll_wait_ns = broker
    if rest > 0 and connection.ahead_hol_wait > 0:
        part = min(1.0, rest / connection.ahead_hol_wait)
        x.hol_throttle_wait_ns += np.int64(part * connection.ahead_hol_throttle_wait)
        x.hol_poll_wait_ns += np.int64(part * connection.ahead_hol_poll_wait)


@helper
def _note_ahead(connection, x, late, mute):  # type: ignore[no-untyped-def]
    """Keep the times of an exchange for the requests behind it. `late`, `mute`: the two parts of its throttle wait."""
    connection.previous_response = x.response_first
    connection.ahead_late = late
    connection.ahead_broker = x.broker_ns
    connection.ahead_mute = mute
    connection.ahead_hol_wait = x.hol_wait_ns
    connection.ahead_hol_throttle_wait = x.hol_throttle_wait_ns
    connection.ahead_hol_poll_wait = x.hol_poll_wait_ns
    connection.ahead_polls = 1 if x.api_key in WAITS else 0


@helper
def _set_hol_wait(x, connection):  # type: ignore[no-untyped-def]
    """Set the head-of-line wait of an exchange. Return when it ended."""
    start = x.request_last
    if connection.previous_response > start:
        x.hol_wait_ns = max(np.int64(0), min(connection.previous_response, x.response_first) - start)
        start += x.hol_wait_ns
        if x.hol_wait_ns > 0:
            _charge_hol_wait(x, connection)
    return start


@helper
def _note_kip219(x, connection, waited, throttled):  # type: ignore[no-untyped-def]
    """Note how a broker throttles, if a throttled response shows it. `waited`: ns from when it could read the request,
    were it not mute; `throttled`: throttle_time_ms, in ns."""
    is_known = connection.answers_at_once != AT_ONCE_UNKNOWN
    # Where versions show that it answers late, timers may end a little early.
    if waited < (throttled - throttled // 4 if connection.answers_at_once == ANSWERS_LATE else throttled):
        connection.answers_at_once = AT_ONCE_PROVEN
    elif (not is_known and x.api_key == PRODUCE and x.api_version >= PRODUCE_219) or (
        not is_known and x.api_key == FETCH and x.api_version >= FETCH_219
    ):
        connection.answers_at_once = AT_ONCE


@helper
def _doubt_mute(x, connection):  # type: ignore[no-untyped-def]
    """Note that a request was read in the mute window. It has to be one that came after the window began."""
    if x.response_first > connection.mute_end - MUTE_SLACK_NS or x.request_first < connection.previous_response:
        return
    if connection.answers_at_once == AT_ONCE:
        connection.answers_at_once = AT_ONCE_IN_DOUBT
    elif connection.answers_at_once == AT_ONCE_IN_DOUBT:
        connection.answers_at_once = ANSWERS_LATE
        connection.mute_end = NO_TIME


@helper
def _is_long_poll(x, broker_ns):  # type: ignore[no-untyped-def]
    """Whether a Fetch waited out its max_wait_ms."""
    if x.api_key not in FETCHES or x.max_wait_ms <= 0:
        return False
    longest = np.int64(x.max_wait_ms) * 1_000_000
    return broker_ns >= longest - max(np.int64(LONG_POLL_SLACK_NS), longest // LONG_POLL_SLACK_PART)


@helper
def _set_times(x, connection):  # type: ignore[no-untyped-def]
    """Set the times between a request's last byte and its response's first one. Return the two parts of the throttle
    wait: the response held back, the request not read."""
    start = _set_hol_wait(x, connection)
    mute = np.int64(0)
    late = np.int64(0)
    if connection.mute_end > start:
        _doubt_mute(x, connection)
    if connection.mute_end > start:
        mute = max(np.int64(0), min(connection.mute_end, x.response_first) - start)
    broker = max(np.int64(0), x.response_first - start - mute)
    if x.throttle_time_ms > 0:
        throttled = np.int64(x.throttle_time_ms) * 1_000_000
        _note_kip219(x, connection, x.response_first - start, throttled)
        if connection.answers_at_once >= AT_ONCE:
            connection.mute_end = max(connection.mute_end, x.response_first + throttled)
        else:
            late = min(throttled, broker)
            broker -= late
    x.broker_ns = broker
    x.throttle_wait_ns = mute + late
    # If the clock stepped back in between, the parts may be longer than the whole.
    x.total_ns = max(x.total_ns, x.hol_wait_ns + x.throttle_wait_ns + broker)
    x.long_poll = 1 if _is_long_poll(x, broker) else 0
    return late, mute


@helper
def charge_times(x, connection):  # type: ignore[no-untyped-def]
    """Set the times of a finished exchange. Those of a connection come in order."""
    late = np.int64(0)
    mute = np.int64(0)
    if x.outcome == ANSWERED:
        if x.request_first != NO_TIME and x.response_last != NO_TIME:
            x.total_ns = max(np.int64(0), x.response_last - x.request_first)
        if x.request_last != NO_TIME and x.response_first != NO_TIME:
            late, mute = _set_times(x, connection)
    if x.response_first != NO_TIME:
        _note_ahead(connection, x, late, mute)
