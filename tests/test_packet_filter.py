"""`packet == N`: the exchanges with bytes in a packet, compared with a reassembler of bytes."""

from __future__ import annotations

import random
import struct
from collections import defaultdict, deque
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pytest

from kafkatap import analyze
from kafkatap.__main__ import main
from kafkatap.engine.engine import Engine
from kafkatap.engine.read_options import ReadOptions
from kafkatap.engine.selection import Selection
from kafkatap.engine.tls.key_log_files import open_key_logs
from kafkatap.run import Run
from kafkatap.spark.captures import Captures
from kafkatap.splits.run_options import RunOptions
from tests.support import damage
from tests.support.captures import ETHERNET, Packet, pcap_bytes, read_capture, write_capture
from tests.support.copies import cut_up, places

SYN = 2
LIVE, OLD = (53_279,), (8101, 8102)  # ports of brokers
#: A TLS record: its direction and the offset of its first byte.
Record = tuple[tuple[bytes, bytes], int]
#: An exchange of the truth: the packet with its request's first byte.
Exchanges = dict[int, set[int]]


class Bytes:
    """The bytes of one direction, each with the first packet that carried it."""

    def __init__(self, base: int) -> None:
        self.base = base
        self.found: dict[int, tuple[int, int]] = {}  # by offset: its value and its packet

    def add(self, seq: int, payload: bytes, packet: int) -> None:
        at = (seq - self.base) % 2**32
        for offset, value in enumerate(payload, at):
            self.found.setdefault(offset, (value, packet))

    def messages(self) -> Iterator[tuple[bytes, list[int]]]:
        """Each message with the packets of its bytes, in order."""
        at = 0
        while at + 4 in self.found:
            size = 4 + struct.unpack("!i", bytes(self.found[at + i][0] for i in range(4)))[0]
            if any(at + i not in self.found for i in range(size)):
                return
            inside = [self.found[at + i] for i in range(size)]
            yield bytes(value for value, _ in inside), [packet for _, packet in inside]
            at += size


def exchanges_by_packet(packets: list[Packet], ports: tuple[int, ...]) -> Exchanges:
    """By packet, the exchanges that have bytes in it."""
    streams: dict[tuple[bytes, bytes], Bytes] = {}
    for number, packet in enumerate(packets, 1):
        at = places(packet.data)
        if at is None:
            continue
        ip, tcp = packet.data[at.ip :], packet.data[at.tcp :]
        way = ip[12:16] + tcp[:2], ip[16:20] + tcp[2:4]
        if tcp[13] & SYN:
            streams.setdefault(way, Bytes(struct.unpack_from("!I", tcp, 4)[0] + 1))
        payload = packet.data[at.payload : at.end]
        if payload and way in streams:
            streams[way].add(struct.unpack_from("!I", tcp, 4)[0], payload, number)
    found: Exchanges = defaultdict(set)
    for (client, broker), stream in streams.items():
        if int.from_bytes(broker[4:], "big") not in ports:
            continue
        waiting: dict[bytes, deque[int]] = defaultdict(deque)
        for data, carriers in stream.messages():
            waiting[data[8:12]].append(carriers[0])
            for packet in carriers:
                found[packet].add(carriers[0])
        for data, carriers in streams[broker, client].messages() if (broker, client) in streams else ():
            request = waiting[data[4:8]].popleft()
            for packet in carriers:
                found[packet].add(request)
    return found


def records_by_packet(packets: list[Packet]) -> tuple[dict[int, set[Record]], dict[Record, set[int]]]:
    """The TLS records with bytes in each packet, and the packets of each record."""
    streams: dict[tuple[bytes, bytes], Bytes] = {}
    for number, packet in enumerate(packets, 1):
        at = places(packet.data)
        assert at is not None
        ip, tcp = packet.data[at.ip :], packet.data[at.tcp :]
        way = ip[12:16] + tcp[:2], ip[16:20] + tcp[2:4]
        if tcp[13] & SYN:
            streams[way] = Bytes(struct.unpack_from("!I", tcp, 4)[0] + 1)
        if way in streams:
            streams[way].add(struct.unpack_from("!I", tcp, 4)[0], packet.data[at.payload : at.end], number)
    inside: dict[int, set[Record]] = defaultdict(set)
    carriers: dict[Record, set[int]] = defaultdict(set)
    for way, stream in streams.items():
        start = 0
        while start + 4 in stream.found:
            size = 5 + 256 * stream.found[start + 3][0] + stream.found[start + 4][0]
            for offset in range(start, start + size):
                if offset in stream.found:
                    inside[stream.found[offset][1]].add((way, start))
                    carriers[way, start].add(stream.found[offset][1])
            start += size
    return inside, carriers


def has_payload(packet: Packet) -> bool:
    at = places(packet.data)
    return at is not None and at.end > at.payload


def selected(path: Path, wanted: list[int], **options: object) -> Exchanges:
    """What `packet == N` selects for each of some packets, in one run."""
    engine = Engine(**options)  # type: ignore[arg-type]
    engine.packet_places.want(tuple(wanted))
    rows = np.concatenate([batch.exchanges.copy() for batch in Run([str(path)], engine).batches()])
    return {n: set(rows["request_packet_first"][engine.packet_places.holds(rows, n)].tolist()) for n in wanted}


def assert_right(packets: list[Packet], ports: tuple[int, ...], path: Path) -> Exchanges:
    """Every packet of a capture, as `packet == N`, selects what the truth says."""
    write_capture(path, pcap_bytes(packets, ETHERNET))
    truth = exchanges_by_packet(packets, ports)
    numbers = list(range(1, len(packets) + 1))
    table = analyze(path).exchanges
    cut = set(table.filter(pc.greater(table["response_cut_bytes"], 0))["response_packet_first"].to_pylist())
    cut |= set(table.filter(pc.greater(table["request_cut_bytes"], 0))["request_packet_first"].to_pylist())
    numbers = [n for n in numbers if n not in cut]  # the truth has whole messages only
    assert selected(path, numbers) == {n: truth.get(n, set()) for n in numbers}
    return truth


@pytest.mark.parametrize("mss", [50, 200, 1448])
def test_pipelined_messages_and_messages_that_span_packets(mss: int, samples: Path, tmp_path: Path) -> None:
    packets = cut_up(read_capture(samples / "live-4.4.pcap.zst").packets, mss)
    truth = assert_right(packets, LIVE, tmp_path / "cut.pcap")
    assert len(truth) > 150
    many = cut_up(read_capture(samples / "apache-0.8.2.pcap.zst").packets, mss)
    truth = assert_right(many, OLD, tmp_path / "old.pcap")
    assert len(truth) > 1_000


def test_many_messages_in_a_packet(samples: Path, tmp_path: Path) -> None:
    packets = list(read_capture(samples / "questions" / "throttle.pcap.zst").packets)
    truth = assert_right(packets, (9092,), tmp_path / "many.pcap")
    assert sum(len(found) > 1 for found in truth.values()) > 50


def test_a_retransmission_and_an_ack_have_no_bytes_of_their_own(samples: Path, tmp_path: Path) -> None:
    """Packets are delayed, and 30 % come again later, so that others overtake them."""
    chance = random.Random(7)
    sent = damage.numbered(cut_up(read_capture(samples / "live-4.4.pcap.zst").packets, 100))
    packets = damage.packets_of(damage.duplicate(damage.reorder(sent, chance, 0.1, 300_000), chance, 0.3, 3_000_000))
    truth = assert_right(packets, LIVE, tmp_path / "again.pcap")
    again = [n for n, packet in enumerate(packets, 1) if n not in truth and has_payload(packet)]
    assert len(again) > 100


def test_the_messages_of_a_record_are_in_each_of_its_packets(samples: Path, tmp_path: Path) -> None:
    """The messages of a record that has a packet for itself are known. They are in all its packets when it is cut."""
    whole = read_capture(samples / "tls" / "broker.pcap.zst").packets
    cut = cut_up(whole, 60)
    found = []
    for packets in (whole, cut):
        path = write_capture(tmp_path / "tls.pcap", pcap_bytes(packets, ETHERNET))
        engine = Engine(ReadOptions(key_log=open_key_logs([samples / "tls" / "broker.keys.log"])))
        engine.packet_places.want(tuple(range(1, len(packets) + 1)))
        rows = np.concatenate([batch.exchanges.copy() for batch in Run([str(path)], engine).batches()])
        holds = [engine.packet_places.holds(rows, n) for n in range(1, len(packets) + 1)]
        names = np.array([f"{row['client_port']} {row['correlation_id']}" for row in rows])
        found.append({n: set(names[mask].tolist()) for n, mask in enumerate(holds, 1)})
    inside, carriers = records_by_packet(whole)
    of_record = {
        record: found[0][min(packets)]
        for record, packets in carriers.items()
        if len(packets) == 1 and len(inside[min(packets)]) == 1
    }
    inside, carriers = records_by_packet(cut)
    checked = 0
    for packet, records in inside.items():
        if records <= of_record.keys():
            assert found[1][packet] == set().union(*(of_record[record] for record in records)), packet
            checked += len(found[1][packet]) > 0
    assert checked > 300


@pytest.mark.parametrize("size", [20_000, 60_000])
def test_splits_and_show_select_the_same(
    size: int, samples: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    packets = cut_up(read_capture(samples / "live-4.4.pcap.zst").packets, 100)
    path = write_capture(tmp_path / "cut.pcap", pcap_bytes(packets, ETHERNET))
    truth = exchanges_by_packet(packets, LIVE)
    inner = [n for n in truth if truth.get(n - 1) == truth[n] == truth.get(n + 1)]
    for n in inner[:: len(inner) // 3]:
        options = RunOptions(selection=Selection.of(filter=f"packet == {n}"))
        assert Captures(None, [str(path)], size, options).report().heading.named_rows()[0]["requests"] == 1
        assert main(["show", "-f", f"packet == {n}", str(path)]) == 0
        lines = capsys.readouterr().out.splitlines()[1:]
        assert {int(line.split()[0]) for line in lines} >= truth[n]
        assert len(lines) == 2
