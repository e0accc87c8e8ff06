"""What the first bytes of a frame say for it: a header that fits, a body that the schema reads to its very end.

A size and a few small numbers are no proof: many protocols begin their messages like that. The body decides, or what
the other end answers. A client_id may be any bytes; that it is text counts only where the body cannot be read.
"""

from __future__ import annotations

import numpy as np

from kafkatap.kernels.decorator import helper
from kafkatap.kernels.readers import be16, be32, same_bytes, signed16, signed32

from ..dtypes import MALFORMED, NO_INT16, OK, TRAILING_BYTES
from ..programs.machine import ERROR_AT, NO_ROWS, SCRATCH_SIZE, run_program
from .correlation import CONTROLLED_SHUTDOWN, PRODUCE, acks_of, find_pending, program_of, response_program

#: Frames beyond this are not believed (a broker takes requests up to socket.request.max.bytes, 100 MiB by default).
LONGEST_FRAME = 1 << 30
#: How deep in the queue a searched response may lie.
SEARCH_DEPTH = 64
#: Apache Kafka's keys stay below this for long; those of vendors begin at 10,000.
APACHE_KEYS = 1_000
#: The body of a Produce request with one topic is no shorter.
LEAST_PRODUCE = 18
REJECT, ACCEPT, WAIT = range(3)
#: Places in scratch behind the machine's own: the program of a candidate, and where its body starts.
PROGRAM, BODY = SCRATCH_SIZE, SCRATCH_SIZE + 1


@helper
def plausible_key(key, version):  # type: ignore[no-untyped-def]
    """Whether an api_key and version can be a newer Kafka's, a vendor's own, or a client's mistake."""
    return 0 <= key <= 32_767 and 0 <= version <= 100


@helper
def request_header(t, buf, at, end):  # type: ignore[no-untyped-def]
    """Whether a request's header stands at buf[at:end]: ACCEPT, REJECT, or WAIT where its end is not there yet.
    scratch[PROGRAM] and [BODY] tell which program reads its body (-1: none), and from where."""
    if at + 12 > end:
        return WAIT
    size = be32(buf, at)
    key = be16(buf, at + 4)
    version = be16(buf, at + 6)
    if size < 8 or size > LONGEST_FRAME or not plausible_key(key, version):
        return REJECT
    t.scratch[PROGRAM] = program_of(t.index, 0, key, version)
    t.scratch[BODY] = at + 12
    if key == CONTROLLED_SHUTDOWN and version == 0:
        return ACCEPT
    if at + 14 > end:
        return WAIT
    length = signed16(be16(buf, at + 12))
    if length < -1 or length + 10 > size:
        return REJECT
    t.scratch[BODY] = at + 14 + max(np.int64(0), length)
    return ACCEPT if t.scratch[BODY] <= end else WAIT


@helper
def response_header(t, c, buf, at, end):  # type: ignore[no-untyped-def]
    """The same for a response: its correlation_id has to be one that was asked for."""
    if at + 8 > end:
        return WAIT
    size = be32(buf, at)
    if size < 4 or size > LONGEST_FRAME:
        return REJECT
    slot = find_pending(t, t.dialogs[c], signed32(be32(buf, at + 4)), SEARCH_DEPTH)
    if slot < 0:
        return REJECT
    x = t.exchanges[slot]
    t.scratch[PROGRAM] = response_program(
        t.index, np.int64(x.api_key), np.int64(x.api_version), buf, at + 8, min(end, at + 4 + size)
    )
    t.scratch[BODY] = at + 8
    return ACCEPT


@helper
def body_status(t, buf, at, end, as_request, fresh):  # type: ignore[no-untyped-def]
    """The status of the body of the frame at buf[at:end], by the program that its header named. Of requests two more
    things count: Produce, which zeros read as, has a topic and knows three `acks`; librdkafka's for the metadata of all
    topics have three bytes too many, which is believed where a segment starts."""
    frame_end = at + 4 + be32(buf, at)
    status = run_program(
        buf, t.scratch[BODY], min(end, frame_end), frame_end, t.code, t.scratch[PROGRAM], t.tape, NO_ROWS, 0, t.scratch
    )
    if as_request and be16(buf, at + 4) == PRODUCE:
        acks = acks_of(buf, t.scratch[BODY], min(end, frame_end), be16(buf, at + 6))
        if frame_end - t.scratch[BODY] < LEAST_PRODUCE or (acks != NO_INT16 and (acks < -1 or acks > 1)):
            return np.int64(MALFORMED)
    elif as_request and fresh and status == TRAILING_BYTES and frame_end - t.scratch[ERROR_AT] <= 4:
        return np.int64(OK)
    return np.int64(status)


@helper
def may_be_same_client(t, dialog, buf, at, end):  # type: ignore[no-untyped-def]
    """Whether the client_id of the request at `at` is the one that its connection had before, as far as it is there."""
    if at + 14 > end:
        return True
    length = signed16(be16(buf, at + 12))
    if dialog.client_id < 0:
        return -1 <= length <= 0
    known = t.strings[dialog.client_id]
    return length == np.int64(known.length) and same_bytes(buf, at + 14, t.text, known.at, min(length, end - at - 14))


@helper
def is_named(t, dialog, buf, at, end):  # type: ignore[no-untyped-def]
    """Whether the request at `at` has a client_id that is text as far as it is there, or the one that its connection
    had before."""
    if at + 14 > end:
        return False
    length = signed16(be16(buf, at + 12))
    if length <= 0:
        return False
    if may_be_same_client(t, dialog, buf, at, end):
        return True
    for k in range(min(length, end - at - 14)):
        byte = buf[at + 14 + k]
        if byte < 32 or byte == 127:
            return False
    return True
