"""Single records: the kernel that reads the decompressed bodies of batches, and the rows of RECORD and HEADER.

Every length is compared with the end of its enclosing part. A record has at least one byte, so a batch ends whatever
count it declares. Sums of offsets and times wrap as Kafka's do.

Layouts: Kafka's documentation of record batches, KIP-31 and KIP-32 (magic 1, relative offsets), KIP-98 (magic 2).
"""

from __future__ import annotations

import numpy as np

from kafkatap.kernels import kernel
from kafkatap.kernels.decorator import helper
from kafkatap.kernels.readers import be64

from ..batch_headers import CODEC_BITS, OTHER_MAGIC, THERE, batch_header, next_header
from .batches import (
    BASE,
    BATCH,
    CONTROL,
    CRC_UNCHECKED,
    HEADER,
    HEADERS,
    INDEX,
    LOG_APPEND_TIME,
    MALFORMED,
    NESTED,
    NEXT,
    OK,
    PARTIAL,
    RECORD,
    RECORDS,
    TRAILING_BYTES,
    UNKNOWN_MAGIC,
    UNKNOWN_NUMBER,
    control_type,
    key_and_value,
    varint,
    wrapping_sum,
)

#: Results of `_read_record` instead of a position.
_BAD, _FULL = -1, -2


@helper
def _read_piece(buf, at, end, null):  # type: ignore[no-untyped-def]
    """Bytes behind their length: the length (-1 null, where `null` allows it), and where they start, or -1."""
    length, at = varint(buf, at, end, 5)
    if at < 0 or length < -1 or length > end - at or (length < 0 and not null):
        return np.int64(-1), np.int64(_BAD)
    return length, at


@helper
def _read_record(buf, at, limit, batch, record, headers, used):  # type: ignore[no-untyped-def]
    """Read a record of magic 2 into its row, its headers into headers[used:]; the position behind it, _BAD or _FULL."""
    size, at = varint(buf, at, limit, 5)
    if at < 0 or size < 1 or size > limit - at:
        return np.int64(_BAD)
    end = at + size
    delta, at = varint(buf, at + 1, end, 10)
    if at < 0:
        return np.int64(_BAD)
    record.timestamp = wrapping_sum(batch.first_timestamp, delta)
    if batch.attributes & LOG_APPEND_TIME != 0:
        record.timestamp = batch.max_timestamp
    delta, at = varint(buf, at, end, 5)
    if at < 0:
        return np.int64(_BAD)
    record.offset = wrapping_sum(batch.base_offset, delta)
    sequence = np.int64(batch.base_sequence)
    record.sequence = (sequence + delta) & 0x7FFFFFFF if sequence >= 0 else np.int64(-1)
    length, at = _read_piece(buf, at, end, True)
    if at < 0:
        return np.int64(_BAD)
    record.key_at = at
    record.key_length = length
    record.control = -1
    if batch.attributes & CONTROL != 0:
        record.control = control_type(buf, at, length)
    length, at = _read_piece(buf, at + max(length, np.int64(0)), end, True)
    if at < 0:
        return np.int64(_BAD)
    record.value_at = at
    record.value_length = length
    count, at = varint(buf, at + max(length, np.int64(0)), end, 5)
    if at < 0 or count < 0 or 2 * count > end - at or count > len(headers):
        return np.int64(_BAD)
    if used + count > len(headers):
        return np.int64(_FULL)
    record.headers = count
    for k in range(count):
        header = headers[used + k]
        length, at = _read_piece(buf, at, end, False)
        if at < 0:
            return np.int64(_BAD)
        header.key_at = at
        header.key_length = length
        length, at = _read_piece(buf, at + length, end, True)
        if at < 0:
            return np.int64(_BAD)
        header.value_at = at
        header.value_length = length
        at += max(length, np.int64(0))
    return at if at == end else np.int64(_BAD)


@helper
def _start(record, batch_number, status):  # type: ignore[no-untyped-def]
    """Fill in what the records of magic 2 have in common with marks and messages."""
    record.batch = batch_number
    record.status = status
    record.at = 0
    record.end = 0
    record.crc_state = CRC_UNCHECKED


@helper
def _mark(record, batch_number, batch, status):  # type: ignore[no-untyped-def]
    """Make a row that only says what is wrong with a batch from here on."""
    _start(record, batch_number, status)
    record.offset = batch.base_offset
    record.timestamp = UNKNOWN_NUMBER
    record.key_at = 0
    record.value_at = 0
    record.key_length = -1
    record.value_length = -1
    record.headers = 0
    record.sequence = -1
    record.control = -1


@helper
def _read_message(buf, header, batch, record):  # type: ignore[no-untyped-def]
    """Read the message of magic 0 or 1 behind a header into its row, with its status."""
    at, end, magic = header.at, header.following, header.magic
    if magic < 0 or magic > 1:
        record.status = MALFORMED if magic == 2 else UNKNOWN_MAGIC
        return
    record.at = at
    record.end = end
    if buf[np.uintp(at + 17)] & CODEC_BITS != 0:
        record.status = NESTED
        return
    if magic == 1:
        record.timestamp = be64(buf, at + 18)
        if batch.magic == 1 and batch.attributes & LOG_APPEND_TIME != 0:
            record.timestamp = batch.max_timestamp
    key_at, key, value_at, value = key_and_value(buf, at, magic, end)
    if value_at < 0:
        record.status = MALFORMED
        return
    record.key_at = key_at
    record.key_length = key
    record.value_at = value_at
    record.value_length = value
    if value_at + max(value, np.int64(0)) < end:
        record.status = TRAILING_BYTES


@helper
def _offset_base(buf, at, end, magic, offset):  # type: ignore[no-untyped-def]
    """What to add to the offsets inside of a compressed message: with magic 1 they are relative, and the wrapper has
    that of its last one (`offset`). A producer may leave the wrapper's at 0, and then they count from there.
    UNKNOWN_NUMBER if the last one is not there."""
    if magic != 1:
        return np.int64(0)
    last = np.int64(0)
    while at < end:
        header = batch_header(buf, at, end, end)
        if header.state != THERE and header.state != OTHER_MAGIC:
            break
        last = be64(buf, at)
        at = header.following
    if last < 0 or offset <= last:
        return np.int64(0)
    return offset - last if at == end else np.int64(UNKNOWN_NUMBER)


@kernel(np.uint8, np.int64)
def nested_messages(messages, found):  # type: ignore[no-untyped-def]
    """Find the compressed messages of a message set: (at, end, value_at, value_end) of each, one behind the other in
    `found`; return their number. Those that have no value or no room there are left out."""
    end = np.int64(len(messages))
    count = 0
    header = next_header(messages, np.int64(0), end, end)
    while header.state == THERE and 4 * count + 4 <= len(found):
        if header.magic < 2 and messages[np.uintp(header.at + 17)] & CODEC_BITS != 0:
            _, _, value_at, value = key_and_value(messages, header.at, header.magic, header.following)
            if value >= 0:
                found[4 * count] = header.at
                found[4 * count + 1] = header.following
                found[4 * count + 2] = value_at
                found[4 * count + 3] = value_at + value
                count += 1
        header = next_header(messages, header.following, end, end)
    return count


@kernel(np.uint8, int, int)
def move_offsets(messages, magic, offset):  # type: ignore[no-untyped-def]
    """Write the offsets of a message set as its wrapper's (`magic`, `offset`) make them; return whether they are known.
    CRCs do not cover them."""
    end = np.int64(len(messages))
    base = _offset_base(messages, np.int64(0), end, magic, offset)
    if base == UNKNOWN_NUMBER:
        return 0
    header = batch_header(messages, np.int64(0), end, end)
    while header.state == THERE or header.state == OTHER_MAGIC:
        moved = wrapping_sum(be64(messages, header.at), base)
        for k in range(8):
            messages[np.uintp(header.at + k)] = moved >> (56 - 8 * k) & 255
        header = batch_header(messages, header.following, end, end)
    return 1


@helper
def _read_set(buf, batches, b, records, state):  # type: ignore[no-untyped-def]
    """Read the message or the messages inside of batch b, from state[NEXT] on; whether it is done with."""
    batch = batches[b]
    at = state[NEXT]
    end = np.int64(batch.body_end)
    if state[INDEX] == 0 and batch.codec != 0:
        state[BASE] = _offset_base(buf, at, end, np.int64(batch.magic), np.int64(batch.base_offset))
    while at < end:
        if state[RECORDS] == len(records):
            state[NEXT] = at
            return False
        record = records[state[RECORDS]]
        state[RECORDS] += 1
        state[INDEX] += 1
        _mark(record, b, batch, OK)
        header = batch_header(buf, at, end, end)
        if header.state == THERE or header.state == OTHER_MAGIC:
            record.offset = UNKNOWN_NUMBER
            if state[BASE] != UNKNOWN_NUMBER:
                record.offset = wrapping_sum(be64(buf, at), state[BASE])
            _read_message(buf, header, batch, record)
            at = header.following
        else:  # the rest of the set is lost
            record.offset = UNKNOWN_NUMBER
            record.status = MALFORMED
            at = end
        if batch.status == OK:
            batch.status = record.status
    return True


@helper
def _read_batch_records(buf, batches, b, records, headers, state):  # type: ignore[no-untyped-def]
    """Read the records of batch b (magic 2), from state[NEXT] on; whether it is done with."""
    batch = batches[b]
    at = state[NEXT]
    end = np.int64(batch.body_end)
    status = np.int64(MALFORMED if batch.records < 0 else OK)
    while status == OK and state[INDEX] < batch.records:
        if state[RECORDS] == len(records):
            state[NEXT] = at
            return False
        record = records[state[RECORDS]]
        following = _read_record(buf, at, end, batch, record, headers, state[HEADERS])
        if following == _FULL:
            state[NEXT] = at
            return False
        if following < 0:
            status = np.int64(MALFORMED)
            break
        _start(record, b, OK)
        state[HEADERS] += record.headers
        state[RECORDS] += 1
        state[INDEX] += 1
        at = following
    if batch.status != OK:
        status = np.int64(batch.status)
    elif status == OK and at < end:
        status = np.int64(TRAILING_BYTES)
    if status != OK:
        if state[RECORDS] == len(records):
            state[NEXT] = at
            return False
        _mark(records[state[RECORDS]], b, batch, status)
        batch.status = status
        state[RECORDS] += 1
    return True


@kernel(np.uint8, BATCH, int, int, RECORD, HEADER, np.int64)
def read_records(arena, batches, first, count, records, headers, state):  # type: ignore[no-untyped-def]
    """Read the records of batches[first:count]; return the first batch that is not done with, else `count`.

    records[:state[RECORDS]] and headers[:state[HEADERS]] are made. Where a table is full, call it again with both
    numbers set back to 0. state[NEXT] is -1 at first. The tables hold one row or more.
    """
    for b in range(first, count):
        batch = batches[b]
        if batch.status == PARTIAL:
            continue
        if state[NEXT] < 0:
            state[NEXT] = batch.body
            state[INDEX] = 0
            state[BASE] = 0
        if batch.body < 0:
            if state[RECORDS] == len(records):
                state[NEXT] = -1
                return b
            _mark(records[state[RECORDS]], b, batch, np.int64(batch.status))
            state[RECORDS] += 1
        elif batch.magic == 2:
            if not _read_batch_records(arena, batches, b, records, headers, state):
                return b
        elif not _read_set(arena, batches, b, records, state):
            return b
        state[NEXT] = -1
    return count
