"""The tables that turn segments into chunks, as one argument of the kernels, and how a chunk is added to them."""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np

from kafkatap.kernels.decorator import inlined, record_dtype
from kafkatap.kernels.readers import signed32
from kafkatap.kernels.table import rows_in_use, rows_left

from .dtypes import (
    CHUNK,
    CHUNK_DATA,
    CONNECTION,
    DIRECTION,
    FLOW,
    FROM_BLOCK,
    HELD,
    MEASURE,
    PROGRESS,
    RECENT_PACKET,
    RECOVERY,
)
from .listeners import ListenerArrays, listeners_full

Array = np.ndarray[Any, Any]

#: One row of counters and limits.
STREAMS_STATE = record_dtype(
    ("stopped", "i8"),  # why the kernel stopped: ASSEMBLED, …
    ("chunks", "i8"),  # rows of the chunks that are ready
    ("next_serial", "i8"),  # how many connections began
    ("closed", "i8"),  # how many were closed
    ("pool_used", "i8"),  # bytes of the held pool that were written
    ("held_bytes", "i8"),  # captured bytes of all held segments
    ("gaps_first", "i8"),  # the directions with a gap, in the order in which their gaps began; -1: none
    ("gaps_last", "i8"),
    ("closed_limit", "i8"),  # the limits of `Bounds`
    ("syns_limit", "i8"),
    ("idle_limit", "i8"),
    ("held_bytes_limit", "i8"),
    ("held_segments_limit", "i8"),
    ("gaps_given_up", "i8"),  # gaps that were skipped because of these two limits
    ("recent", "i8"),  # how many rows of RECENT_PACKET were written
    ("points", "i8"),  # how many capture points there are
    ("measures", "i8"),  # 1: the run measures
    ("recoveries", "i8"),  # how many directions have a row of RECOVERY
)
#: Why a kernel stopped: everything was read, or a table is full.
(
    ASSEMBLED, CHUNKS_FULL, CONNECTIONS_FULL, HELD_FULL, POOL_FULL, LISTENERS_FULL, FLOWS_FULL, RECOVERIES_FULL,
) = range(8)  # fmt: skip

#: STALL chunks of one segment, at most.
STALLS_ROOM = 8
#: A segment farther than this from the expected byte is not of this connection (windows end at 1 GiB).
FAR = 1 << 30


class StreamTables(NamedTuple):
    """All that the kernels of `streams` work on. A direction's row is 2 * connection + direction."""

    state: Annotated[Array, STREAMS_STATE]
    flows: Annotated[Array, FLOW]
    connections: Annotated[Array, CONNECTION]
    directions: Annotated[Array, DIRECTION]
    recoveries: Annotated[Array, RECOVERY]  # by `DIRECTION.recovery_row`
    free_connections: Annotated[Array, np.int32]
    held: Annotated[Array, HELD]
    free_held: Annotated[Array, np.int32]
    pool: Annotated[Array, np.uint8]
    listeners: ListenerArrays
    recent: Annotated[Array, RECENT_PACKET]
    progress: Annotated[Array, PROGRESS]  # POINTS_KEPT rows for each direction, if there are several points
    duplicates: Annotated[Array, np.int64]  # packets, by capture point
    measures: Annotated[Array, MEASURE]  # a row for each direction, if the run measures
    chunks: Annotated[Array, CHUNK]


@inlined
def chunks_full(t):  # type: ignore[no-untyped-def]
    """Return whether the chunks of one segment may not fit: all that is held, each behind a gap of its own direction
    and one of the other, a start, an end, gaps at the end, and stalls."""
    return t.state[0].chunks + 3 * rows_in_use(t.free_held) + 12 + STALLS_ROOM > t.chunks.shape[0]


@inlined
def full_table(t, wire):  # type: ignore[no-untyped-def]
    """Return which table has no room for the worst that a segment of `wire` bytes can need, or ASSEMBLED."""
    if chunks_full(t):
        return CHUNKS_FULL
    if rows_left(t.free_held) < rows_in_use(t.free_held) + 4:
        return HELD_FULL
    if t.state[0].pool_used + wire > t.pool.shape[0]:
        return POOL_FULL
    if rows_left(t.free_connections) == 0:
        return CONNECTIONS_FULL
    if listeners_full(t.listeners):
        return LISTENERS_FULL
    if t.state[0].recoveries + 2 >= t.recoveries.shape[0]:
        return RECOVERIES_FULL
    return ASSEMBLED


@inlined
def clear_recovery(row):  # type: ignore[no-untyped-def]
    """Set a row of RECOVERY to the values of directions without one."""
    row.spurious_packets = 0
    row.sent = 0
    row.recovery = 0
    row.recovered_at = 0
    row.lost_ns = 0
    row.awaited_ns = 0
    row.copy_from = 0
    row.copy_end = 0
    row.copy_at = 0
    row.copy_stamp = -1
    row.copy_since = 0
    row.stuck_ns = 0
    row.stuck_at = 0
    row.lag = -1
    row.copies = 0
    row.spurious_due = 0
    row.spurious_end = 0


@inlined
def recovery_of(t, stream):  # type: ignore[no-untyped-def]
    """Return the row of RECOVERY of a DIRECTION, to read it. The same row serves all that need none of their own."""
    return t.recoveries[stream.recovery_row]


@inlined
def own_recovery(t, stream):  # type: ignore[no-untyped-def]
    """Return the row of RECOVERY of a DIRECTION, to write it. It keeps the row when its connection has ended, and the
    next connection of the same number uses it. `full_table` has made room."""
    if stream.recovery_row == 0:
        state = t.state[0]
        state.recoveries += 1
        stream.recovery_row = state.recoveries
        clear_recovery(t.recoveries[stream.recovery_row])
    return t.recoveries[stream.recovery_row]


@inlined
def add_chunk(t, kind, number, ts, packet):  # type: ignore[no-untyped-def]
    """Add a chunk of direction `number` and return its row."""
    state = t.state[0]
    chunk = t.chunks[state.chunks]
    state.chunks += 1
    chunk.kind = kind
    chunk.connection = number >> 1
    chunk.direction = number & 1
    chunk.source = FROM_BLOCK
    chunk.at = 0
    chunk.ts = ts
    chunk.packet = packet
    chunk.seq = 0
    chunk.captured = 0
    chunk.length = 0
    chunk.opening = 0
    chunk.stamp = 0
    return chunk


@inlined
def add_data(t, number, source, payload):  # type: ignore[no-untyped-def]
    """Emit `payload` as the next bytes of direction `number`."""
    chunk = add_chunk(t, CHUNK_DATA, number, payload.ts, payload.packet)
    chunk.source = source
    chunk.at = payload.at
    chunk.captured = payload.captured
    chunk.length = payload.wire
    chunk.stamp = payload.stamp
    stream = t.directions[number]
    chunk.seq = (stream.base_seq + stream.next) & 0xFFFFFFFF
    stream.next += payload.wire
    stream.delivered = 1
    stream.cut_bytes += payload.wire - payload.captured


@inlined
def distance(stream, seq):  # type: ignore[no-untyped-def]
    """Return the stream bytes from the next expected one to `seq`: signed, at most 2^31."""
    return signed32((seq - stream.base_seq - stream.next) & 0xFFFFFFFF)
