"""Every form of capture, link layer and IP header gives the same exchanges."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.captures import (
    ETHERNET,
    IPV4,
    IPV6,
    LOOP,
    NULL,
    RAW,
    SLL,
    SLL2,
    Interface,
    Packet,
    block,
    every_form,
    pcap_bytes,
    pcapng_bytes,
    write_capture,
)
from tests.support.split_plans import planned_splits
from tests.support.tcp import encode, on_link, tcp_packet
from tests.wire.harness import assert_same, check, decode_capture, decode_files, decode_packets
from tests.wire.kafkatalk import KafkaTalk, add_exchanges, assert_exchanges, small_talk

V6 = {"client": ("2001:db8::1", 40_000), "broker": ("2001:db8::2", 9_092)}
TALK = small_talk(6, mss=100)
PACKETS = encode(TALK.segments)
WHOLE = decode_packets(PACKETS)
#: Sizes that cut records at every kind of place; the reader takes at least a whole record.
BLOCK_SIZES = (1, 24, 25, 40, 97, 1_000, 4_096, 1 << 22)


def test_the_talk_gives_its_exchanges() -> None:
    assert_exchanges(check(PACKETS, splits=1_000), TALK.wanted)


@pytest.mark.parametrize("name", sorted(every_form(PACKETS)))
def test_forms(name: str, tmp_path: Path) -> None:
    data = every_form(PACKETS)[name]
    path = write_capture(tmp_path / name, data)
    for size in BLOCK_SIZES:
        seen = decode_files([path], block_size=size)
        assert_same(seen, WHOLE, size)
        assert seen.files[0].damage is None
        assert seen.files[0].bytes == len(data)


@pytest.mark.parametrize("ending", ["gz", "zst"])
def test_compressed(ending: str, tmp_path: Path) -> None:
    path = write_capture(tmp_path / f"x.pcap.{ending}", pcap_bytes(PACKETS))
    odd_name = tmp_path / "named.otherwise"
    odd_name.write_bytes(path.read_bytes())
    for size in BLOCK_SIZES:
        assert_same(decode_files([path], block_size=size), WHOLE, size)
    assert_same(decode_files([odd_name]), WHOLE)


@pytest.mark.parametrize("order", "<>")
def test_the_modified_pcap(order: str, tmp_path: Path) -> None:
    """Also behind another one (cat), and cut anywhere in a record."""
    data = pcap_bytes(PACKETS, order=order, modified=True)
    path = write_capture(tmp_path / "x.pcap", data)
    for size in BLOCK_SIZES:
        seen = decode_files([path], block_size=size)
        assert_same(seen, WHOLE, size)
        assert (seen.files[0].kind, seen.files[0].damage) == ("pcap (modified)", None)
    half = len(PACKETS) // 2
    parts = [pcap_bytes(p, order=order, modified=True) for p in (PACKETS[:half], PACKETS[half:])]
    assert_same(decode_files([write_capture(tmp_path / "y.pcap", b"".join(parts))]), WHOLE)
    for cut in (len(parts[0]) + 1, len(parts[0]) + 23):
        seen = decode_files([write_capture(tmp_path / "z.pcap", data[:cut])])
        assert seen.files[0].packets == half
        assert "cut short" in str(seen.files[0].damage)
    assert [split.end for split in planned_splits([str(path)], 1000)] == [None]


def test_a_zstd_file_that_is_cut_anywhere_is_cut_short(tmp_path: Path) -> None:
    """Also where its last frame ends behind a whole packet, and before anything is there to decompress."""
    import zstandard

    data = pcap_bytes(PACKETS)
    at = len(pcap_bytes(PACKETS[:5]))
    for checksum in (False, True):
        packer = zstandard.ZstdCompressor(write_checksum=checksum)
        writer = packer.compressobj()
        blocks = [writer.compress(data[:at]), writer.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK), writer.flush()]
        frames = [packer.compress(data[:at]), b"\x50\x2a\x4d\x18\x03\0\0\0abc", packer.compress(data[at:])]
        whole = b"".join(frames)
        seen = decode_files([_written(tmp_path / "whole", whole)])
        assert_same(seen, WHOLE)
        assert seen.files[0].damage is None
        second = len(frames[0]) + len(frames[1])
        for cut in (5, 15, len(frames[0]) - 1, len(frames[0]) + 5, second - 1, second + 9, len(whole) - 1):
            damage = decode_files([_written(tmp_path / "cut", whole[:cut])]).files[0].damage
            assert "cut short" in str(damage), cut
        damage = decode_files([_written(tmp_path / "block", b"".join(blocks[:2]))]).files[0].damage
        assert "the zstd stream is cut short" in str(damage)
        assert decode_files([_written(tmp_path / "none", packer.compress(b""))]).files[0].damage == (
            "the file is empty (0 bytes)"
        )


def _written(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("ending", ["gz", "zst"])
def test_compressed_in_several_members(ending: str, tmp_path: Path) -> None:
    data = pcap_bytes(PACKETS)
    parts = [data[:777], data[777:3_000], data[3_000:]]
    files = [write_capture(tmp_path / f"{n}.{ending}", part).read_bytes() for n, part in enumerate(parts)]
    path = tmp_path / "x"
    path.write_bytes(b"".join(files))
    assert_same(decode_files([path], block_size=500), WHOLE)


@pytest.mark.parametrize("link", [ETHERNET, NULL, RAW, LOOP, SLL, SLL2, IPV4, IPV6])
@pytest.mark.parametrize("family", ["v4", "v6"])
def test_link_types(link: int, family: str) -> None:
    if (link, family) in ((IPV4, "v6"), (IPV6, "v4")):
        return
    talk = small_talk(4, mss=90, **V6) if family == "v6" else small_talk(4, mss=90)
    assert_exchanges(check(encode(talk.segments, link), link), talk.wanted)


@pytest.mark.parametrize("link", [ETHERNET, SLL, SLL2])
@pytest.mark.parametrize("vlans", [(5,), (5, 6)])
def test_vlan_tags(link: int, vlans: Sequence[int]) -> None:
    assert_same(decode_packets(encode(TALK.segments, link, vlans=vlans), link), WHOLE)


def test_null_in_the_other_byte_order() -> None:
    assert_same(decode_packets(encode(TALK.segments, NULL, order=">"), NULL), WHOLE)


def test_other_openbsd_and_raw_numbers() -> None:
    for link in (12, 14):
        assert_same(decode_packets(encode(TALK.segments, RAW), link), WHOLE)


def test_link_type_with_frame_check_sequence_bits() -> None:
    data = bytearray(pcap_bytes(PACKETS, nanoseconds=True))
    data[20:24] = struct.pack("<I", 0x4400_0000 | ETHERNET)
    assert_same(decode_capture(bytes(data)), WHOLE)


def test_mpls_and_pppoe() -> None:
    mpls = b"\x88\x47" + struct.pack("!II", 100 << 12 | 64, 200 << 12 | 1 << 8 | 64)
    pppoe = b"\x88\x64" + struct.pack("!BBHHH", 0x11, 0, 7, 0, 0x21)
    for between in (mpls, pppoe):
        packets = [
            replace(p, data=p.data[:12] + between + tcp_packet(s), original_length=-1)
            for p, s in zip(PACKETS, TALK.segments, strict=True)
        ]
        assert_same(decode_packets(packets), WHOLE)


def test_ipv4_options_and_tcp_options() -> None:
    assert_same(decode_packets(encode(TALK.segments, ip_options=b"\x01" * 12, options=b"\x01" * 4 + bytes(16))), WHOLE)


def test_ipv4_total_length_of_zero() -> None:
    assert_same(decode_packets(encode(TALK.segments, zero_length=True, pad=False)), WHOLE)


@pytest.mark.parametrize("size", [9_000, 65_000, 70_000])
def test_large_segments(size: int) -> None:
    """Segmentation offload: IPv4's total length is 0 where the packet is longer than 16 bits can say."""
    talk = KafkaTalk(mss=size)
    talk.tcp.open()
    asked = talk.request(3, 4, 1, Topics=[{"Name": f"topic-{n:05}"} for n in range(size * 2 // 13)])
    talk.respond(asked, Topics=[{"Name": f"topic-{n:05}"} for n in range(size * 2 // 22)])
    talk.tcp.close()
    seen = check(encode(talk.segments, zero_length=size > 65_000, pad=False))
    assert_exchanges(seen, talk.wanted)
    assert seen.exchanges[0]["response_status"] == "ok"


def test_ipv6_jumbo_length_of_zero() -> None:
    talk = small_talk(3, mss=90, **V6)
    packets = []
    for packet in encode(talk.segments):
        data = bytearray(packet.data)
        data[18:20] = b"\0\0"
        packets.append(replace(packet, data=bytes(data)))
    assert_exchanges(decode_packets(packets), talk.wanted)


def _with_extensions(talk: KafkaTalk, extensions: bytes, first: int) -> list[Packet]:
    packets = []
    for s in talk.segments:
        ip = tcp_packet(s)
        length = struct.unpack_from("!H", ip, 4)[0] + len(extensions)
        head = ip[:4] + struct.pack("!HB", length, first) + ip[7:40]
        packets.append(Packet(s.time_ns, on_link(head + extensions + ip[40:])))
    return packets


@pytest.mark.parametrize(
    ("first", "extensions"),
    [
        (0, b"\x06\0" + b"\1\4\0\0\0\0"),
        (60, b"\x06\1" + bytes(14)),
        (43, b"\x06\2\0\0" + bytes(20)),
        (51, b"\x06\4" + bytes(22)),
        (0, b"\x3c\0" + bytes(6) + b"\x2b\0" + bytes(6) + b"\x06\0" + bytes(6)),
    ],
    ids=["hop-by-hop", "destination", "routing", "authentication", "three"],
)
def test_ipv6_extension_headers(first: int, extensions: bytes) -> None:
    talk = small_talk(3, mss=90, **V6)
    assert_exchanges(decode_packets(_with_extensions(talk, extensions, first)), talk.wanted)


def test_ipv6_fragments_are_counted() -> None:
    talk = small_talk(3, **V6)
    seen = decode_packets(_with_extensions(talk, b"\x06\0\0\1\0\0\0\7", 44))
    assert not seen.exchanges
    assert seen.ledger["packets"]["fragment"] == len(talk.segments)


def test_an_atomic_fragment_is_a_whole_packet() -> None:
    """Offset 0 and no more fragments (RFC 6946): some hosts send every packet so."""
    talk = small_talk(3, **V6)
    assert_exchanges(decode_packets(_with_extensions(talk, b"\x06\0\0\0\0\0\0\7", 44)), talk.wanted)


def test_padding_is_no_payload() -> None:
    talk = KafkaTalk(mss=3, acks=False)
    talk.tcp.open()
    add_exchanges(talk, 2)
    talk.tcp.close()
    packets = [replace(p, data=p.data.ljust(90, b"\xee"), original_length=90) for p in encode(talk.segments)]
    assert_exchanges(check(packets), talk.wanted)


def test_captured_longer_than_original() -> None:
    """Seen in a cooked capture: 16 bytes more than the length on the wire."""
    packets = encode(TALK.segments, SLL)
    longer = [replace(p, data=p.data + b"\xee" * 16, original_length=len(p.data)) for p in packets]
    assert_same(decode_packets(longer, SLL), WHOLE)
    shorter = [replace(p, original_length=max(0, len(p.data) - 16)) for p in packets]
    assert_same(decode_packets(shorter, SLL), WHOLE)


@pytest.mark.parametrize("snap_length", [96, 110, 128, 150])
@pytest.mark.parametrize("mss", [60, 100, 1448])
def test_snap_length_keeps_headers_and_times(snap_length: int, mss: int) -> None:
    """Headers of messages are there (54 bytes of packet headers, 12 and more of message); so are sizes and times."""
    talk = small_talk(6, mss=mss)
    packets = encode(talk.segments, snap_length=snap_length)
    seen = check(packets)
    body = sum(max(0, p.wire_length - max(60, len(p.data))) for p in packets)
    assert (body > 0) == (len(max(packets, key=lambda p: p.wire_length).data) < max(p.wire_length for p in packets))
    assert_exchanges(seen, talk.wanted)
    assert {x["request_status"] for x in seen.exchanges} <= {"ok", "incomplete"}


def test_snap_length_without_payload() -> None:
    seen = check(encode(TALK.segments, snap_length=54))
    assert not seen.exchanges
    seen = check(encode(TALK.segments, snap_length=40))
    assert seen.ledger["packets"]["headers_not_captured"] == len(PACKETS)


def test_other_packets_are_counted() -> None:
    arp = Packet(PACKETS[0].time_ns, b"\xff" * 12 + b"\x08\x06" + bytes(46))
    udp = bytearray(PACKETS[4].data)
    udp[23] = 17
    fragment = bytearray(PACKETS[4].data)
    fragment[20:22] = b"\x20\0"
    short = Packet(PACKETS[0].time_ns, PACKETS[0].data[:13])
    empty = Packet(PACKETS[0].time_ns, b"")
    bad = bytearray(PACKETS[4].data)
    bad[46] = 0x10
    extra = [arp, replace(PACKETS[4], data=bytes(udp)), replace(PACKETS[4], data=bytes(fragment)), short, empty]
    extra.append(replace(PACKETS[4], data=bytes(bad)))
    mixed = PACKETS[:5] + extra + PACKETS[5:]
    seen = check(mixed)
    assert_exchanges(seen, TALK.wanted)
    counts = {name: count for name, count in seen.ledger["packets"].items() if count}
    assert counts == {
        "tcp": len(PACKETS), "not_ip": 1, "not_tcp": 1, "fragment": 1, "headers_not_captured": 2, "bad_header": 1,
        "total": len(mixed),
    }  # fmt: skip


def test_unknown_link_type() -> None:
    seen = decode_packets(PACKETS, 147)
    assert seen.ledger["packets"]["unknown_link_type"] == len(PACKETS)


def test_interfaces_of_different_links_and_resolutions(tmp_path: Path) -> None:
    links = [Interface(ETHERNET, 6), Interface(SLL2, 9, 77, name="any"), Interface(RAW, None)]
    forms = [encode(TALK.segments, i.link_type) for i in links]
    packets = [replace(forms[n % 3][n], interface=n % 3) for n in range(len(PACKETS))]
    for order in "<>":
        path = write_capture(tmp_path / "x.pcapng", pcapng_bytes(packets, links, order=order))
        for size in BLOCK_SIZES:
            assert_same(decode_files([path], block_size=size), WHOLE, size)


@pytest.mark.parametrize(
    ("resolution", "offset"), [(0x80 | 30, 0), (0x80 | 20, 0), (3, 0), (7, 0), (12, 1_704_000_000), (9, -86_400)]
)
def test_resolutions(resolution: int, offset: int) -> None:
    interface = Interface(ETHERNET, resolution, offset)
    seen = decode_capture(pcapng_bytes(PACKETS, [interface]))
    unit = 10**9 / interface.units_per_second
    assert len(seen.exchanges) == len(TALK.wanted)
    for x in seen.exchanges:
        [row] = [row for row in TALK.wanted if row["correlation_id"] == x["correlation_id"]]
        assert 0 <= row["request_first"] - x["request_first"] <= unit + 1
        assert 0 <= row["response_last"] - x["response_last"] <= unit + 1


@pytest.mark.parametrize("resolution", [0, 6, 9, 0x80 | 1])
@pytest.mark.parametrize("ticks", [1 << 62, -(1 << 62)])
def test_times_far_beyond_the_epoch(resolution: int, ticks: int) -> None:
    """A wrong clock of an interface: times count as 136 years from the epoch, and parts of exchanges still add up."""
    links = [Interface(ETHERNET, 9), Interface(ETHERNET, resolution)]
    far = ticks % (1 << 64) * 10**9 // links[1].units_per_second
    packets = [p if n % 3 else replace(p, time_ns=far, interface=1) for n, p in enumerate(PACKETS)]
    seen = decode_capture(pcapng_bytes(packets, links))
    times = {x[name] for x in seen.exchanges for name in ("request_first", "response_last")}
    assert {time for time in times if abs(time) > 3 * 10**18} == {(1 if ticks > 0 else -1) * 0xFFFFFFFF * 10**9}


def test_several_sections(tmp_path: Path) -> None:
    """Interfaces are numbered anew in each section, whose byte order may differ."""
    data = b"".join(
        pcapng_bytes(
            [replace(p, interface=1) for p in PACKETS[n::1][:9]], [Interface(SLL), Interface(ETHERNET, 9)], order=order
        )
        for n, order in zip(range(0, len(PACKETS), 9), "<><><><><><><>", strict=False)
    )
    path = write_capture(tmp_path / "x.pcapng", data)
    for size in BLOCK_SIZES:
        assert_same(decode_files([path], block_size=size), WHOLE, size)


def test_blocks_that_say_nothing_of_packets() -> None:
    data = pcapng_bytes(PACKETS)
    names = block(4, b"\0\0\0\0")
    custom = block(0x0BAD, b"\1\2\3\4" + b"anything at all")
    first = len(pcapng_bytes([]))
    assert_same(decode_capture(data[:first] + names + custom + data[first:] + custom), WHOLE)


def test_simple_packets_have_no_time() -> None:
    seen = decode_capture(pcapng_bytes(PACKETS, simple=True))
    assert len(seen.exchanges) == len(TALK.wanted)
    assert {x["request_first"] for x in seen.exchanges} == {0}


def test_obsolete_packet_blocks() -> None:
    data = pcapng_bytes([])
    for p in PACKETS:
        units = p.time_ns // 1000
        head = struct.pack("<HHIIII", 0, 0, units >> 32, units & 0xFFFFFFFF, len(p.data), p.wire_length)
        data += block(2, head + p.data)
    assert_same(decode_capture(data), WHOLE)


def test_drops_that_the_capture_tells(tmp_path: Path) -> None:
    interfaces = [Interface(ETHERNET, 9, drops=3), Interface(ETHERNET, 6, drops=40)]
    path = write_capture(tmp_path / "x.pcapng", pcapng_bytes(PACKETS, interfaces))
    seen = decode_files([path])
    assert seen.files[0].drops == 43
    assert_same(seen, WHOLE)


def test_many_interfaces(tmp_path: Path) -> None:
    interfaces = [Interface(RAW, 6, name="x" * n) for n in range(70)] + [Interface(ETHERNET, 9)]
    data = pcapng_bytes([replace(p, interface=70) for p in PACKETS], interfaces)
    path = write_capture(tmp_path / "x.pcapng", data)
    for size in BLOCK_SIZES:
        assert_same(decode_files([path], block_size=size), WHOLE, size)


@pytest.mark.parametrize("form", ["pcap-us-little.pcap", "ng-ns-big.pcapng"])
def test_cut_short_at_any_byte(form: str, tmp_path: Path) -> None:
    """What was whole before the cut is reported, and the cut is told unless it is between two records."""
    ends = [len(every_form(PACKETS[:count])[form]) for count in range(10)]
    data = every_form(PACKETS[:9])[form]
    path = tmp_path / "x"
    for size in [*range(len(data) - 250, len(data), 3), len(data)]:
        path.write_bytes(data[:size])
        seen = decode_files([path], block_size=1 << 16)
        assert seen.packets == sum(end <= size for end in ends) - 1
        assert_same(seen, decode_packets(PACKETS[: seen.packets]), size)
        assert (seen.files[0].damage is None) == (size in ends), size


@pytest.mark.parametrize(
    ("at", "value"), [(4, 0), (4, 13), (4, 8), (4, 1 << 30), (4, 0xFFFFFFFF)], ids=["0", "odd", "8", "1g", "4g"]
)
def test_damaged_block_lengths(at: int, value: int, tmp_path: Path) -> None:
    before = pcapng_bytes(PACKETS[:12])
    bad = bytearray(block(6, bytes(40)))
    bad[at : at + 4] = struct.pack("<I", value)
    path = write_capture(tmp_path / "x.pcapng", before + bytes(bad) + bytes(5_000))
    for size in BLOCK_SIZES:
        seen = decode_files([path], block_size=size)
        assert_same(seen, decode_packets(PACKETS[:12]), size)
        damage = seen.files[0].damage
        assert damage is not None
        assert str(len(before)) in damage


@pytest.mark.parametrize("captured", [262_145, 1 << 31, 0xFFFFFFFF])
@pytest.mark.parametrize("order", "<>")
def test_damaged_record_lengths(captured: int, order: str, tmp_path: Path) -> None:
    before = pcap_bytes(PACKETS[:12], order=order)
    path = write_capture(tmp_path / "x.pcap", before + struct.pack(order + "IIII", 1, 2, captured, 60) + bytes(5_000))
    for size in BLOCK_SIZES:
        seen = decode_files([path], block_size=size)
        assert_same(seen, decode_packets(PACKETS[:12]), size)
        damage = seen.files[0].damage
        assert damage is not None
        assert str(len(before)) in damage
