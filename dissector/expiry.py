"""Requests that nothing will answer any more, for input without an end.

`expire` gives them up while their connections go on. `foretell` finds those that will most likely end without an
answer, before they do: a request with acks=0 waits until a later response passes it, as some brokers answer it all the
same, and a closed connection may still bring late packets. Such rows are provisional: the final ones come later.
"""

from __future__ import annotations

import numpy as np

from kafkatap.kernels import kernel

from .dtypes import EXCHANGE
from .framing.connections import DIALOG, DONE, LINK, STREAM, Tables
from .framing.correlation import give_up, outcome_without_answer


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


@kernel(int, np.uint8, DIALOG, STREAM, EXCHANGE, LINK, np.int32)
def foretell(before, closed, dialogs, streams, exchanges, links, found):  # type: ignore[no-untyped-def]
    """Mark the waiting requests of which no provisional row was given yet: with acks=0 that came before a time, and all
    of connections that are `closed` (one each). Their numbers go to `found`; return how many. Call again while it is
    full."""
    made = 0
    for c in range(dialogs.shape[0]):
        dialog = dialogs[c]
        if dialog.open == 0:
            continue
        slot = np.int64(dialog.pending_first)
        while slot >= 0:
            link = links[slot]
            if link.provisional == 0 and link.token == 0:
                over = c < closed.shape[0] and closed[c] != 0
                if over or (link.no_reply and exchanges[slot].request_last < before):
                    if made == found.shape[0]:
                        return made
                    link.provisional = 1 + outcome_without_answer(link, dialog, streams, c)
                    found[made] = slot
                    made += 1
            slot = np.int64(link.next)
    return made


@kernel(np.uint8, DIALOG, LINK)
def count_waiting(closed, dialogs, links):  # type: ignore[no-untyped-def]
    """The requests that a response is expected to, of connections that are not `closed` (one each)."""
    waiting = 0
    for c in range(dialogs.shape[0]):
        if dialogs[c].open == 0 or (c < closed.shape[0] and closed[c] != 0):
            continue
        slot = np.int64(dialogs[c].pending_first)
        while slot >= 0:
            if links[slot].no_reply == 0:
                waiting += 1
            slot = np.int64(links[slot].next)
    return waiting
