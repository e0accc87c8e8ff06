"""Classic pcap: a 24-byte file header, then records of a 16-byte header and the captured bytes.

Either byte order, microseconds or nanoseconds (magic a1b2c3d4 and a1b23c4d). In the modified variant (a1b2cd34) the
header of a record has 8 more bytes: the interface's index, the protocol and the packet's type.
"""

from __future__ import annotations

from collections import namedtuple

import numpy as np

from kafkatap.kernels import kernel
from kafkatap.kernels.decorator import helper, inlined, record_dtype
from kafkatap.kernels.readers import be32, le32

from .dtypes import PACKET, Packet

#: One row: the format of a capture, and how far it was scanned.
SCAN_STATE = record_dtype(
    ("position", "i8"),  # the first byte that was not read
    ("status", "i8"),  # why the scan stopped: SCAN_ENDED, …
    ("next_number", "i8"),  # of the next packet
    ("stop", "i8"),  # records that begin here or later are not read
    ("swapped", "i8"),  # 1: big-endian (in a pcapng: its current section)
    ("nanoseconds", "i8"),  # 1: pcap's fractions of a second are ns, else µs
    ("link_type", "i8"),  # of a pcap
    ("record_header", "i8"),  # bytes of a pcap record's header; 0 in a pcapng
    ("interfaces", "i8"),  # how many interfaces a pcapng described so far
    ("first_interface", "i8"),  # the first of them that belongs to the current section
    ("dropped", "i8"),  # packets that a pcapng reports as dropped
    ("drops_known", "i8"),  # 1: it reports them
    ("noted", "i8"),  # where that begins which a pcapng's block has for the caller, after SCAN_NOTED
    ("noted_length", "i8"),  # its bytes
    ("noted_kind", "i8"),  # the type of the block: decryption secrets or name resolution
    ("secrets_room", "i8"),  # blocks with secrets are read until these many bytes are used up
    ("names_room", "i8"),  # and blocks with names until these are
    ("secrets_left_out", "i8"),  # blocks with secrets that were not read
    ("record", "i8"),  # the first of some shared records that was not read
)
#: Why a scan stopped: no whole record is left, a table is full, a record cannot be one, or the record before has
#: something for the caller, secrets or names.
SCAN_ENDED, SCAN_FULL, SCAN_DAMAGED, SCAN_NOTED = range(4)
#: What a record is, if none of these: a packet, or something else that was read.
A_PACKET, NO_PACKET = 4, 5

#: Nothing captures longer packets (Wireshark's own bound is 256 KiB): a greater length is damage.
LONGEST_PACKET = 262_144
HEADER, MODIFIED_HEADER = 16, 24
FILE_HEADER = 24


@helper
def read32(buf, at, swapped):  # type: ignore[no-untyped-def]
    """Read 32 bits in the capture's byte order."""
    return be32(buf, at) if swapped else le32(buf, at)


#: What all records of a pcap have in common, as scalars (int64): fields as in SCAN_STATE, the ns in a unit of a
#: fraction, and the magic of the file.
PcapFormat = namedtuple("PcapFormat", "swapped unit link_type header magic")
#: One record, as scalars (int64): what it is (SCAN_ENDED, …), where the next one begins, and its packet.
Record = namedtuple("Record", "kind end packet")


@helper
def pcap_format(s):  # type: ignore[no-untyped-def]
    """Return the format of a pcap by its SCAN_STATE."""
    unit, magic = np.int64(1000), np.int64(0xA1B2C3D4)
    if s.nanoseconds:
        unit, magic = np.int64(1), np.int64(0xA1B23C4D)
    elif s.record_header == MODIFIED_HEADER:
        magic = np.int64(0xA1B2CD34)
    return PcapFormat(np.int64(s.swapped), unit, np.int64(s.link_type), np.int64(s.record_header), magic)


@helper
def other_record(kind, end):  # type: ignore[no-untyped-def]
    """Return a record without a packet."""
    zero = np.int64(0)
    return Record(np.int64(kind), end, Packet(zero, zero, zero, zero, zero, zero, zero))


@inlined
def read_record(buf, at, end, f, number):  # type: ignore[no-untyped-def]
    """Read the record at `at`, whose header lies before `end`. If it is a packet, that has this number."""
    seconds = read32(buf, at, f.swapped)
    captured = read32(buf, at + 8, f.swapped)
    if seconds == f.magic and captured == 0:
        # A file header again: captures that were joined by cat. (A packet of the year 2055 has bytes.)
        following = at + FILE_HEADER
        return other_record(NO_PACKET if following <= end else SCAN_ENDED, following)
    if captured > LONGEST_PACKET:
        return other_record(SCAN_DAMAGED, at)
    data = at + f.header
    if data + captured > end:
        return other_record(SCAN_ENDED, at)
    ts = seconds * 1_000_000_000 + read32(buf, at + 4, f.swapped) * f.unit
    original = min(read32(buf, at + 12, f.swapped), np.int64(0x7FFFFFFF))
    packet = Packet(ts, number, data, captured, original, f.link_type, np.int64(0))
    return Record(np.int64(A_PACKET), data + captured, packet)


@inlined
def write_packet(row, packet):  # type: ignore[no-untyped-def]
    """Write a packet to a PACKET row."""
    row.ts = packet.ts
    row.number = packet.number
    row.at = packet.at
    row.captured = packet.captured
    row.original = packet.original
    row.link_type = packet.link_type
    row.point = packet.point


@kernel(np.uint8, int, int, SCAN_STATE, PACKET)
def scan_pcap(buf, start, end, state, packets):  # type: ignore[no-untyped-def]
    """Split buf[start:end] into packets; return their number."""
    s = state[0]
    f = pcap_format(s)
    number = s.next_number
    room = packets.shape[0]
    at = start
    count = 0
    status = SCAN_ENDED
    last = min(end - f.header, s.stop - 1)
    while at <= last:
        record = read_record(buf, at, end, f, number)
        if record.kind < A_PACKET:
            status = record.kind
            break
        if record.kind == A_PACKET:
            if count == room:
                status = SCAN_FULL
                break
            write_packet(packets[count], record.packet)
            number += 1
            count += 1
        at = record.end
    s.position = at
    s.status = status
    s.next_number = number
    return count
