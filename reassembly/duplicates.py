"""Duplicates, which several captures hold: packets of equal time, length and bytes, and read close to each other.

A packet's fingerprint takes in its time stamp, its length on the wire and its first bytes. The table keeps those of the
latest packets, so its size is fixed: captures that overlap are read in order of time, and duplicates come soon after.
"""

from __future__ import annotations

import numpy as np

from kafkatap.kernels import kernel
from kafkatap.kernels.decorator import helper, record_dtype
from kafkatap.kernels.hashing import hash_start, mix, spread
from kafkatap.kernels.readers import be32

from .dtypes import PACKET

#: A packet seen: its fingerprint, when (a count), and the capture that held it.
SEEN = record_dtype(("fingerprint", "i8"), ("when", "i8"), ("capture", "i8"))
TABLE_SIZE = 1 << 16
#: Places in which a fingerprint may lie; the longest unused one is written over.
PLACES = 8
#: Bytes of a packet that count: link layer, IP, TCP with options, and the first of what it carries.
HEAD = 96


@helper
def _fingerprint(buf, packet, seed):  # type: ignore[no-untyped-def]
    """60 bits: two hashes of the same words, one of which takes in the other at each step."""
    low = hash_start(seed)
    high = low
    for word in (packet.ts & 0xFFFFFFFF, (packet.ts >> 32) & 0xFFFFFFFF, np.int64(packet.original)):
        low = mix(low, word, seed)
        high = mix(high, low ^ (word << 1), seed)
    head = np.int64(packet.captured)
    if head > HEAD:
        head = np.int64(HEAD)
    at = packet.at
    for k in range(0, head - 3, 4):
        word = be32(buf, at + k)
        low = mix(low, word, seed)
        high = mix(high, low ^ (word << 1), seed)
    return (spread(high) << 30) | spread(low)


@kernel(np.uint8, PACKET, int, int, int, SEEN, np.int64, int)
def count_duplicates(buf, packets, first, end, capture, seen, state, seed):  # type: ignore[no-untyped-def]
    """Note packets[first:end] of capture number `capture`. state[0] counts packets, state[1 + n] those of capture n
    that a capture numbered below n holds too."""
    for i in range(first, end):
        packet = packets[i]
        fingerprint = _fingerprint(buf, packet, seed)
        state[0] += 1
        oldest = np.int64(0)
        found = np.int64(-1)
        for k in range(PLACES):
            place = ((fingerprint & 0xFFFFFFFF) + k) & (TABLE_SIZE - 1)
            row = seen[place]
            if k == 0 or row.when < seen[oldest].when:
                oldest = place
            if row.when > 0 and row.fingerprint == fingerprint and row.capture != capture:
                found = place
        if found >= 0:  # it stays with the first capture that holds it
            state[1 + max(capture, seen[found].capture)] += 1
            seen[found].capture = min(capture, seen[found].capture)
        else:
            seen[oldest].fingerprint = fingerprint
            seen[oldest].when = state[0]
            seen[oldest].capture = capture
    return 0
