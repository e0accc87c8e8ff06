"""Match facts of the same exchange, topic and partition, such as a partition of a request with that of its response.

Both lists have their exchanges in the same order (`FactRows.turn`). A hash table of one exchange at a time finds the
row, so the time grows with the number of rows, whatever a message has. The slots of earlier exchanges need not be
cleared: their rows come before the first one of the current exchange.
"""

from __future__ import annotations

import numpy as np

from kafkatap.kernels import helper, kernel
from kafkatap.kernels.hashing import hash_start, mix, mix64, new_seed, spread

from ..batch import Array
from .gathered import FactRows


@helper
def _start_of(place, seed, mask):  # type: ignore[no-untyped-def]
    """The first slot of a place."""
    return spread(mix64(mix(hash_start(seed), place >> 48, seed), place, seed)) & mask


@kernel(np.int64, np.int64, np.int64, np.int64, np.int32, int, np.int64)
def match_places(in_exchange, in_place, exchange, place, slots, seed, out):  # type: ignore[no-untyped-def]
    """Write the first row of `in_place` for each of `place` in the same exchange, -1 if there is none.

    `slots`: -1s, a power of two, more than twice the rows that an exchange has.
    """
    mask = np.int64(len(slots) - 1)
    first = np.int64(0)
    end = np.int64(0)
    for i in range(len(place)):
        number = exchange[i]
        if end == first or in_exchange[first] != number:
            first = end
            while first < len(in_exchange) and in_exchange[first] < number:
                first += 1
            end = first
            while end < len(in_exchange) and in_exchange[end] == number:
                slot = _start_of(in_place[end], seed, mask)
                while slots[slot] >= first and in_place[slots[slot]] != in_place[end]:
                    slot = (slot + 1) & mask
                if slots[slot] < first:
                    slots[slot] = end
                end += 1
        out[i] = -1
        if end > first:
            slot = _start_of(place[i], seed, mask)
            while slots[slot] >= first:
                if in_place[slots[slot]] == place[i]:
                    out[i] = slots[slot]
                    break
                slot = (slot + 1) & mask
    return len(place)


def matched(facts: FactRows, wanted: FactRows) -> Array:
    """The index of the first of `facts` with the exchange, topic and partition of each of `wanted`: int64, -1: none."""
    out = np.full(len(wanted), -1, np.int64)
    if len(facts) and len(wanted):
        turn = facts.turn()
        most = int(np.bincount(turn).max())
        slots = np.full(1 << (2 * most).bit_length(), -1, np.int32)
        match_places(turn, _places(facts), wanted.turn(), _places(wanted), slots, new_seed(), out)
    return out


def _places(facts: FactRows) -> Array:
    """A number for the topic and the partition of each fact. A topic has a name or an id."""
    topic = np.maximum(facts["topic"], facts["topic_id"]).astype(np.int64)
    places: Array = topic << 32 | facts["partition"].astype(np.int64) & 0xFFFFFFFF
    return places
