"""Write values to an array of bytes, one after the other: for digests of what they are.

Each function returns the place behind its value, also if the array ends before it and nothing was written. So a caller
that gets a place beyond the array's end knows how long the array has to be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from .arrays import untouched
from .declarations import helper

#: Bytes of the array that values are written to, at first.
_ROOM = 1 << 20


@helper
def put_int(out, at, value):  # type: ignore[no-untyped-def]
    """Write an int64, the lowest byte first."""
    if at + 8 <= out.shape[0]:
        for k in range(8):
            out[at + k] = (value >> (8 * k)) & 255
    return at + 8


@helper
def put_bytes(out, at, buf, first, length):  # type: ignore[no-untyped-def]
    """Write a length and buf[first:first+length]."""
    at = put_int(out, at, length)
    if at + length <= out.shape[0]:
        for k in range(length):
            out[at + k] = buf[first + k]
    return at + length


def written(write: Callable[[int, Any, Any], int], count: int) -> Iterator[bytes]:
    """Yield what `write(first, out, ends)` writes to the array of bytes `out` for each of `count` items.

    It writes items `first` and later and returns how many are written. `ends[i]` is where item i ends; for the first
    one that is not written, as `out` is full, it is the length of that item.
    """
    out, ends = np.empty(_ROOM, np.uint8), np.zeros(count, np.int64)
    first = 0
    while first < count:
        done = write(first, out, ends)
        stops = ends[first:done].tolist()
        whole = out[: stops[-1] if stops else 0].tobytes()
        if len(out) > _ROOM:  # what was written is there twice
            out = np.empty(_ROOM, np.uint8)
        start = 0
        for stop in stops:
            yield whole[start:stop]
            start = stop
        if done < count and ends[done] > len(out):
            out = untouched(2 * int(ends[done]), np.uint8)
        first = done
