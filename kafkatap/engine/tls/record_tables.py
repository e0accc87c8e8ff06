"""The tables of the TLS layer, and the rows that its kernel emits.

A connection's `state` (LINK):

    LINK_PLAIN     not TLS, or not looked at any more
    LINK_START     its SYN was captured, and nothing else yet
      → TRACKED    the client's first byte may begin a TLS record or a PROXY header
      → PLAIN      it does not
      → COUNTED    the broker's bytes come first
      → MIDDLE     a gap comes first
    LINK_MIDDLE    its beginning was not captured
      → TRACKED    a chunk starts with the header of a TLS record
      → COUNTED    none of the first MIDDLE_CHUNKS does
    LINK_TRACKED   it has a row of TRACK and two of FLOW
    LINK_COUNTED   its chunks that start with a header are counted, and no more is read

It shows TLS (`shows_tls`) with the first header of a client that begins with one. Otherwise it takes SHOWN_BY chunks
that start with a header. The chunk that shows it is marked SHOWS_TLS for the dissector.

A direction's `mode` (FLOW):

    FLOW_HEADER    the next byte is one of a record's header
    FLOW_SEARCH    a header was not captured; the next one is searched
    FLOW_PROXY     a PROXY header comes first
    FLOW_STOPPED   its bytes are no TLS records, or are not read any more
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np

from kafkatap.kernels.decorator import record_dtype

Array = np.ndarray[Any, Any]

#: What becomes of a tracked connection (`tracked`).
OBSERVED, HOLDING, DECRYPTED = range(3)
LINK_PLAIN, LINK_START, LINK_MIDDLE, LINK_TRACKED, LINK_COUNTED = range(5)
FLOW_HEADER, FLOW_SEARCH, FLOW_PROXY, FLOW_STOPPED = range(4)
#: Which records are emitted: none; the first ones, which may be of the handshake; all.
EMIT_NONE, EMIT_HANDSHAKE, EMIT_ALL = range(3)

#: What a record that waits for secrets takes, besides its bytes.
QUEUED_BYTES = 1_024
#: Room for the longest record.
RECORD_ROOM = 18_440
#: Chunks after which a connection without a SYN that showed no TLS record is not tracked.
MIDDLE_CHUNKS = 64
#: Chunks that start with a header, which show that a connection is TLS.
SHOWN_BY = 3

#: One connection, by its number.
LINK = record_dtype(
    ("slot", "i4"),  # of a tracked one
    ("state", "u1"),  # LINK_...
    ("tries", "u1"),  # chunks of a LINK_MIDDLE so far
    ("client", "i1"),  # the direction of its client; -1
    ("headers", "u1"),  # chunks that start with a header, up to SHOWN_BY
    ("hello", "i1"),  # the direction of its client by a hello, as long as `client` is unknown; -1
    ("spare_1", "u1"),
    ("spare_2", "u1"),
    ("spare_3", "u1"),
)
#: One tracked connection.
TRACK = record_dtype(
    ("connection", "i4"),
    ("early", "i4"),  # records that may still be emitted with EMIT_HANDSHAKE
    # The current turn (`estimates`).
    ("last_record", "i8"),  # when the last record with application data came
    ("request_last", "i8"),
    ("request_bytes", "i8"),
    ("response_first", "i8"),
    ("response_last", "i8"),
    ("response_bytes", "i8"),
    ("request_records", "i4"),
    ("response_records", "i4"),
    ("requests", "i4"),  # messages of the client in it
    ("groups", "i4"),  # messages of the broker in it
    ("turns", "i4"),  # turns so far
    ("waiting", "i4"),  # requests of earlier turns without a response
    ("writes", "i4"),  # how often the client wrote in it
    ("responses", "i4"),  # records of the broker in it, without those that continue a full one
    ("messages", "i4"),  # requests so far, about
    ("first_length", "i4"),  # of the turn's first record of the client
    # Whether the client writes messages in parts:
    ("parts", "i4"),  # records of a message; 1 as long as it is not known
    ("pattern_turns", "i4"),  # turns in a row that speak for it
    ("pattern_records", "i4"),  # the client's records in these
    ("pattern_parts", "i4"),  # the fewest in one of these
    ("spare", "i4"),
    ("phase", "u1"),  # TURN_...
    ("is_middle", "u1"),  # its start was not captured
    ("is_suspended", "u1"),  # no turn counts until the connection was silent
    ("is_13", "u1"),  # it may be TLS 1.3
    ("is_even", "u1"),  # the client's records of the turn have one length
    ("spare_1", "u1"),
    ("spare_2", "u1"),
    ("spare_3", "u1"),
)
#: What estimates depend on when a connection is quiet.
QUIET = ("is_13", "turns", "is_suspended", "parts", "pattern_turns", "pattern_records", "pattern_parts")
#: A response time that the kernel estimates. Bytes are those of records, with headers.
TURN_ROW = record_dtype(
    ("at", "i8"),
    ("ns", "i8"),
    ("request_bytes", "i8"),
    ("response_bytes", "i8"),
    ("request_records", "i4"),
    ("response_records", "i4"),
    ("slot", "i4"),
    ("spare", "i4"),
)
#: One direction of a tracked connection: row = 2 * slot + direction.
FLOW = record_dtype(
    ("header", "i8"),  # the bytes of the current header so far, as a number
    ("bytes", "i8"),  # TCP payload so far, behind a PROXY header
    ("before", "i8"),  # bytes from the end of the last record whose end is known to the next header
    ("records", "i8"),  # with application data
    ("ended", "i8"),  # all records
    ("lost", "i8"),  # records of which bytes are missing and whose header was captured
    ("need", "i4"),  # length of the current record with its header; 0: its header is not complete
    ("have", "i4"),  # how many of its bytes passed
    ("missing", "i4"),  # how many of these were not captured
    ("row", "i4"),  # of GATHERED; -1
    ("seq", "u4"),  # of its first byte
    ("mode", "u1"),  # FLOW_...
    ("emit", "u1"),  # EMIT_...
    ("proxy", "u1"),  # bytes of a PROXY header so far; of version 1 at most 107
    ("version", "u1"),  # of the PROXY header
    ("was_full", "u1"),  # 1: its last record with application data was full
    ("spare_1", "u1"),
    ("spare_2", "u1"),
    ("spare_3", "u1"),
    ("proxy_left", "i4"),  # bytes of a PROXY header of version 2 that are left
    ("whole", "i4"),  # bytes of the current record before the first one that was not captured
    ("spare", "i4"),
)


class RecordRow(NamedTuple):
    """What the kernel emits, in the order of the stream."""

    at: int  # where the record begins, in the array `source`
    ts: int  # of the packet with its last byte
    packet: int
    before: int  # bytes lost or skipped before it
    seq: int  # of its first byte
    length: int  # with its header
    missing: int  # bytes of it that were not captured
    slot: int
    place: int  # the number of the chunk that ended it
    row: int  # of GATHERED, to be released; -1
    direction: int
    type: int  # content type
    source: int  # FROM_BLOCK, FROM_HELD, or FROM_GATHERED
    kind: int  # ROW_...
    is_early: int  # 1: it is emitted with EMIT_HANDSHAKE too
    whole: int  # bytes of it before the first one that was not captured
    stamp: int  # of that packet, as of CHUNK


ROW = record_dtype(*((name, "i8") for name in RecordRow._fields))
FROM_GATHERED = 2
#: A whole record; one of which bytes are missing; `length` bytes of a chunk that pass as they are; the connection is no
#: TLS; it begins to be tracked; it is over.
ROW_RECORD, ROW_BROKEN, ROW_PASS, ROW_NOT_TLS, ROW_BEGIN, ROW_END = range(6)

#: Where the kernel stopped, and why.
WALK = record_dtype(
    ("chunk", "i8"),
    ("offset", "i8"),  # bytes of that chunk that are done
    ("rows", "i8"),
    ("estimates", "i8"),
    ("owned", "i8"),  # chunks of tracked connections
    ("skipped", "i8"),  # records that were not gathered because too many others were
    ("needs_slots", "i8"),  # 1: there was no room for another connection
)


class RecordTables(NamedTuple):
    """The tables of `records.walk_chunks`."""

    links: Annotated[Array, LINK]
    tracks: Annotated[Array, TRACK]
    flows: Annotated[Array, FLOW]
    free_slots: Annotated[Array, np.int32]
    gathered: Annotated[Array, np.uint8]  # RECORD_ROOM bytes a row
    free_rows: Annotated[Array, np.int32]
    rows: Annotated[Array, ROW]
    estimates: Annotated[Array, TURN_ROW]
    owners: Annotated[Array, np.int32]  # by chunk: the slot of its connection, or -1
    walk: Annotated[Array, WALK]
