"""The tests' own tools: what they write, dpkt and scapy read in the same way, and so do they."""

from __future__ import annotations

import io
import random

import dpkt
import pytest

from tests.support.captures import (
    ETHERNET,
    LOOP,
    NULL,
    RAW,
    SLL,
    SLL2,
    Interface,
    Packet,
    PcapRecords,
    every_form,
    pcap_bytes,
    pcapng_bytes,
    read_capture,
    write_capture,
)
from tests.support.tcp import TcpConversation, encode, merge, move, request_frame, retransmit, shake, split_small


def talk(client: str = "10.0.0.1", server: str = "10.0.0.2", **options: int) -> TcpConversation:
    conversation = TcpConversation((client, 40000), (server, 9092), **options)
    conversation.open()
    conversation.client(request_frame(18, 3, 1, "some-client", b"x" * 3000))
    conversation.server(b"answer" * 100)
    conversation.close()
    return conversation


@pytest.mark.parametrize("name", sorted(every_form([])))
def test_every_form_reads_back_equal(name: str) -> None:
    packets = encode(talk().segments)
    read = read_capture(every_form(packets)[name])
    assert [(p.time_ns, p.data, p.wire_length) for p in read.packets] == [
        (p.time_ns, p.data, p.wire_length) for p in packets
    ]


def test_dpkt_reads_what_is_written() -> None:
    packets = encode(talk().segments)
    expected = [(p.time_ns, p.data) for p in packets]
    for data in (pcap_bytes(packets), pcap_bytes(packets, order=">", nanoseconds=True)):
        read = [(round(t * 1_000_000) * 1000, b) for t, b in dpkt.pcap.Reader(io.BytesIO(data))]
        assert read == expected
    read = [(round(t * 1_000_000) * 1000, b) for t, b in dpkt.pcapng.Reader(io.BytesIO(pcapng_bytes(packets)))]
    assert read == expected


@pytest.mark.parametrize("suffix", [".pcap", ".pcap.gz", ".pcap.zst"])
def test_compressed_files_read_back(tmp_path, suffix: str) -> None:
    packets = encode(talk().segments)
    path = write_capture(tmp_path / f"a{suffix}", pcap_bytes(packets))
    assert [p.data for p in read_capture(path).packets] == [p.data for p in packets]


def test_simple_blocks_hold_no_time_and_interfaces_say_drops() -> None:
    packets = [Packet(5, b"abcde"), Packet(6, b"fghijkl")]
    assert [p.data for p in read_capture(pcapng_bytes(packets, simple=True)).packets] == [b"abcde", b"fghijkl"]
    assert read_capture(pcapng_bytes(packets, [Interface(ETHERNET, 9, drops=499)])).drops == 499


@pytest.mark.parametrize(("link", "skip"), [(ETHERNET, 14), (SLL, 16), (SLL2, 20), (NULL, 4), (LOOP, 4), (RAW, 0)])
@pytest.mark.parametrize("ends", [("10.0.0.1", "10.0.0.2"), ("fd00::1", "fd00::2")])
def test_links_carry_the_same_tcp(link: int, skip: int, ends: tuple[str, str]) -> None:
    conversation = talk(*ends)
    sent = b""
    for packet in encode(conversation.segments, link):
        ip = dpkt.ip6.IP6(packet.data[skip:]) if ":" in ends[0] else dpkt.ip.IP(packet.data[skip:])
        if ip.data.sport == 40000:
            sent += ip.data.data
    assert sent == request_frame(18, 3, 1, "some-client", b"x" * 3000)


def test_vlan_tags_are_read_by_dpkt() -> None:
    (packet, *_) = encode(talk().segments, vlans=[7, 8])
    frame = dpkt.ethernet.Ethernet(packet.data)
    assert [tag.id for tag in frame.vlan_tags] == [7, 8]
    assert frame.data.data.dport == 9092


def test_damage_loses_nothing_that_it_should_not() -> None:
    segments = split_small(talk(isn=(2**32 - 100, 2**32 - 1)).segments, 100)
    shaken = shake(segments, random.Random(7), duplicates=0.3, moves=0.3)
    late = retransmit(move(segments, 5, 9), 12, 4)
    for damaged in (shaken, late):
        assert {(s.source, s.seq, s.payload) for s in damaged} == {(s.source, s.seq, s.payload) for s in segments}
        assert sorted(s.time_ns for s in damaged) == [s.time_ns for s in damaged]
    assert len(merge(segments, segments)) == 2 * len(segments)


def test_records_are_cut_and_dropped_by_packet() -> None:
    packets = encode(talk().segments)
    records = PcapRecords(pcap_bytes(packets))
    assert len(records) == len(packets)
    assert [p.data for p in read_capture(records.slice(2, 5)).packets] == [p.data for p in packets[2:5]]
    data, lost = records.drop(0.2, burst=2)
    assert len(read_capture(data).packets) == len(packets) - len(lost)
