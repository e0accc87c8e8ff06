"""Packets to the connections of their segments, and what is kept of each packet."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from kafkatap.kernels import kernel
from kafkatap.kernels.arrays import copied, untouched
from kafkatap.kernels.decorator import helper
from kafkatap.kernels.hashing import new_seed
from kafkatap.kernels.readers import be16, be32, be64
from kafkatap.reassembly.dtypes import PACKET, Packet
from kafkatap.reassembly.flows import Ends
from kafkatap.reassembly.layers import (
    ICMP_PROTOCOL,
    ICMPV6_PROTOCOL,
    IPV4,
    IPV6,
    ip_header,
    is_ip,
    link_layer,
    next_layer,
    quoted_header,
)
from kafkatap.reassembly.pcap import LONGEST_PACKET
from kafkatap.reassembly.trail import FRAGMENT_PAYLOAD, LONGEST_TRAIL, TRAIL, find_trail

from .answers import kept_of_broker
from .flows import (
    AUTHENTICATE,
    FOLLOWED,
    HANDSHAKE,
    HIDDEN,
    HIDDEN_ROWS,
    HIDING_STATE,
    KNOWN_FLOW,
    KNOWN_SIDE,
    LOST,
    MOST_FLOWS,
    MOST_HIDDEN,
    SAVED_BYTES,
    WRAP,
    HidingTables,
    flow_of,
    follow_from,
    forget,
)
from .requests import is_request, kept_of_client

Array = np.ndarray[Any, Any]
#: Bytes of a packet that stay if it is not even IP.
_OTHER = 40
_FIN, _SYN, _RST, _ACK = 1, 2, 4, 16


@helper
def _kept_of_payload(t, buf, ip, at, tcp, captured, wire):  # type: ignore[no-untyped-def]
    """Return how many captured bytes of a segment's payload, which begins at `at`, are kept. `ip`, `tcp`: its headers;
    of TCP's, 20 bytes were captured."""
    zero = np.int64(0)
    if buf[ip] >> 4 == 4:
        source_high, target_high = zero, zero
        source, target = 0xFFFF00000000 + be32(buf, ip + 12), 0xFFFF00000000 + be32(buf, ip + 16)
    else:
        source_high, source = be64(buf, ip + 8), be64(buf, ip + 16)
        target_high, target = be64(buf, ip + 24), be64(buf, ip + 32)
    source_port, target_port = be16(buf, tcp), be16(buf, tcp + 2)
    swap = source_high > target_high or (source_high == target_high and source > target)
    if source_high == target_high and source == target:
        swap = source_port > target_port
    if swap:
        ends = Ends(target_high, target, source_high, source, target_port, source_port)
    else:
        ends = Ends(source_high, source, target_high, target, source_port, target_port)
    d = np.int64(1 if swap else 0)
    number = flow_of(ends, t)
    flow = t.flows[number]
    flags = np.int64(buf[tcp + 13])
    seq, ack = be32(buf, tcp + 4), be32(buf, tcp + 8)
    side, other = t.sides[2 * number + d], t.sides[2 * number + 1 - d]
    if flags & _SYN:
        seq += 1
        first = ack if flags & _ACK else seq & WRAP
        if not flow.opened or flow.first != first:  # else it comes again
            forget(t, number)
            flow.opened = 1
            flow.first = first
            flow.client = 1 - d if flags & _ACK else d
            follow_from(other if flags & _ACK else side, FOLLOWED, first)
    kept = np.int64(captured)
    if wire > 0 and not flow.encrypted:
        is_broker = flow.client == 1 - d
        if is_broker and not flow.opened and is_request(buf, at, at + captured):
            api = be16(buf, at + 4)
            if api == HANDSHAKE or api == AUTHENTICATE:  # it is a client all the same
                flow.client = d
                is_broker = False
                side.mode = LOST
        if is_broker:
            kept = kept_of_broker(t, buf, at, captured, wire, seq & WRAP, ack, flow, side, other)
        else:
            kept = kept_of_client(t, buf, at, captured, wire, seq & WRAP, ack, flow, d, side, other)
    if flags & (_FIN | _RST):  # what still comes is cut, unless it begins with a request
        forget(t, number)
    return kept


@helper
def _end_of_others(buf, packet):  # type: ignore[no-untyped-def]
    """Where a packet ends that leads neither to TCP nor to a fragment, for what is kept of it: the headers that it has,
    and those of TCP, as far as they matter, that a message of ICMP quotes."""
    layer = link_layer(packet)
    for _ in range(8):
        if layer.what < 0:
            break
        if not is_ip(layer):
            layer = next_layer(buf, layer)
            continue
        ip = ip_header(buf, layer)
        if ip.category >= 0:
            break
        if ip.protocol == ICMP_PROTOCOL or ip.protocol == ICMPV6_PROTOCOL:
            quoted = quoted_header(buf, ip)
            if quoted.category < 0:
                return np.int64(quoted.at + 8)
        return np.int64(ip.at + 8)
    return np.int64(packet.at + _OTHER)


@helper
def _end_of(t, buf, packet, heads, blanks):  # type: ignore[no-untyped-def]
    """Hide the tokens in a packet; return where it ends for what is kept of it. Arguments as of `hide_tokens`."""
    end = packet.at + packet.captured
    count = find_trail(buf, packet, t.trail)
    if count == 0:
        return min(end, _end_of_others(buf, packet))
    last = t.trail[count - 1]
    at = np.int64(last.at)
    if last.what == FRAGMENT_PAYLOAD:
        return min(end, at + (20 if last.offset == 0 else 0))
    if at + 20 > last.end:
        return min(end, np.int64(last.end))
    header = max((np.int64(buf[at + 12]) >> 4) * 4, np.int64(20))
    payload = at + header
    captured = max(np.int64(last.end) - payload, np.int64(0))
    wire = max(np.int64(last.wire) - payload, captured)
    kept = captured
    if blanks:
        ip = np.int64(-1)
        for k in range(count - 1):
            if t.trail[k].what == IPV4 or t.trail[k].what == IPV6:
                ip = np.int64(t.trail[k].at)
        kept = _kept_of_payload(t, buf, ip, payload, at, captured, wire)
    if heads >= 0:
        kept = min(kept, heads)
    return end if kept >= captured else payload + kept


@kernel(np.uint8, PACKET, int, int, int, int, HidingTables)
def hide_tokens(buf, packets, first, count, heads, blanks, t):  # type: ignore[no-untyped-def]
    """Make the tokens in packets[first:count] filler, and cut the packets to what is kept of them.

    `heads`: the bytes of payload that are kept of each (-1: all). `blanks`: 0 only cuts. Returns the first packet that
    was not read, as there was no room for what was hidden: `show_tokens` makes some.
    """
    s = t.state[0]
    s.hidden = 0
    s.saved = 0
    i = first
    while i < count:
        if s.hidden + MOST_HIDDEN > t.hidden.shape[0] or s.saved + LONGEST_PACKET > t.saved.shape[0]:
            break
        row = packets[i]
        room = min(np.int64(row.captured), np.int64(LONGEST_PACKET), buf.shape[0] - np.int64(row.at))
        packet = Packet(
            row.ts, row.number, row.at, max(room, np.int64(0)), np.int64(row.original), np.int64(row.link_type),
            np.int64(row.point),
        )  # fmt: skip
        row.captured = max(_end_of(t, buf, packet, heads, blanks) - packet.at, 0)
        i += 1
    return i


@kernel(np.uint8, HidingTables)
def show_tokens(buf, t):  # type: ignore[no-untyped-def]
    """Put the bytes back that `hide_tokens` has hidden, the latest first."""
    for number in range(t.state[0].hidden - 1, -1, -1):
        row = t.hidden[number]
        saved = np.int64(row.saved)
        for k in range(row.at, row.end):
            buf[k] = t.saved[saved]
            saved += 1
    return 0


class PacketTrimmer:
    """Prepares packets for the disk. `heads`: bytes of payload that are kept of each packet; None: all. `blanks`:
    without tokens of SASL."""

    def __init__(self, heads: int | None, blanks: bool) -> None:
        self._heads, self._blanks = -1 if heads is None else heads, int(blanks)
        state = np.zeros(1, HIDING_STATE)
        state["seed"] = new_seed()
        self._tables = HidingTables(
            state, np.zeros(MOST_FLOWS, KNOWN_FLOW), np.zeros(2 * MOST_FLOWS, KNOWN_SIDE),
            np.zeros(LONGEST_TRAIL, TRAIL), untouched(HIDDEN_ROWS, HIDDEN), untouched(SAVED_BYTES, np.uint8),
        )  # fmt: skip

    def prepared(self, buffer: Array, packets: Array, count: int) -> Iterator[tuple[Array, int, int]]:
        """Yield (PACKET rows, first, end): rows[first:end] are ready to be written until the next step. Then the bytes
        in `buffer` are as before."""
        rows = copied(packets[:count])
        first = 0
        while first < count:
            end = hide_tokens(buffer, rows, first, count, self._heads, self._blanks, self._tables)
            try:
                yield rows, first, end
            finally:
                show_tokens(buffer, self._tables)
            first = end
