"""Blocks, options and secrets of the original: what is copied, and what is not."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import pytest

from tests.extract.support import extracted
from tests.support.captures import Packet, block, pcap_bytes, pcapng_bytes, read_capture, write_capture
from tests.support.tcp import encode
from tests.wire.kafkatalk import small_talk

PACKETS = encode(small_talk(4).segments)
SECRETS, CUSTOM, NAMES, STATISTICS, OBSOLETE, SIMPLE = 0x0A, 0x0BAD, 4, 5, 2, 3
KEYS = b"CLIENT_RANDOM 0011 2233"


def option(order: str, code: int, value: bytes) -> bytes:
    return struct.pack(order + "HH", code, len(value)) + value.ljust(len(value) + 3 & ~3, b"\0")


def section(order: str, comment: str = "") -> bytes:
    options = option(order, 1, comment.encode()) + bytes(4) if comment else b""
    return block(0x0A0D0D0A, struct.pack(order + "IHHq", 0x1A2B3C4D, 1, 0, -1) + options, order)


def interface(order: str, snap_length: int, *options: tuple[int, bytes]) -> bytes:
    body = struct.pack(order + "HHI", 1, 0, snap_length) + b"".join(option(order, *o) for o in options) + bytes(4)
    return block(1, body, order)


def enhanced(order: str, packet: Packet, unit: int, number: int, *options: tuple[int, bytes]) -> bytes:
    ticks = packet.time_ns // unit
    body = struct.pack(order + "IIIII", number, ticks >> 32, ticks & 0xFFFFFFFF, len(packet.data), packet.wire_length)
    body += packet.data.ljust(len(packet.data) + 3 & ~3, b"\0")
    return block(6, body + b"".join(option(order, *o) for o in options) + (bytes(4) if options else b""), order)


def obsolete(order: str, packet: Packet, unit: int, number: int) -> bytes:
    ticks = packet.time_ns // unit
    head = struct.pack(
        order + "HHIIII", number, 7, ticks >> 32, ticks & 0xFFFFFFFF, len(packet.data), packet.wire_length
    )
    return block(OBSOLETE, head + packet.data, order)


def rich_capture(order: str) -> bytes:
    """A section of this byte order with all kinds of blocks, and one of the other order after it."""
    other = "<" if order == ">" else ">"
    flags, custom = (2, struct.pack(order + "I", 2)), (2989, b"\0\0\0\0secret of a custom option")
    made = [
        section(order, "a section's comment"),
        block(SECRETS, struct.pack(order + "II", 0x544C534B, len(KEYS)) + KEYS, order),
        interface(order, 9_000, (2, b"eth7"), (9, b"\x09"), (11, b"\0port 9092"), (8, struct.pack(order + "Q", 10**9))),
        interface(order, 0, (2, b"lo"), (9, b"\x06"), (14, struct.pack(order + "q", 0))),
        block(CUSTOM, struct.pack(order + "I", 12345) + b"secret of a custom block", order),
    ]
    half = len(PACKETS) // 2
    for place, packet in enumerate(PACKETS[:half]):
        if place % 5 == 4:
            made.append(block(SECRETS, struct.pack(order + "II", 0x544C534B, len(KEYS)) + KEYS, order))
            made.append(obsolete(order, packet, 1000, 1))
        else:
            made.append(enhanced(order, packet, 1, 0, (1, f"note {place}".encode()), flags, custom))
    made.append(block(NAMES, bytes(4), order))
    made.append(section(other))
    made.append(interface(other, 65_535, (2, b"eth8"), (9, b"\x09")))
    made += [enhanced(other, packet, 1, 0, (2, struct.pack(other + "I", 1))) for packet in PACKETS[half:]]
    return b"".join(made)


def blocks_of(data: bytes) -> list[tuple[int, bytes]]:
    at, found = 0, []
    while at < len(data):
        kind, length = struct.unpack_from("<II", data, at)
        assert length == struct.unpack_from("<I", data, at + length - 4)[0]
        found.append((kind, data[at + 8 : at + length - 4]))
        at += length
    return found


@pytest.mark.parametrize("order", ["<", ">"])
def test_options_are_kept_and_secrets_are_not(order: str, tmp_path: Path) -> None:
    capture = write_capture(tmp_path / "in.pcapng", rich_capture(order))
    extracted(capture, tmp_path / "out.pcapng")
    data = (tmp_path / "out.pcapng").read_bytes()
    found = blocks_of(data)
    assert {kind for kind, _ in found} == {0x0A0D0D0A, 1, 4, 6}
    assert KEYS not in data
    assert b"secret of" not in data
    described = [body for kind, body in found if kind == 1]
    assert [struct.unpack_from("<HHI", body) for body in described] == [(1, 0, 9_000), (1, 0, 0), (1, 0, 65_535)]
    for body, name in zip(described, (b"eth7", b"lo", b"eth8"), strict=True):
        assert option("<", 2, name) in body
    assert option("<", 8, struct.pack("<Q", 10**9)) in described[0]
    assert option("<", 11, b"\0port 9092") in described[0]
    packets = [body for kind, body in found if kind == 6]
    half = len(PACKETS) // 2
    for place, body in enumerate(packets):
        flags = option("<", 2, struct.pack("<I", 1 if place >= half else 2))
        is_obsolete = place < half and place % 5 == 4
        assert (flags in body) == (not is_obsolete)
        assert (option("<", 1, f"note {place}".encode()) in body) == (place < half and not is_obsolete)


@pytest.mark.parametrize("order", ["<", ">"])
def test_packets_are_copied_exactly(order: str, tmp_path: Path) -> None:
    capture = write_capture(tmp_path / "in.pcapng", rich_capture(order))
    extracted(capture, tmp_path / "out.pcapng")
    assert [(p.time_ns, p.data, p.wire_length) for p in read_capture(tmp_path / "out.pcapng").packets] == [
        (p.time_ns, p.data, p.wire_length) for p in PACKETS
    ]


def test_texts_of_the_original_are_left_out(tmp_path: Path) -> None:
    """Without comments, nothing of the original's texts is copied; flags are."""
    capture = write_capture(tmp_path / "in.pcapng", rich_capture("<"))
    extracted(capture, tmp_path / "out.pcapng", comments=False, names=False)
    data = (tmp_path / "out.pcapng").read_bytes()
    for text in (b"eth7", b"eth8", b"note ", b"port 9092", b"kafkatap: ", b"section's"):
        assert text not in data
    assert data.count(option("<", 2, struct.pack("<I", 1))) == len(PACKETS) - len(PACKETS) // 2
    assert {kind for kind, _ in blocks_of(data)} == {0x0A0D0D0A, 1, 6}


@pytest.mark.parametrize("nanoseconds", [False, True])
@pytest.mark.parametrize("order", ["<", ">"])
def test_classic_captures(nanoseconds: bool, order: str, tmp_path: Path) -> None:
    """The resolution of times is kept, and so are packets that were cut."""
    packets = [Packet(p.time_ns + 321, p.data[:90], p.wire_length) for p in PACKETS]
    made = pcap_bytes(packets, nanoseconds=nanoseconds, order=order)
    capture = write_capture(tmp_path / "in.pcap", made)
    extracted(capture, tmp_path / "out.pcapng")
    unit = 1 if nanoseconds else 1_000
    assert [(p.time_ns, p.data, p.wire_length) for p in read_capture(tmp_path / "out.pcapng").packets] == [
        (p.time_ns // unit * unit, p.data, p.wire_length) for p in packets
    ]
    ((_, body),) = [entry for entry in blocks_of((tmp_path / "out.pcapng").read_bytes()) if entry[0] == 1]
    assert option("<", 9, b"\x09" if nanoseconds else b"\x06") in body


@pytest.mark.parametrize("order", ["<", ">"])
def test_simple_packet_blocks(order: str, tmp_path: Path) -> None:
    """They have no times, so all packets have the same one; their order stays."""
    capture = write_capture(tmp_path / "in.pcapng", pcapng_bytes(PACKETS, order=order, simple=True))
    extracted(capture, tmp_path / "out.pcapng")
    found = read_capture(tmp_path / "out.pcapng").packets
    assert [(p.data, p.wire_length) for p in found] == [(p.data, p.wire_length) for p in PACKETS]


def test_damaged_blocks(tmp_path: Path) -> None:
    """A capture with changed bytes is copied as far as it can be read, with the same rows."""
    chance, whole, copied = random.Random(3), rich_capture("<"), 0
    for _ in range(30):
        data = bytearray(whole)
        for _ in range(chance.choice((1, 3, 10))):
            data[chance.randrange(len(data))] = chance.randrange(256)
        capture = write_capture(tmp_path / "in.pcapng", bytes(data))
        made = extracted(capture, tmp_path / "out.pcapng")
        assert made.different == 0
        copied += made.packets > 0
    assert copied > 10


@pytest.mark.parametrize("texts", [True, False])
def test_options_of_another_width_are_not_copied(texts: bool, tmp_path: Path) -> None:
    """Without texts, there is also none in place of a number, and no option comes twice."""
    flags = [(2, b"LEAKFLAGSOPT"), (2, b"\1\0\0\0"), (2, b"LEAK")]
    others = [(4, b"LEAKDROPOPT"), (5, b"LEAKID64"), (6, b"LEAKQUEUE"), (4, b"\5\0\0\0\0\0\0\0")]
    data = section("<") + interface(
        "<", 9_000, (9, b"\x09LEAKRES"), (9, b"\x09"), (13, b"LEAKFCSLEN"), (14, b"LEAKOFFSET")
    )
    data += b"".join(enhanced("<", packet, 1, 0, *flags, *others) for packet in PACKETS)
    extracted(write_capture(tmp_path / "in.pcapng", data), tmp_path / "out.pcapng", comments=texts, names=False)
    made = (tmp_path / "out.pcapng").read_bytes()
    assert option("<", 2, b"\1\0\0\0") in made
    assert option("<", 4, b"\5\0\0\0\0\0\0\0") in made
    for text in (b"LEAKF", b"LEAKDROP", b"LEAKQ", b"LEAKRES", b"LEAKOFF"):
        assert text not in made
    assert (b"LEAKID64" in made) == texts
    assert made.count(option("<", 2, b"LEAK")) == (len(PACKETS) if texts else 0)
