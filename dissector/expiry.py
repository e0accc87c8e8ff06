"""Requests that nothing will answer any more, given up while their connections go on: for input without an end."""

from __future__ import annotations

import numpy as np

from kafkatap.kernels import kernel

from .correlation import give_up
from .dialogs import DIALOG, DONE, LINK, STREAM, Tables
from .rows import EXCHANGE


@kernel(int, int, DIALOG, STREAM, EXCHANGE, LINK, np.int32, np.int64)
def expire(before, first, dialogs, streams, exchanges, links, done, state):  # type: ignore[no-untyped-def]
    """Give up requests that came before a time and still wait, of connections from `first` on; return the connection
    at which `done` was full, or their number."""
    # Of all the tables, only these are asked for.
    t = Tables(
        state, state, state, dialogs, streams, state, exchanges, links, state, done, state, state, state, state, state,
        state, state, state, state, state, state,
    )  # fmt: skip
    for c in range(first, dialogs.shape[0]):
        dialog = dialogs[c]
        if dialog.open == 0:
            continue
        while dialog.pending_first >= 0 and exchanges[dialog.pending_first].request_last < before:
            if state[DONE] >= done.shape[0]:
                return c
            give_up(t, c, np.int64(links[dialog.pending_first].next))
    return dialogs.shape[0]
