"""The identity of a capture depends on its first packet alone."""

from __future__ import annotations

import gzip
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import zstandard

from kafkatap.captures.identity import capture_head, missing_identity
from tests.support.captures import pcap_bytes, pcapng_bytes
from tests.support.tcp import START_NS, encode
from tests.wire.kafkatalk import small_talk

PACKETS = encode(small_talk(5).segments)
WHOLE = pcap_bytes(PACKETS)


def identity(path: Path, data: bytes) -> int:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data)
    found, first = capture_head(str(path))
    assert 0 < found < 2**63
    assert first == START_NS
    assert capture_head(f"file://{path}") == (found, first)
    return found


def test_versions_of_a_capture_have_one_identity(tmp_path: Path) -> None:
    damaged = bytearray(WHOLE)
    damaged[200:400] = bytes(200)
    versions = {
        "whole.pcap": WHOLE,
        "deep/other": WHOLE,
        "part.pcap": WHOLE[: len(WHOLE) // 2],
        "one-packet.pcap": pcap_bytes(PACKETS[:1]),
        "damaged.pcap": bytes(damaged),
        "packed.pcap.gz": gzip.compress(WHOLE),
        "packed.pcap.zst": zstandard.compress(WHOLE),
        "cut.pcap": pcap_bytes([replace(p, data=p.data[:64], original_length=p.wire_length) for p in PACKETS]),
        "nanoseconds.pcap": pcap_bytes(PACKETS, nanoseconds=True),
        "converted.pcapng": pcapng_bytes(PACKETS),
    }
    found = {name: identity(tmp_path / name, data) for name, data in versions.items()}
    assert len(set(found.values())) == 1, found


def test_other_first_packets_are_other_captures(tmp_path: Path) -> None:
    path = tmp_path / "x.pcap"
    first = PACKETS[0]
    others = [
        pcap_bytes(PACKETS[1:]),
        pcap_bytes([replace(first, time_ns=first.time_ns + 1_000)]),
        pcap_bytes([replace(first, original_length=first.wire_length + 1)]),
        pcap_bytes([replace(first, data=first.data[:40] + b"\xff" + first.data[41:])]),
    ]
    found = {identity(path, WHOLE)}
    for data in others:
        path.write_bytes(data)
        found.add(capture_head(str(path)).identity)
    assert len(found) == 5


def test_a_capture_of_another_tool(tmp_path: Path, samples: Path) -> None:
    """Wireshark's editcap converts a capture, and cuts its packets."""
    if shutil.which("editcap") is None:
        pytest.skip("needs editcap, which comes with Wireshark")
    source = tmp_path / "plain.pcap"
    source.write_bytes(
        zstandard.ZstdDecompressor().stream_reader((samples / "apache-0.8.2.pcap.zst").read_bytes()).read()
    )
    for options in (["-F", "pcapng"], ["-s", "96"], ["-F", "nsecpcap"]):
        made = tmp_path / "made"
        subprocess.run(["editcap", *options, str(source), str(made)], check=True)
        assert capture_head(str(made)) == capture_head(str(source))


def test_a_file_without_packets_has_the_identity_of_its_name(tmp_path: Path) -> None:
    gone = [str(tmp_path / name) for name in ("a.pcap", "b.pcap")]
    with pytest.raises(FileNotFoundError):
        capture_head(gone[0])
    assert 0 < missing_identity(gone[0]) != missing_identity(gone[1])
    for data in (b"", b"no capture at all", WHOLE[:24], WHOLE[:30]):
        Path(gone[0]).write_bytes(data)
        assert capture_head(gone[0]) == (missing_identity(gone[0]), None)
