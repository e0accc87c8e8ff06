"""The state of one connection as plain values: equal states handle the same later packets alike."""

from __future__ import annotations

import hashlib
from typing import Any, NamedTuple

import numpy as np

from .stream_tables import StreamTables

Array = np.ndarray[Any, Any]


class HeldSegment(NamedTuple):
    """A segment that waits behind a gap. `offset` counts from the next expected byte; `digest`: of its bytes."""

    offset: int
    ts: int
    packet: int
    wire: int
    captured: int
    digest: bytes


class StreamState(NamedTuple):
    """One direction. `next_seq`: sequence number of the next expected byte; `acked`, `fin`: counted from that byte.

    `first_byte_known`: the stream's first byte was captured, or is the one after a SYN, so bytes before the first ones
    that come are a gap. `fin`: None without a FIN. `gap_since`: None while nothing is held.
    """

    base_seq: int
    next_seq: int
    first_byte_known: bool
    acked: int
    fin: int | None
    gap_since: int | None
    held: tuple[HeldSegment, ...]


class Handshake(NamedTuple):
    """What the SYN (`syn_at`) and SYN-ACK (`syn_ack_at`) of a connection showed. Times are ns, 0 if not captured.

    `client`: the direction whose sender opened the connection, -1 if not known. `rtt_ns`: -1 if not known.
    """

    syn_at: int = 0
    syn_ack_at: int = 0
    client: int = -1
    rtt_ns: int = -1


class ConnectionState(NamedTuple):
    """One connection. `handshake`: None once its round-trip time is known, and while none of it was captured.

    `streams`: by direction; None where no segment came yet. `closed_at`: ns, 0 while it is open.
    """

    closed_at: int
    handshake_rtt_ns: int
    handshake: Handshake | None
    streams: tuple[StreamState | None, StreamState | None]


class Resumption(NamedTuple):
    """What an earlier capture showed of a connection that this one continues.

    `base_seqs`: by direction the sequence number from which its bytes are counted, -1 if not known.
    """

    base_seqs: tuple[int, int] = (-1, -1)
    handshake: Handshake = Handshake()


def read_state(t: StreamTables, c: int) -> ConnectionState:
    """Return the state of connection `c`."""
    row = t.connections[c]
    handshake = Handshake(int(row.syn_at), int(row.syn_ack_at), int(row.client))
    captured = bool(handshake.syn_at or handshake.syn_ack_at)
    rtt = int(row.handshake_rtt_ns)
    first, second = (_stream_state(t, number, captured) for number in (2 * c, 2 * c + 1))
    return ConnectionState(int(row.closed_at), rtt, handshake if captured and rtt < 0 else None, (first, second))


def _stream_state(t: StreamTables, number: int, opened: bool) -> StreamState | None:
    """Return the state of direction `number`. `opened`: its connection's SYN or SYN-ACK was captured."""
    row = t.directions[number]
    if not row.started:
        return None
    following = int(row.next)
    held = tuple(
        HeldSegment(
            int(node.offset) - following, int(node.ts), int(node.packet), int(node.wire), int(node.captured),
            _digest(t.pool[int(node.at) : int(node.at) + int(node.captured)]),
        )
        for node in (t.held[i] for i in _held_rows(t, number))
    )  # fmt: skip
    return StreamState(
        int(row.base_seq),
        (int(row.base_seq) + following) & 0xFFFFFFFF,
        bool(row.delivered) or opened,
        max(0, int(row.acked) - following),
        int(row.fin) - following if row.fin >= 0 else None,
        int(row.gap_since) if held else None,
        held,
    )


def resume_connection(t: StreamTables, c: int, known: Resumption) -> None:
    """Continue connection `c` from what an earlier capture showed of it.

    Its bytes are counted from where they were counted there. So a retransmitted SYN has the expected sequence number,
    and does not begin a new connection.
    """
    row = t.connections[c]
    row.syn_at, row.syn_ack_at = known.handshake.syn_at, known.handshake.syn_ack_at
    if known.handshake.syn_at or known.handshake.syn_ack_at:
        row.client = known.handshake.client
    if known.handshake.rtt_ns >= 0:
        row.handshake_rtt_ns = known.handshake.rtt_ns
    for number, base in zip((2 * c, 2 * c + 1), known.base_seqs, strict=True):
        stream = t.directions[number]
        if not stream.started or base < 0:
            continue
        more = (int(stream.base_seq) - base) & 0xFFFFFFFF
        stream.base_seq = base
        stream.next += more
        stream.acked += more
        stream.fin += more if stream.fin >= 0 else 0
        for i in _held_rows(t, number):
            t.held[i].offset += more


def _held_rows(t: StreamTables, number: int) -> list[int]:
    """Return the rows of what direction `number` holds, in order of offset."""
    rows = []
    row = int(t.directions[number].held)
    while row >= 0:
        rows.append(row)
        row = int(t.held[row].next)
    return rows


def _digest(data: Array) -> bytes:
    return hashlib.blake2b(np.ascontiguousarray(data).tobytes(), digest_size=8).digest() if len(data) else b""
