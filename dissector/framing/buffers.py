"""The pool of stream buffers, and the segments of a buffer that is searched.

A buffer has 2^class bytes. A finished frame still lies in its buffer until it is decoded, so that buffer is deferred:
it is free after the next drain. A buffer that its frame has outgrown is free at once. Large free buffers return their
memory to the system (`BufferPool.release`), so the pool takes the memory that its frames take.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kafkatap.kernels.arrays import drop_pages, moved, untouched
from kafkatap.kernels.decorator import helper
from kafkatap.kernels.table import release_row, take_row

Array = np.ndarray[Any, Any]

#: Sizes of buffers: 2^6 bytes and up.
SMALLEST_CLASS, CLASSES = 6, 34
#: Buffers for less than this grow in large steps.
SMALL = 1 << 16
#: From this class on (1 MiB) free buffers return their memory.
LARGE_CLASS = 20
#: Bytes of a new pool; only those that are used take memory.
_POOL = 1 << 30
#: Large free buffers may take this much memory.
FREE_KEPT = 16 << 20


@helper
def buffer_class(size):  # type: ignore[no-untyped-def]
    """The smallest class whose buffers hold `size` bytes."""
    number = np.int64(SMALLEST_CLASS)
    while (np.int64(1) << number) < size:
        number += 1
    return number


@helper
def take_buffer(t, number):  # type: ignore[no-untyped-def]
    """A buffer of a class: a free one, or a new one from the pool's top, where the caller made room."""
    state = t.state[0]
    state.live_buffers += 1
    head = t.free_buffers[number - SMALLEST_CLASS]
    if head > 0:
        at = head - 1
        following = np.int64(0)
        for k in range(8):
            following |= np.int64(t.pool[at + k]) << (8 * k)
        t.free_buffers[number - SMALLEST_CLASS] = following
        if number >= LARGE_CLASS:
            state.free_large_bytes = max(np.int64(0), state.free_large_bytes - (np.int64(1) << number))
        return at
    at = np.int64(state.pool_top)
    state.pool_top = at + (np.int64(1) << number)
    return at


@helper
def _free_buffer(pool, free_buffers, state, at, number):  # type: ignore[no-untyped-def]
    """Put a buffer among the free ones of its class: its first bytes hold the next one's place."""
    head = free_buffers[number - SMALLEST_CLASS]
    for k in range(8):
        pool[at + k] = (head >> (8 * k)) & 255
    free_buffers[number - SMALLEST_CLASS] = at + 1
    state.live_buffers -= 1
    if number >= LARGE_CLASS:
        state.free_large_bytes += np.int64(1) << number


@helper
def defer_place(t, at, number):  # type: ignore[no-untyped-def]
    """Free a buffer of a class after the next drain."""
    state = t.state[0]
    t.deferred[state.deferred] = at * 64 + number
    state.deferred += 1


@helper
def defer_buffer(t, stream):  # type: ignore[no-untyped-def]
    """Remove a stream's buffer; it is free after the next drain."""
    if stream.capacity >= 0:
        defer_place(t, stream.buffer, np.int64(stream.capacity))
        stream.capacity = -1
    stream.used = 0


@helper
def release_buffers(pool, free_buffers, deferred, state):  # type: ignore[no-untyped-def]
    """Free all deferred buffers. An empty pool starts again at its bottom."""
    row = state[0]
    for i in range(row.deferred):
        _free_buffer(pool, free_buffers, row, deferred[i] >> 6, deferred[i] & 63)
    row.deferred = 0
    if row.live_buffers == 0:
        row.pool_top = 0
        for i in range(free_buffers.shape[0]):
            free_buffers[i] = 0


@helper
def append(t, stream, buf, at, length):  # type: ignore[no-untyped-def]
    """Append buf[at:at+length] to a stream's buffer.

    A buffer grows to less than twice the needed size, a small one to less than eight times, but no further than the
    kept bytes of its frame.
    """
    needed = stream.used + length
    if stream.capacity < 0 or (np.int64(1) << np.int64(stream.capacity)) < needed:
        number = buffer_class(needed)
        if stream.kept > needed and needed < SMALL:
            number = min(number + 2, buffer_class(stream.kept))
        bigger = take_buffer(t, number)
        used = stream.used
        old = stream.buffer
        for k in range(used):
            t.pool[np.uintp(bigger + k)] = t.pool[np.uintp(old + k)]
        if stream.capacity >= 0:
            _free_buffer(t.pool, t.free_buffers, t.state[0], old, np.int64(stream.capacity))
        stream.buffer = bigger
        stream.capacity = number
        stream.used = used
    target = stream.buffer + stream.used
    for k in range(length):
        t.pool[np.uintp(target + k)] = buf[np.uintp(at + k)]
    stream.used = needed


@helper
def add_segment(t, stream, captured, length, ts, packet, seq, starts_chunk):  # type: ignore[no-untyped-def]
    """Note the segment whose bytes are appended next."""
    number = take_row(t.free_segments)
    segment = t.segments[number]
    segment.offset = stream.used
    segment.captured = captured
    segment.length = length
    segment.ts = ts
    segment.packet = packet
    segment.seq = seq
    segment.starts_chunk = starts_chunk
    segment.next = -1
    if stream.segments_last >= 0:
        t.segments[stream.segments_last].next = number
    else:
        stream.segments_first = number
    stream.segments_last = number


@helper
def drop_segment(t, stream):  # type: ignore[no-untyped-def]
    """Forget the first segment of a buffer that is searched."""
    number = np.int64(stream.segments_first)
    stream.segments_first = t.segments[number].next
    if stream.segments_first < 0:
        stream.segments_last = -1
    release_row(t.free_segments, number)


@helper
def skip_buffer(t, stream):  # type: ignore[no-untyped-def]
    """Count all bytes of a buffer that is searched as skipped, and empty it."""
    while stream.segments_first >= 0:
        stream.skipped_bytes += t.segments[stream.segments_first].length
        drop_segment(t, stream)
    defer_buffer(t, stream)


class BufferPool:
    """The owner of the arrays."""

    def __init__(self) -> None:
        try:
            self.data: Array = untouched(_POOL, np.uint8)
        except OSError:  # the system promises no memory that it does not have
            self.data = untouched(_POOL >> 4, np.uint8)
        self.free: Array = np.zeros(CLASSES + 1, np.int64)  # by class: 1 + the place of a free buffer, 0 for none
        self.deferred: Array = np.zeros(49_152, np.int64)

    def grow(self, used: int) -> None:
        """Move the pool, whose first `used` bytes are in use, to one twice as large."""
        self.data = moved(self.data, 2 * len(self.data), used)

    def return_memory(self, state: Array, top: int, kept: int = 0) -> None:
        """Return the memory of large free buffers. `top`: the pool's top before buffers were released. If none is in
        use, the first `kept` bytes stay."""
        state["free_large_bytes"] = 0
        if not state["live_buffers"][0]:
            drop_pages(self.data, kept, top)
            return
        for place in range(LARGE_CLASS - SMALLEST_CLASS, CLASSES):
            following = int(self.free[place])
            while following:
                at = following - 1
                following = int(self.data[at : at + 8].view(np.int64)[0])
                drop_pages(self.data, at + 8, at + (1 << place + SMALLEST_CLASS))
