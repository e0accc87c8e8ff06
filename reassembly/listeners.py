"""The ends that answered a SYN: they listen, so the other end of a connection with one of them is the client.

An open-addressed table of LISTENER rows whose size is a power of two; at most half of it is used. Rows are never taken
out. `state` (int64, of `streams`) holds their number and the seed of the hash.
"""

from __future__ import annotations

import numpy as np

from kafkatap.kernels import kernel
from kafkatap.kernels.decorator import helper
from kafkatap.kernels.hashing import hash_start, mix, mix64, spread

from .dtypes import LISTENER

#: Places in the state of reassembly's kernels.
LISTENERS, LISTENER_SEED = 0, 1


@helper
def _find(listeners, high, low, port, seed):  # type: ignore[no-untyped-def]
    """The row of an end, or the free row where it would be."""
    mask = listeners.shape[0] - 1
    at = spread(mix(mix64(mix64(hash_start(seed), low, seed), high, seed), port, seed)) & mask
    while True:
        row = listeners[at]
        if row.port == 0 or (row.port == port and row.low == low and row.high == high):
            return at
        at = (at + 1) & mask


@helper
def listeners_full(listeners, state):  # type: ignore[no-untyped-def]
    """Whether the table has to grow before another end is noted."""
    return 2 * state[LISTENERS] + 2 > listeners.shape[0]


@helper
def _note(listeners, high, low, port, state):  # type: ignore[no-untyped-def]
    if port == 0:
        return
    row = listeners[_find(listeners, high, low, port, state[LISTENER_SEED])]
    if row.port == 0:
        state[LISTENERS] += 1
        row.high = high
        row.low = low
        row.port = port


@helper
def note_listener(listeners, flow, side, state):  # type: ignore[no-untyped-def]
    """Remember that this end of a flow listens."""
    if side:
        _note(listeners, flow.b_high, flow.b_low, np.int64(flow.b_port), state)
    else:
        _note(listeners, flow.a_high, flow.a_low, np.int64(flow.a_port), state)


@helper
def known_client(listeners, flow, state):  # type: ignore[no-untyped-def]
    """The client's direction where exactly one end is known to listen, else -1."""
    seed = state[LISTENER_SEED]
    a = listeners[_find(listeners, flow.a_high, flow.a_low, np.int64(flow.a_port), seed)].port != 0
    b = listeners[_find(listeners, flow.b_high, flow.b_low, np.int64(flow.b_port), seed)].port != 0
    if a == b:
        return np.int64(-1)
    return np.int64(1) if a else np.int64(0)


@kernel(LISTENER, LISTENER, np.int64)
def note_listeners(ends, listeners, state):  # type: ignore[no-untyped-def]
    """Note all of `ends`, for which the table has room."""
    for i in range(ends.shape[0]):
        _note(listeners, ends[i].high, ends[i].low, np.int64(ends[i].port), state)
    return 0
