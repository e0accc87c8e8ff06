"""Where the time of each exchange went: the broker, requests ahead of it on its connection, or a quota.

Times (measured against a broker's own clock): a broker reads one request of a connection at a time, so its time with
a request starts at max(the request's last byte, the previous response's first byte, the end of the mute window). The
mute window is the throttle_time_ms after a throttled response, for brokers since 2.0 (KIP-219), which answer at once
and then do not read that connection; older ones answer late, so that the throttling lies inside the response's own
time. Which one a broker is: the versions that it offers or answers, else whether a throttled response came earlier
than its throttle_time_ms.

A head-of-line wait is charged to what the request ahead was waiting for at that time: a quota, data, or the broker.
"""

from __future__ import annotations

import numpy as np

from kafkatap.kernels import kernel
from kafkatap.kernels.decorator import helper

from .dtypes import ANSWERED, EXCHANGE, FETCHES, NO_TIME, WAITS
from .exchanges import FETCH, FETCH_219, FREE_PARTS, FREE_PARTS_LEFT, PART, PRODUCE, PRODUCE_219
from .framing.connections import DIALOG, LINK

#: A Fetch that came back this close to its max_wait_ms, or later, waited it out: brokers' timers tick in ms, and a Raft
#: leader ends idle Fetches up to 2 % early.
LONG_POLL_SLACK_NS = 2_000_000
LONG_POLL_SLACK_PART = 50


@helper
def _charge_hol_wait(x, dialog):  # type: ignore[no-untyped-def]
    """Split the head-of-line wait of an exchange by what the exchange ahead of it was waiting for.

    The wait ends with the response ahead, so it covers that exchange's parts from the latest one back. What is left
    lies in the head-of-line wait of the exchange ahead, and is split as that one was.
    """
    left = x.hol_wait_ns
    late = min(left, dialog.ahead_late)
    left -= late
    broker = min(left, dialog.ahead_broker)
    left -= broker
    mute = min(left, dialog.ahead_mute)
    left -= mute
    x.hol_throttle_wait_ns = late + mute
    if dialog.ahead_polls:
        x.hol_poll_wait_ns = broker
    if left > 0 and dialog.ahead_hol_wait > 0:
        part = min(1.0, left / dialog.ahead_hol_wait)
        x.hol_throttle_wait_ns += np.int64(part * dialog.ahead_hol_throttle_wait)
        x.hol_poll_wait_ns += np.int64(part * dialog.ahead_hol_poll_wait)


@helper
def _note_ahead(dialog, x, late, mute):  # type: ignore[no-untyped-def]
    """Keep where the time of an exchange with a response went. `late`, `mute`: the two parts of its throttle wait."""
    dialog.ahead_late = late
    dialog.ahead_broker = x.broker_ns
    dialog.ahead_mute = mute
    dialog.ahead_hol_wait = x.hol_wait_ns
    dialog.ahead_hol_throttle_wait = x.hol_throttle_wait_ns
    dialog.ahead_hol_poll_wait = x.hol_poll_wait_ns
    dialog.ahead_polls = 1 if x.api_key in WAITS else 0


@kernel(np.int32, int, EXCHANGE, LINK, DIALOG, PART, np.int32, np.int32, np.int64)
def settle(done, count, exchanges, links, dialogs, parts, rows, owners, state):  # type: ignore[no-untyped-def]
    """Work out the times of done[:count], in order; rows[:n] are those that are exchanges (not bare tokens), owners
    their dialogs. Return n."""
    made = 0
    for i in range(count):
        slot = done[i]
        link = links[slot]
        x = exchanges[slot]
        dialog = dialogs[link.dialog]
        number = np.int64(link.parts)
        while number >= 0:
            following = np.int64(parts[number].next)
            parts[number].next = state[FREE_PARTS]
            state[FREE_PARTS] = number
            state[FREE_PARTS_LEFT] += 1
            number = following
        link.parts = -1
        if link.offered >= 0:
            dialog.answers_at_once = link.offered
        if link.token:
            continue
        rows[made] = slot
        owners[made] = link.dialog
        made += 1
        late = np.int64(0)
        mute = np.int64(0)
        if x.outcome == ANSWERED:
            if x.request_first != NO_TIME and x.response_last != NO_TIME:
                x.total_ns = max(np.int64(0), x.response_last - x.request_first)
            if x.request_last != NO_TIME and x.response_first != NO_TIME:
                start = x.request_last
                if dialog.previous_response > start:
                    x.hol_wait_ns = max(np.int64(0), min(dialog.previous_response, x.response_first) - start)
                    start += x.hol_wait_ns
                    if x.hol_wait_ns > 0:
                        _charge_hol_wait(x, dialog)
                if dialog.mute_end > start:
                    mute = max(np.int64(0), min(dialog.mute_end, x.response_first) - start)
                broker = max(np.int64(0), x.response_first - start - mute)
                throttled = np.int64(0)
                if x.throttle_time_ms > 0:
                    throttled = np.int64(x.throttle_time_ms) * 1_000_000
                if throttled > 0:
                    if (x.api_key == PRODUCE and x.api_version >= PRODUCE_219) or (
                        x.api_key == FETCH and x.api_version >= FETCH_219
                    ):
                        dialog.answers_at_once = 1
                    if dialog.answers_at_once < 0 and broker < throttled:
                        dialog.answers_at_once = 1
                    if dialog.answers_at_once == 1:
                        dialog.mute_end = max(dialog.mute_end, x.response_first + throttled)
                    else:
                        late = min(throttled, broker)
                        broker -= late
                x.broker_ns = broker
                x.throttle_wait_ns = mute + late
                # Where the clock stepped back in between, the parts may be longer than the whole.
                x.total_ns = max(x.total_ns, x.hol_wait_ns + x.throttle_wait_ns + broker)
                waits = x.api_key in FETCHES and x.max_wait_ms > 0
                longest = np.int64(x.max_wait_ms) * 1_000_000
                slack = max(np.int64(LONG_POLL_SLACK_NS), longest // LONG_POLL_SLACK_PART)
                if waits and broker >= longest - slack:
                    x.long_poll = 1
        if x.response_first != NO_TIME:
            dialog.previous_response = x.response_first
            _note_ahead(dialog, x, late, mute)
    return made
