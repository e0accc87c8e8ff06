"""Record batches and message sets: their rows, and the kernel that walks `records` fields.

All bytes lie in one array, the arena: the fields as they came, then their decompressed bytes. `walk_batches` makes a
BATCH row for each batch of magic 2 and for each message of magic 0 and 1 at the top level. Python checks CRCs and
decompresses. `record_reader.read_records` makes a RECORD row for each record, and one with the reason if a batch
cannot be read to its end. Both stop when a table is full, and continue in the next call.
"""

from __future__ import annotations

import numpy as np

from kafkatap.kernels import kernel
from kafkatap.kernels.decorator import helper, record_dtype
from kafkatap.kernels.readers import be16, be32, be64, signed16, signed32

from ..batch_headers import (
    BATCH_HEADER,
    CODEC_BITS,
    MESSAGE_0,
    MESSAGE_1,
    NO_BATCH,
    OTHER_MAGIC,
    THERE,
    UNKNOWN_END,
    batch_header,
)
from ..batch_headers import CONTROL as CONTROL

#: Statuses of batches and records. PARTIAL: the broker cut it at the response's size, as usual. NESTED: a compressed
#: message within compressed ones that stays as it is (`nested_sets`). CUT_OFF: its connection or the capture ended.
RECORD_STATUSES = (
    "ok", "partial", "not_captured", "malformed", "trailing_bytes", "corrupt", "too_large", "unknown_codec",
    "unknown_magic", "nested", "cut_off",
)  # fmt: skip
(
    OK, PARTIAL, NOT_CAPTURED, MALFORMED, TRAILING_BYTES, CORRUPT, TOO_LARGE, UNKNOWN_CODEC, UNKNOWN_MAGIC, NESTED,
    CUT_OFF,
) = range(len(RECORD_STATUSES))  # fmt: skip

#: An unknown offset, time or number.
UNKNOWN_NUMBER = -(2**63)

CRC_WRONG, CRC_RIGHT, CRC_UNCHECKED = range(3)

#: Bits of a batch's attributes, beside CODEC_BITS and CONTROL.
LOG_APPEND_TIME, TRANSACTIONAL = 8, 16
#: Type of a control record.
ABORT = 0

#: One `records` field: its bytes in the arena, and whose it is.
PART = record_dtype(
    ("exchange", "i8"),
    ("at", "i8"),
    ("end", "i8"),
    ("message_first", "i8"),  # ns, arrival of the first byte of the message
    ("packet", "i8"),  # number of the packet that carried it
    ("topic", "i4"),  # number in the collector's topics, -1
    ("partition", "i4"),
    ("client_id", "i4"),  # number of the string, -1
    ("fetch_offset", "i8"),  # where the request reads from; UNKNOWN_NUMBER
    ("aborted_at", "i4"),  # rows of ABORTED ...
    ("aborted_end", "i4"),  # ... or -1: it is not known which transactions were aborted
    ("fetch", "u1"),  # 1: of a response, which may end in a partial batch
    ("cut", "u1"),  # 1: bytes of the field were not captured; 2: its connection or the capture ended before it did
)

#: An aborted transaction of a response. The rows of a PART are in order of `producer` and `first`.
ABORTED = record_dtype(
    ("producer", "i8"),
    ("first", "i8"),  # its first offset
    ("has_ended", "u1"),  # whether its abort marker was seen
)

BATCH = record_dtype(
    ("at", "i8"),  # in the arena
    ("end", "i8"),  # of what is there of it
    ("body", "i8"),  # its records, decompressed; -1: nothing to read. Of an uncompressed message: the message
    ("body_end", "i8"),
    ("base_offset", "i8"),  # of a message its offset; UNKNOWN_NUMBER
    ("first_timestamp", "i8"),  # ms
    ("max_timestamp", "i8"),  # of a message its timestamp
    ("producer_id", "i8"),
    ("crc", "i8"),  # as it says
    ("records", "i4"),  # as it says
    ("base_sequence", "i4"),
    ("leader_epoch", "i4"),
    ("part", "i4"),
    ("number", "i4"),  # within the exchange
    ("attributes", "i2"),
    ("producer_epoch", "i2"),
    ("magic", "i1"),  # -1: unknown
    ("is_aborted", "i1"),  # -1: unknown
    ("codec", "u1"),
    ("status", "u1"),
    ("crc_state", "u1"),
)

#: One record, or (status not OK) the place where a batch ends to be readable. Lengths: -1 null.
RECORD = record_dtype(
    ("offset", "i8"),  # UNKNOWN_NUMBER
    ("timestamp", "i8"),  # ms; UNKNOWN_NUMBER
    ("at", "i8"),  # a message of magic 0 or 1; 0 if it has no place of its own
    ("end", "i8"),
    ("key_at", "i8"),
    ("value_at", "i8"),
    ("key_length", "i4"),
    ("value_length", "i4"),
    ("headers", "i4"),  # their number; their rows come in the order of the records
    ("batch", "i4"),  # row of BATCH
    ("sequence", "i4"),  # -1
    ("control", "i2"),  # type of a control record, -1
    ("status", "u1"),
    ("crc_state", "u1"),  # of a message within a compressed one; else CRC_UNCHECKED, as the batch has it
)

NO_ABORTED = np.zeros(0, ABORTED)

HEADER = record_dtype(("key_at", "i8"), ("value_at", "i8"), ("key_length", "i4"), ("value_length", "i4"))

#: State (int64) of `walk_batches` ...
PART_NUMBER, POSITION, NUMBER, LAST_EXCHANGE = range(4)
WALK_STATE = 4
#: ... and of `read_records`. NEXT: where the next record of the batch starts, -1: the batch has not begun.
NEXT, INDEX, BASE, RECORDS, HEADERS = range(5)
READ_STATE = 5


@helper
def wrapping_sum(a, b):  # type: ignore[no-untyped-def]
    """a + b in 64 bits, as Java adds; in halves, so that nothing overflows."""
    low = (a & 0xFFFFFFFF) + (b & 0xFFFFFFFF)
    high = ((a >> 32) + (b >> 32) + (low >> 32)) & 0xFFFFFFFF
    return signed32(high) * 4294967296 + (low & 0xFFFFFFFF)


@helper
def varint(buf, at, end, longest):  # type: ignore[no-untyped-def]
    """A zigzag varint of at most `longest` bytes (5: 32 bits, 10: 64): its value, and the position behind it or -1."""
    raw = np.int64(0)
    for k in range(longest):
        if at + k >= end:
            return np.int64(0), np.int64(-1)
        byte = np.int64(buf[np.uintp(at + k)])
        raw |= (byte & 127) << (7 * k)
        if byte < 128:
            if (longest == 5 and raw > 0xFFFFFFFF) or (k == 9 and byte > 1):
                break
            return ((raw >> 1) & 0x7FFFFFFFFFFFFFFF) ^ -(raw & 1), at + k + 1
    return np.int64(0), np.int64(-1)


@helper
def control_type(buf, at, length):  # type: ignore[no-untyped-def]
    """What a control record's key (version, type) says; -1 where it says nothing."""
    return signed16(be16(buf, at + 2)) if length >= 4 else np.int64(-1)


@helper
def _first_control_type(buf, at, end):  # type: ignore[no-untyped-def]
    """The type of the control record at `at`, as far as its key is there; -1 where it is not."""
    length = np.int64(0)
    for k in range(4):  # its size and attributes, the deltas of its time and offset, the length of its key
        if at >= 0:
            length, at = varint(buf, at + (k == 1), end, 10)
    return control_type(buf, at, length) if at >= 0 and length <= end - at else np.int64(-1)


@helper
def _last_aborted(aborted, at, end, producer, offset):  # type: ignore[no-untyped-def]
    """The row of aborted[at:end] with the last transaction of a producer that began up to an offset; -1."""
    first = at
    while first < end:
        middle = (first + end) // 2
        row = aborted[middle]
        if row.producer < producer or (row.producer == producer and row.first <= offset):
            first = middle + 1
        else:
            end = middle
    return first - 1 if first > at and aborted[first - 1].producer == producer else np.int64(-1)


@helper
def _judge_transaction(buf, part, aborted, batch):  # type: ignore[no-untyped-def]
    """Set whether the batch's transaction was aborted, as consumers do: from the transaction's first offset to the
    producer's abort marker."""
    if part.aborted_end < 0:
        batch.is_aborted = -1
    elif batch.attributes & TRANSACTIONAL != 0:
        last = wrapping_sum(np.int64(batch.base_offset), signed32(be32(buf, batch.at + 23)))
        row = _last_aborted(aborted, np.int64(part.aborted_at), np.int64(part.aborted_end), batch.producer_id, last)
        if row >= 0 and batch.attributes & CONTROL == 0:
            batch.is_aborted = 1 - aborted[row].has_ended
        elif row >= 0 and _first_control_type(buf, np.int64(batch.body), np.int64(batch.end)) == ABORT:
            aborted[row].has_ended = 1


@helper
def _clear_batch(batch, part_number, part, at):  # type: ignore[no-untyped-def]
    batch.at = at
    batch.end = part.end
    batch.body = -1
    batch.body_end = -1
    batch.base_offset = UNKNOWN_NUMBER
    batch.first_timestamp = UNKNOWN_NUMBER
    batch.max_timestamp = UNKNOWN_NUMBER
    batch.producer_id = -1
    batch.crc = 0
    batch.records = 0
    batch.base_sequence = -1
    batch.leader_epoch = -1
    batch.part = part_number
    batch.attributes = 0
    batch.producer_epoch = -1
    batch.magic = -1
    batch.is_aborted = 0
    batch.codec = 0
    batch.status = OK
    batch.crc_state = CRC_UNCHECKED


@helper
def _read_batch_header(buf, at, batch):  # type: ignore[no-untyped-def]
    batch.leader_epoch = signed32(be32(buf, at + 12))
    batch.crc = be32(buf, at + 17)
    batch.attributes = signed16(be16(buf, at + 21))
    batch.codec = batch.attributes & CODEC_BITS
    batch.first_timestamp = be64(buf, at + 27)
    batch.max_timestamp = be64(buf, at + 35)
    batch.producer_id = be64(buf, at + 43)
    batch.producer_epoch = signed16(be16(buf, at + 51))
    batch.base_sequence = signed32(be32(buf, at + 53))
    batch.records = signed32(be32(buf, at + 57))
    batch.body = at + BATCH_HEADER


@helper
def key_and_value(buf, at, magic, end):  # type: ignore[no-untyped-def]
    """Where key and value of the message at `at` lie, which ends at `end`: (key_at, length, value_at, length), lengths
    -1 for null; value_at is -1, and value's length too, where they do not lie within it."""
    key_at = at + (MESSAGE_1 if magic == 1 else MESSAGE_0) - 4
    key = signed32(be32(buf, key_at - 4))
    value_at = key_at + max(key, np.int64(0)) + 4
    if key >= -1 and value_at <= end:
        value = signed32(be32(buf, value_at - 4))
        if -1 <= value <= end - value_at:
            return key_at, key, value_at, value
    return key_at, key, np.int64(-1), np.int64(-1)


@helper
def _read_message_header(buf, at, batch):  # type: ignore[no-untyped-def]
    """Of a whole message. Its body is itself, or where it is compressed its value; MALFORMED where it holds none."""
    batch.crc = be32(buf, at + 12)
    batch.attributes = np.int64(buf[at + 17])
    batch.codec = batch.attributes & CODEC_BITS
    batch.records = 1
    if batch.magic == 1:
        batch.max_timestamp = be64(buf, at + 18)
    batch.body = at
    batch.body_end = batch.end
    if batch.codec == 0:
        return
    batch.body = -1
    _, _, value_at, value = key_and_value(buf, at, np.int64(batch.magic), batch.end)
    if value < 0:
        batch.status = MALFORMED
        return
    batch.body = value_at
    batch.body_end = value_at + value


@helper
def _read_batch(buf, at, end, part, batch):  # type: ignore[no-untyped-def]
    """Read the batch at `at` as far as it is there; where the next one starts, `end` where that is not known."""
    if end - at >= 8:
        batch.base_offset = be64(buf, at)
    header = batch_header(buf, at, end, np.int64(UNKNOWN_END) if part.cut else end)
    batch.magic = header.magic
    batch.end = min(header.following, end)
    if header.state == NO_BATCH:
        batch.status = MALFORMED
        batch.base_offset = UNKNOWN_NUMBER
    elif header.state == OTHER_MAGIC:
        batch.status = UNKNOWN_MAGIC
    elif header.state == THERE and header.following <= end:
        if header.magic == 2:
            _read_batch_header(buf, at, batch)
            batch.body_end = header.following
        else:
            _read_message_header(buf, at, batch)
    else:
        if part.cut:
            batch.status = NOT_CAPTURED if part.cut == 1 else CUT_OFF
        else:
            batch.status = PARTIAL if part.fetch else MALFORMED
        if header.magic == 2 and end - at >= BATCH_HEADER:
            _read_batch_header(buf, at, batch)
            batch.body_end = end
            if batch.status == PARTIAL or batch.codec != 0:
                batch.body = -1
    return np.int64(batch.end)


@kernel(np.uint8, PART, int, ABORTED, BATCH, np.int64)
def walk_batches(arena, parts, count, aborted, batches, state):  # type: ignore[no-untyped-def]
    """Give a BATCH row for each batch of parts[:count], in order, from where `state` says on; return their number.

    Not all are walked while state[PART_NUMBER] < count: call it again. Begin with zeros, state[POSITION] and
    state[LAST_EXCHANGE] -1.
    """
    made = 0
    while state[PART_NUMBER] < count:
        part = parts[state[PART_NUMBER]]
        at = state[POSITION]
        if at < 0:
            at = np.int64(part.at)
            if part.exchange != state[LAST_EXCHANGE]:
                state[NUMBER] = 0
                state[LAST_EXCHANGE] = part.exchange
        end = min(np.int64(part.end), np.int64(len(arena)))
        while at < end:
            if made == len(batches):
                state[POSITION] = at
                return made
            batch = batches[made]
            _clear_batch(batch, state[PART_NUMBER], part, at)
            at = _read_batch(arena, at, end, part, batch)
            _judge_transaction(arena, part, aborted, batch)
            batch.number = state[NUMBER]
            state[NUMBER] += 1
            made += 1
        state[PART_NUMBER] += 1
        state[POSITION] = -1
    return made


@kernel(np.uint8, np.int64, np.int64, np.int64, int, np.uint8)
def gather(source, at, length, target, count, out):  # type: ignore[no-untyped-def]
    """Copy `count` pieces source[at:at + length] to out[target:]; a length below 1 is none. Return the bytes."""
    total = 0
    for i in range(count):
        start, to = at[i], target[i]
        for k in range(length[i]):
            out[np.uintp(to + k)] = source[np.uintp(start + k)]
        total += max(length[i], np.int64(0))
    return total
