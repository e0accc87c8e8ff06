"""Capture files in every form, read and written with plain struct. Nothing here uses the product.

A capture is a list of `Packet`s. `read_capture` reads pcap and pcapng, plain, `.gz` or `.zst`. `pcap_bytes` and
`pcapng_bytes` write every variant that a reader may meet. `write_capture` writes bytes to a file and compresses them by
the file's suffix. `PcapRecords` cuts large captures by packet without parsing them.

`tests.support.tcp` crafts packets.
"""

from __future__ import annotations

import gzip
import random
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

#: Numbers of link types in files (the LINKTYPE_ registry of tcpdump.org).
NULL, ETHERNET, RAW, LOOP, SLL, IPV4, IPV6, SLL2 = 0, 1, 101, 108, 113, 228, 229, 276

_PCAP_MAGIC = {
    b"\xd4\xc3\xb2\xa1": ("<", 1000),
    b"\xa1\xb2\xc3\xd4": (">", 1000),
    b"\x4d\x3c\xb2\xa1": ("<", 1),
    b"\xa1\xb2\x3c\x4d": (">", 1),
}


@dataclass(frozen=True, slots=True)
class Packet:
    """One packet: time in ns since the epoch, the captured bytes, the length on the wire, its interface's number."""

    time_ns: int
    data: bytes
    original_length: int = -1  # -1: equal to the captured length
    interface: int = 0

    @property
    def wire_length(self) -> int:
        return len(self.data) if self.original_length < 0 else self.original_length


@dataclass(frozen=True, slots=True)
class Interface:
    """A pcapng interface. `tsresol` is the option's byte: 6 is µs, 9 is ns, 0x80 | n is 2**-n s; None: not written."""

    link_type: int = ETHERNET
    tsresol: int | None = None
    tsoffset: int = 0  # seconds to add to every time stamp
    snap_length: int = 262144
    name: str = ""
    drops: int | None = None  # written in an Interface Statistics Block at the end

    @property
    def units_per_second(self) -> int:
        resolution = 6 if self.tsresol is None else self.tsresol
        return int(2 ** (resolution & 0x7F) if resolution & 0x80 else 10**resolution)


@dataclass(slots=True)
class Capture:
    """The result of `read_capture`. `link_types` has one entry per interface (one for a classic pcap)."""

    link_types: list[int] = field(default_factory=list)
    packets: list[Packet] = field(default_factory=list)
    drops: int = 0


# ---------------------------------------------------------------- reading


def read_bytes(path: str | Path) -> bytes:
    """A file's bytes, decompressed where its name ends in .gz or .zst."""
    data = Path(path).read_bytes()
    if str(path).endswith(".gz"):
        return gzip.decompress(data)
    if str(path).endswith(".zst"):
        import zstandard

        return zstandard.ZstdDecompressor().decompressobj().decompress(data)
    return data


def unpacked(samples: Path, name: str, folder: Path) -> Path:
    """A recording as a plain file in a folder."""
    path = folder / f"{name}.pcap"
    path.write_bytes(read_bytes(samples / f"{name}.pcap.zst"))
    return path


def read_capture(source: str | Path | bytes) -> Capture:
    """Read a pcap or pcapng file, or the bytes of one, without a record that its end cuts off."""
    data = source if isinstance(source, bytes) else read_bytes(source)
    return _read_pcap(data) if data[:4] in _PCAP_MAGIC else _read_pcapng(data)


def _read_pcap(data: bytes) -> Capture:
    order, nanoseconds = _PCAP_MAGIC[data[:4]]
    link_type = struct.unpack_from(order + "I", data, 20)[0] & 0x0FFFFFFF
    record = struct.Struct(order + "IIII")
    capture = Capture([link_type])
    at = 24
    while at + 16 <= len(data):
        seconds, fraction, captured, original = record.unpack_from(data, at)
        at += 16
        if at + captured > len(data):
            break
        time_ns = seconds * 10**9 + fraction * nanoseconds
        capture.packets.append(Packet(time_ns, data[at : at + captured], original))
        at += captured
    return capture


def _read_pcapng(data: bytes) -> Capture:
    capture = Capture()
    interfaces: list[Interface] = []
    first = 0  # the number of the section's first interface
    order = "<"
    at = 0
    while at + 12 <= len(data):
        if data[at : at + 4] == b"\x0a\x0d\x0d\x0a":
            order = "<" if data[at + 8 : at + 12] == b"\x4d\x3c\x2b\x1a" else ">"
            first = len(interfaces)
        kind, length = struct.unpack_from(order + "II", data, at)
        if at + length > len(data):
            break
        body = data[at + 8 : at + length - 4]
        if kind == 1:
            link_type, snap_length = struct.unpack_from(order + "HxxI", body)
            options = dict(_options(body[8:], order))
            tsresol = options[9][0] if 9 in options else None
            tsoffset = struct.unpack(order + "q", options[14])[0] if 14 in options else 0
            interfaces.append(Interface(link_type, tsresol, tsoffset, snap_length))
            capture.link_types.append(link_type)
        elif kind == 6:
            number, high, low, captured, original = struct.unpack_from(order + "IIIII", body)
            interface = interfaces[first + number]
            time_ns = interface.tsoffset * 10**9 + ((high << 32) | low) * 10**9 // interface.units_per_second
            capture.packets.append(Packet(time_ns, body[20 : 20 + captured], original, first + number))
        elif kind == 3:
            (original,) = struct.unpack_from(order + "I", body)
            captured = min(original, interfaces[first].snap_length or original)
            capture.packets.append(Packet(0, body[4 : 4 + captured], original, first))
        elif kind == 5:
            options = dict(_options(body[12:], order))
            capture.drops += struct.unpack(order + "Q", options[5])[0] if 5 in options else 0
        at += length
    return capture


def _options(data: bytes, order: str) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + 4 <= len(data):
        code, length = struct.unpack_from(order + "HH", data, at)
        if code == 0:
            return
        yield code, data[at + 4 : at + 4 + length]
        at += 4 + (length + 3) // 4 * 4


# ---------------------------------------------------------------- writing


def pcap_bytes(
    packets: Iterable[Packet],
    link_type: int = ETHERNET,
    *,
    order: str = "<",
    nanoseconds: bool = False,
    modified: bool = False,
    snap_length: int = 262144,
) -> bytes:
    """A classic pcap. `order`: "<" or ">". Times are rounded down to µs, or in ns. `modified`: the variant with an
    interface in each record."""
    unit = 1 if nanoseconds else 1000
    magic = 0xA1B23C4D if nanoseconds else 0xA1B2CD34 if modified else 0xA1B2C3D4
    parts = [struct.pack(order + "IHHiIII", magic, 2, 4, 0, 0, snap_length, link_type)]
    record = struct.Struct(order + "IIII")
    for p in packets:
        seconds, rest = divmod(p.time_ns, 10**9)
        data = p.data[:snap_length]
        parts.append(record.pack(seconds, rest // unit, len(data), p.wire_length))
        parts += (struct.pack(order + "IHBB", 2, 0x0800, 0, 0), data) if modified else (data,)
    return b"".join(parts)


def pcapng_bytes(
    packets: Iterable[Packet],
    interfaces: Sequence[Interface] = (Interface(),),
    *,
    order: str = "<",
    simple: bool = False,
    unknown_section_length: bool = True,
) -> bytes:
    """A pcapng of one section, with an Interface Description for each interface and one block for each packet.

    `simple` writes Simple Packet Blocks: these hold no time and belong to the first interface.
    Interfaces with `drops` have a statistics block at the end.
    """
    blocks: list[bytes] = []
    for i in interfaces:
        options = []
        if i.name:
            options.append((2, i.name.encode()))
        if i.tsresol is not None:
            options.append((9, bytes([i.tsresol])))
        if i.tsoffset:
            options.append((14, struct.pack(order + "q", i.tsoffset)))
        body = struct.pack(order + "HHI", i.link_type, 0, i.snap_length) + _option_bytes(options, order)
        blocks.append(block(1, body, order))
    last = 0
    for p in packets:
        i = interfaces[p.interface]
        data = p.data[: i.snap_length] if i.snap_length else p.data
        if simple:
            blocks.append(block(3, struct.pack(order + "I", p.wire_length) + data, order))
            continue
        units = (p.time_ns - i.tsoffset * 10**9) * i.units_per_second // 10**9
        head = struct.pack(order + "IIIII", p.interface, units >> 32, units & 0xFFFFFFFF, len(data), p.wire_length)
        blocks.append(block(6, head + data, order))
        last = units
    for number, i in enumerate(interfaces):
        if i.drops is not None:
            head = struct.pack(order + "III", number, last >> 32, last & 0xFFFFFFFF)
            dropped = [(5, struct.pack(order + "Q", i.drops))]
            blocks.append(block(5, head + _option_bytes(dropped, order), order))
    rest = b"".join(blocks)
    length = -1 if unknown_section_length else len(rest)
    return block(0x0A0D0D0A, struct.pack(order + "IHHq", 0x1A2B3C4D, 1, 0, length), order) + rest


def block(kind: int, body: bytes, order: str = "<") -> bytes:
    """A pcapng block: type, length, body padded to four bytes, length."""
    length = 12 + (len(body) + 3) // 4 * 4
    return struct.pack(order + "II", kind, length) + body.ljust(length - 12, b"\0") + struct.pack(order + "I", length)


def _option_bytes(options: Sequence[tuple[int, bytes]], order: str) -> bytes:
    if not options:
        return b""
    parts = [struct.pack(order + "HH", c, len(v)) + v.ljust((len(v) + 3) // 4 * 4, b"\0") for c, v in options]
    return b"".join(parts) + b"\0\0\0\0"


def write_capture(path: str | Path, data: bytes) -> Path:
    """Write a capture's bytes, compressed where the name ends in `.gz` or `.zst`."""
    if str(path).endswith(".gz"):
        data = gzip.compress(data, 6, mtime=0)
    elif str(path).endswith(".zst"):
        import zstandard

        data = zstandard.ZstdCompressor(level=9, write_checksum=True).compress(data)
    Path(path).write_bytes(data)
    return Path(path)


def every_form(packets: Sequence[Packet], link_type: int = ETHERNET) -> dict[str, bytes]:
    """The same packets (times in whole µs) in every form that keeps them equal: name to bytes."""
    forms = {}
    for order, word in (("<", "little"), (">", "big")):
        forms[f"pcap-us-{word}.pcap"] = pcap_bytes(packets, link_type, order=order)
        forms[f"pcap-ns-{word}.pcap"] = pcap_bytes(packets, link_type, order=order, nanoseconds=True)
        plain = [Interface(link_type)]
        forms[f"ng-default-{word}.pcapng"] = pcapng_bytes(packets, plain, order=order)
        forms[f"ng-ns-{word}.pcapng"] = pcapng_bytes(packets, [Interface(link_type, 9, name="eth0")], order=order)
        # Units of 2**-n s cannot hold every µs exactly: only 10**-n and an offset keep all times.
        forms[f"ng-offset-{word}.pcapng"] = pcapng_bytes(packets, [Interface(link_type, 9, 1_000_000)], order=order)
        two = [Interface(link_type, 6), Interface(link_type, 9)]
        mixed = [Packet(p.time_ns, p.data, p.original_length, n % 2) for n, p in enumerate(packets)]
        forms[f"ng-two-interfaces-{word}.pcapng"] = pcapng_bytes(mixed, two, order=order)
    return forms


# ---------------------------------------------------------------- large captures, cut by packet


class PcapRecords:
    """A classic pcap as its header and its unparsed records, to cut large files quickly."""

    def __init__(self, source: str | Path | bytes) -> None:
        self.data = source if isinstance(source, bytes) else read_bytes(source)
        order, _ = _PCAP_MAGIC[self.data[:4]]
        length = struct.Struct(order + "I")
        self.header = self.data[:24]
        self.starts: list[int] = []  #: where each record starts; the last item is where the last record ends
        at = 24
        while at + 16 <= len(self.data):
            end = at + 16 + length.unpack_from(self.data, at + 8)[0]
            if end > len(self.data):
                break
            self.starts.append(at)
            at = end
        self.starts.append(at)

    def __len__(self) -> int:
        return len(self.starts) - 1

    def record(self, number: int) -> bytes:
        """Record `number`, from 0, with its header of 16 bytes."""
        return self.data[self.starts[number] : self.starts[number + 1]]

    def keep(self, numbers: Iterable[int]) -> bytes:
        """A capture of these records, in this order."""
        return self.header + b"".join(map(self.record, numbers))

    def slice(self, first: int, last: int) -> bytes:
        """A capture of the records from `first` up to, not including, `last`."""
        return self.header + self.data[self.starts[first] : self.starts[last]]

    def drop(self, fraction: float, *, burst: int = 1, seed: int = 1) -> tuple[bytes, list[int]]:
        """A capture without about `fraction` of its packets, lost in runs of `burst`; and the numbers (from 0) lost."""
        chance = random.Random(seed)
        lost: set[int] = set()
        while len(lost) < fraction * len(self):
            first = chance.randrange(len(self))
            lost.update(range(first, min(first + burst, len(self))))
        return self.keep(n for n in range(len(self)) if n not in lost), sorted(lost)
