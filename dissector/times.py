"""The times of each exchange by their causes: the broker, requests ahead on its connection, or a quota.

A broker reads one request of a connection at a time. So its time with a request starts at the latest of: the request's
last byte, the previous response's first byte, and the end of the mute window. (Measured against a broker's own clock.)

The mute window is the throttle_time_ms after a throttled response. Brokers since 2.0 (KIP-219) answer at once, and then
do not read that connection. Older brokers, and some that are not Apache's, answer late, so the throttling lies in the
response's own time. The versions that a broker offers or answers show which one it is, unless the wire shows it:

* A throttled response that comes before its throttle_time_ms was not held back.
* A request that is answered well within the mute window was read in it. If that happens twice, and no throttled
  response came early, the broker holds responses back.

A head-of-line wait is charged to the cause that the request ahead had at that time: a quota, data, loss, or the broker.
A whole request waits for one ahead that is not whole only if segments of that one were lost. If
the throttle time of a response was not captured, nobody knows how long the broker muted the connection behind it. Then
the broker time of the request that waited behind it may be a throttle wait, and so may the wait behind that request.

A broker that answers two requests out of order works on both at once: neither waits for the other, nor a third one for
them.

The transfers of request and response are split by what kept the sender from sending (`stalls` of reassembly, which
arrive as `framing.silences`): loss, the receiver's window, the sender. While data flows, or a round trip is awaited, it
is the path's time. Two more parts of the time between both are losses: until the request reached the broker, if it had
to be sent again, and while the first byte of the response was missing, but bytes behind it came. So is the time in
which the response waited at the broker until a lost segment of earlier responses was acknowledged.

A capture from another place than the broker's host adds the round trip between both to each request. It is a part of
the head-of-line wait and of the broker time, and has columns of its own (`framing.silences`).

A muted broker does not read, so the window of a large request closes. What a request waited for the window during a
mute is throttle wait.
"""

from __future__ import annotations

import numpy as np

from kafkatap.kernels.decorator import helper

from .dtypes import ANSWERED, FETCHES, INCOMPLETE, NO_INT32, NO_REPLY_EXPECTED, NO_TIME, ORPHAN_RESPONSE, WAITS
from .exchanges import FETCH, FETCH_219, PRODUCE, PRODUCE_219
from .framing.connections import ANSWERS_LATE, AT_ONCE, AT_ONCE_IN_DOUBT, AT_ONCE_PROVEN, AT_ONCE_UNKNOWN

#: A Fetch that came back this close to its max_wait_ms, or later, waited it out: brokers' timers tick in ms, and a Raft
#: leader ends idle Fetches up to 2 % early.
LONG_POLL_SLACK_NS = 2_000_000
LONG_POLL_SLACK_PART = 50
#: A request was read in a mute window if it is answered so long before the window ends.
MUTE_SLACK_NS = 10_000_000
#: The broker time of a request that was not captured: longer than any wait behind it.
_UNKNOWN_NS = 1 << 62


@helper
def _charge_hol_wait(x, connection, start):  # type: ignore[no-untyped-def]
    """Split the head-of-line wait of an exchange, from `start` on, by the causes of the exchange ahead.

    The wait ends with the response ahead, so it covers that exchange's parts from the latest one back. Before its own
    head-of-line wait, which is split like that one, its request was not whole.
    """
    rest = x.hol_wait_ns
    late = min(rest, connection.ahead_late)
    rest -= late
    missing = min(rest, connection.ahead_missing)
    rest -= missing
    broker = min(rest, connection.ahead_broker)
    rest -= broker
    mute = min(rest, connection.ahead_mute)
    rest -= mute
    x.hol_throttle_wait_ns = late + mute
    x.hol_loss_wait_ns = missing
    if connection.ahead_polls:
        x.hol_poll_wait_ns = broker
    elif connection.ahead_in_doubt:
        x.hol_unknown_wait_ns = broker
    if rest > 0 and connection.ahead_hol_wait > 0:
        part = min(1.0, rest / connection.ahead_hol_wait)
        x.hol_throttle_wait_ns += np.int64(part * connection.ahead_hol_throttle_wait)
        x.hol_poll_wait_ns += np.int64(part * connection.ahead_hol_poll_wait)
        x.hol_unknown_wait_ns += np.int64(part * connection.ahead_hol_unknown_wait)
        x.hol_loss_wait_ns += np.int64(part * connection.ahead_hol_loss_wait)
        rest -= min(rest, connection.ahead_hol_wait)
    x.hol_loss_wait_ns += max(np.int64(0), min(rest, connection.ahead_arrived - start))


@helper
def _note_ahead(connection, x, link, late, mute, missing, arrived):  # type: ignore[no-untyped-def]
    """Keep the times of an exchange for the requests behind it. `late`, `mute`: the two parts of its throttle wait.
    `missing`: the loss of its response. `arrived`: when its request was whole at the broker."""
    is_lost = link.request_lost == 1
    is_unread = is_lost or (x.response_status == INCOMPLETE and x.throttle_time_ms == NO_INT32)
    connection.previous_response = x.response_first
    connection.ahead_unread = 1 if is_unread else 0
    connection.ahead_in_doubt = 1 if is_unread or x.behind_unread == 1 else 0
    connection.ahead_late = late
    connection.ahead_broker = _UNKNOWN_NS if is_lost else x.broker_ns
    connection.ahead_mute = mute
    connection.ahead_hol_wait = x.hol_wait_ns
    connection.ahead_hol_throttle_wait = x.hol_throttle_wait_ns
    connection.ahead_hol_poll_wait = x.hol_poll_wait_ns
    connection.ahead_hol_unknown_wait = x.hol_unknown_wait_ns
    connection.ahead_hol_loss_wait = x.hol_loss_wait_ns
    connection.ahead_missing = missing
    connection.ahead_arrived = arrived
    connection.ahead_passed = link.passed
    connection.ahead_polls = 1 if x.api_key in WAITS else 0


@helper
def _set_hol_wait(x, connection, link, start):  # type: ignore[no-untyped-def]
    """Set the head-of-line wait of an exchange whose request arrived at `start`. Return when it ended."""
    is_in_order = link.passed == 0 and connection.ahead_passed == 0
    if is_in_order and connection.previous_response > start:
        x.hol_wait_ns = max(np.int64(0), min(connection.previous_response, x.response_first) - start)
        start += x.hol_wait_ns
        if x.hol_wait_ns > 0:
            _charge_hol_wait(x, connection, start - x.hol_wait_ns)
            x.behind_unread = connection.ahead_unread
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
def _waiting(x, link, broker_ns):  # type: ignore[no-untyped-def]
    """How much of the broker time the request waited for data or members. Brokers end a wait for members when the
    rebalance timeout is over; a request without one may wait for ever."""
    if x.api_key not in WAITS:
        return np.int64(0)
    if x.api_key in FETCHES and x.max_wait_ms >= 0:
        return min(broker_ns, np.int64(x.max_wait_ms) * 1_000_000)
    if x.api_key not in FETCHES and link.wait_ms > 0:
        return min(broker_ns, np.int64(link.wait_ms) * 1_000_000)
    return broker_ns


@helper
def _muted_transfer(x, connection, waited):  # type: ignore[no-untyped-def]
    """How much of the time that a request `waited` for the window passed while the connection was muted. Of a run of
    windows, as much as these take of it: between them the broker works on the requests ahead."""
    if connection.mute_end == NO_TIME:
        return np.int64(0)
    begin = max(x.request_first, connection.mute_begin)
    within = max(np.int64(0), min(connection.mute_end, x.request_last) - begin)
    run = connection.mute_end - connection.mute_begin
    if connection.mute_sum < run:
        within = np.int64(within * (connection.mute_sum / run))
    return min(np.int64(waited), within)


@helper
def _begin_mute(x, connection, throttled):  # type: ignore[no-untyped-def]
    """The broker mutes the connection for `throttled` ns. A request that it began to send in the window before is in
    the same run of windows: the broker reads it between both, and answers it."""
    if connection.mute_end == NO_TIME or x.request_first > connection.mute_end:
        connection.mute_begin = x.response_first
        connection.mute_sum = 0
    end = x.response_first + throttled
    connection.mute_sum += max(np.int64(0), end - max(connection.mute_end, x.response_first))
    connection.mute_end = max(connection.mute_end, end)


@helper
def _request_whole(x, link):  # type: ignore[no-untyped-def]
    """When the last missing byte of a request came. A retransmission may come later than the last byte."""
    if link.request_whole == NO_TIME or x.response_first == NO_TIME:
        return np.int64(x.request_last)
    return max(np.int64(x.request_last), min(np.int64(link.request_whole), np.int64(x.response_first)))


@helper
def _set_round_trip(x, round_trip, mute):  # type: ignore[no-untyped-def]
    """Set the parts of head-of-line wait and broker time that were the round trip to the broker. It began with them."""
    if round_trip <= 0:
        return
    behind = x.hol_wait_ns - x.hol_throttle_wait_ns - x.hol_poll_wait_ns - x.hol_unknown_wait_ns
    behind -= x.hol_loss_wait_ns
    x.hol_round_trip_ns = max(np.int64(0), min(behind, np.int64(round_trip)))
    rest = round_trip - x.hol_wait_ns - mute
    x.round_trip_ns = max(np.int64(0), min(x.broker_ns - x.waiting_ns, np.int64(rest)))


@helper
def _set_times(x, connection, link):  # type: ignore[no-untyped-def]
    """Set the times between a request's last byte and its response's first one. Return the two parts of the throttle
    wait, the response held back and the request not read, the loss of the response, and when the request was whole."""
    muted = _muted_transfer(x, connection, link.request_receiver_ns)
    whole = _request_whole(x, link)
    arrived = whole
    if link.reached != NO_TIME:
        arrived = max(arrived, min(link.reached, x.response_first))
    x.loss_ns += arrived - whole
    start = _set_hol_wait(x, connection, link, arrived)
    mute = np.int64(0)
    late = np.int64(0)
    if connection.mute_end > start:
        _doubt_mute(x, connection)
    if connection.mute_end > start:
        mute = max(np.int64(0), min(connection.mute_end, x.response_first) - start)
    broker = max(np.int64(0), x.response_first - start - mute)
    missing = min(broker, link.late_ns)
    x.loss_ns += missing
    broker -= missing
    if x.throttle_time_ms > 0:
        throttled = np.int64(x.throttle_time_ms) * 1_000_000
        _note_kip219(x, connection, x.response_first - start, throttled)
        if connection.answers_at_once >= AT_ONCE:
            _begin_mute(x, connection, throttled)
        else:
            late = min(throttled, broker)
            broker -= late
    x.broker_ns = broker
    x.waiting_ns = _waiting(x, link, broker)
    _set_round_trip(x, link.round_trip_ns - (arrived - whole), mute)
    x.receiver_ns -= muted
    x.throttle_wait_ns = mute + late + muted
    connection.wait_loss_sum_ns += arrived - whole + missing
    connection.muted_sum_ns += muted
    x.long_poll = 1 if _is_long_poll(x, broker) else 0
    return late, mute, missing, arrived


@helper
def _set_path(x, link, stalled):  # type: ignore[no-untyped-def]
    """Set the path's time: the transfers without `stalled` ns. What the clock's steps leave is unexplained."""
    transfers = np.int64(0)
    if x.request_first != NO_TIME:
        transfers += max(np.int64(0), _request_whole(x, link) - x.request_first)
    if x.response_last != NO_TIME:
        transfers += max(np.int64(0), max(x.response_last, link.response_whole) - x.response_first)
    x.path_ns = max(np.int64(0), transfers - stalled)
    known = x.broker_ns + x.hol_wait_ns + x.throttle_wait_ns + x.loss_ns + x.receiver_ns + x.sender_ns + x.path_ns
    x.unexplained_ns = max(x.unexplained_ns, x.total_ns - known)
    # If the clock stepped back in between, the parts may be longer than the whole.
    x.total_ns = known + x.unexplained_ns


@helper
def _clear_parts(x):  # type: ignore[no-untyped-def]
    """An exchange without an answer, or without times, has no parts."""
    x.loss_ns = 0
    x.receiver_ns = 0
    x.sender_ns = 0
    x.nagle_ns = 0
    x.unexplained_ns = 0


@helper
def _add_up(x, connection):  # type: ignore[no-untyped-def]
    """Add an exchange to the sums of its connection."""
    connection.exchanges += 1
    if x.outcome == ANSWERED:
        connection.total_sum_ns += x.total_ns
        connection.hol_wait_sum_ns += x.hol_wait_ns
        connection.throttle_wait_sum_ns += x.throttle_wait_ns
        if x.api_key not in WAITS:
            connection.broker_sum_ns += x.broker_ns
    elif x.outcome != NO_REPLY_EXPECTED and x.outcome != ORPHAN_RESPONSE:
        connection.unanswered += 1


@helper
def charge_times(x, connection, link):  # type: ignore[no-untyped-def]
    """Set the times of a finished exchange. Those of a connection come in order. `link`: its LINK."""
    late = np.int64(0)
    mute = np.int64(0)
    missing = np.int64(0)
    arrived = np.int64(NO_TIME)
    if x.outcome == ANSWERED:
        if x.request_first != NO_TIME and x.response_last != NO_TIME:
            x.total_ns = max(np.int64(0), max(x.response_last, link.response_whole) - x.request_first)
        if x.request_last != NO_TIME and x.response_first != NO_TIME:
            stalled = x.loss_ns + x.receiver_ns + x.sender_ns + x.unexplained_ns
            late, mute, missing, arrived = _set_times(x, connection, link)
            _set_path(x, link, stalled)
        else:
            _clear_parts(x)
            x.unexplained_ns = x.total_ns
    else:
        _clear_parts(x)
    _add_up(x, connection)
    if x.response_first != NO_TIME:
        _note_ahead(connection, x, link, late, mute, missing, arrived)
