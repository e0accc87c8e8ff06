"""Captures whose clock was wrong: the report has all sections, whatever the times are."""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from kafkatap.__main__ import main
from tests.support.captures import pcap_bytes, read_capture, write_capture
from tests.support.damage import (
    Numbered,
    exchange_times,
    freeze_clock,
    numbered,
    packets_of,
    set_back,
    shake,
    spread_days,
)

SAMPLES = Path(__file__).resolve().parents[2] / "samples"
#: Recordings with groups, rebalances, slow requests and outages.
CAPTURES = (
    "live-4.3", "apache-4.3", "events/hang", "advice/connection-limit-right", "advice/dying-right",
    "advice/held-rebalance", "questions/expulsions", "questions/in-flight",
)  # fmt: skip


@pytest.mark.parametrize("wrong", [exchange_times, freeze_clock, set_back, shake, spread_days])
@pytest.mark.parametrize("name", CAPTURES)
def test_the_report_of_a_wrong_clock(
    name: str,
    wrong: Callable[[Sequence[Numbered], random.Random], Sequence[Numbered]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    capture = read_capture(SAMPLES / f"{name}.pcap.zst")
    chance = random.Random(zlib.crc32(f"{name} {wrong.__name__}".encode()))
    for number in range(2):
        packets = packets_of(wrong(numbered(capture.packets), chance))
        path = write_capture(tmp_path / f"{number}.pcap", pcap_bytes(packets, capture.link_types[0], nanoseconds=True))
        assert main(["report", str(path), "--sections", "all"]) == 0
        assert "Ledger: " in capsys.readouterr().out
