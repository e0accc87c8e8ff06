"""What the reader of layers opens, anonymized copies keep: each link type and tunnel that it knows, and new ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from kafkatap.anonymize import packets as rewritten
from kafkatap.anonymize.addresses import Addresses
from kafkatap.anonymize.keyed import Permutations
from kafkatap.anonymize.packets import PacketRewriter
from kafkatap.anonymize.stream_map import StreamMap
from kafkatap.kernels.readers import be16
from kafkatap.reassembly import layers, trail
from kafkatap.reassembly.link_types import RAW, READ
from kafkatap.reassembly.packet_counts import TUNNELS
from tests.support.captures import Packet
from tests.support.encapsulation import KINDS, encapsulate, ip_offset
from tests.support.tcp import ACK, START_NS, Segment, encode

ENDS = ("203.0.113.7", 40_000), ("198.51.100.9", 9_092)
ENDS_V6 = ("2001:db8:1234::7", 40_000), ("2001:db8:4321::9", 9_092)
#: Bytes of the originals that may be nowhere in a copy.
SECRETS = (bytes((203, 0, 113, 7)), bytes((198, 51, 100, 9)), bytes.fromhex("20010db812340000"), b"secret")


def frames() -> list[bytes]:
    segments = [Segment(START_NS, *ends, 1, 1, ACK, b"a secret") for ends in (ENDS, ENDS_V6)]
    return [packet.data for packet in encode(segments)]


def ip_packets() -> list[bytes]:
    return [frame[ip_offset(frame) :] for frame in frames()]


@pytest.fixture
def rewriter() -> Iterator[PacketRewriter]:
    streams = StreamMap()
    yield PacketRewriter(Addresses(Permutations(b"a key of 16 bytes")), streams)
    streams.release()


def packets_of_link_types() -> Iterator[tuple[str, int, bytes]]:
    """(name, link type, packet): of each kind of layers, and of each link type that has none."""
    for name, kind in KINDS.items():
        for packet in encapsulate([Packet(START_NS, frame) for frame in frames()], name):
            yield name, kind.link_type, packet.data
    for link_type in READ.keys() - {kind.link_type for kind in KINDS.values()}:
        for packet in ip_packets():
            for size in range(64):  # a header of zeros leads to IP, or the link type needs a kind in KINDS
                yield f"{READ[link_type]} with {size} bytes", link_type, bytes(size) + packet


def test_what_the_reader_knows_is_rewritten(rewriter: PacketRewriter) -> None:
    found = set()
    for name, link_type, packet in packets_of_link_types():
        before = rewriter.trail(packet, link_type)
        new = rewriter.rewrite(packet, link_type, 1)
        assert (new is not None) == bool(before), name
        if new is not None:
            found.add(link_type)
            assert rewriter.trail(new, link_type) == before, name
            assert not [secret for secret in SECRETS if secret in new], name
        else:
            assert name not in KINDS
    assert found == READ.keys(), "a link type without a kind in KINDS"
    assert {kind.tunnel for kind in KINDS.values()} == {"", *TUNNELS[1:]}, "a tunnel without a kind in KINDS"


NEW_LINK, NEW_PROTOCOL, NEW_LAYER = 147, 253, 0x1FFFF
NEW_HEADER = b"secret" + b"\0\x07\x08\0" + b"\xaa\xbb"


def _new_layer(buf: Any, at: int, end: int, wire: int) -> Any:
    """A header of 12 bytes: an address, a type in the middle, and two bytes of no meaning."""
    if at + 12 > end:
        return layers._no_layer.function(1)
    return layers._layer.function(be16(buf, at + 8), at + 12, end, wire)


def _patched(monkeypatch: pytest.MonkeyPatch, module: Any, name: str, new: Callable[..., Any]) -> None:
    old = getattr(module, name)

    def call(*args: Any) -> Any:
        found = new(*args)
        return old(*args) if found is None else found

    monkeypatch.setattr(module, name, call)


@pytest.fixture
def _new_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A link type and a tunnel that only the reader of layers knows."""
    plain = SimpleNamespace(bound=lambda *arguments: partial(trail.read_trail.function, *arguments))
    monkeypatch.setattr(rewritten, "read_trail", plain)
    _patched(
        monkeypatch, layers, "_link",
        lambda buf, at, end, wire, kind: _new_layer(buf, at, end, wire) if kind == NEW_LINK else None,
    )  # fmt: skip
    _patched(
        monkeypatch, trail, "ip_payload",
        lambda protocol, at, end, wire: layers._layer.function(NEW_LAYER, at, end, wire)
        if protocol == NEW_PROTOCOL else None,
    )  # fmt: skip
    _patched(
        monkeypatch, trail, "next_layer",
        lambda buf, layer: _new_layer(buf, layer.at, layer.end, layer.wire) if layer.what == NEW_LAYER else None,
    )  # fmt: skip


@pytest.mark.usefixtures("_new_layers")
@pytest.mark.parametrize("kind", ["link type", "tunnel"])
def test_what_only_the_reader_knows_is_rewritten(kind: str, rewriter: PacketRewriter) -> None:
    packet = NEW_HEADER + ip_packets()[0]
    link_type, begin = NEW_LINK, 0
    if kind == "tunnel":
        head = b"\x45\0" + (20 + len(packet)).to_bytes(2, "big") + bytes(4) + bytes((64, NEW_PROTOCOL, 0, 0))
        packet = head + bytes((203, 0, 113, 7, 198, 51, 100, 9)) + packet
        link_type, begin = RAW, 20
    before = rewriter.trail(packet, link_type)
    assert before[-1].what == trail.TCP_SEGMENT
    new = rewriter.rewrite(packet, link_type, 1)
    assert new is not None
    assert new[begin : begin + 12] == bytes(8) + b"\x08\0\0\0", "only the type is needed"
    assert rewriter.trail(new, link_type) == before
    assert not [secret for secret in SECRETS if secret in new]
    assert rewriter.rewrite(packet, link_type, 2) == new


def test_no_trail_reads_beyond_its_packet(rewriter: PacketRewriter) -> None:
    """Plain Python raises for an index beyond the packet. The compiled reader has bytes of another packet there."""
    rows, packets = np.zeros(trail.LONGEST_TRAIL, trail.TRAIL), np.zeros(1, trail.PACKET)
    for name, kind in KINDS.items():
        [packet] = [one.data for one in encapsulate([Packet(START_NS, frames()[0])], name)]
        for size in range(1, len(packet) + 1):
            packets["captured"] = packets["original"] = size
            packets["link_type"] = kind.link_type
            exact = np.frombuffer(bytearray(packet[:size]), np.uint8)
            count = trail.read_trail.function(exact, packets, 0, rows)
            rewriter.trail(b"\xff" * 300, kind.link_type)
            assert [list(row) for row in rewriter.trail(packet[:size], kind.link_type)] == list(
                map(list, rows[:count].tolist())
            ), (name, size)


def test_a_trail_has_each_header_once() -> None:
    [frame] = [packet.data for packet in encapsulate([Packet(START_NS, frames()[1])], "vxlan over ipv6")]
    rows = np.zeros(trail.LONGEST_TRAIL, trail.TRAIL)
    packets = np.zeros(1, trail.PACKET)
    packets["captured"] = packets["original"] = len(frame)
    packets["link_type"] = 1
    count = trail.read_trail(np.frombuffer(bytearray(frame), np.uint8), packets, 0, rows)
    names = ["LINK", "IPV6", "UDP", "VXLAN", "BRIDGED", "IPV6", "TCP"]
    known = {layers.LINK + 1: "LINK", trail.TCP_SEGMENT: "TCP"} | {getattr(layers, name): name for name in names[1:6]}
    assert [(known[what], at) for what, at in rows[["what", "at"]][:count].tolist()] == list(
        zip(names, (0, 14, 54, 62, 70, 84, 124), strict=True)
    )
