"""The layers that may lie between a capture's record and TCP: link layers, tags, labels and tunnels.

`link_layer` is the first layer of a packet, and `next_layer` reads one header each time, so the layers of a packet are
the trail of its headers (`trail`). Neither looks behind the captured bytes. Facts: the registries of IANA and
tcpdump.org; RFC 791, 8200 (IP), 7348 (VXLAN), 8926 (GENEVE), 2784 and 2890 (GRE), 8086 (GRE in UDP), 7510 (MPLS in
UDP), 3378 (EtherIP), 4385 (control word), 2516 (PPPoE); draft-foschiano-erspan, draft-ietf-nvo3-vxlan-gpe.
"""

from __future__ import annotations

from collections import namedtuple

import numpy as np

from kafkatap.kernels.decorator import helper
from kafkatap.kernels.readers import be16, be32, be64, le16, le32

from . import link_types as link
from .packet_counts import (
    BAD_HEADER,
    IN_ERSPAN,
    IN_ETHERIP,
    IN_GENEVE,
    IN_GRE,
    IN_IP,
    IN_MPLS,
    IN_VXLAN,
    NO_TUNNEL,
    NOT_IP,
    NOT_TCP,
    SHORT,
    UNKNOWN_LINK,
)

#: What a layer is: an EtherType, one of these, or LINK + a link type. Below 0: -1 - the category that its packet is
#: counted in.
LLC, PPP, IP, GRE, UDP, VXLAN, VXLAN_GPE, GENEVE, ETHERIP, NFLOG_FIELD = range(0x10000, 0x1000A)
LINK = 0x20000
IPV4, IPV6, BRIDGED, MPLS, MPLS_MULTICAST, PPPOE, VLAN, QINQ, OLD_QINQ, ERSPAN_2, ERSPAN_3, PPP_ETHERTYPE = (
    0x0800, 0x86DD, 0x6558, 0x8847, 0x8848, 0x8864, 0x8100, 0x88A8, 0x9100, 0x88BE, 0x22EB, 0x880B,
)  # fmt: skip
#: Smaller values of an Ethernet type field are lengths: LLC follows.
_FIRST_ETHERTYPE = 0x0600
#: Protocols of IP.
TCP_PROTOCOL, UDP_PROTOCOL, ICMP_PROTOCOL, ICMPV6_PROTOCOL = 6, 17, 1, 58
_IP_IN_IP, _IPV6_IN_IP, _GRE, _ETHERIP, _MPLS_IN_IP, _ETHERNET_IN_IP = 4, 41, 47, 97, 137, 143
_HOP_BY_HOP, _ROUTING, FRAGMENT_HEADER, _AUTHENTICATION, _DESTINATION = 0, 43, 44, 51, 60
_MOBILITY, _HIP, _SHIM6 = 135, 139, 140
#: UDP ports of tunnels.
VXLAN_PORT, VXLAN_LINUX_PORT, VXLAN_GPE_PORT, GENEVE_PORT, GRE_PORT, MPLS_PORT = 4789, 8472, 4790, 6081, 4754, 6635
#: What may lie between IP and TCP, for capture filters.
TUNNEL_PORTS = (VXLAN_PORT, VXLAN_LINUX_PORT, VXLAN_GPE_PORT, GENEVE_PORT, GRE_PORT, MPLS_PORT)
TUNNEL_PROTOCOLS = (_IP_IN_IP, _IPV6_IN_IP, _GRE, _ETHERIP, _MPLS_IN_IP, _ETHERNET_IN_IP)
EXTENSION_HEADERS = (
    _HOP_BY_HOP, _ROUTING, FRAGMENT_HEADER, _AUTHENTICATION, _DESTINATION, _MOBILITY, _HIP, _SHIM6,
)  # fmt: skip
_SNAP, _LLC_IP = 0xAAAA03, 0x060603
#: Labels and extension headers that are read of one packet, at most.
_LABELS, _EXTENSIONS = 16, 16

#: One layer, as scalars (int64): what it is, where it starts, where its captured bytes and those on the wire end, and
#: the tunnel that it came out of.
Layer = namedtuple("Layer", "what at end wire tunnel")


@helper
def _no_layer(category):  # type: ignore[no-untyped-def]
    """Return the layer of a packet that is not read further."""
    zero = np.int64(0)
    return Layer(np.int64(-1 - category), zero, zero, zero, zero)


@helper
def _layer(what, at, end, wire):  # type: ignore[no-untyped-def]
    """Return a layer that is in no tunnel by itself."""
    return Layer(np.int64(what), np.int64(at), np.int64(end), np.int64(wire), np.int64(NO_TUNNEL))


@helper
def _in_tunnel(tunnel, what, at, end, wire):  # type: ignore[no-untyped-def]
    """Return a layer out of a tunnel."""
    return Layer(np.int64(what), np.int64(at), np.int64(end), np.int64(wire), np.int64(tunnel))


@helper
def _typed(kind, at, end, wire):  # type: ignore[no-untyped-def]
    """Return the layer behind a type field of Ethernet or of Linux's cooked headers."""
    if kind >= _FIRST_ETHERTYPE:
        return _layer(kind, at, end, wire)
    return _no_layer(NOT_IP)


@helper
def _ethernet(buf, at, end, wire):  # type: ignore[no-untyped-def]
    """Read an Ethernet header."""
    if at + 14 > end:
        return _no_layer(SHORT)
    kind = be16(buf, at + 12)
    return _layer(kind if kind >= _FIRST_ETHERTYPE else np.int64(LLC), at + 14, end, wire)


@helper
def _cooked(buf, place, hardware, at, end, wire):  # type: ignore[no-untyped-def]
    """Read Linux's cooked header before `at`, whose protocol is at `place`. `hardware`: an ARPHRD_ value.

    Netlink and 802.11 devices have protocols of their own in that field. Tunnels and devices without a link layer have
    an EtherType, or nothing.
    """
    if at > end:
        return _no_layer(SHORT)
    if hardware == 824 or (hardware >= 801 and hardware <= 803):
        return _no_layer(NOT_IP)
    kind = be16(buf, place)
    if kind == 4:
        return _layer(LLC, at, end, wire)
    if kind == 0:
        return _layer(IP, at, end, wire)
    return _typed(kind, at, end, wire)


@helper
def _nflog_field(buf, at, end, wire):  # type: ignore[no-untyped-def]
    """Read a field of a log of netfilter: length, type and value in the byte order of the host.

    A field's type is a small number, which shows the order. Field 9 is the packet.
    """
    if at + 4 > end:
        return _no_layer(SHORT)
    swapped = buf[np.uintp(at + 2)] == 0 and buf[np.uintp(at + 3)] != 0
    length = be16(buf, at) if swapped else le16(buf, at)
    kind = (be16(buf, at + 2) if swapped else le16(buf, at + 2)) & 0x3FFF
    if kind == 9:
        return _layer(IP, at + 4, end, wire)
    if length < 4:
        return _no_layer(BAD_HEADER)
    return _layer(NFLOG_FIELD, at + ((length + 3) & ~3), end, wire)


@helper
def _other_link(buf, at, end, wire, link_type):  # type: ignore[no-untyped-def]
    """Read the header of a link layer that contains one of another link type."""
    if at + 12 > end:
        return _no_layer(SHORT)
    if link_type == link.PPI:
        length = le16(buf, at + 2)
        link_type = le32(buf, at + 4)
    else:
        length = le32(buf, at)
        link_type = le32(buf, at + 8)
    if length < 8:
        return _no_layer(BAD_HEADER)
    if link_type == link.PPI or link_type == link.PKTAP:
        return _no_layer(UNKNOWN_LINK)
    return _layer(LINK + link_type, at + length, end, wire)


@helper
def _link(buf, at, end, wire, link_type):  # type: ignore[no-untyped-def]
    """Read the header of a link layer."""
    if link_type == link.ETHERNET:
        return _ethernet(buf, at, end, wire)
    if link_type == link.SLL:
        hardware = be16(buf, at + 2) if at + 16 <= end else np.int64(0)
        return _cooked(buf, at + 14, hardware, at + 16, end, wire)
    if link_type == link.SLL2:
        hardware = be16(buf, at + 8) if at + 20 <= end else np.int64(0)
        return _cooked(buf, at, hardware, at + 20, end, wire)
    if link_type in (link.RAW, link.RAW_BSD, link.RAW_OPENBSD, link.RAW_IPV4, link.RAW_IPV6):
        return _layer(IP, at, end, wire)
    if link_type in (link.NULL, link.LOOP):
        return _layer(IP, at + 4, end, wire)
    if link_type in (link.PPP, link.PPP_SERIAL):
        return _layer(PPP, at, end, wire)
    if link_type == link.PPP_WITH_DIRECTION:
        return _layer(PPP, at + 1, end, wire)
    if link_type == link.PPP_PPPD:  # the direction is in place of the address
        return _layer(PPP, at + 2, end, wire)
    if link_type == link.PPP_ETHER:
        return _layer(PPPOE, at, end, wire)
    if link_type == link.CISCO_HDLC:
        if at + 4 > end:
            return _no_layer(SHORT)
        return _typed(be16(buf, at + 2), at + 4, end, wire)
    if link_type == link.ATM:
        return _layer(LLC, at, end, wire)
    if link_type == link.MPLS_LABELS:
        return _layer(MPLS, at, end, wire)
    if link_type == link.NFLOG:
        return _layer(NFLOG_FIELD, at + 4, end, wire)
    if link_type == link.PPI or link_type == link.PKTAP:
        return _other_link(buf, at, end, wire, link_type)
    return _no_layer(UNKNOWN_LINK)


@helper
def link_layer(packet):  # type: ignore[no-untyped-def]
    """Return the first layer of a packet, its link layer."""
    end = packet.at + packet.captured
    return _layer(LINK + packet.link_type, packet.at, end, max(packet.at + packet.original, end))


@helper
def _llc(buf, at, end, wire):  # type: ignore[no-untyped-def]
    """Read LLC, and SNAP behind it."""
    if at + 3 > end:
        return _no_layer(SHORT)
    head = (be16(buf, at) << 8) | np.int64(buf[np.uintp(at + 2)])
    if head == _LLC_IP:
        return _layer(IP, at + 3, end, wire)
    if head != _SNAP:
        return _no_layer(NOT_IP)
    if at + 8 > end:
        return _no_layer(SHORT)
    organization = (be16(buf, at + 3) << 8) | np.int64(buf[np.uintp(at + 5)])
    if organization != 0 and organization != 0x0000F8:
        return _no_layer(NOT_IP)
    return _typed(be16(buf, at + 6), at + 8, end, wire)


@helper
def _ppp(buf, at, end, wire):  # type: ignore[no-untyped-def]
    """Read PPP: an address and control field may come first, and a protocol below 256 may be one byte."""
    if at + 2 > end:
        return _no_layer(SHORT)
    if be16(buf, at) == 0xFF03:
        at += 2
        if at + 2 > end:
            return _no_layer(SHORT)
    if buf[np.uintp(at)] & 1:
        protocol = np.int64(buf[np.uintp(at)])
        at += 1
    else:
        protocol = be16(buf, at)
        at += 2
    if protocol == 0x21 or protocol == 0x57:
        return _layer(IP, at, end, wire)
    if protocol == 0x281 or protocol == 0x283:
        return _layer(MPLS, at, end, wire)
    return _no_layer(NOT_IP)


@helper
def _is_ethernet(buf, at, end):  # type: ignore[no-untyped-def]
    """Whether an Ethernet header with a type that leads to IP may be at `at`."""
    if at + 14 > end:
        return False
    kind = be16(buf, at + 12)
    return kind in (IPV4, IPV6, VLAN, QINQ, MPLS, PPPOE)


@helper
def _mpls(buf, at, end, wire):  # type: ignore[no-untyped-def]
    """Read a stack of MPLS labels. IP behind it shows its version. Else it is Ethernet, most often behind a control
    word, which begins with 0."""
    for _label in range(_LABELS):
        if at + 4 > end:
            return _no_layer(SHORT)
        at += 4
        if buf[np.uintp(at - 2)] & 1:
            if at >= end:
                return _no_layer(SHORT)
            first = np.int64(buf[np.uintp(at)]) >> 4
            if first == 0 and (_is_ethernet(buf, at + 4, end) or not _is_ethernet(buf, at, end)):
                return _in_tunnel(IN_MPLS, BRIDGED, at + 4, end, wire)
            if first == 4 or first == 6:
                return _layer(IP, at, end, wire)
            if _is_ethernet(buf, at, end):
                return _in_tunnel(IN_MPLS, BRIDGED, at, end, wire)
            return _no_layer(NOT_IP)
    return _no_layer(NOT_IP)


@helper
def _gre(buf, at, end, wire):  # type: ignore[no-untyped-def]
    """Read GRE of version 0."""
    if at + 4 > end:
        return _no_layer(SHORT)
    flags = be16(buf, at)
    kind = be16(buf, at + 2)
    if flags & 0x4007:  # source routes, or another version
        return _no_layer(NOT_TCP)
    has_sequence = flags & 0x1000
    at += 4 + (4 if flags & 0x8000 else 0) + (4 if flags & 0x2000 else 0) + (4 if has_sequence else 0)
    if at > end:
        return _no_layer(SHORT)
    if kind == ERSPAN_2 and not (has_sequence and at < end and buf[np.uintp(at)] >> 4 == 1):
        return _in_tunnel(IN_ERSPAN, BRIDGED, at, end, wire)  # the first version, without a header
    if kind == ERSPAN_2 or kind == ERSPAN_3:
        return _layer(kind, at, end, wire)
    if kind >= _FIRST_ETHERTYPE:
        return _in_tunnel(IN_GRE, kind, at, end, wire)
    return _no_layer(NOT_TCP)


@helper
def _erspan(buf, at, end, wire, what):  # type: ignore[no-untyped-def]
    """Read the header of ERSPAN of the second or third version."""
    if what == ERSPAN_2:
        return _in_tunnel(IN_ERSPAN, BRIDGED, at + 8, end, wire)
    if at + 12 > end:
        return _no_layer(SHORT)
    last = be16(buf, at + 10)
    at += 20 if last & 1 else 12
    return _in_tunnel(IN_ERSPAN, IP if (last >> 10) & 31 == 2 else BRIDGED, at, end, wire)


@helper
def _vxlan(buf, at, end, wire, what):  # type: ignore[no-untyped-def]
    """Read VXLAN. The bit that says that there is a network identifier has to be set, and the last byte is reserved. In
    the generic form another bit says that byte 3 has the next protocol."""
    if at + 8 > end:
        return _no_layer(SHORT)
    flags = np.int64(buf[np.uintp(at)])
    if flags & 0x08 == 0 or flags & (0x31 if what == VXLAN_GPE else 0x33) != 0 or buf[np.uintp(at + 7)] != 0:
        return _no_layer(NOT_TCP)
    inner = np.int64(BRIDGED)
    if flags & 0x04:
        following = buf[np.uintp(at + 3)]
        if following == 1 or following == 2:
            inner = np.int64(IP)
        elif following == 5:
            inner = np.int64(MPLS)
        elif following != 3:
            return _no_layer(NOT_TCP)
    return _in_tunnel(IN_VXLAN, inner, at + 8, end, wire)


@helper
def _geneve(buf, at, end, wire):  # type: ignore[no-untyped-def]
    """Read GENEVE of version 0. Its options are passed over."""
    if at + 8 > end:
        return _no_layer(SHORT)
    first = np.int64(buf[np.uintp(at)])
    if first >> 6 != 0 or buf[np.uintp(at + 1)] & 0x80 or buf[np.uintp(at + 7)] != 0:
        return _no_layer(NOT_TCP)
    kind = be16(buf, at + 2)
    if kind < _FIRST_ETHERTYPE:
        return _no_layer(NOT_TCP)
    return _in_tunnel(IN_GENEVE, kind, at + 8 + 4 * (first & 63), end, wire)


@helper
def _udp(buf, at, end, wire):  # type: ignore[no-untyped-def]
    """Read UDP, if its port is one of a tunnel."""
    if at + 8 > end:
        return _no_layer(SHORT)
    port = be16(buf, at + 2)
    at += 8
    if port == VXLAN_PORT or port == VXLAN_LINUX_PORT:
        return _layer(VXLAN, at, end, wire)
    if port == VXLAN_GPE_PORT:
        return _layer(VXLAN_GPE, at, end, wire)
    if port == GENEVE_PORT:
        return _layer(GENEVE, at, end, wire)
    if port == GRE_PORT:
        return _layer(GRE, at, end, wire)
    if port == MPLS_PORT:
        return _in_tunnel(IN_MPLS, MPLS, at, end, wire)
    return _no_layer(NOT_TCP)


@helper
def ip_payload(protocol, at, end, wire):  # type: ignore[no-untyped-def]
    """Return the layer in an IP packet whose payload is at `at` and is not TCP."""
    if protocol == UDP_PROTOCOL:
        return _layer(UDP, at, end, wire)
    if protocol == _GRE:
        return _layer(GRE, at, end, wire)
    if protocol == _IP_IN_IP or protocol == _IPV6_IN_IP:
        return _in_tunnel(IN_IP, IP, at, end, wire)
    if protocol == _ETHERIP:
        return _layer(ETHERIP, at, end, wire)
    if protocol == _ETHERNET_IN_IP:
        return _in_tunnel(IN_ETHERIP, BRIDGED, at, end, wire)
    if protocol == _MPLS_IN_IP:
        return _in_tunnel(IN_MPLS, MPLS, at, end, wire)
    return _no_layer(NOT_TCP)


@helper
def _etherip(buf, at, end, wire):  # type: ignore[no-untyped-def]
    if at + 2 > end:
        return _no_layer(SHORT)
    if be16(buf, at) != 0x3000:
        return _no_layer(NOT_TCP)
    return _in_tunnel(IN_ETHERIP, BRIDGED, at + 2, end, wire)


@helper
def is_ip(layer):  # type: ignore[no-untyped-def]
    """Whether a layer is IP, which `ip_header` reads."""
    return layer.what == IPV4 or layer.what == IPV6 or layer.what == IP


@helper
def next_layer(buf, layer):  # type: ignore[no-untyped-def]
    """Read the header of a layer that is not IP, and return the layer behind it."""
    what, at, end, wire = layer.what, layer.at, layer.end, layer.wire
    if what >= LINK:
        return _link(buf, at, end, wire, what - LINK)
    if what == BRIDGED:
        return _ethernet(buf, at, end, wire)
    if what == VLAN or what == QINQ or what == OLD_QINQ:
        if at + 4 > end:
            return _no_layer(SHORT)
        kind = be16(buf, at + 2)
        return _layer(kind if kind >= _FIRST_ETHERTYPE else np.int64(LLC), at + 4, end, wire)
    if what == MPLS or what == MPLS_MULTICAST:
        return _mpls(buf, at, end, wire)
    if what == PPPOE:
        if at + 8 > end:
            return _no_layer(SHORT)
        if be16(buf, at) != 0x1100:
            return _no_layer(NOT_IP)
        return _layer(PPP, at + 6, end, wire)
    if what == PPP or what == PPP_ETHERTYPE:
        return _ppp(buf, at, end, wire)
    if what == LLC:
        return _llc(buf, at, end, wire)
    if what == UDP:
        return _udp(buf, at, end, wire)
    if what == VXLAN or what == VXLAN_GPE:
        return _vxlan(buf, at, end, wire, what)
    if what == GENEVE:
        return _geneve(buf, at, end, wire)
    if what == GRE:
        return _gre(buf, at, end, wire)
    if what == ERSPAN_2 or what == ERSPAN_3:
        return _erspan(buf, at, end, wire, what)
    if what == ETHERIP:
        return _etherip(buf, at, end, wire)
    if what == NFLOG_FIELD:
        return _nflog_field(buf, at, end, wire)
    return _no_layer(NOT_IP)


#: An IP header with its extension headers, as scalars (int64): the category of a packet that is not read further, or
#: -1; the protocol and where its payload starts; where the captured bytes and those on the wire end; the addresses; the
#: id of IPv4; and of a fragment its identifier (as in fragments.DATAGRAM; else -1), its offset, and whether it is the
#: last one.
IpHeader = namedtuple(
    "IpHeader",
    "category protocol at end wire source_high source_low target_high target_low ip_id identifier offset is_last",
)


@helper
def _bad_ip(category):  # type: ignore[no-untyped-def]
    zero = np.int64(0)
    return IpHeader(
        np.int64(category), zero, zero, zero, zero, zero, zero, zero, zero, zero, np.int64(-1), zero, zero
    )  # fmt: skip


@helper
def _ipv4(buf, layer):  # type: ignore[no-untyped-def]
    at = layer.at
    if at + 20 > layer.end:
        return _bad_ip(SHORT)
    header = (np.int64(buf[np.uintp(at)]) & 15) * 4
    length = be16(buf, at + 2)
    if length == 0:
        length = layer.wire - at
    if header < 20 or length < header:
        return _bad_ip(BAD_HEADER)
    wire = at + length
    protocol = np.int64(buf[np.uintp(at + 9)])
    fields = be16(buf, at + 6)
    identifier = np.int64(-1)
    if fields & 0x3FFF != 0:
        identifier = (np.int64(4) << 40) | (protocol << 32) | be16(buf, at + 4)
    zero = np.int64(0)
    return IpHeader(
        np.int64(-1), protocol, at + header, min(layer.end, wire), wire, zero, 0xFFFF00000000 + be32(buf, at + 12),
        zero, 0xFFFF00000000 + be32(buf, at + 16), be16(buf, at + 4), identifier, (fields & 0x1FFF) * 8,
        np.int64(1 if fields & 0x2000 == 0 else 0),
    )  # fmt: skip


@helper
def extension_length(buf, protocol, at):  # type: ignore[no-untyped-def]
    """Return the length of an extension header of IPv6."""
    if protocol == FRAGMENT_HEADER:
        return np.int64(8)
    units = np.int64(buf[np.uintp(at + 1)])
    return (units + 2) * 4 if protocol == _AUTHENTICATION else (units + 1) * 8


@helper
def _ipv6(buf, layer):  # type: ignore[no-untyped-def]
    at = layer.at
    if at + 40 > layer.end:
        return _bad_ip(SHORT)
    length = be16(buf, at + 4)
    wire = at + 40 + length if length > 0 else layer.wire
    end = min(layer.end, wire)
    following = np.int64(buf[np.uintp(at + 6)])
    identifier, offset, is_last = np.int64(-1), np.int64(0), np.int64(0)
    place = at + 40
    for _header in range(_EXTENSIONS):
        if following not in EXTENSION_HEADERS:
            break
        if place + 8 > end:
            return _bad_ip(SHORT)
        step = extension_length(buf, following, place)
        if following == FRAGMENT_HEADER:
            fields = be16(buf, place + 2)
            if fields & 0xFFF9 != 0:  # else it is the whole packet (RFC 6946)
                identifier = (np.int64(6) << 40) | be32(buf, place + 4)
                offset = fields & 0xFFF8
                is_last = np.int64(1 if fields & 1 == 0 else 0)
        following = np.int64(buf[np.uintp(place)])
        place += step
        if identifier >= 0:
            break
    if place > wire:
        return _bad_ip(BAD_HEADER)
    return IpHeader(
        np.int64(-1), following, place, end, wire, be64(buf, at + 8), be64(buf, at + 16), be64(buf, at + 24),
        be64(buf, at + 32), np.int64(0), identifier, offset, is_last,
    )  # fmt: skip


@helper
def ip_header(buf, layer):  # type: ignore[no-untyped-def]
    """Read the IP header of a layer, and the extension headers of IPv6 up to a fragment's."""
    if layer.at >= layer.end:
        return _bad_ip(SHORT)
    version = buf[np.uintp(layer.at)] >> 4
    if version == 4:
        return _ipv4(buf, layer)
    if version == 6:
        return _ipv6(buf, layer)
    return _bad_ip(NOT_IP)


@helper
def quoted_header(buf, ip):  # type: ignore[no-untyped-def]
    """Return the IP header that an ICMP message quotes, if that says that TCP is unreachable. Else its category is
    not -1.

    The first 8 bytes of the quoted TCP header were captured. "Fragmentation needed" and "source route failed" (RFC 792)
    do not refuse a connection.
    """
    if ip.at + 8 > ip.end:
        return _bad_ip(SHORT)
    kind, code = buf[np.uintp(ip.at)], buf[np.uintp(ip.at + 1)]
    is_unreachable = (ip.protocol == ICMP_PROTOCOL and kind == 3 and code != 4 and code != 5) or (
        ip.protocol == ICMPV6_PROTOCOL and kind == 1
    )
    if not is_unreachable:
        return _bad_ip(NOT_TCP)
    quoted = ip_header(buf, _layer(IP, ip.at + 8, ip.end, ip.wire))
    if quoted.category < 0 and (quoted.identifier >= 0 or quoted.protocol != TCP_PROTOCOL):
        return _bad_ip(NOT_TCP)
    if quoted.category < 0 and quoted.at + 8 > quoted.end:
        return _bad_ip(SHORT)
    return quoted
