"""Headers of record batches and messages: the only code that walks the batches of a `records` field.

A field has batches of magic 2, or messages of magic 0 and 1, one behind the other. Each begins with an offset and its
size; the byte 16 is its magic. Whatever the bytes are, a walk ends: a batch has more bytes than LOG_OVERHEAD. A batch
of an unknown magic is stepped over. A size that no batch has ends a field.

Layouts: KIP-98 (magic 2), KIP-32 (magic 0 and 1).
"""

from __future__ import annotations

from collections import namedtuple

import numpy as np

from kafkatap.kernels import kernel
from kafkatap.kernels.decorator import helper
from kafkatap.kernels.readers import be32, signed32

#: Bytes before a batch's body (magic 2), and in the shortest messages.
BATCH_HEADER, MESSAGE_0, MESSAGE_1 = 61, 26, 34
#: Offset and size, which the size does not count.
LOG_OVERHEAD = 12
#: Bytes of a message up to its attributes, and of any batch up to its magic.
_MESSAGE_ATTRIBUTES, _MAGIC = 18, 17
#: Bits of the attributes. CONTROL: the batch is a marker that Kafka wrote, such as the end of a transaction.
CODEC_BITS, CONTROL = 7, 32
#: A field's end that is not known: the capture ends before.
UNKNOWN_END = 2**62

#: What is at a place of a field. THERE: the header is there, and the batch ends within its field; bytes behind its
#: header may be missing. HEADER_CUT: a part of the header is missing. TOO_LONG: the batch goes on behind its field: a
#: broker cut off the last one of a response, which clients drop. OTHER_MAGIC: only the size can be read. NO_BATCH: no
#: batch has this size.
THERE, HEADER_CUT, TOO_LONG, OTHER_MAGIC, NO_BATCH = range(5)

#: `state`: THERE and so on. `magic`: signed, -1 if it is missing. `following`: where the next batch begins, at or
#: behind the field's end if there is none.
BatchHeader = namedtuple("BatchHeader", "at state magic following")


@helper
def batch_header(buf, at, captured, end):  # type: ignore[no-untyped-def]
    """The header at `at` of a field that ends at `end`; buf[at:captured] is there of it."""
    at = np.int64(at)
    if captured - at < _MAGIC:
        return BatchHeader(at, np.int64(HEADER_CUT), np.int64(-1), np.int64(end))
    size = signed32(be32(buf, at + 8))
    magic = np.int64(buf[np.uintp(at + 16)])
    magic = magic - 256 if magic >= 128 else magic
    least = np.int64(BATCH_HEADER if magic == 2 else (MESSAGE_1 if magic == 1 else MESSAGE_0))
    if size < least - LOG_OVERHEAD:
        return BatchHeader(at, np.int64(NO_BATCH), magic, np.int64(end))
    following = at + LOG_OVERHEAD + size
    if magic < 0 or magic > 2:
        return BatchHeader(at, np.int64(OTHER_MAGIC), magic, min(following, np.int64(end)))
    if following > end:
        return BatchHeader(at, np.int64(TOO_LONG), magic, np.int64(end))
    needed = np.int64(BATCH_HEADER if magic == 2 else _MESSAGE_ATTRIBUTES)
    return BatchHeader(at, np.int64(THERE if captured - at >= needed else HEADER_CUT), magic, following)


@helper
def next_header(buf, at, captured, end):  # type: ignore[no-untyped-def]
    """The first header from `at` on that is THERE. If there is none, its state is another one."""
    header = batch_header(buf, at, captured, end)
    while header.state == OTHER_MAGIC and header.following < captured:
        header = batch_header(buf, header.following, captured, end)
    return header


@helper
def record_count(buf, header):  # type: ignore[no-untyped-def]
    """The records of a batch that is THERE, by its header. A negative number is none, as no reader finds any; nor are
    markers, which no application gets. -1 if the header does not say: a message of magic 0 or 1 is one record, but a
    compressed one has a set in it."""
    if header.magic == 2:
        if buf[np.uintp(header.at + 22)] & CONTROL:
            return np.int64(0)
        return max(signed32(be32(buf, header.at + 57)), np.int64(0))
    return np.int64(-1 if buf[np.uintp(header.at + 17)] & CODEC_BITS else 1)


@helper
def count_records(buf, at, captured, end):  # type: ignore[no-untyped-def]
    """The records of a field by its headers; -1 if one of them does not say."""
    total = np.int64(0)
    header = next_header(buf, at, captured, end)
    while header.state == THERE:
        count = record_count(buf, header)
        if count < 0:
            return np.int64(-1)
        total += count
        header = next_header(buf, header.following, captured, end)
    return total


@kernel(np.uint8, int, int, int)
def records_in_field(buf, at, captured, end):  # type: ignore[no-untyped-def]
    """`count_records`, for Python."""
    return count_records(buf, at, captured, end)
