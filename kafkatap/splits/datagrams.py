"""IP datagrams that came in fragments: those that lie in several splits, and segments of them as packets.

Each split begins with the incomplete datagrams that the splits before left.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from kafkatap.reassembly.fragments import MAX_AGE_NS, SavedDatagram

Array = np.ndarray[Any, Any]
_IPV4_PREFIX = 0xFFFF
#: Two bytes of padding, then kind and length of TCP's option for timestamps.
_TIMESTAMPS = b"\1\1\x08\x0a"


def datagrams_before(
    left: Sequence[Sequence[SavedDatagram]], first: Sequence[int | None], earlier: Sequence[SavedDatagram] = ()
) -> list[list[SavedDatagram]]:
    """The incomplete datagrams at the start of each split, and behind the last one.

    `left[i]`: what split i leaves if it begins with none; `first[i]`: the time of its first packet, ns since the epoch.
    `earlier`: those at the start of the first split.
    """
    found: list[list[SavedDatagram]] = [list(earlier)]
    for new, begins in zip(left, first, strict=True):
        now = {datagram.key: datagram for datagram in found[-1] if begins is None or _is_young(datagram, begins)}
        for datagram in new:
            before = now.pop(datagram.key, None)
            both = datagram if before is None else before.joined(datagram)
            if before is None or not (before.is_complete or both.is_complete):
                now[datagram.key] = both
        found.append(list(now.values()))
    return found


def _is_young(datagram: SavedDatagram, now: int) -> bool:
    return now - int(datagram.row["since"][0]) <= MAX_AGE_NS


def waiting_packets(datagrams: Sequence[SavedDatagram]) -> int:
    """The packets that wait with datagrams."""
    return sum(int(datagram.row["packets"][0]) for datagram in datagrams)


def packet_of_segment(segment: Any, flow: Any, pool: Array) -> Array:
    """A segment (SEGMENT, of FLOW `flow`), whose payload is in the held pool, as an IP packet: uint8.

    It has all that reassembly reads of a packet.
    """
    ends = [
        (int(flow.a_high), int(flow.a_low), int(flow.a_port)),
        (int(flow.b_high), int(flow.b_low), int(flow.b_port)),
    ]
    if segment.direction:
        ends.reverse()
    (source_high, source, source_port), (target_high, target, target_port) = ends
    options = _TIMESTAMPS + struct.pack("!q", segment.timestamps) if segment.timestamps else b""
    header = 20 + len(options)
    tcp = struct.pack(
        "!HHIIBBHHH", source_port, target_port, segment.seq, segment.ack, header // 4 << 4, segment.tcp_flags,
        segment.window, 0, 0,
    )  # fmt: skip
    length = header + int(segment.wire)
    if source_high == target_high == 0 and source >> 32 == target >> 32 == _IPV4_PREFIX:
        addresses = struct.pack("!II", source & 0xFFFFFFFF, target & 0xFFFFFFFF)
        whole = 20 + length if 20 + length < 65_536 else 0  # 0: as captured
        ip = struct.pack("!BBHHHBBH", 0x45, 0, whole, segment.ip_id, 0, 64, 6, 0) + addresses
    else:
        addresses = struct.pack("!qqqq", source_high, source, target_high, target)
        ip = struct.pack("!IHBB", 6 << 28, length if length < 65_536 else 0, 6, 64) + addresses
    payload = pool[segment.at : segment.at + segment.captured].tobytes()
    return np.frombuffer(ip + tcp + options + payload, np.uint8)
