"""Tunnels, link layers and IP fragments: a capture inside of them has the exchanges of the plain one."""

from __future__ import annotations

import shutil
import struct
import subprocess
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise, permutations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkatap.reassembly import dtypes
from kafkatap.reassembly.assembler import Assembler
from kafkatap.reassembly.dtypes import CHUNK_DATA
from kafkatap.reassembly.fragments import COPIES_NS, DATAGRAMS, MAX_AGE_NS, REUSED_NS
from kafkatap.reassembly.headers import read_segment
from kafkatap.reassembly.inner_packets import IP_LEVELS, Inner, read_inner
from kafkatap.reassembly.link_types import LOOP, NULL, RAW, RAW_BSD, RAW_IPV4, RAW_IPV6, RAW_OPENBSD, READ
from kafkatap.reassembly.packet_counts import NOT_IP, NOT_TCP, TCP
from kafkatap.reassembly.packet_tables import PacketTables
from tests.support.captures import ETHERNET, Interface, Packet, pcap_bytes, pcapng_bytes, read_capture, write_capture
from tests.support.encapsulation import KINDS, encapsulate, fragment, ip_offset
from tests.support.sweeps import examples
from tests.support.tcp import ACK, PSH, START_NS, Segment, encode, on_link, tcp_packet
from tests.wire import two_paths
from tests.wire.harness import Decoded, check, decode_files, decode_packets
from tests.wire.kafkatalk import small_talk
from tests.wire.two_paths import Streams, assert_same_streams, in_one_pass

SAMPLES = Path(__file__).resolve().parents[2] / "samples"

PACKETS = encode(small_talk(6, mss=100).segments)
WHOLE = decode_packets(PACKETS)
PACKETS_V6 = encode(small_talk(6, mss=100, client=("2001:db8::1", 40_000), broker=("2001:db8::2", 9_092)).segments)
WHOLE_V6 = decode_packets(PACKETS_V6)


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

    plain = PACKETS if family == "v4" else PACKETS_V6
    for before, packet in zip(plain[3:6], encapsulate(plain, kind)[3:6], strict=True):
        assert KINDS[kind].link_type == ETHERNET
        found = _scapy_frame(packet).getlayer(TCP)
        wanted = _scapy_frame(before).getlayer(TCP)
        assert found is not None, _scapy_frame(packet).summary()
        assert (found.sport, found.dport, found.seq) == (wanted.sport, wanted.dport, wanted.seq)


#: Kinds that tshark does not read without settings: Ethernet behind MPLS, two link types, NFLOG in big-endian.
NOT_BY_TSHARK = {"pseudowire", "mpls link", "ppp of pppd", "nflog in big-endian"}


@pytest.mark.skipif(shutil.which("tshark") is None, reason="needs the program tshark, which is not installed")
def test_tshark_reads_the_crafted_layers(tmp_path: Path) -> None:
    """All kinds in one capture, each with a port of its own. Both find all packets, and all exchanges are found."""
    links = sorted({kind.link_type for kind in KINDS.values()})
    packets, ports = [], {}
    for number, (name, kind) in enumerate(KINDS.items()):
        client, broker = (("10.0.0.1", "10.0.0.2"), ("2001:db8::1", "2001:db8::2"))[number % 2]
        ports[30_000 + number] = name
        talk = small_talk(6, mss=100, client=(client, 30_000 + number), broker=(broker, 9_092))
        made = encapsulate(encode(talk.segments), name)
        if kind.link_type == ETHERNET and number % 3 == 0:
            made = fragment(made, 100, "shuffled", number=100 * number)
        packets += [replace(packet, interface=links.index(kind.link_type)) for packet in made]
    data = pcapng_bytes(packets, [Interface(link, 9) for link in links])
    path = write_capture(tmp_path / "all.pcapng", data)
    command = ["tshark", "-r", str(path), "-d", "udp.port==8472,vxlan", "-T", "fields", "-E", "occurrence=l"]
    command += ["-e", "tcp.srcport", "-e", "tcp.dstport"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.splitlines()
    found = Counter(max(map(int, line.split())) for line in lines if line.strip())
    assert {port: found[port] for port in ports} == {
        port: 0 if name in NOT_BY_TSHARK else len(PACKETS) for port, name in ports.items()
    }
    seen = decode_files([path])
    assert Counter(x["client_port"] for x in seen.exchanges) == dict.fromkeys(ports, len(WHOLE.exchanges))


@pytest.mark.parametrize("family", ["v4", "v6"])
@pytest.mark.parametrize("order", ["forward", "reverse", "shuffled"])
def test_scapy_reassembles_the_crafted_fragments(family: str, order: str) -> None:
    from scapy.layers.inet import TCP, defragment
    from scapy.layers.inet6 import IPv6, defragment6
    from scapy.layers.l2 import Ether

    plain = encode(small_talk(6, mss=400).segments) if family == "v4" else PACKETS_V6
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


def _assert_same_exchanges(packets: list[Packet], link_type: int, wanted: Decoded) -> Decoded:
    """Pass the packets to the engine in runs of many lengths. What does not depend on packets' headers is the same."""
    seen = check(packets, link_type)
    assert seen.exchanges == wanted.exchanges
    assert {**seen.ledger, "packets": None, "tunnels": None} == {**wanted.ledger, "packets": None, "tunnels": None}
    return seen


@pytest.mark.parametrize("kind", sorted(KINDS))
@pytest.mark.parametrize("family", ["v4", "v6"])
def test_encapsulated(kind: str, family: str) -> None:
    plain, wanted = (PACKETS, WHOLE) if family == "v4" else (PACKETS_V6, WHOLE_V6)
    seen = _assert_same_exchanges(encapsulate(plain, kind), KINDS[kind].link_type, wanted)
    assert seen.ledger["packets"]["tcp"] == seen.ledger["packets"]["total"] == len(plain)
    name = KINDS[kind].tunnel
    assert _tunnels(seen) == ({name: len(plain), "total": len(plain)} if name else {})


def _tunnels(seen: Decoded) -> dict[str, int]:
    return {name: count for name, count in seen.ledger.get("tunnels", {}).items() if count}


@pytest.mark.parametrize("family", ["v4", "v6"])
@pytest.mark.parametrize("order", ["forward", "reverse", "shuffled"])
def test_fragments(family: str, order: str) -> None:
    """Times and packets are those of the fragments that complete datagrams."""
    plain, wanted = (PACKETS, WHOLE) if family == "v4" else (PACKETS_V6, WHOLE_V6)
    pieces = fragment(plain, 68, order, seed=7)
    assert len(pieces) > 1.5 * len(plain)
    seen = check(pieces)
    assert _without_packets(seen.exchanges) == _without_packets(wanted.exchanges)
    assert seen.ledger["packets"]["tcp"] == len(pieces)
    assert seen.ledger["packets"]["fragment"] == 0


def _without_packets(rows: list[dict[str, object]]) -> list[dict[str, object]]:
    return [{name: value for name, value in row.items() if "packet" not in name} for row in rows]


# ---------------------------------------------------------------- fragments


def _pieces(
    payload: bytes, number: int = 7, *, time_ns: int = START_NS, cuts: Sequence[int] = (24, 48)
) -> list[Packet]:
    """A TCP segment with this payload, as IP fragments cut at these bytes of its TCP part."""
    whole = tcp_packet(Segment(START_NS, ("10.0.0.1", 40_000), ("10.0.0.2", 9_092), 1, 1, ACK | PSH, payload))
    tcp = whole[20:]
    return [
        Packet(time_ns, on_link(_ip_fragment(whole, number, tcp[first:end], first, end == len(tcp)), pad=False))
        for first, end in pairwise((0, *cuts, len(tcp)))
    ]


def _ip_fragment(whole: bytes, number: int, data: bytes, offset: int, is_last: bool) -> bytes:
    fields = struct.pack("!HHH", 20 + len(data), number, offset // 8 | (0 if is_last else 0x2000))
    return whole[:2] + fields + whole[8:20] + data


def _assembled(packets: Sequence[Packet], path: Path, link_type: int = ETHERNET) -> Streams:
    """What both ways of reassembly make of packets, in blocks of some sizes."""
    write_capture(path, pcap_bytes(packets, link_type, nanoseconds=True))
    for size in (1, 500, 1 << 20):
        seen, _ = assert_same_streams(path, size)
    return seen


def _data(seen: Streams) -> list[bytes]:
    return [chunk[-1] for chunks in seen.chunks.values() for chunk in chunks if chunk[0] == CHUNK_DATA]


@pytest.mark.parametrize("order", sorted(permutations(range(3))))
def test_fragments_in_any_order(order: tuple[int, ...], tmp_path: Path) -> None:
    payload = bytes(range(60))
    pieces = _pieces(payload)
    seen = _assembled([pieces[n] for n in order], tmp_path / "x.pcap")
    assert _data(seen) == [payload]
    assert seen.counts["tcp"] == 3


def test_the_first_bytes_of_overlapping_fragments_win(tmp_path: Path) -> None:
    first, others = _pieces(b"a" * 60, cuts=(40,)), _pieces(b"b" * 60, cuts=(24, 48))
    seen = _assembled([first[0], *others], tmp_path / "x.pcap")
    assert _data(seen) == [b"a" * 20 + b"b" * 40]


def test_fragments_that_contradict_each_other(tmp_path: Path) -> None:
    """A last fragment that ends before what is known, or behind it, is ignored; it counts with its datagram."""
    whole = _pieces(b"a" * 60)
    shorter = _pieces(b"a" * 28, cuts=(24, 40))[2]
    longer = _pieces(b"b" * 900, cuts=(24, 80, 800))
    seen = _assembled([whole[0], whole[2], shorter, longer[2], whole[1]], tmp_path / "x.pcap")
    assert _data(seen) == [b"a" * 60]
    assert seen.counts["tcp"] == 5
    seen = _assembled([*whole, shorter], tmp_path / "x.pcap")  # of another datagram: this one is complete
    assert _data(seen) == [b"a" * 60]
    assert (seen.counts["tcp"], seen.counts["fragment"]) == (3, 1)


def test_fragments_seen_at_two_interfaces(tmp_path: Path) -> None:
    """A copy does not begin another datagram, in whatever order it comes."""
    pieces = _pieces(b"a" * 60)
    for packets in ([p for piece in pieces for p in (piece, piece)], pieces + pieces, pieces + pieces[::-1]):
        seen = _assembled(packets, tmp_path / "x.pcap")
        assert _data(seen) == [b"a" * 60]
        assert (seen.counts["tcp"], seen.counts["fragment"]) == (6, 0)


def test_an_identification_is_used_again(tmp_path: Path) -> None:
    """Soon after a datagram was complete, and long after one that never was."""
    first, second = _pieces(b"a" * 60), _pieces(b"a" * 60 + b"b" * 8, cuts=(24, 40, 64))
    for delay in (0, COPIES_NS, COPIES_NS + 1):
        later = [replace(p, time_ns=p.time_ns + delay) for p in second[::-1]]
        assert sorted(_data(_assembled(first + later, tmp_path / "x.pcap"))) == [b"a" * 60, b"b" * 8]
    other = [replace(p, time_ns=p.time_ns + REUSED_NS + 1) for p in _pieces(b"c" * 60)]
    seen = _assembled([*first[:2], *other], tmp_path / "x.pcap")
    assert _data(seen) == [b"c" * 60]
    assert (seen.counts["fragment"], seen.counts["tcp"]) == (2, 3)


def test_old_datagrams_are_dropped(tmp_path: Path) -> None:
    pieces = _pieces(b"a" * 60)
    late = [*pieces[:2], replace(pieces[2], time_ns=START_NS + MAX_AGE_NS + 1)]
    seen = _assembled(late, tmp_path / "x.pcap")
    assert not _data(seen)
    assert seen.counts["fragment"] == 3
    late[2] = replace(pieces[2], time_ns=START_NS + MAX_AGE_NS)
    assert _data(_assembled(late, tmp_path / "x.pcap")) == [b"a" * 60]
    early = [replace(pieces[0], time_ns=START_NS + 10 * MAX_AGE_NS), *pieces[1:]]  # the clock was set back
    assert _data(_assembled(early, tmp_path / "x.pcap")) == [b"a" * 60]


def test_too_many_datagrams_evict_the_oldest(tmp_path: Path) -> None:
    datagrams = [_pieces(b"a" * 60, number) for number in range(DATAGRAMS + 10)]
    packets = [pieces[0] for pieces in datagrams] + [pieces[2] for pieces in datagrams]
    seen = _assembled(packets + [pieces[1] for pieces in datagrams[40:60]], tmp_path / "x.pcap")
    assert seen.counts["evicted_fragment"] > 10
    assert sum(seen.counts.values()) == seen.packets
    few = [pieces[n] for n in range(3) for pieces in datagrams[:DATAGRAMS]]
    seen = _assembled(few, tmp_path / "x.pcap")
    assert (seen.counts["tcp"], seen.counts["evicted_fragment"]) == (3 * DATAGRAMS, 0)


def test_datagrams_of_any_length(tmp_path: Path) -> None:
    """Up to the longest one, and those that would be longer are refused."""
    for length in (1, 7, 8, 9, 1_000, 65_535 - 40):
        payload = bytes(n & 0xFF for n in range(length))
        cuts = tuple(range(8, 20 + length, 1_480)) if length > 2_000 else (8, 16)
        seen = _assembled(_pieces(payload, cuts=cuts), tmp_path / "x.pcap")
        assert _data(seen) == [payload]
    whole = tcp_packet(Segment(START_NS, ("10.0.0.1", 40_000), ("10.0.0.2", 9_092), 1, 1, ACK, b"x" * 60))
    beyond = Packet(START_NS, on_link(_ip_fragment(whole, 7, bytes(16), 8191 * 8, True)))
    odd = Packet(START_NS, on_link(_ip_fragment(whole, 7, bytes(15), 8, False)))
    empty = Packet(START_NS, on_link(_ip_fragment(whole, 7, b"", 8, False)))
    seen = _assembled([beyond, odd, empty], tmp_path / "x.pcap")
    assert (seen.counts["fragment"], _data(seen)) == (3, [])


@pytest.mark.parametrize("snap_length", [60, 74, 80, 90])
def test_fragments_that_are_cut(snap_length: int, tmp_path: Path) -> None:
    """The datagram has the bytes before the first one that is missing. Its length is known."""
    payload = bytes(range(200))
    pieces = [
        replace(p, data=p.data[:snap_length], original_length=len(p.data)) for p in _pieces(payload, cuts=(64, 128))
    ]
    seen = _assembled(pieces[::-1], tmp_path / "x.pcap")
    [chunk] = [chunk for chunks in seen.chunks.values() for chunk in chunks if chunk[0] == CHUNK_DATA]
    kept = snap_length - 14 - 20 - 20
    assert (chunk[4], chunk[5], chunk[-1]) == (200, kept, payload[:kept])


@pytest.mark.parametrize("kind", ["vxlan", "gre over ipv6", "vxlan in vxlan", "ipip in gre in geneve"])
@pytest.mark.parametrize("inner", [0, 60])
def test_tunnels_in_fragments_in_tunnels(kind: str, inner: int, tmp_path: Path) -> None:
    """A tunnel's packets are cut, and those within them too."""
    plain = fragment(PACKETS, inner) if inner else PACKETS
    pieces = fragment(encapsulate(plain, kind), 100, "reverse")
    seen = check(pieces)
    assert _without_packets(seen.exchanges) == _without_packets(WHOLE.exchanges)
    assert seen.ledger["packets"]["tcp"] == len(pieces)
    assert _tunnels(seen) == {KINDS[kind].tunnel: len(pieces), "total": len(pieces)}
    streams = _assembled(pieces, tmp_path / "x.pcap")
    assert streams.counts["tcp"] == len(pieces)


def test_a_sample_in_tunnels_and_fragments(tmp_path: Path) -> None:
    """A real capture gives the exchanges of the plain one, with the same times."""
    capture = read_capture(SAMPLES / "apache-4.3.pcap.zst")
    plain = decode_packets(capture.packets)
    for packets in (
        encapsulate(capture.packets, "vxlan"),
        fragment(capture.packets, 576, "shuffled"),
        fragment(encapsulate(capture.packets, "geneve of ip"), 1_400),
    ):
        seen = decode_packets(packets)
        assert _without_packets(seen.exchanges) == _without_packets(plain.exchanges)


# ---------------------------------------------------------------- link types


def test_link_types_have_names(tmp_path: Path) -> None:
    """Those that are read by name, others also by number; they stop nothing else in a capture of several interfaces."""
    links = [ETHERNET, 105, 127, 189, 254, 147, 65_000]
    packets = [replace(p, interface=n) for p in PACKETS for n in range(len(links))]
    path = write_capture(tmp_path / "x.pcapng", pcapng_bytes(packets, [Interface(link, 9) for link in links]))
    seen = decode_files([path])
    assert seen.exchanges
    assert _without_packets(seen.exchanges) == _without_packets(WHOLE.exchanges)
    assert seen.ledger["packets"]["unknown_link_type"] == len(PACKETS) * (len(links) - 1)
    assert seen.files[0].link_types == (
        "Ethernet", "IEEE 802.11 (link type 105)", "IEEE 802.11 with radiotap (link type 127)",
        "Linux USB (link type 189)", "Bluetooth Linux monitor (link type 254)", "link type 147", "link type 65000",
    )  # fmt: skip


def test_every_link_type_that_is_read_has_a_test() -> None:
    read_here = {kind.link_type for kind in KINDS.values()}
    assert set(READ) - read_here == {NULL, LOOP, RAW, RAW_BSD, RAW_OPENBSD, RAW_IPV4, RAW_IPV6}


# ---------------------------------------------------------------- hostile packets


def _tables() -> PacketTables:
    return Assembler(connections=4)._all_tables


def _read(tables: PacketTables, data: bytes, link_type: int, original: int = -1) -> Inner:
    """Read a packet in plain Python, which raises for an index beyond the packet's bytes."""
    buffer = np.frombuffer(data, np.uint8).copy()
    numbers = (START_NS, 1, 0, len(data), len(data) if original < 0 else original, link_type, 0)
    packet = dtypes.Packet(*map(np.int64, numbers))
    inner = read_inner.function(buffer, packet, tables)
    if inner.category == TCP:
        held = tables.streams.pool if inner.source else buffer
        segment = read_segment.function(held, inner.packet, inner.datagram, inner.source, tables.flows)
        assert segment.captured <= max(0, segment.wire)
        assert segment.captured == 0 or segment.at + segment.captured <= len(held)
    return inner


def _kinds_of_packets() -> list[tuple[bytes, int]]:
    found = []
    for name, kind in sorted(KINDS.items()):
        for plain in (PACKETS, PACKETS_V6):
            large = max(plain, key=lambda p: len(p.data))
            made = encapsulate(fragment([large], 100)[:2], name)
            found += [(packet.data, kind.link_type) for packet in made]
    return found


PLENTY = _kinds_of_packets()


@given(st.data())
@settings(max_examples=examples(120), deadline=None)
def test_no_bytes_make_it_read_beyond_a_packet(data: st.DataObject) -> None:
    """Packets of every kind with damage, in one run, so that their fragments meet."""
    tables = _tables()
    for _ in range(data.draw(st.integers(1, 6))):
        packet, link_type = data.draw(st.sampled_from(PLENTY))
        damaged = bytearray(packet)
        for at, value in data.draw(st.lists(st.tuples(st.integers(0, len(packet) - 1), _ODD_BYTES), max_size=5)):
            damaged[at] = value
        cut = data.draw(st.integers(0, len(packet)) | st.just(len(packet)))
        original = data.draw(st.sampled_from((-1, 0, 1, cut + 1, 65_535, 0x7FFFFFFF)))
        _read(tables, bytes(damaged[:cut]), link_type, original)


_ODD_BYTES = st.sampled_from((0, 1, 4, 6, 8, 17, 0x2F, 0x45, 0x4F, 0x7F, 0x80, 0xFF)) | st.integers(0, 255)


@given(st.sampled_from(sorted(READ)), st.binary(max_size=200))
@settings(max_examples=examples(200), deadline=None)
def test_no_random_bytes_make_it_read_beyond_a_packet(link_type: int, data: bytes) -> None:
    _read(_tables(), data, link_type)


def test_tunnels_for_ever() -> None:
    """The number of layers is bounded, whatever they are; none of these is an endless loop."""
    packet = PACKETS[4]
    tables = _tables()
    for kind in ("ipip", "vxlan", "gre of ethernet", "ipv6 extension headers", "geneve with options", "pseudowire"):
        nested = [packet]
        for _ in range(60):
            nested = encapsulate(nested, kind)
        inner = _read(tables, nested[0].data, ETHERNET)
        assert inner.category in (NOT_TCP, NOT_IP), kind
    for repeated in (b"\x81\0\0\7", b"\x88\x47" + bytes(4) * 17, b"\x65\x58" + bytes(12)):
        data = packet.data[:12] + repeated * 100 + packet.data[12:]
        assert _read(tables, data, ETHERNET).category in (NOT_TCP, NOT_IP)
    nested = [packet]
    for _ in range(IP_LEVELS - 1):
        nested = encapsulate(nested, "ipip")
    assert _read(tables, nested[0].data, ETHERNET).category == TCP


def test_lengths_of_zero_and_lengths_beyond_the_packet() -> None:
    tables = _tables()
    [vxlan], [nflog] = (encapsulate([PACKETS[4]], kind) for kind in ("vxlan", "nflog"))
    for at, value in ((14, b"\x40"), (14, b"\x4f"), (16, b"\xff\xff"), (16, b"\0\x13"), (38, b"\0\0"), (64, b"\x41")):
        damaged = bytearray(vxlan.data)
        damaged[at : at + len(value)] = value
        _read(tables, bytes(damaged), ETHERNET)
    for length in (0, 1, 3, 0xFFFF):
        damaged = bytearray(nflog.data)
        damaged[4:6] = struct.pack("<H", length)
        assert _read(tables, bytes(damaged), KINDS["nflog"].link_type).category != TCP
    for extension in (0, 43, 44, 51, 60, 135):  # chains of extension headers that never end
        chain = bytes((extension, 0, 0, 0, 0, 0, 0, 0)) * 200
        data = on_link(struct.pack("!IHBB", 6 << 28, len(chain), extension, 64) + bytes(32) + chain)
        assert _read(tables, data, ETHERNET).category == NOT_TCP


def test_many_fragments_take_linear_time(tmp_path: Path) -> None:
    """Each begins another datagram at the far end of its slot: all rows are taken and evicted again and again."""
    whole = tcp_packet(Segment(START_NS, ("10.0.0.1", 40_000), ("10.0.0.2", 9_092), 1, 1, ACK, b"x" * 60))
    times = []
    for count in (4_000, 16_000):
        packets = [
            Packet(START_NS + n, on_link(_ip_fragment(whole, n, bytes(8), 8_100 * 8, False))) for n in range(count)
        ]
        path = write_capture(tmp_path / "x.pcap", pcap_bytes(packets))
        begun = time.process_time()
        seen = in_one_pass(path, 1 << 20, two_paths.tables())
        times.append(time.process_time() - begun)
        assert seen.counts["evicted_fragment"] == count - DATAGRAMS
    assert times[1] < 12 * times[0] + 0.2
