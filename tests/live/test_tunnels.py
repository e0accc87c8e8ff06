"""Live capture of packets in tunnels and fragments, with the default filter: the Kafka in each is found."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from kafkatap.engine.engine import Engine
from kafkatap.live.capture.packet_source import Capture, open_capture
from tests.support.captures import ETHERNET, Packet
from tests.support.encapsulation import KINDS, encapsulate, fragment
from tests.support.tcp import encode
from tests.wire.kafkatalk import small_talk

from . import network

pytestmark = pytest.mark.skipif(bool(network.missing(admin=True)), reason=network.missing(admin=True))

ADDRESSES = {"v4": ("10.0.0.1", "10.0.0.2"), "v6": ("2001:db8::1", "2001:db8::2")}
ANSWERED = len(small_talk(6).wanted)
#: The default filter does not pass LLC: nobody sends IP in it any more, and switches send much else.
KINDS_ON_ETHERNET = [name for name, kind in KINDS.items() if kind.link_type == ETHERNET and "llc" not in name]
_NOISE = b"\2\0\0\0\0\2\2\0\0\0\0\1\x88\xb5" + b"not IP" * 10


def _talk(family: str, port: int, mss: int = 100) -> list[Packet]:
    client, broker = ADDRESSES[family]
    return encode(small_talk(6, mss=mss, client=(client, port), broker=(broker, 9_092)).segments)


@contextmanager
def _capturing(name: str) -> Iterator[Capture]:
    with closing(open_capture([name], None, 16 << 20)) as capture:
        yield capture


def _seen(capture: Capture, wanted: int, seconds: float = 5.0) -> Engine:
    """What the engine makes of the packets that come, until there are so many or the time is over."""
    engine = Engine(all_results=True)
    until = time.monotonic() + seconds
    while engine.packets < wanted and time.monotonic() < until:
        capture.wait(0.1)
        for part in capture.parts(engine.assembly):
            list(engine.dissect(part))
    list(engine.finish())
    return engine


def _check(engine: Engine, packets: int, tunnel: str, what: str) -> None:
    ledger = engine.ledger()
    assert (what, ledger["requests"]["answered"]) == (what, ANSWERED)
    assert (what, ledger["packets"]["tcp"], ledger["packets"]["total"]) == (what, packets, packets)
    tunnels = {name: count for name, count in ledger.get("tunnels", {}).items() if count}
    assert tunnels == ({tunnel: packets, "total": packets} if tunnel else {})


def test_the_default_filter_passes_every_tunnel() -> None:
    with network.veth_pair(mtu=9_000) as veth, network.Wire(veth.near) as wire, _capturing(veth.far) as capture:
        for number, kind in enumerate(KINDS_ON_ETHERNET):
            family = ("v4", "v6")[number % 2]
            packets = encapsulate(_talk(family, 41_000 + number), kind)
            wire.send([_NOISE, *(packet.data for packet in packets)])
            _check(_seen(capture, len(packets)), len(packets), KINDS[kind].tunnel, kind)


@pytest.mark.parametrize("family", sorted(ADDRESSES))
@pytest.mark.parametrize("kind", ["", "vxlan", "gre over ipv6", "vxlan over ipv6"])
def test_the_default_filter_passes_fragments(family: str, kind: str) -> None:
    packets = _talk(family, 42_000)
    packets = fragment(encapsulate(packets, kind) if kind else packets, 100, "reverse")
    with network.veth_pair() as veth, network.Wire(veth.near) as wire, _capturing(veth.far) as capture:
        wire.send([_NOISE, *(packet.data for packet in packets)])
        _check(_seen(capture, len(packets)), len(packets), KINDS[kind].tunnel if kind else "", kind)


def _has_vxlan() -> bool:
    name = "kt-try-vxlan"
    try:
        network.ip("link", "add", name, "type", "vxlan", "id", "7", "dstport", "4789", "local", "127.0.0.1")
        network.ip("link", "del", name)
    except RuntimeError:
        return False
    return True


@pytest.mark.parametrize("port", [4789, 8472])
@pytest.mark.parametrize("mss", [100, 1_448])
def test_a_tunnel_of_linux(port: int, mss: int) -> None:
    """Frames are written to a VXLAN device; the capture is on the interface below it. Linux fragments what is long."""
    if not _has_vxlan():
        pytest.skip("needs VXLAN devices, which this kernel does not have")
    packets = _talk("v4", 43_000, mss)
    with network.namespace_pair() as pair:
        device = f"{pair.near}v"[:15]
        network.ip("link", "set", pair.near, "mtu", "200")
        network.ip(
            "link", "add", device, "mtu", "1500", "type", "vxlan", "id", "7", "dstport", str(port),
            "local", pair.near_address, "remote", pair.far_address,
        )  # fmt: skip
        try:
            network._quiet(device)
            network.ip("link", "set", device, "up")
            with network.Wire(device) as wire, _capturing(pair.near) as capture:
                wire.send([packet.data for packet in packets])
                engine = _seen(capture, len(packets) + (mss > 100))
        finally:
            network.ip("link", "del", device, check=False)
    ledger = engine.ledger()
    assert ledger["requests"]["answered"] == ANSWERED
    assert ledger["tunnels"]["vxlan"] == ledger["packets"]["tcp"] >= len(packets) + (mss > 100)
