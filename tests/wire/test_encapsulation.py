"""Tunnels, link layers and IP fragments: a capture inside of them has the exchanges of the plain one."""

from __future__ import annotations

import pytest

from tests.support.captures import ETHERNET, Packet
from tests.support.encapsulation import KINDS, encapsulate, fragment, ip_offset
from tests.support.tcp import encode
from tests.wire.kafkatalk import small_talk

TALK = small_talk(6, mss=100)
PACKETS = encode(TALK.segments)
V6 = small_talk(6, mss=100, client=("2001:db8::1", 40_000), broker=("2001:db8::2", 9_092))


def _scapy_frame(packet: Packet):  # type: ignore[no-untyped-def]
    from scapy.layers.l2 import Ether

    return Ether(packet.data)


@pytest.mark.parametrize("kind", [
    "vxlan", "vxlan over ipv6", "vxlan of flannel", "geneve", "geneve with options", "geneve of ip", "gre",
    "gre with all fields", "gre over ipv6", "gre of ethernet", "nvgre", "erspan 1", "erspan 2", "erspan 3",
    "erspan 3 with platform", "ipip", "ip in ipv6", "mpls", "vlan", "qinq", "pppoe", "llc", "vxlan in vxlan",
    "ipip in gre in geneve", "vxlan of vlan",
])  # fmt: skip
@pytest.mark.parametrize("family", ["v4", "v6"])
def test_scapy_reads_the_crafted_layers(kind: str, family: str) -> None:
    """The transformer is checked by another reader than ours."""
    import scapy.contrib.erspan
    import scapy.contrib.geneve
    import scapy.contrib.mpls
    import scapy.layers.inet6
    import scapy.layers.ppp
    import scapy.layers.vxlan  # noqa: F401
    from scapy.layers.inet import TCP

    plain = PACKETS if family == "v4" else encode(V6.segments)
    for before, packet in zip(plain[3:6], encapsulate(plain, kind)[3:6], strict=True):
        assert KINDS[kind].link_type == ETHERNET
        found = _scapy_frame(packet).getlayer(TCP)
        wanted = _scapy_frame(before).getlayer(TCP)
        assert found is not None, _scapy_frame(packet).summary()
        assert (found.sport, found.dport, found.seq) == (wanted.sport, wanted.dport, wanted.seq)


@pytest.mark.parametrize("family", ["v4", "v6"])
@pytest.mark.parametrize("order", ["forward", "reverse", "shuffled"])
def test_scapy_reassembles_the_crafted_fragments(family: str, order: str) -> None:
    from scapy.layers.inet import TCP, defragment
    from scapy.layers.inet6 import IPv6, defragment6
    from scapy.layers.l2 import Ether

    plain = encode(small_talk(6, mss=400).segments) if family == "v4" else encode(V6.segments)
    large = max(plain, key=lambda p: len(p.data))
    pieces = fragment([large], 100, order, seed=3)
    assert len(pieces) > 2
    at = ip_offset(large.data)
    if family == "v4":
        pieces.sort(key=lambda p: p.data[at + 6 : at + 8] if p.data[at + 6] & 0x20 else b"\xff")  # scapy needs order
        [whole] = defragment([Ether(p.data) for p in pieces])
    else:
        whole = defragment6([IPv6(p.data[at:]) for p in pieces])
    assert bytes(whole[TCP]) == bytes(Ether(large.data)[TCP])
