"""Find where records begin in the middle of a capture.

From each place in a window, a chain follows the lengths of the records that would begin there. Only the true chain
passes the whole window. A chain that starts inside of a packet ends with that packet, or joins the true one there,
whatever the packet holds. So the window has to hold one longest packet before the target and more than one after it.
Chains are followed backwards, each place once, so no content makes this slow.

The rules for a record are stricter here than in the kernels that split captures: its lengths, its fraction of a second,
and its time near that of the next record. If a true record breaks them, the search only finds nothing.
"""

from __future__ import annotations

import numpy as np

from kafkatap.kernels import kernel
from kafkatap.kernels.decorator import helper, record_dtype
from kafkatap.kernels.readers import be32

from .pcap import FILE_HEADER, HEADER, LONGEST_PACKET, read32
from .pcapng import (
    ENHANCED_PACKET,
    INTERFACE_DESCRIPTION,
    INTERFACE_STATISTICS,
    LONGEST_BLOCK,
    OBSOLETE_PACKET,
    SECTION_HEADER,
    SIMPLE_PACKET,
)

#: Bytes needed before the target: the longest packet and the rest of its record.
BEFORE = LONGEST_PACKET + 65_536
#: Some captures claim that more bytes were captured than there were, by the length of a header.
_MORE_CAPTURED = 256
#: The most time (s) between one record and the next, and between any record and the capture's first one.
_FAR = 10 * 86_400
_VERY_FAR = 10 * 366 * 86_400
_SHORTEST_BLOCK = 12

#: The result of a search, one row.
FOUND = record_dtype(
    ("place", "i8"),  # where the first record begins; -1: not found
    ("others", "i8"),  # how many chains lead to other places; -1: no chain from before the target leads to this one
)
#: Where a block begins and ends.
BLOCK_RANGE = record_dtype(("begin", "i8"), ("end", "i8"))


@helper
def _pcap_record(buf, at, swapped, units, about):  # type: ignore[no-untyped-def]
    """Return the length of the record that may begin at `at`, whose header is whole; 0 if none does."""
    captured = read32(buf, at + 8, swapped)
    if captured > LONGEST_PACKET:
        return np.int64(0)
    if captured == 0:
        magic = read32(buf, at, swapped)
        if magic == 0xA1B2C3D4 or magic == 0xA1B23C4D:  # a file header: captures joined by cat
            return np.int64(FILE_HEADER)
    original = read32(buf, at + 12, swapped)
    if read32(buf, at + 4, swapped) >= units or captured > original + _MORE_CAPTURED:
        return np.int64(0)
    apart = read32(buf, at, swapped) - about
    if about == 0:
        if original == 0:  # zeros, more likely
            return np.int64(0)
    elif apart > _VERY_FAR or -apart > _VERY_FAR:
        return np.int64(0)
    return HEADER + captured


@helper
def _pcapng_block(buf, at, end, swapped):  # type: ignore[no-untyped-def]
    """Return the length of the block that may begin at `at`, whose first twelve bytes are there; 0 if none does."""
    length = read32(buf, at + 4, swapped)
    if length < _SHORTEST_BLOCK or length % 4 != 0 or length > LONGEST_BLOCK:
        return np.int64(0)
    kind = read32(buf, at, swapped)
    if at + length <= end:
        if read32(buf, at + length - 4, swapped) != length:
            return np.int64(0)
    elif at + 28 > end or length > BEFORE or (kind != ENHANCED_PACKET and kind != OBSOLETE_PACKET):
        return np.int64(0)  # its end is not in the window, so nothing confirms it
    if kind == SECTION_HEADER:
        least = np.int64(28)
        if be32(buf, at + 8) != (0x1A2B3C4D if swapped else 0x4D3C2B1A):
            return np.int64(0)
    elif kind == ENHANCED_PACKET or kind == OBSOLETE_PACKET:
        if length < 32:
            return np.int64(0)
        captured = read32(buf, at + 20, swapped)
        if captured > LONGEST_PACKET or captured > read32(buf, at + 24, swapped) + _MORE_CAPTURED:
            return np.int64(0)
        least = 32 + captured
    elif kind == INTERFACE_STATISTICS:
        least = np.int64(24)
    elif kind == INTERFACE_DESCRIPTION:
        least = np.int64(20)
    elif kind == SIMPLE_PACKET:
        least = np.int64(16)
    elif kind == 0 or (kind >= 0x1000 and kind < 0x80000000 and kind & 0x3FFFFFFF != 0xBAD):
        return np.int64(0)  # neither a registered type nor one for local use
    else:
        least = np.int64(_SHORTEST_BLOCK)
    return length if length >= least else np.int64(0)


@helper
def _set_found(landing, last, target, end, found):  # type: ignore[no-untyped-def]
    """Set `found` by the first place up to `last` whose chain passes the window, else by the first one after it."""
    place = np.int64(-1)
    others = 0
    for at in range(last + 1):
        if landing[at] >= 0:
            if place < 0:
                place = np.int64(landing[at])
            elif landing[at] != place:
                others += 1
    if place < 0:
        others = -1
        at = last + 1
        while at < end and place < 0:
            if landing[at] >= 0 and at >= target:
                place = np.int64(at)
            at += 1
    found[0].place = place
    found[0].others = others
    return place


@kernel(np.uint8, int, int, int, int, int, int, int, np.int32, FOUND)
def find_pcap(buf, end, target, last, whole, swapped, units, about, landing, found):  # type: ignore[no-untyped-def]
    """Find the first record that begins at `target` or later, by the chains through buf[:end] from places up to `last`.

    `whole`: the capture ends with the window, and its last record is whole. `units`: how many fractions a second has.
    `about`: a time (s) near those of all records, 0 if none is known.

    landing[at] becomes the place that the chain from there leads to (-1: it does not pass the window). Returns
    found.place. A place at the window's end or beyond it is the end of a record that covers all of the rest.
    """
    at = np.int64(end - 1)
    while at >= 0:
        lands = np.int64(-1)
        length = np.int64(0)
        if at + HEADER <= end:
            length = _pcap_record(buf, at, swapped, units, about)
        if length > 0:
            following = at + length
            if following + HEADER > end:
                if following == end or not whole:
                    lands = following if following >= target else np.int64(end)
            elif landing[following] >= 0:
                apart = read32(buf, following, swapped) - read32(buf, at, swapped)
                if apart < 0:
                    apart = -apart
                joint = length == FILE_HEADER or read32(buf, following + 8, swapped) == 0
                if apart <= _FAR or joint:
                    lands = np.int64(landing[following]) if following < target else following
            if lands >= 0 and at >= target:
                lands = at
        landing[at] = lands
        at -= 1
    return _set_found(landing, last, target, end, found)


@kernel(np.uint8, int, int, int, int, int, np.int32, FOUND)
def find_pcapng(buf, end, target, last, whole, swapped, landing, found):  # type: ignore[no-untyped-def]
    """Do as `find_pcap` for the blocks of a pcapng, which begin at multiples of four; so does buf[0]."""
    at = np.int64(end - 1)
    while at >= 0:
        lands = np.int64(-1)
        length = np.int64(0)
        if at % 4 == 0 and at + _SHORTEST_BLOCK <= end:
            length = _pcapng_block(buf, at, end, swapped)
        if length > 0:
            following = at + length
            if following + _SHORTEST_BLOCK > end:
                if following == end or not whole:
                    lands = following if following >= target else np.int64(end)
            elif landing[following] >= 0:
                lands = np.int64(landing[following]) if following < target else following
            if lands >= 0 and at >= target:
                lands = at
        landing[at] = lands
        at -= 1
    return _set_found(landing, last, target, end, found)


@kernel(np.uint8, int, int, int, BLOCK_RANGE)
def find_descriptions(buf, start, end, swapped, places):  # type: ignore[no-untyped-def]
    """Write where the section headers and interface descriptions of the whole blocks in buf[start:end] lie to `places`.

    Returns their number, which includes those that `places` has no room for.
    """
    at = np.int64(start)
    count = 0
    while at + _SHORTEST_BLOCK <= end:
        kind = read32(buf, at, swapped)
        if kind == SECTION_HEADER:
            swapped = 1 if be32(buf, at + 8) == 0x1A2B3C4D else 0
        length = read32(buf, at + 4, swapped)
        if length < _SHORTEST_BLOCK or at + length > end:
            break
        if kind == SECTION_HEADER or kind == INTERFACE_DESCRIPTION:
            if count < places.shape[0]:
                places[count].begin = at
                places[count].end = at + length
            count += 1
        at += length
    return count
