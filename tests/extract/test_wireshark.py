"""The extracted capture in Wireshark's tools: no gap within exchanges, comments, names."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

import kafkatap
from kafkatap.extract.host_names import is_host_name
from tests.extract.support import SAMPLES, extracted
from tests.support.captures import pcap_bytes, write_capture
from tests.support.tcp import encode
from tests.support.wireshark import TSHARK
from tests.wire.kafkatalk import METADATA, KafkaTalk, small_talk

pytestmark = pytest.mark.skipif(TSHARK is None, reason="needs the program tshark, which is not installed")


def fields(capture: Path, *names: str, show: str = "", options: tuple[str, ...] = ()) -> list[list[str]]:
    """These fields of the packets for which a display filter holds."""
    assert TSHARK is not None
    command = [TSHARK, "-r", str(capture), *options, "-T", "fields", *(w for n in names for w in ("-e", n))]
    command += ["-Y", show] if show else []
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [line.split("\t") for line in done.stdout.splitlines()]


@pytest.mark.parametrize(("name", "filter"), [
    ("apache-4.3.pcap.zst", "error"), ("live-4.3.pcap.zst", "latency > 100ms"),
    ("questions/throttle.pcap.zst", "latency > 300ms"),
])  # fmt: skip
def test_no_gap_within_exchanges(name: str, filter: str, tmp_path: Path) -> None:
    """Wireshark reports the bytes that were left out at the first packet after them: never within an exchange."""
    output = tmp_path / "out.pcapng"
    extracted(SAMPLES / name, output, filter)
    before, after = (
        {
            (ports, seq, float(time))
            for ports, seq, time in fields(
                capture, "tcp.port", "tcp.seq_raw", "frame.time_epoch", show="tcp.analysis.lost_segment",
                options=("-n",),
            )
        }
        for capture in (SAMPLES / name, output)
    )  # fmt: skip
    places = np.array(sorted((float(time), ports) for ports, _, time in after - before), "f8,U30")
    for row in kafkatap.analyze(output, filter=filter).exchanges.to_pylist():
        ports = {f"{row['client_port']},{row['broker_port']}", f"{row['broker_port']},{row['client_port']}"}
        times = places["f0"][np.isin(places["f1"], sorted(ports))]
        begin, end = (row[side].timestamp() if row[side] else 0 for side in ("request_first", "response_last"))
        assert not ((times > begin - 1e-6) & (times < end + 1e-6)).any(), row


def test_comments(tmp_path: Path) -> None:
    """The first packet of each selected request and response has a line with what kafkatap found."""
    output = tmp_path / "out.pcapng"
    extracted(SAMPLES / "apache-4.3.pcap.zst", output, "api == Produce and error", command="kafkatap extract x.pcap")
    comments = {int(n): text for n, text in fields(output, "frame.number", "frame.comment", show="frame.comment")}
    rows = kafkatap.analyze(output, filter="api == Produce and error").exchanges.to_pylist()
    assert rows
    for row in rows:
        request, response = comments[row["request_packet_first"]], comments[row["response_packet_first"]]
        assert f'request Produce v{row["api_version"]} of client "{row["client_id"]}"' in request
        assert f"exchange {row['exchange']}: answered after " in request
        assert f"response to the request in packet {row['request_packet_first']}: Produce" in response
        assert ("throttle_time_ms" in response) == (row["throttle_time_ms"] > 0)
        assert "no error code" not in response
    firsts = {row[f"{message}_packet_first"] for row in rows for message in ("request", "response")}
    assert set(comments) == firsts
    info = subprocess.run(["capinfos", str(output)], capture_output=True, text=True, check=True).stdout
    assert "kafkatap extract x.pcap" in info
    assert "Capture application: kafkatap" in info
    assert "Strict time order:   True" in info


def test_without_comments(tmp_path: Path) -> None:
    output = tmp_path / "out.pcapng"
    made = extracted(SAMPLES / "apache-4.3.pcap.zst", output, "error", comments=False, names=False)
    assert fields(output, "frame.number", show="frame.comment") == []
    requests = kafkatap.analyze(output, filter="error").exchanges["request_packet_first"].to_pylist()
    assert sorted(made.selected_packets.tolist()) == sorted(requests)
    # A second extraction, as of a capture that was rewritten meanwhile, comments only those that were selected first.
    extracted(output, tmp_path / "again.pcapng", commented=made.selected_packets)
    commented = [
        int(n) for n, *_ in fields(tmp_path / "again.pcapng", "frame.number", show='frame.comment contains "request"')
    ]
    assert set(requests) <= set(commented)
    assert made.packets == len(fields(tmp_path / "again.pcapng", "frame.number"))


def test_names(tmp_path: Path) -> None:
    """Brokers have their node ids as names."""
    output = tmp_path / "out.pcapng"
    extracted(SAMPLES / "apache-4.3.pcap.zst", output, "latency > 50ms")
    found = fields(output, "ip.src_host", "ip.src", options=("-N", "n"))
    names = {address: name for name, address in found}
    assert names["10.77.0.1"] == "broker-1"
    assert names["10.77.0.2"] == "broker-2"
    assert names["10.77.0.10"] == "10.77.0.10"  # several clients


def test_an_extract_without_metadata_has_what_brokers_advertise(tmp_path: Path) -> None:
    """The node ids and client ids of an extract are not read back as names: its packets say them."""
    talk = hostile_talk("billing-7", "kafka-3.example.com")
    others = small_talk(client=("10.0.0.1", 40_999), time_ns=talk.segments[-1].time_ns, client_id="other")
    capture = write_capture(tmp_path / "in.pcap", pcap_bytes(encode([*talk.segments, *others.segments])))
    extracted(capture, tmp_path / "out.pcapng", 'client_id == "other"')
    made = kafkatap.analyze(str(tmp_path / "out.pcapng"))
    assert set(made.exchanges["client_id"].to_pylist()) == {"other"}
    (row,) = made.report(sections="connections").table("connections")
    assert (row.get("client_host"), row["broker_host"]) == (None, "kafka-3.example.com")


def hostile_talk(client_id: str, host: str = "10.0.0.2") -> KafkaTalk:
    talk = KafkaTalk(client_id=client_id)
    talk.tcp.open()
    asked = talk.request(METADATA, 1, 7, Topics=[{"Name": "orders"}])
    talk.respond(asked, Brokers=[{"NodeId": 3, "Host": host, "Port": 9092}], ControllerId=3)
    return talk


@pytest.mark.parametrize(
    "client_id", ["\x1b]0;gone\x07\x1b[2J", "a\nkafkatap: forged", "x\u202eexe", "n" * 30_000, "\0"]
)
def test_hostile_client_ids(client_id: str, tmp_path: Path) -> None:
    capture = write_capture(tmp_path / "in.pcap", pcap_bytes(encode(hostile_talk(client_id).tcp.segments)))
    extracted(capture, tmp_path / "out.pcapng", "api == Metadata")
    ((comment,),) = fields(tmp_path / "out.pcapng", "frame.comment", show='frame.comment contains "request Meta"')
    assert comment.isprintable()
    assert comment.count("kafkatap:") == 1 + client_id.count("kafkatap:")
    assert len(comment) < 500
    data = (tmp_path / "out.pcapng").read_bytes()
    at = data.index(b"kafkatap: request")
    assert data[at : at + 500].split(b"\0")[0].decode().isprintable()


@pytest.mark.parametrize(("host", "name"), [
    ("10.0.0.2", "broker-3"), ("kafka-3.example.com", "kafka-3.example.com"), ("evil\x1b[2J", "broker-3"),
    ("a b", "broker-3"), ("under_score", "broker-3"), ("x" * 64, "broker-3"), ("1.2.3.999", "broker-3"),
])  # fmt: skip
def test_only_host_names_become_names(host: str, name: str, tmp_path: Path) -> None:
    capture = write_capture(tmp_path / "in.pcap", pcap_bytes(encode(hostile_talk("billing-7", host).tcp.segments)))
    extracted(capture, tmp_path / "out.pcapng", "api == Metadata")
    found = {
        address: shown
        for shown, address in fields(tmp_path / "out.pcapng", "ip.src_host", "ip.src", options=("-N", "n"))
    }
    assert found == {"10.0.0.1": "billing-7", "10.0.0.2": name}
    ((comment,),) = fields(tmp_path / "out.pcapng", "frame.comment", show='frame.comment contains "request Meta"')
    assert ("(kafka-3.example.com)" in comment) == (name == "kafka-3.example.com")
    assert "broker-3" not in comment


@pytest.mark.parametrize(
    "text", ["", "a_b", "-a", "a-", "a..b", "1.2.3.4", "é", "a b", "a" * 64, ".".join(["a" * 60] * 5)]
)
def test_no_host_names(text: str) -> None:
    assert not is_host_name(text)
