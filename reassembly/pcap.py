"""Classic pcap: a 24-byte file header, then records of a 16-byte header and the captured bytes.

Either byte order, microseconds or nanoseconds (magic a1b2c3d4 and a1b23c4d). In the modified variant (a1b2cd34) the
header of a record has 8 more bytes: the interface's index, the protocol and the packet's type.
"""

from __future__ import annotations

import numpy as np

from kafkatap.kernels import kernel
from kafkatap.kernels.decorator import helper, record_dtype
from kafkatap.kernels.readers import be32, le32

from .dtypes import PACKET

#: One row: the format of a capture, and how far it was scanned.
SCAN_STATE = record_dtype(
    ("position", "i8"),  # the first byte that was not read
    ("status", "i8"),  # why the scan stopped: SCAN_ENDED, …
    ("next_number", "i8"),  # of the next packet
    ("stop", "i8"),  # records that begin here or later are not read
    ("swapped", "i8"),  # 1: big-endian (in a pcapng: its current section)
    ("nanoseconds", "i8"),  # 1: pcap's fractions of a second are ns, else µs
    ("link_type", "i8"),  # of a pcap
    ("record_header", "i8"),  # bytes of a pcap record's header
    ("interfaces", "i8"),  # how many interfaces a pcapng described so far
    ("first_interface", "i8"),  # the first of them that belongs to the current section
    ("dropped", "i8"),  # packets that a pcapng reports as dropped
    ("drops_known", "i8"),  # 1: it reports them
)
#: Why a scan stopped: no whole record is left, `packets` or `interfaces` is full, or a record cannot be one.
SCAN_ENDED, SCAN_FULL, SCAN_DAMAGED = range(3)

#: Nothing captures longer packets (Wireshark's own bound is 256 KiB): a greater length is damage.
LONGEST_PACKET = 262_144
HEADER, MODIFIED_HEADER = 16, 24
FILE_HEADER = 24


@helper
def read32(buf, at, swapped):  # type: ignore[no-untyped-def]
    """Read 32 bits in the capture's byte order."""
    return be32(buf, at) if swapped else le32(buf, at)


@kernel(np.uint8, int, int, SCAN_STATE, PACKET)
def scan_pcap(buf, start, end, state, packets):  # type: ignore[no-untyped-def]
    """Split buf[start:end] into packets; return their number."""
    s = state[0]
    swapped = s.swapped
    unit = 1 if s.nanoseconds else 1000
    link_type = s.link_type
    number = s.next_number
    room = packets.shape[0]
    at = start
    count = 0
    status = SCAN_ENDED
    header = s.record_header
    magic = 0xA1B23C4D if s.nanoseconds else (0xA1B2CD34 if header == MODIFIED_HEADER else 0xA1B2C3D4)
    last = min(end - header, s.stop - 1)
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
            status = SCAN_DAMAGED
            break
        if at + header + captured > end:
            break
        if count == room:
            status = SCAN_FULL
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
    s.position = at
    s.status = status
    s.next_number = number
    return count
