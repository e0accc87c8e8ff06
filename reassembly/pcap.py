"""Classic pcap: a 24-byte file header, then records of a 16-byte header and the captured bytes. Either byte order,
microseconds or nanoseconds (magic a1b2c3d4 and a1b23c4d). Of the modified variant (a1b2cd34) the header of a record has
8 bytes more: the interface's index, the protocol and the packet's type."""

from __future__ import annotations

import numpy as np

from kafkatap.kernels import kernel
from kafkatap.kernels.decorator import helper
from kafkatap.kernels.readers import be32, le32

from .dtypes import PACKET

#: Scan state (int64): where to go on, what stopped the scan, the format of this capture, the number of the next packet,
#: where no record is to be taken that begins there or later, and the bytes of a record's header.
POSITION, STATUS, SWAPPED, NANOSECONDS, LINK_TYPE, NEXT_NUMBER, STOP, RECORD_HEADER = range(8)
STATE_SIZE = 8
#: Why a scan stopped: all whole records read, output full, or a record that cannot be one.
SCANNED, OUTPUT_FULL, DAMAGED = range(3)

#: Nothing captures longer packets (Wireshark's own bound is 256 KiB): a greater length is damage.
LONGEST_PACKET = 262_144
HEADER, MODIFIED_HEADER = 16, 24
FILE_HEADER = 24


@helper
def read32(buf, at, swapped):  # type: ignore[no-untyped-def]
    """32 bits in the capture's byte order."""
    return be32(buf, at) if swapped else le32(buf, at)


@kernel(np.uint8, int, int, np.int64, PACKET)
def scan_pcap(buf, start, end, state, packets):  # type: ignore[no-untyped-def]
    """Split buf[start:end] into packets; return their number. state[POSITION] is the first byte not taken."""
    swapped = state[SWAPPED]
    unit = 1 if state[NANOSECONDS] else 1000
    link_type = state[LINK_TYPE]
    number = state[NEXT_NUMBER]
    room = packets.shape[0]
    at = start
    count = 0
    status = SCANNED
    header = state[RECORD_HEADER]
    magic = 0xA1B23C4D if state[NANOSECONDS] else (0xA1B2CD34 if header == MODIFIED_HEADER else 0xA1B2C3D4)
    last = min(end - header, state[STOP] - 1)
    while at <= last:
        if read32(buf, at, swapped) == magic and read32(buf, at + 8, swapped) == 0:
            # A file header again: captures that were joined by cat. (A packet of the year 2055 has bytes.)
            if at + FILE_HEADER > end:
                break
            at += FILE_HEADER
            continue
        captured = read32(buf, at + 8, swapped)
        original = read32(buf, at + 12, swapped)
        if captured > LONGEST_PACKET:
            status = DAMAGED
            break
        if at + header + captured > end:
            break
        if count == room:
            status = OUTPUT_FULL
            break
        packet = packets[count]
        packet.ts = read32(buf, at, swapped) * 1_000_000_000 + read32(buf, at + 4, swapped) * unit
        packet.number = number
        packet.at = at + header
        packet.captured = captured
        packet.original = min(original, 0x7FFFFFFF)
        packet.link_type = link_type
        number += 1
        count += 1
        at += header + captured
    state[POSITION] = at
    state[STATUS] = status
    state[NEXT_NUMBER] = number
    return count
