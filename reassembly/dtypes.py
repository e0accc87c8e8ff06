"""The arrays that reassembly takes and gives, one record a row.

Times are int64 nanoseconds since the epoch; packet numbers count from 1 in the order read; offsets are positions in the
byte array named beside them. Sequence numbers are 32 bits in an int64; stream offsets count from the first byte after
the SYN (or the first byte seen) and do not wrap.
"""

from __future__ import annotations

from dataclasses import dataclass

from kafkatap.kernels.decorator import record_dtype


@dataclass(frozen=True, slots=True)
class Bounds:
    """What reassembly keeps at most. `closed`, `syns`, `idle`: connections that may begin (or close) after one was
    closed, after a SYN that nothing followed, after its last segment, before it is over. `held_bytes`,
    `held_segments`: what may wait behind gaps, of all connections together."""

    closed: int = 65_536
    syns: int = 65_536
    idle: int = 262_144
    held_bytes: int = 64 << 20
    held_segments: int = 262_144


#: One captured packet: `at` is where its captured bytes start in the block.
PACKET = record_dtype(
    ("ts", "i8"),
    ("number", "i8"),
    ("at", "i8"),
    ("captured", "i4"),
    ("original", "i4"),
    ("link_type", "i4"),
)

#: One TCP segment. `wire` is its payload's length on the wire, `captured` what of it lies in the block from `at`.
SEGMENT = record_dtype(
    ("ts", "i8"),
    ("packet", "i8"),
    ("at", "i8"),
    ("seq", "i8"),
    ("ack", "i8"),
    ("flow", "i4"),
    ("captured", "i4"),
    ("wire", "i4"),
    ("window", "i4"),
    ("tcp_flags", "u1"),
    ("direction", "u1"),
)
FIN, SYN, RST, PSH, ACK = 1, 2, 4, 8, 16

#: The two ends of a flow or connection, the smaller (address, port) first; IPv4 addresses as ::ffff:a.b.c.d.
ENDPOINTS = record_dtype(
    ("a_high", "i8"),
    ("a_low", "i8"),
    ("b_high", "i8"),
    ("b_low", "i8"),
    ("a_port", "i4"),
    ("b_port", "i4"),
)

#: One 4-tuple and the connection that uses it now (-1: none).
FLOW = record_dtype(
    ("a_high", "i8"),
    ("a_low", "i8"),
    ("b_high", "i8"),
    ("b_low", "i8"),
    ("a_port", "i4"),
    ("b_port", "i4"),
    ("connection", "i4"),
)

#: An end that was seen to listen (it answered a SYN); port 0: a free place.
LISTENER = record_dtype(("high", "i8"), ("low", "i8"), ("port", "i4"))

#: One TCP connection. `client` is the direction whose sender opened it (-1: not seen), `previous` the connection that
#: used the same 4-tuple before and may still have packets under way (-1: none).
CONNECTION = record_dtype(
    ("serial", "i8"),
    ("first", "i8"),
    ("last", "i8"),
    ("closed_at", "i8"),
    ("syn_at", "i8"),
    ("syn_ack_at", "i8"),
    ("handshake_rtt_ns", "i8"),
    ("packets", "i8"),
    ("first_packet", "i8"),
    ("closed_number", "i8"),  # how many were closed before it
    ("last_serial", "i8"),  # the serial of the connection that began next after its last packet
    ("flow", "i4"),
    ("previous", "i4"),
    ("client", "i1"),
    ("used", "u1"),  # 1 in use, 2 ended, 0 free
    ("only_syn", "u1"),  # nothing but its SYN was seen
    ("reset_by", "i1"),  # the direction of the RST that closed it; -1: none did
)

#: One direction of a connection: direction 0 is sent by end a, 1 by end b; row = 2 * connection + direction.
DIRECTION = record_dtype(
    ("base_seq", "i8"),  # sequence number of stream offset 0
    ("next", "i8"),  # first stream offset not yet given out
    ("acked", "i8"),  # highest offset that the other end acknowledged
    ("fin", "i8"),  # offset after the last byte, once FIN was seen; -1
    ("gap_since", "i8"),  # when the first held segment came
    ("held_bytes", "i8"),
    ("packets", "i8"),
    ("bytes", "i8"),
    ("retransmitted_packets", "i8"),
    ("retransmitted_bytes", "i8"),
    ("out_of_order", "i8"),
    ("gap_bytes", "i8"),
    ("cut_bytes", "i8"),  # on the wire but not in the capture (snap length)
    ("stray_bytes", "i8"),  # payload far outside of the window
    ("held", "i4"),  # first held segment, in order of offset; -1
    ("held_last", "i4"),  # the last of them
    ("held_count", "i4"),
    ("gap_previous", "i4"),  # while something is held: the directions whose gaps began before and after this one's; -1
    ("gap_next", "i4"),
    ("gaps", "i4"),
    ("zero_windows", "i4"),
    ("started", "u1"),  # base is known
    ("delivered", "u1"),  # a byte was given out
)

#: A segment that waits for bytes before it; its bytes lie in the held pool.
HELD = record_dtype(
    ("offset", "i8"),
    ("ts", "i8"),
    ("packet", "i8"),
    ("at", "i8"),
    ("captured", "i4"),
    ("wire", "i4"),
    ("next", "i4"),
)

#: What streams give: DATA of `length` bytes on the wire of which the first `captured` lie at `at` in the block (source
#: 0) or the held pool (source 1); a HOLE of `length` bytes that no packet carried; START and END of a connection
#: (START: `at` is its serial number, `direction` the client's when `captured` is 1 (by its SYN) or
#: 2 (the other end is known to listen there), else not known).
CHUNK = record_dtype(
    ("at", "i8"),
    ("ts", "i8"),
    ("packet", "i8"),
    ("length", "i8"),
    ("captured", "i4"),
    ("connection", "i4"),
    ("direction", "u1"),
    ("kind", "u1"),
    ("source", "u1"),
)
DATA, HOLE, START, END = range(4)
FROM_BLOCK, FROM_HELD = 0, 1
