"""Whether bytes that no CRC vouches for can be the header of a record batch or message.

Any bytes with a 1 or 2 in the right place look like a header. It is copied only if each of its numbers is one that
brokers and clients write, and if it has no run of six printable bytes. Sizes and offsets are those of the formats of
Kafka: magic 2 (KIP-98), magic 0 and 1 (KIP-32).
"""

from __future__ import annotations

import re
import struct

from kafkatap.dissector.batch_headers import BATCH_HEADER, CODEC_BITS, LOG_OVERHEAD, MESSAGE_0, MESSAGE_1

#: So many printable bytes in a row are a text.
SHORTEST_TEXT, FIRST_PRINTABLE, LAST_PRINTABLE = 6, 0x20, 0x7E
PRINTABLE = re.compile(b"[%c-%c]{%d,}" % (FIRST_PRINTABLE, LAST_PRINTABLE, SHORTEST_TEXT))
#: Offsets and producer ids are below the one, epochs and counts below the other.
_MOST, _MANY = 1 << 48, 1 << 24
#: Times of records, ms: -1, those of tests near 0, and the years 2000 to 2100.
_TIMES = (range(-1, _MANY), range(946_684_800_000, 4_102_444_800_000))
#: Attributes of magic 2: codec, time, transaction, control, delete horizon. Of magic 1: codec, time.
_ATTRIBUTES = {0: 7, 1: 15, 2: 127}
_MOST_CODEC = {0: 3, 1: 3, 2: 4}
#: The shortest record: seven bytes.
_RECORD = 7


def is_time(ms: int) -> bool:
    """Whether a record may have this time."""
    return any(ms in times for times in _TIMES)


def is_plausible(raw: bytes | memoryview, magic: int) -> bool:
    """Whether the captured bytes of a batch or message begin with a header, or with a part of one."""
    crc = 17 if magic == 2 else 12
    header = {0: MESSAGE_0 - 4, 1: MESSAGE_1 - 4, 2: BATCH_HEADER}[magic]
    parts = raw[:crc], raw[crc + 4 : header]
    if any(PRINTABLE.search(part) for part in parts):
        return False
    offset, size = struct.unpack_from(">qi", raw)
    if not 0 <= offset < _MOST:
        return False
    if len(raw) < header:
        return magic < 2 or -1 <= int.from_bytes(raw[12:16], "big", signed=True) < _MANY
    attributes = int.from_bytes(raw[21:23], "big") if magic == 2 else raw[17]
    if attributes & ~_ATTRIBUTES[magic] or attributes & CODEC_BITS > _MOST_CODEC[magic]:
        return False
    return _is_batch(raw, size, attributes) if magic == 2 else _is_message(raw, size, magic)


def _is_batch(raw: bytes | memoryview, size: int, attributes: int) -> bool:
    leader, = struct.unpack_from(">i", raw, 12)  # fmt: skip
    last, first_time, last_time, producer, epoch, sequence, count = struct.unpack_from(">iqqqhii", raw, 23)
    has_room = attributes & CODEC_BITS or count * _RECORD <= size + LOG_OVERHEAD - BATCH_HEADER
    return bool(
        -1 <= leader < _MANY
        and 0 <= last < _MANY
        and 0 <= count <= last + 1
        and has_room
        and is_time(first_time)
        and is_time(last_time)
        and -1 <= producer < _MOST
        and epoch >= -1
        and sequence >= -1
        and (producer >= 0 or (epoch, sequence) in ((-1, -1), (-1, 0), (0, 0), (0, -1)))
    )


def _is_message(raw: bytes | memoryview, size: int, magic: int) -> bool:
    if magic and not is_time(int.from_bytes(raw[18:26], "big", signed=True)):
        return False
    key_at = MESSAGE_1 - 4 if magic else MESSAGE_0 - 4
    return -1 <= int.from_bytes(raw[key_at - 4 : key_at], "big", signed=True) <= size
