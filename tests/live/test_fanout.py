"""Both directions of a connection come to one engine: through the program, and as the kernel runs it."""

from __future__ import annotations

import random
import time
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest

from kafkatap.live.capture.afpacket_ring import Ring
from kafkatap.live.capture.shared_capture import SharedCapture, open_shared_capture
from tests.support.captures import ETHERNET, Packet
from tests.support.encapsulation import encapsulate, fragment, ip_offset
from tests.support.tcp import ACK, START_NS, SYN, Segment, encode

from . import network
from .shared_source import owner

ENGINES = 3
needs_network = pytest.mark.skipif(bool(network.missing(admin=True)), reason=network.missing(admin=True))
#: Layers whose connections are shared out; those of all others are the first engine's.
SHARED = (
    "vxlan", "vxlan over ipv6", "vxlan of flannel", "geneve", "geneve with options", "gre", "gre with all fields",
    "gre over ipv6", "gre of ethernet", "nvgre", "ipip", "ip in ipv6", "vlan", "qinq",
)  # fmt: skip
OTHERS = ("mpls", "vxlan-gpe", "pppoe", "vxlan in vxlan", "gre in udp", "ipv6 extension headers")


def talks(count: int, family: int = 4) -> list[list[Packet]]:
    """Both directions of connections, 300 bytes of payload each."""
    client, broker = ("10.0.{}.{}", "10.1.0.{}") if family == 4 else ("2001:db8::{}:{}", "2001:db8::9:{}")
    found, dice = [], random.Random(7)
    for number in range(count):
        ends = (client.format(number % 7, number % 199 + 1), dice.randrange(30_000, 60_000)), (broker.format(1), 9092)
        there = Segment(START_NS, ends[0], ends[1], 1, 1, SYN, bytes(300))
        back = replace(there, source=ends[1], destination=ends[0], flags=ACK)
        found.append(encode([there, back]))
    return found


@pytest.mark.parametrize("family", [4, 6])
@pytest.mark.parametrize("kind", ["", *SHARED[:-2]])
def test_the_program_knows_connections_in_tunnels(kind: str, family: int) -> None:
    owners = []
    for number, packets in enumerate(talks(120, family)):
        both = [owner(packet.data, ETHERNET, ENGINES) for packet in (encapsulate(packets, kind) if kind else packets)]
        assert both[0] == both[1], (kind, number)
        assert both[0] == owner(packets[0].data, ETHERNET, ENGINES), "the same without the tunnel"
        owners.append(both[0])
    assert min(np.bincount(owners, minlength=ENGINES)) > 120 // ENGINES // 2


@pytest.mark.parametrize("kind", OTHERS)
def test_all_others_are_the_first_engines(kind: str) -> None:
    for packets in talks(20):
        assert {owner(packet.data, ETHERNET, ENGINES) for packet in encapsulate(packets, kind)} == {0}


def test_a_message_that_a_broker_is_unreachable_comes_to_its_connection() -> None:
    for there, _ in talks(40):
        at = ip_offset(there.data)
        assert at is not None
        header = bytes.fromhex("4500 0000 0000 0000 4001 0000 0a01 0001 0a00 0001")
        icmp = there.data[:at] + header + bytes((3, 1, 0, 0, 0, 0, 0, 0)) + there.data[at : at + 28]
        assert owner(icmp, ETHERNET, ENGINES) == owner(there.data, ETHERNET, ENGINES)


@pytest.mark.parametrize("size", [0, 14, 20, 34, 36])
def test_a_packet_that_is_cut_is_the_first_engines(size: int) -> None:
    for packets in talks(5):
        assert owner(packets[0].data[:size].ljust(14, b"\x08"), ETHERNET, ENGINES) == 0


def taken(capture: SharedCapture, wanted: int) -> list[list[bytes]]:
    """The packets that each engine got, until there are so many."""
    got: list[list[bytes]] = [[] for _ in capture.shares]
    until = time.monotonic() + 5
    while sum(map(len, got)) < wanted and time.monotonic() < until:
        capture.wait(0.1)
        for share, mine in zip(capture.shares, got, strict=True):
            for buffer, packets, count in share.blocks():
                mine += [buffer[p["at"] : p["at"] + p["captured"]].tobytes() for p in packets[:count]]
    time.sleep(0.1)
    assert sum(tap.unread() for share in capture.shares for tap in share.taps) == 0
    return got


@needs_network
@pytest.mark.parametrize("kind", ["", *SHARED, *OTHERS[:3]])
def test_the_kernel_shares_out_as_the_program_says(kind: str) -> None:
    wanted: list[list[bytes]] = [[] for _ in range(ENGINES)]
    frames = []
    for plain in talks(60):
        packets = encapsulate(plain, kind) if kind else plain
        mine = 0 if kind in OTHERS else owner(plain[0].data, ETHERNET, ENGINES)
        wanted[mine] += [packet.data for packet in packets]
        frames += [packet.data for packet in packets]
    with (
        network.veth_pair(mtu=9_000) as veth, network.Wire(veth.near) as wire,
        closing(open_shared_capture([veth.far], None, 64 << 20, ENGINES)) as capture,
    ):  # fmt: skip
        wire.send(frames)
        got = taken(capture, len(frames))
    # (The kernel keeps the outer tag of a frame beside it.)
    sizes = [[len(each) for each in part] for part in got]
    tags = 4 if kind in ("vlan", "qinq") else 0
    assert [len(part) for part in got] == [len(part) for part in wanted]
    assert sizes in ([[len(each) - tags for each in part] for part in wanted], [[len(e) for e in p] for p in wanted])


@needs_network
@pytest.mark.parametrize("name", ["near", "any"])
def test_packets_on_their_way_out_are_shared_out_alike(name: str) -> None:
    plain = talks(60)
    with network.veth_pair(mtu=9_000) as veth, network.Wire(veth.near) as wire:
        chosen = veth.near if name == "near" else "any"
        with closing(open_shared_capture([chosen], "port 9092 and host 10.1.0.1", 64 << 20, ENGINES)) as capture:
            wire.send([packet.data for packets in plain for packet in packets])
            copies = 2 if name == "any" else 1
            got = taken(capture, 120 * copies)
    owners = [owner(packets[0].data, ETHERNET, ENGINES) for packets in plain]
    assert [len(part) for part in got] == [2 * copies * owners.count(n) for n in range(ENGINES)]


@needs_network
def test_fragments_are_joined_before() -> None:
    plain = talks(30)
    pieces = [piece for packets in plain for piece in fragment(packets, 200, "as sent")]
    assert len(pieces) > 60
    with (
        network.veth_pair(mtu=9_000) as veth, network.Wire(veth.near) as wire,
        closing(open_shared_capture([veth.far], None, 64 << 20, ENGINES)) as capture,
    ):  # fmt: skip
        wire.send([piece.data for piece in pieces])
        got = taken(capture, 60)
    owners = [owner(packets[0].data, ETHERNET, ENGINES) for packets in plain]
    assert [len(part) for part in got] == [2 * owners.count(n) for n in range(ENGINES)]
    assert {len(each) for part in got for each in part} == {len(packet.data) for packets in plain for packet in packets}


@needs_network
def test_an_interface_that_was_down_is_shared_out_as_before() -> None:
    plain = talks(60)
    frames = [packet.data for packets in plain for packet in packets]
    with (
        network.veth_pair(mtu=9_000) as veth,
        closing(open_shared_capture([veth.far], None, 64 << 20, ENGINES)) as capture,
    ):
        with network.Wire(veth.near) as wire:
            wire.send(frames)
            before = taken(capture, len(frames))
        for state in ("down", "up"):
            network.ip("link", "set", veth.far, state)
            capture.wait(0.2)
        time.sleep(0.2)
        with network.Wire(veth.near) as wire:
            wire.send(frames)
            after = taken(capture, len(frames))
    assert after == before


@needs_network
def test_no_ring_is_left_of_a_capture_that_could_not_open(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Ring] = []

    def fail(ring: Ring) -> None:
        opened.append(ring)
        raise OSError("no")

    monkeypatch.setattr(Ring, "begin", fail)
    with pytest.raises(OSError, match="no"):
        open_shared_capture(["lo"], None, 16 << 20, 2)
    assert [ring.fileno() for ring in opened] == [-1]
