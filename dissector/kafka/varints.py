"""Numbers of variable length in bytes: seven bits in each byte, the lowest first (as in Protocol Buffers).

Kernels have their own (`programs.machine`, `records.record_reader`).
"""

from __future__ import annotations

#: Bytes of the longest varints of 32 and of 64 bits.
VARINT_32, VARINT_64 = 5, 10


def varint(data: bytes | memoryview, at: int, end: int, longest: int = VARINT_64) -> tuple[int, int]:
    """An unsigned varint of at most `longest` bytes, and the place behind it; -1 if there is none before `end`."""
    if at < end and data[at] < 128:
        return data[at], at + 1
    value = shift = 0
    end = min(end, at + longest)
    while at < end:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
    return 0, -1


def signed_varint(data: bytes | memoryview, at: int, end: int) -> tuple[int, int]:
    """A signed varint of at most 64 bits (zigzag), and the place behind it; -1 if there is none before `end`."""
    value, following = varint(data, at, end)
    return (value >> 1) ^ -(value & 1), following
