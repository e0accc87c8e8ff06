"""What Wireshark gets of captures that come as if they were live: all packets of Kafka, and no others."""

from __future__ import annotations

import struct
import subprocess
from pathlib import Path

import pytest

from kafkatap import analyze
from kafkatap.engine.engine import Engine
from kafkatap.engine.selection import Selection
from kafkatap.extcap.held_packets import with_comments
from kafkatap.extcap.kafka_capture import Choice, KafkaCapture
from kafkatap.extcap.protocol import PacketPipe
from kafkatap.reassembly.assembler import Assembler
from kafkatap.reassembly.link_types import ETHERNET
from tests.live import network
from tests.live.support import FileSource
from tests.support.captures import Packet, pcap_bytes, read_capture
from tests.support.tcp import encode, merge
from tests.wire.kafkatalk import KafkaTalk, add_exchanges, small_talk

EVERYTHING = Selection.of()
STEP = 100_000_000


def captured(path: Path, out: Path, only: str | None = None, **choice: object) -> KafkaCapture:
    """Write what Wireshark gets of a capture to `out`."""
    source = FileSource(str(path), STEP)
    selection = Selection.of(filter=only)
    needed = selection.engine_options
    engine = Engine(
        all_results=needed.all_results,
        inspectors=needed.inspectors,
        assembler=Assembler(),
        tables=False,
        problems=False,
    )
    pipe = PacketPipe(str(out), lambda: False)
    given = Choice(selection, EVERYTHING)._replace(**choice)
    capture = KafkaCapture(source, engine, pipe, {ETHERNET: "file"}, given, clock=lambda: source.now / 1e9)
    capture.run(lambda: source.over)
    pipe.close()
    return capture


def comments_of(path: Path) -> dict[int, list[str]]:
    """The comments of a pcapng's packets by number, read block by block."""
    data, at, number = path.read_bytes(), 0, 0
    found: dict[int, list[str]] = {}
    while at < len(data):
        kind, length = struct.unpack_from("<II", data, at)
        assert struct.unpack_from("<I", data, at + length - 4)[0] == length
        if kind == 6:
            number += 1
            place = at + 28 + (struct.unpack_from("<I", data, at + 20)[0] + 3 & ~3)
            while place < at + length - 4:
                code, size = struct.unpack_from("<HH", data, place)
                if code == 1:
                    found.setdefault(number, []).append(data[place + 4 : place + 4 + size].decode())
                place += 4 + (size + 3 & ~3)
            assert place == at + length - 4
        at += length
    return found


def test_kafka_is_written_whole_and_other_traffic_is_not(samples: Path, tmp_path: Path) -> None:
    """On any port, from each connection's first packet on: the tables of both captures are equal."""
    kafka = read_capture(samples / "apache-2.8.pcap.zst").packets
    others = [
        packet for path in sorted(Path("tests/wire/foreign").glob("*.pcap.zst"))[:12]
        for packet in read_capture(path).packets
    ]  # fmt: skip
    step = (kafka[-1].time_ns - kafka[0].time_ns) // len(others)
    others = [Packet(kafka[0].time_ns + i * step, packet.data) for i, packet in enumerate(others)]
    both = tmp_path / "both.pcap"
    both.write_bytes(pcap_bytes(sorted([*kafka, *others], key=lambda p: p.time_ns), nanoseconds=True))
    out = tmp_path / "out.pcapng"
    captured(both, out)
    wanted, found = analyze(both), analyze(out)
    assert wanted.connections.num_rows > found.connections.num_rows
    assert set(found.connections["protocol"].to_pylist()) == {"kafka"}
    assert wanted.exchanges.num_rows == found.exchanges.num_rows > 500
    columns = [name for name in wanted.exchanges.column_names if "packet" not in name]
    assert found.exchanges.select(columns).sort_by("exchange") == wanted.exchanges.select(columns).sort_by("exchange")
    (info,) = found.files.to_pylist()
    assert (info["damage"], info["drops"]) == (None, 0)


def test_every_answered_exchange_has_a_comment_on_its_last_packet(samples: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.pcapng"
    captured(samples / "live-4.3.pcap.zst", out)
    comments = comments_of(out)
    exchanges = analyze(out).exchanges.to_pylist()
    answered = [row for row in exchanges if row["outcome"] == "answered"]
    assert len(answered) > 100
    for row in answered:
        (said,) = [c for c in comments[row["response_packet_last"]] if f"exchange {row['exchange']}:" in c]
        assert said.startswith(f"kafkatap: {row['api_name']} v{row['api_version']} of client ")
        assert ("head-of-line wait" in said) == (row["hol_wait_ns"] > 0)
    failed = [row for row in answered if row["errors"]]
    assert failed
    assert all("; " in "".join(comments[row["response_packet_last"]]) for row in failed)


def test_a_selection_keeps_only_packets_of_its_exchanges(samples: Path, tmp_path: Path) -> None:
    path, out = samples / "apache-2.8.pcap.zst", tmp_path / "out.pcapng"
    captured(path, out, "api == Metadata", commented=None)
    wanted = analyze(path, filter="api == Metadata").exchanges.to_pylist()
    found = analyze(out).exchanges.to_pylist()
    # The first packets of connections are there as well, so keys are those of the whole capture.
    assert {row["exchange"] for row in wanted} <= {row["exchange"] for row in found}
    assert set(analyze(out).connections["handshake"].to_pylist()) <= {"complete", "unfinished", "not captured"}
    assert comments_of(out) == {}
    assert analyze(out).files["packets"][0].as_py() < analyze(path).files["packets"][0].as_py() / 2


def test_a_connection_that_waits_long_is_written_from_its_first_packet(tmp_path: Path) -> None:
    """Its handshake waits in memory for half a minute, until its first request. Other packets need not wait for it."""
    late = KafkaTalk(client=("10.0.0.1", 40_001), broker=("10.0.0.9", 19_093))
    late.tcp.open()
    late.tcp.time_ns += 30_000_000_000
    add_exchanges(late, 3)
    busy = KafkaTalk(client=("10.0.0.2", 40_002), step_ns=50_000_000)
    busy.tcp.open()
    add_exchanges(busy, 200)
    path, out = tmp_path / "in.pcap", tmp_path / "out.pcapng"
    packets = encode(merge(late.segments, busy.segments))
    path.write_bytes(pcap_bytes(packets, nanoseconds=True))
    captured(path, out, commented=None)
    written = read_capture(out).packets
    assert sorted(p.data for p in written) == sorted(p.data for p in packets)
    assert analyze(out).connections["handshake"].to_pylist() == ["complete", "complete"]
    first = [p.data for p in written].index(packets[0].data)
    assert first > 100


def test_names_in_comments_are_escaped_and_cut(tmp_path: Path) -> None:
    talk = small_talk(2, client_id="a\x1b[31m\n\u202e" + "x" * 5000)
    path, out = tmp_path / "in.pcap", tmp_path / "out.pcapng"
    path.write_bytes(pcap_bytes(encode(talk.segments), nanoseconds=True))
    captured(path, out)
    comments = [text for texts in comments_of(out).values() for text in texts]
    assert len(comments) == 2
    assert all(text.isprintable() and len(text) < 400 for text in comments)


def test_memory_and_packets_are_bounded(samples: Path, tmp_path: Path) -> None:
    """With little memory, packets that wait are forgotten, and the capture goes on."""
    path, out = samples / "apache-2.8.pcap.zst", tmp_path / "out.pcapng"
    capture = captured(path, out, "latency > 1h", ring_size=1 << 16)
    assert capture._held.forgotten > 100
    assert analyze(out).files["packets"][0].as_py() == 0
    captured(path, out, snap_length=96)
    cut = read_capture(out)
    assert max(len(packet.data) for packet in cut.packets) == 96
    assert max(packet.wire_length for packet in cut.packets) > 1000


def test_a_block_keeps_its_packet_under_comments() -> None:
    packet = b"\x01\x02\x03"
    block = struct.pack("<IIIIIII", 6, 36, 0, 0, 7, 3, 3) + packet + b"\0" + struct.pack("<I", 36)
    made = with_comments(block, ["a", "ü" * 40_000])
    assert made[8:32] == block[8:32]
    assert struct.unpack_from("<I", made, 4)[0] == struct.unpack_from("<I", made, len(made) - 4)[0] == len(made)


def test_wireshark_reads_the_comments(samples: Path, tmp_path: Path) -> None:
    why = network.missing("tshark")
    if "tshark" in why:
        pytest.skip(why)
    out = tmp_path / "out.pcapng"
    captured(samples / "live-4.3.pcap.zst", out)
    done = subprocess.run(
        ["tshark", "-r", str(out), "-Y", "frame.comment", "-T", "fields", "-e", "frame.number", "-e", "frame.comment"],
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    shown = {int(number): text for number, text in (line.split("\t") for line in done.stdout.splitlines())}
    assert shown.keys() == comments_of(out).keys()
    assert all(text.startswith("kafkatap: ") for text in shown.values())
