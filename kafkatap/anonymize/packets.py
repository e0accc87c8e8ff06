"""Rewrites packets: link layer, tunnels and IP headers; `tcp_segments` has TCP and its payload.

A new packet starts as zeros. Of each layer only known fields are copied; addresses become pseudonyms. Options with
unknown contents, padding and trailers stay zeros or become no-operations. The innermost TCP payload is filler under the
bytes of the stream map. All checksums are computed anew. A packet that does not lead to TCP is left out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from kafkatap.reassembly import layers as known
from kafkatap.reassembly import link_types as link

from .addresses import Addresses
from .checksums import internet_checksum, transport_checksum
from .fields import FILLER
from .fragments import Fragment, Fragments
from .packet_copy import PacketCopy
from .stream_map import StreamMap
from .tcp_segments import Span, copy_segment

_UDP_HEADER, _IPV4_HEADER, _IPV6_HEADER = 8, 20, 40
_NOP = 1
_DEEPEST = 40
_TYPED = 0x0600


class PacketRewriter:
    """Rewrites the packets of a capture whose streams are in `streams`. If it has IP fragments, `collect` has
    to see all packets (`scan`)."""

    def __init__(self, addresses: Addresses, streams: StreamMap) -> None:
        self.addresses = addresses
        self.streams = streams
        self.fragments = Fragments()
        #: Calls `collect` for all packets; it is called at the first fragment.
        self.scan: Callable[[], None] | None = None

    def collect(self, packet: bytes, link_type: int, number: int) -> None:
        """See a packet in the scan for fragments."""
        self.fragments.is_collecting = True
        self.rewrite(packet, link_type, number)
        self.fragments.is_collecting = False

    def rewrite(self, packet: bytes, link_type: int, number: int) -> bytes | None:
        """A packet's captured bytes in as many bytes, or None for one that does not lead to TCP."""
        layers = _Layers(self, packet, number)
        return bytes(layers.new) if layers.link(link_type) else None

    def datagram(self, key: tuple[bytes, bytes, int, bytes], payload: bytes, number: int) -> bytes:
        """The new payload of a datagram that came in fragments; filler if it does not lead to TCP."""
        source, target, protocol, _ = key
        if len(source) == 4:
            head = b"\x45\0" + min(20 + len(payload), 0xFFFF).to_bytes(2, "big") + bytes(4)
            head += bytes((64, protocol, 0, 0)) + source + target
        else:
            head = b"\x60\0\0\0" + min(len(payload), 0xFFFF).to_bytes(2, "big") + bytes((protocol, 64))
            head += source + target
        new = self.rewrite(head + payload, link.RAW, number)
        return FILLER * len(payload) if new is None else new[len(head) :]


class _Layers(PacketCopy):
    """Copies the layers of one packet. Each method returns whether the packet leads to TCP."""

    def __init__(self, owner: PacketRewriter, packet: bytes, number: int) -> None:
        super().__init__(packet, number, owner.addresses)
        self.owner = owner
        self.depth = 0

    def link(self, link_type: int) -> bool:
        old = self.old
        if link_type in (link.PPI, link.PKTAP):
            little = [int.from_bytes(old[at : at + 4], "little") for at in (0, 4, 8)]
            length = little[0] if link_type == link.PKTAP else int.from_bytes(old[2:4], "little")
            inner = little[2] if link_type == link.PKTAP else little[1]
            self.copy(0, min(12 if link_type == link.PKTAP else 8, self.end))
            return 8 <= length <= self.end and self.simple_link(inner, length)
        if link_type == link.NFLOG:
            return self.nflog()
        return self.simple_link(link_type, 0)

    def nflog(self) -> bool:
        """A log of netfilter: only the lengths and types of its fields are copied, and the packet in field 9."""
        self.copy(0, min(4, self.end))
        at = 4
        while self.copy(at, at + 4):
            order: Literal["little", "big"] = "big" if not self.old[at + 2] and self.old[at + 3] else "little"
            length = int.from_bytes(self.old[at : at + 2], order)
            if int.from_bytes(self.old[at + 2 : at + 4], order) & 0x3FFF == 9:
                return self.ip(at + 4, self.end)
            if length < 4:
                return False
            at += length + 3 & ~3
        return False

    def simple_link(self, kind: int, at: int) -> bool:
        heads: dict[int, int] = {link.NULL: 4, link.LOOP: 4, link.PPP_WITH_DIRECTION: 1, link.PPP_PPPD: 2}
        head = heads.get(kind, 0)
        if not self.copy(at, at + head):
            return False
        at += head
        if kind == link.ETHERNET:
            return self.ethernet(at)
        if kind == link.SLL:
            return self.cooked(at, 16, at + 14, at + 2, at + 4, at + 6)
        if kind == link.SLL2:
            return self.cooked(at, 20, at, at + 8, at + 11, at + 12)
        if kind in (link.RAW, link.RAW_BSD, link.RAW_OPENBSD, link.RAW_IPV4, link.RAW_IPV6, link.NULL, link.LOOP):
            return self.ip(at, self.end)
        if kind in (link.PPP, link.PPP_SERIAL, link.PPP_WITH_DIRECTION, link.PPP_PPPD):
            return self.layer(known.PPP, at, self.end)
        if kind == link.CISCO_HDLC:
            return self.copy(at, at + 4) and self.layer(self.u16(at + 2), at + 4, self.end)
        named = {link.PPP_ETHER: known.PPPOE, link.ATM: known.LLC, link.MPLS_LABELS: known.MPLS}
        return kind in named and self.layer(named[kind], at, self.end)

    def ethernet(self, at: int) -> bool:
        if at + 14 > self.end:
            return False
        self.mac(at)
        self.mac(at + 6)
        self.copy(at + 12, at + 14)
        kind = self.u16(at + 12)
        return self.layer(kind if kind >= _TYPED else known.LLC, at + 14, self.end)

    def cooked(self, at: int, size: int, protocol: int, hardware: int, width: int, address: int) -> bool:
        """Linux's cooked headers: all but the address of the link layer is copied."""
        if not self.copy(at, at + size):
            return False
        self.new[address : address + 8] = bytes(8)
        length = self.u16(width) if size == 16 else self.old[width]
        if length == 6:
            self.mac(address)
        kind = self.u16(protocol)
        if kind == 4:
            return self.layer(known.LLC, at + size, self.end)
        if kind == 0:
            return self.ip(at + size, self.end)
        return kind >= _TYPED and self.layer(kind, at + size, self.end)

    def layer(self, what: int, at: int, end: int) -> bool:
        self.depth += 1
        if self.depth > _DEEPEST:
            return False
        reader = _READERS.get(what)
        return reader is not None and reader(self, at, end)

    def vlan(self, at: int, end: int) -> bool:
        kind = self.u16(at + 2)
        return self.copy(at, at + 4) and self.layer(kind if kind >= _TYPED else known.LLC, at + 4, end)

    def bridged(self, at: int, end: int) -> bool:
        return self.ethernet(at)

    def mpls(self, at: int, end: int) -> bool:
        for _ in range(16):
            if not self.copy(at, at + 4):
                return False
            at += 4
            if self.old[at - 2] & 1:
                break
        else:
            return False
        if at >= end:
            return False
        first = self.old[at] >> 4
        if first == 0 and (self.is_ethernet(at + 4) or not self.is_ethernet(at)):
            return self.copy(at, at + 4) and self.ethernet(at + 4)
        if first in (4, 6):
            return self.ip(at, end)
        return self.is_ethernet(at) and self.ethernet(at)

    def is_ethernet(self, at: int) -> bool:
        kinds = (known.IPV4, known.IPV6, known.VLAN, known.QINQ, known.MPLS, known.PPPOE)
        return at + 14 <= self.end and self.u16(at + 12) in kinds

    def pppoe(self, at: int, end: int) -> bool:
        return self.u16(at) == 0x1100 and self.copy(at, at + 6) and self.ppp(at + 6, end)

    def ppp(self, at: int, end: int) -> bool:
        if self.u16(at) == 0xFF03:
            if not self.copy(at, at + 2):
                return False
            at += 2
        if at >= end:
            return False
        width = 1 if self.old[at] & 1 else 2
        protocol = int.from_bytes(self.old[at : at + width], "big")
        if not self.copy(at, at + width):
            return False
        if protocol in (0x21, 0x57):
            return self.ip(at + width, end)
        return protocol in (0x281, 0x283) and self.mpls(at + width, end)

    def llc(self, at: int, end: int) -> bool:
        head = int.from_bytes(self.old[at : at + 3], "big")
        if head == 0x060603:
            return self.copy(at, at + 3) and self.ip(at + 3, end)
        return head == 0xAAAA03 and self.copy(at, at + 8) and self.layer(self.u16(at + 6), at + 8, end)

    def ip(self, at: int, end: int) -> bool:
        self.depth += 1
        if at >= end or self.depth > _DEEPEST:
            return False
        version = self.old[at] >> 4
        return (version == 4 and self.ipv4(at, end)) or (version == 6 and self.ipv6(at, end))

    def ipv4(self, at: int, end: int) -> bool:
        header = (self.old[at] & 15) * 4
        if at + header > end or header < _IPV4_HEADER:
            return False
        length = self.u16(at + 2)
        self.copy(at, at + 10)
        source, target = (self.owner.addresses.packed(self.old[k : k + 4]) for k in (at + 12, at + 16))
        self.new[at + 12 : at + 20] = source + target
        self.new[at + 20 : at + header] = bytes((_NOP,)) * (header - 20)
        self.new[at + 10 : at + 12] = internet_checksum(self.new[at : at + header]).to_bytes(2, "big")
        wire = at + length if length else max(end, at + header)
        if wire < at + header:
            return False
        olds = self.old[at + 12 : at + 16], self.old[at + 16 : at + 20]
        flags = self.u16(at + 6)
        if flags & 0x3FFF:
            key = (*olds, self.old[at + 9], self.old[at + 4 : at + 6])
            return self.fragment(key, (flags & 0x1FFF) * 8, not flags & 0x2000, at + header, min(end, wire))
        return self.ip_payload(self.old[at + 9], at + header, min(end, wire), wire, olds, (source, target))

    def ipv6(self, at: int, end: int) -> bool:
        if at + _IPV6_HEADER > end:
            return False
        length = self.u16(at + 4)
        self.copy(at, at + 8)
        olds = self.old[at + 8 : at + 24], self.old[at + 24 : at + 40]
        source, target = map(self.owner.addresses.packed, olds)
        self.new[at + 8 : at + 40] = source + target
        protocol, place = self.old[at + 6], at + _IPV6_HEADER
        wire = place + length if length else end
        for _ in range(16):
            if protocol not in known.EXTENSION_HEADERS:
                break
            if place + 8 > end:
                return False
            size = 8 if protocol == known.FRAGMENT_HEADER else (self.old[place + 1] + 1) * 8
            if protocol == 51:
                size = (self.old[place + 1] + 2) * 4
            if protocol == known.FRAGMENT_HEADER:
                self.copy(place, place + 8)
                flags = self.u16(place + 2)
                if flags & 0xFFF9:
                    key = (*olds, self.old[place], self.old[place + 4 : place + 8])
                    return self.fragment(key, flags & 0xFFF8, not flags & 1, place + 8, min(end, wire))
            else:
                self.extension(protocol, place, min(place + size, end))
            protocol, place = self.old[place], place + size
        if place > min(end, wire):
            return False
        return self.ip_payload(protocol, place, min(end, wire), wire, olds, (source, target))

    def fragment(self, key: tuple[bytes, bytes, int, bytes], offset: int, is_last: bool, at: int, end: int) -> bool:
        """The payload of an IP fragment: a part of its rewritten datagram, or filler."""
        fragments = self.owner.fragments
        self.fill(at, end)
        if not fragments.is_collecting:
            scan, self.owner.scan = self.owner.scan, None
            if scan is not None:
                scan()
            payload = fragments.new.get(self.number, b"")[: max(end - at, 0)]
            self.new[at : at + len(payload)] = payload
            return True
        whole = fragments.add(Fragment(key, self.number, offset, is_last, self.old[at:end]))
        if whole is not None:
            fragments.keep(whole, self.owner.datagram(key, b"".join(other.payload for other in whole), self.number))
        return True

    def extension(self, protocol: int, at: int, end: int) -> None:
        """An extension header without its contents: options become one padding."""
        self.copy(at, at + 2)
        if protocol in (0, 60):
            self.new[at + 2 : at + 4] = bytes((1, min(end - at - 4, 255)))

    def ip_payload(
        self, protocol: int, at: int, end: int, wire: int, olds: tuple[bytes, bytes], ends: tuple[bytes, bytes]
    ) -> bool:
        """`olds`, `ends`: the addresses of the original and their pseudonyms."""
        if protocol == known.TCP_PROTOCOL:
            copy_segment(self, self.owner.streams, Span(at, end, wire), olds, ends)
            return True
        if protocol == known.UDP_PROTOCOL:
            return self.udp(at, end, wire, ends)
        if protocol == 47:
            return self.gre(at, end)
        if protocol in (4, 41):
            return self.ip(at, end)
        if protocol == 97:
            return self.u16(at) == 0x3000 and self.copy(at, at + 2) and self.ethernet(at + 2)
        if protocol == 143:
            return self.ethernet(at)
        return protocol == 137 and self.mpls(at, end)

    def udp(self, at: int, end: int, wire: int, ends: tuple[bytes, bytes]) -> bool:
        if at + _UDP_HEADER > end:
            return False
        self.copy(at, at + 6)
        port, inner = self.u16(at + 2), at + _UDP_HEADER
        if port in (known.VXLAN_PORT, known.VXLAN_LINUX_PORT, known.VXLAN_GPE_PORT):
            found = self.vxlan(inner, end)
        elif port == known.GENEVE_PORT:
            found = self.geneve(inner, end)
        elif port == known.GRE_PORT:
            found = self.gre(inner, end)
        else:
            found = port == known.MPLS_PORT and self.mpls(inner, end)
        if found and self.u16(at + 6) and end == wire:
            checksum = transport_checksum(known.UDP_PROTOCOL, *ends, self.new[at:end]) or 0xFFFF
            self.new[at + 6 : at + 8] = checksum.to_bytes(2, "big")
        return found

    def vxlan(self, at: int, end: int) -> bool:
        if at + 8 > end:
            return False
        flags, following = self.old[at], self.old[at + 3]
        self.copy(at, at + 1)
        self.copy(at + 4, at + 7)
        if not flags & 4 or following == 3:
            self.new[at + 3] = following if flags & 4 else 0
            return self.ethernet(at + 8)
        self.new[at + 3] = following
        if following in (1, 2):
            return self.ip(at + 8, end)
        return following == 5 and self.mpls(at + 8, end)

    def geneve(self, at: int, end: int) -> bool:
        options = 4 * (self.old[at] & 63) if at < end else 0
        return self.copy(at, at + 8) and self.layer(self.u16(at + 2), at + 8 + options, end)

    def gre(self, at: int, end: int) -> bool:
        if at + 4 > end:
            return False
        flags, kind, start = self.u16(at), self.u16(at + 2), at
        if flags & 0x4007:
            return False
        has_checksum, has_sequence = flags & 0x8000, flags & 0x1000
        following = at + 4 + (4 if has_checksum else 0) + (4 if flags & 0x2000 else 0) + (4 if has_sequence else 0)
        if not self.copy(at, following):
            return False
        if has_checksum:
            self.new[at + 4 : at + 8] = bytes(4)
        at = following
        if kind == known.ERSPAN_2:
            if has_sequence and at < end and self.old[at] >> 4 == 1:
                self.copy(at, at + 8)
                at += 8
            found = self.ethernet(at)
        elif kind == known.ERSPAN_3:
            if not self.copy(at, at + 12):
                return False
            last = self.u16(at + 10)
            at += 20 if last & 1 else 12
            found = self.ip(at, end) if last >> 10 & 31 == 2 else self.ethernet(at)
        else:
            found = self.layer(kind, at, end)
        if has_checksum:
            self.new[start + 4 : start + 6] = internet_checksum(self.new[start:end]).to_bytes(2, "big")
        return found


_Reader = Callable[[_Layers, int, int], bool]
_READERS: dict[int, _Reader] = {
    known.IPV4: _Layers.ip,
    known.IPV6: _Layers.ip,
    known.IP: _Layers.ip,
    known.VLAN: _Layers.vlan,
    known.QINQ: _Layers.vlan,
    known.OLD_QINQ: _Layers.vlan,
    known.BRIDGED: _Layers.bridged,
    known.MPLS: _Layers.mpls,
    known.MPLS_MULTICAST: _Layers.mpls,
    known.PPPOE: _Layers.pppoe,
    known.PPP: _Layers.ppp,
    known.PPP_ETHERTYPE: _Layers.ppp,
    known.LLC: _Layers.llc,
}
