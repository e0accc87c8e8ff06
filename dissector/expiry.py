"""Requests that nothing will answer any more, for input without an end.

`expire` gives them up while their connections stay open. `mark_provisional` finds requests that will most likely end
without an answer, before they do. A request with acks=0 waits until a later response passes it, as some brokers answer
it; a closed connection may still bring late packets. Such rows are provisional: the final ones come later.
"""

from __future__ import annotations

import numpy as np

from kafkatap.kernels import kernel

from .framing.connections import CONNECTION
from .framing.tables import LINK, Tables
from .framing.waiting import give_up, outcome_without_answer


@kernel(Tables, int, int)
def expire(t, before, first):  # type: ignore[no-untyped-def]
    """Give up the requests that came before a time and still wait, of connections from `first` on. Return the
    connection at which `finished` is full, or how many connections there are."""
    for c in range(first, t.connections.shape[0]):
        connection = t.connections[c]
        if connection.is_open == 0:
            continue
        while connection.waiting_first >= 0 and t.exchanges[connection.waiting_first].request_last < before:
            if t.state[0].finished >= t.finished.shape[0]:
                return c
            give_up(t, c, np.int64(t.links[connection.waiting_first].next))
    return t.connections.shape[0]


@kernel(Tables, int, np.uint8, np.int32)
def mark_provisional(t, before, closed, found):  # type: ignore[no-untyped-def]
    """Mark the waiting requests that need a provisional row: with acks=0 those that came before a time, and all of the
    connections that are `closed` (one item each). Their slots go to `found`; return how many. Call it again while that
    is full."""
    made = 0
    for c in range(t.connections.shape[0]):
        connection = t.connections[c]
        if connection.is_open == 0:
            continue
        is_closed = c < closed.shape[0] and closed[c] != 0
        slot = np.int64(connection.waiting_first)
        while slot >= 0:
            link = t.links[slot]
            is_due = is_closed or (link.no_reply and t.exchanges[slot].request_last < before)
            if is_due and link.provisional == 0 and link.token == 0:
                if made == found.shape[0]:
                    return made
                link.provisional = 1 + outcome_without_answer(link, connection, t.streams, c)
                found[made] = slot
                made += 1
            slot = np.int64(link.next)
    return made


@kernel(np.uint8, CONNECTION, LINK)
def count_waiting(closed, connections, links):  # type: ignore[no-untyped-def]
    """Count the requests that expect a response, of connections that are not `closed` (one item each)."""
    waiting = 0
    for c in range(connections.shape[0]):
        connection = connections[c]
        if connection.is_open == 0 or (c < closed.shape[0] and closed[c] != 0):
            continue
        slot = np.int64(connection.waiting_first)
        while slot >= 0:
            if links[slot].no_reply == 0:
                waiting += 1
            slot = np.int64(links[slot].next)
    return waiting
