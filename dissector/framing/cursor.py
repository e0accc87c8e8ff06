"""Bounded reads: no read goes beyond the captured bytes.

A `Cursor` is a place in an array and the end of the bytes there. `Frame` (`correlation`) and `ChunkPart` (`frames`)
have the same three fields, so these reads work on them, too. A value whose bytes are not all there is MISSING, which no
value equals.
"""

from __future__ import annotations

from collections import namedtuple

import numpy as np

from kafkatap.kernels.decorator import helper
from kafkatap.kernels.readers import be16, be32, signed16, signed32

from ..programs.machine import long_varint

#: `at` and `end` are positions in `buf`.
Cursor = namedtuple("Cursor", "buf at end")
MISSING = -(2**62)


@helper
def left(cursor):  # type: ignore[no-untyped-def]
    """How many bytes are there."""
    return cursor.end - cursor.at


@helper
def skip(cursor, count):  # type: ignore[no-untyped-def]
    """The cursor `count` bytes further on."""
    return Cursor(cursor.buf, cursor.at + count, cursor.end)


@helper
def seq_behind(seq, count):  # type: ignore[no-untyped-def]
    """The sequence number `count` bytes further on, as of `frames.ChunkPart`: the upper half stays as it is."""
    return (seq - (seq & 0xFFFFFFFF)) | ((seq + count) & 0xFFFFFFFF)


@helper
def u1(cursor, offset):  # type: ignore[no-untyped-def]
    """The byte at an offset."""
    at = cursor.at + offset
    return np.int64(cursor.buf[np.uintp(at)]) if at < cursor.end else np.int64(MISSING)


@helper
def u2(cursor, offset):  # type: ignore[no-untyped-def]
    """16 bits at an offset, unsigned."""
    at = cursor.at + offset
    return be16(cursor.buf, at) if at + 2 <= cursor.end else np.int64(MISSING)


@helper
def i2(cursor, offset):  # type: ignore[no-untyped-def]
    """16 bits at an offset, signed."""
    at = cursor.at + offset
    return signed16(be16(cursor.buf, at)) if at + 2 <= cursor.end else np.int64(MISSING)


@helper
def i4(cursor, offset):  # type: ignore[no-untyped-def]
    """32 bits at an offset, signed."""
    at = cursor.at + offset
    return signed32(be32(cursor.buf, at)) if at + 4 <= cursor.end else np.int64(MISSING)


@helper
def varint(cursor, offset):  # type: ignore[no-untyped-def]
    """An unsigned varint at an offset: its value | its size << 32. Negative if it is malformed or not all there."""
    return long_varint(cursor.buf, cursor.at + offset, cursor.end)
