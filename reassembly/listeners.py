"""The ends that answered a SYN: they listen, so the other end of a connection with one of them is the client.

An open-addressed table of LISTENER rows whose size is a power of two. At most half of it is used. Rows are never
removed.
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np

from kafkatap.kernels import kernel
from kafkatap.kernels.decorator import helper, record_dtype
from kafkatap.kernels.hashing import hash_start, mix, mix64, new_seed, spread

from .dtypes import LISTENER

Array = np.ndarray[Any, Any]
#: One row: how many listeners there are, and the seed of their hashes.
LISTENERS_STATE = record_dtype(("count", "i8"), ("seed", "i8"))


class ListenerArrays(NamedTuple):
    """The arrays of a `ListenerTable`, as one argument of a kernel."""

    state: Annotated[Array, LISTENERS_STATE]
    rows: Annotated[Array, LISTENER]


@helper
def _place(t, high, low, port):  # type: ignore[no-untyped-def]
    """Return the row of an end, or the empty row where it belongs."""
    mask = t.rows.shape[0] - 1
    seed = t.state[0].seed
    at = spread(mix(mix64(mix64(hash_start(seed), low, seed), high, seed), port, seed)) & mask
    while True:
        row = t.rows[at]
        if row.port == 0 or (row.port == port and row.low == low and row.high == high):
            return at
        at = (at + 1) & mask


@helper
def listeners_full(t):  # type: ignore[no-untyped-def]
    """Return whether the table has to grow before another end is added."""
    return 2 * t.state[0].count + 2 > t.rows.shape[0]


@helper
def add_end(t, high, low, port):  # type: ignore[no-untyped-def]
    """Add an end that listens, unless its port is 0. There is room."""
    if port == 0:
        return
    row = t.rows[_place(t, high, low, port)]
    if row.port == 0:
        t.state[0].count += 1
        row.high = high
        row.low = low
        row.port = port


@helper
def add_listener(t, flow, direction):  # type: ignore[no-untyped-def]
    """Add the end of a flow that sends `direction`."""
    if direction:
        add_end(t, flow.b_high, flow.b_low, np.int64(flow.b_port))
    else:
        add_end(t, flow.a_high, flow.a_low, np.int64(flow.a_port))


@helper
def known_client(t, flow):  # type: ignore[no-untyped-def]
    """Return the client's direction if exactly one end is known to listen, else -1."""
    a = t.rows[_place(t, flow.a_high, flow.a_low, np.int64(flow.a_port))].port != 0
    b = t.rows[_place(t, flow.b_high, flow.b_low, np.int64(flow.b_port))].port != 0
    if a == b:
        return np.int64(-1)
    return np.int64(1) if a else np.int64(0)


@kernel(LISTENER, ListenerArrays)
def add_listeners(ends, t):  # type: ignore[no-untyped-def]
    """Add all of `ends`, for which the table has room."""
    for i in range(ends.shape[0]):
        add_end(t, ends[i].high, ends[i].low, np.int64(ends[i].port))
    return 0


class ListenerTable:
    """A set of ends that listen."""

    def __init__(self) -> None:
        self._state = np.zeros(1, LISTENERS_STATE)
        self._state["seed"] = new_seed()
        self.clear()

    @property
    def arrays(self) -> ListenerArrays:
        return ListenerArrays(self._state, self._rows)

    def __len__(self) -> int:
        return int(self._state["count"][0])

    @property
    def rows(self) -> Array:
        """LISTENER rows of all ends."""
        used: Array = self._rows[self._rows["port"] != 0]
        return used

    def clear(self, places: int = 256) -> None:
        """Remove all ends. `places`: a power of two; half of them can be used."""
        self._rows = np.zeros(places, LISTENER)
        self._state["count"] = 0

    def add(self, ends: Array) -> None:
        """Add ends (LISTENER rows)."""
        while 2 * (int(self._state["count"][0]) + len(ends)) + 2 > len(self._rows):
            self.grow()
        add_listeners(np.ascontiguousarray(ends), self.arrays)

    def grow(self) -> None:
        """Make room for as many ends again."""
        known = self.rows
        self.clear(2 * len(self._rows))
        add_listeners(known, self.arrays)
