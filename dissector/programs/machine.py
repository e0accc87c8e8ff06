"""The machine: one loop that runs programs over message bodies and writes the wanted fields onto the tape.

An instruction is four int32: the operation and, above its lowest byte, how many bytes it needs (`op | need << 8`), then
a, b and c. Before any operation the machine checks in one place that the bytes it needs are there. Unwanted fields of
fixed size only enlarge the need of the next instruction. Lengths, counts and tags from the message itself are checked
where they are used.

Termination: every pass of an array's loop reads at least the element's least size, and count x least size is bounded by
the bytes left when the array is entered; every tag has at least two bytes, and their number is bounded likewise.

The loop casts indices to unsigned, since numba has to wrap negative ones.

Jumps are relative to the instruction that follows. `b` holds flags in its lowest byte and a jump's distance above it.
"""

from __future__ import annotations

import numpy as np

from kafkatap.kernels import kernel
from kafkatap.kernels.decorator import helper, inlined, record_dtype
from kafkatap.kernels.hints import prefetch
from kafkatap.kernels.readers import be16, be32, be64, signed16, signed32

from ..dtypes import INCOMPLETE, MALFORMED, MOST_ROWS, NOT_DECODED, OK, TOO_LARGE, TRAILING_BYTES

#: One body to decode. `status` as in `rows.STATUSES`.
JOB = record_dtype(
    ("at", "i8"),  # where the body starts in its buffer: after a request's client_id, a response's correlation_id
    ("end", "i8"),  # end of the bytes that were captured
    ("limit", "i8"),  # end that the frame's size field declares, >= end
    ("tape_first", "i8"),  # out: its first row
    ("error_at", "i8"),  # out: where decoding stopped, relative to `at`; -1 when it did not
    ("frame", "i8"),  # copied to each of its rows
    ("source", "i4"),  # buffer: 0 block, 1 held, 2 pool
    ("program", "i4"),  # first instruction, or -1
    ("tape_count", "i4"),  # out: how many rows
    ("error_field", "i4"),  # out: id of the field at which decoding stopped, -1
    ("nulls", "i4"),  # out: nulls where the schema forbids them
    ("status", "i4"),  # out
)

#: One row. Integers, bools (0, 1) and the bits of a float64 are in `value`; for strings, bytes and uuids it is the
#: offset in the job's buffer, and `length` their length (-1 null). `fields.KINDS` has the contents of other rows.
TAPE = record_dtype(
    ("value", "i8"),
    ("frame", "i4"),
    ("parent", "i4"),  # row of the enclosing array element, -1 at the top
    ("length", "i4"),
    ("field", "i4"),
    ("stop", "i4"),  # end of the bytes read for it, relative to the job's `at` (of an array: of its count)
)

(
    OP_END, OP_SKIP, OP_ELEMENT, OP_NEXT, OP_TAG_END, OP_BOOL, OP_INT8, OP_INT16, OP_UINT16, OP_INT32, OP_UINT32,
    OP_INT64, OP_UUID, OP_NONZERO16, OP_STRUCT, OP_NULLABLE_STRUCT, OP_TAGS, OP_TAG_NEXT,
    OP_BYTES_16, OP_BYTES_32, OP_BYTES_C, OP_ARRAY_32, OP_ARRAY_C, OP_FIXED_32, OP_FIXED_C,
) = range(25)  # fmt: skip

#: Flags of b. OPEN (of OP_END): more bytes may follow.
NULLABLE, ROW, AHEAD, OPEN = 1, 2, 4, 8

#: Places in `scratch`: the results of a run besides its status, then the stack.
#: A run that fails also writes its reason, the two numbers of that reason, the bytes left, and the top of the stack.
(
    ROWS, ERROR_AT, ERROR_FIELD, NULLS, ERROR_REASON, ERROR_AMOUNT, ERROR_DETAIL, ERROR_LEFT, ERROR_LEVEL,
) = range(9)  # fmt: skip
STACK, LEVEL, MAX_DEPTH = 12, 4, 16
SCRATCH_SIZE = STACK + LEVEL * MAX_DEPTH
#: Places in one level of the stack: how many elements or tags are left, the first instruction of the loop, the value
#: to restore behind it, and the number of the current element (-1 in a tag section).
LEFT, BODY, SAVED, INDEX = range(4)

#: Why a run failed. SHORT: AMOUNT bytes do not fit. VARINT: a varint of more than 32 bits. LENGTH: a length of AMOUNT.
#: COUNT: AMOUNT elements of at least DETAIL bytes do not fit. TAG: the AMOUNT bytes of tag DETAIL do not fit. OVER:
#: AMOUNT bytes are left in a tag.
E_SHORT, E_VARINT, E_LENGTH, E_COUNT, E_TAG, E_OVER = range(6)

#: So many jobs ahead, bytes are loaded into the cache.
JOBS_AHEAD = 6

#: A run's status when the tape has no row left.
TAPE_FULL = -1
#: The first row of a run that only checks a body.
NO_ROWS = -1


@helper
def long_varint(buf, at, stop):  # type: ignore[no-untyped-def]
    """An unsigned varint of at most 32 bits: value | size << 32; else -16, or -1 - n where the bytes end after n."""
    value = np.int64(0)
    for k in range(5):
        if at + k >= stop:
            return np.int64(-1 - k)
        byte = np.int64(buf[at + k])
        value |= (byte & 127) << (7 * k)
        if byte < 128:
            return value | np.int64(k + 1) << 32 if value < 4294967296 else np.int64(-16)
    return np.int64(-16)


@helper
def _fail(scratch, status, reason, amount, detail):  # type: ignore[no-untyped-def]
    """Note why a run fails; return `status`."""
    scratch[ERROR_REASON] = reason
    scratch[ERROR_AMOUNT] = amount
    scratch[ERROR_DETAIL] = detail
    return np.int64(status)


@helper
def _fail_in_varint(scratch, found, at, limit):  # type: ignore[no-untyped-def]
    """The same where `long_varint` found no varint; `at` is the place that run_program stops at."""
    if found == -16:
        return _fail(scratch, MALFORMED, E_VARINT, 0, 0)
    return _fail(scratch, MALFORMED if at >= limit else INCOMPLETE, E_SHORT, 1, 0)


@helper
def run_program(buf, at, end, limit, code, pc, tape, row, frame, scratch):  # type: ignore[no-untyped-def]
    """Walk the body at buf[at:end] of a frame that ends at `limit`; return its status, or TAPE_FULL.

    Rows go to tape[row:], and scratch[ROWS] is the next free row then; with NO_ROWS the body is only checked. A run
    that fails fills scratch[ERROR_AT] (a place in `buf`) to [ERROR_LEVEL].
    """
    at = np.int64(at)
    start = at
    limit = np.int64(limit)
    captured = min(np.int64(end), np.int64(len(buf)))
    stop = min(captured, limit)
    pc = np.int64(pc)
    row = np.int64(row)
    room = np.int64(len(tape))
    most = row + MOST_ROWS
    parent = np.int64(-1)
    nulls = np.int64(0)
    sp = np.int64(STACK - LEVEL)
    field = np.int64(-1)
    status = np.int64(OK if at >= 0 else MALFORMED)
    while status == OK:
        word = np.int64(code[np.uintp(pc)])
        field = np.int64(code[np.uintp(pc + 1)])
        bits = np.int64(code[np.uintp(pc + 2)])
        op = word & 255
        at += word >> 8
        if at > stop:
            status = _fail(scratch, MALFORMED if at > limit else INCOMPLETE, E_SHORT, word >> 8, 0)
            at -= word >> 8
            break
        pc += 4
        out = np.int64(-1)  # the field of this instruction's row, if it has one
        value = np.int64(0)
        length = np.int64(0)
        opens = False
        if op >= OP_BYTES_16:
            extra = np.int64(code[np.uintp(pc - 1)])
            width = np.int64(1)
            if op == OP_BYTES_16:
                width = np.int64(2)
                n = signed16(be16(buf, at - 2))
            elif op in (OP_BYTES_C, OP_ARRAY_C, OP_FIXED_C):
                n = np.int64(buf[np.uintp(at - 1)])
                if n >= 128:
                    n = long_varint(buf, at - 1, stop)
                    if n < 0:
                        at = at - 1 if n == -16 else at - 2 - n
                        status = _fail_in_varint(scratch, n, at, limit)
                        break
                    width = n >> 32
                    at += width - 1
                    n &= 0xFFFFFFFF
                n -= 1
            else:
                width = np.int64(4)
                n = signed32(be32(buf, at - 4))
            if n < 0:
                if n < -1:
                    at -= width
                    status = _fail(scratch, MALFORMED, E_LENGTH, n, 0)
                    break
                if bits & NULLABLE == 0:
                    nulls += 1
                length = np.int64(-1)
                if bits & ROW:
                    out = field if op <= OP_BYTES_C else field + 1
                if op in (OP_ARRAY_32, OP_ARRAY_C):
                    pc += bits >> 8
            elif op <= OP_BYTES_C:
                value = at
                length = n
                if at + n <= stop:
                    if bits & ROW:
                        out = field
                    at += n
                elif at + n > limit:
                    status = _fail(scratch, MALFORMED, E_SHORT, n, 0)
                    break
                else:
                    status = _fail(scratch, INCOMPLETE, E_SHORT, n, 0)
                    if bits & AHEAD == 0 or bits & ROW == 0:
                        break
                    out = field
            else:
                if n * extra > limit - at:
                    status = _fail(scratch, MALFORMED, E_COUNT, n, extra)
                    break
                if op >= OP_FIXED_32:
                    if at + n * extra > stop:
                        status = _fail(scratch, INCOMPLETE, E_SHORT, n * extra, 0)
                        break
                    at += n * extra
                elif n == 0:
                    pc += bits >> 8
                else:
                    sp += LEVEL
                    scratch[np.uintp(sp + LEFT)] = n
                    scratch[np.uintp(sp + BODY)] = pc
                    scratch[np.uintp(sp + SAVED)] = parent
                    scratch[np.uintp(sp + INDEX)] = 0
                if bits & ROW:
                    out = field + 1
                    length = n
        elif op == OP_NEXT:
            parent = scratch[np.uintp(sp + SAVED)]
            left = scratch[np.uintp(sp + LEFT)] - 1
            if left > 0:
                scratch[np.uintp(sp + LEFT)] = left
                scratch[np.uintp(sp + INDEX)] += 1
                pc = scratch[np.uintp(sp + BODY)]
            else:
                sp -= LEVEL
        elif op == OP_NONZERO16:
            value = signed16(be16(buf, at - 2))
            if value != 0:
                out = field
        elif op == OP_ELEMENT:
            out = field
            value = scratch[np.uintp(sp + INDEX)]
            opens = True
        elif op == OP_TAGS:
            n = np.int64(buf[np.uintp(at - 1)])
            if n >= 128:
                n = long_varint(buf, at - 1, stop)
                if n < 0:
                    at = at - 1 if n == -16 else at - 2 - n
                    status = _fail_in_varint(scratch, n, at, limit)
                    break
                at += (n >> 32) - 1
                n &= 0xFFFFFFFF
            if n == 0:
                pc += bits >> 8
            elif 2 * n > limit - at:
                status = _fail(scratch, MALFORMED, E_COUNT, n, 2)
                break
            else:
                sp += LEVEL
                scratch[np.uintp(sp + LEFT)] = n
                scratch[np.uintp(sp + BODY)] = pc
                scratch[np.uintp(sp + SAVED)] = limit
                scratch[np.uintp(sp + INDEX)] = -1
        elif op == OP_TAG_NEXT:
            left = scratch[np.uintp(sp + LEFT)]
            if left == 0:
                sp -= LEVEL
                pc += bits >> 8
            else:
                scratch[np.uintp(sp + LEFT)] = left - 1
                value = at
                tag = long_varint(buf, at, stop)
                if tag < 0:
                    at = at if tag == -16 else at - 1 - tag
                    status = _fail_in_varint(scratch, tag, at, limit)
                    break
                at += tag >> 32
                tag &= 0xFFFFFFFF
                n = long_varint(buf, at, stop)
                if n < 0:
                    at = at if n == -16 else at - 1 - n
                    status = _fail_in_varint(scratch, n, at, limit)
                    break
                at += n >> 32
                n &= 0xFFFFFFFF
                if n > limit - at:
                    status = _fail(scratch, MALFORMED, E_TAG, n, tag)
                    break
                target = np.int64(-1)
                for k in range(np.int64(code[np.uintp(pc - 1)])):
                    if np.int64(code[pc + 4 * k]) == tag:
                        target = pc + np.int64(code[pc + 4 * k + 1])
                if target >= 0:
                    pc = target
                    limit = at + n
                    stop = min(captured, limit)
                elif at + n > stop:
                    status = _fail(scratch, INCOMPLETE, E_SHORT, n, 0)
                    break
                else:
                    at += n
                    pc -= 4
                    if bits & ROW:
                        out = field
                        length = at - value
        elif op == OP_TAG_END:
            if at != limit:
                status = _fail(scratch, MALFORMED, E_OVER, limit - at, 0)
                break
            limit = scratch[np.uintp(sp + SAVED)]
            stop = min(captured, limit)
            pc = scratch[np.uintp(sp + BODY)]
        elif op == OP_END:
            if at < limit and bits & OPEN == 0:
                status = np.int64(TRAILING_BYTES)
            break
        elif op == OP_STRUCT:
            out = field
        elif op == OP_NULLABLE_STRUCT:
            if buf[np.uintp(at - 1)] >= 128:
                length = np.int64(-1)
                pc += bits >> 8
            if bits & ROW:
                out = field
        elif op == OP_INT32:
            out = field
            value = signed32(be32(buf, at - 4))
        elif op == OP_INT16:
            out = field
            value = signed16(be16(buf, at - 2))
        elif op == OP_INT64:
            out = field
            value = be64(buf, at - 8)
        elif op == OP_UUID:
            out = field
            value = at - 16
            length = np.int64(16)
        elif op == OP_INT8:
            out = field
            value = np.int64(buf[np.uintp(at - 1)])
            if value >= 128:
                value -= 256
        elif op == OP_BOOL:
            out = field
            value = np.int64(1 if buf[np.uintp(at - 1)] != 0 else 0)
        elif op == OP_UINT32:
            out = field
            value = be32(buf, at - 4)
        elif op == OP_UINT16:
            out = field
            value = be16(buf, at - 2)
        if out >= 0 and row >= 0:
            if row >= most:
                status = np.int64(TOO_LARGE)
                break
            if row >= room:
                status = np.int64(TAPE_FULL)
                break
            entry = tape[np.uintp(row)]
            entry.value = value
            entry.frame = frame
            entry.parent = parent
            entry.length = length
            entry.field = out
            entry.stop = at - start
            if opens:
                parent = row
            row += 1
    scratch[ROWS] = row
    scratch[NULLS] = nulls
    if status != OK:
        scratch[ERROR_AT] = at
        scratch[ERROR_FIELD] = field
        scratch[ERROR_LEFT] = (limit if status == MALFORMED else stop) - at
        scratch[ERROR_LEVEL] = sp
    return status


@inlined
def _prefetch_body(job, block, held, pool):  # type: ignore[no-untyped-def]
    """Start to load both ends of a body. Between them there are often records, which the machine skips."""
    source = np.int64(job.source)
    buf = block if source == 0 else (held if source == 1 else pool)
    prefetch(buf, job.at)
    prefetch(buf, job.at + 64)
    prefetch(buf, job.end - 1)


@helper
def run_jobs(code, jobs, n_jobs, first_job, block, held, pool, tape, scratch):  # type: ignore[no-untyped-def]
    """Run jobs[first_job:n_jobs]; return the first job that was not run because the tape is full, else n_jobs.

    scratch[ROWS] is the first free row, before and after (0 for a new tape); `scratch` holds SCRATCH_SIZE or more.
    """
    row = scratch[ROWS]
    for j in range(first_job, n_jobs):
        job = jobs[j]
        if j + JOBS_AHEAD < n_jobs:
            _prefetch_body(jobs[j + JOBS_AHEAD], block, held, pool)
        job.tape_first = row
        job.tape_count = 0
        job.error_at = -1
        job.error_field = -1
        job.nulls = 0
        job.status = NOT_DECODED
        if job.program < 0:
            continue
        source = np.int64(job.source)
        buf = block if source == 0 else (held if source == 1 else pool)
        status = run_program(
            buf, job.at, job.end, job.limit, code, np.int64(job.program), tape, row, job.frame, scratch
        )
        if status == TAPE_FULL:
            scratch[ROWS] = row
            return j
        job.tape_count = scratch[ROWS] - row
        row = scratch[ROWS]
        if status != OK:
            job.error_at = scratch[ERROR_AT] - job.at
            job.error_field = scratch[ERROR_FIELD]
        job.nulls = scratch[NULLS]
        job.status = status
    scratch[ROWS] = row
    return n_jobs


@kernel(np.int32, JOB, int, int, np.uint8, np.uint8, np.uint8, TAPE, np.int64)
def decode_frames(code, jobs, n_jobs, first_job, block, held, pool, tape, scratch):  # type: ignore[no-untyped-def]
    """`run_jobs` by itself, for single messages."""
    return run_jobs(code, jobs, n_jobs, first_job, block, held, pool, tape, scratch)
