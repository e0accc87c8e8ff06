"""What `kafkatap report` prints of each sample, kept beside it. KAFKATAP_UPDATE=1 writes the files anew."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.cli.running import kafkatap

SAMPLES = (
    "apache-4.3.pcap.zst", "apache-4.3-two-interfaces.pcapng", "apache-2.8.pcap.zst", "apache-0.10.2.pcap.zst",
    "apache-0.8.2.pcap.zst", "live-4.3.pcap.zst", "live-4.4.pcap.zst",
)  # fmt: skip


@pytest.mark.parametrize("name", SAMPLES)
def test_report_of_a_sample(samples: Path, name: str) -> None:
    done = kafkatap("report", "--utc", "--color", "never", name, cwd=samples, COLUMNS="120")
    assert done.code == 0, done.err
    kept = samples / f"{name.partition('.pcap')[0]}.report.txt"
    if os.environ.get("KAFKATAP_UPDATE"):
        kept.write_text(done.out)
    assert done.out == kept.read_text()
