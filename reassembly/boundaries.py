"""Where records begin, found in the middle of a capture.

From each place in a window, the records that would follow are chained up by their lengths. The true chain passes the
whole window, and so does none that starts inside of one packet, whatever that packet holds: it ends with the packet at
the latest, or joins the true one there. So the window has to hold one longest packet before the target and more than
one after it. Chains are followed backwards, each place once, so that no content makes this slow.

What a record must be like is stricter here than in the kernels that split captures: lengths, the fraction of a second,
and times near those of the next record. A search that fails for that is only a search that finds nothing.
"""

from __future__ import annotations

import numpy as np

from kafkatap.kernels import kernel
from kafkatap.kernels.decorator import helper
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

#: Bytes needed before the target: the longest packet and what else its record holds.
BEFORE = LONGEST_PACKET + 65_536
#: Some captures tell of more bytes captured than there were, by the length of a header.
_MORE_CAPTURED = 256
#: Records that follow each other are no further apart in time (s), and none is further from the capture's first one.
_FAR = 10 * 86_400
_VERY_FAR = 10 * 366 * 86_400
_SHORTEST_BLOCK = 12

#: What a search tells: the place (-1: none), and how many chains speak of others (-1: none speaks of this one either
#: but what begins after the target).
PLACE, OTHERS = range(2)


@helper
def _pcap_record(buf, at, swapped, units, about):  # type: ignore[no-untyped-def]
    """The length of the record that may begin at `at`, whose header is whole; 0 if none does."""
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
    """The length of the block that may begin at `at`, whose first twelve bytes are there; 0 if none does."""
    length = read32(buf, at + 4, swapped)
    if length < _SHORTEST_BLOCK or length % 4 != 0 or length > LONGEST_BLOCK:
        return np.int64(0)
    kind = read32(buf, at, swapped)
    if at + length <= end:
        if read32(buf, at + length - 4, swapped) != length:
            return np.int64(0)
    elif at + 28 > end or length > BEFORE or (kind != ENHANCED_PACKET and kind != OBSOLETE_PACKET):
        return np.int64(0)  # its end is not there to tell
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
        return np.int64(0)  # no type that was given out, nor one for local use
    else:
        least = np.int64(_SHORTEST_BLOCK)
    return length if length >= least else np.int64(0)


@helper
def _tell(landing, last, target, end, found):  # type: ignore[no-untyped-def]
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
    found[PLACE] = place
    found[OTHERS] = others
    return place


@kernel(np.uint8, int, int, int, int, int, int, int, np.int32, np.int64)
def find_pcap(buf, end, target, last, whole, swapped, units, about, landing, found):  # type: ignore[no-untyped-def]
    """Find the first record that begins at `target` or later, by the chains through buf[:end] from places up to `last`.

    `whole`: the capture ends with the window, and no record is cut short by that. `units`: those of a second, which no
    fraction reaches. `about` is a time (s) that those of all records are somewhere near, 0 if none is known.

    landing[at] becomes what the chain from there says (-1: none that passes the window). Returns found[PLACE]; a place
    at the window's end or beyond it is where the record that covers all of the rest ends.
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
    return _tell(landing, last, target, end, found)


@kernel(np.uint8, int, int, int, int, int, np.int32, np.int64)
def find_pcapng(buf, end, target, last, whole, swapped, landing, found):  # type: ignore[no-untyped-def]
    """`find_pcap` for the blocks of a pcapng, which begin at multiples of four. buf[0] is at one, too."""
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
    return _tell(landing, last, target, end, found)


@kernel(np.uint8, int, int, int, np.int64)
def find_descriptions(buf, start, end, swapped, places):  # type: ignore[no-untyped-def]
    """Note where the section headers and interface descriptions of whole blocks in buf[start:end] begin and end:
    places[2n] and places[2n + 1]. Returns their number, also of those that `places` has no room for."""
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
            if 2 * count + 1 < places.shape[0]:
                places[2 * count] = at
                places[2 * count + 1] = at + length
            count += 1
        at += length
    return count
