"""A hash table of the exchanges of a batch by number, for kernels: int32, 1 + the row of each, 0 where it is free.

The number of places is a power of two, and at least twice that of exchanges.
"""

from __future__ import annotations

import numpy as np

from kafkatap.kernels.decorator import helper


@helper
def enter_places(places, exchanges):  # type: ignore[no-untyped-def]
    """Enter exchanges (EXCHANGE), in place of those before."""
    mask = len(places) - 1
    for k in range(len(places)):
        places[k] = 0
    for i in range(len(exchanges)):
        number = np.int64(exchanges[i].exchange)
        place = (number ^ (number >> 12)) & mask
        while places[place] != 0:
            place = (place + 1) & mask
        places[place] = i + 1


@helper
def row_of(places, exchanges, number):  # type: ignore[no-untyped-def]
    """The row of an exchange by its number, -1 if it is missing."""
    mask = len(places) - 1
    place = (number ^ (number >> 12)) & mask
    while places[place] != 0:
        row = np.int64(places[place]) - 1
        if exchanges[row].exchange == number:
            return row
        place = (place + 1) & mask
    return np.int64(-1)
