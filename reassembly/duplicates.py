"""Duplicates: packets of equal time, length and bytes in several captures, read close to each other.

A packet's fingerprint covers its time stamp, its length on the wire and its first bytes. The table keeps those of the
latest packets only, so its size is fixed. Captures that overlap are read in time order, so duplicates come close
together.
"""

from __future__ import annotations

import numpy as np

from kafkatap.kernels import kernel
from kafkatap.kernels.decorator import helper, record_dtype
from kafkatap.kernels.hashing import hash_start, mix, spread
from kafkatap.kernels.readers import be32

from .dtypes import PACKET

#: One packet: its fingerprint, its number among all packets (0: an empty place), and the capture that has it.
FINGERPRINT = record_dtype(("fingerprint", "i8"), ("number", "i8"), ("capture", "i8"))
TABLE_SIZE = 1 << 16
#: Places in which a fingerprint may lie; the oldest one is overwritten.
PLACES = 8
#: Bytes of a packet that are compared: link layer, IP, TCP with options, and the first of the payload.
HEAD = 96


@helper
def _fingerprint(buf, packet, seed):  # type: ignore[no-untyped-def]
    """Return 60 bits: two hashes of the same words, of which the second also depends on the first at each step."""
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


@kernel(np.uint8, PACKET, int, int, int, FINGERPRINT, np.int64, int, int)
def count_duplicates(buf, packets, first, end, capture, table, counts, before, seed):  # type: ignore[no-untyped-def]
    """Count packets[first:end] of capture number `capture`, after `before` packets; return how many there are then.

    counts[n] is the number of packets of capture n that a capture with a lower number has too.
    """
    number = np.int64(before)
    for i in range(first, end):
        packet = packets[i]
        fingerprint = _fingerprint(buf, packet, seed)
        number += 1
        oldest = np.int64(0)
        found = np.int64(-1)
        for k in range(PLACES):
            place = ((fingerprint & 0xFFFFFFFF) + k) & (TABLE_SIZE - 1)
            row = table[place]
            if k == 0 or row.number < table[oldest].number:
                oldest = place
            if row.number > 0 and row.fingerprint == fingerprint and row.capture != capture:
                found = place
        if found >= 0:  # the first capture that has it keeps it
            counts[max(capture, table[found].capture)] += 1
            table[found].capture = min(capture, table[found].capture)
        else:
            table[oldest].fingerprint = fingerprint
            table[oldest].number = number
            table[oldest].capture = capture
    return number
