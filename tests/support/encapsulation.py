"""The same capture inside of tunnels and other layers, or in IP fragments.

`encapsulate(packets, kind)` puts every packet of a capture of Ethernet packets into the layers of a kind (`KINDS`).
`fragment(packets, mtu, order)` cuts IP packets into fragments. Both keep times, order and what the snap length cut off,
so the exchanges of the result are those of the plain capture. Packets that a kind cannot carry (ARP in an IP tunnel)
stay as they are, if the link type does.

Layers are written with plain struct, from the innermost to the outermost. A test checks
them with scapy.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from tests.support.captures import ETHERNET, SLL, SLL2, Packet

_ADDRESSES = bytes.fromhex("02000000000a02000000000b")
_OUTER_V4 = bytes((192, 0, 2, 1, 192, 0, 2, 2))
_OUTER_V6 = bytes.fromhex("20010db8000000000000000000000001" + "20010db8000000000000000000000002")

#: EtherTypes, also as GRE has them, of what lies in a layer.
_ETHERTYPES = {
    "ipv4": 0x0800, "ipv6": 0x86DD, "ethernet": 0x6558, "mpls": 0x8847, "vlan": 0x8100, "qinq": 0x88A8, "pppoe": 0x8864,
    "erspan": 0x88BE, "erspan3": 0x22EB,
}  # fmt: skip
_IP_PROTOCOLS = {"ipv4": 4, "ipv6": 41, "udp": 17, "gre": 47, "mpls": 137, "ethernet": 143, "etherip": 97}
_PPP_PROTOCOLS = {"ipv4": 0x21, "ipv6": 0x57, "mpls": 0x281}


class Layer(NamedTuple):
    """What was built so far: what it is, its captured bytes, and its length on the wire."""

    what: str
    data: bytes
    wire: int


def _add(what: str, header: bytes, inner: Layer) -> Layer:
    return Layer(what, header + inner.data, len(header) + inner.wire)


def _length(wire: int) -> int:
    """A length field: 0 for what is longer than 16 bits can say (segmentation offload)."""
    return wire if wire < 65_536 else 0


def _ipv4(inner: Layer) -> Layer:
    head = (
        struct.pack("!BBHHHBBH", 0x45, 0, _length(20 + inner.wire), 1, 0, 64, _IP_PROTOCOLS[inner.what], 0) + _OUTER_V4
    )
    return _add("ipv4", head, inner)


def _ipv6(inner: Layer) -> Layer:
    return _add(
        "ipv6", struct.pack("!IHBB", 6 << 28, _length(inner.wire), _IP_PROTOCOLS[inner.what], 64) + _OUTER_V6, inner
    )


def _ipv6_extended(inner: Layer) -> Layer:
    """Hop-by-hop options, destination options, a routing header, another without length, an authentication header."""
    chain = bytes((60, 0, 1, 4, 0, 0, 0, 0)) + bytes((43, 1)) + bytes(14) + bytes((51, 0, 0, 0)) + bytes(4)
    chain += bytes((_IP_PROTOCOLS[inner.what], 4)) + bytes(22)
    behind = Layer(inner.what, chain + inner.data, len(chain) + inner.wire)
    return _add("ipv6", struct.pack("!IHBB", 6 << 28, _length(behind.wire), 0, 64) + _OUTER_V6, behind)


def _udp(port: int) -> Callable[[Layer], Layer]:
    return lambda inner: _add("udp", struct.pack("!HHHH", 50_123, port, _length(8 + inner.wire), 0), inner)


def _ethernet(inner: Layer) -> Layer:
    return _add("ethernet", _ADDRESSES + struct.pack("!H", _ETHERTYPES[inner.what]), inner)


def _tag(what: str) -> Callable[[Layer], Layer]:
    return lambda inner: _add(what, struct.pack("!HH", 7, _ETHERTYPES[inner.what]), inner)


def _snap(inner: Layer) -> Layer:
    """LLC and SNAP."""
    return _add("llc", b"\xaa\xaa\x03\0\0\0" + struct.pack("!H", _ETHERTYPES[inner.what]), inner)


def _llc_snap(inner: Layer) -> Layer:
    """The same behind an 802.3 length field."""
    return _add("ethernet", _ADDRESSES + struct.pack("!H", min(1500, 8 + inner.wire)), _snap(inner))


def _mpls(inner: Layer) -> Layer:
    return _add("mpls", struct.pack("!II", 100 << 12 | 64, 200 << 12 | 1 << 8 | 64), inner)


def _pseudowire(inner: Layer) -> Layer:
    return _add("mpls", struct.pack("!II", 300 << 12 | 1 << 8 | 64, 17), inner)


def _pppoe(inner: Layer) -> Layer:
    head = struct.pack("!BBHHH", 0x11, 0, 7, _length(2 + inner.wire), _PPP_PROTOCOLS[inner.what])
    return _add("pppoe", head, inner)


def _vxlan(inner: Layer) -> Layer:
    return _add("vxlan", struct.pack("!II", 8 << 24, 42 << 8), inner)


def _vxlan_gpe(inner: Layer) -> Layer:
    following = {"ipv4": 1, "ipv6": 2, "ethernet": 3, "mpls": 5}[inner.what]
    return _add("vxlan", struct.pack("!BHBI", 0x0C, 0, following, 42 << 8), inner)


def _geneve(options: bytes) -> Callable[[Layer], Layer]:
    def build(inner: Layer) -> Layer:
        head = struct.pack("!BBHI", len(options) // 4, 0, _ETHERTYPES[inner.what], 42 << 8) + options
        return _add("geneve", head, inner)

    return build


def _gre(fields: int = 0) -> Callable[[Layer], Layer]:
    """`fields`: bits of checksum (0x8000), key (0x2000) and sequence number (0x1000)."""
    more = b"".join(struct.pack("!I", n) for n, bit in enumerate((0x8000, 0x2000, 0x1000)) if fields & bit)
    return lambda inner: _add("gre", struct.pack("!HH", fields, _ETHERTYPES[inner.what]) + more, inner)


def _erspan2(inner: Layer) -> Layer:
    return _add("erspan", struct.pack("!II", 1 << 28 | 5, 9), inner)


def _erspan3(subheader: bool) -> Callable[[Layer], Layer]:
    def build(inner: Layer) -> Layer:
        head = struct.pack("!IIHH", 2 << 28 | 5, 123_456, 0, 0x0001 if subheader else 0)
        return _add("erspan3", head + (struct.pack("!II", 3 << 26, 0) if subheader else b""), inner)

    return build


def _erspan1(inner: Layer) -> Layer:
    """No header of its own: GRE without a sequence number says it."""
    return Layer("erspan", inner.data, inner.wire)


def _etherip(inner: Layer) -> Layer:
    return _add("etherip", b"\x30\0", inner)


def _sll(inner: Layer) -> Layer:
    return _add("frame", struct.pack("!HHH8sH", 4, 1, 6, _ADDRESSES[:8], _ETHERTYPES[inner.what]), inner)


def _sll_tunnel(inner: Layer) -> Layer:
    """What Linux writes for an IPIP device: ARPHRD_TUNNEL and an address of four bytes."""
    return _add("frame", struct.pack("!HHH8sH", 0, 768, 4, _OUTER_V4, _ETHERTYPES[inner.what]), inner)


def _sll2(inner: Layer) -> Layer:
    head = struct.pack("!HHIHBB8s", _ETHERTYPES[inner.what], 0, 3, 1, 4, 6, _ADDRESSES[:8])
    return _add("frame", head, inner)


def _ppp(start: bytes) -> Callable[[Layer], Layer]:
    return lambda inner: _add("frame", start + struct.pack("!H", _PPP_PROTOCOLS[inner.what]), inner)


def _cisco_hdlc(inner: Layer) -> Layer:
    return _add("frame", b"\x0f\0" + struct.pack("!H", _ETHERTYPES[inner.what]), inner)


def _nflog(order: str) -> Callable[[Layer], Layer]:
    def build(inner: Layer) -> Layer:
        head = struct.pack("!BBH", 2 if inner.what == "ipv4" else 10, 0, 5)
        prefix = struct.pack(order + "HH", 7, 10) + b"in\0\0"  # three bytes of value, padded
        header = struct.pack(order + "HHI", 8, 1, 0x0800_0000)
        return _add("frame", head + header + prefix + struct.pack(order + "HH", _length(4 + inner.wire), 9), inner)

    return build


def _ppi(inner: Layer) -> Layer:
    return _add("frame", struct.pack("<BBHI", 0, 0, 20, ETHERNET) + struct.pack("<HH8s", 3, 8, bytes(8)), inner)


def _pktap(inner: Layer) -> Layer:
    return _add("frame", struct.pack("<III", 108, 1, ETHERNET) + bytes(96), inner)


_VXLAN_8472 = (_vxlan, _udp(8472), _ipv4, _ethernet)
_GENEVE = (_geneve(b""), _udp(6081), _ipv4, _ethernet)
_OPTION = struct.pack("!HBBI", 0x0102, 0x80, 1, 7)
PPP, PPP_HDLC, PPP_ETHER, ATM, CISCO_HDLC, PPP_PPPD, PPI, PPP_WITH_DIRECTION, MPLS, NFLOG, PKTAP = (
    9, 50, 51, 100, 104, 166, 192, 204, 219, 239, 258,
)  # fmt: skip


class Kind(NamedTuple):
    """`layers`: from the innermost to the outermost one, around an Ethernet frame or around the IP packet in it."""

    carries: str  # "ethernet" or "ip"
    layers: tuple[Callable[[Layer], Layer], ...]
    link_type: int = ETHERNET
    tunnel: str = ""  # the outermost one, as the ledger names it


#: The kinds by name.
KINDS = {
    "vxlan": Kind("ethernet", (_vxlan, _udp(4789), _ipv4, _ethernet), tunnel="vxlan"),
    "vxlan over ipv6": Kind("ethernet", (_vxlan, _udp(4789), _ipv6, _ethernet), tunnel="vxlan"),
    "vxlan of flannel": Kind("ethernet", _VXLAN_8472, tunnel="vxlan"),
    "vxlan of ip": Kind("ip", (_vxlan_gpe, _udp(4790), _ipv4, _ethernet), tunnel="vxlan"),
    "vxlan-gpe": Kind("ethernet", (_vxlan_gpe, _udp(4790), _ipv4, _ethernet), tunnel="vxlan"),
    "geneve": Kind("ethernet", _GENEVE, tunnel="geneve"),
    "geneve with options": Kind("ethernet", (_geneve(_OPTION * 3), _udp(6081), _ipv6, _ethernet), tunnel="geneve"),
    "geneve of ip": Kind("ip", (_geneve(_OPTION), _udp(6081), _ipv4, _ethernet), tunnel="geneve"),
    "gre": Kind("ip", (_gre(), _ipv4, _ethernet), tunnel="gre"),
    "gre with all fields": Kind("ip", (_gre(0xB000), _ipv4, _ethernet), tunnel="gre"),
    "gre over ipv6": Kind("ip", (_gre(0x2000), _ipv6, _ethernet), tunnel="gre"),
    "gre of ethernet": Kind("ethernet", (_gre(), _ipv4, _ethernet), tunnel="gre"),
    "nvgre": Kind("ethernet", (_gre(0x2000), _ipv4, _ethernet), tunnel="gre"),
    "gre of mpls": Kind("ip", (_mpls, _gre(), _ipv4, _ethernet), tunnel="gre"),
    "erspan 1": Kind("ethernet", (_erspan1, _gre(), _ipv4, _ethernet), tunnel="erspan"),
    "erspan 2": Kind("ethernet", (_erspan2, _gre(0x1000), _ipv4, _ethernet), tunnel="erspan"),
    "erspan 3": Kind("ethernet", (_erspan3(False), _gre(0x1000), _ipv4, _ethernet), tunnel="erspan"),
    "erspan 3 with platform": Kind("ethernet", (_erspan3(True), _gre(0x1000), _ipv4, _ethernet), tunnel="erspan"),
    "gre in udp": Kind("ip", (_gre(), _udp(4754), _ipv4, _ethernet), tunnel="gre"),
    "mpls in udp": Kind("ip", (_mpls, _udp(6635), _ipv4, _ethernet), tunnel="mpls"),
    "mpls in ip": Kind("ip", (_mpls, _ipv4, _ethernet), tunnel="mpls"),
    "ipip": Kind("ip", (_ipv4, _ethernet), tunnel="ip_in_ip"),
    "ip in ipv6": Kind("ip", (_ipv6, _ethernet), tunnel="ip_in_ip"),
    "etherip": Kind("ethernet", (_etherip, _ipv4, _ethernet), tunnel="ethernet_in_ip"),
    "ethernet in ipv6": Kind("ethernet", (_ipv6, _ethernet), tunnel="ethernet_in_ip"),
    "ipv6 extension headers": Kind("ip", (_ipv6_extended, _ethernet), tunnel="ip_in_ip"),
    "mpls": Kind("ip", (_mpls, _ethernet)),
    "pseudowire": Kind("ethernet", (_pseudowire, _ethernet), tunnel="mpls"),
    "vlan": Kind("ip", (_tag("vlan"), _ethernet)),
    "qinq": Kind("ip", (_tag("vlan"), _tag("qinq"), _ethernet)),
    "vlan of mpls": Kind("ip", (_mpls, _tag("vlan"), _ethernet)),
    "pppoe": Kind("ip", (_pppoe, _ethernet)),
    "qinq of pppoe": Kind("ip", (_pppoe, _tag("vlan"), _tag("qinq"), _ethernet)),
    "pppoe of mpls": Kind("ip", (_mpls, _pppoe, _ethernet)),
    "llc": Kind("ip", (_llc_snap,)),
    "vxlan of llc": Kind("ip", (_llc_snap, _vxlan, _udp(4789), _ipv4, _ethernet), tunnel="vxlan"),
    "vxlan of vlan": Kind("ip", (_tag("vlan"), _ethernet, *_VXLAN_8472[:3], _tag("vlan"), _ethernet), tunnel="vxlan"),
    "vxlan in vxlan": Kind("ethernet", (_vxlan, _udp(4789), _ipv4, _ethernet, *_VXLAN_8472), tunnel="vxlan"),
    "ipip in gre in geneve": Kind("ip", (_ipv4, _gre(), _ipv4, _ethernet, *_GENEVE), tunnel="geneve"),
    "sll": Kind("ip", (_sll,), SLL),
    "sll of ipip device": Kind("ip", (_sll_tunnel,), SLL),
    "sll of vxlan": Kind("ethernet", (_vxlan, _udp(4789), _ipv4, _sll), SLL, tunnel="vxlan"),
    "sll2": Kind("ip", (_sll2,), SLL2),
    "sll2 of gre": Kind("ip", (_gre(), _ipv4, _sll2), SLL2, tunnel="gre"),
    "ppp": Kind("ip", (_ppp(b""),), PPP),
    "ppp with hdlc": Kind("ip", (_ppp(b"\xff\x03"),), PPP),
    "ppp serial": Kind("ip", (_ppp(b"\xff\x03"),), PPP_HDLC),
    "ppp with direction": Kind("ip", (_ppp(b"\x01"),), PPP_WITH_DIRECTION),
    "ppp with direction and hdlc": Kind("ip", (_ppp(b"\0\xff\x03"),), PPP_WITH_DIRECTION),
    "ppp of pppd": Kind("ip", (_ppp(b"\x01\x03"),), PPP_PPPD),
    "pppoe link": Kind("ip", (_pppoe,), PPP_ETHER),
    "llc over atm": Kind("ip", (_snap,), ATM),
    "cisco hdlc": Kind("ip", (_cisco_hdlc,), CISCO_HDLC),
    "mpls link": Kind("ip", (_mpls,), MPLS),
    "nflog": Kind("ip", (_nflog("<"),), NFLOG),
    "nflog in big-endian": Kind("ip", (_nflog(">"),), NFLOG),
    "ppi": Kind("ethernet", (_ppi,), PPI),
    "pktap": Kind("ethernet", (_pktap,), PKTAP),
}  # fmt: skip


def link_type_of(kind: str) -> int:
    """Return the link type of the packets that `encapsulate` makes."""
    return KINDS[kind].link_type


def encapsulate(packets: Sequence[Packet], kind: str) -> list[Packet]:
    """Put Ethernet packets into the layers of a kind. Packets that it cannot carry are left out if the link type is
    another one, and else stay as they are."""
    carries, layers, link_type, _ = KINDS[kind]
    made = []
    for packet in packets:
        layer = _carried(packet, carries)
        if layer is None:
            if link_type == ETHERNET:
                made.append(packet)
            continue
        for build in layers:
            layer = build(layer)
        made.append(replace(packet, data=layer.data, original_length=layer.wire))
    return made


def _carried(packet: Packet, carries: str) -> Layer | None:
    """What a kind carries of an Ethernet packet; None if it has nothing such."""
    if carries == "ethernet":
        return Layer("ethernet", packet.data, packet.wire_length)
    at = ip_offset(packet.data)
    if at is None or at >= len(packet.data):
        return None
    what = "ipv6" if packet.data[at] >> 4 == 6 else "ipv4"
    return Layer(what, packet.data[at:], packet.wire_length - at)


def ip_offset(data: bytes) -> int | None:
    """Where the IP header of an Ethernet packet starts, behind VLAN tags; None if it has none."""
    at = 12
    while data[at : at + 2] in (b"\x81\0", b"\x88\xa8"):
        at += 4
    return at + 2 if data[at : at + 2] in (b"\x08\0", b"\x86\xdd") else None


def fragment(
    packets: Sequence[Packet], mtu: int, order: str = "forward", seed: int = 0, number: int = 0
) -> list[Packet]:
    """Cut the IP packets of Ethernet packets that are longer than `mtu` into fragments of the same time.

    `order`: "forward", "reverse", or "shuffled", within a packet. `number`: the identification of the first packet.
    """
    chance = random.Random(seed)
    made: list[Packet] = []
    for packet in packets:
        pieces = _fragments(packet, mtu, number)
        number += 1
        if order == "reverse":
            pieces.reverse()
        elif order == "shuffled":
            chance.shuffle(pieces)
        made += pieces
    return made


def _fragments(packet: Packet, mtu: int, number: int) -> list[Packet]:
    at = ip_offset(packet.data)
    if at is None or len(packet.data) < at + 40:
        return [packet]
    data = packet.data
    is_v6 = data[at] >> 4 == 6
    head = at + (40 if is_v6 else (data[at] & 15) * 4)
    length = int.from_bytes(data[at + 4 : at + 6] if is_v6 else data[at + 2 : at + 4], "big")
    whole = length + 40 if is_v6 else length
    if length == 0:
        whole = packet.wire_length - at
    if whole <= mtu:
        return [packet]
    payload = data[head : min(len(data), at + whole)]
    total = at + whole - head
    more = 8 if is_v6 else 0
    step = max(8, (mtu - (head - at) - more) & ~7)
    pieces = []
    for offset in range(0, total, step):
        wire = min(step, total - offset)
        last = offset + wire == total
        start = bytearray(data[:head])
        if is_v6:
            start[at + 4 : at + 6] = struct.pack("!H", 8 + wire)
            start[at + 6] = 44
            start += struct.pack("!BBHI", data[at + 6], 0, offset | (0 if last else 1), number)
        else:
            start[at + 2 : at + 8] = struct.pack(
                "!HHH", head - at + wire, number & 0xFFFF, offset >> 3 | (0 if last else 0x2000)
            )
        piece = bytes(start) + payload[offset : offset + wire]
        pieces.append(replace(packet, data=piece, original_length=len(start) + wire))
    return pieces
