"""Captures that hold the same packets twice, made from lists of `Packet`s: on several interfaces, or at two hosts.

    whole = with_ids(encode(talk.segments))                 # as Linux numbers them; else every IPv4 id is 0
    both = twice(whole, delay_ns=50_000)                    # each packet, and a copy of it 50 µs later
    both = in_bursts(whole, 8)                              # eight packets, then their copies
    broker = elsewhere(whole, skew_ns=-3_000_000)           # the same packets at another host, whose clock is behind
    client = coalesce(whole)                                # a sender with TSO, or a receiver with GRO
    broker = cut_up(whole)                                  # the other way round: segments of at most an MSS
    broker = lossy(broker, chance, 0.01)                    # a capture that lost packets

Nothing here uses the product. The packets are Ethernet (with VLAN tags or without), cooked or raw IP, and hold TCP.
"""

from __future__ import annotations

import random
import socket
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from .captures import ETHERNET, IPV4, IPV6, LOOP, NULL, RAW, SLL, SLL2, Packet

_LINK_HEADER = {ETHERNET: 14, SLL: 16, SLL2: 20, NULL: 4, LOOP: 4, RAW: 0, IPV4: 0, IPV6: 0}
FIN, SYN, RST, PSH = 1, 2, 4, 8
#: The most bytes that Linux offloads as one segment.
LARGEST_SEGMENT = 65_160


@dataclass(frozen=True, slots=True)
class Places:
    """Where the headers of a TCP packet begin, and where its payload begins and ends, in its bytes."""

    ip: int
    tcp: int
    payload: int
    end: int


def places(data: bytes, link: int = ETHERNET) -> Places | None:
    """Find the headers of a whole packet; None if it is not TCP over IP."""
    ip = _LINK_HEADER[link]
    while link == ETHERNET and data[ip - 2 : ip] in (b"\x81\x00", b"\x88\xa8"):
        ip += 4
    if len(data) < ip + 20:
        return None
    if data[ip] >> 4 == 4 and data[ip + 9] == 6:
        tcp = ip + 4 * (data[ip] & 15)
        end = ip + (struct.unpack_from("!H", data, ip + 2)[0] or len(data) - ip)
    elif data[ip] >> 4 == 6 and data[ip + 6] == 6:
        tcp = ip + 40
        end = tcp + (struct.unpack_from("!H", data, ip + 4)[0] or len(data) - tcp)
    else:
        return None
    if end > len(data) or tcp + 20 > end:
        return None
    return Places(ip, tcp, tcp + 4 * (data[tcp + 12] >> 4), end)


def ports(packet: Packet, link: int = ETHERNET) -> tuple[int, ...]:
    """The ports of a TCP packet; none of another one."""
    at = places(packet.data, link)
    return () if at is None else struct.unpack_from("!HH", packet.data, at.tcp)


def _patched(packet: Packet, *changes: tuple[int, bytes]) -> Packet:
    data = bytearray(packet.data)
    for at, new in changes:
        data[at : at + len(new)] = new
    return replace(packet, data=bytes(data))


# ---------------------------------------------------------------- identities


def with_ids(packets: Sequence[Packet], link: int = ETHERNET, first: int = 40_000) -> list[Packet]:
    """The packets with the IPv4 ids of a host: each direction of a connection counts its own, also for copies."""
    following: dict[bytes, int] = {}
    result = []
    for packet in packets:
        at = places(packet.data, link)
        if at is None or packet.data[at.ip] >> 4 != 4:
            result.append(packet)
            continue
        ends = packet.data[at.ip + 12 : at.ip + 20] + packet.data[at.tcp : at.tcp + 4]
        number = following.get(ends, first)
        following[ends] = number % 65_535 + 1
        result.append(_patched(packet, (at.ip + 4, struct.pack("!H", number))))
    return result


def with_timestamps(packets: Sequence[Packet], link: int = ETHERNET, tick_ns: int = 1_000_000) -> list[Packet]:
    """The packets with TCP timestamps, which count ticks. Each end echoes the latest one that it received."""
    latest: dict[bytes, int] = {}
    result = []
    for packet in packets:
        at = places(packet.data, link)
        if at is None or at.payload != at.tcp + 20:
            result.append(packet)
            continue
        data = packet.data
        size = 4 if data[at.ip] >> 4 == 4 else 16
        source_at = at.ip + (12 if size == 4 else 8)
        source = data[source_at : source_at + size] + data[at.tcp : at.tcp + 2]
        target = data[source_at + size : source_at + 2 * size] + data[at.tcp + 2 : at.tcp + 4]
        now = packet.time_ns // tick_ns % 2**32
        option = b"\1\1\x08\x0a" + struct.pack("!II", now, latest.get(source, 0))
        latest[target] = now
        longer = bytearray(data[: at.payload] + option + data[at.payload : at.end])
        longer[at.tcp + 12] = 8 << 4
        length, add = (at.ip + 2, 0) if size == 4 else (at.ip + 4, at.ip + 40)
        struct.pack_into("!H", longer, length, (at.end + 12 - (add or at.ip)) % 65_536)
        result.append(replace(packet, data=bytes(longer), original_length=-1))
    return result


# ---------------------------------------------------------------- copies in one capture


def by_time(packets: Iterable[Packet]) -> list[Packet]:
    """The packets sorted by time. Packets of one time keep their order."""
    return sorted(packets, key=lambda packet: packet.time_ns)


def later(packets: Iterable[Packet], delay_ns: int) -> list[Packet]:
    """The packets with later times."""
    return [replace(packet, time_ns=packet.time_ns + delay_ns) for packet in packets]


def twice(packets: Sequence[Packet], delay_ns: int = 0) -> list[Packet]:
    """Each packet and a copy of it, `delay_ns` later."""
    return by_time([p for packet in packets for p in (packet, *later([packet], delay_ns))])


def in_bursts(packets: Sequence[Packet], size: int = 8) -> list[Packet]:
    """`size` packets, then a copy of each of them, and so on: as several interfaces are read one after the other.

    The copies have the times of their originals, so times step back.
    """
    result: list[Packet] = []
    for at in range(0, len(packets), size):
        result += [*packets[at : at + size], *packets[at : at + size]]
    return result


def tagged(packets: Iterable[Packet], vlan: int = 7) -> list[Packet]:
    """Ethernet packets with a VLAN tag."""
    tag = struct.pack("!HH", 0x8100, vlan)
    return [
        replace(p, data=p.data[:12] + tag + p.data[12:], original_length=p.wire_length + 4) for p in packets
    ]  # fmt: skip


def routed(packets: Iterable[Packet], link: int = ETHERNET) -> list[Packet]:
    """The packets behind a router: another TTL, other checksums, other link addresses."""
    result = []
    for packet in packets:
        at = places(packet.data, link)
        if at is None:
            result.append(packet)
            continue
        ttl = at.ip + (8 if packet.data[at.ip] >> 4 == 4 else 7)
        changes = [(ttl, bytes([packet.data[ttl] - 1])), (at.tcp + 16, b"\xab\xcd")]
        if packet.data[at.ip] >> 4 == 4:
            changes.append((at.ip + 10, b"\x12\x34"))
        if link == ETHERNET:
            changes.append((0, b"\2\0\0\0\0\x09"))
        result.append(_patched(packet, *changes))
    return result


# ---------------------------------------------------------------- another capture point


def elsewhere(
    packets: Sequence[Packet], skew_ns: int = 0, path_ns: int = 0, near: int = 0, link: int = ETHERNET
) -> list[Packet]:
    """The packets as another host captures them, whose clock is `skew_ns` ahead.

    `path_ns`: the time on the wire between both. Packets that the other host receives come later there, those that it
    sends come earlier. It has port `near`; 0: it receives all of them.
    """
    result = []
    for packet in packets:
        at = places(packet.data, link)
        is_sent = at is not None and near != 0 and struct.unpack_from("!H", packet.data, at.tcp)[0] == near
        result.append(replace(packet, time_ns=packet.time_ns + skew_ns + (-path_ns if is_sent else path_ns)))
    return by_time(result)


def lossy(packets: Iterable[Packet], chance: random.Random, share: float) -> list[Packet]:
    """The packets without a random share of them."""
    return [packet for packet in packets if chance.random() >= share]


def coalesce(packets: Sequence[Packet], link: int = ETHERNET, most: int = LARGEST_SEGMENT) -> list[Packet]:
    """The packets with consecutive segments of a direction joined, as TSO and GRO do.

    Segments are joined if they follow each other in the capture, with nothing of their connection between them, have
    the same acknowledgement, window and options, and only the last one has PSH or FIN.
    """
    result: list[Packet] = []
    last: dict[frozenset[bytes], int] = {}  # by connection, the place of its last packet in `result`
    for packet in packets:
        at = places(packet.data, link)
        if at is None:
            result.append(packet)
            continue
        data = packet.data
        size = 4 if data[at.ip] >> 4 == 4 else 16
        ends_at = at.tcp - 2 * size
        connection = frozenset((
            data[ends_at : ends_at + size] + data[at.tcp : at.tcp + 2],
            data[ends_at + size : at.tcp] + data[at.tcp + 2 : at.tcp + 4],
        ))  # fmt: skip
        place = last.get(connection)
        joined = None if place is None else _joined(result[place], packet, at, link, most)
        if place is not None and joined is not None:
            result[place] = joined
        else:
            last[connection] = len(result)
            result.append(packet)
    return result


def _joined(first: Packet, second: Packet, at: Places, link: int, most: int) -> Packet | None:
    """One packet of both, if the second continues the first."""
    before = places(first.data, link)
    assert before is not None
    one, two = first.data, second.data
    flags, more = one[before.tcp + 13], two[at.tcp + 13]
    have, add = before.end - before.payload, at.end - at.payload
    seq, following = (struct.unpack_from("!I", d, p.tcp + 4)[0] for d, p in ((one, before), (two, at)))
    same = (
        before.payload == at.payload
        and one[before.tcp : before.tcp + 4] == two[at.tcp : at.tcp + 4]
        and one[before.tcp + 8 : before.tcp + 12] == two[at.tcp + 8 : at.tcp + 12]
        and one[before.tcp + 14 : before.tcp + 16] == two[at.tcp + 14 : at.tcp + 16]
        and one[before.tcp + 20 : before.payload] == two[at.tcp + 20 : at.payload]
    )
    fits = (seq + have) % 2**32 == following and have > 0 and add > 0 and have + add <= most
    if not same or not fits or flags & (SYN | RST | FIN | PSH) or more & (SYN | RST):
        return None
    data = bytearray(one[: before.end] + two[at.payload : at.end])
    data[before.tcp + 13] = flags | more
    if data[before.ip] >> 4 == 4:
        struct.pack_into("!H", data, before.ip + 2, len(data) - before.ip)
    else:
        struct.pack_into("!H", data, before.ip + 4, len(data) - before.tcp)
    return replace(first, data=bytes(data), original_length=-1)


def cut_up(packets: Iterable[Packet], mss: int = 1448, link: int = ETHERNET, step_ns: int = 1_000) -> list[Packet]:
    """The packets with segments of at most `mss` bytes of payload, as a network card sends them: IPv4 ids rise by one,
    and only the last one has PSH or FIN."""
    result = []
    for packet in packets:
        at = places(packet.data, link)
        if at is None or at.end - at.payload <= mss:
            result.append(packet)
            continue
        data = packet.data
        seq = struct.unpack_from("!I", data, at.tcp + 4)[0]
        for number, start in enumerate(range(at.payload, at.end, mss)):
            part = bytearray(data[: at.payload] + data[start : min(start + mss, at.end)])
            struct.pack_into("!I", part, at.tcp + 4, (seq + start - at.payload) % 2**32)
            if start + mss < at.end:
                part[at.tcp + 13] &= ~(PSH | FIN)
            if data[at.ip] >> 4 == 4:
                struct.pack_into("!H", part, at.ip + 2, len(part) - at.ip)
                old = struct.unpack_from("!H", data, at.ip + 4)[0]
                struct.pack_into("!H", part, at.ip + 4, (old + number) % 65_536 if old else 0)
            else:
                struct.pack_into("!H", part, at.ip + 4, len(part) - at.tcp)
            result.append(
                replace(packet, data=bytes(part), time_ns=packet.time_ns + number * step_ns, original_length=-1)
            )
    return by_time(result)


# ---------------------------------------------------------------- other addresses


def outer_leg(
    packets: Iterable[Packet], broker: tuple[str, int], before: tuple[str, int], hop_ns: int, client: str = "",
    shift: int = 0, link: int = ETHERNET,
) -> list[Packet]:  # fmt: skip
    """The IPv4 packets to and from a broker as they are on the clients' side of NAT, or of a proxy: the broker has the
    address `before`. What clients send is there `hop_ns` earlier, and what they get as much later. `client`: the
    address of all clients; "": their own. `shift`: what a proxy's sequence numbers are ahead by."""
    inner, outer = (socket.inet_aton(ip) + struct.pack("!H", port) for ip, port in (broker, before))
    result = []
    for packet in packets:
        at, data = places(packet.data, link), packet.data
        if at is None or data[at.ip] >> 4 != 4:
            continue
        ends = [data[at.ip + 12 + 4 * end :][:4] + data[at.tcp + 2 * end :][:2] for end in (0, 1)]
        if inner not in ends:
            continue
        sent = ends.index(inner)  # 0: by the broker
        new = [outer if n == sent else (socket.inet_aton(client) if client else end[:4]) + end[4:]
               for n, end in enumerate(ends)]  # fmt: skip
        numbers = [(number + shift) % 2**32 for number in struct.unpack_from("!II", data, at.tcp + 4)]
        moved = _patched(
            packet, (at.ip + 12, new[0][:4] + new[1][:4]), (at.tcp, new[0][4:] + new[1][4:]),
            (at.tcp + 4, struct.pack("!II", *numbers)),
        )  # fmt: skip
        result += later([moved], -hop_ns if sent else hop_ns)
    return by_time(result)
