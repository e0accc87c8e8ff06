"""The other tables of framing, and `Tables`: all that its kernels work on."""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np

from kafkatap.kernels.decorator import record_dtype

from ..dtypes import EXCHANGE
from ..programs.machine import JOB, TAPE
from ..strings import Strings
from .connections import CONNECTION, SILENCE, STREAM
from .samples import SAMPLE

Array = np.ndarray[Any, Any]

#: What reassembly emits, declared again so that neither package needs the other: DATA of `length` bytes, of which the
#: first `captured` lie at `at` in the block or in the held bytes (`source`); a GAP of `length` bytes that no packet
#: carried; START and END of a connection. `seq` is the sequence number of the first byte of DATA, `stamp` the upper
#: half of its packet's TCP time stamp (0: it has none). A START has the connection's serial in `at`, its key in
#: `length`, that of its ends in `stamp`, and 1 in `source` if its broker's port was named beforehand.
#: `opening` of a START is one of OPENING_*; of an END it has a bit for each direction of which no packet was captured,
#: and further ones (ENDED_BY) for the direction that closed the connection. `at` of an END is the time at which the
#: capture ended, ns since the epoch, if the connection was open until then; else 0. `length`: when it was closed; 0.
#: `opening` of DATA is SHOWS_TLS in the chunk that shows that its connection is TLS, SHOWS_PLAIN in an empty
#: one if decrypted bytes follow those that passed as they were, FROM_TLS and the place of the version in TLS_VERSIONS
#: in decrypted bytes; else 0.
CHUNK = record_dtype(
    ("at", "i8"),
    ("ts", "i8"),
    ("packet", "i8"),
    ("length", "i8"),
    ("seq", "u4"),
    ("captured", "i4"),
    ("connection", "i4"),
    ("direction", "u1"),
    ("kind", "u1"),
    ("source", "u1"),
    ("opening", "u1"),
    ("stamp", "i8"),
)
CHUNK_DATA, CHUNK_GAP, CHUNK_START, CHUNK_END, CHUNK_STALL = range(5)
#: `opening` of a STALL: why a direction was silent for `length` ns before its next DATA. LATE: bytes behind those came
#: so long before. RESENT: the bytes from `seq` on reached the other end at `ts` only; RETRACTED: they did so before.
#: ACKED: the other end acknowledged the `stamp` bytes before `seq`; during the handshake the round trip to it was
#: `length`, 0: short, or not known.
(
    STALL_LOSS, STALL_RECEIVER, STALL_SENDER, STALL_NAGLE, STALL_PATH, STALL_UNKNOWN, STALL_LATE, STALL_RESENT,
    STALL_RETRACTED, STALL_ACKED,
) = range(10)  # fmt: skip
#: How a connection begins: in its middle; with a SYN from the client, whose `direction` is noted; in its middle, and
#: `direction` is the client's by a hint; in its middle, and its row holds what is known of it (`Dissector.resume`).
OPENING_UNKNOWN, OPENING_SYN, OPENING_HINT, OPENING_RESUMED = range(4)
SHOWS_TLS, SHOWS_PLAIN, FROM_TLS = 1, 2, 3
#: The bits in `opening` of an END: direction 0 closed the connection with its FIN or RST, or direction 1 did.
ENDED_BY = (4, 8)

#: Where a frame's bytes lie: the block, reassembly's held bytes, or the pool of stream buffers.
SOURCE_BLOCK, SOURCE_HELD, SOURCE_POOL = range(3)

#: Bytes of one chunk in a buffer that is searched.
SEGMENT = record_dtype(
    ("offset", "i8"),  # in the buffer
    ("ts", "i8"),
    ("packet", "i8"),
    ("length", "i8"),  # on the wire
    ("seq", "i8"),  # as of `frames.ChunkPart`
    ("captured", "i4"),
    ("next", "i4"),
    ("starts_chunk", "u1"),  # its first byte is the chunk's
)

#: In `provisional` of a LINK, the factor of `closed_by`.
CLOSED_BY_BIT = 16
#: `passed` of a LINK: how it was answered out of order. Such a request waits behind none, and none behind it.
PASSED, PASSING = 1, 2
#: Beside each open exchange: its connection and the request that waits behind it.
LINK = record_dtype(
    ("losses", "i8"),  # the response stream's losses when the request came
    ("reached", "i8"),  # when the request reached the broker, if it had to be sent again; NO_TIME
    # When each was whole: its last byte came, and all before it. NO_TIME if the last byte came last.
    ("request_whole", "i8"),
    ("response_whole", "i8"),
    (
        "late_ns",
        "i8",
    ),  # how long the response's first byte was missing while bytes behind it came, or waited behind a loss
    ("request_receiver_ns", "i8"),  # how long the broker's window was full while the request was sent
    ("request_end", "u4"),  # sequence number behind the request
    ("round_trip_ns", "i8"),  # from the capture point to the broker while it waited; -1: not known
    ("sample", "i8"),  # 1 + its place, rank and digest if it becomes a sample (`samples`); 0
    ("waited_until", "i8"),  # without a response: when its connection was closed, or the capture ended, ns; 0: neither
    ("connection", "i4"),
    ("next", "i4"),
    ("name", "i4"),  # group or transactional id of the request; -1
    ("partitions", "i4"),  # the partitions of a Produce request; -1
    ("topics", "i4"),  # the topics of a request, if all bodies are read with their details; -1
    ("wait_ms", "i4"),  # the longest time that the broker may hold the request, by its body; 0
    ("may_come", "u1"),  # 1: its connection was open when the capture ended, and the response is not known to be lost
    ("no_reply", "u1"),  # 1: acks=0
    ("token", "u1"),  # 1: a bare SASL token
    ("request_lost", "u1"),  # 1: a response whose request was lost: bytes of the request stream are missing
    ("answers_at_once", "i1"),  # as in CONNECTION, by the versions in an ApiVersions response
    ("provisional", "u1"),  # 1 + the outcome of its provisional row + CLOSED_BY_BIT * (1 + its closed_by); 0: none
    ("passed", "u1"),  # PASSED: a later request was answered before this one; PASSING: it was before an earlier one
    ("undecoded", "u1"),  # 1: one of its messages comes in a later part of the drain
)

#: How many rows of the tables are in use, and the limits of a frame.
FRAMING_STATE = record_dtype(
    ("full", "i8"),  # FULL_*: what has to grow before the next chunk
    ("jobs", "i8"),
    ("finished", "i8"),
    ("deferred", "i8"),
    ("next_exchange", "i8"),
    ("pool_top", "i8"),
    ("live_buffers", "i8"),
    ("free_large_bytes", "i8"),  # bytes of large free buffers, which may take memory
    ("max_frame", "i8"),  # of a longer frame only HEAD_KEPT leading bytes are kept
    ("head_kept", "i8"),  # of a frame that is decoded head only, so many leading bytes are kept
    ("most_kept", "i8"),  # of any frame no more leading bytes are kept
    ("new_sources", "i8"),  # connections with `is_source_new`
    ("heads_from", "i8"),  # no packet before this time is the `head` of a connection, ns
    ("late", "i8"),  # a request in flight when the capture ends has waited less than this, ns, or than its wait_ms more
    ("silences", "i8"),  # how many streams have a row of SILENCE
)
#: The head of a frame, bytes.
HEAD_KEPT = 1 << 16

#: Each frame is counted here once, and each request and response by its outcome.
FRAME_COUNTS = record_dtype(
    ("requests", "i8"),
    ("responses", "i8"),
    ("request_tokens", "i8"),
    ("response_tokens", "i8"),
    ("requests_headerless", "i8"),
    ("responses_headerless", "i8"),
    ("answered", "i8"),
    ("no_reply_expected", "i8"),
    ("in_flight", "i8"),
    ("unanswered", "i8"),
    ("response_lost", "i8"),
    ("orphan_responses", "i8"),
    ("out_of_order_responses", "i8"),  # of the answered ones
    ("cut_responses", "i8"),  # whose request has no other
    ("resyncs", "i8"),
)

#: What is full when a kernel stops before all chunks are read.
(
    FULL_NONE, FULL_JOBS, FULL_EXCHANGES, FULL_POOL, FULL_SEGMENTS, FULL_STRINGS, FULL_TEXT, FULL_FINISHED,
    FULL_DEFERRED, FULL_SILENCES,
) = range(10)  # fmt: skip


class Tables(NamedTuple):
    """All that framing keeps from one block to the next. Free lists are those of `kernels.table`; `free_buffers` and
    `deferred` are the pool's (`buffers`)."""

    pool: Annotated[Array, np.uint8]
    connections: Annotated[Array, CONNECTION]
    samples: Annotated[Array, SAMPLE]  # SAMPLES for each connection
    streams: Annotated[Array, STREAM]
    silences: Annotated[Array, SILENCE]  # by `STREAM.silence_row`
    segments: Annotated[Array, SEGMENT]
    free_segments: Annotated[Array, np.int32]
    exchanges: Annotated[Array, EXCHANGE]
    links: Annotated[Array, LINK]
    free_exchanges: Annotated[Array, np.int32]
    finished: Annotated[Array, np.int32]  # slots of the exchanges that are over
    jobs: Annotated[Array, JOB]
    strings: Strings
    code: Annotated[Array, np.int32]
    program_index: Annotated[Array, np.int32]
    tape: Annotated[Array, TAPE]
    scratch: Annotated[Array, np.int64]
    free_buffers: Annotated[Array, np.int64]
    deferred: Annotated[Array, np.int64]
    state: Annotated[Array, FRAMING_STATE]
    counts: Annotated[Array, FRAME_COUNTS]
    brokers: Annotated[Array, np.int32]  # keys of ends (`known_brokers`)
    missed: Annotated[Array, np.int32]
