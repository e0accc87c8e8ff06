"""Kernels of the tests: hints, helpers, an inlined one, records, and a kernel that shares a helper with another one."""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np

from kafkatap.kernels import helper, kernel
from kafkatap.kernels.decorator import inlined, record_dtype
from kafkatap.kernels.hints import prefetch
from kafkatap.kernels.readers import be32, signed32

PAIR = record_dtype(("key", "i4"), ("value", "i8"))


class Limits(NamedTuple):
    """A tuple within a tuple."""

    highest: Annotated[np.ndarray[Any, Any], np.int32]


class Pairs(NamedTuple):
    """Pairs, limits and an output, as one argument."""

    rows: Annotated[np.ndarray[Any, Any], PAIR]
    limits: Limits
    out: Annotated[np.ndarray[Any, Any], np.int64]


@helper
def clamp(value, low, high):  # type: ignore[no-untyped-def]
    """A value moved into low … high."""
    if value < low:
        return low
    return min(value, high)


@inlined
def weigh(row, factor):  # type: ignore[no-untyped-def]
    """Multiply a row's value where it stands."""
    row.value = clamp(np.int64(row.value) * factor, -1000, 1000)
    return np.int64(row.key)


@kernel(np.uint8, PAIR, int)
def read_pairs(buf, pairs, factor):  # type: ignore[no-untyped-def]
    """Big-endian pairs of 32 bits, weighed; return the sum of keys."""
    total = 0
    for i in range(min(len(buf) // 8, len(pairs))):
        prefetch(pairs, i + 4)  # the last ones lie outside
        prefetch(buf, 1 << 62)
        row = pairs[i]
        row.key = signed32(be32(buf, 8 * i))
        row.value = signed32(be32(buf, 8 * i + 4))
        total += weigh(row, factor)
    return total


@helper
def clamp_row(pairs, i, factor):  # type: ignore[no-untyped-def]
    """Clamp one value of a tuple of arrays; return whether that changed it."""
    limit = factor * np.int64(pairs.limits.highest[0])
    pairs.out[i] = clamp(np.int64(pairs.rows[i].value), -limit, limit)
    return pairs.out[i] != pairs.rows[i].value


@kernel(int, Pairs)
def spread(factor, pairs):  # type: ignore[no-untyped-def]
    """Clamp all values further; return the number that changed."""
    changed = 0
    for i in range(len(pairs.rows)):
        if clamp_row(pairs, i, factor):
            changed += 1
    return changed


def data() -> bytes:
    """20 pairs, most of them large, every fourth small."""
    numbers = (i * 2_654_435_761 % 2**32 if i % 4 else i for i in range(1, 41))
    return b"".join(n.to_bytes(4, "big") for n in numbers)


def run() -> tuple[int, int, list[tuple[int, int]], list[int]]:
    """Both kernels on the same bytes, the second one bound to its first argument, then to both."""
    pairs = np.zeros(20, PAIR)
    out = np.zeros(20, np.int64)
    total = read_pairs(np.frombuffer(data(), np.uint8).copy(), pairs, 3)
    limited = Pairs(pairs, Limits(np.array([5], np.int32)), out)
    changed = spread.bound(2)(limited)
    assert spread.bound(2, limited)() == changed
    return total, changed, [(int(k), int(v)) for k, v in pairs.tolist()], out.tolist()
