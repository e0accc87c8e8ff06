"""TCP conversations crafted packet by packet with plain struct. A million packets take seconds.

`TcpConversation` plays both ends and records `Segment`s. `dataclasses.replace` changes a segment; `lose`, `duplicate`,
`move`, `retransmit` and `shake` damage lists of them; `merge` joins several conversations. `encode` turns segments into
`Packet`s on any link layer:

    talk = TcpConversation(("10.0.0.1", 40000), ("10.0.0.2", 9092))
    talk.open()
    talk.client(request)            # cut into segments of at most `mss` bytes, acknowledged by the other end
    talk.server(response)
    talk.close()
    packets = encode(lose(talk.segments, 4), link=SLL2)

Special cases:

* sequence numbers that wrap: `isn=(2**32 - 10, 2**32 - 500)`
* a capture that starts in mid-connection: skip `open`, or slice the segments
* the same addresses and ports again: a second TcpConversation with other `isn` and a later `time_ns`
* overlapping segments: `overlap`; a zero-window probe or a keep-alive: `probe`

Checksums are 0, as in a capture where the network card computes them.
"""

from __future__ import annotations

import heapq
import random
import socket
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from .captures import ETHERNET, IPV4, IPV6, LOOP, NULL, RAW, SLL, SLL2, Packet

FIN, SYN, RST, PSH, ACK = 1, 2, 4, 8, 16

Endpoint = tuple[str, int]  #: IP address and port

#: The default start, in whole seconds: 2024-01-01 00:00:00 UTC.
START_NS = 1_704_067_200_000_000_000


@dataclass(frozen=True, slots=True)
class Segment:
    """One TCP segment of a capture."""

    time_ns: int
    source: Endpoint
    destination: Endpoint
    seq: int
    ack: int
    flags: int
    payload: bytes = b""


class TcpConversation:
    """Both ends of one connection. Each call appends to `segments` and adds `step_ns` per segment to `time_ns`."""

    def __init__(
        self,
        client: Endpoint,
        server: Endpoint,
        *,
        time_ns: int = START_NS,
        step_ns: int = 100_000,
        isn: tuple[int, int] = (1000, 5_000_000),
        mss: int = 1448,
        acks: bool = True,
    ) -> None:
        self.ends = (client, server)
        self.time_ns = time_ns
        self.step_ns = step_ns
        self.mss = mss
        self.acks = acks  #: whether a segment without data acknowledges data
        self.next = [(isn[0] + 1) % 2**32, (isn[1] + 1) % 2**32]  #: the next sequence numbers of client and server
        self.segments: list[Segment] = []

    def _add(self, end: int, flags: int, payload: bytes = b"", seq: int | None = None, ack: int | None = None) -> None:
        seq = self.next[end] if seq is None else seq % 2**32
        ack = self.next[1 - end] if ack is None else ack
        self.segments.append(Segment(self.time_ns, self.ends[end], self.ends[1 - end], seq, ack, flags, payload))
        self.time_ns += self.step_ns

    def wait(self, nanoseconds: int) -> None:
        """Advance the time."""
        self.time_ns += nanoseconds

    def open(self) -> None:
        """SYN, SYN-ACK, ACK."""
        self._add(0, SYN, seq=self.next[0] - 1, ack=0)
        self._add(1, SYN | ACK, seq=self.next[1] - 1)
        self._add(0, ACK)

    def client(self, data: bytes) -> None:
        """The client sends."""
        self.send(0, data)

    def server(self, data: bytes) -> None:
        """The server sends."""
        self.send(1, data)

    def send(self, end: int, data: bytes) -> None:
        """End 0 (client) or 1 (server) sends `data` in segments of at most `mss`; the other acknowledges the last."""
        for at in range(0, len(data), self.mss):
            part = data[at : at + self.mss]
            self._add(end, ACK | (PSH if at + self.mss >= len(data) else 0), part)
            self.next[end] = (self.next[end] + len(part)) % 2**32
        if self.acks and data:
            self._add(1 - end, ACK)

    def skip(self, end: int, length: int) -> None:
        """Send bytes that no packet of the capture holds: a gap."""
        self.next[end] = (self.next[end] + length) % 2**32

    def overlap(self, end: int, back: int, data: bytes) -> None:
        """Send `data` from `back` bytes before the next sequence number. Bytes beyond that number are new."""
        self._add(end, ACK | PSH, data, seq=self.next[end] - back)
        self.next[end] = (self.next[end] + max(0, len(data) - back)) % 2**32

    def probe(self, end: int, data: bytes = b"\0") -> None:
        """A keep-alive or zero-window probe: a byte before the next sequence number."""
        self._add(end, ACK, data, seq=self.next[end] - 1)

    def close(self, first: int = 0) -> None:
        """FIN from both ends, `first` first."""
        for end in (first, 1 - first):
            self._add(end, FIN | ACK)
            self.next[end] = (self.next[end] + 1) % 2**32
        self._add(first, ACK)

    def reset(self, end: int = 0) -> None:
        """RST."""
        self._add(end, RST)


# ---------------------------------------------------------------- damage


def lose(segments: Sequence[Segment], *numbers: int) -> list[Segment]:
    """The segments without these (numbers from 0)."""
    return [s for n, s in enumerate(segments) if n not in numbers]


def duplicate(segments: Sequence[Segment], number: int, later: int = 1, delay_ns: int = 0) -> list[Segment]:
    """A second copy of one segment, `later` places after the first."""
    copy = list(segments)
    at = min(number + later, len(copy) - 1)
    copy.insert(number + later, replace(copy[number], time_ns=copy[at].time_ns + delay_ns))
    return copy


def move(segments: Sequence[Segment], number: int, to: int) -> list[Segment]:
    """The segments with one at another place. The times keep their places, so they still rise."""
    order = list(range(len(segments)))
    order.insert(to, order.pop(number))
    return [replace(segments[n], time_ns=s.time_ns) for n, s in zip(order, segments, strict=True)]


def retransmit(segments: Sequence[Segment], number: int, after: int, cut: int = 0) -> list[Segment]:
    """The segments with one lost at its place and retransmitted `after` places later, without its first `cut` bytes."""
    lost = segments[number]
    again = replace(
        lost, time_ns=segments[number + after].time_ns, seq=(lost.seq + cut) % 2**32, payload=lost.payload[cut:]
    )
    rest = list(segments)
    rest.insert(number + after + 1, again)
    return rest if cut else rest[:number] + rest[number + 1 :]


def shake(
    segments: Sequence[Segment], chance: random.Random, *, duplicates: float = 0.05, moves: float = 0.05, far: int = 8
) -> list[Segment]:
    """Random copies and reorderings, as on a bad network, but without loss."""
    result = list(segments)
    for number in range(len(result) - 1, -1, -1):
        if chance.random() < duplicates:
            result = duplicate(result, number, chance.randint(1, far))
        if chance.random() < moves:
            result = move(result, number, min(number + chance.randint(1, far), len(result) - 1))
    return result


def split_small(segments: Iterable[Segment], size: int) -> list[Segment]:
    """The same bytes in segments of at most `size` bytes of data."""
    result: list[Segment] = []
    for s in segments:
        for at in range(0, max(len(s.payload), 1), size):
            part = s.payload[at : at + size]
            result.append(replace(s, seq=(s.seq + at) % 2**32, payload=part))
    return result


def merge(*conversations: Iterable[Segment]) -> list[Segment]:
    """The segments of several conversations, sorted by time."""
    return list(heapq.merge(*conversations, key=lambda s: s.time_ns))


# ---------------------------------------------------------------- bytes


@lru_cache(maxsize=4096)
def _address(ip: str) -> bytes:
    return socket.inet_pton(socket.AF_INET6 if ":" in ip else socket.AF_INET, ip)


def tcp_packet(s: Segment, *, options: bytes = b"", ip_options: bytes = b"", zero_length: bool = False) -> bytes:
    """The IP packet of a segment. `zero_length` writes 0 as IPv4's total length, as some captures of TSO do."""
    tcp = struct.pack(
        "!HHIIBBHHH",
        s.source[1],
        s.destination[1],
        s.seq % 2**32,
        0 if s.flags & (SYN | ACK) == SYN else s.ack % 2**32,
        (20 + len(options)) // 4 << 4,
        s.flags,
        65535,
        0,
        0,
    )
    rest = tcp + options + s.payload
    source, destination = _address(s.source[0]), _address(s.destination[0])
    if len(source) == 16:
        return struct.pack("!IHBB", 6 << 28, len(rest) % 65536, 6, 64) + source + destination + rest
    header = 20 + len(ip_options)
    total = 0 if zero_length else header + len(rest)
    return (
        struct.pack("!BBHHHBBH", 0x40 | header // 4, 0, total, 0, 0x4000, 64, 6, 0)
        + source
        + destination
        + ip_options
        + rest
    )


def on_link(ip: bytes, link: int = ETHERNET, *, vlans: Sequence[int] = (), pad: bool = True, order: str = "<") -> bytes:
    """An IP packet on a link layer. `vlans` are tags, the outermost first (two: QinQ); `order` is NULL's byte order."""
    v6 = ip[0] >> 4 == 6
    protocol = 0x86DD if v6 else 0x0800
    tags = b"".join(struct.pack("!HH", tag, 0x8100 if n + 1 < len(vlans) else protocol) for n, tag in enumerate(vlans))
    outer = (0x88A8 if len(vlans) > 1 else 0x8100) if vlans else protocol
    if link == ETHERNET:
        frame = b"\2\0\0\0\0\2\2\0\0\0\0\1" + struct.pack("!H", outer) + tags + ip
        return frame.ljust(60, b"\0") if pad else frame
    if link == SLL:
        return struct.pack("!HHH8sH", 0, 1, 6, b"\2\0\0\0\0\1\0\0", outer) + tags + ip
    if link == SLL2:
        return struct.pack("!HHIHBB8s", outer, 0, 2, 1, 0, 6, b"\2\0\0\0\0\1\0\0") + tags + ip
    if link == NULL:
        return struct.pack(order + "I", 30 if v6 else 2) + ip
    if link == LOOP:
        return struct.pack("!I", 30 if v6 else 2) + ip
    if link in (RAW, IPV4, IPV6):
        return ip
    raise ValueError(f"no such link type here: {link}")


def encode(
    segments: Iterable[Segment],
    link: int = ETHERNET,
    *,
    vlans: Sequence[int] = (),
    pad: bool = True,
    order: str = "<",
    options: bytes = b"",
    ip_options: bytes = b"",
    zero_length: bool = False,
    snap_length: int = 0,
) -> list[Packet]:
    """Segments as packets on a link layer; `snap_length` cuts them and keeps the length on the wire."""
    packets = []
    for s in segments:
        ip = tcp_packet(s, options=options, ip_options=ip_options, zero_length=zero_length)
        data = on_link(ip, link, vlans=vlans, pad=pad, order=order)
        packets.append(Packet(s.time_ns, data[:snap_length] if snap_length else data, len(data)))
    return packets


# ---------------------------------------------------------------- Kafka frames


def frame(body: bytes) -> bytes:
    """A size field and the bytes that it counts."""
    return struct.pack("!i", len(body)) + body


def request_frame(
    api_key: int, version: int, correlation_id: int, client_id: str | None, body: bytes = b"", *, flexible: bool = False
) -> bytes:
    """A request with header v1, or v2 where `flexible`."""
    head = struct.pack("!hhi", api_key, version, correlation_id)
    if client_id is None:
        head += b"\xff\xff"
    else:
        head += struct.pack("!h", len(client_id.encode())) + client_id.encode()
    return frame(head + (b"\0" if flexible else b"") + body)


def response_frame(correlation_id: int, body: bytes = b"", *, flexible: bool = False) -> bytes:
    """A response with header v0, or v1 where `flexible`."""
    return frame(struct.pack("!i", correlation_id) + (b"\0" if flexible else b"") + body)
