"""The arrays that go into reassembly and come out of it, one record a row.

Times are int64 nanoseconds since the epoch. Packet numbers count from 1 in the order read. Offsets are positions in the
byte array named beside them. Sequence numbers are 32 bits in an int64. Stream offsets count from the first byte after
the SYN (or from the first byte captured) and do not wrap.
"""

from __future__ import annotations

from collections import namedtuple
from typing import NamedTuple

from kafkatap.kernels.decorator import record_dtype

#: How long a segment may be captured after the acknowledgement of its bytes, ns. What waits for it comes later.
LATE_NS = 50_000_000


class Bounds(NamedTuple):
    """How much reassembly keeps at most.

    `closed`, `syns`, `idle`: how many other connections may begin (or close) after a connection was closed, after a SYN
    that nothing followed, and after its last segment, before it is over. `held_bytes`, `held_segments`: how much may
    wait behind gaps, in all connections together.
    """

    closed: int = 65_536
    syns: int = 65_536
    idle: int = 262_144
    held_bytes: int = 32 << 20
    held_segments: int = 262_144


#: One captured packet: `at` is where its captured bytes start in the block. `point`: the capture point that saw it
#: (`capture_points`).
PACKET = record_dtype(
    ("ts", "i8"),
    ("number", "i8"),
    ("at", "i8"),
    ("captured", "i4"),
    ("original", "i4"),
    ("link_type", "i4"),
    ("point", "i4"),
)
#: The same as scalars (int64).
Packet = namedtuple("Packet", "ts number at captured original link_type point")

#: One TCP segment. `wire` is its payload's length on the wire; `captured` bytes of that lie at `at`, in the block or,
#: of a datagram that came in fragments, in the held pool. `ip_id`: of IPv4, 0 for IPv6. `timestamps`: the 8 bytes of
#: its TCP header in which the TCP timestamps lie as a rule; 0 if the header is shorter. `options`: the bytes of TCP
#: options right before `at`; -1 if they were not captured. A row whose `source` is QUOTED is an ICMP message: the
#: segment that it quotes could not be delivered. It has the message's time and packet, the direction of an answer to
#: the segment, and as `ack` the sequence number after the quoted one. It has no flags and no payload.
SEGMENT = record_dtype(
    ("ts", "i8"),
    ("packet", "i8"),
    ("at", "i8"),
    ("seq", "i8"),
    ("ack", "i8"),
    ("timestamps", "i8"),
    ("flow", "i4"),
    ("captured", "i4"),
    ("wire", "i4"),
    ("window", "i4"),
    ("ip_id", "i4"),
    ("point", "i4"),
    ("tcp_flags", "u1"),
    ("direction", "u1"),
    ("source", "u1"),  # FROM_BLOCK, FROM_HELD, QUOTED
    ("options", "i1"),
)
#: The same as scalars (int64).
Segment = namedtuple(
    "Segment",
    "ts packet at seq ack timestamps flow captured wire window ip_id point tcp_flags direction source options",
)
FIN, SYN, RST, PSH, ACK = 1, 2, 4, 8, 16

#: One 4-tuple and the connection that uses it now (-1: none). The smaller (address, port) is end a; IPv4 addresses are
#: ::ffff:a.b.c.d.
FLOW = record_dtype(
    ("a_high", "i8"),
    ("a_low", "i8"),
    ("b_high", "i8"),
    ("b_low", "i8"),
    ("a_port", "i4"),
    ("b_port", "i4"),
    ("connection", "i4"),
)

#: An end that answered a SYN, so it listens. Port 0: an empty place of the table.
LISTENER = record_dtype(("high", "i8"), ("low", "i8"), ("port", "i4"))

#: What a connection's row is in use for (`used`): nothing, an open connection, one that has ended but is not released.
ROW_FREE, ROW_OPEN, ROW_ENDED = range(3)
#: One TCP connection. `client` is the direction whose sender opened it (-1: not known). `previous` is the connection
#: that used the same 4-tuple before and may still have packets under way (-1: none).
CONNECTION = record_dtype(
    ("serial", "i8"),
    ("first", "i8"),
    ("last", "i8"),
    ("closed_at", "i8"),
    ("fin_at", "i8"),  # time of the first FIN; 0: none came
    ("syn_at", "i8"),
    ("syn_ack_at", "i8"),
    ("handshake_rtt_ns", "i8"),
    ("packets", "i8"),
    ("first_packet", "i8"),
    ("closed_packet", "i8"),  # the number of the first FIN, or of the RST that closed it without one
    ("closed_number", "i8"),  # how many were closed before it
    ("last_serial", "i8"),  # the serial of the connection that began next after its last packet
    ("flow", "i4"),
    ("previous", "i4"),
    ("client", "i1"),
    ("used", "u1"),  # ROW_FREE, ROW_OPEN, ROW_ENDED
    ("only_syn", "u1"),  # nothing but its SYN was captured
    ("reset_by", "i1"),  # the direction of the RST that closed it; -1: none did
    ("fin_by", "i1"),  # the direction of the first FIN; -1: none came
    ("is_unreachable", "u1"),  # 1: nothing but an ICMP message that it is unreachable answered its SYN
    ("is_quiet", "u1"),  # 1: the usual segment needs only a few steps (`streams.assemble_usual`)
)

#: One direction of a connection: direction 0 is sent by end a, 1 by end b; row = 2 * connection + direction.
DIRECTION = record_dtype(
    ("base_seq", "i8"),  # sequence number of stream offset 0
    ("next", "i8"),  # first stream offset that no chunk has covered yet
    ("acked", "i8"),  # highest offset that the other end acknowledged
    # What the next stall depends on (`stalls`), ns and offsets.
    ("last_data", "i8"),  # the time of the last data segment; 0: none
    ("freed_at", "i8"),  # when the other end last acknowledged more, or opened its window further; 0
    ("acked_then", "i8"),  # `acked` at the last data segment
    ("window", "i4"),  # the last one that its sender advertised, not scaled; -1: none
    ("last_wire", "i4"),  # payload of the last data segment
    ("last_stamp", "u4"),  # its TCP time stamp, if both ends have these
    ("fin", "i8"),  # offset after the last byte, once a FIN was captured; -1
    ("held_since", "i8"),  # when the first held segment came
    ("recent", "i8"),  # its latest row of RECENT_PACKET, counted from 1; 0: none
    ("held_bytes", "i8"),
    ("packets", "i8"),
    ("bytes", "i8"),
    ("retransmitted_packets", "i8"),
    ("retransmitted_bytes", "i8"),
    ("out_of_order", "i8"),
    ("gap_bytes", "i8"),
    ("cut_bytes", "i8"),  # on the wire but not in the capture (snap length)
    ("stray_bytes", "i8"),  # payload far outside of the window
    ("duplicate_packets", "i8"),  # copies of packets: they count nowhere else in this row
    ("duplicate_bytes", "i8"),  # their payload
    ("recovery_row", "i4"),  # its row of RECOVERY; 0: it needs none of its own
    ("held", "i4"),  # first held segment, in order of offset; -1
    ("held_last", "i4"),  # the last of them
    ("held_count", "i4"),
    ("gap_previous", "i4"),  # while something is held: the directions whose gaps began before and after this one's; -1
    ("gap_next", "i4"),
    ("gaps", "i4"),
    ("zero_windows", "i4"),
    ("started", "u1"),  # base_seq is known
    ("delivered", "u1"),  # a DATA chunk was emitted
    ("shift", "i1"),  # of the window scale option of its SYN; NOT_SCALED, SHIFT_UNKNOWN
    ("sack_permitted", "u1"),  # options of its SYN
    ("timestamps", "u1"),
    ("mss", "i4"),  # 0: none
    ("is_limited", "u1"),  # 1: the last data segment filled the window
    ("is_pushed", "u1"),  # 1: it ended a write (PSH)
)
#: What a direction needs beside its DIRECTION once segments were retransmitted, or had to wait. Most connections end
#: without any, so only these directions have a row (`stream_tables.own_recovery`). Row 0 has the values of all others.
RECOVERY = record_dtype(
    ("spurious_packets", "i8"),  # retransmissions of which the other end had the bytes
    ("sent", "i8"),  # the end of the highest byte sent, if that is beyond `next`
    ("recovery", "i8"),  # what was sent at the last retransmission
    ("recovered_at", "i8"),  # when all of that was acknowledged; 0: not yet
    ("lost_ns", "i8"),  # silences that ended with retransmissions, since the last new data
    ("awaited_ns", "i8"),  # those of them that were spurious
    ("copy_from", "i8"),  # the range of retransmitted bytes that were captured before; empty if `copy_end` is 0
    ("copy_end", "i8"),
    ("copy_at", "i8"),  # the last of these retransmissions
    ("copy_stamp", "i8"),  # the time stamp of the first one; -1: none
    ("copy_since", "i8"),  # when the data before the first one came, or when some of these bytes were acknowledged
    ("stuck_ns", "i8"),  # how long such bytes were not acknowledged: the latest time of STUCK_NS or more
    ("stuck_at", "i8"),  # when it began
    ("spurious_end", "i8"),  # what was sent at the last spurious one
    ("lag", "i8"),  # the round trip from the capture point to its sender, if an earlier run saw the handshake; -1
    ("copies", "i4"),  # how many these are
    ("spurious_due", "i4"),  # spurious retransmissions that a D-SACK may still report
)
#: `DIRECTION.shift` if the SYN had no such option, and if its options were not captured.
NOT_SCALED, SHIFT_UNKNOWN = -2, -1
#: What CONNECTION, DIRECTION and RECOVERY rows count. No rule of reassembly depends on these.
CONNECTION_COUNTERS = ("packets",)
DIRECTION_COUNTERS = (
    "packets", "bytes", "retransmitted_packets", "retransmitted_bytes", "out_of_order", "gap_bytes", "cut_bytes",
    "stray_bytes", "duplicate_packets", "duplicate_bytes", "gaps", "zero_windows",
)  # fmt: skip
RECOVERY_COUNTERS = ("spurious_packets", "stuck_ns", "stuck_at")

#: What a run measures of a direction, if it measures (`measures`): its sender's windows, and how its data was sent.
#: Offsets are those of its stream, times ns.
MEASURE = record_dtype(
    ("serial", "i8"),  # of its connection, plus 1
    ("sent", "i8"),  # the end of the highest byte sent
    ("timed_end", "i8"),  # the end of the segment whose acknowledgement is timed; -1: none
    ("timed_at", "i8"),
    ("last_data", "i8"),  # the time of the last data segment; 0: none
    ("zero_since", "i8"),  # since when its own window is closed; 0: it is open
    ("window_max", "i8"),  # the largest window that it advertised, bytes
    ("in_flight_max", "i8"),  # the most bytes that were sent and not acknowledged
    ("zero_window_ns", "i8"),  # how long its own window was closed
    ("rtt_count", "i8"),  # round trips from the capture point to the other end: data to its acknowledgement
    ("rtt_sum", "i8"),
    ("rtt_min", "i8"),
    ("rtt_max", "i8"),
    ("retransmission_wait_sum", "i8"),  # from the data segment before a retransmission to it
    ("retransmission_wait_max", "i8"),
    ("retransmissions", "i8"),  # data segments with bytes before the highest one sent
    ("retransmission_timeouts", "i8"),  # those by a timer
    ("window", "i4"),  # the last one that it advertised, not scaled; -1: none
)
#: What MEASURE rows count.
MEASURE_COUNTERS = (
    "window_max", "in_flight_max", "zero_window_ns", "rtt_count", "rtt_sum", "rtt_min", "rtt_max",
    "retransmission_wait_sum", "retransmission_wait_max", "retransmissions", "retransmission_timeouts",
)  # fmt: skip

#: What distinguishes a TCP packet from others of its direction: fields as in SEGMENT. `previous`: the row of the packet
#: before it of the same direction, counted as `DIRECTION.recent`.
RECENT_PACKET = record_dtype(
    ("ts", "i8"),
    ("previous", "i8"),
    ("timestamps", "i8"),
    ("seq", "u4"),
    ("ack", "u4"),
    ("wire", "i4"),
    ("window", "u2"),
    ("ip_id", "u2"),
    ("tcp_flags", "u1"),
)

#: How far one point saw a direction. Offsets are those of the stream; `acked` is one of the other direction's.
PROGRESS = record_dtype(
    ("end", "i8"),  # after the last byte; a SYN and a FIN count as one each
    ("acked", "i8"),
    ("repeated_bytes", "i8"),  # of segments that brought nothing new to the point
    ("repeated_empty", "i8"),  # the number of those without payload
    ("point", "i4"),  # plus 1; 0: not in use
    ("is_reset", "i4"),  # 1: it saw a RST
)
#: An offset that is not known is less than this.
NO_OFFSET = -(1 << 61)
#: Rows of each direction. More points than that have no row: their packets bring something new, or are duplicates.
POINTS_KEPT = 4

#: A segment that waits for the bytes before it. Its own bytes lie in the held pool. `needs`: the offset in the other
#: direction that it acknowledges, as bytes up to there were sent before it.
HELD = record_dtype(
    ("offset", "i8"),
    ("needs", "i8"),
    ("ts", "i8"),
    ("packet", "i8"),
    ("at", "i8"),
    ("captured", "i4"),
    ("wire", "i4"),
    ("next", "i4"),
    ("stamp", "i4"),
)

#: What reassembly emits for each connection, in order:
#:
#: * START. `at` is the connection's serial number, `length` its key (`flows.connection_key`), `stamp` the key of its
#:   ends (`flows.ends_key`), `opening` how its client is known, `direction` the client's.
#: * DATA: `length` bytes on the wire, from sequence number `seq` on. The first `captured` of them lie at `at` in the
#:   block or in the held pool. `stamp`: the upper half of their packet's TCP time stamp; 0 without one.
#: * GAP: `length` bytes that no packet carried.
#: * END. `opening`: the directions without any packet, and who closed it (ENDED_BY). `at`: when the input ended, ns
#:   since the epoch, if the connection was open until then; else 0. `length`: when it was closed; 0: it was not.
#: * STALL: before the DATA that ends a silence of a direction, why it was silent for `length` ns (`stalls`).
CHUNK = record_dtype(
    ("at", "i8"),
    ("ts", "i8"),
    ("packet", "i8"),
    ("length", "i8"),
    ("seq", "u4"),
    ("captured", "i4"),
    ("connection", "i4"),
    ("direction", "u1"),
    ("kind", "u1"),  # CHUNK_DATA, …
    ("source", "u1"),  # FROM_BLOCK, FROM_HELD
    ("opening", "u1"),  # of a START: OPENING_UNKNOWN, …; of an END: bits, see above
    ("stamp", "i8"),
)
CHUNK_DATA, CHUNK_GAP, CHUNK_START, CHUNK_END, CHUNK_STALL = range(5)
#: `opening` of a STALL (`stalls`).
(
    STALL_LOSS, STALL_RECEIVER, STALL_SENDER, STALL_NAGLE, STALL_PATH, STALL_UNKNOWN, STALL_LATE, STALL_RESENT,
    STALL_RETRACTED, STALL_ACKED,
) = range(10)  # fmt: skip
FROM_BLOCK, FROM_HELD, QUOTED = 0, 1, 2
#: How the client of a connection is known: not at all; by its SYN or SYN-ACK, so the streams' first bytes follow; by a
#: hint, because the other end is known to listen. OPENING_RESUMED is set by a run that continues an earlier one.
OPENING_UNKNOWN, OPENING_SYN, OPENING_HINT, OPENING_RESUMED = range(4)
#: Bits in `opening` of an END, by the direction of the first FIN, or else of the RST.
ENDED_BY = (4, 8)
