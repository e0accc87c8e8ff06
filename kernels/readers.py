"""Reads of integers from a byte array, for kernels. The caller has checked the end: they read at, …, at + width - 1.

Indices are unsigned where they are used, because numba lets a signed index count from the array's end.
"""

from __future__ import annotations

import numpy as np

from .declarations import helper


@helper
def be16(buf, at):  # type: ignore[no-untyped-def]
    """Read unsigned 16 bits, big-endian, as int64."""
    return (np.int64(buf[np.uintp(at)]) << 8) | np.int64(buf[np.uintp(at + 1)])


@helper
def be32(buf, at):  # type: ignore[no-untyped-def]
    """Read unsigned 32 bits, big-endian, as int64."""
    return (
        (np.int64(buf[np.uintp(at)]) << 24)
        | (np.int64(buf[np.uintp(at + 1)]) << 16)
        | (np.int64(buf[np.uintp(at + 2)]) << 8)
        | np.int64(buf[np.uintp(at + 3)])
    )


@helper
def le32(buf, at):  # type: ignore[no-untyped-def]
    """Read unsigned 32 bits, little-endian, as int64."""
    return (
        (np.int64(buf[np.uintp(at + 3)]) << 24)
        | (np.int64(buf[np.uintp(at + 2)]) << 16)
        | (np.int64(buf[np.uintp(at + 1)]) << 8)
        | np.int64(buf[np.uintp(at)])
    )


@helper
def le16(buf, at):  # type: ignore[no-untyped-def]
    """Read unsigned 16 bits, little-endian, as int64."""
    return (np.int64(buf[np.uintp(at + 1)]) << 8) | np.int64(buf[np.uintp(at)])


@helper
def signed16(value):  # type: ignore[no-untyped-def]
    """Return 16 bits as a signed number."""
    return value - 65536 if value >= 32768 else value


@helper
def signed32(value):  # type: ignore[no-untyped-def]
    """Return 32 bits as a signed number, such as the shortest distance between two sequence numbers."""
    return value - 4294967296 if value >= 2147483648 else value


@helper
def be64(buf, at):  # type: ignore[no-untyped-def]
    """Read signed 64 bits, big-endian, as int64."""
    high = be32(buf, at)
    low = be32(buf, at + 4)
    if high >= 2147483648:
        high -= 4294967296
    return high * 4294967296 + low


@helper
def same_bytes(one, at, other, there, length):  # type: ignore[no-untyped-def]
    """Return whether one[at:at+length] equals other[there:there+length]."""
    k = np.int64(0)
    while k < length and one[np.uintp(at + k)] == other[np.uintp(there + k)]:
        k += 1
    return k == length
