"""Topics of which a capture has only ids: they are shown by id, and their lag is known all the same."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.running import kafkatap
from tests.support.captures import pcap_bytes, read_capture

SAMPLE = Path(__file__).resolve().parents[2] / "samples" / "live-4.4.pcap.zst"


def test_a_capture_without_names(tmp_path: Path) -> None:
    """Its second half: no Metadata response comes any more."""
    packets = list(read_capture(SAMPLE).packets)
    path = tmp_path / "half.pcap"
    path.write_bytes(pcap_bytes(packets[len(packets) * 7 // 10 :], nanoseconds=True))
    found = json.loads(kafkatap("report", "--json", "--sections", "groups", path).out)
    assert "1 topic is shown by id, as no Metadata response of this capture has the name." in found["warnings"]
    (row,) = (row for row in found["reports"]["group_lag"] if len(row["topic"]) == 22)
    assert row["lag"] == 0
    whole = json.loads(kafkatap("report", "--json", "--sections", "groups", SAMPLE).out)
    assert not any("shown by id" in line for line in whole["warnings"])
