"""Captures that a user may have: whole, damaged, empty, of something else."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import pytest

from tests.support.captures import read_bytes

from .running import kafkatap

#: The record of this packet is damaged in `damaged.pcap`.
DAMAGED_AFTER = 3000


@pytest.fixture(scope="session")
def sample(samples: Path) -> Path:
    """The first sample; used once, so that kernels are compiled before any time counts."""
    path = samples / "apache-4.3.pcap.zst"
    assert kafkatap("report", path, "--json").code == 0
    return path


@pytest.fixture(scope="session")
def captures(sample: Path, samples: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of captures made from the samples."""
    folder = tmp_path_factory.mktemp("captures")
    whole, compressed = read_bytes(sample), sample.read_bytes()
    pcapng = (samples / "apache-4.3-two-interfaces.pcapng").read_bytes()
    zipped = gzip.compress(whole, 1, mtime=0)
    at = 24
    for _ in range(DAMAGED_AFTER):
        at += 16 + struct.unpack_from("<I", whole, at + 8)[0]
    block = 0
    for _ in range(500):
        block += struct.unpack_from("<I", pcapng, block + 4)[0]
    files = {
        "whole.pcap": whole,
        "whole.pcap.gz": zipped,
        "two-members.pcap.gz": gzip.compress(whole[:700_000], 1) + gzip.compress(whole[700_000:], 1),
        "cut.pcap": whole[:700_000],
        "cut.pcapng": pcapng[:300_000],
        "cut.pcap.gz": zipped[: len(zipped) // 2],
        "cut.pcap.zst": compressed[: len(compressed) // 2],
        "damaged.pcap": whole[: at + 8] + b"\xff\xff\xff\x7f" + whole[at + 12 :],
        "damaged.pcapng": pcapng[: block + 4] + struct.pack("<I", 7) + pcapng[block + 8 :],
        "damaged.pcap.gz": zipped[: len(zipped) // 2] + bytes(50) + zipped[len(zipped) // 2 + 50 :],
        "damaged.pcap.zst": compressed[:300_000] + b"\xaa" * 50 + compressed[300_050:],
        "empty.pcap": b"",
        "tiny.pcap": whole[:10],
        "no-packets.pcap": whole[:24],
        "text.txt": b"hello, this is no capture\n",
        "xz.pcap.xz": b"\xfd7zXZ\x00" + bytes(100),
        "halves-1.pcap": whole[:at],
        "halves-2.pcap": whole[:24] + whole[at:],
    }
    for name, data in files.items():
        (folder / name).write_bytes(data)
    (folder / "folder").mkdir()
    return folder
