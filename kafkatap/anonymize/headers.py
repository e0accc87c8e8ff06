"""What is kept of each kind of header up to TCP (`segments`). Addresses become pseudonyms.

Only known fields are copied. Options with unknown contents, padding and trailers stay zeros or become no-operations. A
kind of header that is not here is rewritten all the same (`packets`), without its addresses.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from kafkatap.dissector.programs.tape import as_array
from kafkatap.reassembly import layers as known
from kafkatap.reassembly import link_types as link
from kafkatap.reassembly.layers import LINK
from kafkatap.reassembly.trail import EXTENSION

from .addresses import Addresses
from .fields import FILLER
from .segments import PLACE, write_segment
from .stream_map import StreamMap

_HOP_BY_HOP, _DESTINATION = 0, 60
#: An option of IPv4.
_NOP = 1
_MAPPED = bytes(10) + b"\xff\xff"


class Header(NamedTuple):
    """A row of a trail."""

    what: int
    at: int
    end: int
    wire: int
    identifier: int = 0
    offset: int = 0
    is_last: int = 0


class PacketCopy:
    """A packet, and the new one of the same length that starts as zeros. `old`: the packet's captured bytes, up to
    `end`; `new`: what is copied of them, and what replaces them."""

    def __init__(self, packet: bytes, number: int, addresses: Addresses) -> None:
        self.old, self.number, self.addresses = packet, number, addresses
        self.new = bytearray(len(packet))
        self.end = len(packet)

    def u16(self, at: int) -> int:
        return int.from_bytes(self.old[at : at + 2], "big")

    def copy(self, at: int, end: int) -> bool:
        """Copy bytes; False if they were not captured."""
        if end > self.end:
            return False
        self.new[at:end] = self.old[at:end]
        return True

    def mac(self, at: int) -> None:
        self.new[at : at + 6] = self.addresses.mac(self.old[at : at + 6])

    def fill(self, at: int, end: int) -> None:
        self.new[at:end] = FILLER * max(end - at, 0)


def internet_checksum(*parts: bytes | bytearray | memoryview) -> int:
    """The Internet checksum (RFC 1071) of bytes; each part but the last has an even number of them."""
    total = 0
    for part in parts:
        odd = len(part) & 1
        # The sum of 16-bit words in ones' complement is the number modulo 65,535.
        total += int.from_bytes(part, "big") << 8 * odd
    folded = total % 0xFFFF
    if not folded and total:
        folded = 0xFFFF
    return folded ^ 0xFFFF


def transport_checksum(protocol: int, source: bytes, target: bytes, segment: bytes | bytearray) -> int:
    """The checksum of a TCP segment or UDP datagram, over its pseudo header, whose own field is 0. Addresses have 4 or
    16 bytes."""
    if len(source) == 4:
        pseudo = source + target + bytes((0, protocol)) + len(segment).to_bytes(2, "big")
    else:
        pseudo = source + target + len(segment).to_bytes(4, "big") + bytes((0, 0, 0, protocol))
    return internet_checksum(pseudo, segment)


class HeaderCopy(PacketCopy):
    """A packet, and a copy to which headers are written one after the other. `old_ends`, `new_ends`: the addresses of
    the last IP header, and their pseudonyms; `ends_at`: where they are."""

    def __init__(self, packet: bytes, number: int, addresses: Addresses) -> None:
        super().__init__(packet, number, addresses)
        self.old_ends = self.new_ends = (b"", b"")
        self.ends_at = 0
        self._checksums: list[Callable[[], None]] = []  # of headers that others follow

    def write_checksums(self) -> None:
        """Compute the checksums of headers with what follows them."""
        for write in reversed(self._checksums):
            write()

    def ethernet(self, header: Header, stop: int) -> None:
        self.mac(header.at)
        self.mac(header.at + 6)
        self.copy(header.at + 12, stop)

    def cooked(self, header: Header, stop: int) -> None:
        """Linux's cooked headers: all but the address of the link layer is copied."""
        at = header.at
        self.copy(at, stop)
        is_first = header.what == LINK + link.SLL
        address = at + 6 if is_first else at + 12
        length = self.u16(at + 4) if is_first else self.old[at + 11]
        self.new[address : address + 8] = bytes(8)
        if length == 6:
            self.mac(address)

    def ipv4(self, header: Header, stop: int) -> None:
        at = header.at
        self.copy(at, at + 10)
        self._write_ends(at + 12, 4)
        self.new[at + 20 : stop] = bytes((_NOP,)) * (stop - at - 20)
        self.new[at + 10 : at + 12] = internet_checksum(self.new[at:stop]).to_bytes(2, "big")

    def ipv6(self, header: Header, stop: int) -> None:
        self.copy(header.at, header.at + 8)
        self._write_ends(header.at + 8, 16)

    def _write_ends(self, at: int, size: int) -> None:
        self.ends_at, self.old_ends = at, (self.old[at : at + size], self.old[at + size : at + 2 * size])
        source, target = map(self.addresses.packed, self.old_ends)
        self.new_ends = source, target
        self.new[at : at + 2 * size] = source + target

    def extension(self, protocol: int, at: int, stop: int) -> None:
        """An extension header without its contents: options become one padding."""
        self.copy(at, stop if protocol == known.FRAGMENT_HEADER else at + 2)
        if protocol in (_HOP_BY_HOP, _DESTINATION):
            self.new[at + 2 : at + 4] = bytes((1, min(stop - at - 4, 255)))

    def udp(self, header: Header, stop: int) -> None:
        at, end = header.at, header.end
        self.copy(at, at + 6)
        ends = self.new_ends

        def write() -> None:
            checksum = transport_checksum(known.UDP_PROTOCOL, *ends, self.new[at:end]) or 0xFFFF
            self.new[at + 6 : at + 8] = checksum.to_bytes(2, "big")

        if self.u16(at + 6) and end == header.wire:
            self._checksums.append(write)

    def gre(self, header: Header, stop: int) -> None:
        at, end = header.at, header.end
        self.copy(at, stop)

        def write() -> None:
            self.new[at + 4 : at + 6] = internet_checksum(self.new[at:end]).to_bytes(2, "big")

        if self.u16(at) & 0x8000:
            self.new[at + 4 : at + 8] = bytes(4)
            self._checksums.append(write)

    def vxlan(self, header: Header, stop: int) -> None:
        at = header.at
        self.copy(at, at + 1)
        self.copy(at + 4, at + 7)
        if self.old[at] & 4:
            self.copy(at + 3, at + 4)


Writer = Callable[[HeaderCopy, Header, int], None]


def _first(size: int | None = None) -> Writer:
    """Copies the first bytes of a header. None: all of it."""

    def write(copy: HeaderCopy, header: Header, stop: int) -> None:
        copy.copy(header.at, stop if size is None else min(header.at + size, stop))

    return write


#: Writes a header of a kind to a copy, up to the place where the next one begins.
WRITERS: dict[int, Writer] = {
    known.IPV4: HeaderCopy.ipv4,
    known.IPV6: HeaderCopy.ipv6,
    known.UDP: HeaderCopy.udp,
    known.GRE: HeaderCopy.gre,
    known.BRIDGED: HeaderCopy.ethernet,
    LINK + link.ETHERNET: HeaderCopy.ethernet,
    LINK + link.SLL: HeaderCopy.cooked,
    LINK + link.SLL2: HeaderCopy.cooked,
    known.VXLAN: HeaderCopy.vxlan,
    known.VXLAN_GPE: HeaderCopy.vxlan,
    known.GENEVE: _first(8),
    known.ERSPAN_3: _first(12),
    known.NFLOG_FIELD: _first(4),
    LINK + link.NFLOG: _first(4),
    LINK + link.PPI: _first(8),
    LINK + link.PKTAP: _first(12),
    **dict.fromkeys(
        (
            known.VLAN, known.QINQ, known.OLD_QINQ, known.MPLS, known.MPLS_MULTICAST, known.PPPOE, known.PPP,
            known.PPP_ETHERTYPE, known.LLC, known.ERSPAN_2, known.ETHERIP, LINK + link.NULL, LINK + link.LOOP,
            LINK + link.PPP_WITH_DIRECTION, LINK + link.PPP_PPPD, LINK + link.CISCO_HDLC,
        ), _first()
    ),
}  # fmt: skip
#: The protocols of IPv6's extension headers, by what a trail calls them.
EXTENSIONS = {EXTENSION + protocol: protocol for protocol in known.EXTENSION_HEADERS}


def copy_segment(packet: HeaderCopy, streams: StreamMap, header: Header) -> None:
    """Copy a TCP segment behind the last IP header."""
    place = np.zeros(1, PLACE)
    place["tcp"], place["end"], place["wire"] = header.at, header.end, header.wire
    place["stream"] = stream_of(streams, packet.old_ends, packet.old[header.at : header.at + 4])
    old, new = as_array(packet.old), np.frombuffer(packet.new, np.uint8)
    write_segment(old, new, place, packet.ends_at, len(packet.old_ends[0]), packet.number, streams.tables)


def stream_of(streams: StreamMap, ends: tuple[bytes, bytes], ports: bytes) -> int:
    """The row of the first stream between two addresses and their ports, -1 if there is none."""
    sender, receiver = (
        (_mapped(end), int.from_bytes(ports[at : at + 2], "big")) for end, at in zip(ends, (0, 2), strict=True)
    )
    return streams.first_of(sender, receiver)


def _mapped(address: bytes) -> bytes:
    return address if len(address) == 16 else _MAPPED + address
