"""The facts of messages for one line, as numbers and as short bytes that are equal for equal facts.

One kernel reads the tape of the LINE profile. Numbers that differ from message to message have columns (PACKED). The
other rows become bytes, so that `summary.FactReader` reads each distinct combination once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from kafkatap.kernels import kernel
from kafkatap.kernels.decorator import record_dtype
from kafkatap.kernels.writers import put_bytes, put_int, written

from ..batch_headers import count_records
from ..programs.machine import JOB, TAPE

Array = np.ndarray[Any, Any]

#: Where the rows of a field go. The first ones have columns of PACKED; the others are packed, TEXT and ID with their
#: bytes. NOWHERE: no line shows it.
(
    TO_NOWHERE, TO_THROTTLE, TO_RECORDS, TO_OFFSET, TO_ELEMENT, TO_NUMBER, TO_TEXT,
) = range(7)  # fmt: skip

#: The numbers of one message.
PACKED = record_dtype(
    ("throttle_time_ms", "i8"),  # 0: none
    ("record_bytes", "i8"),  # of all records fields; -1: the message has none
    ("records", "i8"),  # -1: the batch headers do not say
    ("offset", "i8"),  # base offset, high watermark, offset to fetch and the like; -1 if there is not exactly one
)
#: Bits of a row's number and of its parent's in a packed row, below its field.
ROW_BITS = 20


@kernel(JOB, int, TAPE, np.uint8, np.uint8, np.uint8, np.uint8, PACKED, np.uint8, np.int64)
def pack_rows(jobs, first, tape, places, block, held, pool, numbers, out, ends):  # type: ignore[no-untyped-def]
    """Pack the rows of jobs[first:] until `out` is full (`writers.written`). `places`: TO_... by field."""
    at = np.int64(0)
    for j in range(first, len(jobs)):
        job = jobs[j]
        buf = block if job.source == 0 else (held if job.source == 1 else pool)
        start = at
        throttle = np.int64(0)
        size = np.int64(-1)
        records = np.int64(0)
        offset = np.int64(-1)
        offsets = 0
        begin = np.int64(job.tape_first)
        for k in range(job.tape_count):
            row = tape[begin + k]
            place = places[row.field]
            length = np.int64(row.length)
            value = np.int64(row.value)
            if place == TO_NOWHERE or (length < 0 and place != TO_ELEMENT):
                continue
            if place == TO_THROTTLE:
                throttle = value
            elif place == TO_OFFSET:
                offset = value
                offsets += 1
            elif place == TO_RECORDS:
                size = max(size, np.int64(0)) + length
                if length > 0 and records >= 0:
                    stop = value + length
                    count = count_records(buf, value, min(stop, np.int64(job.end)), stop)
                    records = count if count < 0 else records + count
            else:
                parent = np.int64(row.parent) - begin + 1 if row.parent >= 0 else np.int64(0)
                at = put_int(out, at, (np.int64(row.field) << (2 * ROW_BITS)) | (k << ROW_BITS) | parent)
                if place == TO_NUMBER:
                    at = put_int(out, at, value)
                elif place == TO_TEXT:
                    at = put_bytes(out, at, buf, value, max(min(length, np.int64(len(buf)) - value), np.int64(0)))
        if at > len(out):
            ends[j] = at - start
            return j
        ends[j] = at
        numbers[j].throttle_time_ms = throttle
        numbers[j].record_bytes = size
        numbers[j].records = records
        numbers[j].offset = offset if offsets == 1 else np.int64(-1)
    return len(jobs)


def packed(
    jobs: Array, tape: Array, places: Array, buffers: tuple[Array, Array, Array], numbers: Array
) -> Iterator[bytes]:
    """Yield the packed rows of each job, whose bytes lie in `buffers`, and fill `numbers` (PACKED (n,))."""
    return written(
        lambda first, out, ends: pack_rows(jobs, first, tape, places, *buffers, numbers, out, ends), len(jobs)
    )
