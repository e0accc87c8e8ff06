"""`kafkatap doctor` names what was spoilt on purpose in a good capture, and nothing else."""

from __future__ import annotations

import itertools
import random
import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from kafkatap import analyze, examine
from kafkatap.captures.capture_reader import FileReport
from kafkatap.doctor import content_checks
from kafkatap.doctor.diagnosis import CHECKS, TABLES
from kafkatap.doctor.diagnosis_text import diagnosis_lines
from kafkatap.doctor.observed import read_captures
from kafkatap.doctor.packet_checks import CaptureChecks
from kafkatap.engine.selection import Selection
from kafkatap.extract import extract
from kafkatap.reassembly.dtypes import PACKET
from kafkatap.reports.model import Report
from tests.support import damage
from tests.support.captures import ETHERNET, Interface, Packet, pcap_bytes, pcapng_bytes, read_capture, write_capture
from tests.support.encapsulation import encapsulate, fragment
from tests.support.segments import tcp_at, tcp_part, way_of
from tests.support.tcp import ACK, TcpConversation, encode
from tests.wire.kafkatalk import METADATA, KafkaTalk

Spoil = Callable[[damage.Numbers, random.Random], damage.Numbers]
SAMPLES = Path(__file__).resolve().parents[2] / "samples"
SECOND = 1_000_000_000


def found(report: Report) -> set[tuple[str, str]]:
    """The checks and severities of the findings. Each has the numbers that it rests on."""
    assert all(row[-1] for row in report.table("findings").rows)
    return {(str(row[0]), str(row[1])) for row in report.table("findings").rows}


def evidence(report: Report, check: str) -> str:
    """What a finding says: all its sentences."""
    (row,) = (row for row in report.table("findings").rows if row[0] == check)
    return " ".join(map(str, row[2:-1]))


def numbers(report: Report, check: str) -> dict[str, Any]:
    """The numbers that a finding rests on."""
    (row,) = (row for row in report.table("findings").rows if row[0] == check)
    return dict(cast(Any, row[-1]))


@pytest.fixture(scope="module")
def good() -> damage.Numbers:
    """The packets of a good capture: 18 s on loopback, every connection from its first packet."""
    return damage.numbered(read_capture(SAMPLES / "live-4.3.pcap.zst").packets)


def examined(folder: Path, data: bytes, name: str = "spoilt.pcap") -> Report:
    (folder / name).write_bytes(data)
    return examine(folder / name)


def pcap(packets: Sequence[damage.Numbered], **options: int) -> bytes:
    return pcap_bytes(damage.packets_of(packets), nanoseconds=True, **options)  # type: ignore[arg-type]


GOOD: dict[str, set[tuple[str, str]]] = {
    "apache-0.8.2.pcap.zst": set(),
    "apache-0.10.2.pcap.zst": set(),
    "apache-2.8.pcap.zst": set(),
    "apache-4.3.pcap.zst": {("encryption", "note"), ("starts", "note"), ("brokers", "note")},
    "live-4.3.pcap.zst": set(),
    "live-4.4.pcap.zst": {("length", "note")},
    "questions/replication.pcap.zst": {("starts", "note")},
    "questions/groups.pcap.zst": set(),
    "questions/tcp.pcap.zst": {("length", "note")},
    "questions/throttle.pcap.zst": set(),
    "questions/timeouts.pcap.zst": {("network", "note")},
    "questions/upgrade-4.3.pcap.zst": set(),
}


@pytest.mark.parametrize("name", GOOD)
def test_good_captures_have_no_problem(name: str) -> None:
    assert found(examine(SAMPLES / name)) == GOOD[name]


def half_gone(packets: damage.Numbers, chance: random.Random) -> damage.Numbers:
    """Without the first half: all connections that are left began before."""
    return packets[len(packets) // 2 :]


def one_side(packets: damage.Numbers, chance: random.Random) -> damage.Numbers:
    """Only packets to the broker: the port that most packets have."""
    port = _broker_port(packets)
    return damage.keep_if(packets, lambda p: (way_of(p, ETHERNET) or (b"", 0, b"", 0))[3] == port)


def _broker_port(packets: damage.Numbers) -> int:
    ports = [way_of(p.packet, ETHERNET) for p in packets[:50]]
    seen = [way[1] for way in ports if way] + [way[3] for way in ports if way]
    return max(set(seen), key=seen.count)


def moved(step_ns: int) -> Spoil:
    """Set the clock once, in the middle."""

    def spoil(packets: damage.Numbers, chance: random.Random) -> damage.Numbers:
        half = len(packets) // 2
        return [*packets[:half], *(damage.Numbered(p.number, damage._later(p.packet, step_ns)) for p in packets[half:])]

    return spoil


def rounded(unit_ns: int) -> Spoil:
    """Times in whole units."""

    def spoil(packets: damage.Numbers, chance: random.Random) -> damage.Numbers:
        return [p._replace(packet=damage._later(p.packet, -(p.packet.time_ns % unit_ns))) for p in packets]

    return spoil


def without_rest_of_fragments(packets: damage.Numbers, chance: random.Random) -> damage.Numbers:
    """As a filter on ports leaves them: without all fragments but the first."""
    cut = fragment(damage.packets_of(packets), 1_400)
    return damage.numbered(p for p in cut if not int.from_bytes(p.data[20:22], "big") & 0x1FFF)


SPOILT: dict[str, tuple[Spoil, set[tuple[str, str]], list[str]]] = {
    "cut to 96 bytes": (lambda p, _: damage.cut(p, 96), {("snap length", "error")},
                        ["cut to 96 bytes", "-s 0", "broker times contain throttle waits"]),
    "headers cut": (lambda p, _: damage.cut(p, 40), {("snap length", "error"), ("content", "error")}, []),
    "lost in bursts": (
        lambda p, c: damage.lose_bursts(p, c, 0.02, 10), {("gaps", "warning")},
        ["acknowledged", "the capture lost that"],
    ),
    "one direction": (one_side, {("directions", "error")}, ["asymmetric", "one direction"]),
    "captured twice": (lambda p, c: damage.duplicate(p, c, 0.3), {("copies", "warning")}, ["mirror port"]),
    "clock forward": (moved(30 * SECOND), {("clock", "warning")}, ["forward by 30.0 s"]),
    "clock back": (moved(-3 * SECOND), {("clock", "warning")}, ["back by 3.00 s"]),
    "clock back by less": (moved(-300_000_000), {("clock", "warning")}, ["back by 300 ms"]),
    "times in ms": (rounded(1_000_000), {("clock", "warning")}, ["whole multiples of 1 ms"]),
    "times in s": (rounded(SECOND), {("clock", "error")}, ["whole multiples of 1 s"]),
    "late packets": (
        lambda p, c: damage.shuffle(p, c, 0.05, 400_000_000), {("order", "warning"), ("gaps", "warning")}, [],
    ),
    "begun in the middle": (half_gone, {("starts", "note")}, ["began before the capture"]),
    "no packets": (lambda p, _: [], {("content", "error")}, ["no packets"]),
}  # fmt: skip
#: What the half of a small capture, and one without latencies, is besides.
ALSO = {"headers cut": set(), "no packets": set(),
        "lost in bursts": {("starts", "note"), ("length", "note")}}  # fmt: skip


@pytest.mark.parametrize("how", SPOILT)
def test_what_was_spoilt_is_named(how: str, good: damage.Numbers, tmp_path: Path) -> None:
    spoil, expected, words = SPOILT[how]
    report = examined(tmp_path, pcap(spoil(good, random.Random(7))))
    assert expected <= found(report) <= expected | ALSO.get(how, set())
    for word in words:
        assert word in evidence(report, next(iter(expected))[0])


def test_clock_step_counts_the_exchanges_under_way(good: damage.Numbers, tmp_path: Path) -> None:
    report = examined(tmp_path, pcap(moved(30 * SECOND)(good, random.Random(1))))
    assert f"at packet {len(good) // 2 + 1:,}" in evidence(report, "clock")
    assert "stepped 1 time" in evidence(report, "clock")


def test_a_silence_is_no_step(good: damage.Numbers, tmp_path: Path) -> None:
    """Two talks, an hour apart: the senders' clocks advance as the packets' times do."""
    quiet = [p for p in good if p.packet.time_ns - good[0].packet.time_ns < SECOND]
    rest = [p for p in good if p.packet.time_ns - good[0].packet.time_ns > 15 * SECOND]
    assert ("clock", "warning") not in found(examined(tmp_path, pcap([*quiet, *rest])))


def test_dropped_packets_and_interfaces(good: damage.Numbers, tmp_path: Path) -> None:
    packets = [Packet(p.time_ns, p.data, interface=n % 2) for n, p in enumerate(damage.packets_of(good))]
    two = [Interface(tsresol=9, name="eth0", drops=5), Interface(tsresol=9, name="eth1", drops=0)]
    report = examined(tmp_path, pcapng_bytes(packets, two))
    assert found(report) == {("drops", "warning"), ("interfaces", "note")}
    assert "5 packets dropped" in evidence(report, "drops")
    assert "eth0, eth1" in evidence(report, "interfaces")
    none = examined(tmp_path, pcapng_bytes(damage.packets_of(good), [Interface(tsresol=9, name="lo", drops=0)]))
    assert found(none) == set()


def test_cut_and_damaged_files(good: damage.Numbers, tmp_path: Path) -> None:
    whole = pcap(good)
    assert found(examined(tmp_path, whole[:-7])) == {("files", "warning")}
    middle = bytearray(whole)
    at = len(whole) // 2
    middle[at : at + 60_000] = b"\xff" * 60_000  # longer than any packet
    assert ("files", "error") in found(examined(tmp_path, bytes(middle)))
    assert ("files", "error") in found(examined(tmp_path, b"no capture"))


def test_only_tls(tmp_path: Path) -> None:
    packets = read_capture(SAMPLES / "questions" / "auth.pcap.zst").packets
    whole = examine(SAMPLES / "questions" / "auth.pcap.zst")
    assert ("encryption", "warning") in found(whole)
    port = int(evidence(whole, "encryption").partition("127.0.0.1:")[2].split()[0])
    rows = analyze(SAMPLES / "questions" / "auth.pcap.zst").connections.to_pylist()
    clients = {row["client_port"] for row in rows if row["protocol"] == "tls"}
    mine = [p for p in packets if (way := way_of(p, ETHERNET)) and clients & {way[1], way[3]}]
    report = examined(tmp_path, pcap_bytes(mine, nanoseconds=True))
    assert found(report) == {("encryption", "error"), ("handshakes", "note")}
    failed = (
        "4 TLS handshakes failed: certificate_unknown, sent by the client (2), probably rejected by the client (broker"
    )
    assert failed in str(report.table("findings").rows)
    assert "expires on 2026-11-24" in str(report.table("findings").rows)
    commands = [str(row[0]) for row in report.table("capture_commands").rows]
    assert all(f"tcp port {port}" in command for command in commands)
    text = "\n".join("".join(part for part, _ in line) for line in diagnosis_lines(report, 150))
    assert "To capture the same brokers:" in text
    # Without handshakes either end may be the client; the port that connections share is the broker's.
    later = [p for p in mine if (part := tcp_part(p, ETHERNET)) and not part.flags & 2]
    swapped = examined(tmp_path, pcap_bytes(later, nanoseconds=True)).table("capture_commands").rows
    assert str(swapped[0][0]).endswith(f" 'tcp port {port}'")


def test_no_kafka(tmp_path: Path) -> None:
    talk = TcpConversation(("10.0.0.7", 40_000), ("10.0.0.1", 8_080))
    talk.open()
    for _ in range(5):
        talk.client(b"GET /index.html HTTP/1.1\r\nHost: shop\r\n\r\n")
        talk.server(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
    talk.close()
    report = examined(tmp_path, pcap_bytes(encode(talk.segments), nanoseconds=True))
    assert found(report) == {("content", "error")}
    assert "port 8080 (1 connection, another protocol)" in evidence(report, "content")


def test_tunnels_tags_and_fragments(good: damage.Numbers, tmp_path: Path) -> None:
    packets = damage.packets_of(good)
    for kind, word in (("vlan", "(vlan and tcp port"), ("vxlan", "udp port 4789")):
        report = examined(tmp_path, pcap_bytes(encapsulate(packets, kind), nanoseconds=True))
        assert found(report) == set(), kind
        assert word in str(report.table("capture_commands").rows[0][0])
    whole = examined(tmp_path, pcap_bytes(fragment(packets, 1_400), nanoseconds=True))
    assert found(whole) == set()
    lossy = examined(tmp_path, pcap(without_rest_of_fragments(good, random.Random(1))))
    assert ("link types", "warning") in found(lossy)


def test_two_captures_with_other_clocks(good: damage.Numbers, tmp_path: Path) -> None:
    (tmp_path / "a.pcap").write_bytes(pcap(good))
    (tmp_path / "b.pcap").write_bytes(pcap([p._replace(packet=damage._later(p.packet, 200_000_000)) for p in good]))
    (tmp_path / "c.pcap").write_bytes(pcap([p._replace(packet=damage._later(p.packet, 5_000)) for p in good]))
    report = examine([tmp_path / "a.pcap", tmp_path / "b.pcap"])
    assert found(report) == {("clock", "warning"), ("copies", "note")}
    assert "differ by 200 ms" in evidence(report, "clock")
    assert found(examine([tmp_path / "a.pcap", tmp_path / "c.pcap"])) == {("copies", "note")}


def test_a_rotation_is_as_good_as_one_file(good: damage.Numbers, tmp_path: Path) -> None:
    for n, part in enumerate(damage.rotate(good, 4)):
        (tmp_path / f"ring.{n}.pcap").write_bytes(pcap(part))
    assert found(examine(tmp_path)) == set()
    later, half = moved(40 * SECOND)(good, random.Random(1)), len(good) // 2
    (tmp_path / "step.0.pcap").write_bytes(pcap(later[:half]))
    (tmp_path / "step.1.pcap").write_bytes(pcap(later[half:]))
    parts = [tmp_path / "step.0.pcap", tmp_path / "step.1.pcap"]
    stepped = examine(parts)
    assert ("clock", "warning") in found(stepped)
    assert f"stepped 1 time: {parts[1]}" in evidence(stepped, "clock")
    assert f"between packet {half:,} of {parts[0]} and packet 1 of {parts[1]}" in evidence(stepped, "clock")


def test_an_extract_is_named_and_its_gaps_are_no_problem(tmp_path: Path) -> None:
    source = SAMPLES / "apache-4.3.pcap.zst"
    command = "kafkatap extract a.pcap -f 'latency > 300ms'"
    extract([str(source)], str(tmp_path / "a.pcapng"), Selection.of(filter="latency > 300ms"), command=command)
    report = examine(tmp_path / "a.pcapng")
    assert ("extracts", "note") in found(report)
    assert "left out on purpose" in evidence(report, "extracts")
    assert command in evidence(report, "extracts")
    assert not {check for check, _ in found(report)} & {"gaps", "drops"}

    def lines_of(top: int | None) -> list[str]:
        return ["".join(part for part, _ in line) for line in diagnosis_lines(report, 150, top=top)]

    gaps = len(report.table("gap_connections").rows)
    assert any(f"and {gaps - 5} more rows (-n {gaps} shows all)" in line for line in lines_of(None))
    assert len(lines_of(gaps)) == len(lines_of(None)) + gaps - 6
    assert not any("more rows" in line for line in lines_of(0))


def test_the_commands_name_what_is_there(good: damage.Numbers) -> None:
    report = examine(SAMPLES / "apache-4.3-two-interfaces.pcapng")
    commands = [str(row[0]) for row in report.table("capture_commands").rows]
    assert commands[0].startswith("tcpdump -i eth0 -s 0 -B ")
    assert commands[0].endswith(" -w kafka.pcap 'tcp port 9092 or tcp port 9094'")
    assert commands[1].startswith("dumpcap -i eth0 -s 0 -B 64 ")
    loopback = examine(SAMPLES / "live-4.3.pcap.zst").table("capture_commands").rows
    assert f"-i lo -s 0 -B 16384 -w kafka.pcap 'tcp port {_broker_port(good)}'" in str(loopback[0][0])


def test_the_page_describes_all_tables_and_checks() -> None:
    page = (SAMPLES.parent / "docs" / "doctor.md").read_text()
    listed = re.findall(r"^\| `(\w+)`(?:: .*?)? \| (`.*) \|$", page, re.MULTILINE)
    named = {name: re.findall(r"`(\w+)`", columns) for name, columns in listed}
    assert named == {name: [column.name for column in columns] for name, columns in TABLES.items()}
    checks = re.findall(r"^\| ([a-z ]+) \| .*? \| (?:error|warning|note).*? \|$", page, re.MULTILINE)
    assert checks == [check.name for check in CHECKS]


def _far_from_the_broker(packets: damage.Numbers, delay_ns: int) -> list[Packet]:
    """As if captured at the clients' end: of each connection, all packets but its SYN come later."""
    later = [
        p.packet if (part := tcp_part(p.packet, ETHERNET)) and part.flags & 0x12 == 0x02
        else damage._later(p.packet, delay_ns)
        for p in packets
    ]  # fmt: skip
    return sorted(later, key=lambda packet: packet.time_ns)


def test_captured_at_the_clients_end(good: damage.Numbers, tmp_path: Path) -> None:
    report = examined(tmp_path, pcap_bytes(_far_from_the_broker(good, 8_000_000), nanoseconds=True))
    assert found(report) == {("place", "note")}
    assert "captured at the clients' end" in evidence(report, "place")
    assert "about 8.01 ms" in evidence(report, "place")
    ((handshakes, broker, client),) = report.table("capture_point").rows
    assert (handshakes, int(str(broker)) // 1_000_000, int(str(client)) // 1_000_000) == (45, 8, 0)


def _without_timestamps(packet: Packet) -> Packet:
    """The TCP timestamps (a header of 32 bytes) become NOPs."""
    at = tcp_at(packet, ETHERNET)
    if not at or packet.data[at + 12] >> 4 != 8:
        return packet
    return replace(packet, data=packet.data[: at + 20] + b"\1" * 12 + packet.data[at + 32 :])


def test_steps_back_without_tcp_timestamps(good: damage.Numbers, tmp_path: Path) -> None:
    stripped = [p._replace(packet=_without_timestamps(p.packet)) for p in good]
    assert found(examined(tmp_path, pcap(stripped))) == set()
    report = examined(tmp_path, pcap(moved(-2 * SECOND)(stripped, random.Random(1))))
    assert found(report) == {("clock", "warning")}
    assert "back by 2.00 s" in evidence(report, "clock")


def test_many_steps_are_all_named(good: damage.Numbers, tmp_path: Path) -> None:
    packets, offset = [], 0
    for n, p in enumerate(good):
        offset += {300: 7 * SECOND, 600: -2 * SECOND, 900: 400_000_000, 1_200: -SECOND}.get(n, 0)
        packets.append(p._replace(packet=damage._later(p.packet, offset)))
    report = examined(tmp_path, pcap(packets))
    text = evidence(report, "clock")
    assert "stepped 4 times" in text
    for step in (
        "forward by 7.00 s at packet 301", "back by 2.00 s at packet 601", "forward by 400 ms at packet 901",
        "back by 1.00 s between packets 1,200 and 1,203",
    ):  # fmt: skip
        assert step in text


def test_a_load_balancer_that_hides_clients(tmp_path: Path) -> None:
    """All clients of the sample have one address; their brokers become one that Metadata does not name."""
    packets = read_capture(SAMPLES / "apache-4.3.pcap.zst").packets
    moved_to = [
        replace(p, data=p.data.replace(bytes((10, 77, 0, 1)), bytes((10, 99, 0, 9)), 1)) for p in packets
        if (way := way_of(p, ETHERNET)) and {way[1], way[3]} & {9_092, 9_094} and bytes((10, 77, 0, 10)) in way
    ]  # fmt: skip
    report = examined(tmp_path, pcap_bytes(moved_to))
    assert ("proxies", "warning") in found(report)
    assert "10.77.0.10, to 10.99.0.9:9092" in evidence(report, "proxies")


def test_connections_before_and_behind_nat(corpus: Path) -> None:
    """Of a capture of `any`: each packet has two addresses, so that it is no copy."""
    report = examine(corpus / "captures" / "reports" / "nat-twice.pcap.zst")
    assert ("twins", "note") in found(report)
    assert not [name for name, severity in found(report) if severity == "warning"]
    assert "2 connections to 10.96.0.10:9092 are those to 10.88.0.1:9097 once more" in evidence(report, "twins")
    effects = {row["check"]: row["effect"] for row in report.table("findings").named_rows()}
    assert str(effects["twins"]).startswith("a report of files reads them twice, to count once")
    assert "are there twice: see twins" in str(effects["interfaces"])


def test_the_long_recordings(corpus: Path) -> None:
    """What is known of them (README.md there), and nothing else."""
    usual = {("encryption", "note"), ("starts", "note")}
    expected: dict[str, set[tuple[str, str]]] = {
        "apache-4.3-broker1.pcap.zst": {*usual, ("brokers", "note")},
        "apache-4.3-broker1-s128.pcap.zst": {*usual, ("brokers", "note"), ("snap length", "error")},
        "apache-4.3-broker1-any.pcap.zst": {*usual, ("brokers", "note"), ("interfaces", "note")},
        "apache-4.3-broker3.pcapng.zst": {
            *usual, ("brokers", "note"), ("interfaces", "note"), ("order", "note"), ("drops", "warning"),
            ("gaps", "warning"),
        },
        "apache-2.8.pcap.zst": set(), "apache-0.10.2.pcap.zst": set(), "apache-0.8.2.pcap.zst": set(),
        "diverse.pcap": set(), "mtu1500.pcap.zst": set(),
    }  # fmt: skip
    assert {name: found(examine(corpus / "captures" / name)) for name in expected} == expected


def test_names_of_interfaces_are_other_peoples_text(good: damage.Numbers, tmp_path: Path) -> None:
    """They come from the capture, and the user may paste the command into a shell."""
    evil = Interface(tsresol=9, name="eth0'; $(reboot) \x1b[31m")
    report = examined(tmp_path, pcapng_bytes(_elsewhere(damage.packets_of(good)), [evil]))
    words = shlex.split(str(report.table("capture_commands").rows[0][0]))
    assert words[:3] == ["tcpdump", "-i", evil.name]
    lines = ["".join(text for text, _ in line) for line in diagnosis_lines(report, None, is_whole=True)]
    assert any("$(reboot) \\x1b[31m" in line for line in lines)
    assert not any("\x1b" in line for line in lines)
    for width in (30, 80, 200):
        assert max(len("".join(t for t, _ in line)) for line in diagnosis_lines(report, width)) <= max(width, 120)


def _elsewhere(packets: Sequence[Packet]) -> list[Packet]:
    """The packets of loopback between other addresses."""
    return [replace(p, data=p.data.replace(bytes((127, 0, 0, 1)), bytes((10, 0, 0, 1)), 2)) for p in packets]


def requests_of(report: Report) -> int:
    """The requests of the ledger."""
    ledger = report.table("ledger")
    names = [column.name for column in ledger.columns]
    rows = [dict(zip(names, row, strict=True)) for row in ledger.rows]
    return next(int(row["count"]) for row in rows if (row["section"], row["part"]) == ("requests", "total"))


def test_the_latest_packet_is_named(good: damage.Numbers, tmp_path: Path) -> None:
    """The latest one lies in the middle; others are late before and after it."""
    at = {len(good) // 4: 300_000_000, len(good) // 2: 700_000_000, 3 * len(good) // 4: 100_000_000}
    late = [p._replace(packet=damage._later(p.packet, -at.get(n, 0))) for n, p in enumerate(good)]
    times = [p.packet.time_ns for p in late]
    latest = max(before - time for before, time in zip(itertools.accumulate(times, max), times, strict=True))
    assert latest > 600_000_000
    report = examined(tmp_path, pcap(late))
    assert numbers(report, "order")["latest_ns"] == latest
    assert numbers(report, "order")["late_packets"] >= len(at)


def test_packets_are_late_across_blocks() -> None:
    checks = CaptureChecks(FileReport("a.pcap"))
    for times in ([0, 500, 449], [300, 600], [550, 700]):
        rows = np.zeros(len(times), PACKET)
        rows["ts"] = np.array(times) * 1_000_000
        checks.add(rows, 0)
    assert (checks.late, checks.very_late, checks.latest_ns) == (3, 2, 200_000_000)


def gone_bytes(end: int, acked: int, sides: tuple[bool, bool]) -> list[Packet]:
    """600 bytes of the client (end 0) or the broker, of which no packet has the first 500, behind a whole exchange. The
    other end acknowledges so many of them; packets of the client, or of the broker, may be missing."""
    talk = KafkaTalk(acks=False)
    talk.tcp.open()
    talk.exchange(METADATA, 1, 1)
    before = talk.tcp.next[end]
    talk.tcp.skip(end, 500)
    talk.tcp.send(end, bytes(100))
    talk.tcp._add(1 - end, ACK, ack=before + acked)
    return encode(s for s in talk.segments if sides[s.source != talk.client])


@pytest.mark.parametrize(
    ("end", "acked", "sides", "wanted"),
    [
        (0, 600, (True, True), 500),
        (0, 500, (True, True), 400),
        (0, 0, (True, True), 0),
        (0, 600, (True, False), None),
        (1, 600, (True, True), 500),
        (1, 600, (False, True), None),
    ],
)
def test_acknowledged_bytes_in_gaps(
    end: int, acked: int, sides: tuple[bool, bool], wanted: int | None, tmp_path: Path
) -> None:  # fmt: skip
    """Bytes behind the last acknowledged one may be those of the gap. Without the receiver's packets nothing is
    known."""
    report = examined(tmp_path, pcap_bytes(gone_bytes(end, acked, sides)))
    (row,) = report.table("gap_connections").rows
    assert row[-2] == wanted
    assert numbers(report, "gaps")["gap_bytes"] == 500
    assert numbers(report, "gaps")["acknowledged_bytes"] == (wanted or 0)


@pytest.mark.parametrize("parts", [2, 4])
def test_parts_in_the_wrong_order_are_no_losses_of_the_network(parts: int, tmp_path: Path) -> None:
    """As a ring that wrapped and was put together by name. The files themselves have no problem, in any order."""
    packets = damage.numbered(read_capture(SAMPLES / "questions" / "replication.pcap.zst").packets)
    size = -(-len(packets) // parts)
    pieces = [packets[at : at + size] for at in range(0, len(packets), size)]
    wrapped = [*pieces[parts // 2 :], *pieces[: parts // 2]]
    report = examined(tmp_path, pcap([p for piece in wrapped for p in piece]))
    assert ("order", "error") in found(report)
    assert "wrong order" in evidence(report, "order")
    assert not any(check in ("network", "clock") for check, _ in found(report))
    files = [write_capture(tmp_path / f"ring{n}.pcap", pcap(piece)) for n, piece in enumerate(wrapped)]
    assert found(examine(files)) == {("starts", "note")}


def test_requests_behind_a_cut_are_not_counted_and_the_finding_says_so(tmp_path: Path) -> None:
    """The capture has pipelined requests. What a cut one lacks is what the whole one has more."""
    path = SAMPLES / "questions" / "throttle.pcap.zst"
    whole = requests_of(examine(path))
    report = examined(tmp_path, pcap(damage.cut(damage.numbered(read_capture(path).packets), 128)))
    missing = whole - int(requests_of(report))
    assert missing > 200
    assert f"{missing:,} responses without its request" in evidence(report, "snap length")
    assert "numbers of requests" not in evidence(report, "snap length")
    plain = damage.numbered(read_capture(SAMPLES / "questions" / "replication.pcap.zst").packets)
    assert "numbers of requests" in evidence(examined(tmp_path, pcap(damage.cut(plain, 128))), "snap length")


def test_a_filter_on_the_bootstrap_port_misses_the_listener_that_is_advertised() -> None:
    """Metadata of the captured port names another port of the same host: nothing of it was captured."""
    seen = read_captures([str(SAMPLES / "live-4.4.pcap.zst")])
    assert not list(content_checks.listeners(seen))
    elsewhere = seen._replace(places={1: {("127.0.0.1", 9094)}})
    (finding,) = content_checks.listeners(elsewhere)
    assert finding.severity == "warning"
    assert "127.0.0.1:9094" in finding.text
    both = seen._replace(places={1: {("127.0.0.1", 9094), ("127.0.0.1", 53279)}})
    (finding,) = content_checks.listeners(both)
    assert finding.severity == "note"
    assert not list(content_checks.listeners(seen._replace(places={1: {("broker-1.example", 9094)}})))


def test_a_cut_capture_with_tls(tmp_path: Path) -> None:
    """What is missing is not counted, and doctor does not say that it is."""
    packets = damage.numbered(read_capture(SAMPLES / "tls" / "libraries.pcap.zst").packets)
    (tmp_path / "cut.pcap").write_bytes(pcap(damage.cut(packets, 400)))
    for keys in ((), (SAMPLES / "tls" / "libraries.keys.log",)):
        said = evidence(examine(tmp_path / "cut.pcap", keylog=keys or None), "snap length")
        assert "TLS records that are cut cannot be decrypted" in said
        assert "numbers of requests" not in said
