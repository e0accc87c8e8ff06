"""What is written to an interface comes out of a capture, byte for byte: by the ring, and by scapy's sockets."""

from __future__ import annotations

import json
import os
import random
import socket
import struct
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import count

import numpy as np
import pytest

from kafkatap.live.capture import capture_filter
from kafkatap.live.capture.afpacket_ring import Ring
from kafkatap.live.capture.packet_source import Capture, open_capture
from kafkatap.reassembly.link_types import ETHERNET, RAW
from tests.support.tcp import ACK, PSH, START_NS, SYN, Segment, on_link, tcp_packet

from . import network
from .running import Live, wait_for

pytestmark = pytest.mark.skipif(bool(network.missing(admin=True)), reason=network.missing(admin=True))

both_ways = pytest.mark.parametrize("by_scapy", [False, True], ids=["ring", "scapy"])
_ports = count(20_000 + os.getpid() % 20_000)


@dataclass(frozen=True, slots=True)
class Taken:
    """One packet that a capture gave."""

    data: bytes
    ts: int
    number: int
    original: int
    link_type: int


def take(capture: Capture, wanted: int, seconds: float = 5.0) -> list[Taken]:
    """What a capture gives until so many packets came, or none comes any more."""
    got: list[Taken] = []
    quiet = time.monotonic() + seconds
    while len(got) < wanted and time.monotonic() < quiet:
        capture.wait(0.1)
        before = len(got)
        got += taken_now(capture)
        if len(got) > before:
            quiet = time.monotonic() + seconds
    return got


def taken_now(capture: Capture) -> list[Taken]:
    return [
        Taken(
            bytes(buffer[row["at"] : row["at"] + row["captured"]]),
            int(row["ts"]), int(row["number"]), int(row["original"]), int(row["link_type"]),
        )
        for buffer, packets, number in capture.blocks()
        for row in packets[:number]
    ]  # fmt: skip


def check_same(got: Sequence[Taken], wanted: Sequence[bytes]) -> None:
    """That these packets came. (What differs is told by number: pytest would compare megabytes for minutes.)"""
    numbers = [n for n, (packet, frame) in enumerate(zip(got, wanted, strict=False)) if packet.data != frame]
    assert numbers[:10] == []
    assert len(got) == len(wanted)


@contextmanager
def capturing(
    names: list[str], expression: str = "", size: int = 64 << 20, by_scapy: bool = False
) -> Iterator[Capture]:
    with closing(open_capture(names, expression, size, by_scapy=by_scapy)) as capture:
        yield capture


def packets(number: int, port: int, length: int | None = None) -> list[bytes]:
    """IP packets of one TCP connection, of all lengths that fit a frame (or one), of bytes that are never the same."""
    chance = random.Random(port)
    sizes = (length or chance.randrange(1460) for _ in range(number))
    return [
        tcp_packet(Segment(START_NS, ("10.9.8.7", port), ("10.9.8.6", port), n, 1, PSH | ACK, chance.randbytes(size)))
        for n, size in enumerate(sizes)
    ]


@both_ways
def test_packets_come_byte_for_byte(by_scapy: bool) -> None:
    port = next(_ports)
    frames = [on_link(ip) for ip in packets(400, port)]
    v6 = tcp_packet(Segment(START_NS, ("fd00::1", port), ("fd00::2", port), 1, 1, ACK, b"six"))
    frames += [on_link(v6), b"\2\0\0\0\0\2\2\0\0\0\0\1\x88\xb5" + b"not IP" * 10]
    with (
        network.veth_pair() as veth,
        capturing([veth.far], by_scapy=by_scapy) as capture,
        network.Wire(veth.near) as wire,
    ):
        began = time.time_ns()
        wire.send(frames)
        ended = time.time_ns()
        got = take(capture, len(frames))
        assert capture.counters() == (len(frames), 0)
    check_same(got, frames)
    assert [packet.number for packet in got] == list(range(1, len(frames) + 1))
    times = [packet.ts for packet in got]
    if not by_scapy:  # (Linux begins to stamp a moment after such a socket asks for it: until then when it is read.)
        assert times == sorted(times)
        assert times[-1] <= ended
    assert min(times) >= began - 1000  # scapy's floating point is not exact
    assert max(times) <= time.time_ns() + 1000
    assert {packet.link_type for packet in got} == {ETHERNET}
    assert all(packet.original == len(packet.data) for packet in got)


@both_ways
def test_vlan_tags_are_where_they_were(by_scapy: bool) -> None:
    """The kernel takes a tag out of what arrives; a capture has it again."""
    one, two = next(_ports), next(_ports)
    frames = [on_link(ip, vlans=[5]) for ip in packets(50, one)]
    frames += [on_link(ip, vlans=[0x6123, 7]) for ip in packets(50, two)]
    with (
        network.veth_pair(mtu=1600) as veth,
        capturing([veth.far], by_scapy=by_scapy) as capture,
        network.Wire(veth.near) as wire,
    ):
        wire.send(frames)
        got = take(capture, len(frames))
    check_same(got, frames)
    assert all(packet.original == len(packet.data) for packet in got)


def test_the_filter_sees_what_is_tagged() -> None:
    """By its default, too: where the kernel filters, the tag is taken out already."""
    port = next(_ports)
    frames = [on_link(ip, vlans=[5]) for ip in packets(10, port)]
    with network.veth_pair() as veth, capturing([veth.far], "tcp") as capture, network.Wire(veth.near) as wire:
        wire.send([b"\2\0\0\0\0\2\2\0\0\0\0\1\x88\xb5" + b"not IP" * 10, *frames])
        got = take(capture, len(frames))
    check_same(got, frames)


@both_ways
@pytest.mark.parametrize("by_tcpdump", [False, True], ids=["libpcap", "tcpdump"])
def test_filters_may_ask_for_tags(by_scapy: bool, by_tcpdump: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if by_tcpdump:
        monkeypatch.setattr(capture_filter, "_libpcap", lambda: None)
    port = next(_ports)
    sent = packets(10, port)
    frames = [[on_link(ip, vlans=tags) for ip in sent] for tags in ([], [5], [6])]
    with (
        network.veth_pair() as veth,
        capturing([veth.far], f"vlan 5 and tcp port {port}", by_scapy=by_scapy) as capture,
        network.Wire(veth.near) as wire,
    ):
        wire.send([*frames[0], *frames[2], *frames[1]])
        check_same(take(capture, 10), frames[1])
        assert capture.counters() == (10, 0)


@both_ways
def test_counts_begin_with_the_interface(by_scapy: bool) -> None:
    """Whatever passes on others while a capture is opened."""
    over = threading.Event()

    def chatter() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as link:
            link.bind(("127.0.0.1", 0))
            while not over.is_set():
                link.sendto(b"nobody reads this", link.getsockname())

    thread = threading.Thread(target=chatter)
    thread.start()
    try:
        with network.veth_pair() as veth:
            for _ in range(10):
                with capturing([veth.far], "udp", size=4 << 20, by_scapy=by_scapy) as capture:
                    assert capture.counters() == (0, 0)
    finally:
        over.set()
        thread.join()


def test_any_gives_every_interface_without_its_link_layer() -> None:
    """Both ends of a pair see a packet; what is not IP is told apart."""
    port = next(_ports)
    sent = packets(100, port, 800)
    with (
        network.veth_pair() as veth,
        capturing(["any"], f"tcp port {port}") as capture,
        network.Wire(veth.near) as wire,
    ):
        wire.send([on_link(ip) for ip in sent])
        got = take(capture, 2 * len(sent))
    check_same(sorted(got, key=lambda packet: packet.data), sorted(2 * sent))
    assert {packet.link_type for packet in got} == {RAW}


def test_any_by_scapy_is_every_interface_that_is_up() -> None:
    port = next(_ports)
    sent = [on_link(ip) for ip in packets(100, port, 800)]
    with (
        network.veth_pair() as veth,
        capturing(["any"], f"tcp port {port}", by_scapy=True) as capture,
        network.Wire(veth.near) as wire,
    ):
        assert {veth.near, veth.far, "lo"} <= set(capture.names)
        wire.send(sent)
        got = take(capture, 2 * len(sent))
    check_same(sorted(got, key=lambda packet: packet.data), sorted(2 * sent))


@both_ways
def test_interfaces_are_one_sequence_in_order_of_time(by_scapy: bool) -> None:
    ports = [next(_ports), next(_ports)]
    sent = [[on_link(ip) for ip in packets(300, port, 200)] for port in ports]
    with (
        network.veth_pair() as first,
        network.veth_pair() as second,
        capturing([first.far, second.far], by_scapy=by_scapy) as capture,
        network.Wire(first.near) as one,
        network.Wire(second.near) as two,
    ):
        for left, right in zip(*sent, strict=True):
            one.send([left])
            two.send([right])
        if not by_scapy:
            time.sleep(0.2)  # a ring gives its packets when its block is over: both together
        got = take(capture, 600)
    assert [packet.number for packet in got] == list(range(1, 601))
    for port, frames in zip(ports, sent, strict=True):
        mark = struct.pack("!H", port)
        check_same([packet for packet in got if packet.data[34:36] == mark], frames)
    times = np.array([packet.ts for packet in got])
    assert np.diff(times).min() >= -10_000_000  # runs of one interface go on for so long (merge.SLACK_NS)


@both_ways
def test_loopback_comes_once_and_large(by_scapy: bool) -> None:
    """Segments as large as loopback makes them; each is seen on its way out and in, and counts once."""
    sent = random.Random(1).randbytes(6 << 20)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with capturing(["lo"], f"tcp port {port}", by_scapy=by_scapy) as capture:
            talking = threading.Thread(target=_send_all, args=(port, sent))
            talking.start()
            connection, _ = server.accept()
            got: list[Taken] = []
            with connection:
                left = len(sent)
                while left:
                    left -= len(connection.recv(1 << 20))
                    got += taken_now(capture)
            talking.join(10)
            time.sleep(0.1)
            got += take(capture, 1 << 30, 0.3)
            seen, dropped = capture.counters()
    assert dropped == 0
    assert len({packet.data for packet in got}) == len(got)  # even what is sent again has an IP id of its own
    assert all(packet.original == len(packet.data) for packet in got)
    as_sent = _stream_to(port, got, len(sent)) == sent
    assert as_sent
    assert max(packet.original for packet in got) > 40_000
    if not by_scapy:
        assert seen == len(got)


def _stream_to(port: int, got: list[Taken], length: int) -> bytes:
    """What was sent to a port, by sequence numbers: two processors may give packets in another order."""
    stream, start = bytearray(length), 0
    for packet in got:
        source, _, seq = struct.unpack_from("!HHI", packet.data, 34)
        if source != port:
            if packet.data[47] & SYN:
                start = seq + 1
            payload = packet.data[34 + (packet.data[46] >> 4) * 4 :]
            at = (seq - start) % 2**32
            if payload:
                stream[at : at + len(payload)] = payload
    return bytes(stream)


def _send_all(port: int, data: bytes) -> None:
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(data)


@both_ways
def test_what_is_not_taken_in_time_is_counted(by_scapy: bool) -> None:
    """More packets than there is room for: those that come are the first, and the others are known by number."""
    port = next(_ports)
    frames = [on_link(ip) for ip in packets(4_000, port, 1_400)]
    with (
        network.veth_pair() as veth,
        capturing([veth.far], size=2 << 20, by_scapy=by_scapy) as capture,
        network.Wire(veth.near) as wire,
    ):
        wire.send(frames)
        got = take(capture, len(frames), 0.5)
        seen, dropped = capture.counters()
        assert (seen, dropped) == (len(frames), len(frames) - len(got))
        assert 0 < len(got) < len(frames)
        check_same(got, frames[: len(got)])
        wire.send(frames[:10])
        check_same(take(capture, 10), frames[:10])
        assert capture.counters() == (seen + 10, dropped)


def test_the_ring_goes_round() -> None:
    """Ten times what it holds, taken while it comes, and few packets at once: none is lost, none comes twice."""
    port = next(_ports)
    frames = [on_link(ip) for ip in packets(16_000, port, 1_200)]
    with (
        network.veth_pair() as veth,
        capturing([veth.far], size=4 << 20) as capture,
        network.Wire(veth.near) as wire,
    ):
        (ring,) = capture.taps
        assert isinstance(ring, Ring)
        ring.packets = ring.packets[:333]
        got: list[Taken] = []
        for start in range(0, len(frames), 500):
            wire.send(frames[start : start + 500])
            while len(got) < start + 500:  # else slow sending would fill all blocks, each with little
                capture.wait(0.1)
                got += taken_now(capture)
        assert capture.counters() == (len(frames), 0)
    check_same(got, frames)
    assert [packet.number for packet in got] == list(range(1, len(frames) + 1))


def test_what_waits_is_told_in_bytes() -> None:
    """A ring that nobody reads for a while: its blocks are given up one by one with little in them."""
    port = next(_ports)
    frames = [on_link(ip) for ip in packets(600, port, 1_400)]
    with (
        network.veth_pair() as veth,
        capturing([veth.far], size=16 << 20) as capture,
        network.Wire(veth.near) as wire,
    ):
        for start in range(3):
            wire.send(frames[start : start + 1])
            time.sleep(0.15)  # longer than a block waits for more
        assert 0 < capture.backlog < 0.01
        wire.send(frames[3:])
        wait_for(lambda: capture.backlog > 0.04, 10, lambda: f"{capture.backlog}")
        assert capture.backlog < 0.1
        check_same(take(capture, len(frames)), frames)
        assert capture.backlog == 0


@both_ways
def test_what_was_not_read_at_the_end_is_counted(by_scapy: bool) -> None:
    """Sent is read, and dropped, and not read; nothing comes any more once it is stopped."""
    port = next(_ports)
    sent = [on_link(ip) for ip in packets(12_000, port, 900)]
    with (
        network.veth_pair() as veth,
        capturing([veth.far], size=6 << 20, by_scapy=by_scapy) as capture,
        network.Wire(veth.near) as wire,
    ):
        wire.send(sent[:5_000])
        read = sum(number for _, _, number in capture.blocks())
        wire.send(sent[5_000:])
        wait_for(lambda: capture.counters()[0] == len(sent), 10, lambda: f"{capture.counters()}")
        capture.stop()
        wire.send(sent[:100])
        time.sleep(0.2)
        seen, dropped = capture.counters()
        assert seen == len(sent) == read + dropped + capture.unread()
        assert dropped > 0
        assert capture.unread() > 0
        read += len(take(capture, len(sent), 0.5))
        assert (read, capture.unread()) == (len(sent) - dropped, 0)


def test_packets_sent_before_the_end_are_read_or_counted() -> None:
    """A burst, and the end right behind it."""
    sent = [on_link(ip) for ip in packets(40_000, next(_ports), 700)]
    with (
        network.veth_pair() as veth,
        Live("-i", veth.far, "--json", "--buffer-size", "16m", "--nice", "19") as live,
        network.Wire(veth.near) as wire,
    ):
        live.wait_ready()
        wire.send(sent)
        done = live.end(seconds=60)
    told = json.loads(done.out)["capture"]
    assert told["packets"] + told["drops"] == len(sent)
