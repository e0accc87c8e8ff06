"""The packets of a connection around a packet: as in the capture's bytes, and what is unusual about each."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kafkatap import analyze
from kafkatap.captures.capture_reader import FileReport
from kafkatap.extract.sequences import read_sequences
from kafkatap.reports.rendering.html.report_page import packets_shown
from kafkatap.reports.rendering.html.sequence import LeftOut, PacketSequence, SequencePacket
from tests.support.captures import ETHERNET, pcap_bytes, read_capture, write_capture
from tests.support.segments import tcp_part
from tests.support.tcp import Segment, TcpConversation, encode, lose, merge, retransmit

CLIENT, BROKER = ("10.0.0.1", 40000), ("10.0.0.2", 9092)


def talk(requests: int = 3) -> TcpConversation:
    made = TcpConversation(CLIENT, BROKER)
    made.open()
    for _ in range(requests):
        made.client(bytes(2_000))
        made.server(bytes(50))
    made.close()
    return made


def sequence(
    folder: Path, segments: list[Segment], first: int, last: int = 0, brokers: tuple[str, ...] = ()
) -> PacketSequence:
    path = write_capture(folder / "a.pcap", pcap_bytes(list(encode(segments))))
    (found,) = read_sequences([FileReport(str(path), packets=len(segments))], [(first, last)], brokers).values()
    return found


def notes(found: PacketSequence) -> dict[int, str]:
    return {row.number: row.note for row in found.rows if isinstance(row, SequencePacket) and row.note}


def test_a_usual_connection_has_nothing_unusual(tmp_path: Path) -> None:
    found = sequence(tmp_path, talk().segments, 1, 20)
    assert (found.client, found.broker) == ("10.0.0.1:40000", "10.0.0.2:9092")
    rows = [row for row in found.rows if isinstance(row, SequencePacket)]
    assert [row.number for row in rows] == list(range(1, len(rows) + 1))
    assert [row.flags for row in rows[:3]] == ["SYN", "SYN", ""]
    assert [(row.from_client, row.seq, row.length, row.ack) for row in rows[3:7]] == [
        (True, 1, 1448, 1), (True, 1449, 552, 1), (False, 1, 0, 2001), (False, 1, 50, 2001)
    ]  # fmt: skip
    assert notes(found) == {}


def test_what_is_lost_sent_again_and_closed_is_said(tmp_path: Path) -> None:
    segments = talk().segments
    assert notes(sequence(tmp_path, lose(segments, 3), 1, 20)) == {4: "1,448 B before it are missing"}
    lost = retransmit(segments, 3, 4)
    assert notes(sequence(tmp_path, lost, 1, 20)) == {
        4: "1,448 B before it are missing", 8: "late: sent again, or out of order"
    }  # fmt: skip
    again = [*segments[:5], segments[3], *segments[5:]]
    assert notes(sequence(tmp_path, again, 1, 20)) == {6: "sent again"}
    more = [*segments[:4], replace(segments[3], payload=segments[3].payload + bytes(10)), *segments[5:]]
    assert notes(sequence(tmp_path, more, 1, 20))[5] == "sent again, and more"


def test_only_the_connection_of_the_packet_and_what_is_near(tmp_path: Path) -> None:
    other = TcpConversation(("10.0.0.3", 50000), BROKER, time_ns=talk().segments[0].time_ns + 50)
    other.open()
    other.client(bytes(10))
    segments = list(merge(talk(40).segments, other.segments))
    mine = [n for n, each in enumerate(segments, 1) if CLIENT in (each.source, each.destination)]
    found = sequence(tmp_path, segments, mine[30], mine[34])
    assert [row.number for row in found.rows if isinstance(row, SequencePacket)] == mine[24:38]
    # The end that is a known broker is the broker, whatever its port.
    turned = sequence(tmp_path, segments, mine[30], mine[34], ("10.0.0.1:40000",))
    assert (turned.client, turned.broker) == ("10.0.0.2:9092", "10.0.0.1:40000")


def test_long_ones_are_left_out_in_the_middle_but_for_what_is_unusual(tmp_path: Path) -> None:
    segments = lose(talk(100).segments, 298)
    found = sequence(tmp_path, segments, 4, len(segments))
    drawn = [row for row in found.rows if isinstance(row, SequencePacket)]
    left = [row for row in found.rows if isinstance(row, LeftOut)]
    assert len(found.rows) < 60
    assert len(drawn) + sum(row.packets for row in left) == len(segments)
    assert len(left) == 2  # before and after the one that misses bytes
    payload = sum(row.length for row in drawn) + sum(row.from_client + row.from_broker for row in left)
    assert payload == sum(len(each.payload) for each in segments)


def test_packets_that_are_no_tcp_have_none(tmp_path: Path) -> None:
    path = write_capture(tmp_path / "a.pcap", pcap_bytes(list(encode(talk().segments))))
    file = FileReport(str(path), packets=50)
    assert read_sequences([file], [(40, 0)], ()) == {}
    assert read_sequences([FileReport(str(path), packets=5)], [(9, 0)], ()) == {}


@pytest.mark.parametrize("name", ["apache-4.3.pcap.zst"])
def test_packets_are_those_of_the_capture(samples: Path, name: str) -> None:
    """Numbers, times, lengths and directions are those of the bytes, read in the plainest way."""
    path = samples / name
    report = analyze(path).report(sections="all")
    wanted = packets_shown(report)
    packets = read_capture(path).packets
    brokers = report.heading.named_rows()[0]["brokers"]
    assert isinstance(brokers, tuple)
    found = read_sequences([FileReport(str(path), packets=len(packets))], wanted, [str(b) for b in brokers])
    assert len(found) >= 20
    for first, one in found.items():
        assert first in {row.number for row in one.rows if isinstance(row, SequencePacket)}
        for row in one.rows:
            if not isinstance(row, SequencePacket):
                continue
            packet = packets[row.number - 1]
            part = tcp_part(packet, ETHERNET)
            assert part is not None
            assert (row.time, row.length) == (packet.time_ns, part.length)
            ends = [f"{'.'.join(map(str, address))}:{port}" for address, port in (part.way[:2], part.way[2:])]
            assert ends == ([one.client, one.broker] if row.from_client else [one.broker, one.client])


def test_what_was_sent_before_is_not_missing(tmp_path: Path) -> None:
    """The sequence begins with acknowledgements of a long response."""
    made = TcpConversation(CLIENT, BROKER, acks=False)
    made.server(bytes(20_000))
    begin = len(made.segments)
    for seq in range(6):
        made._add(0, 16, ack=made.next[1] - (5 - seq) * 1_000)
    made.client(bytes(10))
    made.server(bytes(10))
    assert notes(sequence(tmp_path, made.segments, begin + 7, 40)) == {}
