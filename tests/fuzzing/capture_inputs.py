"""Captures to fuzz: good ones, and damage to the file, to headers, to the order of segments, or to frames.

Good packets come from crafted conversations and from the samples.
"""

from __future__ import annotations

import gzip
import random
import struct
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import zstandard

from tests.support import copies
from tests.support.captures import (
    ETHERNET,
    IPV4,
    IPV6,
    LOOP,
    NULL,
    RAW,
    SLL,
    SLL2,
    Interface,
    Packet,
    PcapRecords,
    pcap_bytes,
    pcapng_bytes,
    read_capture,
)
from tests.support.encapsulation import KINDS, encapsulate, fragment, link_type_of
from tests.support.tcp import ACK, FIN, PSH, RST, SYN, Segment, encode, frame, merge, shake, split_small
from tests.wire.kafkatalk import CLIENT, KafkaTalk
from tests.wire.mutations import changed, varied_talk

LINKS = (ETHERNET, SLL, SLL2, NULL, LOOP, RAW, IPV4, IPV6)
SAMPLES = Path(__file__).resolve().parents[2] / "samples"
#: Lengths and numbers near limits.
NEAR_LIMITS = (0, 1, 2, 3, 4, 7, 8, 255, 256, 65_535, 65_536, 2**31 - 1, 2**31, 2**32 - 1)
#: What may stand before or between Kafka's frames.
FOREIGN = (
    b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    b"PROXY TCP4 192.0.2.1 192.0.2.2 56324 9092\r\n",
    b"PROXY UNKNOWN\r\n",
    b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\xc0\0\2\1\xc0\0\2\2\xdc\x04\x23\x84",
    b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0",
    b"\0\0\0\0",
    b"\xff" * 9,
)


# ---------------------------------------------------------------- good packets


@cache
def _sample(name: str) -> PcapRecords:
    return PcapRecords(SAMPLES / name)


def sample_packets(chance: random.Random) -> list[Packet]:
    """Some consecutive packets of a sample."""
    records = _sample(chance.choice(("apache-0.8.2", "apache-0.10.2", "apache-2.8", "apache-4.3")) + ".pcap.zst")
    first = chance.choice((0, chance.randrange(len(records))))
    return read_capture(records.slice(first, min(first + chance.choice((5, 40, 120)), len(records)))).packets


def talk_segments(chance: random.Random) -> list[Segment]:
    """One or several crafted connections, some with IPv6 addresses."""
    talks = []
    for _ in range(chance.choice((1, 1, 1, 2))):
        segments = varied_talk(chance, chance.choice((1, 2, 3))).segments
        if chance.random() < 0.2:
            segments = [_other_ends(s) for s in segments]
        talks.append(segments)
    return merge(*talks) if len(talks) > 1 else talks[0]


def _other_ends(segment: Segment) -> Segment:
    client, broker = ("2001:db8::1", 40_000), ("2001:db8::2", 9_092)
    ends = (client, broker) if segment.source == CLIENT else (broker, client)
    return replace(segment, source=ends[0], destination=ends[1])


# ---------------------------------------------------------------- files


def damaged_file(chance: random.Random) -> bytes:
    """A file of any format in which any byte may change; also compressed, before or after the damage."""
    packets = sample_packets(chance) if chance.random() < 0.3 else encode(talk_segments(chance))
    data = _file(packets[:60], ETHERNET, chance)
    if chance.random() < 0.2:
        data += _file(packets[60:90], ETHERNET, chance)
    if chance.random() < 0.7:
        data = changed(data, chance, chance.choice((0, 4, 24)))
    if chance.random() < 0.25:
        data = gzip.compress(data, 1, mtime=0) if chance.random() < 0.5 else _zstandard(data, chance)
        if chance.random() < 0.7:
            data = changed(data, chance, chance.choice((0, 4, 12)))
    return data


def _zstandard(data: bytes, chance: random.Random) -> bytes:
    compressor = zstandard.ZstdCompressor(1, write_checksum=chance.random() < 0.5, write_content_size=False)
    half = chance.randrange(len(data) + 1) if chance.random() < 0.2 else len(data)
    return compressor.compress(data[:half]) + (compressor.compress(data[half:]) if half < len(data) else b"")


def _file(packets: Sequence[Packet], link: int, chance: random.Random) -> bytes:
    order = chance.choice("<>")
    if chance.random() < 0.5:
        form = chance.choice(({}, {"nanoseconds": True}, {"modified": True}))
        return pcap_bytes(packets, link, order=order, **form)  # type: ignore[arg-type]
    count = chance.choice((1, 1, 2, 20))
    units = (None, 0, 3, 6, 9, 18, 0x80 | 20, 0x80 | 63)
    drops = chance.choice((None, 0, 3, 2**64 - 1))
    interfaces = [Interface(link, chance.choice(units[2:6]), name="eth0", drops=drops) for _ in range(count)]
    if chance.random() < 0.2:
        interfaces[0] = Interface(link, 9, chance.choice((0, 1_000_000, -1, 2**40)))
    packets = [replace(p, interface=chance.randrange(count)) for p in packets]
    try:
        return pcapng_bytes(packets, interfaces, order=order, simple=chance.random() < 0.1)
    except struct.error:  # no unit of this interface holds the times
        return pcapng_bytes(packets, [Interface(link, 6)] * count, order=order)


# ---------------------------------------------------------------- headers


def damaged_layers(chance: random.Random) -> bytes:
    """A whole file of packets in tunnels, other layers and fragments, whose headers may be damaged."""
    packets = encode(talk_segments(chance)[:50])
    kinds = [chance.choice(sorted(KINDS)) for _ in range(chance.choice((0, 1, 1, 1, 2, 3, 9)))]
    link = ETHERNET
    if chance.random() < 0.4:
        packets = fragment(packets, chance.choice((60, 100, 576)), chance.choice(("forward", "reverse", "shuffled")))
    for kind in kinds:
        if link == ETHERNET:
            packets, link = encapsulate(packets, kind), link_type_of(kind)
    if link == ETHERNET and chance.random() < 0.2:
        packets = fragment(packets, chance.choice((100, 576)), "shuffled", chance.getrandbits(9))
    if packets and chance.random() < 0.3:
        packets = [p if chance.random() < 0.95 else chance.choice(packets) for p in packets]
    return pcap_bytes(_damaged_heads(packets[:300], chance), link, nanoseconds=True)


def damaged_headers(chance: random.Random) -> bytes:
    """A whole file of packets whose link, IP and TCP headers may be of any kind, and damaged."""
    if chance.random() < 0.6:
        return damaged_layers(chance)
    link = chance.choice(LINKS)
    segments = talk_segments(chance)[:60]
    vlans = tuple(chance.randrange(4096) for _ in range(chance.choice((0, 0, 1, 2, 5))))
    options = chance.choice((b"", b"\1\1\x08\x0a" + bytes(8), bytes(40)))
    packets = encode(
        segments, link, vlans=vlans, order=chance.choice("<>"), options=options,
        ip_options=bytes(chance.choice((0, 0, 4, 40))), zero_length=chance.random() < 0.1,
        snap_length=chance.choice((0, 0, 0, 60, 96)),
    )  # fmt: skip
    packets = _damaged_heads(packets, chance)
    if chance.random() < 0.1:
        link = chance.choice((9, 105, 127, 192, 239, 147, 65_535))
    return pcap_bytes(packets, link, nanoseconds=True)


def _damaged_heads(packets: list[Packet], chance: random.Random) -> list[Packet]:
    for _ in range(chance.choice((0, 1, 4, 20)) if packets else 0):
        at = chance.randrange(len(packets))
        damaged = _damaged_head(packets[at].data, chance)
        packets[at] = replace(packets[at], data=damaged)
        if chance.random() < 0.2:
            packets[at] = replace(packets[at], original_length=chance.choice(NEAR_LIMITS))
    return packets


def _damaged_head(data: bytes, chance: random.Random) -> bytes:
    """The packet with damage in its first bytes, or all of them."""
    result = bytearray(data)
    for _ in range(chance.choice((1, 1, 2, 4))):
        if not result:
            break
        at = chance.randrange(min(len(result), chance.choice((16, 40, 80, 120, 2_000))))
        kind = chance.random()
        if kind < 0.4:
            result[at] = chance.choice(
                (0, 1, 4, 5, 6, 17, 41, 43, 44, 47, 51, 60, 0x45, 0x60, 0xFF, chance.getrandbits(8))
            )
        elif kind < 0.7:
            number = chance.choice(
                (0x0800, 0x86DD, 0x8100, 0x88A8, 0x8847, 0x8864, 0x6558, 0x88BE, 0, 1, 20, 40, 0xFFFF)
            )
            result[at : at + 2] = struct.pack("!H", number)
        elif kind < 0.85:
            del result[at:]
        else:
            result[at:at] = chance.randbytes(chance.choice((2, 4, 8, 20)))
    return bytes(result[:65_000])


# ---------------------------------------------------------------- segments


def hostile_segments(chance: random.Random) -> bytes:
    """Good frames in segments of any order, twice, lost, overlapping with other bytes, reset, and at odd times."""
    segments = talk_segments(chance)
    if chance.random() < 0.3:
        segments = split_small(segments, chance.choice((1, 3, 17)))[:300]
    if chance.random() < 0.5:
        segments = shake(
            segments, chance, duplicates=chance.random() / 3, moves=chance.random(), far=chance.choice((2, 9, 60))
        )
    for _ in range(chance.choice((0, 1, 3, 12, 40))):
        at = chance.randrange(len(segments))
        segments[at : at + 1] = _hostile(segments[at], chance)
        if not segments:
            break
    if chance.random() < 0.2:
        chance.shuffle(segments)
    packets = encode(segments)
    if chance.random() < 0.3:
        packets = _copied(packets, chance)
    return pcap_bytes(_odd_times(packets, chance), nanoseconds=True)


def _copied(packets: list[Packet], chance: random.Random) -> list[Packet]:
    """Packets that were captured twice, or packed differently."""
    kind = chance.randrange(6)
    if kind == 0:
        return packets + packets
    if chance.random() < 0.7:
        packets = copies.with_ids(packets, first=chance.choice((0, 1, 65_530)))
    if chance.random() < 0.7:
        packets = copies.with_timestamps(packets)
    if kind == 1:
        return copies.twice(packets, chance.choice((0, 1, 50_000, 99_000_000, 101_000_000)))
    if kind == 2:
        return copies.in_bursts(packets, chance.choice((2, 8, 40)))
    if kind == 3:
        return copies.by_time([*packets, *copies.coalesce(packets)])
    if kind == 4:
        return copies.by_time([*packets, *copies.routed(packets)])
    return copies.cut_up(packets, chance.choice((20, 536)))


def _hostile(s: Segment, chance: random.Random) -> list[Segment]:
    kind = chance.randrange(8)
    if kind == 0:
        return []
    if kind == 1:  # a copy with other bytes, that begins elsewhere
        back = chance.choice((0, 1, 5, 100))
        return [s, replace(s, seq=(s.seq - back) % 2**32, payload=chance.randbytes(chance.choice((1, 20, 200))))]
    if kind == 2:
        step = chance.choice((-(2**31), -70_000, -1, 1, 9, 2**29, 2**30, 2**30 + 5, 2**31 - 1, 2**31, 2**32 - 1))
        return [replace(s, seq=(s.seq + step) % 2**32)]
    if kind == 3:
        return [replace(s, flags=chance.choice((0, FIN, SYN, RST, PSH, ACK | FIN, ACK | SYN, ACK | RST, 63)))]
    if kind == 4:
        return [replace(s, ack=chance.choice(NEAR_LIMITS)), s]
    if kind == 5:  # the connection ends and the same ports begin another one
        reset = replace(s, flags=chance.choice((RST, RST | ACK, FIN | ACK)), payload=b"")
        return [reset, replace(s, flags=SYN, payload=b"", seq=chance.getrandbits(32)), s]
    if kind == 6:
        return [replace(s, source=s.destination, destination=s.source)]
    return [replace(s, payload=s.payload[:1], seq=(s.seq - 1) % 2**32), s]


def _odd_times(packets: list[Packet], chance: random.Random) -> list[Packet]:
    kind = chance.random()
    if kind < 0.7 or not packets:
        return packets
    if kind < 0.8:
        return [replace(p, time_ns=0) for p in packets]
    # A clock that steps back by more than CLOSED_NS may split a closed connection, depending on the blocks.
    step = chance.choice((-(4 * 10**9), -(10**9), 10**9, 3_600 * 10**9, 2**31 * 10**9))
    at = chance.randrange(len(packets))
    times = [p.time_ns + (step if n >= at else 0) for n, p in enumerate(packets)]
    return [replace(p, time_ns=max(0, min(t, (2**32 - 1) * 10**9))) for p, t in zip(packets, times, strict=True)]


# ---------------------------------------------------------------- frames


def damaged_frames(chance: random.Random) -> bytes:
    """Correct TCP that carries damaged frames, foreign bytes, and frames that are not what they seem."""
    if chance.random() < 0.3:
        return pcap_bytes(encode(_strange_talk(chance).segments[:200]), nanoseconds=True)
    segments = talk_segments(chance)
    if chance.random() < 0.5:
        del segments[: chance.randrange(min(len(segments), 20))]
    for _ in range(chance.choice((1, 3, 12))):
        at = chance.randrange(len(segments))
        s = segments[at]
        if chance.random() < 0.2:
            del segments[at]
        elif s.payload:
            segments[at] = replace(s, payload=changed(s.payload, chance)[:60_000])
        if not segments:
            break
    return pcap_bytes(encode(segments, snap_length=chance.choice((0, 0, 0, 70, 128))), nanoseconds=True)


def _strange_talk(chance: random.Random) -> KafkaTalk:
    """Frames with any key, version, size and correlation id, after foreign bytes."""
    talk = KafkaTalk(mss=chance.choice((1, 30, 1448)))
    if chance.random() < 0.7:
        talk.tcp.open()
    for _ in range(chance.choice((0, 0, 1, 2))):
        talk.tcp.send(chance.randrange(2), changed(chance.choice(FOREIGN), chance))
    for n in range(chance.randrange(1, 12)):
        key = chance.choice((0, 1, 3, 18, 36, 58, chance.randrange(95), 127, 128, 501, 10_000, 32_767, -1))
        version = chance.choice((0, 1, 3, 9, 12, 31, 32, 32_767, -1))
        head = struct.pack("!hhi", key, version, chance.choice((n, n, n, 0, -1, 2**31 - 1)))
        head += chance.choice((b"\0\3app", b"\xff\xff", b"\0\0", b"\x7f\xff"))
        request = frame(head + chance.randbytes(chance.choice((0, 1, 9, 200))))
        response = frame(
            struct.pack("!i", chance.choice((n, n, n, n + 1, -5))) + chance.randbytes(chance.choice((0, 6, 90)))
        )
        if chance.random() < 0.2:
            request = changed(request, chance)
        talk.tcp.send(0, request)
        if chance.random() < 0.8:
            talk.tcp.send(1, response)
        if chance.random() < 0.05:
            talk.tcp.skip(chance.randrange(2), chance.choice((1, 100, 70_000, 2**30)))
    return talk


# ---------------------------------------------------------------- several files


def undamaged_file(chance: random.Random) -> bytes:
    """A whole file with any segments and frames. (In splits, a datagram whose fragments lie in two of them may count as
    a connection of its own.)"""
    return chance.choice((hostile_segments, damaged_frames))(chance)


def several_captures(chance: random.Random) -> bytes:
    """Several files in one input: the same packets at several points, rotated, or with nothing in common."""
    packets = encode(talk_segments(chance))
    if chance.random() < 0.7:
        packets = copies.with_ids(packets)
    if chance.random() < 0.5:
        packets = copies.with_timestamps(packets)
    files = []
    for _ in range(chance.choice((2, 2, 3, 5))):
        kind = chance.randrange(6)
        mine = packets
        if kind == 0:
            mine = copies.elsewhere(packets, chance.choice((0, -3_000_000, 5_000, 10**9)), chance.choice((0, 20_000)))
        elif kind == 1:
            mine = copies.coalesce(packets)
        elif kind == 2:
            mine = copies.lossy(packets, chance, 0.2)
        elif kind == 3:
            first = chance.randrange(len(packets))
            mine = packets[first : first + chance.randrange(1, len(packets))]
        elif kind == 4:
            mine = sample_packets(chance)
        data = pcap_bytes(_odd_times(mine, chance), nanoseconds=True)
        # Other damage would change times, and a clock that steps back far is not merged the same in all blocks.
        files.append(data[: chance.randrange(len(data))] if chance.random() < 0.2 else data)
    return packed(files)


def packed(files: Sequence[bytes]) -> bytes:
    """Files as one input."""
    return b"".join(struct.pack(">I", len(data)) + data for data in files)


def unpacked(data: bytes) -> list[bytes]:
    """The files of such an input."""
    files = []
    while len(data) >= 4:
        length = int.from_bytes(data[:4], "big")
        files.append(data[4 : 4 + length])
        data = data[4 + length :]
    return files[:8]
