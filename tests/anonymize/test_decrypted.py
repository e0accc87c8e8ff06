"""`kafkatap extract --anonymize --keylog`: the copy of an encrypted capture is plain, and has the same exchanges."""

from __future__ import annotations

import random
import re
import subprocess
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import kafkatap
from kafkatap.__main__ import main
from kafkatap.engine.read_options import ReadOptions
from kafkatap.engine.tls.key_log import KeyLog
from kafkatap.extract.plain_segments import write_plain
from kafkatap.output_file import UnnamedFile
from kafkatap.reassembly.pcapng_blocks import decryption_secrets
from tests.cli.tls_captures import TlsCaptures, conversation, make_tls_captures
from tests.support.captures import ETHERNET, Interface, Packet, pcap_bytes, pcapng_bytes, read_capture
from tests.support.damage import lose, numbered, packets_of, reorder
from tests.support.encapsulation import encapsulate, fragment, link_type_of
from tests.support.tcp import Segment, encode, split_small
from tests.support.wireshark import TSHARK

#: Columns of an exchange that pseudonyms, and the numbers of packets and bytes on the wire, change.
CHANGED = (
    "exchange", "tls_version", "connection", "client_id", "client_ip", "broker_ip", "topics", "request_packet_first",
    "request_packet_last", "response_packet_first", "response_packet_last",
)  # fmt: skip
#: Of the sample `broker` (make_broker.py).
SASL_PASSWORD = b"made-up-4711"
PROXY = b"PROXY TCP4 192.0.2.7 10.0.0.2 5678 9092\r\n"

Rows = list[dict[str, Any]]


def rows_of(capture: Path, **options: Any) -> Rows:
    """The exchanges of a capture in order of time, without the columns that a copy changes."""
    rows = kafkatap.analyze(capture, **options).exchanges.to_pylist()
    rows.sort(
        key=lambda row: (row["request_first"] or row["response_first"], row["client_port"], row["correlation_id"])
    )
    return [{name: value for name, value in row.items() if name not in CHANGED} for row in rows]


def anonymize(capture: Path, key_log: Path, output: Path, *options: str) -> Path:
    arguments = ["--keylog", str(key_log), "--anonymize", "-o", str(output), "--no-progress", *options]
    assert main(["extract", str(capture), *arguments]) == 0
    return output


@pytest.fixture(scope="module", params=["broker", "libraries"])
def sample(request: Any, samples: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """A capture of real endpoints, its key log, and the anonymized copy."""
    folder = samples / "tls"
    capture, key_log = folder / f"{request.param}.pcap.zst", folder / f"{request.param}.keys.log"
    output = tmp_path_factory.mktemp("decrypted") / "x.pcapng"
    return capture, key_log, anonymize(capture, key_log, output, "--no-comments")


def test_the_exchanges_are_the_same_to_the_nanosecond(sample: tuple[Path, Path, Path]) -> None:
    """All parts of the time are the same, too. A response that the end of its connection cut off becomes filler, as in
    copies of plain captures, so that it counts as lost."""
    capture, key_log, output = sample
    expected, found = rows_of(capture, keylog=key_log), rows_of(output)
    cut = Counter((a["outcome"], b["outcome"]) for a, b in zip(expected, found, strict=True))
    assert cut[("unanswered", "response_lost")] <= 3
    for row, other in zip(expected, found, strict=True):
        if other["outcome"] == "response_lost":
            row["outcome"] = other["outcome"]
    assert found == expected
    assert any(row["total_ns"] for row in found)


def test_nothing_of_the_original_is_left(sample: tuple[Path, Path, Path]) -> None:
    """No name, no secret, no client random, no certificate, and no TLS."""
    capture, key_log, output = sample
    original = kafkatap.analyze(capture, keylog=key_log)
    raw = output.read_bytes()
    clients = {name for name in original.exchanges.column("client_id").to_pylist() if name}
    topics = {name for names in original.exchanges.column("topics").to_pylist() for name in names or ()}
    names = {name.encode() for name in clients | topics - {"__consumer_offsets"}} | {SASL_PASSWORD}
    assert len(clients) > 3
    assert {name for name in names if name in raw} == set()
    hexadecimal = {bytes.fromhex(word) for word in re.findall(r"\b[0-9A-Fa-f]{64,96}\b", key_log.read_text())}
    assert len(hexadecimal) > 10
    assert {value for value in hexadecimal if value in raw} == set()
    assert b"\x06\x03\x55\x04\x03" not in raw  # a common name of a certificate
    tls = kafkatap.analyze(output, keylog=key_log).connections
    assert set(tls.column("tls_version").to_pylist()) == {None}


@pytest.mark.skipif(TSHARK is None, reason="tshark is not installed")
def test_tshark_finds_kafka_and_no_tls(sample: tuple[Path, Path, Path]) -> None:
    """All messages, right checksums, no gap, and no more retransmissions than in the original."""
    capture, key_log, output = sample
    original = kafkatap.analyze(capture, keylog=key_log).exchanges.to_pylist()
    ports = {row["broker_port"] for row in original}
    found = _tshark(output, "kafka.correlation_id", "kafka.request_key", ports)
    assert sorted(int(number) for line in found for number in line.split(",")) == sorted(
        row["correlation_id"] for row in original if row["request_first"] is not None
    )
    assert _tshark(output, "frame.number", "tls") == []
    assert _tshark(output, "frame.number", "tcp.checksum.status==0 || ip.checksum.status==0") == []
    assert _tshark(output, "frame.number", "tcp.analysis.lost_segment || tcp.analysis.ack_lost_segment") == []
    again = "tcp.analysis.retransmission || tcp.analysis.out_of_order"
    assert len(_tshark(output, "frame.number", again)) <= 1  # a FIN, which was


def _tshark(capture: Path, field: str, condition: str, kafka: Sequence[int] | set[int] = ()) -> list[str]:
    """A field of the packets for which a display filter holds."""
    options = ["-o", "tcp.check_checksum:TRUE", "-o", "ip.check_checksum:TRUE", "-Y", condition, "-T", "fields"]
    options += [word for port in kafka for word in ("-d", f"tcp.port=={port},kafka")]
    command = [str(TSHARK), "-n", "-r", str(capture), *options, "-e", field]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout.split()


# ---------------------------------------------------------------- crafted captures


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> TlsCaptures:
    return make_tls_captures(tmp_path_factory.mktemp("tls"))


def test_a_selection_copies_no_more_than_of_a_plain_capture(tls: TlsCaptures, tmp_path: Path) -> None:
    """The same exchanges are copied as of the same conversations in the clear, but for their times."""
    filter = ("-f", "client ~ 'app-1' and api == Metadata")
    of_plain = tmp_path / "plain.pcapng"
    assert main(["extract", str(tls.plain), "--anonymize", "-o", str(of_plain), "--no-progress", *filter]) == 0
    output = anonymize(tls.capture, tls.key_log, tmp_path / "x.pcapng", *filter)
    expected, found = rows_of(of_plain), rows_of(output)
    names = ("api_key", "api_version", "correlation_id", "client_port", "request_bytes", "response_bytes", "outcome")
    assert [[row[name] for name in names] for row in found] == [[row[name] for name in names] for row in expected]
    assert 0 < len(found) < len(rows_of(tls.capture, keylog=tls.key_log))
    key = kafkatap.analyze(tls.capture, keylog=tls.key_log).exchanges.column("exchange").to_pylist()[20]
    by_key = anonymize(tls.capture, tls.key_log, tmp_path / "y.pcapng", "-f", f"exchange == {key}")
    assert by_key.read_bytes().count(b"kafkatap: re") == 2  # the comments on a request and its response


def test_secrets_of_the_capture_are_used_and_not_copied(tls: TlsCaptures, tmp_path: Path) -> None:
    whole, output = pcapng_bytes(tls.packets), tmp_path / "x.pcapng"
    end = int.from_bytes(whole[4:8], "little")
    capture = tmp_path / "secrets.pcapng"
    capture.write_bytes(whole[:end] + decryption_secrets(tls.key_log.read_bytes()) + whole[end:])
    assert main(["extract", str(capture), "--anonymize", "-o", str(output), "--no-progress"]) == 0
    assert rows_of(output) == rows_of(capture)
    assert b"TRAFFIC_SECRET" not in output.read_bytes()
    assert not list(tmp_path.glob(".kafkatap-*"))


def test_connections_without_secrets_are_left_out(
    tls: TlsCaptures, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """And a plain connection beside them stays as it is, with its link layer."""
    lines = tls.key_log.read_bytes().splitlines(keepends=True)
    first = next(line.split()[1] for line in lines if not line.startswith(b"#"))
    some = tmp_path / "some.log"
    some.write_bytes(b"".join(line for line in lines if first in line))
    plain = conversation(7)
    capture = tmp_path / "mixed.pcap"
    capture.write_bytes(pcap_bytes(sorted([*tls.packets, *encode(plain)], key=lambda packet: packet.time_ns)))
    output = anonymize(capture, some, tmp_path / "x.pcapng")
    assert "2 encrypted (TLS)" in capfd.readouterr().err
    assert rows_of(output) == rows_of(capture, keylog=some)
    packets = read_capture(output).packets
    assert {packet.interface for packet in packets} == {0, 1}
    assert len(packets) < len(tls.packets)


def plain_rows(packets: Sequence[Packet], key_log: Path, folder: Path, link_type: int = ETHERNET) -> tuple[Rows, Path]:
    """The exchanges of packets, compared with those of the plain segments in their place."""
    capture, output = folder / "tls.pcapng", folder / "plain.pcapng"
    capture.write_bytes(pcapng_bytes(packets, [Interface(link_type, 9)]))
    with UnnamedFile(str(folder)) as made:
        write_plain(str(capture), made, str(folder), ReadOptions(key_log=KeyLog([str(key_log)])))
        output.write_bytes(Path(made.path).read_bytes())
    expected = rows_of(capture, keylog=key_log)
    assert rows_of(output) == expected
    return expected, output


def same(packets: list[Packet]) -> list[Packet]:
    return packets


def late(packets: list[Packet]) -> list[Packet]:
    return packets_of(reorder(numbered(packets), random.Random(3), 0.1, 30_000_000))


CUTS: dict[str, Callable[[list[Packet]], list[Packet]]] = {
    "as they are": same,
    "out of order": late,
    "fragments": lambda packets: fragment(packets, 100, "shuffled"),
    "in the middle": lambda packets: packets[40:],
}


@pytest.mark.parametrize("name", CUTS)
def test_plain_segments_of_packets(tls: TlsCaptures, tmp_path: Path, name: str) -> None:
    rows, _ = plain_rows(CUTS[name](list(tls.packets)), tls.key_log, tmp_path)
    assert len(rows) > 20


@pytest.mark.parametrize("kind", ["vxlan over ipv6", "ipip in gre in geneve", "qinq of pppoe", "sll2", "ppi"])
def test_plain_segments_of_other_layers(tls: TlsCaptures, tmp_path: Path, kind: str) -> None:
    rows, output = plain_rows(encapsulate(tls.packets, kind), tls.key_log, tmp_path, link_type_of(kind))
    assert len(rows) > 20
    assert {packet.data[0] >> 4 for packet in read_capture(output).packets} == {4}


@pytest.mark.parametrize("size", [9, 1_448])
@pytest.mark.parametrize("is_ipv6", [False, True])
def test_plain_segments_of_small_segments(tls: TlsCaptures, tmp_path: Path, size: int, is_ipv6: bool) -> None:
    """Records that end in any packet, and headers of the PROXY protocol."""
    segments = [_with_ipv6(each) if is_ipv6 else each for each in tls.over.replayed(conversation(5))]
    behind = _behind_proxy(segments)
    for number, each in enumerate((segments, behind)):
        folder = tmp_path / str(number)
        folder.mkdir()
        rows, output = plain_rows(encode(split_small(each, size)), tls.over.key_log, folder)
        assert len(rows) > 10
        analysis = kafkatap.analyze(output)
        addresses = set(analysis.exchanges.column("client_ip").to_pylist())
        assert addresses == {"192.0.2.7" if number else "fd00::1" if is_ipv6 else "10.0.0.1"}
        connection = analysis.connections.to_pylist()[0]
        assert connection["client_gap_bytes"] == connection["broker_gap_bytes"] == 0


def _with_ipv6(segment: Segment) -> Segment:
    ends = {"10.0.0.1": "fd00::1", "10.0.1.1": "fd00::2"}
    source, destination = ((ends[ip], port) for ip, port in (segment.source, segment.destination))
    return replace(segment, source=source, destination=destination)


def _behind_proxy(segments: list[Segment]) -> list[Segment]:
    """The client begins with a header of the PROXY protocol in a segment of its own."""
    made: list[Segment] = []
    client, moved = segments[0].source, 0
    for each in segments:
        if each.source == client:
            if each.payload and not moved:
                made.append(replace(each, payload=PROXY))
                moved = len(PROXY)
            made.append(replace(each, seq=(each.seq + moved) % 2**32))
        else:
            made.append(replace(each, ack=(each.ack + moved) % 2**32))
    return made


@pytest.mark.parametrize("seed", range(4))
def test_losses_are_gaps(tls: TlsCaptures, tmp_path: Path, seed: int) -> None:
    """Lost records are gaps in the sequence numbers, so all other exchanges are the same."""
    packets = packets_of(lose(numbered(tls.packets), random.Random(seed), 0.03))
    rows, _ = plain_rows(packets, tls.key_log, tmp_path)
    output = anonymize(tmp_path / "tls.pcapng", tls.key_log, tmp_path / "x.pcapng")
    assert [_without_outcome(row) for row in rows_of(output)] == [_without_outcome(row) for row in rows]
    connections = kafkatap.analyze(output).connections.to_pylist()
    gaps = sum(row["client_gap_bytes"] + row["broker_gap_bytes"] for row in connections)
    assert 0 < gaps < 100_000
    if TSHARK is not None:
        assert _tshark(output, "frame.number", "tcp.analysis.lost_segment") != []


def _without_outcome(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in ("outcome", "closed_by", "waited_ns")}


def test_losses_of_unknown_length(samples: Path, tmp_path: Path) -> None:
    """Several gaps of which only the beginning and the end are known, in a stream: no later exchange is lost."""
    folder = samples / "tls"
    packets = packets_of(lose(numbered(read_capture(folder / "libraries.pcap.zst").packets), random.Random(1), 0.01))
    capture, key_log = tmp_path / "lossy.pcap", folder / "libraries.keys.log"
    capture.write_bytes(pcap_bytes(packets))
    output = anonymize(capture, key_log, tmp_path / "x.pcapng")
    keys = ("client_port", "correlation_id", "total_ns", "request_bytes", "response_bytes")
    expected, found = (
        {tuple(row[key] for key in keys) for row in rows if row["outcome"] == "answered"}
        for rows in (rows_of(capture, keylog=key_log), rows_of(output))
    )
    assert len(expected) > 1_000
    assert expected - found == set()


def test_with_secrets_is_refused(tls: TlsCaptures, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "x.pcapng"
    assert main(["extract", str(tls.capture), "--anonymize", "-o", str(output), "--with-secrets"]) == 2
    assert "--anonymize and --with-secrets exclude each other" in capfd.readouterr().err
    assert not output.exists()
