"""Buffers for frames that span segments, marks of search buffers, and interned strings: what framing keeps bytes in.

A buffer is a piece of the pool of size 2^class. One that a finished frame lies in is given back only after the frame
was decoded (`defer`), as its job still points there; one that a frame has outgrown is given back at once. Large buffers
that are free give their memory back to the system (`Dissector`), so the pool takes what its frames take.
"""

from __future__ import annotations

import numpy as np

from kafkatap.kernels import kernel
from kafkatap.kernels.decorator import helper
from kafkatap.kernels.hashing import hash_start, mix, spread
from kafkatap.kernels.readers import be32, same_bytes

from .connections import (
    CLASSES,
    DEFERRED,
    FREE_MARKS,
    FREE_MARKS_LEFT,
    LIVE_BUFFERS,
    POOL_DIRTY,
    POOL_LISTS,
    POOL_TOP,
    SEED,
    SMALLEST_CLASS,
    STRING,
    STRINGS,
    TEXT,
)

#: Buffers for less than this grow in large steps.
SMALL = 1 << 16
#: From this class on (1 MiB) free buffers give their memory back.
LARGE = 20


@helper
def buffer_class(size):  # type: ignore[no-untyped-def]
    """The smallest class whose buffers hold `size` bytes."""
    number = np.int64(SMALLEST_CLASS)
    while (np.int64(1) << number) < size:
        number += 1
    return number


@helper
def take_buffer(t, number):  # type: ignore[no-untyped-def]
    """A buffer of a class: one given back before, or new from the pool's top (the caller has seen to its room)."""
    t.state[LIVE_BUFFERS] += 1
    head = t.state[POOL_LISTS + number - SMALLEST_CLASS]
    if head > 0:
        at = head - 1
        following = np.int64(0)
        for k in range(8):
            following |= np.int64(t.pool[at + k]) << (8 * k)
        t.state[POOL_LISTS + number - SMALLEST_CLASS] = following
        if number >= LARGE:
            t.state[POOL_DIRTY] = max(np.int64(0), t.state[POOL_DIRTY] - (np.int64(1) << number))
        return at
    at = np.int64(t.state[POOL_TOP])
    t.state[POOL_TOP] = at + (np.int64(1) << number)
    return at


@helper
def _give_back(pool, state, at, number):  # type: ignore[no-untyped-def]
    head = state[POOL_LISTS + number - SMALLEST_CLASS]
    for k in range(8):
        pool[at + k] = (head >> (8 * k)) & 255
    state[POOL_LISTS + number - SMALLEST_CLASS] = at + 1
    state[LIVE_BUFFERS] -= 1
    if number >= LARGE:
        state[POOL_DIRTY] += np.int64(1) << number


@helper
def defer_buffer(t, stream):  # type: ignore[no-untyped-def]
    """Take a stream's buffer from it; it is given back once the frames in it were decoded."""
    if stream.capacity >= 0:
        t.deferred[t.state[DEFERRED]] = stream.buffer * 64 + np.int64(stream.capacity)
        t.state[DEFERRED] += 1
        stream.capacity = -1
    stream.used = 0


@kernel(np.uint8, np.int64, np.int64)
def release_buffers(pool, deferred, state):  # type: ignore[no-untyped-def]
    """Give back all deferred buffers; an empty pool starts again at its bottom."""
    for i in range(state[DEFERRED]):
        _give_back(pool, state, deferred[i] >> 6, deferred[i] & 63)
    state[DEFERRED] = 0
    if state[LIVE_BUFFERS] == 0:
        state[POOL_TOP] = 0
        for i in range(POOL_LISTS, POOL_LISTS + CLASSES):
            state[i] = 0
    return 0


@helper
def append(t, stream, buf, at, length):  # type: ignore[no-untyped-def]
    """Append buf[at:at+length] to a stream's buffer. It grows to less than twice what is needed, a small one to less
    than eight times, but no further than what is kept of its frame."""
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
            _give_back(t.pool, t.state, old, np.int64(stream.capacity))
        stream.buffer = bigger
        stream.capacity = number
        stream.used = used
    target = stream.buffer + stream.used
    for k in range(length):
        t.pool[np.uintp(target + k)] = buf[np.uintp(at + k)]
    stream.used = needed


@helper
def add_mark(t, stream, captured, wire, ts, packet, fresh):  # type: ignore[no-untyped-def]
    """Note which chunk the bytes that are appended next came with."""
    number = t.state[FREE_MARKS]
    mark = t.marks[number]
    t.state[FREE_MARKS] = np.int64(mark.next)
    t.state[FREE_MARKS_LEFT] -= 1
    mark.offset = stream.used
    mark.captured = captured
    mark.wire = wire
    mark.ts = ts
    mark.packet = packet
    mark.fresh = fresh
    mark.next = -1
    if stream.marks_last >= 0:
        t.marks[stream.marks_last].next = number
    else:
        stream.marks_first = number
    stream.marks_last = number


@helper
def free_mark(t, number):  # type: ignore[no-untyped-def]
    """Put a mark that no list holds back among the free ones."""
    t.marks[number].next = t.state[FREE_MARKS]
    t.state[FREE_MARKS] = number
    t.state[FREE_MARKS_LEFT] += 1


@helper
def drop_mark(t, stream):  # type: ignore[no-untyped-def]
    """Forget the first mark of a search buffer."""
    number = np.int64(stream.marks_first)
    stream.marks_first = t.marks[number].next
    if stream.marks_first < 0:
        stream.marks_last = -1
    free_mark(t, number)


@helper
def hash_bytes(buf, at, length, seed):  # type: ignore[no-untyped-def]
    """A hash of buf[at:at+length], 30 bits, four bytes at a time."""
    h = mix(hash_start(seed), length, seed)
    words = length >> 2
    for k in range(words):
        h = mix(h, be32(buf, at + 4 * k), seed)
    rest = np.int64(0)
    for k in range(4 * words, length):
        rest = (rest << 8) | np.int64(buf[np.uintp(at + k)])
    return spread(mix(h, rest, seed))


@helper
def intern(buf, at, length, strings, text, buckets, state):  # type: ignore[no-untyped-def]
    """The number of a string, added when it is new (the caller has seen to the room). -1 for null (length < 0)."""
    if length < 0:
        return np.int64(-1)
    mask = buckets.shape[0] - 1
    h = hash_bytes(buf, at, length, np.int64(state[SEED]))
    slot = h & mask
    while True:
        number = np.int64(buckets[slot]) - 1
        if number < 0:
            break
        entry = strings[number]
        if entry.hash == h and entry.length == length and same_bytes(text, entry.at, buf, at, length):
            return number
        slot = (slot + 1) & mask
    number = np.int64(state[STRINGS])
    state[STRINGS] = number + 1
    buckets[slot] = number + 1
    entry = strings[number]
    entry.at = state[TEXT]
    entry.hash = h
    entry.length = length
    for k in range(length):
        text[state[TEXT] + k] = buf[at + k]
    state[TEXT] += length
    return number


@kernel(STRING, int, np.int32)
def rehash_strings(strings, count, buckets):  # type: ignore[no-untyped-def]
    """Enter strings[0:count] into zeroed buckets, whose number is a power of two."""
    mask = buckets.shape[0] - 1
    for number in range(count):
        slot = strings[number].hash & mask
        while buckets[slot] != 0:
            slot = (slot + 1) & mask
        buckets[slot] = number + 1
    return 0
